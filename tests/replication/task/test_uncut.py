"""What costs much to cut is cut in portions: the same pieces come of it, and a pump's loop turns meanwhile."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.replication.task.parcels import parse_batches, sent_under
from tests.replication.task.test_lane_bounds import NOW_MS, TARGET_ID
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    Codec,
    Record,
    decode_batch,
    encode_batch,
    split_batches,
)
from twinshore.replication.task.core.batches import (
    REWRITTEN_RECORDS_MAX,
    BatchParser,
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    PartitionStopped,
    PooledBuffer,
    SequenceMap,
)
from twinshore.replication.task.core.messages import Handoff, PartitionConfig, TaskLimits
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator
from twinshore.replication.task.core.partitions import TaskPartitions

STAMP = SequenceMap(9, 2, 0, 0)
LINE = (1, 0)
ABORT = b"\0\0\0\0"


def a_log(chance: random.Random, batches: int = 12) -> tuple[bytes, list[tuple[int, int]]]:
    """Batches of every sort, and the transactions of it that were aborted."""
    out, end, aborted = [], 0, list[tuple[int, int]]()
    for number in range(batches):
        count, kind = chance.randint(1, 40), chance.randrange(5)
        ours = [Record(end + one, 5 + one, b"k", b"v" * chance.randint(0, 30)) for one in range(count)]
        known: dict[str, int] = {"base_offset": end, "last_offset": end + count - 1, "leader_epoch": number}
        if kind == 1:
            ours = [record for record in ours if chance.random() < 0.5]
        elif kind == 2:
            known["attributes"] = LOG_APPEND_TIME_FLAG
        elif kind == 3:
            known |= {"attributes": TRANSACTIONAL_FLAG, "producer_id": 100 + number}
        out.append(encode_batch(ours, codec=chance.choice((Codec.NONE, Codec.LZ4)), **known))
        end += count
        if kind == 3:
            if chance.random() < 0.5:
                aborted.append((100 + number, end - count))
            marker = {"attributes": CONTROL_FLAG | TRANSACTIONAL_FLAG, "producer_id": 100 + number}
            out.append(encode_batch([Record(end, 5, ABORT, b"")], **marker))  # type: ignore[arg-type]
            end += 1
    return b"".join(out), aborted


def offsets_of(found: list[ParsedFetch]) -> tuple[list[tuple[int, str]], list[int], list[int]]:
    """What each offset became, which source batches are told, and which sequences the records took."""
    seen: list[tuple[int, str]] = []
    sequences: list[int] = []
    for piece, head in sent_under(STAMP, (piece for one in found for piece in one.batches)):
        if isinstance(piece, OffsetGap):
            seen += [(offset, "nothing") for offset in range(piece.base, piece.end)]
        else:
            ((view, header),) = split_batches(memoryview(head + bytes(piece.body)))
            theirs = [(piece.base + record.offset, str(record[1:])) for record in decode_batch(view, header)]
            assert [offset for offset, _ in theirs] == list(range(piece.base, piece.end))
            seen += theirs
            sequences += range(header.base_sequence, header.base_sequence + header.count)
    return seen, [entry.base for one in found for entry in one.carried], sequences


@pytest.mark.parametrize("seed", range(60))
def test_portions_are_the_same_pieces(seed: int) -> None:
    chance = random.Random(seed)
    data, aborted = a_log(chance)
    position = chance.choice((0, 0, 17))
    write_from = max(position, chance.choice((0, 30)))
    limits = TaskLimits(merge_below_bytes=chance.choice((0, 300)))
    whole = parse_batches(memoryview(data), position, write_from, limits, None, aborted)
    cutter = BatchParser(memoryview(data), position, write_from, limits, None, aborted)
    found: list[ParsedFetch] = []
    while cutter.more:
        found.append(cutter.parse(chance.choice((0, 1, 30))))
        assert found[-1].stopped is None
        assert cutter.position == found[-1].end
    assert len(found) > 3
    assert offsets_of(found) == offsets_of([whole])
    assert (found[-1].end, found[-1].leader_epoch) == (whole.end, whole.leader_epoch)
    gaps = [(gap.base, gap.end) for one in found for gap in one.gaps]
    assert gaps == [(gap.base, gap.end) for gap in whole.gaps]


def test_damage_in_a_later_portion_stops_where_it_lies() -> None:
    good = encode_batch([Record(offset, 5, b"k", b"v") for offset in range(4)], attributes=LOG_APPEND_TIME_FLAG)
    bad = bytearray(encode_batch([Record(4, 5, b"k", b"v")], attributes=LOG_APPEND_TIME_FLAG))
    bad[-1] ^= 1
    cutter = BatchParser(memoryview(good + bytes(bad)), 0, 0, TaskLimits(), None, ())
    assert [piece.end for piece in cutter.parse(0).batches] == [4]
    found = cutter.parse(0)
    assert isinstance(found.stopped, PartitionStopped)
    assert (found.batches, found.end, found.stopped.offset, cutter.more) == ([], 4, 4, False)


def test_of_many_records_that_are_written_anew_several_batches_are_made() -> None:
    count = 2 * REWRITTEN_RECORDS_MAX + 5
    records = [Record(offset, 5, None, None) for offset in range(count)]
    data = encode_batch(records, codec=Codec.ZSTD, attributes=LOG_APPEND_TIME_FLAG)
    found = parse_batches(memoryview(data), 0, 0, TaskLimits())
    edges = [0, REWRITTEN_RECORDS_MAX, 2 * REWRITTEN_RECORDS_MAX, count]
    assert [(piece.base, piece.end) for piece in found.batches] == list(itertools.pairwise(edges))
    assert all(isinstance(piece, OutgoingBatch) for piece in found.batches)
    assert [entry.batches for entry in found.carried] == [1]


def dear(first: int, count: int) -> bytes:
    """Every other record is gone: each that is left becomes a batch of its own."""
    ours = [Record(first + number, 5, b"k", b"v") for number in range(0, count, 2)]
    return encode_batch(ours, base_offset=first, last_offset=first + count - 1, codec=Codec.LZ4)


def source_id(number: int) -> bytes:
    return bytes([number + 1]) * 16


def task_of(partitions: int, limits: TaskLimits) -> TaskPartitions:
    task = TaskPartitions(7, 0, state_expiry_ms=86_400_000, limits=limits)
    task.assign([PartitionConfig("orders", number, source_id(number).hex(), TARGET_ID) for number in range(partitions)])
    for number in range(partitions):
        task.routed(TopicPartition("orders", number), PartitionLeaders(1, 0, 2))
    task.take_over([Handoff("orders", number, 0, -1, NOW_MS + 1_000_000) for number in range(partitions)], 0.0)
    assert task.fetch_order(LINE)
    return task


def answer_of(partitions: int, data: bytes) -> FetchResponseById:
    parts = [
        FetchedPartitionById(source_id(number), number, 0, 900, 900, 0, None, None, [], memoryview(data).toreadonly())
        for number in range(partitions)
    ]
    return FetchResponseById(0, 0, 5, parts)


def tracks(task: TaskPartitions) -> list[PartitionReplicator]:
    return list(task.replicators.values())


def test_one_turn_cuts_no_more_than_its_share_whatever_an_answer_holds() -> None:
    task = task_of(8, TaskLimits(work_max=500))
    hold = PooledBuffer(bytearray())
    task.fetched(LINE, answer_of(8, dear(0, 800)), hold, 0.0, NOW_MS)
    reached = [track.fetched for track in tracks(task)]
    assert 0 < reached[0] < 800 and reached[1:] == [0] * 7, reached
    turns = 0
    while task.backlog:
        assert task.fetch_order(LINE) is None, "what is here would be fetched again"
        assert hold.uses >= 1
        before = sum(track.fetched for track in tracks(task))
        task.go_on(0.0, NOW_MS)
        assert 0 < sum(track.fetched for track in tracks(task)) - before < 200
        turns += 1
        assert turns < 200
    assert [track.fetched for track in tracks(task)] == [800] * 8
    for track in tracks(task):
        spans = [(piece.base, piece.end) for piece, _ in track.waiting]
        assert spans == [(offset, offset + 1) for offset in range(800)]
        assert [(one.begin, one.end) for one in track.progress_log.noted][-1][1] == 800
        assert sum(one.batches for one in track.progress_log.noted) == 1
    assert hold.uses == 0
    assert task.fetch_order(LINE)


def test_a_slow_machine_cuts_less_in_a_turn_and_a_quick_one_as_much_as_it_may() -> None:
    """Shown on a starved machine: turns of 3.4 s, in which the grant ran out and what was cut was lost."""

    def cut_by(took_s: float, turns: int) -> int:
        """In the turn behind so many that took so long."""
        for _ in range(turns):
            task.go_on(0.0, NOW_MS)
            task.took(took_s)
        before = sum(track.fetched for track in tracks(task))
        task.go_on(0.0, NOW_MS)
        return sum(track.fetched for track in tracks(task)) - before

    task = task_of(8, TaskLimits(work_max=500))
    task.fetched(LINE, answer_of(8, dear(0, 800)), PooledBuffer(bytearray()), 0.0, NOW_MS)
    whole = cut_by(0.3, 2)
    assert cut_by(1.6, 1) <= whole // 3
    assert 0 < cut_by(60.0, 3) <= whole // 20, "it goes on, however slow"
    task.took(0.1)
    assert cut_by(0.1, 10) == whole
    # A turn that took no time says nothing where nothing was cut in it.
    task.took(1.6)
    task.took(0.0)
    assert cut_by(0.3, 0) <= whole // 3


def test_the_turns_of_several_lines_share_one_budget() -> None:
    task = task_of(2, TaskLimits(work_max=500))
    whole = answer_of(2, dear(0, 800))
    task.fetched(LINE, whole._replace(partitions=whole.partitions[:1]), PooledBuffer(bytearray()), 0.0, NOW_MS)
    task.fetched(LINE, whole._replace(partitions=whole.partitions[1:]), PooledBuffer(bytearray()), 0.0, NOW_MS)
    assert [track.fetched > 0 for track in tracks(task)] == [True, False]


def test_what_was_fetched_before_a_look_is_not_cut_behind_it() -> None:
    """Another leader may have another log: what the one before gave must be asked for again."""
    for unsettle in ("look", "finish", "released", "refused"):
        task = task_of(2, TaskLimits(work_max=500))
        hold = PooledBuffer(bytearray())
        task.fetched(LINE, answer_of(2, dear(0, 800)), hold, 0.0, NOW_MS)
        first, second = tracks(task)
        at = first.fetched
        if unsettle == "look":
            for track in (first, second):
                track.settle(0.0)
                track.begin(track.fetched, armed_until_ms=0, leader_epoch=-1)
        elif unsettle == "finish":
            task.finish()
        elif unsettle == "released":
            for track in (first, second):
                task.release(track.named)
        else:
            for track in (first, second):
                track.refused(PartitionStopped(IncidentKind.REFUSED, 0, 1, "no"))
        task.go_on(0.0, NOW_MS)
        assert not task.backlog
        assert hold.uses == 0
        assert (max(first.fetched, at), second.fetched) == (at, 0), unsettle
    task = task_of(1, TaskLimits(work_max=500))
    task.fetched(LINE, answer_of(1, dear(0, 800)), PooledBuffer(bytearray()), 0.0, NOW_MS)
    (only,) = tracks(task)
    only.settle(0.0)
    only.progress_log.to = only.fetched
    only.begin(only.fetched, armed_until_ms=0, leader_epoch=-1)
    task.go_on(0.0, NOW_MS)
    asked = task.fetch_order(LINE)
    assert asked and [(one.partition, one.position) for one in asked.partitions] == [(0, only.fetched)]
