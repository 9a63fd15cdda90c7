"""A queue that sends only what is fresh: what is dropped, exactly, and what the ledger and the accounts say of it."""

from __future__ import annotations

from dataclasses import replace

from tests.replication.task.test_lane_bounds import NOW_MS, SOURCE_ID, TARGET_ID, see_the_ends
from tests.replication.task.test_seat import LINE, NAMED, OLD_S, Table, answer
from twinshore.config.incident_policy import POLICY_DROP, IncidentKind
from twinshore.config.model import Cluster, QueuePolicy, QueueRules, Security
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.record_batch import TRANSACTIONAL_FLAG, Record, encode_batch
from twinshore.replication.task.core.accounting import take_acknowledged
from twinshore.replication.task.core.batches import OutgoingBatch, PooledBuffer
from twinshore.replication.task.core.messages import (
    Handoff,
    PartitionConfig,
    PartitionIncident,
    TaskConfig,
    TaskLimits,
    WrittenPosition,
    append_incident,
    dropped_incident,
)
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import ResumeAt, TargetState
from twinshore.replication.task.core.shared_read import KEPT_BYTES_MAX, STARTUP_S, SharedFetch, SharedFetches

LIMITS = TaskLimits(merge_below_bytes=0, partition_bytes_max=1 << 20)
FRESH = QueueRules(QueuePolicy.DROP_OLDEST, high_bytes=4 << 20, low_bytes=2 << 20)
AGED = replace(FRESH, max_age_s=1.0)
KEEP = QueueRules()


def table(*rules: QueueRules) -> Table:
    """Tasks with these queues, which read one partition together; twins of fresh ones are mapped."""
    reading = SharedFetch(LIMITS, FRESH.high_bytes)
    reading.tick(OLD_S - 2 * STARTUP_S)
    tasks = []
    for one in rules:
        task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=reading, queue=one)
        reached = WrittenPosition(0, 0, 0) if one.fresh else None
        task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, reached=reached)])
        task.routed(NAMED, PartitionLeaders(1, 0, 2))
        task.take_over([Handoff("orders", 0, 0, -1, NOW_MS + 1_000_000, next_sequence=0 if reached else -1)], 0.0)
        see_the_ends(task)
        tasks.append(task)
    made = Table(reading, tasks)
    made.turn()
    assert all(track.phase is Phase.RUNNING for track in made.tracks)
    return made


def looking(rules: QueueRules) -> TaskPartitions:
    """A task whose mapped twin is looked at: its receipts end at 100."""
    reading = SharedFetch(LIMITS, 4 << 20)
    reading.tick(OLD_S - 2 * STARTUP_S)
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=reading, queue=rules)
    task.assign(
        [PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, receipt_to=100, reached=WrittenPosition(100, 100, 100))]
    )
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    task.scheduler.refill(OLD_S)
    assert task.take_due_inspections(0.0, {2})
    return task


def stamped(base: int, stamp_ms: int) -> FetchResponseById:
    """Ten records of this time stamp."""
    records = [Record(base + one, stamp_ms, None, b"x", ()) for one in range(10)]
    data = memoryview(bytes(encode_batch(records, base_offset=base, leader_epoch=5)))
    return FetchResponseById(0, 0, 5, [answer(base, 10).partitions[0]._replace(records=data)])


def later(made: Table, seconds: float) -> None:
    for task in made.tasks:
        task.scheduler.refill(OLD_S + seconds)
        task.go_on(OLD_S + seconds, NOW_MS + int(seconds * 1000))


def flows(made: Table, batches: int, size: int = 50_000) -> int:
    """The first task reads so much, and sends it; the others only wait. Returns where the source ends."""
    at = 0
    assert made.asking() == [0]
    for _ in range(batches):
        made.brings(0, at, 10, size=size)
        at += 10
        made.sends(0)
        made.asking()
    return at


def rows(task: TaskPartitions) -> list[PartitionIncident]:
    """What the task has told, with what its last accounts told as passed."""
    task.accounts(0.0)
    return task.incidents


def offsets(track: PartitionReplicator) -> list[tuple[int, int, str]]:
    """What waits, in order."""
    return [(piece.base, piece.end, type(piece).__name__) for piece, _ in track.waiting]


