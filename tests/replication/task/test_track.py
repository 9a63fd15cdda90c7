"""One partition's accounts: each begins where the last ended, and says who wrote last on the source."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tests.replication.task.parcels import a_batch
from twinshore.kafka.protocol.record_batch import Record, encode_batch, split_batches
from twinshore.replication.task.core.accounting import PendingProgress, Producers, ProgressLog, latest_batches
from twinshore.replication.task.core.batches import OffsetGap, OutgoingBatch, PooledBuffer, SequenceMap, batch_producer
from twinshore.replication.task.core.messages import PartitionConfig, PartitionProgress
from twinshore.replication.task.core.partition import TRANSITIONS, PartitionReplicator, Phase, make_handoff
from twinshore.replication.task.core.position import LastBatch, ResumeAt, TargetState


def track(told_to: int = 0) -> PartitionReplicator:
    order = PartitionConfig("t", 0, "aa", "bb", receipt_to=told_to)
    return PartitionReplicator(order, SequenceMap(1, 0, 0, 0), (b"a", 0), b"b", progress_log=ProgressLog(to=told_to))


def begun(position: int, told_to: int = 0) -> PartitionReplicator:
    made = track(told_to)
    made.begin(position, armed_until_ms=0, leader_epoch=-1)
    return made


def batch(base: int, end: int) -> OutgoingBatch:
    return a_batch(base, end)


def fetch(ours: PartitionReplicator, end: int, producers: Producers | None = None) -> None:
    """Takes in one batch up to `end`, as the task does."""
    ours.progress_log.noted.append(PendingProgress(ours.fetched, end, 10, 1, 100, producers or []))
    ours.waiting.append((batch(ours.fetched, end), None))
    ours.fetched = ours.source.end = end
    ours.progress_log.last_ms = 200


def send(ours: PartitionReplicator) -> None:
    (sent, _) = ours.waiting.popleft()
    ours.in_flight += 1
    ours.sent = sent.end


def acknowledge(ours: PartitionReplicator) -> None:
    ours.in_flight -= 1
    ours.arrived(ours.sent)


def test_accounts_follow_one_another_whatever_comes_between() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        ours, told = begun(0), [0]
        for _ in range(60):
            match chance.randrange(6):
                case 0 | 1:
                    fetch(ours, ours.fetched + chance.randint(1, 5))
                case 2 if ours.waiting:
                    send(ours)
                case 3 if ours.in_flight:
                    ours.in_flight = 0
                    ours.acked = ours.sent
                case 4 if not ours.in_flight and chance.random() < 0.3:
                    end = ours.acked
                    ours.settle(0.0)
                    ours.looks(0.0)
                    ours.begin(end, armed_until_ms=0, leader_epoch=-1)
                case 4:
                    ours.set_back()
                case _:
                    carried = ours.account(0.0)
                    if carried:
                        assert carried.from_offset == told[-1], f"seed {seed}"
                        assert carried.to_offset <= ours.acked
                        assert carried.records == carried.to_offset - carried.from_offset
                        told.append(carried.to_offset)


def test_a_task_reads_again_what_nobody_accounted_for() -> None:
    ours = begun(40, told_to=10)
    assert (ours.fetched, ours.write_from) == (10, 40)
    ours.progress_log.noted.append(PendingProgress(10, 40, 100, 3, 7, []))
    ours.fetched = ours.sent = ours.acked = 40
    carried = ours.account(0.0)
    assert carried is not None
    assert (carried.from_offset, carried.to_offset, carried.batches) == (10, 40, 3)


def test_what_the_twin_acknowledged_is_told_though_it_is_silent_now() -> None:
    """Else lag, and the recovery point, count it as missing for as long as the outage lasts."""
    ours = begun(0)
    fetch(ours, 5, [(7, 0, 0, 4, 4, 0)])
    fetch(ours, 9)
    send(ours)
    acknowledge(ours)
    send(ours)
    ours.in_flight -= 1
    ours.again(0.0)
    assert ours.phase is Phase.UNVERIFIED
    carried = ours.account(0.0)
    assert carried is not None
    assert (carried.from_offset, carried.to_offset, carried.records, len(carried.producers)) == (0, 5, 5, 1)

    ours.looks(1.0)
    assert not ours.progress_log.noted, "a look that was asked to begin at 5 would call more lost"
    ours.begin(9, armed_until_ms=0, leader_epoch=-1)
    assert (ours.fetched, ours.write_from) == (5, 9), "what landed untold is read again"


def test_a_source_that_moved_on_is_told_once() -> None:
    ours = begun(5, told_to=5)
    ours.source.end = 9
    assert ours.account(0.0) is None, "a look has seen the end, but nobody knows yet whether it can be read"
    ours.source.heard = True
    first = ours.account(0.0)
    assert first is not None
    assert (first.from_offset, first.to_offset, first.source_end) == (5, 5, 9)
    assert ours.account(0.0) is None
    ours.source.end = 11
    assert isinstance(ours.account(0.0), PartitionProgress)


def test_a_source_that_only_forgot_its_beginning_is_told_too() -> None:
    ours = begun(5, told_to=5)
    ours.source.end, ours.source.heard = 5, True
    ours.account(0.0)
    ours.source.start = 3
    moved = ours.account(0.0)
    assert moved is not None, "an idle twin's log start must follow as well"
    assert moved.source_start == 3
    assert ours.account(0.0) is None


def test_after_a_handover_nothing_is_said_of_a_source_not_heard_of_yet() -> None:
    ours = begun(5, told_to=5)
    assert ours.account(0.0) is None, "an end of 0 would be believed"
    ours.source.end, ours.source.heard = 5, True
    assert isinstance(ours.account(0.0), PartitionProgress)


def test_set_back_forgets_what_was_not_sent_and_frees_its_buffers() -> None:
    ours, hold = begun(0), PooledBuffer(bytearray())
    fetch(ours, 3, [(7, 0, 0, 2, 0, 1)])
    send(ours)
    fetch(ours, 6, [(7, 0, 3, 5, 3, 1)])
    ours.waiting.clear()
    ours.waiting.put(batch(3, 6), hold)
    assert hold.uses == 1
    ours.set_back()
    assert (ours.fetched, ours.sent, hold.uses, len(ours.waiting)) == (3, 3, 0, 0)
    acknowledge(ours)
    carried = ours.account(0.0)
    assert carried is not None
    assert (carried.to_offset, [batch[4] for batch in carried.producers]) == (3, [0])


def test_settling_waits_for_every_answer() -> None:
    ours = begun(0)
    fetch(ours, 3)
    send(ours)
    ours.settle(5.0)
    assert ours.phase is Phase.DRAINING
    assert make_handoff(ours, 0.0) is None
    ours = begun(0)
    ours.settle(5.0)
    assert ours.phase is Phase.UNVERIFIED
    assert ours.retry_at_s == 5.0


def test_a_partition_makes_the_moves_of_the_table_and_stays_where_it_is_but_no_other() -> None:
    told = {(before, after) for before, after, _ in TRANSITIONS} | {(phase, phase) for phase in Phase}
    for before, after in product(Phase, Phase):
        ours = begun(0)
        ours.phase = before
        if (before, after) in told:
            ours.enter(after)
            assert ours.phase is after
        else:
            with pytest.raises(AssertionError, match=f"^t-0 cannot go from {before} to {after}"):
                ours.enter(after)
            assert ours.phase is before


def test_a_handover_is_given_only_by_who_knows() -> None:
    ours = begun(7, told_to=7)
    given = make_handoff(ours, 0.0)
    assert given is not None
    assert given.position == 7
    ours.in_flight = 1
    assert make_handoff(ours, 0.0) is None
    behind = begun(7, told_to=2)
    assert make_handoff(behind, 0.0) is None, "it still reads what was not accounted for"


def test_the_last_five_batches_of_each_producer_are_known() -> None:
    chance = random.Random(5)
    for _ in range(100):
        data, offset, wrote = b"", 0, []
        for _ in range(chance.randint(1, 40)):
            producer, count = chance.choice((-1, 3, 4, 5)), chance.randint(1, 3)
            first = chance.choice((0, 100, 2**31 - 1))
            made = [Record(offset + number, 9, None, b"v") for number in range(count)]
            data += encode_batch(made, producer_id=producer, producer_epoch=1, base_sequence=first)
            if producer >= 0:
                wrote.append((producer, 1, first, (first + count - 1) % 2**31, offset, 9))
            offset += count
        headers = [header for _, header in split_batches(memoryview(data))]
        found = latest_batches([batch_producer(header) for header in headers if header.producer_id >= 0])
        for producer in (3, 4, 5):
            ours = [batch for batch in wrote if batch[0] == producer]
            assert [batch for batch in found if batch[0] == producer] == ours[-5:]
        assert [batch[4] for batch in found] == sorted(batch[4] for batch in found)


def test_nothing_goes_behind_markers_before_they_are_seen_to_be_in() -> None:
    ours = begun(0)
    ours.known_end.armed_until_ms = 10**12
    ours.queue(OffsetGap(0, 3), None)
    ours.send_gap(10, 5.0)
    assert not ours.may_send(batch(3, 5), 5.1, 0, 1000), "no sequence counts markers: if they failed it would be taken"
    acknowledge(ours)
    assert ours.may_send(batch(3, 5), 5.1, 0, 1000)


def test_what_no_sequence_guards_goes_only_where_the_end_was_seen_a_moment_ago() -> None:
    ours = begun(0)
    ours.known_end.armed_until_ms = 10**12
    assert not ours.may_send(batch(0, 2), 5.0, 0, 1000), "a task that begins does not know whose log it meets"
    ours.known_end.begun(5.0)
    assert ours.may_send(batch(0, 2), 5.4, 0, 1000)
    assert ours.may_send(batch(2, 4), 99.0, 0, 1000), "its predecessor's sequence guards it"
    ours.known_end.armed_until_ms = 0
    assert not ours.may_send(batch(4, 6), 99.6, 1, 1000), "which the broker may have forgotten"
    ours.known_end.armed_until_ms = 10**12
    ours.queue(OffsetGap(4, 6), None)
    ours.send_gap(10, 99.0)
    acknowledge(ours)
    assert not ours.may_send(batch(6, 8), 99.6, 0, 1000), "markers went before, and that is long ago"
    assert ours.may_send(batch(6, 8), 99.4, 0, 1000)


def test_what_crossed_untold_and_left_the_source_is_told_before_anything_else_flows() -> None:
    ours = track(told_to=2)
    seen = TargetState(0, 16, 16, LastBatch(15, 15, 1, 15), (15, 0), source_start=16, source_end=16)
    ours.resume(ResumeAt(16, 0, 16), seen, fence=1, armed_ms=0, cut_to=16)
    ours.note_untold(7, -1)
    carried = ours.account(0.0)
    assert carried is not None, "the next task would be told of 16, and every later receipt refused for the gap"
    assert (carried.from_offset, carried.to_offset, carried.batches) == (2, 16, 0)


def test_a_batch_waits_for_strays_exactly_while_something_that_waits_may_be_forgotten() -> None:
    kept_ms = 50
    for seed in range(300):
        chance, now_ms, offset = random.Random(seed), 1_000, 0
        ours = begun(0)
        ours.zombies.until_s = 9e9
        ours.known_end.begun(0.0)
        for _ in range(40):
            now_ms += chance.choice((0, 0, 5, 30))
            for _ in range(chance.randrange(4)):
                piece = a_batch(offset, offset + 1, 10, now_ms - chance.randrange(60))
                ours.queue(piece, None)
                offset += 1
            if not ours.waiting:
                continue
            oldest_ms = min(one.max_timestamp for one, _ in ours.waiting if isinstance(one, OutgoingBatch))
            first = ours.waiting[0][0]
            assert isinstance(first, OutgoingBatch)
            may = ours.may_send(first, 0.0, now_ms, kept_ms)
            assert may == (oldest_ms + kept_ms >= now_ms), f"seed {seed}"
            if may:
                ours.waiting.popleft()
            else:
                assert not ours.waiting, "it looks again"
                ours.enter(Phase.RUNNING)
