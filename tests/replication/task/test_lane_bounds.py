"""What bounds a task: how far it reads ahead, and how long it believes in a topic that is not there."""

from __future__ import annotations

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import Handoff, PartitionConfig, TaskLimits, limits_from_settings
from twinshore.replication.task.core.partition import PartitionLeaders, Phase
from twinshore.replication.task.core.partitions import ABSENCES_MAX, TaskPartitions
from twinshore.replication.task.core.position import TargetState

NAMED = TopicPartition("orders", 0)
SOURCE_ID, TARGET_ID = "11" * 16, "22" * 16
LINE = (1, 0)
NOW_S, NOW_MS = 0.0, 1_800_000_000_000


def running_task(limits: TaskLimits, partitions: int = 1) -> TaskPartitions:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=limits)
    task.assign([PartitionConfig("orders", number, SOURCE_ID, TARGET_ID) for number in range(partitions)])
    for number in range(partitions):
        task.routed(TopicPartition("orders", number), PartitionLeaders(1, 0, 2))
    task.take_over([Handoff("orders", number, 0, -1, NOW_MS + 1_000_000) for number in range(partitions)], 0.0)
    see_the_ends(task)
    return task


def see_the_ends(task: TaskPartitions) -> None:
    """Behind a handover the end is asked for before anything goes."""
    rests = task.next_end_checks(2, NOW_S, NOW_MS, idle=True)
    task.on_end_checked(
        rests, [MarkerOutcome("orders", one.replicator.config.partition, 0, one.end) for one in rests], NOW_S
    )


def answer(first: int, count: int) -> FetchResponseById:
    """A fetch of single-record batches, which are merged and so lie in no receive buffer."""
    data = b"".join(
        bytes(encode_batch([Record(offset, NOW_MS, None, b"x" * 100, ())], base_offset=offset))
        for offset in range(first, first + count)
    )
    part = FetchedPartitionById(
        bytes.fromhex(SOURCE_ID), 0, 0, 10**6, 10**6, 0, None, None, [], memoryview(data).toreadonly()
    )
    return FetchResponseById(0, 0, 5, [part])


def test_bounds_that_nobody_gave_are_those_of_settings_that_say_nothing() -> None:
    assert TaskLimits() == limits_from_settings(MirrorSettings())


