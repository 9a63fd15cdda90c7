"""Where the published windows run: in a Structured Streaming query, or in the monitor itself. The step is the same.

Readings for the query are on disk, one file for each reading of a link, so that it can read them again after any
restart.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from twinshore.delay.readings import Axis, Reading, WatchedPlace
from twinshore.delay.signs import Judged
from twinshore.delay.windows import Guarded, Thresholds, observe
from twinshore.fleet.settings.sections.delay import DelaySettings
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


AGAIN_S = 10.0
UNREAD_MAX = 1000
Verdicts = list[tuple[int, list[Judged]]]


class Engine(Protocol):
    """Takes a link's readings of a tick, and gives verdicts when it has them."""

    def give(self, tick: int, readings: Sequence[Reading]) -> None:
        """Keeps or judges them."""

    def verdicts(self) -> Verdicts:
        """What was judged since the last call, by tick."""


class Rules:
    """Thresholds by topic; a value that Spark can carry to its workers."""

    def __init__(self, settings: DelaySettings) -> None:
        self._settings = settings

    def __call__(self, place: WatchedPlace) -> Thresholds:
        return Thresholds(self._settings.latest_threshold(place.topic), self._settings.consume_threshold(place.topic))


class PlainEngine:
    """In memory: a restart begins every window anew."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._windows: dict[WatchedPlace, Guarded] = {}
        self._found: Verdicts = []

    def give(self, tick: int, readings: Sequence[Reading]) -> None:
        judged = []
        for reading in readings:
            before = self._windows.get(reading.place, Guarded())
            after, verdict = observe(before, reading, tick, self._rules(reading.place))
            self._windows[reading.place] = after
            judged.append(Judged(reading.place, tick, verdict, after.why))
        self._found.append((tick, judged))
        if tick % UNREAD_MAX == 0:
            self._windows = {place: one for place, one in self._windows.items() if abs(tick - one.tick) < UNREAD_MAX}

    def verdicts(self) -> Verdicts:
        found, self._found = self._found, []
        return found


class SparkEngine:
    """A query that is started again when it ends; readings wait for it in the journal."""

    def __init__(self, settings: DelaySettings, folder: Path, log: Callable[[str], None]) -> None:
        self._settings, self._folder, self._log = settings, folder, log
        self._journal = Journal(folder / "journal")
        self._heard: queue.SimpleQueue[list[Judged]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="delay windows", daemon=True)
        self._thread.start()

    def give(self, tick: int, readings: Sequence[Reading]) -> None:
        self._journal.append(tick, readings)

    def verdicts(self) -> Verdicts:
        found: Verdicts = []
        while not self._heard.empty():
            found += by_tick(self._heard.get())
        return found

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        # Away from the main thread: starting Spark takes seconds, and recovery points do not wait for it.
        while not self._closed.is_set():
            try:
                self._watch()
            except Exception as error:
                # Spark raises a different one for every reason; the windows' silence is an alarm of its own.
                lines = [line for line in str(error).splitlines() if line.strip()]
                self._log(f"the windows' query has ended: {(lines or [type(error).__name__])[0][:300]}")
                self._closed.wait(AGAIN_S)

    def _watch(self) -> None:
        from twinshore.delay.streaming import open_session, start_windows
        from twinshore.service.gateway import stop_quietly

        session = open_session(self._settings.section.master, self._closed)
        if session is None:
            return
        try:
            every_s = min(0.5, self._settings.section.period_s / 4)
            query = start_windows(session, self._folder, Rules(self._settings), self._heard.put, every_s=every_s)
            self._log("the windows' query runs")
            while query.isActive and not self._closed.is_set():
                time.sleep(0.2)
            failure = query.exception()
            query.stop()
            if failure is not None:
                raise failure
        finally:
            stop_quietly(session.stop)


@contextmanager
def open_engine(settings: DelaySettings, folder: Path, log: Callable[[str], None]) -> Iterator[Engine]:
    """The one that the settings name."""
    if settings.section.windows == "plain":
        yield PlainEngine(Rules(settings))
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    engine = SparkEngine(settings, folder.absolute(), log)
    try:
        yield engine
    finally:
        engine.close()


def by_tick(judged: Iterable[Judged]) -> Verdicts:
    """Verdicts of a batch, in the order of their ticks."""
    ticks: dict[int, list[Judged]] = {}
    for one in judged:
        ticks.setdefault(one.tick, []).append(one)
    return sorted(ticks.items())
