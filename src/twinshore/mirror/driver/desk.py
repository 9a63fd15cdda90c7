"""The driver's desk: every pump of every lane reports here, is granted time, and is told what to carry.

All pumps' connections are its door's, in one thread. What it decides is pure: `mirror.desk`. Here are the lock round
that, the clock, and the connections over which pumps are told.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.desk_words import Bounds, OfDesk, heard_by_desk, line_of, said
from twinshore.mirror.desk.desk_core import Account, Command, DeskCore, Dismiss, Keep, LaneKey, Seat, Tell
from twinshore.mirror.driver.desk_door import Door, Place, RaftLines, RaftPlace, hang_up
from twinshore.mirror.driver.plan import moves
from twinshore.mirror.driver.recorder import Recorder
from twinshore.mirror.lane.orders import TrackOrder
from twinshore.service.clock import steady_s

BALANCE_S = 10.0
BALANCE_BYTES_MIN = 1 << 20  # less than this in a report is not worth a move


class Desk:
    """`allowed_s(link)` says for how long the link is still ours; `take(account)` must be quick."""

    def __init__(self, host: str, *, allowed_s: Callable[[str], float], take: Callable[[Account], None]) -> None:
        self.host = host
        self._allowed_s, self._take = allowed_s, take
        self._core = DeskCore()
        self._lines: dict[Seat, socket.socket] = {}
        self._lock = threading.RLock()
        self.rafts = RaftLines()
        self._door = Door(host, arrive=self._hello, hear=self._hear, depart=self._depart, tick=self._tick)
        self.port = self._door.port

    @contextmanager
    def _deciding(self) -> Iterator[DeskCore]:
        """The core, for one event or one question; then what it wants is done, before anybody else asks it."""
        with self._lock:
            try:
                yield self._core
            finally:
                self._do_wanted()

    # -- what the driver asks and tells

    def reached_at(self) -> tuple[str, int]:
        """Host and port, for whatever tides run on."""
        return os.environ.get("TWINSHORE_DESK_HOST", self.host), self.port

    def open_lane(self, key: LaneKey, grant_s: float) -> None:
        with self._deciding() as core:
            core.open_lane(key, grant_s, secrets.token_hex(32))

    def token_of(self, key: LaneKey) -> str:
        """What a tide has to know that carries the lane as it was opened last; empty where it is closed."""
        with self._deciding() as core:
            return core.token_of(key)

    def assign(self, key: LaneKey, orders: Iterable[TrackOrder]) -> None:
        """More partitions for a lane, at once where a pump runs; those that are on a lane of the link stay there."""
        with self._deciding() as core:
            core.assign(key, orders, steady_s())

    def placed(self, link: str) -> dict[NamedPartition, int]:
        """Which lane of the link each partition belongs to now."""
        with self._deciding() as core:
            return core.placed(link)

    def move(self, link: str, named: NamedPartition, lane: int) -> bool:
        """Asks the lane that carries a partition to let go of it for another; False when nobody is there to ask."""
        with self._deciding() as core:
            return core.move(link, named, lane)

    def withdraw(self, link: str, topic: str, partition: int = -1) -> bool:
        """Takes a topic, or one partition, from the link's lanes; asked again until True, when no pump writes it."""
        with self._deciding() as core:
            return core.withdraw(link, topic, partition, steady_s())

    def bound(self, key: LaneKey, bounds: Bounds) -> None:
        """From now on the lane's pumps keep these throttles and weights."""
        with self._deciding() as core:
            core.bound(key, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """By lane and topic, "" for the whole link: bytes fetched lately, and whether more would have been."""
        with self._deciding() as core:
            return core.used(link)

    def holding(self, key: LaneKey) -> tuple[int | None, float, bool]:
        """The tide that pumps the lane, for how long it has, and whether an heir stands by."""
        with self._deciding() as core:
            return core.holding(key, steady_s())

    def seated(self, key: LaneKey) -> frozenset[int]:
        """The tides of the lane that are here."""
        with self._deciding() as core:
            return core.seated(key)

    def carried_bytes(self) -> dict[LaneKey, int]:
        """How much each lane has carried since it was opened."""
        with self._deciding() as core:
            return core.carried_bytes()

    def unmanned(self, link: str) -> frozenset[NamedPartition]:
        """The partitions that are on lanes that no pump carries now."""
        with self._deciding() as core:
            return core.unmanned(link, steady_s())

    def waits_s(self, key: LaneKey) -> float:
        """For how long no pump may begin on the lane because what the last one sent may still land."""
        with self._deciding() as core:
            return core.waits_s(key, steady_s())

    def finish_all(self, link: str) -> None:
        """Asks every pump of a link to stop in good order; none begins any more."""
        with self._deciding() as core:
            core.finish_all(link)

    def finish(self, link: str, deadline_s: float) -> bool:
        """Has every pump of a link stop in good order, and forgets its lanes. Whether nothing of it can land any more;
        what may for longer than until then is not waited for."""
        self.finish_all(link)
        while (left_s := deadline_s - time.monotonic()) > 0 and not self.idle(link):
            if self.nobody_writes(link) and self.lands_s(link) > left_s:
                break
            time.sleep(0.02)
        clean = self.idle(link)
        self.close_link(link)
        return clean

    def lands_s(self, link: str) -> float:
        """For how long what the link's pumps have sent may still land, whatever becomes of them and of this process."""
        with self._deciding() as core:
            return core.lands_s(link, steady_s())

    def nobody_writes(self, link: str) -> bool:
        """Whether no pump of the link is there, and lost ones have no grant any more."""
        with self._deciding() as core:
            return core.nobody_writes(link, steady_s())

    def idle(self, link: str) -> bool:
        """Whether nobody writes in the link's name, and nothing that was sent in it can still land."""
        with self._deciding() as core:
            return core.idle(link, steady_s())

    def past_is_over(self, link: str) -> bool:
        """Whether nothing more comes of closed lanes: no grant runs, and what was sent has landed."""
        with self._deciding() as core:
            return core.past_is_over(link, steady_s())

    def close_link(self, link: str) -> None:
        """Forgets a link's lanes; a pump that still speaks for them is told to stop, and may not hear of it."""
        with self._deciding() as core:
            core.close_link(link)

    def close(self) -> None:
        self._door.close()

    # -- pumps, as the door tells of them

    def _hello(self, pump: socket.socket, hello: dict[str, Any]) -> Place | None:
        if "raft" in hello:
            place = RaftPlace(int(hello["raft"]), int(hello["tide"]))
            return self.rafts.arrive(place, str(hello["token"]), pump)
        key, tide, token = (str(hello["link"]), int(hello["lane"])), int(hello["tide"]), str(hello["token"])
        with self._deciding() as core:
            if seat := core.arrive(key, tide, token):
                self._lines[seat] = pump
            return seat

    def _depart(self, place: Place, gone: socket.socket) -> None:
        if isinstance(place, RaftPlace):
            self.rafts.depart(place, gone)
            return
        with self._deciding() as core:
            self._lines.pop(place, None)
            core.depart(place, steady_s(), self._allowed_s(place.link))

    def _hear(self, place: Place, message: dict[str, Any]) -> None:
        if isinstance(place, RaftPlace):
            self.rafts.hear(place, message)
            return
        word = heard_by_desk(message)
        with self._deciding() as core:
            core.hear(place, word, steady_s(), self._allowed_s(place.link))

    def _tick(self) -> None:
        with self._deciding() as core:
            now_s = steady_s()
            core.tick(now_s, {link: self._allowed_s(link) for link in core.awaited()})

    # -- what the core wants

    def _do_wanted(self) -> None:
        """All of it, whatever becomes of one: the core has decided on."""
        failed: Exception | None = None
        for command in self._core.wanted():
            try:
                self._do(command)
            except Exception as error:
                failed = failed or error
        if failed:
            raise failed

    def _do(self, command: Command) -> None:
        match command:
            case Tell(seat, word):
                self._say(seat, word)
            case Keep(account):
                self._take(account)
            case Dismiss(seat):
                if pump := self._lines.get(seat):
                    hang_up(pump)

    def _say(self, seat: Seat, word: OfDesk) -> None:
        pump = self._lines.get(seat)
        if pump is None:
            return
        try:
            pump.sendall(line_of(said(word)))
        except OSError:
            hang_up(pump)


class Balance:
    """One link's; its lanes are weighed every few seconds."""

    def __init__(self, link: str, desk: Desk, recorder: Recorder, lanes: int, log: Callable[[str], None]) -> None:
        self._link, self._desk, self._recorder, self._lanes, self._log = link, desk, recorder, lanes, log
        self._at_s = time.monotonic()

    def turn(self) -> None:
        """Moves what should move now."""
        if self._lanes < 2 or time.monotonic() - self._at_s < BALANCE_S:
            return
        self._at_s = time.monotonic()
        rates = dict(self._recorder.live[self._link].rate)
        if sum(rates.values()) < BALANCE_BYTES_MIN:
            return
        for named, lane in moves(self._desk.placed(self._link), rates, self._lanes):
            if self._desk.move(self._link, named, lane):
                self._log(f"{self._link}: {named} moves to lane {lane}, which carries less")