def test_a_task_reads_only_so_far_ahead_of_a_slow_target_and_goes_on_when_it_drains() -> None:
    task = running_task(TaskLimits(partition_bytes_max=10_000, merged_bytes_max=2_000, merge_below_bytes=4096))
    track = task.replicators[NAMED]
    asked = 0
    while True:
        order = task.fetch_order(LINE)
        if order is None:
            break
        asked += 1
        assert asked < 100, "nothing bounds what is read ahead"
        task.fetched(LINE, answer(track.fetched, 50), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert 20_000 <= track.waiting.bytes < 40_000
    while track.waiting.bytes >= 10_000:
        assert task.produce_order(2, NOW_S, NOW_MS)
    assert task.fetch_order(LINE) is not None


def test_a_quiet_partition_holds_no_fetch_up_while_another_of_its_line_soon_has_room_again() -> None:
    task = running_task(TaskLimits(partition_bytes_max=10_000, merged_bytes_max=2_000, merge_below_bytes=4096))
    quiet = TopicPartition("orders", 1)
    task.assign([PartitionConfig("orders", 1, SOURCE_ID, TARGET_ID)])
    task.routed(quiet, PartitionLeaders(1, 0, 2))
    task.take_over([Handoff("orders", 1, 0, -1, NOW_MS + 1_000_000)], 0.0)
    see_the_ends(task)
    track = task.replicators[NAMED]

    def order() -> PlannedFetch:
        found = task.fetch_order(LINE)
        assert found is not None
        return found

    assert order().wait_ms_max >= 500
    while not track.waiting.choked:
        task.fetched(LINE, answer(track.fetched, 50), PooledBuffer(bytearray()), 0.0, NOW_MS)
        asked = order()
    assert [key[1] for key in asked.forgotten] == [0]
    assert asked.wait_ms_max <= 10, "a broker would hold this one until the quiet partition gets something"
    assert order().wait_ms_max <= 10, "as long as it is so"
    while track.waiting.bytes >= 10_000:
        task.produce_order(2, NOW_S, NOW_MS)
    asked = order()
    assert [part.partition for part in asked.partitions] == [0]
    assert asked.wait_ms_max >= 500


def test_a_partition_that_waits_to_be_looked_at_is_not_read_again_and_again() -> None:
    task = running_task(TaskLimits())
    assert task.fetch_order(LINE) is not None
    task.fetched(LINE, answer(0, 5), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert task.fetch_order(LINE) is not None, "what comes next"
    task.lost(2, [], 0.0)
    task.fetched(LINE, answer(5, 5), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert task.fetch_order(LINE) is None


def test_a_topic_that_stays_away_stops_its_partition_by_name() -> None:
    task = running_task(TaskLimits())
    for _ in range(ABSENCES_MAX - 1):
        task.routed(NAMED, PartitionLeaders(absent="target"))
    assert not task.incidents
    task.routed(NAMED, PartitionLeaders(absent="target"))
    (stopped,) = task.incidents
    assert stopped.kind == "recreated topic"
    assert "orders on the target no longer exists" in stopped.sentence
    assert task.replicators[NAMED].phase is Phase.STOPPED


def test_a_topic_that_comes_back_in_time_is_carried_on() -> None:
    task = running_task(TaskLimits())
    for _ in range(3 * ABSENCES_MAX):
        task.routed(NAMED, PartitionLeaders(absent="target"))
        task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert not task.incidents


def test_a_line_that_breaks_while_nothing_is_on_its_way_has_its_twins_looked_at_anew() -> None:
    task = running_task(TaskLimits())
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    task.lost(3, [], 0.0)
    assert task.take_due_inspections(0.0, {2, 3}) == [], "another leader's line"
    task.lost(2, [], 0.0)
    assert task.take_due_inspections(0.0, {2, 3}) == [NAMED]


def test_a_handover_counts_no_more_when_the_line_broke_while_the_heir_stood_by() -> None:
    for broken in (2, 3):
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000)
        task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
        task.routed(NAMED, PartitionLeaders(1, 0, 2))
        task.lost(broken, [], 0.0)
        task.take_over([Handoff("orders", 0, 10, 0, NOW_MS + 1_000_000)], 0.0)
        see_the_ends(task)
        asked = [NAMED] if broken == 2 else []
        assert task.take_due_inspections(0.0, {2, 3}) == asked, "the leader may be back without the end of its log"


def test_a_line_that_breaks_while_a_task_finishes_leaves_nothing_to_hand_over() -> None:
    task = running_task(TaskLimits())
    task.finish()
    assert task.handovers(0.0)
    task.lost(2, [], 0.0)
    assert not task.handovers(0.0)


def test_a_look_that_is_void_when_it_comes_back_fills_nothing() -> None:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2, target_epoch=1))
    assert task.take_due_inspections(0.0, {2, 3}) == [NAMED]
    task.routed(NAMED, PartitionLeaders(1, 0, 2, target_epoch=2))
    seen = TargetState(0, 0, 0, None, None, source_start=3, source_end=9)
    for _ in range(2):
        task.on_inspected(NAMED, seen, 0.0, NOW_MS)
        task.take_due_inspections(1.0, {2})
    waiting = [(piece.base, piece.end) for piece, _ in task.replicators[NAMED].waiting]
    assert waiting == [(0, 3)], "once, by the look that counts"


def test_a_twin_is_looked_at_only_while_a_line_would_tell_of_its_leaders_crash() -> None:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {3}) == []
    assert task.take_due_inspections(0.0, {2}) == [NAMED]
    task.lost(2, [], 0.0)
    task.on_inspected(NAMED, TargetState(0, 0, 0, None, None, source_start=0, source_end=9), 0.0, NOW_MS)
    assert task.replicators[NAMED].phase is Phase.UNVERIFIED, "it was read before the crash, perhaps"
    assert task.take_due_inspections(9.0, {2}) == [NAMED]


def test_a_handover_behind_what_is_told_is_carried_again_and_not_told_again() -> None:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, receipt_to=40)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    task.take_over([Handoff("orders", 0, 10, 0, NOW_MS + 1_000_000)], 0.0)
    see_the_ends(task)
    assert task.fetch_order(LINE) is not None
    task.fetched(LINE, answer(10, 50), PooledBuffer(bytearray()), 0.0, NOW_MS)
    while sent := task.produce_order(2, NOW_S, NOW_MS):
        base = sent[0].batch.base
        part = ProducedPartition(bytes.fromhex(TARGET_ID), 0, 0, base, -1, 0, None, None)
        task.produced(sent, [part], 0.0)
    told = task.accounts(0.0)
    assert [(entry.from_offset, entry.to_offset) for entry in told] == [(40, 60)]


