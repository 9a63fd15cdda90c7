"""The published windows as a Structured Streaming query: a Python data source reads the journal, the state is Spark's.

Each micro-batch joins its readings with the state that the batch before left, by place, and runs the pure step there.
The state of batch n is a table in the checkpoint's folder, written whole before the batch counts as done; a batch that
Spark runs again after a failure begins from the table before it, so every tick counts once.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from twinshore.delay.engines import Journal, from_line
from twinshore.delay.readings import WatchedPlace
from twinshore.delay.signs import Judged
from twinshore.delay.windows import Guarded, Offsets, Thresholds, Verdict, Window, observe
from twinshore.service.spark import start_session

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

SCHEMA = "place string, line string"
STATE_SCHEMA = "place string, state string, verdicts string"
STATES_KEPT = 3
# A place that so many batches have not read is gone; if it comes back, its window begins anew, as it must anyway.
UNREAD_MAX = 1000
Rule = Callable[[WatchedPlace], Thresholds]


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

    # Without arguments: 4.3 still takes it, and 4.1 knows no others.
    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        numbers = self._journal.numbers()
        return {"number": numbers[-1] + 1 if numbers else 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FilePartition]:
        return [FilePartition(one) for one in self._journal.numbers() if start["number"] <= one < end["number"]]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, FilePartition)
        for line in self._journal.lines(partition.number):
            yield json.dumps(list(from_line(line)[1].place)), line

    def commit(self, end: dict[str, int]) -> None:
        """The journal forgets by age."""


class TickSource(DataSource):
    """Spark's format `twinshore-ticks`, with the option `path`."""

    @classmethod
    def name(cls) -> str:
        return "twinshore-ticks"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002  # Spark's signature
        return TickReader(self.options["path"])


def open_session(master: str, stop: threading.Event) -> SparkSession | None:
    """A small session of the monitor's own; None when `stop` came first."""
    return start_session("twinshore delay", master, {"spark.sql.shuffle.partitions": "1"}, "[delay]", stop)


def start_windows(
    session: SparkSession,
    folder: Path,
    rules: Rule,
    hear: Callable[[list[Judged]], None],
    *,
    every_s: float = 1.0,
) -> StreamingQuery:
    """Starts the query over the journal in `folder`; `hear` gets each batch's verdicts, the same again
    after a batch that could not be noted as done. State and progress stay."""
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


def judge_batch(session: SparkSession, batch: DataFrame, number: int, states: Path, rules: Rule) -> list[Judged]:
    """The batch's verdicts; the state after it is kept under its number."""
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


def _judge(place: str, both: tuple[Iterable[str], Iterable[str]], rules: Rule) -> Iterator[tuple[str, str, str]]:
    """The place's row after this batch; none where it has not been read for long."""
    lines, states = both
    idle, _, text = next(iter(states), "").partition(" ")
    state = from_state(text) if text else Guarded()
    thresholds = rules(WatchedPlace(*json.loads(place)))
    verdicts = []
    # By the time of reading: ticks of two periods are no order.
    for tick, reading in sorted(map(from_line, lines), key=lambda pair: (pair[1].at_ms, pair[0])):
        state, verdict = observe(state, reading, tick, thresholds)
        verdicts.append([tick, list(verdict), state.why])
    unread = 0 if verdicts else int(idle) + 1
    if unread <= UNREAD_MAX:
        yield place, f"{unread} {to_state(state)}", json.dumps(verdicts, separators=(",", ":"))


def _verdicts(place: str, text: str) -> Iterator[Judged]:
    where = WatchedPlace(*json.loads(place))
    for tick, verdict, why in json.loads(text):
        yield Judged(where, tick, Verdict(*verdict), why)


def to_state(state: Guarded) -> str:
    values = state._asdict() | {"window": list(state.window), "last": list(state.last) if state.last else None}
    return json.dumps(values, separators=(",", ":"))


def from_state(text: str) -> Guarded:
    values: Mapping[str, Any] = json.loads(text)
    times, *rings = values["window"]
    a_max, b_max, a_consume, b_consume = (tuple(ring) for ring in rings)
    window = Window(times, a_max, b_max, a_consume, b_consume)
    last = Offsets(*values["last"]) if values["last"] else None
    return Guarded(**{**values, "window": window, "last": last})


def _forget(states: Path, number: int) -> None:
    for folder in states.iterdir():
        if folder.name.isdigit() and int(folder.name) <= number - STATES_KEPT:
            shutil.rmtree(folder, ignore_errors=True)
