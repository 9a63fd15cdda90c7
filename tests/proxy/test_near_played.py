"""A consumer that does what clients do by KIP-392, two logs, a mirror and switches, played by chance: whatever happens,
it reads each record once, in order, and hears from no twin that its place is out of range."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.proxy.near_stage import client, known, near
from tests.proxy.talks import EAST, LAYOUT, WEST, carried, request, view
from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.apis import FETCH
from twinshore.proxy.core.follower_fetch import FollowerFetch, TopicCheck, TwinLogBounds
from twinshore.proxy.core.model import (
    BrokerId,
    BrokerRequest,
    FanOut,
    ForwardRequest,
    HomeRoute,
    RespondLater,
    RespondNow,
    RoutingTable,
)
from twinshore.proxy.core.session import ClientSession

OUT_OF_RANGE, NOT_HERE, NO_SESSION = 1, 6, 70
PLACES = {"east": EAST, "west": WEST}
LEASE_S = 60.0
VERSION = 12


@dataclass
class World:
    """Of each cluster where the log begins and ends; `held`: a switch has been announced; `still`: nothing more
    happens."""

    chance: Random
    near: FollowerFetch
    home: str = "east"
    term: int = 1
    held: bool = False
    paused: bool = False
    still: bool = False
    now_s: float = 100.0
    starts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    sessions: dict[int, int] = field(default_factory=dict)

    @property
    def twin(self) -> str:
        return "west" if self.home == "east" else "east"

    def seen(self) -> RoutingTable:
        return known(orders=HomeRoute(self.home, self.term, held=self.held, moves=self.held))

    def step(self) -> None:
        """Time goes on, and something happens."""
        self.now_s += self.chance.choice((0.05, 0.1, 0.2, 0.8))
        if self.chance.random() < 0.5:
            self.look()
        match self.chance.randrange(12):
            case 0 | 1 | 2 | 3 if not self.held:
                self.ends[self.home] += self.chance.randrange(1, 8)
            case 4 | 5 | 6 | 7 | 8 if not self.paused:
                self.carry(self.chance.randrange(1, 12))
            case 9 if self.chance.random() < (0.7 if self.paused else 0.1):
                self.paused = not self.paused
            case 10 if self.chance.random() < 0.2:
                self.starts[self.twin] = self.chance.randint(self.starts[self.twin], self.ends[self.twin])
            case 11 if self.chance.random() < (0.8 if self.held else 0.1):
                self.switch()
        self.near.tick(self.now_s, self.seen())

    def carry(self, most: int) -> None:
        self.ends[self.twin] = min(self.ends[self.home], self.ends[self.twin] + most)

    def switch(self) -> None:
        """It is announced; then it turns back, or home is where the twin was, once that is level."""
        if not self.held:
            self.held = True
        elif self.chance.random() < 0.3:
            self.held = False
        else:
            self.carry(1 << 30)
            self.home, self.term, self.held = self.twin, self.term + 1, False

    def look(self) -> None:
        """Sometimes the twin's cluster does not say, or the link does not carry it."""
        ends: TwinLogBounds | None = TwinLogBounds(PLACES[self.twin].node, self.starts[self.twin], self.ends[self.twin])
        ends = None if self.chance.random() < 0.05 else ends
        twins = {} if self.chance.random() < 0.01 else {self.twin: {0: ends}}
        self.near.take([TopicCheck("orders", self.home, self.term, self.now_s, {0: self.ends[self.home]}, twins)])

    def answers(self, place: BrokerId, body: memoryview) -> memoryview:
        """A broker's answer to a fetch; it keeps where its sessions stand."""
        asked = fetch.read_fetch_request(body, 0, VERSION)
        if asked.session_epoch == 0:
            asked = asked._replace(session_id=len(self.sessions) + 1)
        at = next((one.position for one in asked.wanted), self.sessions.get(asked.session_id, -1))
        self.sessions[asked.session_id] = at
        start, end = self.starts[place.cluster], self.ends[place.cluster]
        error = 0 if start <= at <= end else OUT_OF_RANGE
        records = f"{at}-{min(end, at + 5)}".encode() if not error and at < end else b""
        told = [fetch.FetchResponsePartition("orders", 0, error, -1 if error else end, -1, records=records)]
        if asked.session_epoch > 0 and not error and not records:
            told = []
        answer = fetch.FetchResponse(0, 0, asked.session_id if asked.session_epoch >= 0 else 0, told)
        return view(list(fetch.write_fetch_response(VERSION, answer)))


