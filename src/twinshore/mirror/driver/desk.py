"""The driver's desk: every pump of every lane reports here, is granted time, and is told what to carry.

All pumps' connections are its door's, in one thread. Who may write is decided by the pure `relay`; what is on which
lane is decided here. Both under one lock. The simulation has a copy of the latter: `tests/simulation/driver_model.py`.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.commands import Beat, Done, Pace, Released, SayReady, Used
from twinshore.mirror.core.desk_words import (
    Assign,
    Bounds,
    Finish,
    Go,
    Granted,
    OfDesk,
    OfPump,
    Release,
    Stop,
    Take,
    heard_by_desk,
    told,
)
from twinshore.mirror.driver.desk_door import Door, Place, RaftPlace, hang_up
from twinshore.mirror.driver.raft_lines import RaftLines
from twinshore.mirror.driver.relay import Relay, Say
from twinshore.mirror.lane.history import NOWHERE, Stand, told_on
from twinshore.mirror.lane.orders import Carried, Stoppage, TrackOrder
from twinshore.mirror.lane.quota import STILL
from twinshore.mirror.lane.reach import reach_of
from twinshore.service.clock import steady_s

LaneKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Account:
    """What one message of a pump brought: for the store and for the live table."""

    link: str
    lane: int
    carried: tuple[Carried, ...]
    incidents: tuple[Stoppage, ...]
    speed: dict[str, float]


@dataclass(slots=True)
class Post:
    """One lane at the desk. `told`: how far each partition is accounted for. `token`: by it the desk knows the tides of
    this term: a later one opens the same lane and numbers its tides anew."""

    relay: Relay
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    tracks: dict[NamedPartition, TrackOrder] = field(default_factory=dict)
    told: dict[NamedPartition, Stand] = field(default_factory=dict)
    pumps: dict[int, socket.socket] = field(default_factory=dict)
    moving: dict[NamedPartition, int] = field(default_factory=dict)
    leaving: set[NamedPartition] = field(default_factory=set)
    closing: bool = False
    holder_since_s: float = 0.0
    # How much the lane may carry, what it has carried, and what it last said it used of what it may.
    bounds: Bounds | None = None
    bytes: int = 0
    used: dict[str, list[float]] = field(default_factory=dict)
    # What the last pump learnt of quotas, from its last word until the next one goes, and when that word came.
    paces: tuple[Pace, ...] = ()
    paces_at_s: float = 0.0


class Desk:
    """`allowed_s(link)` says for how long the link is still ours; `take(account)` must be quick."""

    def __init__(
        self, host: str, *, allowed_s: Callable[[str], float], take: Callable[[Account], None], bind: str = ""
    ) -> None:
        self.host = host
        self._allowed_s, self._take = allowed_s, take
        self._posts: dict[LaneKey, Post] = {}
        # By link: until when a pump of lanes that are closed may still write, and what it sent may still land.
        self._past: dict[str, tuple[float, float]] = {}
        self._lock = threading.RLock()
        self.rafts = RaftLines()
        self._door = Door(bind or host, arrive=self._hello, hear=self._hear, depart=self._depart, tick=self._tick)
        self.port = self._door.port

    # -- what the driver asks and tells

    def reached_at(self) -> tuple[str, int]:
        """Host and port, for whatever tides run on."""
        return os.environ.get("TWINSHORE_DESK_HOST", self.host), self.port

    def open_lane(self, key: LaneKey, grant_s: float) -> None:
        with self._lock:
            granted_s, lands_s = self._past.get(key[0], (0.0, 0.0))
            self._posts.setdefault(key, Post(Relay(grant_s, granted_until_s=granted_s, lands_until_s=lands_s)))

    def token_of(self, key: LaneKey) -> str:
        """What a tide has to know that carries the lane as it was opened last; empty where it is closed."""
        with self._lock:
            return post.token if (post := self._posts.get(key)) else ""

    def assign(self, key: LaneKey, orders: Iterable[TrackOrder]) -> None:
        """More partitions for a lane, at once where a pump runs; those that are on a lane of the link stay there."""
        with self._lock:
            post, placed = self._posts[key], self.placed(key[0])
            fresh = [order for order in orders if order.named not in placed]
            for order in fresh:
                post.tracks[order.named] = order
                post.told[order.named] = Stand(order.receipt_epoch, order.receipt_to)
            if fresh:
                for tide in list(post.pumps):
                    self._send(post, tide, Assign(tuple(fresh)))

    def placed(self, link: str) -> dict[NamedPartition, int]:
        """Which lane of the link each partition belongs to now."""
        with self._lock:
            posts = [(key[1], post) for key, post in self._posts.items() if key[0] == link]
            return {named: lane for lane, post in posts for named in post.tracks}

    def move(self, link: str, named: NamedPartition, lane: int) -> bool:
        """Asks the lane that carries a partition to let go of it for another; False when nobody is there to ask."""
        with self._lock:
            for key, post in self._posts.items():
                if key[0] == link and key[1] != lane and named in post.tracks:
                    holder = post.relay.holder
                    if holder is None or post.relay.finishing or named in post.moving or named in post.leaving:
                        return False
                    post.moving[named] = lane
                    self._send(post, holder, Release(named))
                    return True
        return False

    def withdraw(self, link: str, topic: str, partition: int = -1) -> bool:
        """Takes a topic, or one partition, from the link's lanes; asked again until True, when no pump writes it: its
        pump has said so, or was lost and has no grant any more."""

        def leaves(named: NamedPartition) -> bool:
            return named.topic == topic and partition in (-1, named.partition)

        with self._lock:
            for (name, _), post in self._posts.items():
                ours = [named for named in post.tracks if leaves(named)] if name == link else []
                for named in ours:
                    post.moving.pop(named, None)
                    post.leaving.add(named)
                    for tide in list(post.pumps):
                        self._send(post, tide, Release(named))
                if ours and post.relay.free(steady_s()):
                    _let_go(post)
            return not any(leaves(named) for named in self.placed(link))

    def bound(self, key: LaneKey, bounds: dict[str, Any]) -> None:
        """From now on the lane's pumps keep these throttles and weights."""
        with self._lock:
            post = self._posts.get(key)
            if post:
                post.bounds = Bounds(**bounds)
                for tide in list(post.pumps):
                    self._send(post, tide, post.bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """By lane and topic, "" for the whole link: bytes fetched lately, and whether more would have been."""
        with self._lock:
            return {key[1]: post.used for key, post in self._posts.items() if key[0] == link}

    def holding(self, key: LaneKey) -> tuple[int | None, float, bool]:
        """The tide that pumps the lane, for how long it has, and whether an heir stands by."""
        with self._lock:
            post = self._posts[key]
            return post.relay.holder, steady_s() - post.holder_since_s, post.relay.heir is not None

    def carried_bytes(self) -> dict[LaneKey, int]:
        """How much each lane has carried since it was opened."""
        with self._lock:
            return {key: post.bytes for key, post in self._posts.items()}

    def unmanned(self, link: str) -> frozenset[NamedPartition]:
        """The partitions that are on lanes that no pump carries now."""
        with self._lock:
            posts, now_s = [post for (name, _), post in self._posts.items() if name == link], steady_s()
            return frozenset(named for post in posts if not post.relay.manned(now_s) for named in post.tracks)

    def waits_s(self, key: LaneKey) -> float:
        """For how long no pump may begin on the lane because what the last one sent may still land."""
        with self._lock:
            return self._posts[key].relay.waits_s(steady_s())

    def finish_all(self, link: str) -> None:
        """Asks every pump of a link to stop in good order; none begins any more."""
        with self._lock:
            for (name, _), post in self._posts.items():
                if name != link:
                    continue
                post.closing, post.relay.heir = True, None
                for tide in list(post.pumps):
                    self._send(post, tide, Finish() if tide == post.relay.holder else Stop())

    def lands_s(self, link: str) -> float:
        """For how long what the link's pumps have sent may still land, whatever becomes of them and of this process."""
        with self._lock:
            ours = [post.relay.lands_until_s for (name, _), post in self._posts.items() if name == link]
            return max(0.0, max([*ours, self._past.get(link, (0.0, 0.0))[1]], default=0.0) - steady_s())

    def idle(self, link: str) -> bool:
        """Whether nobody writes in the link's name: no pump is there, and lost ones have no grant any more."""
        with self._lock:
            ours = [post for (name, _), post in self._posts.items() if name == link]
            free = all(not post.pumps and post.relay.free(steady_s()) for post in ours)
        return free and self.past_is_over(link)

    def past_is_over(self, link: str) -> bool:
        """Whether nothing more comes of closed lanes: no grant runs, and what was sent has landed."""
        return steady_s() >= max(self._past.get(link, (0.0, 0.0)))

    def close_link(self, link: str) -> None:
        """Forgets a link's lanes; a pump that still speaks for them is told to stop, and may not hear of it."""
        with self._lock:
            for key in [key for key in self._posts if key[0] == link]:
                post = self._posts.pop(key)
                granted_s, lands_s = self._past.get(link, (0.0, 0.0))
                self._past[link] = max(granted_s, post.relay.granted_until_s), max(lands_s, post.relay.lands_until_s)
                for pump in post.pumps.values():
                    hang_up(pump)

    def close(self) -> None:
        self._door.close()

    # -- pumps, as the door tells of them

    def _hello(self, pump: socket.socket, hello: dict[str, Any]) -> Place | None:
        if "raft" in hello:
            place = RaftPlace(int(hello["raft"]), int(hello["tide"]))
            return self.rafts.arrive(place, str(hello["token"]), pump)
        key, tide, token = (str(hello["link"]), int(hello["lane"])), int(hello["tide"]), str(hello["token"])
        return (key, tide) if self._arrive(key, tide, token, pump) else None

    def _arrive(self, key: LaneKey, tide: int, token: str, pump: socket.socket) -> bool:
        with self._lock:
            post = self._posts.get(key)
            if post is None or not hmac.compare_digest(token.encode(), post.token.encode()):
                return False
            if post.closing or tide in post.pumps:
                return False
            post.pumps[tide] = pump
            self._send(post, tide, Assign(tuple(post.tracks.values())))
            if post.bounds:
                self._send(post, tide, post.bounds)
            return True

    def _depart(self, place: Place, gone: socket.socket) -> None:
        if isinstance(place, RaftPlace):
            self.rafts.depart(place, gone)
        else:
            self._depart_lane(*place, gone)

    def _depart_lane(self, key: LaneKey, tide: int, pump: socket.socket) -> None:
        with self._lock:
            post = self._posts.get(key)
            # A later term of the link numbers its tides anew: only its own socket speaks for a pump.
            if post and post.pumps.get(tide) is pump:
                del post.pumps[tide]
                # An heir that goes takes nothing with it: what the holder was asked to let go of is still on its way.
                if tide == post.relay.holder:
                    post.moving.clear()
                self._say(post, post.relay.lost(tide, steady_s(), self._allowed_s(key[0])))

    def _hear(self, place: Place, whom: socket.socket, message: dict[str, Any]) -> None:
        if isinstance(place, RaftPlace):
            self.rafts.hear(place, message)
        else:
            self._hear_pump(*place, whom, heard_by_desk(message), float(message.get("asked_s", 0.0)))

    def _hear_pump(self, key: LaneKey, tide: int, pump: socket.socket, word: OfPump, asked_s: float) -> None:
        with self._lock:
            post = self._posts.get(key)
            # What a pump of an earlier term said before it was hung up on is not its namesake's word.
            if post is None or post.pumps.get(tide) is not pump:
                return
            now_s, allowed_s, holds = steady_s(), self._allowed_s(key[0]), tide == post.relay.holder
            says: list[Say] = []
            match word:
                case SayReady():
                    says = [] if post.closing else post.relay.arrived(tide, now_s, allowed_s)
                case Beat():
                    if holds:
                        self._account(key, post, word.carried, word.incidents, word.speed)
                    says = post.relay.beat(tide, now_s, allowed_s, float(word.speed.get(STILL, 0.0)))
                case Used() if holds:
                    post.used = word.used
                case Released() if holds:
                    self._account(key, post, [word.carried] if word.carried else [])
                    self._released(key, post, word)
                case Done():
                    if holds:
                        self._account(key, post, word.carried, word.incidents, word.speed)
                        post.paces, post.paces_at_s = tuple(word.paces), now_s
                    says = post.relay.done(tide, tuple(word.handovers), now_s, allowed_s, word.unread_s)
                    if post.relay.free(now_s):
                        _let_go(post)
            self._say(post, says, asked_s)

    def _released(self, key: LaneKey, post: Post, word: Released) -> None:
        """The lane has let go: from now on the partition is the other lane's, which starts where this one stood."""
        named = word.named
        post.leaving.discard(named)
        other = self._posts.get((key[0], post.moving.pop(named, -1)))
        order = post.tracks.pop(named, None)
        stand = post.told.pop(named, NOWHERE)
        if other is None or order is None:
            return
        other.tracks[named] = replace(order, receipt_to=stand.end, receipt_epoch=stand.epoch)
        other.told[named] = stand
        for tide in list(other.pumps):
            self._send(other, tide, Assign((other.tracks[named],)))
        if other.relay.holder is not None:
            self._send(other, other.relay.holder, Take((word.handover,) if word.handover else ()))

    def _account(
        self,
        key: LaneKey,
        post: Post,
        carried: Iterable[Carried],
        incidents: Iterable[Stoppage] = (),
        speed: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        account = Account(*key, tuple(carried), tuple(incidents), dict(speed))
        post.bytes += sum(entry.bytes for entry in account.carried)
        for entry in account.carried:
            named = NamedPartition(entry.topic, entry.partition)
            post.told[named] = told_on(post.told.get(named, NOWHERE), Stand(entry.epoch, entry.to_offset))
            if entry.extents and named in post.tracks:
                post.tracks[named] = replace(post.tracks[named], reached=reach_of(entry.extents[-1]))
        self._take(account)

    def _say(self, post: Post, says: list[Say], asked_s: float = 0.0) -> None:
        for say in says:
            match say.what:
                case "go":
                    # Nobody wrote for the lane until this word.
                    _let_go(post)
                    post.holder_since_s = steady_s()
                    # An heir was told how far mapped twins are written when it came; the holder went on since.
                    reached = {named: order.reached for named, order in post.tracks.items() if order.reached}
                    # Nobody may have stood by, or what was sent may have landed late.
                    ago_s = steady_s() - post.paces_at_s
                    paces = tuple(pace._replace(learnt=pace.learnt.aged(ago_s)) for pace in post.paces)
                    self._send(post, say.tide, Go(say.handovers, post.told, reached, paces))
                    post.paces = ()
                case "grant":
                    self._send(post, say.tide, Granted(asked_s, say.grant_s))
                case "finish":
                    self._send(post, say.tide, Finish())
                case _:
                    self._send(post, say.tide, Stop())

    def _send(self, post: Post, tide: int, word: OfDesk) -> None:
        pump = post.pumps.get(tide)
        if pump is None:
            return
        try:
            pump.sendall((json.dumps(told(word), separators=(",", ":")) + "\n").encode())
        except OSError:
            hang_up(pump)

    def _tick(self) -> None:
        with self._lock:
            now_s = steady_s()
            for key, post in self._posts.items():
                if post.relay.heir is not None:
                    self._say(post, post.relay.tick(now_s, self._allowed_s(key[0])))


def _let_go(post: Post) -> None:
    """Nobody writes for the lane: what was to leave it has left, and nothing is on its way to another lane."""
    post.moving.clear()
    for named in post.leaving:
        post.relay.forget(named)
        post.tracks.pop(named, None)
        post.told.pop(named, None)
    post.leaving.clear()
