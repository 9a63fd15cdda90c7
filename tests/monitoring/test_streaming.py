"""The windows as a Structured Streaming query: the verdicts of the pure step, a state that survives restarts."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import WindowVerdict
from twinshore.monitoring.core.partition_lag import LagReading, MonitoredPartition, WindowState, apply_reading
from twinshore.monitoring.windows import (
    READINGS_SCHEMA,
    Journal,
    ThresholdRules,
    encode_reading,
    judge_batch,
    open_spark_session,
    start_windows,
)

# Starts Spark; the same step without it is tested with every run.
pytestmark = [
    pytest.mark.long,
    pytest.mark.claim(
        "groups",
        "delay-streaming",
        "the same as a Structured Streaming query: the pure step's verdicts, and a state that survives restarts",
    ),
]

RULES = ThresholdRules(DelaySettings(latest_thresholds=(("audit", 150),)))
PLACES = [
    MonitoredPartition("east->west", "orders", 0),
    MonitoredPartition("east->west", "audit", 0),
    MonitoredPartition("east->west", "orders", 0, "billing"),
    MonitoredPartition("east->south", "orders", 0),
]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    patch = pytest.MonkeyPatch()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        patch.setenv(name, sys.executable)
    found = open_spark_session("local[2]", threading.Event())
    assert found is not None
    yield found
    found.stop()
    patch.undo()


def ticks(seed: int, count: int) -> list[tuple[int, list[LagReading]]]:
    """Traffic with stalls, missing readings, topics made anew and groups that come late."""
    chance = Random(seed)
    ends = {place: [0, 0] for place in PLACES}
    found = []
    for tick in range(count):
        readings = []
        for place in PLACES:
            ends[place][0] += chance.choice((0, 100, 200))
            if chance.random() < 0.5:
                ends[place][1] = ends[place][0]
            if chance.random() < 0.05:
                ends[place] = [0, 0]
            if chance.random() > 0.1:
                a, b = ends[place]
                readings.append(LagReading(place, tick, a, b, "s", "t", a if place.group else None, b or None))
        found.append((tick, readings))
    return found


def by_the_step(given: list[tuple[int, list[LagReading]]]) -> dict[tuple[MonitoredPartition, int], WindowVerdict]:
    states: dict[MonitoredPartition, WindowState] = {}
    found = {}
    for tick, readings in given:
        for reading in readings:
            place = reading.place
            states[place], verdict = apply_reading(states.get(place, WindowState()), reading, tick, RULES(place))
            found[place, tick] = WindowVerdict(place, tick, verdict, states[place].why)
    return found


def test_a_query_that_is_ended_and_started_again_judges_as_if_it_had_never_ended(
    session: SparkSession, tmp_path: Path
) -> None:
    seed = Random().randrange(1 << 32)
    given = ticks(seed, 14)
    journal = Journal(tmp_path / "journal")
    found: dict[tuple[MonitoredPartition, int], WindowVerdict] = {}
    for part in (given[:3], given[3:4], given[4:]):
        for tick, readings in part:
            journal.append(tick, readings)
        heard: queue.SimpleQueue[list[WindowVerdict]] = queue.SimpleQueue()
        query = start_windows(session, tmp_path, RULES, heard.put, every_s=0.2)
        wanted = {(reading.place, tick) for tick, readings in part for reading in readings}
        deadline = time.monotonic() + 60
        while not wanted <= found.keys():
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, (
                f"seed {seed}: {len(wanted - found.keys())} of {len(wanted)} are missing"
            )
            for one in heard.get() if not heard.empty() else []:
                # Ended before it could note a batch as done, Spark runs that batch again, from the state before it.
                assert found.setdefault((one.place, one.tick), one) == one, f"seed {seed}"
            time.sleep(0.02)
        query.stop()
    expected = by_the_step(given)
    assert found == expected, f"seed {seed}"
    assert any(one.verdict.judged for one in found.values()), f"seed {seed}"


def test_a_batch_that_spark_runs_again_gives_the_same_verdicts(session: SparkSession, tmp_path: Path) -> None:
    states = tmp_path / "state"
    given = [(tick, [LagReading(PLACES[0], tick, 100 * tick, 0)]) for tick in range(6)]
    expected = by_the_step(given)

    def batch(some: list[tuple[int, list[LagReading]]]) -> list[WindowVerdict]:
        rows = [(json.dumps(list(one.place)), encode_reading(tick, one)) for tick, readings in some for one in readings]
        return judge_batch(session, session.createDataFrame(rows, READINGS_SCHEMA), len(batches), states, RULES)

    batches: list[list[WindowVerdict]] = []
    batches.append(batch(given[:3]))
    first, again = batch(given[3:5]), batch(given[3:5])
    assert first == again
    batches.append(again)
    batches.append(batch(given[5:]))
    assert [one for some in batches for one in some] == list(expected.values())
    assert batches[-1][-1].verdict.latest_delayed
