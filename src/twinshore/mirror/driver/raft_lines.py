"""The desk's side of its conversation with rafts. What they say waits here until who launches tides asks for it."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from queue import Empty, SimpleQueue
from typing import Any

from twinshore.mirror.core.desk_words import line_of
from twinshore.mirror.core.raft_words import Carry, Leave, OfRaft, heard_of_raft, said
from twinshore.mirror.driver.desk_door import RaftPlace, hang_up


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
