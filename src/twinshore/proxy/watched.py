"""What is made of files, and made anew when they change: certificates, users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from twinshore.fleet import ConfigError
from twinshore.fleet.once import Once

T = TypeVar("T")
_Stamp: TypeAlias = list[tuple[int, int, int] | None]


class Watched(Generic[T]):
    """`value` is as of the files' last good state: what cannot be made of them is said, and what was made before stays.
    The first time that is a ConfigError. `what` is whose sentences these are."""

    def __init__(self, what: str, files: Sequence[str], make: Callable[[], T], log: Callable[[str], None]) -> None:
        self._what, self._make, self._log, self._told = what, make, log, Once(log)
        self._files = [Path(file) for file in files if file]
        self._good = self._stamp()
        self._bad: _Stamp = []
        self.value = make()

    def look(self) -> None:
        """Now and then. Files that are exchanged one after the other do not fit each other in between: what is wrong is
        said once it was wrong twice."""
        stamp = self._stamp()
        if stamp == self._good:
            self._bad = []
            return
        try:
            self.value = self._make()
        except ConfigError as error:
            if stamp == self._bad:
                self._told.say(f"{self._what}: {error}: what was read before stays in force")
            self._bad = stamp
            return
        self._good, self._bad = stamp, []
        self._told.well()
        self._log(f"{self._what}: the files have changed, and are in force")

    def _stamp(self) -> _Stamp:
        return [_stamp_of(file) for file in self._files]


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
