"""Memory that is ready when brokers and copiers need it.

A virtual machine gets its memory from its host page by page, at the first touch, which costs several times what an
append costs otherwise; and what is freed goes back to the host soon. A page cache that grows would pay for that in one
run and not in the next. So before each run a process of its own touches and holds whatever memory is free, and lets go
of it as fast as others take it. Where memory is the machine's own, this changes nothing.

The holder is the first that a kernel short of memory would end, and nothing is lost with it but evenness.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

_PIECE_BYTES: Final = 16 << 20
# So much stays free, and is made so again when others take of it: the kernel wants some.
_FREE_BYTES: Final = 320 << 20
_AT_A_TIME: Final = 12
_LOOK_EVERY_S: Final = 0.02
_FILLED_WITHIN_S: Final = 120.0
_FIRST_TO_GO: Final = "1000"


class Ballast:
    """The holder, from here on; it holds nothing before the first `fill`, and never leaves less than `free` bytes."""

    def __init__(self, free: int = _FREE_BYTES) -> None:
        from twinshore.lab.processes import start_child

        able = hasattr(mmap, "MAP_POPULATE")
        command = [sys.executable, str(Path(__file__).resolve()), str(free)]
        self._child = start_child(command, folder=Path(tempfile.gettempdir()), pipes=True) if able else None

    def fill(self) -> int:
        """Touches what is free; returns how many bytes are held then, 0 where nothing can be."""
        if self._child is None:
            return 0
        try:
            os.write(self._child.stdin, b"\n")
            held = os.read(self._child.stdout, 80)
        except OSError:
            held = b""
        if not held:  # ended by a kernel short of memory
            self._child = None
        return int(held or b"0")

    @property
    def holder(self) -> psutil.Process | None:
        """The process that holds it, if there is one."""
        return psutil.Process(self._child.pid) if self._child else None

    def close(self) -> None:
        """Lets go of everything."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def __enter__(self) -> Ballast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def hold(free: int) -> None:
    """The holder's life: a byte on standard input asks it to fill, the end of it to go."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    pieces: list[mmap.mmap] = []
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], _LOOK_EVERY_S)
        if asked:
            if not os.read(sys.stdin.fileno(), 1):
                return
            until_s = time.monotonic() + _FILLED_WITHIN_S
            while free_bytes() > free + _AT_A_TIME * _PIECE_BYTES and time.monotonic() < until_s:
                pieces.append(_touched())
            os.write(1, b"%d\n" % (len(pieces) * _PIECE_BYTES))
        while pieces and free_bytes() < free:
            for piece in pieces[-_AT_A_TIME:]:
                piece.close()
            del pieces[-_AT_A_TIME:]


def free_bytes() -> int:
    """Memory that nobody uses, not even as a cache."""
    return int(psutil.virtual_memory().free)


def _touched() -> mmap.mmap:
    return mmap.mmap(-1, _PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


if __name__ == "__main__":
    hold(int(sys.argv[1]))