def test_over_the_high_watermark_the_oldest_go_until_the_low_one() -> None:
    made = table(KEEP, FRESH)
    end = flows(made, 12)
    later(made, 1.0)
    slow, task = made.tracks[1], made.tasks[1]
    (row,) = rows(task)
    assert (row.kind, row.policy, row.from_offset) == (IncidentKind.STALE_DROPPED, POLICY_DROP, 0)
    kept = end - row.to_offset
    assert 2 <= kept // 10 <= 4, "what half a megabyte each leaves below the low watermark"
    first = next(piece for piece, _ in slow.waiting if isinstance(piece, OutgoingBatch))
    assert first.base == row.to_offset, "the next that is sent is the first that was kept"
    assert f"{row.to_offset} offsets were dropped, over the high watermark" in row.sentence
    assert made.tracks[0].acked == end, "who keeps got all"


def test_a_queue_that_keeps_drops_nothing() -> None:
    made = table(KEEP, KEEP)
    flows(made, 12)
    later(made, 1.0)
    assert rows(made.tasks[1]) == []
    assert made.tracks[1].waiting[0][0].base == 0


def test_what_has_waited_for_longer_than_its_age_goes() -> None:
    made = table(KEEP, AGED)
    flows(made, 2, size=100)
    later(made, 0.6)
    assert rows(made.tasks[1]) == []
    made.asking()
    made.tasks[0].fetched(LINE, stamped(20, NOW_MS + 600), PooledBuffer(bytearray()), OLD_S + 0.6, NOW_MS + 600)
    later(made, 1.2)
    (row,) = rows(made.tasks[1])
    assert (row.from_offset, row.to_offset) == (0, 20)
    assert "older than 1 s" in row.sentence
    assert [piece.base for piece, _ in made.tracks[1].waiting if isinstance(piece, OutgoingBatch)] == [20]


def test_a_drop_is_told_once_it_is_passed_and_not_where_it_is_undone() -> None:
    for arrives in (True, False):
        made = table(KEEP, FRESH)
        made.asking()
        made.brings(0, 0, 10, size=50_000)
        slow, track = made.tasks[1], made.tracks[1]
        sent = slow.produce_order(2, OLD_S, NOW_MS)
        for at in range(10, 130, 10):
            made.sends(0)
            made.asking()
            made.brings(0, at, 10, size=50_000)
        later(made, 1.0)
        assert (track.acked, track.sent, track.fetched) == (0, 10, 130)
        assert rows(slow) == [], "what is before it is on its way still"
        if not arrives:
            slow.finish()
            assert track.dropped == []
        parts = [ProducedPartition(bytes.fromhex(TARGET_ID), 0, 0, 0, -1, 0, None, None)]
        slow.produced(sent, parts, OLD_S)
        told = [(row.from_offset, row.to_offset) for row in rows(slow)]
        assert told == ([(10, track.acked)] if arrives else [])
        (handover,) = slow.handovers(0.0)
        assert handover.position == (90 if arrives else 10)


def test_accounts_tell_dropped_offsets_as_seen_by_nobody() -> None:
    made = table(KEEP, AGED)
    flows(made, 2, size=100)
    later(made, 1.2)
    track = made.tracks[1]
    assert track.acked == track.fetched == 20, "a mapped twin passes them by"
    account = track.account(0.0)
    assert account is not None
    assert (account.from_offset, account.to_offset, account.records) == (0, 20, 0)


def test_a_look_after_an_outage_tells_from_where_on_records_are_young() -> None:
    task = TaskPartitions(
        7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=SharedFetch(LIMITS, 4 << 20), queue=AGED
    )
    task.assign([PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, reached=WrittenPosition(0, 0, 0))])
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2})
    found = TargetState(0, 0, 0, None, None, 0, 900, verdict=ResumeAt(0, 0, 0, -1), young_from=600)
    task.on_inspected(NAMED, found, 0.0, NOW_MS)
    (row,) = rows(task)
    assert (row.kind, row.from_offset, row.to_offset) == (IncidentKind.STALE_DROPPED, 0, 600)
    order = task.fetch_order(LINE)
    assert order is not None
    assert order.partitions[0].position == 600, "not a byte of it is read"


