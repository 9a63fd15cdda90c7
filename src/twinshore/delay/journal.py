"""Readings on disk, one file a tick, so that the windows can read them again after any restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from twinshore.delay.readings import Axis, Place, Reading

KEEP_TICKS = 120
_SUFFIX = ".jsonl"


class Journal:
    """A folder. A tick's file is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, tick: int, readings: Iterable[Reading]) -> None:
        """Keeps a tick's readings, and forgets those of long ago."""
        path = self._path(tick)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(f"{to_line(one)}\n" for one in readings)
        unfinished.replace(path)
        for old in self.ticks():
            if old >= tick - KEEP_TICKS:
                break
            self._path(old).unlink(missing_ok=True)

    def ticks(self) -> list[int]:
        """Those that are there, in order."""
        return sorted(int(path.stem) for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())

    def read(self, tick: int) -> Iterator[Reading]:
        """The tick's readings; none where it is gone."""
        try:
            text = self._path(tick).read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            yield from_line(line)

    def _path(self, tick: int) -> Path:
        return self.folder / f"{tick:020d}{_SUFFIX}"


def to_line(one: Reading) -> str:
    return json.dumps([list(one.place), *one[1:]], separators=(",", ":"))


def from_line(line: str) -> Reading:
    place, at_ms, source_end, target_end, source_id, target_id, source, target, axis, carried, paused = json.loads(line)
    return Reading(
        Place(*place), at_ms, source_end, target_end, source_id, target_id, source, target, Axis(axis), carried, paused
    )
