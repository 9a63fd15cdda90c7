"""What waits too long to be proven whole is an alarm, where an age was asked for; so is what never was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from tests.monitoring.test_monitor import Stage
from tests.state.test_proofs import LINK, ROW
from twinshore.config.model import TopicPartition
from twinshore.monitoring.core.alerts import AlarmKey, AlarmKind, check_unproven_partitions
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.planning import apply_results
from twinshore.state.core.values import ProofRow, TwinRow
from twinshore.state.store import open_store

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
READ_MS = 1_700_000_000_000
YOUNG = replace(ROW, oldest_ms=READ_MS, source_end=ROW.to_offset)
KEY = AlarmKey(LINK, AlarmKind.UNPROVEN)
NAMED = TopicPartition("orders", 3)


def twin(created_ms: int, topic: str = "orders", partition: int = 3) -> TwinRow:
    return TwinRow(LINK, topic, partition, "aa", "bb", 0, 0, created_ms)


def test_the_alarm_names_the_partition_that_waits_longest() -> None:
    assert check_unproven_partitions(LINK, [YOUNG], [], READ_MS + 99 * HOUR_MS, 0.0) == [], "nothing was asked for"
    (well,) = check_unproven_partitions(LINK, [YOUNG], [twin(1)], READ_MS + 24 * HOUR_MS, 24.0)
    assert (well.key, well.wrong) == (KEY, False)
    older = replace(YOUNG, topic="payments", oldest_ms=READ_MS - HOUR_MS)
    (wrong,) = check_unproven_partitions(LINK, [YOUNG, older], [], READ_MS + 23 * HOUR_MS + 1, 24.0)
    assert wrong.wrong and wrong.key == KEY
    assert "payments-3 was last proven whole 24.0 h ago (asked for: every 24 h), and so were 1 of 2" in wrong.sentence
    (unknown,) = check_unproven_partitions(LINK, [YOUNG, ROW], [], READ_MS, 24.0)
    assert "orders-3 " in unknown.sentence


def test_a_twin_without_a_proof_waits_since_it_was_made() -> None:
    twins = [twin(READ_MS - DAY_MS), twin(READ_MS - DAY_MS, "payments")]
    (well,) = check_unproven_partitions(LINK, [YOUNG], twins, READ_MS, 24.0)
    assert not well.wrong, "it was made a moment ago"
    (wrong,) = check_unproven_partitions(LINK, [YOUNG], twins, READ_MS + 1, 24.0)
    assert "payments-3 was never proven (asked for: every 24 h), and so were 1 of 2 partitions" in wrong.sentence


def test_where_nobody_proves_anything_all_is_not_well() -> None:
    (wrong,) = check_unproven_partitions(LINK, [], [], READ_MS, 24.0)
    assert wrong.wrong and wrong.key == KEY and "nothing proven" in wrong.sentence


def look(end: int, stored: ProofRow | None, now_ms: int) -> PartitionScan:
    return PartitionScan(
        link=LINK,
        partition=NAMED,
        twin="orders",
        mode=CompareMode.EXACT,
        source_start=0,
        source_end=end,
        target_end=end,
        source_topic_id="aa",
        target_topic_id="bb",
        stored=stored,
        looked_ms=now_ms,
    )


def tried(row: ProofRow | None, day: int, end: int, answer: CompareResult) -> ProofRow:
    """A round on this day that asks for all that is new, and gets this."""
    at = look(end, row, day * DAY_MS)
    compared = CompareRange(None, None, NAMED, "orders", CompareMode.EXACT, at.start, end)  # type: ignore[arg-type]
    return apply_results(at, [compared], [answer], day * DAY_MS)


@pytest.mark.parametrize("proven", [0, 500])
def test_what_can_never_be_read_is_told_however_often_it_is_tried(proven: int) -> None:
    row = tried(None, 1, 500, CompareResult(0, 0, 500, records=500)) if proven else None
    risen = []
    for day in range(2, 60):
        row = tried(row, day, 1_000, CompareResult(0, proven, proven, trouble="its task died"))
        # What was proven once is read again meanwhile, and stays young.
        row = replace(row, oldest_ms=day * DAY_MS)
        (condition,) = check_unproven_partitions(LINK, [row], [twin(1)], day * DAY_MS + HOUR_MS, 24.0)
        risen += [day] if condition.wrong else []
    assert risen == list(range(2 if proven else 3, 60))
    well = tried(row, 60, 1_000, CompareResult(0, proven, 1_000, records=1_000 - proven))
    well = replace(well, oldest_ms=60 * DAY_MS)
    (condition,) = check_unproven_partitions(LINK, [well], [twin(1)], 60 * DAY_MS + HOUR_MS, 24.0)
    assert not condition.wrong


def test_the_monitor_judges_what_the_link_carries(tmp_path: Path, log_lines: LogLines) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stage = Stage(tmp_path, store, log_lines, more="[proof]\nread_again_h = 24")
        stage.monitor._saved_ms = 0
        store.twins.save([twin(1)])
        stage.monitor._beaten_s = 0.0
        stage.turn()
        assert "orders-3 was never proven" in stage.alarms.book[KEY].sentence
        (link,) = stage.monitor._links
        elsewhere = replace(link, exclude=("orders",))
        (condition,) = stage.monitor._unproven(store, elsewhere, READ_MS)
        assert "orders" not in condition.sentence, "it is carried no more"
