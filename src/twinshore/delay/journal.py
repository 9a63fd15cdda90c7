"""Readings on disk, one file for each reading of a link, so that the windows can read them again after any restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from twinshore.delay.readings import Axis, Reading, WatchedPlace
from twinshore.service.clock import wall_ms

KEEP_FILES = 400
_SUFFIX = ".jsonl"


class Journal:
    """A folder of numbered files, each there whole or not at all. One process writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._last = max(self.numbers(), default=0)

    def append(self, tick: int, readings: Iterable[Reading]) -> int:
        """Keeps a tick's readings under the number that it returns, and forgets those of long ago."""
        # By the clock, so that numbers go on growing even where somebody emptied the folder.
        self._last = max(self._last + 1, wall_ms())
        path = self._path(self._last)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(f"{to_line(tick, one)}\n" for one in readings)
        unfinished.replace(path)
        for old in self.numbers()[:-KEEP_FILES]:
            self._path(old).unlink(missing_ok=True)
        return self._last

    def numbers(self) -> list[int]:
        """Those that are there, in order."""
        return sorted(int(path.stem) for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())

    def lines(self, number: int) -> Iterator[str]:
        """The file's lines; none where it is gone."""
        try:
            yield from self._path(number).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:020d}{_SUFFIX}"


def to_line(tick: int, one: Reading) -> str:
    return json.dumps([tick, list(one.place), *one[1:]], separators=(",", ":"))


def from_line(line: str) -> tuple[int, Reading]:
    """The tick and what was read."""
    tick, place, *rest = json.loads(line)
    reading = Reading(WatchedPlace(*place), *rest)
    return tick, reading._replace(axis=Axis(reading.axis))