def test_what_the_source_has_no_more_is_told_before_what_is_too_old() -> None:
    task = TaskPartitions(
        7, 0, state_expiry_ms=86_400_000, limits=LIMITS, shared_fetch=SharedFetch(LIMITS, 4 << 20), queue=AGED
    )
    task.assign(
        [PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID, reached=WrittenPosition(100, 100, 100), receipt_to=100)]
    )
    task.routed(NAMED, PartitionLeaders(1, 0, 2))
    assert task.take_due_inspections(0.0, {2})
    found = ResumeAt(100, NOW_MS, 100, 300)
    task.on_inspected(NAMED, TargetState(0, 100, 100, None, None, 300, 600, verdict=found, young_from=500), 0.0, NOW_MS)
    told = [(row.kind, row.from_offset, row.to_offset) for row in rows(task)]
    assert told == [(IncidentKind.RETENTION_GAP, 100, 300), (IncidentKind.STALE_DROPPED, 300, 500)]
    track = task.replicators[NAMED]
    assert track.acked == track.sent == track.fetched == 500


def test_what_it_reads_by_itself_goes_by_the_records_times() -> None:
    made = table(AGED)
    made.asking()
    task, track = made.tasks[0], made.tracks[0]
    task.fetched(LINE, answer(0, 30), PooledBuffer(bytearray()), OLD_S, NOW_MS + 6_000)
    (row,) = rows(task)
    assert (row.from_offset, row.to_offset) == (0, 30)
    assert track.fetched == 30
    assert not any(isinstance(piece, OutgoingBatch) for piece, _ in track.waiting)


def test_transactions_are_refused_unless_they_were_asked_for() -> None:
    for rules, stops in ((FRESH, True), (replace(FRESH, transactions=True), False)):
        made = table(KEEP, rules)
        made.asking()
        part = answer(0, 10).partitions[0]
        data = encode_batch([Record(0, NOW_MS, None, b"x", ())], base_offset=0, attributes=TRANSACTIONAL_FLAG)
        part = part._replace(records=memoryview(bytes(data)))
        made.tasks[0].fetched(LINE, FetchResponseById(0, 0, 5, [part]), PooledBuffer(bytearray()), OLD_S, NOW_MS)
        made.turn()
        assert [row.kind for row in made.tasks[1].incidents] == ([IncidentKind.REFUSED] if stops else [])
        assert made.tasks[0].incidents == []


def test_what_follows_on_what_was_told_last_is_told_as_one() -> None:
    told: list[PartitionIncident] = []
    for begin, end in ((0, 10), (10, 30), (40, 50)):
        append_incident(told, dropped_incident(NAMED, begin, end, "older than 5 s"))
    assert [(row.from_offset, row.to_offset) for row in told] == [(0, 30), (40, 50)]
    assert (told[0].sentence, told[0].why) == ("30 offsets were dropped, older than 5 s", "older than 5 s")
    append_incident(told, dropped_incident(NAMED, 50, 60, "over the high watermark"))
    assert [(row.from_offset, row.to_offset) for row in told[1:]] == [(40, 50), (50, 60)], "each for its own reason"


def an_order() -> TaskConfig:
    cluster = Cluster("east", ("east:9092",), Security())
    return TaskConfig("east->west", 0, 0, cluster, cluster, 7, 0, 86_400_000, "coordinator", 1, "token", queue=AGED)


def test_a_task_of_a_broadcast_that_is_carried_apart_has_a_reading_of_its_own() -> None:
    order = an_order()
    assert SharedFetch.of(order) is None
    reading = SharedFetch.of(replace(order, broadcast="prices"))
    assert reading is not None
    assert (reading.high_bytes, reading.parts_max) == (AGED.high_bytes, AGED.parts_max)


def test_tasks_of_one_number_read_together_where_broadcast_and_source_are_one() -> None:
    readings, one = SharedFetches(), replace(an_order(), broadcast="prices", source_id="a")
    assert readings.of(an_order()) is None
    assert readings.of(one) is readings.of(replace(one, link="east->north"))
    others = [replace(one, source_id="b"), replace(one, broadcast="trades"), replace(one, task=1)]
    assert len({id(readings.of(order)) for order in [one, *others]}) == 4


def test_what_was_read_last_is_kept_however_little_may_be_held() -> None:
    small = replace(FRESH, high_bytes=2 << 20, low_bytes=1 << 20)
    made = table(KEEP, small)
    made.reading.high_bytes = small.high_bytes
    made.asking()
    for number in range(10):
        made.brings(0, 40 * number, 40, size=100_000)
        later(made, 0.2 * number)
        for task in (0, 1):
            made.sends(task)
        made.asking()
    assert rows(made.tasks[1]) == [], "who keeps up gets all"
    assert [track.acked for track in made.tracks] == [400, 400]