def large(first: int, count: int) -> FetchResponseById:
    """A fetch of batches too large to be merged: each is a batch."""
    data = b"".join(
        bytes(encode_batch([Record(offset, NOW_MS, None, b"x" * 9_000, ())], base_offset=offset))
        for offset in range(first, first + count)
    )
    ends = (10**6, 10**6, 0)
    part = FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, 0, *ends, None, None, [], memoryview(data).toreadonly())
    return FetchResponseById(0, 0, 5, [part])


def answered(error: int) -> list[ProducedPartition]:
    return [ProducedPartition(bytes.fromhex(TARGET_ID), 0, error, -1, -1, 0, None, None)]


def test_a_batch_that_the_target_refuses_is_told_though_others_are_on_their_way_behind_it() -> None:
    task = running_task(TaskLimits(merge_below_bytes=100, join_below_bytes=0))
    task.fetch_order(LINE)
    task.fetched(LINE, large(0, 4), PooledBuffer(bytearray()), 0.0, NOW_MS)
    sent = [task.produce_order(2, NOW_S, NOW_MS) for _ in range(3)]
    assert [len(one) for one in sent] == [1, 1, 1]
    for one, error in zip(sent, (10, 45, 45), strict=True):
        assert not task.incidents
        task.produced(one, answered(error), 1.0)
    (stopped,) = task.incidents
    assert (stopped.kind, stopped.from_offset, stopped.to_offset) == ("oversize batch", 0, 1)
    assert task.replicators[NAMED].phase is Phase.STOPPED


def test_a_twin_without_a_leader_keeps_no_buffers() -> None:
    task = running_task(TaskLimits(merge_below_bytes=100, join_below_bytes=0))
    task.fetch_order(LINE)
    hold = PooledBuffer(bytearray())
    task.fetched(LINE, large(0, 4), hold, 0.0, NOW_MS)
    task.routed(NAMED, PartitionLeaders(1, 0, -1))
    assert hold.uses == 0
    task.fetched(LINE, large(4, 4), hold, 0.0, NOW_MS)
    assert task.fetch_order(LINE) is None
    assert hold.uses == 0


def test_a_passing_error_of_the_source_stops_nothing_however_many_there_were_before() -> None:
    task = running_task(TaskLimits())
    task.fetch_order(LINE)
    moved = FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, -1, -1, -1, -1, None, None, [], memoryview(b""))
    for round_ in range(30):
        task.fetched(LINE, FetchResponseById(0, 0, 5, [moved]), PooledBuffer(bytearray()), float(round_), NOW_MS)
        assert not task.incidents, round_
        seen = TargetState(0, 0, 0, None, None, source_start=0, source_end=9)
        assert task.take_due_inspections(round_ + 10.0, {2}) == [NAMED]
        task.on_inspected(NAMED, seen, round_ + 10.0, NOW_MS)
        task.fetch_order(LINE)
        quiet = moved._replace(error=0, high_watermark=0, last_stable_offset=0, log_start=0)
        task.fetched(LINE, FetchResponseById(0, 0, 5, [quiet]), PooledBuffer(bytearray()), float(round_), NOW_MS)
        task.fetch_order(LINE)


def test_looks_that_are_in_vain_are_told_and_claim_nothing() -> None:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000)
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID)])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    for second in range(0, 90, 3):
        assert task.take_due_inspections(float(second), {2}) == [NAMED]
        task.on_inspected(NAMED, KafkaError("west: no answer", retriable=True), float(second), NOW_MS)
        assert not task.accounts(0.0)
    told, _ = task.incidents
    assert (told.kind, told.policy is not None) == ("target away", True)
    assert "west: no answer" in told.sentence
    task.take_due_inspections(99.0, {2})
    task.on_inspected(NAMED, KafkaError("not allowed", code=29, retriable=False), 99.0, NOW_MS)
    assert task.incidents[-1].kind == "rights lost"
    assert task.replicators[NAMED].phase is Phase.STOPPED
