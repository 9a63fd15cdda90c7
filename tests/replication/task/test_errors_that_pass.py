"""Every error code that brokers know: which of them stop a partition, and which are waited out and told."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.replication.task.parcels import a_batch
from tests.replication.task.test_lane_bounds import LINE, NAMED, NOW_MS, SOURCE_ID, answer, running_task
from twinshore.config.incident_policy import IncidentOutcome, is_transient
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.task.core.batches import OffsetGap, PooledBuffer
from twinshore.replication.task.core.error_actions import (
    ERROR_ACTIONS,
    UNREADABLE_ERRORS_MAX,
    ErrorAction,
    error_action,
    judge_source_error,
    judge_target_error,
)
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionIncident, TaskLimits
from twinshore.replication.task.core.partition import TROUBLE_REPORT_S, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import TargetState
from twinshore.replication.task.core.resync import judge_refused_markers

pytestmark = pytest.mark.claim(
    "topics",
    "errors-pass",
    "of every error code that brokers know, only what never passes by itself stops a partition; the "
    "rest is waited out, told, and over by itself",
)

CODES = [code.value for code in ErrorCode if code.value] + [140, 999]
STOPPING = {17, 21, 32, 42, 43, 44, 48, 49, 76, 87}
BATCH = a_batch(10, 13, 900, 0)
OFTEN = 10_000
KINDS = {
    ErrorAction.AUTHORIZATION: "rights lost",
    ErrorAction.TOO_LARGE: "oversize batch",
    ErrorAction.SEQUENCE: "position disagreement",
}


def fetched(code: int) -> FetchedPartitionById:
    return FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, code, -1, -1, -1, None, None, [], memoryview(b""))


def produced(code: int) -> ProducedPartition:
    return ProducedPartition("orders", 0, code, -1, -1, -1, None, None)


@pytest.mark.parametrize("code", CODES)
def test_a_code_stops_a_partition_only_where_it_never_passes(code: int) -> None:
    means = error_action(code)
    assert (means is ErrorAction.STOP) == (code in STOPPING)
    read, first = judge_source_error(fetched(code), 10, OFTEN), judge_source_error(fetched(code), 10, 0)
    taken = judge_target_error(produced(code), BATCH, OFTEN)
    marked = judge_refused_markers(MarkerOutcome("orders", 0, code, -1), OffsetGap(10, 13), 0)
    match means:
        case ErrorAction.RETRY:
            assert (read, taken, marked) == (None, None, None)
        case ErrorAction.CORRUPT:
            assert read and read.kind == "corrupt batch"
            assert first is None
            assert taken and taken.kind == "refused"
            assert judge_target_error(produced(code), BATCH, UNREADABLE_ERRORS_MAX - 1) is None
            assert f"{OFTEN + 1} times in a row" in read.sentence
            assert f"{OFTEN + 1} times in a row" in taken.sentence
        case ErrorAction.STOP:
            for halt in (read, taken, marked):
                assert halt and halt.kind == "refused"
        case ErrorAction.AUTHORIZATION:
            for halt in (read, taken, marked):
                assert halt and halt.kind == "rights lost"
        case ErrorAction.TOO_LARGE | ErrorAction.SEQUENCE:
            assert taken and taken.kind == KINDS[means]


def test_only_what_a_broker_calls_damage_is_called_a_corrupt_batch() -> None:
    called = {
        code for code in CODES if (found := judge_source_error(fetched(code), 10, OFTEN)) and "corrupt" in found.kind
    }
    assert called == {2}


def test_each_code_of_the_table_is_one_that_brokers_know() -> None:
    assert set(ERROR_ACTIONS) <= set(CODES)


def round_of_errors(task: TaskPartitions, answered: FetchResponseById, now_s: float, end: int = 9) -> None:
    """One fetch is answered so, and the look that follows is well."""
    assert task.fetch_order(LINE)
    task.fetched(LINE, answered, PooledBuffer(bytearray()), now_s, NOW_MS)
    assert task.replicators[NAMED].phase is not Phase.STOPPED
    assert task.take_due_inspections(now_s + 2.0, {2}) == [NAMED]
    task.on_inspected(NAMED, TargetState(0, 0, 0, None, None, source_start=0, source_end=end), now_s + 2.0, NOW_MS)


@pytest.mark.parametrize("whole", [False, True], ids=["of the partition", "of the whole fetch"])
@pytest.mark.parametrize("code", [-1, 56, 999])
def test_a_source_whose_object_store_is_away_is_waited_for_and_told(code: int, whole: bool) -> None:
    task = running_task(TaskLimits())
    failed = FetchResponseById(0, code, 0, []) if whole else FetchResponseById(0, 0, 5, [fetched(code)])
    for second in range(0, 300, 3):
        round_of_errors(task, failed, float(second))
        assert bool(task.incidents) == (second >= TROUBLE_REPORT_S), second
        assert not task.accounts(0.0), "it would close the row"
    told, *more = task.incidents
    assert len(more) == 8, "again every half minute, as each task is gone after a while"
    assert (told.kind, told.from_offset, told.to_offset) == ("source away", 0, 1)
    assert "to fetches at offset 0, for 30 s by now" in told.sentence
    assert is_transient(told.kind, told.policy)
    assert told.kind.after is IncidentOutcome.CONTINUES
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), 301.0, NOW_MS)
    task.on_end_checked(task.next_end_checks(2, 301.0, NOW_MS, idle=True), [MarkerOutcome("orders", 0, 0, 0)], 301.0)
    (sent,) = task.produce_order(2, 301.0, NOW_MS)
    assert (sent.batch.base, sent.batch.end) == (0, 3), "it goes on where it was"


def test_the_row_of_an_idle_partition_closes_once_it_can_be_read() -> None:
    task = running_task(TaskLimits())
    for second in range(0, 40, 3):
        round_of_errors(task, FetchResponseById(0, 0, 5, [fetched(-1)]), float(second), end=0)
    (told,) = task.incidents
    assert (told.from_offset, told.to_offset) == (0, 0)
    assert not task.accounts(0.0)
    task.fetch_order(LINE)
    well = fetched(0)._replace(high_watermark=0, last_stable_offset=0, log_start=0)
    task.fetched(LINE, FetchResponseById(0, 0, 5, [well]), PooledBuffer(bytearray()), 60.0, NOW_MS)
    (account,) = task.accounts(0.0)
    assert account.to_offset == 0, "that is as far as the row reaches"


def test_a_target_that_takes_nothing_for_long_is_told_and_waited_for() -> None:
    task = running_task(TaskLimits())
    told: list[PartitionIncident] = []
    for second in range(0, 120, 3):
        now_s = float(second)
        task.fetch_order(LINE)
        task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), now_s, NOW_MS)
        sent = task.produce_order(2, now_s, NOW_MS)
        assert sent, second
        task.produced(sent, [produced(19)], now_s)
        assert task.take_due_inspections(now_s + 2.5, {2}) == [NAMED]
        task.on_inspected(NAMED, TargetState(0, 0, 0, None, None, source_start=0, source_end=9), now_s + 2.5, NOW_MS)
        task.on_end_checked(
            task.next_end_checks(2, now_s + 2.5, NOW_MS, idle=True), [MarkerOutcome("orders", 0, 0, 0)], now_s + 3.0
        )
        told += task.incidents
        task.incidents.clear()
    row = told[0]
    assert (row.kind, row.from_offset, row.to_offset) == ("target away", 0, 3)
    assert "NOT_ENOUGH_REPLICAS to offsets 0 to 2" in row.sentence


def test_one_error_long_after_another_is_no_trouble_that_lasts() -> None:
    task = running_task(TaskLimits())
    round_of_errors(task, FetchResponseById(0, 0, 5, [fetched(-1)]), 0.0)
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 1), PooledBuffer(bytearray()), 3.0, NOW_MS)
    task.fetch_order(LINE)
    task.fetched(LINE, FetchResponseById(0, 0, 5, [fetched(-1)]), PooledBuffer(bytearray()), 100.0, NOW_MS)
    assert not task.incidents
