"""The published windows, run in a Structured Streaming query or in the monitor itself. Both apply the same step.

The query reads a journal on disk, one file for each reading of a link, and can read again after any restart.

Each micro-batch joins its readings by partition with the state that the batch before left. The state of batch n is a
table, written completely before the batch counts as done. A batch that Spark repeats after a failure starts from the
table before, so every tick counts once.
"""

from __future__ import annotations

import json
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from twinshore.config.grouping import grouped
from twinshore.config.sections.delay import DelaySettings
from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.core.alerts import WindowVerdict
from twinshore.monitoring.core.partition_lag import (
    DelayVerdict,
    DelayWindow,
    LagReading,
    MonitoredPartition,
    OffsetRelation,
    Thresholds,
    TickOffsets,
    WindowState,
    apply_reading,
)
from twinshore.runtime.spark import start_session

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

JOURNAL_FILES_KEPT = 400
_SUFFIX = ".jsonl"


class Journal:
    """A folder of numbered files, each written atomically. One process writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._last = max(self.numbers(), default=0)

    def append(self, tick: int, readings: Iterable[LagReading]) -> int:
        """Stores a tick's readings, deletes old files, and returns the new file's number."""
        # By the clock, so that numbers grow even after the folder was emptied.
        self._last = max(self._last + 1, wall_ms())
        path = self._path(self._last)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(f"{encode_reading(tick, one)}\n" for one in readings)
        unfinished.replace(path)
        for old in self.numbers()[:-JOURNAL_FILES_KEPT]:
            self._path(old).unlink(missing_ok=True)
        return self._last

    def numbers(self) -> list[int]:
        """Numbers of the existing files, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())

    def lines(self, number: int) -> Iterator[str]:
        """The file's lines; none if the file is gone."""
        try:
            yield from self._path(number).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:020d}{_SUFFIX}"


def encode_reading(tick: int, one: LagReading) -> str:
    return json.dumps([tick, list(one.place), *one[1:]], separators=(",", ":"))


def decode_reading(line: str) -> tuple[int, LagReading]:
    tick, place, *rest = json.loads(line)
    reading = LagReading(MonitoredPartition(*place), *rest)
    return tick, reading._replace(axis=OffsetRelation(reading.axis))


QUERY_RESTART_DELAY_S = 10.0
# A partition unread for so many ticks or batches is dropped. If it returns, its window restarts anyway.
UNREAD_TICKS_MAX = 1000
VerdictsByTick = list[tuple[int, list[WindowVerdict]]]


class WindowEngine(Protocol):
    """Takes the readings of a link and tick, and returns verdicts when ready."""

    def give(self, tick: int, readings: Sequence[LagReading]) -> None:
        """Takes the readings."""

    def verdicts(self) -> VerdictsByTick:
        """Verdicts since the last call, by tick."""


class ThresholdRules:
    """Thresholds by topic; picklable for Spark workers. Other `settings` count from the next reading or batch."""

    def __init__(self, settings: DelaySettings) -> None:
        self.settings = settings

    def __call__(self, place: MonitoredPartition) -> Thresholds:
        return Thresholds(self.settings.latest_threshold(place.topic), self.settings.consume_threshold(place.topic))


class LocalWindowEngine:
    """Keeps windows in memory; a restart restarts every window."""

    def __init__(self, rules: ThresholdRules) -> None:
        self._rules = rules
        self._windows: dict[MonitoredPartition, WindowState] = {}
        self._found: VerdictsByTick = []

    def give(self, tick: int, readings: Sequence[LagReading]) -> None:
        judged = []
        for reading in readings:
            before = self._windows.get(reading.place, WindowState())
            after, verdict = apply_reading(before, reading, tick, self._rules(reading.place))
            self._windows[reading.place] = after
            judged.append(WindowVerdict(reading.place, tick, verdict, after.why))
        self._found.append((tick, judged))
        if tick % UNREAD_TICKS_MAX == 0:
            self._windows = {
                place: one for place, one in self._windows.items() if abs(tick - one.tick) < UNREAD_TICKS_MAX
            }

    def verdicts(self) -> VerdictsByTick:
        found, self._found = self._found, []
        return found