def test_behind_the_low_watermark_nothing_is_let_go_of() -> None:
    rules = QueueRules(QueuePolicy.DROP_OLDEST, high_bytes=32 << 20, low_bytes=24 << 20)
    made = table(KEEP, rules)
    made.reading.high_bytes = rules.high_bytes
    slow, at = made.tasks[1], 0
    made.asking()
    while not rows(slow):
        made.brings(0, at, 10, size=50_000)
        at += 10
        made.sends(0)
        made.asking()
        later(made, at / 50)
        assert at < 2_000
    (row,) = slow.incidents
    kept = (at - row.to_offset) * 50_000
    assert rules.low_bytes - (1 << 20) < kept <= rules.low_bytes + (1 << 20)
    window = made.reading.window(made.tracks[1].source_key)
    assert window.begin <= made.tracks[1].acked, "and what is kept is there to be fed"


def test_for_a_partition_that_stopped_nothing_is_held() -> None:
    for rules in (KEEP, FRESH):
        made = table(KEEP, rules)
        made.reading.high_bytes = 32 << 20
        made.asking()
        made.tracks[1].enter(Phase.STOPPED)
        for at in range(0, 500, 10):
            made.brings(0, at, 10, size=50_000)
            made.sends(0)
            made.asking()
        assert made.tracks[0].acked == 500
        assert made.reading.bytes <= KEPT_BYTES_MAX


def test_behind_what_a_killed_task_had_not_told_nothing_old_is_sent() -> None:
    """What the twin has is read to be told; what lies behind it is an hour old."""
    old_ms = NOW_MS - 3_600_000
    task = looking(AGED)
    asked = (0, 140, 140, None, (139, old_ms), 0, 9_000)
    told = {"young_from": 8_000, "young_epoch": 4, "source_epoch": 5, "wrote_epoch": 5, "dropped": ((110, 130),)}
    task.on_inspected(NAMED, TargetState(*asked, **told, verdict=ResumeAt(140, old_ms, 140)), 0.0, NOW_MS)  # type: ignore[arg-type]
    track = task.replicators[NAMED]
    order = task.fetch_order(LINE)
    assert order is not None
    assert order.partitions[0].position == 100
    batches = [
        encode_batch([Record(at, old_ms, None, b"x", ())], base_offset=at, leader_epoch=5) for at in range(100, 400)
    ]
    data = memoryview(b"".join(map(bytes, batches)))
    part = FetchedPartitionById(bytes.fromhex(SOURCE_ID), 0, 0, 9_000, 9_000, 0, None, None, [], data.toreadonly())
    task.fetched(LINE, FetchResponseById(0, 0, 5, [part]), PooledBuffer(bytearray()), OLD_S, NOW_MS)
    assert not any(kind == "OutgoingBatch" for _, _, kind in offsets(track))
    assert (track.fetched, track.source.epoch) == (8_000, 4), "its history is known as far as it was dropped"
    assert [(row.from_offset, row.to_offset) for row in track.dropped] == [(110, 130), (140, 8_000)]
    told_of = take_acknowledged(track.progress_log.noted, 140)
    assert (told_of.end, told_of.batches, told_of.unseen) == (140, 20, 20), "no receipt counts what is not there"


def test_what_was_dropped_and_is_gone_from_the_source_is_in_no_receipt() -> None:
    task = looking(AGED)
    seen = TargetState(
        0, 140, 140, None, (139, NOW_MS), 140, 900, dropped=((90, 130),), verdict=ResumeAt(140, NOW_MS, 140)
    )
    task.on_inspected(NAMED, seen, 0.0, NOW_MS)
    (carried,) = task.accounts(0.0)
    assert (carried.from_offset, carried.to_offset, carried.records) == (100, 140, 10)


def test_of_an_exact_twin_nothing_is_dropped() -> None:
    """A link whose settings were changed keeps what it has until its topics are refused."""
    made = table(KEEP, KEEP)
    session = made.tasks[1].scheduler.member
    assert session is not None
    session.rules = AGED
    assert not session.drops(made.tracks[1])