class Reader:
    """With fetch sessions as in Java, or without as in librdkafka."""

    def __init__(self, world: World, in_sessions: bool) -> None:
        self._world, self._in_sessions = world, in_sessions
        self._talks: dict[str, ClientSession] = {name: client(world.near, place) for name, place in PLACES.items()}
        self._sessions: dict[str, tuple[int, int, int]] = {}  # id, next epoch, place that was named last
        self._leader, self._led, self._led_until_s = "east", "", 0.0
        self.at = 0
        self.read_at = Counter[str]()

    def ask(self) -> None:
        world = self._world
        if self._led and world.now_s > self._led_until_s:
            self._led = ""
        where = self._led or self._leader
        session_id, epoch, named = self._sessions.get(where, (0, 0 if self._in_sessions else -1, -1))
        wanted = [fetch.FetchRequestPartition("orders", 0, self.at, 1000)] if epoch <= 0 or named != self.at else []
        asked = fetch.FetchRequest(500, 1, 1 << 20, 0, wanted, session_id, epoch)
        answer = fetch.read_fetch_response(self._told(where, asked), 0, VERSION)
        self._sessions.pop(where, None)
        if answer.error:
            assert answer.error == NO_SESSION
            return
        if self._in_sessions and answer.session_id:
            self._sessions[where] = answer.session_id, epoch + 1, self.at
        for one in answer.fetched:
            self._take(where, one)

    def _told(self, where: str, asked: fetch.FetchRequest) -> memoryview:
        world, place = self._world, PLACES[where]
        sent = request(FETCH, VERSION, [fetch.write_fetch_request(VERSION, asked)])
        move = self._talks[where].move(sent, world.seen())
        if not world.still and world.chance.random() < 0.2:
            world.step()  # while it is under way
        match move:
            case RespondNow(body) | RespondLater(body, _):
                return view(body)
            case ForwardRequest():
                heard = world.answers(place, view(move.body) if move.body else sent.view[sent.position :])
                assert move.rewrite is not None
                told = move.rewrite(heard, 0)
                return heard if told is None else view(told)
        assert isinstance(move, FanOut)
        return carried(move, lambda ask: self._asked(ask))[0]

    def _asked(self, ask: BrokerRequest) -> memoryview:
        return self._world.answers(ask.place, view(ask.body))

    def _take(self, where: str, one: fetch.FetchResponsePartition) -> None:
        if one.error == OUT_OF_RANGE and where == self._world.home and self.at < self._world.starts[where]:
            self.at = self._world.starts[where]  # the new home had deleted more than the old one
        elif one.error:
            assert one.error == NOT_HERE, f"{where} says {one.error} of {self.at}: {self._world}"
            self._sessions.pop(where, None)
            self._led, self._leader = "", self._world.home
        elif one.preferred_replica >= 0:
            (self._led,) = [name for name, at in PLACES.items() if LAYOUT.number(*at) == one.preferred_replica]
            self._led_until_s = self._world.now_s + LEASE_S
        elif one.records:
            begin, end = map(int, bytes(one.records).split(b"-"))
            assert begin == self.at, "nothing is left out, and nothing is read again"
            self.at = end
            self.read_at[where if where != self._world.home else "home"] += end - begin


@pytest.fixture(autouse=True)
def clients_come_back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinshore.proxy.core.follower_fetch.REDIRECT_INTERVAL_MIN_S", 4.0)
    monkeypatch.setattr("twinshore.proxy.core.follower_fetch.SESSION_CHECK_INTERVAL_S", 2.0)


@pytest.mark.parametrize("in_sessions", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_each_record_is_read_once_and_in_order(seed: int, in_sessions: bool) -> None:
    world = World(Random(seed), near())
    world.near.tick(world.now_s, world.seen())
    reader = Reader(world, in_sessions)
    for _ in range(600):
        world.step()
        for _ in range(world.chance.randrange(3)):
            reader.ask()
    world.held, world.still = False, True
    world.carry(1 << 30)
    for _ in range(200):
        world.now_s += 0.5
        world.look()
        world.near.tick(world.now_s, world.seen())
        reader.ask()
    assert reader.at == world.ends[world.home], "it comes to the end"


def test_readers_of_this_play_do_read_at_twins() -> None:
    read = Counter[str]()
    for seed in range(10):
        world = World(Random(seed), near())
        reader = Reader(world, in_sessions=bool(seed % 2))
        for _ in range(600):
            world.step()
            reader.ask()
        read += reader.read_at
    assert read["west"] > 1000 < read["home"], read
