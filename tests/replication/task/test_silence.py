"""What keeps a partition standing and would be told to nobody: brokers that give no answer, markers that are never
taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.replication.task.test_lane_bounds import LINE, NAMED, NOW_MS, SOURCE_ID, TARGET_ID, answer, running_task
from twinshore.config.incident_policy import POLICY_WAIT, IncidentKind, is_transient
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.incident_rules import TransientIncidents
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.batches import OffsetGap, PooledBuffer
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionConfig, PartitionIncident, PartitionProgress, TaskLimits
from twinshore.replication.task.core.partition import TROUBLE_REPORT_S, PartitionLeaders, Phase, SentBatch
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import TargetState
from twinshore.state.store import open_store

LINK = "east->west"
NODE = 2


def seen(end: int = 0, source_end: int = 9) -> TargetState:
    return TargetState(0, end, end, None, None, source_start=0, source_end=source_end)


def told_by(task: TaskPartitions, now_s: float, still: frozenset[int] = frozenset()) -> list[PartitionIncident]:
    """As the task asks with each of its beats."""
    task.incidents += task.silence.told(task.replicators.values(), task.scheduler, now_s, still)
    found, task.incidents = task.incidents, []
    return found


def lasting(step: Callable[[float], list[PartitionIncident]], until_s: int = 100, from_s: int = 0) -> PartitionIncident:
    """What is told of something that lasts: nothing at first, and then again and again."""
    told = [(second, one) for second in range(from_s, until_s) for one in step(float(second))]
    assert told, "nobody is told"
    first_s, first = told[0]
    assert TROUBLE_REPORT_S <= first_s - from_s < TROUBLE_REPORT_S + 15, told[0]
    assert is_transient(first.kind, first.policy)
    assert {(one.kind, one.from_offset, one.to_offset) for _, one in told} == {
        (first.kind, first.from_offset, first.to_offset)
    }
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(told)]
    assert all(gap >= TROUBLE_REPORT_S for gap in gaps), told
    return first


def new_task() -> TaskPartitions:
    task = TaskPartitions(7, 0, 1, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
    return task


def looked_at(task: TaskPartitions, now_s: float, seen_so: TargetState) -> None:
    if task.take_due_inspections(now_s, {NODE}):
        task.on_inspected(NAMED, seen_so, now_s, NOW_MS)


@pytest.mark.parametrize("code", [-1, 3, 7, 14, 19, 20, 47, 56, None, 0])
def test_markers_that_are_never_taken_are_told(code: int | None) -> None:
    """With an error, without an answer, or with one that says that they are in though they are not."""
    task = new_task()
    task.routed(NAMED, PartitionLeaders(1, 0, NODE, target_epoch=3))
    track = task.replicators[NAMED]

    def step(now_s: float) -> list[PartitionIncident]:
        looked_at(task, now_s, seen())
        if track.phase is Phase.RUNNING and not track.waiting:
            track.queue(OffsetGap(0, 10), None)
            task.wake(track)
            marks = task.next_markers(NODE, now_s)
            task.marked(marks, [] if code is None else [MarkerOutcome("orders", 0, code, 0)], now_s)
        return told_by(task, now_s)

    told = lasting(step, 70)
    assert (told.kind, told.from_offset, told.to_offset) == ("target away", 0, 10)
    assert "markers for offsets 0 to 9" in told.sentence
    assert not code or error_kind(code).name in told.sentence


def test_a_twin_whose_end_is_never_told_before_a_batch_is_told_of() -> None:
    task = running_task(TaskLimits())

    def step(now_s: float) -> list[PartitionIncident]:
        looked_at(task, now_s, seen())
        if task.fetch_order(LINE):
            task.fetched(LINE, answer(task.replicators[NAMED].fetched, 3), PooledBuffer(bytearray()), now_s, NOW_MS)
        task.on_end_checked(
            task.next_end_checks(NODE, now_s, 2 * NOW_MS, idle=False), [MarkerOutcome("orders", 0, 6, -1)], now_s
        )
        return told_by(task, now_s)

    told = lasting(step, from_s=5)
    assert "NOT_LEADER_OR_FOLLOWER to its end, before offsets 0 to 2" in told.sentence


def test_a_leader_that_can_never_be_connected_to_is_told_until_it_can() -> None:
    task = new_task()
    task.routed(NAMED, PartitionLeaders(1, 0, NODE))

    def step(now_s: float) -> list[PartitionIncident]:
        task.silence.met("target", NODE, "west:9092: connection refused", now_s)
        assert task.take_due_inspections(now_s, set()) == []
        return told_by(task, now_s)

    told = lasting(step)
    assert (told.kind, told.to_offset) == ("target away", 0)
    assert "broker 2, cannot be connected to: west:9092: connection refused" in told.sentence
    task.silence.over("target", NODE)
    looked_at(task, 100.0, seen(source_end=0))
    for second in range(100, 200):
        assert told_by(task, float(second)) == []


def test_who_goes_on_from_a_handover_and_reaches_no_leader_is_told_of_too() -> None:
    task = running_task(TaskLimits())
    task.silence.met("target", NODE, "no route to host", 3.0)
    (told,) = told_by(task, 40.0)
    assert "no route to host" in told.sentence
    task.silence.over("target", NODE)
    assert told_by(task, 41.0) == []
    task.silence.met("target", NODE, "no route to host", 50.0)
    assert told_by(task, 79.0) == [], "a new trouble, and not yet a long one"


def test_who_leads_nothing_any_more_may_be_silent() -> None:
    task = new_task()
    task.routed(NAMED, PartitionLeaders(1, 0, NODE))
    task.silence.met("target", NODE, "connection refused", 0.0)
    task.routed(NAMED, PartitionLeaders(1, 0, 3))
    assert told_by(task, 10.0) == []
    task.routed(NAMED, PartitionLeaders(1, 0, NODE))
    task.silence.met("target", NODE, "connection refused", 1000.0)
    assert told_by(task, 1001.0) == []


def test_who_cannot_even_ask_who_leads_is_told_of_by_side() -> None:
    for side in ("source", "target"):
        task = new_task()
        task.silence.asked(side, "no answer from any bootstrap server", 0.0)
        assert told_by(task, 29.0) == []
        (told,) = told_by(task, 30.0)
        assert told.kind == f"{side} away"
        assert f"no broker of the {side} names the leaders" in told.sentence
        task.silence.asked("", "", 31.0)
        assert told_by(task, 99.0) == []


def test_a_partition_that_nobody_leads_is_the_watchs_to_tell() -> None:
    task = new_task()
    task.routed(NAMED, PartitionLeaders(1, 0, -1, target_epoch=4))
    task.silence.asked("source", "no answer", 0.0)
    assert told_by(task, 100.0) == []


def test_a_source_that_never_answers_is_told_until_it_can_be_read() -> None:
    task = running_task(TaskLimits())
    track = task.replicators[NAMED]

    def step(now_s: float) -> list[PartitionIncident]:
        assert task.fetch_order(LINE)
        if now_s % 11 == 0:
            task.silence.met("source", LINE, "a fetch was not answered in time", now_s)
            task.source_lost(LINE)
        return told_by(task, now_s)

    told = lasting(step)
    assert (told.kind, told.from_offset, told.to_offset) == ("source away", 0, 0)
    assert mentions(told.sentence, "broker 1", "offset 0", "30 s")
    assert task.accounts(0.0) == [], "it would close the row"
    task.fetch_order(LINE)
    nothing = answer(0, 1).partitions[0]._replace(high_watermark=0, last_stable_offset=0, records=memoryview(b""))
    well = answer(0, 1)._replace(partitions=[nothing])
    task.fetched(LINE, well, PooledBuffer(bytearray()), 100.0, NOW_MS)
    assert [one.to_offset for one in task.accounts(0.0)] == [0], "which closes it"
    assert told_by(task, 200.0) == []
    assert track.phase is Phase.RUNNING


@pytest.mark.parametrize("patience_s", [40.0, 9.0])
def test_a_batch_that_is_never_answered_is_told_though_its_line_is_made_again_and_again(patience_s: float) -> None:
    task = running_task(TaskLimits(produce_timeout_s=0.5))
    requests: list[list[SentBatch]] = []
    sent_s = -100.0

    def step(now_s: float) -> list[PartitionIncident]:
        nonlocal sent_s
        looked_at(task, now_s, seen())
        track = task.replicators[NAMED]
        if track.phase is Phase.RUNNING and not track.in_flight and task.fetch_order(LINE):
            task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), now_s, NOW_MS)
            task.on_end_checked(
                task.next_end_checks(NODE, now_s, NOW_MS, idle=True), [MarkerOutcome("orders", 0, 0, 0)], now_s
            )
            requests.append(task.produce_order(NODE, now_s, NOW_MS))
            sent_s = now_s
        elif requests and now_s - sent_s >= patience_s:
            task.lost(NODE, [requests.pop()], now_s)
            task.routed(NAMED, PartitionLeaders(1, 0, NODE))
        return told_by(task, now_s)

    told = lasting(step)
    assert (told.kind, told.from_offset, told.to_offset) == ("target away", 0, 3)
    assert mentions(told.sentence, "offsets 0 to 2")


def test_an_answer_that_comes_late_ends_the_trouble() -> None:
    task = running_task(TaskLimits())
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), 0.0, NOW_MS)
    sent = task.produce_order(NODE, 0.0, NOW_MS)
    (told,) = told_by(task, 35.0)
    assert mentions(told.sentence, "offsets 0 to 2", "35 s")
    task.produced(sent, [ProducedPartition("orders", 0, 0, 0, -1, 0, None, None)], 36.0)
    assert told_by(task, 36.0) == []
    assert [one.to_offset for one in task.accounts(0.0)] == [3], "which closes the row"
    task.fetch_order(LINE)
    task.fetched(LINE, answer(3, 3), PooledBuffer(bytearray()), 40.0, NOW_MS)
    sent = task.produce_order(NODE, 40.0, NOW_MS)
    task.produced(sent, [ProducedPartition("orders", 0, 7, -1, -1, 0, None, None)], 41.0)
    assert told_by(task, 41.0) == [], "one error is no trouble that lasts"


def test_a_target_that_throttles_is_told_as_such() -> None:
    task = running_task(TaskLimits())
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), 0.0, NOW_MS)
    sent = task.produce_order(NODE, 0.0, NOW_MS)
    assert sent
    assert told_by(task, 29.0, still=frozenset({NODE})) == []
    (told,) = told_by(task, 100.0, still=frozenset({NODE}))
    assert (told.kind, told.from_offset, told.to_offset) == ("target away", 0, 3)
    assert mentions(told.sentence, "quota", "target's")
    task.lost(NODE, [sent], 100.0, 300.0)
    assert told_by(task, 101.0) == [], "it says until when it takes nothing"
    assert task.replicators[NAMED].zombies.until_s == 300.0 + task.limits.produce_timeout_s


def test_a_partition_is_let_go_of_only_when_nothing_of_a_lost_line_can_land_any_more() -> None:
    """Moved to another task, or paused and resumed: whoever carries it next knows nothing of that line."""
    task = running_task(TaskLimits())
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), 0.0, NOW_MS)
    task.lost(NODE, [task.produce_order(NODE, 0.0, NOW_MS)], 1.0, 300.0)
    task.release(NAMED)
    over_s = 300.0 + task.limits.produce_timeout_s
    assert task.released(2.0) == []
    assert task.released(over_s - 0.1) == []
    ((named, handover, _),) = task.released(over_s)
    assert (named, handover) == (NAMED, None), "the next one looks at the twin"
    assert not task.replicators


@pytest.mark.claim(
    "topics",
    "quotas-are-told",
    "what a quota of the target keeps from a twin for half a minute is a row that names it, over once it goes",
)
def test_what_a_quota_never_lets_be_sent_is_told_and_over_once_it_goes() -> None:
    task, still = running_task(TaskLimits()), frozenset({NODE})
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 3), PooledBuffer(bytearray()), 0.0, NOW_MS)
    told = lasting(lambda now_s: told_by(task, now_s, still))
    assert (told.kind, told.from_offset, told.to_offset) == ("target away", 0, 3)
    assert mentions(told.sentence, "quota", "target's")
    track = task.replicators[NAMED]
    track.known_end.seen_s = 100.0
    sent = task.produce_order(NODE, 100.0, NOW_MS)
    task.produced(sent, [ProducedPartition("orders", 0, 0, 0, -1, 0, None, None)], 101.0)
    assert track.acked == 3
    assert told_by(task, 101.5, still) == []
    assert track.account(101.5), "which says that it is over"
    assert track.troubles.target.since_s < 0


def test_a_quota_that_lets_a_little_pass_is_no_trouble() -> None:
    task, still = running_task(TaskLimits(merge_below_bytes=0, join_below_bytes=0)), frozenset({NODE})
    task.fetch_order(LINE)
    task.fetched(LINE, answer(0, 6), PooledBuffer(bytearray()), 0.0, NOW_MS)
    for base in range(5):
        at_s = 20.0 * base
        for second in range(20):
            assert told_by(task, at_s + second, still) == []
        task.replicators[NAMED].known_end.seen_s = at_s + 20
        sent = task.produce_order(NODE, at_s + 20, NOW_MS)
        task.produced(sent, [ProducedPartition("orders", 0, 0, base, -1, 0, None, None)], at_s + 20)


def test_one_lost_line_long_after_another_is_no_trouble_that_lasts() -> None:
    task = running_task(TaskLimits())
    for at_s in (0.0, 1000.0):
        task.fetch_order(LINE)
        task.fetched(LINE, answer(task.replicators[NAMED].fetched, 3), PooledBuffer(bytearray()), at_s, NOW_MS)
        acked = task.replicators[NAMED].acked
        task.on_end_checked(
            task.next_end_checks(NODE, at_s, NOW_MS, idle=False), [MarkerOutcome("orders", 0, 0, acked)], at_s
        )
        sent = task.produce_order(NODE, at_s, NOW_MS)
        task.lost(NODE, [sent], at_s + 1.0)
        end = sent[-1].batch.end
        track = task.replicators[NAMED]
        track.progress_log.to = end
        track.begin(end, armed_until_ms=2 * NOW_MS, leader_epoch=-1)  # a look finds that all of it has landed
        track.source.end, track.zombies.until_s = end, 0.0
        assert told_by(task, at_s + 5.0) == []
        assert task.incidents == []


AWAY = PartitionIncident("orders", 0, IncidentKind.TARGET_AWAY, 5, 8, "the twin's leader hangs", POLICY_WAIT)


def test_what_every_task_tells_anew_is_one_row_that_closes_when_it_is_over(tmp_path: Path) -> None:
    passes = TransientIncidents()
    assert [passes.hear(LINK, AWAY, ()) for _ in range(3)] == [True, False, False]
    later = PartitionIncident("orders", 0, IncidentKind.TARGET_AWAY, 5, 12, "and more", POLICY_WAIT)
    assert not passes.hear(LINK, later, ())
    passes.reached(LINK, NAMED, 8)
    assert passes.kinds(LINK, NAMED) == {"target away": -1}, "its row ends at 8, and is not over"
    passes.reached(LINK, NAMED, 12)
    assert passes.kinds(LINK, NAMED) == {}
    assert passes.hear(LINK, AWAY, ()), "another trouble, later"
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        for _ in range(3):
            recorder.take(TaskReport(LINK, 0, (), (AWAY,), {}))
            recorder._flush()
        recorder.close()
        assert [row.incident.sentence for row in store.incidents.rows(LINK)] == ["the twin's leader hangs"]


def test_a_cluster_that_is_away_is_one_alarm_and_what_lasts_behind_it_is_told_then(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        recorder.away(LINK, "target", "west does not answer")
        recorder.take(TaskReport(LINK, 0, (), (AWAY,), {}))
        recorder._flush()
        assert list(store.incidents.rows(LINK)) == []
        source = PartitionIncident("orders", 0, IncidentKind.SOURCE_AWAY, 5, 6, "the source errs", POLICY_WAIT)
        carried = PartitionProgress("orders", 0, 0, 5, 5, 50, 1, 9, 2, 1, 2)
        recorder.take(TaskReport(LINK, 0, (carried,), (source,), {}))
        recorder._flush()
        assert [row.incident.kind for row in store.incidents.rows(LINK)] == ["source away"], "the other side is not"
        recorder.away(LINK, "target", "")
        recorder.take(TaskReport(LINK, 0, (), (AWAY,), {}))
        recorder.close()
        assert [row.incident.kind for row in store.incidents.rows(LINK)] == ["source away", "target away"]
