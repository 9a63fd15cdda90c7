"""The desk's door: one thread for all pumps' connections, however many there are, and for the clock of their lanes.

What rafts say waits here until who launches tides asks for it. Whoever comes has some seconds to say a first line that
the desk accepts. Lines of one pump are heard in their order. What a pump says wrongly ends its connection and no other.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from twinshore.mirror.core.desk_words import Carry, Leave, OfRaft, heard_of_raft, line_of, said
from twinshore.mirror.desk.desk_core import Seat
from twinshore.mirror.pump.lines import LINE_BYTES_MAX
from twinshore.service.clock import steady_s
from twinshore.service.workers import failures, keep_on


@dataclass(frozen=True, slots=True)
class RaftPlace:
    """One tide of a raft, as it stands at the desk."""

    raft: int
    tide: int


TICK_S = 0.02
HELLO_S = 20.0
HELLO_BYTES_MAX = 1 << 16
PUMPS_MAX, STRANGERS_MAX = 4096, 64
SEND_S_MAX = 1
READ_BYTES = 1 << 18
Place = Seat | RaftPlace
DAMAGED = (OSError, ValueError, KeyError, TypeError)


@dataclass(slots=True, eq=False)
class Guest:
    """One connection. `place` once the desk has accepted it."""

    socket: socket.socket
    came_s: float
    place: Place | None = None
    unread: bytearray = field(default_factory=bytearray)
    # Up to where `unread` holds no line's end.
    searched: int = 0


class Door:
    """`arrive` says where a first line belongs, None: nowhere; `hear` gets the others, `depart` the end. `tick` is
    called some tens of times a second."""

    def __init__(
        self,
        host: str,
        *,
        arrive: Callable[[socket.socket, dict[str, Any]], Place | None],
        hear: Callable[[Place, dict[str, Any]], None],
        depart: Callable[[Place, socket.socket], None],
        tick: Callable[[], None],
    ) -> None:
        self._arrive, self._hear, self._depart, self._tick = arrive, hear, depart, tick
        self._guests: dict[socket.socket, Guest] = {}
        self._ticked_s = 0.0
        self._closed = threading.Event()
        self._server = socket.create_server((host, 0), backlog=256)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = keep_on(self._work, "desk")

    def close(self) -> None:
        """Nobody is let in any more, and all who are there are hung up on."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(TICK_S):
                if key.fileobj is self._server:
                    self._welcome()
                else:
                    self._read(self._guests[key.fileobj])  # type: ignore[index]
            if steady_s() - self._ticked_s >= TICK_S:
                self._ticked_s = steady_s()
                self._send_away()
                self._tick()
        self._selector.close()
        self._server.close()
        for guest in list(self._guests.values()):
            self._end(guest)

    def _welcome(self) -> None:
        try:
            came, _ = self._server.accept()
        except OSError:
            # Out of descriptors for a moment, perhaps: the door stays open.
            self._closed.wait(TICK_S)
            return
        if len(self._guests) >= PUMPS_MAX:
            came.close()
            return
        came.setblocking(True)
        came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A pump that reads nothing must not hold up the desk, whose lock is held while it is written to.
        came.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S_MAX, 0))
        self._guests[came] = Guest(came, steady_s())
        self._selector.register(came, selectors.EVENT_READ)
        # A pump says who it is at once: the oldest are those who do not.
        for stranger in [one for one in self._guests.values() if one.place is None][:-STRANGERS_MAX]:
            self._end(stranger)

    def _send_away(self) -> None:
        """Byte by byte, a stranger could take for ever over its first line."""
        now_s = steady_s()
        late = [one for one in self._guests.values() if one.place is None and now_s - one.came_s > HELLO_S]
        for stranger in late:
            self._end(stranger)

    def _read(self, guest: Guest) -> None:
        if guest.socket not in self._guests:
            return
        try:
            got = guest.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got or not self._take(guest, got):
            self._end(guest)

    def _take(self, guest: Guest, got: bytes) -> bool:
        """Hears the lines that are whole now; False where the guest has to go."""
        guest.unread += got
        try:
            while (end := guest.unread.find(b"\n", guest.searched)) >= 0:
                line = bytes(guest.unread[:end])
                del guest.unread[: end + 1]
                guest.searched = 0
                if guest.place is not None:
                    self._hear(guest.place, json.loads(line))
                    continue
                guest.place = self._arrive(guest.socket, json.loads(line))
                if guest.place is None:
                    return False
        except DAMAGED:
            return False
        except Exception as error:
            failures.note("desk", error)
            return False
        guest.searched = len(guest.unread)
        return guest.searched <= (HELLO_BYTES_MAX if guest.place is None else LINE_BYTES_MAX)

    def _end(self, guest: Guest) -> None:
        if self._guests.pop(guest.socket, None) is None:
            return
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            self._selector.unregister(guest.socket)
        if guest.place is not None:
            self._depart(guest.place, guest.socket)
        hang_up(guest.socket)
        guest.socket.close()


def hang_up(peer: socket.socket) -> None:
    """At once, though another thread reads from it: closing alone would wait for that thread."""
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


class RaftLines:
    """The door's thread hears, another asks and tells."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32)
        self._rafts: dict[RaftPlace, socket.socket] = {}
        self._lock = threading.Lock()
        self._words: SimpleQueue[tuple[RaftPlace, OfRaft]] = SimpleQueue()

    def arrive(self, place: RaftPlace, token: str, raft: socket.socket) -> RaftPlace | None:
        """Where it stands; None where it brings no token of ours, or its like is there already."""
        with self._lock:
            if not hmac.compare_digest(token.encode(), self.token.encode()) or place in self._rafts:
                return None
            self._rafts[place] = raft
            return place

    def hear(self, place: RaftPlace, message: dict[str, Any]) -> None:
        self._words.put((place, heard_of_raft(message)))

    def depart(self, place: RaftPlace, raft: socket.socket) -> None:
        with self._lock:
            if self._rafts.get(place) is raft:
                del self._rafts[place]

    def there(self) -> frozenset[RaftPlace]:
        """Those that can be told something."""
        with self._lock:
            return frozenset(self._rafts)

    def words(self) -> list[tuple[RaftPlace, OfRaft]]:
        """What was said since the last call."""
        found = []
        try:
            while True:
                found.append(self._words.get_nowait())
        except Empty:
            return found

    def say(self, place: RaftPlace, word: Carry | Leave) -> bool:
        """False where nobody is there to hear it."""
        with self._lock:
            raft = self._rafts.get(place)
        if raft is None:
            return False
        try:
            raft.sendall(line_of(said(word)))
        except OSError:
            hang_up(raft)
            return False
        return True
