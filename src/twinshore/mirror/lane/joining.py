"""The rooms in which joined batches lie until the kernel has them: a few buffers, used again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from twinshore.mirror.lane.orders import LaneLimits
from twinshore.wire.batch import BatchHeader
from twinshore.wire.join import Joined, Joiner, room_needed, source_of

_ROOM_BYTES_MIN: Final = 1 << 20


@dataclass(slots=True, eq=False)
class Hold:
    """A buffer, and how often it is held: by parcels that wait in a queue or are being sent, and by what is not cut
    yet. Free at zero. Whoever makes a parcel counts nothing; each queue that takes it counts once."""

    buffer: bytearray
    uses: int = 0


class Joining:
    """One lane's joiner and its rooms; they are never given back, and `full` says when no more should be fetched."""

    def __init__(self, limits: LaneLimits) -> None:
        most = limits.merged_bytes_max
        self._joiner = Joiner(below_bytes=limits.join_below_bytes, most_bytes=most)
        self._below_bytes = limits.join_below_bytes
        self.below_bytes = self._below_bytes if self._joiner.able() else 0
        self._room_bytes = max(_ROOM_BYTES_MIN, 2 * room_needed(most))
        self.allow(limits.joined_bytes_max)
        self._rooms: list[Hold] = []
        self._current: Hold | None = None
        # Those into which the view's batches were joined: whether or not they are queued yet, they are not free.
        self._fresh: list[Hold] = []
        self._filled = 0
        self._view: memoryview | None = None
        self._source: Any = None

    def allow(self, joined_bytes_max: int) -> None:
        """From now on there may be so many bytes of rooms."""
        self._rooms_max = max(4, joined_bytes_max // self._room_bytes)

    def full(self) -> bool:
        """So many rooms are taken that what was joined must leave before more is fetched."""
        if not self.below_bytes and self._joiner.able():
            self.below_bytes = self._below_bytes
        return len(self._rooms) >= self._rooms_max and all(room.uses for room in self._rooms)

    @property
    def rooms(self) -> tuple[Hold, ...]:
        return tuple(self._rooms)

    def holds(self, bytes_max: int) -> int:
        """In how many rooms so many bytes lie, where these are well filled."""
        return max(1, bytes_max // self._room_bytes)

    def join(self, view: memoryview, place: int, first: BatchHeader) -> tuple[Joined, Hold] | None:
        """The batch `first`, at `place` of a fetch's bytes, with what follows it; None when nothing does that fits.

        What is wanted of one view must be queued before batches of another are joined: that is what counts the hold."""
        if view is not self._view:
            self._view, self._source = view, source_of(view)
            self._fresh.clear()
        hold = self._room()
        joined = self._joiner.join(self._source, place, first, memoryview(hold.buffer), self._filled)
        if joined is None:
            return None
        self._filled += len(joined.body)
        if hold not in self._fresh:
            self._fresh.append(hold)
        return joined, hold

    def _room(self) -> Hold:
        """One with enough space left at its end."""
        hold = self._current
        if hold is not None:
            if self._is_free(hold):
                self._filled = 0
                return hold
            if len(hold.buffer) - self._filled >= self._room_bytes // 2:
                return hold
        free = next((room for room in self._rooms if self._is_free(room)), None)
        if free is None:
            free = Hold(bytearray(self._room_bytes))
            self._rooms.append(free)
        self._current, self._filled = free, 0
        return free

    def _is_free(self, room: Hold) -> bool:
        return not room.uses and room not in self._fresh
