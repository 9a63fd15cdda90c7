"""Resets in any order of what may happen: a coordinator as Kafka's, two proxies, members and one who resets.

Whatever is late, lost or killed, behind a reset no place of before stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tests.proxy.talks import EAST, LAYOUT, answer, asked, asked_part, by_kio, said_part, seen, view
from twinshore.kafka.protocol.apis import API_VERSIONS, OFFSET_COMMIT
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import HEARTBEAT, JOIN_GROUP
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import ForwardRequest, ParkRequest, RespondNow
from twinshore.proxy.core.offset_reset import OffsetResets
from twinshore.proxy.core.session import ClientSession
from twinshore.state.core.proxy_values import ResetGoal, ResetRow, ResetState

UNKNOWN_MEMBER, REBALANCING = 25, 27
END = 1_000_000
VERSION = 8


@dataclass
class Coordinator:
    """The group `g`, with one partition. Of a place it is known in which term of resets it was read."""

    members: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    place: tuple[int, int] = (0, 0)
    made: int = 0

    def join(self) -> str:
        self.made += 1
        self.generation += 1
        name = f"m{self.made}"
        self.members = dict.fromkeys([*self.members, name], self.generation)
        return name

    def commits(self, member: str, generation: int, place: tuple[int, int]) -> int:
        if member == "" and generation < 0:
            if self.members:
                return UNKNOWN_MEMBER
        elif member not in self.members:
            return UNKNOWN_MEMBER
        elif self.members[member] != generation:
            return 22
        self.place = place
        return 0


@dataclass
class Client:
    """A member: `term` says since which reset it reads, `at` how far. `like_librdkafka`: one who has heard that it is
    no member commits from outside before it joins anew."""

    session: ClientSession
    like_librdkafka: bool
    joining: bool = False
    member: str = ""
    generation: int = -1
    term: int = 0
    at: int = 0
    told: int = 0
    sent: list[Request] = field(default_factory=list)


class World:
    """`heard`: the resets that each proxy knows. A request that a proxy passed on may arrive late."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.broker = Coordinator()
        self.now_ms = 0
        self.row: ResetRow | None = None
        self.revision = 0
        self.term = 0
        self.books = [OffsetResets(), OffsetResets()]
        self.clients = [
            Client(ClientSession(EAST, LAYOUT, lambda: None, resets=self.books[number % 2]), self.chance.random() < 0.5)
            for number in range(4)
        ]
        for one in self.clients:
            if self.chance.random() < 0.7:
                said = {"client_software_name": "librdkafka", "client_software_version": "2.3.0"}
                one.session.move(asked(API_VERSIONS, 3, **said), seen())
        self.late: list[tuple[Client, Request]] = []
        self.refused: list[int] = []

    def change(self, state: ResetState, until_ms: int, members: frozenset[str] = frozenset()) -> None:
        goals = (ResetGoal("east", "orders", 0, 0, 0),)
        self.row = ResetRow("g", "1" * 32, state, "anna", self.now_ms, until_ms, goals, members)
        self.revision += 1

    def hears(self, book: OffsetResets) -> None:
        book.tick(self.now_ms)
        if self.row is not None:
            book.take([self.row], self.revision)

    def acts(self, client: Client) -> None:
        if not client.member or client.joining:
            if not client.member and client.like_librdkafka and client.term < self.term and self.chance.random() < 0.5:
                self.commits(client)
            self.joins(client)
        elif self.chance.random() < 0.3:
            self.beats(client)
        else:
            client.at += 1
            self.commits(client)

    def beats(self, client: Client) -> None:
        there = self.broker.members.get(client.member)
        code = UNKNOWN_MEMBER if there is None else REBALANCING if there != client.generation else 0
        beat = asked(HEARTBEAT, 3, group_id="g", member_id=client.member, generation_id=client.generation)
        move = client.session.move(beat, seen())
        assert isinstance(move, ForwardRequest)
        whole = answer(HEARTBEAT, 3, error_code=to_error_code(code))
        parts = move.rewrite(whole, 0) if move.rewrite else None
        heard = int(by_kio(HEARTBEAT, 3, whole if parts is None else view(parts)).error_code)
        if heard == UNKNOWN_MEMBER:
            client.member, client.generation = "", -1
        elif heard == REBALANCING:
            self.commits(client)
            client.joining = True

    def joins(self, client: Client) -> None:
        """One who is known keeps what it reads, as cooperative members do."""
        move = client.session.move(asked(JOIN_GROUP, 5, group_id="g", member_id=client.member), seen())
        if not isinstance(move, ForwardRequest):
            return
        client.joining = False
        if not client.member:
            client.member = self.broker.join()
            client.term, client.at = self.broker.place
        elif client.member not in self.broker.members:
            client.member, client.generation = "", -1
            return
        client.generation = self.broker.members[client.member]

    def commits(self, client: Client) -> None:
        kind, part = (asked_part(OFFSET_COMMIT, VERSION, *one) for one in (["topics"], ["topics", "partitions"]))
        value = client.term * END + client.at
        topics = (
            build_message(
                kind, name="orders", partitions=(build_message(part, partition_index=0, committed_offset=value),)
            ),
        )
        generation = {"generation_id_or_member_epoch": client.generation, "member_id": client.member}
        sent = asked(OFFSET_COMMIT, VERSION, group_id="g", topics=topics, **generation)
        move = client.session.move(sent, seen())
        match move:
            case RespondNow(body):
                self.hears_of(client, by_kio(OFFSET_COMMIT, VERSION, view(body)))
            case ParkRequest():
                pass  # it is kept, and judged anew as the reset is over: as if it were sent then
            case ForwardRequest():
                passed = Request(OFFSET_COMMIT, VERSION, 7, "app", view(move.body), 0) if move.body else sent
                if client.member and self.chance.random() < 0.2:
                    self.late.append((client, passed))
                else:
                    code = self.arrives(passed)
                    whole = said(code)
                    parts = move.rewrite(whole, 0) if move.rewrite else None
                    self.hears_of(client, by_kio(OFFSET_COMMIT, VERSION, whole if parts is None else view(parts)))
            case _:
                raise AssertionError(move)

    def hears_of(self, client: Client, answered: object) -> None:
        code = int(answered.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]
        if code == UNKNOWN_MEMBER and client.term < self.term:
            self.refused.append(code)

    def arrives(self, request: Request) -> int:
        found = decode_request(request)
        value = int(found.topics[0].partitions[0].committed_offset)
        member, generation = str(found.member_id), int(found.generation_id_or_member_epoch)
        return self.broker.commits(member, generation, divmod(value, END))

    def anything(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.chance.randint(0, 40)
            if self.chance.random() < 0.1:
                self.hears(self.chance.choice(self.books))
            if self.late and self.chance.random() < 0.2:
                _, request = self.late.pop(self.chance.randrange(len(self.late)))
                self.arrives(request)
            self.acts(self.chance.choice(self.clients))

    def resets(self, *, all_hold: bool) -> set[str]:
        """As the hands do; who was sent away."""
        sent = set(self.row.members) if self.row is not None else set()
        self.change(ResetState.HELD, self.now_ms + 60_000)
        for book in self.books if all_hold else self.books[:1]:
            self.hears(book)
        self.anything(self.chance.randint(0, 40))
        self.change(ResetState.SETTING, self.now_ms + 60_000, frozenset(sent))
        for book in self.books if all_hold else self.books[:1]:
            self.hears(book)
        self.term += 1
        while True:
            sent |= self.broker.members.keys()
            self.broker.members = {}
            if self.chance.random() < 0.3:
                self.anything(self.chance.randint(0, 5))
            if self.broker.commits("", -1, (self.term, 0)) == 0:
                return sent


def said(code: int) -> memoryview:
    kind, part = (said_part(OFFSET_COMMIT, VERSION, *one) for one in (["topics"], ["topics", "partitions"]))
    topics = (
        build_message(
            kind, name="orders", partitions=(build_message(part, partition_index=0, error_code=to_error_code(code)),)
        ),
    )
    return answer(OFFSET_COMMIT, VERSION, topics=topics)


@pytest.mark.parametrize("seed", range(16))
def test_no_place_of_before_stands_behind_a_reset(seed: int) -> None:
    world = World(seed)
    world.anything(60)
    for _ in range(4):
        sent = world.resets(all_hold=True)
        world.anything(world.chance.randint(0, 30))
        assert world.broker.place == (world.term, 0), "nobody has joined"
        assert world.refused == [], "and no application is told an error"
        world.change(ResetState.DONE, world.now_ms, frozenset(sent))
        for book in world.books:
            world.hears(book)
        for _ in range(20):
            world.anything(10)
            assert world.broker.place[0] == world.term
        assert world.refused == []


@pytest.mark.parametrize("seed", range(16))
def test_nor_does_one_where_a_proxy_has_not_heard_or_whoever_resets_is_killed(seed: int) -> None:
    """Members may then be told an error, as at any rebalance. Those of librdkafka that have heard that they are none
    are another thing: their proxies must know."""
    world = World(seed)
    for client in world.clients:
        client.like_librdkafka = False
    world.anything(60)
    for _ in range(4):
        world.resets(all_hold=False)
        if world.chance.random() < 0.5:
            world.now_ms += 61_000  # he never says that it is done
        for _ in range(20):
            world.anything(10)
            assert world.broker.place[0] == world.term
        assert world.row is not None
        world.row = replace(world.row, members=frozenset())


def test_a_hold_is_what_keeps_members_from_coming_too_early() -> None:
    """The world can show it: without proxies that hold, some join before places are set."""
    world = World(1)
    world.anything(60)
    assert world.broker.members
    world.broker.members = {}
    world.anything(40)
    assert world.broker.members
    assert not isinstance(world.clients[0].session.move(asked(JOIN_GROUP, 5, group_id="g"), seen()), ParkRequest)