class SparkWindowEngine:
    """Runs the query and restarts it when it ends. Readings wait in the journal."""

    def __init__(self, rules: ThresholdRules, folder: Path) -> None:
        self._rules, self._section, self._folder = rules, rules.settings.section, folder
        self._journal = Journal(folder / "journal")
        self._heard: queue.SimpleQueue[list[WindowVerdict]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="delay windows", daemon=True)
        self._thread.start()

    def give(self, tick: int, readings: Sequence[LagReading]) -> None:
        self._journal.append(tick, readings)

    def verdicts(self) -> VerdictsByTick:
        found: VerdictsByTick = []
        while not self._heard.empty():
            found += group_by_tick(self._heard.get())
        return found

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        # In its own thread: starting Spark takes seconds, and recovery points do not wait.
        while not self._closed.is_set():
            try:
                self._watch()
            except Exception as error:
                # Spark raises many kinds of errors; the windows' silence raises its own alarm.
                lines = [line for line in str(error).splitlines() if line.strip()]
                log.warning(f"the windows' query has ended: {(lines or [type(error).__name__])[0][:300]}")
                self._closed.wait(QUERY_RESTART_DELAY_S)

    def _watch(self) -> None:
        from twinshore.runtime.spark import stop_quietly

        session = open_spark_session(self._section.master, self._closed)
        if session is None:
            return
        try:
            every_s = min(0.5, self._section.period_s / 4)
            query = start_windows(session, self._folder, self._rules, self._heard.put, every_s=every_s)
            log.info("the windows' query runs")
            while query.isActive and not self._closed.is_set():
                time.sleep(0.2)
            failure = query.exception()
            query.stop()
            if failure is not None:
                raise failure
        finally:
            stop_quietly(session.stop)


@contextmanager
def open_window_engine(rules: ThresholdRules, folder: Path) -> Iterator[WindowEngine]:
    if rules.settings.section.windows == "plain":
        yield LocalWindowEngine(rules)
        return
    with closing(SparkWindowEngine(rules, folder.absolute())) as engine:
        yield engine


def group_by_tick(judged: Iterable[WindowVerdict]) -> VerdictsByTick:
    """Groups a batch's verdicts by tick, ascending."""
    return sorted(grouped((one.tick, one) for one in judged).items())


READINGS_SCHEMA = "place string, line string"
STATE_SCHEMA = "place string, state string, verdicts string"
STATES_KEPT = 3
ThresholdRule = Callable[[MonitoredPartition], Thresholds]


class FilePartition(InputPartition):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class TickReader(DataSourceStreamReader):
    """A stream's offset is the number after its last file's. Driver and workers both see the journal's folder."""

    def __init__(self, folder: str) -> None:
        self._journal = Journal(Path(folder))

    def initialOffset(self) -> dict[str, int]:
        numbers = self._journal.numbers()
        return {"number": numbers[0] if numbers else 0}

    # Without arguments: Spark 4.3 still accepts that, and 4.1 knows no others.
    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        numbers = self._journal.numbers()
        return {"number": numbers[-1] + 1 if numbers else 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FilePartition]:
        return [FilePartition(one) for one in self._journal.numbers() if start["number"] <= one < end["number"]]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, FilePartition)
        for line in self._journal.lines(partition.number):
            yield json.dumps(list(decode_reading(line)[1].place)), line

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: the journal deletes old files itself."""


class TickSource(DataSource):
    """Spark's format `twinshore-ticks`, with the option `path`."""

    @classmethod
    def name(cls) -> str:
        return "twinshore-ticks"

    def schema(self) -> str:
        return READINGS_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        return TickReader(self.options["path"])


def open_spark_session(master: str, stop: threading.Event) -> SparkSession | None:
    """Opens a small Spark session for the monitor; None if `stop` was set first."""
    return start_session("twinshore delay", master, {"spark.sql.shuffle.partitions": "1"}, "[delay]", stop)


