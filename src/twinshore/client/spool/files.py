"""The folder of a spool: its lock, its segments, its marks. What is appended is on the disk when the call returns."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from twinshore.client.spool.frames import HEADER_BYTES, SegmentHeader, header_bytes
from twinshore.client.spool.scanning import Read
from twinshore.fleet import RefusedError
from twinshore.fleet.private import make_folder

Sync = Callable[[int], None]
# What is needed to read a file again, its length too, is on the disk after either of them.
SYNC: Sync = getattr(os, "fdatasync", os.fsync)
_SEGMENT = re.compile(r"(\d{16})-([0-9a-f]{8})\.spool")
_LOCK, _MARKS, HOMES = "lock", "done", "homes"  # HOMES is the producer's own
LOCK_TRIES, LOCK_S = 10, 0.05


def _is_ours(name: str) -> bool:
    return name == _LOCK or name.startswith((_MARKS, HOMES)) or _SEGMENT.fullmatch(name) is not None


class SpoolFiles:
    """`salts`: the segments that there are, by their sequence, with the salt that their name says too."""

    def __init__(self, folder: Path, *, sync: Sync = SYNC) -> None:
        self.folder = folder
        self._sync = sync
        self.salts = self._find()
        self._lock = self._active = -1
        self._process = 0  # that has the lock
        self.sequence, self.end = 0, 0  # of the segment that is written, and how far it is on the disk
        self._doubtful = False

    def _find(self) -> dict[int, int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        found = [one for one in map(_SEGMENT.fullmatch, names) if one]
        return {int(one[1]): int(one[2], 16) for one in found}

    def path(self, sequence: int) -> Path:
        return self.folder / f"{sequence:016d}-{self.salts[sequence]:08x}.spool"

    # -- one process at a time

    def lock(self) -> None:
        """RefusedError where another producer has the folder, or where it is somebody else's."""
        self._make_folder()
        if strange := sorted(path.name for path in self.folder.iterdir() if not _is_ours(path.name)):
            raise RefusedError(
                f"{self.folder} is no spool: it holds {strange[0]}", hint="give the spool a folder of its own"
            )
        tries = LOCK_TRIES
        while (holder := self._try_lock()) is not None and (tries := tries - 1):
            time.sleep(LOCK_S)  # whoever shows a spool has its lock for a moment
        if holder is not None:
            raise RefusedError(
                f"{self.folder} is the spool of a producer that runs, in process {holder}",
                hint="give each producer a folder of its own, or stop that one",
            )
        self._process = os.getpid()
        _LOCKED.add(self)
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)
        self.salts = self._find()

    def _make_folder(self) -> None:
        """Its name is on the disk too, before anything is in it."""
        missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        make_folder(self.folder)
        for one in reversed(missing):
            _sync_folder(one.parent)

    def holder(self) -> str:
        """The process of the producer that has the folder now, or nothing."""
        if not (self.folder / _LOCK).exists():
            return ""
        holder = self._try_lock()
        self.unlock()
        return holder or ""

    def is_forked(self) -> bool:
        """Whether this is another process than the one that has the lock."""
        return self._process not in (0, os.getpid())

    def forget(self) -> None:
        """In a process that was forked: what is open is the other one's."""
        self._close_active()
        self.unlock()

    def _try_lock(self) -> str | None:
        import fcntl  # there is none on Windows, where only the spool is lacking then

        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            self.unlock()
            return said or "(unknown)"
        return None

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- reading

    def size(self, sequence: int) -> int:
        return self.path(sequence).stat().st_size

    def reading(self, sequence: int) -> Read:
        path = self.path(sequence)

        def read(at: int, size: int) -> bytes:
            handle = os.open(path, os.O_RDONLY)
            try:
                return os.pread(handle, size, at)
            finally:
                os.close(handle)

        return read

    def marks(self) -> bytes | None:
        """None where there are none."""
        try:
            return (self.folder / _MARKS).read_bytes()
        except FileNotFoundError:
            return None

    # -- writing

    def begin(self, header: SegmentHeader) -> None:
        """From now on this segment is written. The one before is whole."""
        self.seal()
        self.salts[header.sequence] = header.salt
        path = self.path(header.sequence)
        try:
            self._active = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self._write(header_bytes(header), 0)
            self._sync(self._active)
            _sync_folder(self.folder)
        except BaseException:
            self._close_active()
            del self.salts[header.sequence]
            path.unlink(missing_ok=True)  # nothing was in it
            raise
        self.sequence, self.end = header.sequence, HEADER_BYTES

    def append(self, text: bytes) -> None:
        """OSError where it is not on the disk: then nothing of it is left there, and another segment must begin."""
        try:
            self._write(text, self.end)
            self._sync(self._active)
        except BaseException:
            self._doubtful = True
            with suppress(OSError):
                self.mend()
            raise
        self.end += len(text)

    def writable(self) -> bool:
        return self._active >= 0

    def mend(self) -> None:
        """Takes away what a failed write may have left. OSError where even that is refused: nothing may be written
        behind it."""
        if self._doubtful:
            os.ftruncate(self._active, self.end)
            self._sync(self._active)
            self._doubtful = False
            self._close_active()

    def seal(self) -> None:
        self.mend()
        self._close_active()

    def cut(self, sequence: int, at: int) -> None:
        """What lies behind was never whole."""
        handle = os.open(self.path(sequence), os.O_RDWR)
        try:
            os.ftruncate(handle, at)
            self._sync(handle)
        finally:
            os.close(handle)

    def delete(self, sequence: int, *, at_once: bool = False) -> None:
        """`at_once`: it is gone from the disk when this returns."""
        self.path(sequence).unlink(missing_ok=True)
        del self.salts[sequence]
        if at_once:
            _sync_folder(self.folder)

    def save_marks(self, text: bytes) -> None:
        """The former ones stay until these are whole."""
        new = self.folder / f"{_MARKS}.new"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            left = memoryview(text)
            while left:
                left = left[os.write(handle, left) :]
            self._sync(handle)
        finally:
            os.close(handle)
        new.replace(self.folder / _MARKS)

    def close(self) -> None:
        try:
            self.seal()
        finally:
            self._close_active()
            self.unlock()

    def _write(self, text: bytes, at: int) -> None:
        left = memoryview(text)
        while left:
            written = os.pwrite(self._active, left, at)
            left, at = left[written:], at + written

    def _close_active(self) -> None:
        if self._active >= 0:
            os.close(self._active)
            self._active = -1


_LOCKED = WeakSet[SpoolFiles]()


def _forget_all() -> None:
    """Else a process that was forked would keep the lock for as long as it lives."""
    for one in list(_LOCKED):
        one.forget()


if hasattr(os, "register_at_fork"):  # there is none on Windows
    os.register_at_fork(after_in_child=_forget_all)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
