"""Memory that is ready when a target's brokers need it.

A virtual machine gets its memory from its host page by page, at the first touch, which costs more than everything else
an append does; and what is freed goes back to the host. A target's page cache would pay for that in one run and not in
the next, whichever copier has the luck. So memory is touched before the copier starts and let go while its copy grows.
Where memory is the machine's own, this changes nothing.
"""

from __future__ import annotations

import mmap
from typing import Final

import psutil

_PIECE_BYTES: Final = 64 << 20
_AHEAD_BYTES: Final = 512 << 20
_PART_OF_AVAILABLE: Final = 0.3


class Ballast:
    """Touched memory for a copy of about `size` bytes; less where the machine has little."""

    def __init__(self, size: int) -> None:
        most = int(psutil.virtual_memory().available * _PART_OF_AVAILABLE)
        pieces = max(0, min(size + _AHEAD_BYTES, most)) // _PIECE_BYTES
        populate = getattr(mmap, "MAP_POPULATE", 0)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populate
        self._pieces = [mmap.mmap(-1, _PIECE_BYTES, flags=flags) for _ in range(pieces if populate else 0)]
        self._size = size

    def written(self, size: int) -> None:
        """The copy has grown to `size` bytes: so much is let go, and some ahead of it."""
        kept = max(0, self._size - size) // _PIECE_BYTES
        while len(self._pieces) > kept:
            self._pieces.pop().close()

    def close(self) -> None:
        self.written(self._size)