def start_windows(
    session: SparkSession,
    folder: Path,
    rules: ThresholdRule,
    hear: Callable[[list[WindowVerdict]], None],
    *,
    every_s: float = 1.0,
) -> StreamingQuery:
    """Starts the query over the journal in `folder`, where state and progress stay.

    `hear` gets each batch's verdicts, and gets them again if the batch could not be recorded as done.
    """
    session.dataSource.register(TickSource)
    ticks = session.readStream.format(TickSource.name()).option("path", str(folder / "journal")).load()

    def work(batch: DataFrame, number: int) -> None:
        hear(judge_batch(session, batch, number, folder / "state", rules))

    return (
        ticks.writeStream.queryName("delay windows")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{every_s * 1000:.0f} milliseconds")
        .foreachBatch(work)
        .start()
    )


def judge_batch(
    session: SparkSession, batch: DataFrame, number: int, states: Path, rules: ThresholdRule
) -> list[WindowVerdict]:
    """Returns the batch's verdicts and stores the state after the batch under its number."""
    readings = batch.rdd.map(lambda row: (row.place, row.line))
    before = _state(session, states, number - 1)
    found = readings.cogroup(before, 1).flatMap(lambda both: _judge(both[0], both[1], rules))
    here = states / str(number)
    session.createDataFrame(found, STATE_SCHEMA).write.mode("overwrite").parquet(str(here))
    rows = session.read.schema(STATE_SCHEMA).parquet(str(here)).where("verdicts <> '[]'").collect()
    _forget(states, number)
    return [one for row in rows for one in _verdicts(row.place, row.verdicts)]


def _state(session: SparkSession, states: Path, number: int) -> RDD[Any]:
    folder = states / str(number)
    if number < 0 or not folder.exists():
        return session.sparkContext.emptyRDD()
    frame = session.read.schema(STATE_SCHEMA).parquet(str(folder))
    return frame.rdd.map(lambda row: (row.place, row.state))


def _judge(
    place: str, both: tuple[Iterable[str], Iterable[str]], rules: ThresholdRule
) -> Iterator[tuple[str, str, str]]:
    """The partition's row after this batch; none if the partition has not been read for long."""
    lines, states = both
    idle, _, text = next(iter(states), "").partition(" ")
    state = decode_window_state(text) if text else WindowState()
    thresholds = rules(MonitoredPartition(*json.loads(place)))
    verdicts = []
    # By reading time: ticks of two periods have no order.
    for tick, reading in sorted(map(decode_reading, lines), key=lambda pair: (pair[1].at_ms, pair[0])):
        state, verdict = apply_reading(state, reading, tick, thresholds)
        verdicts.append([tick, list(verdict), state.why])
    unread = 0 if verdicts else int(idle) + 1
    if unread <= UNREAD_TICKS_MAX:
        yield place, f"{unread} {encode_window_state(state)}", json.dumps(verdicts, separators=(",", ":"))


def _verdicts(place: str, text: str) -> Iterator[WindowVerdict]:
    where = MonitoredPartition(*json.loads(place))
    for tick, verdict, why in json.loads(text):
        yield WindowVerdict(where, tick, DelayVerdict(*verdict), why)


def encode_window_state(state: WindowState) -> str:
    values = state._asdict() | {"window": list(state.window), "last": list(state.last) if state.last else None}
    return json.dumps(values, separators=(",", ":"))


def decode_window_state(text: str) -> WindowState:
    values: Mapping[str, Any] = json.loads(text)
    times, *rings = values["window"]
    a_max, b_max, a_consume, b_consume = (tuple(ring) for ring in rings)
    window = DelayWindow(times, a_max, b_max, a_consume, b_consume)
    last = TickOffsets(*values["last"]) if values["last"] else None
    return WindowState(**{**values, "window": window, "last": last})


def _forget(states: Path, number: int) -> None:
    for folder in states.iterdir():
        if folder.name.isdigit() and int(folder.name) <= number - STATES_KEPT:
            shutil.rmtree(folder, ignore_errors=True)
