"""A room is used again only when no queue points into it: a batch may wait for several targets at once."""

from __future__ import annotations

import pytest

from tests.replication.task.parcels import parse_batches
from tests.replication.task.test_track import begun
from twinshore.kafka.protocol.batch_join import compiled_loops
from twinshore.kafka.protocol.record_batch import Record, encode_batch
from twinshore.replication.task.core.batches import BufferPool, OutgoingBatch, ParsedFetch, PooledBuffer
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.core.partition import PartitionReplicator

LIMITS = TaskLimits(merge_below_bytes=0, join_below_bytes=128 << 10, merged_bytes_max=512 << 10)
BATCH_BYTES = 60_000


@pytest.fixture(autouse=True)
def joins() -> None:
    assert compiled_loops(), "neighbours must be joined here"


def a_fetch(first: int, batches: int) -> memoryview:
    """Batches of one large record, each of other bytes."""
    return memoryview(
        b"".join(
            bytes(encode_batch([Record(offset, 5, None, bytes([offset % 256]) * BATCH_BYTES)], base_offset=offset))
            for offset in range(first, first + batches)
        )
    )


def joined(joining: BufferPool, first: int, batches: int) -> ParsedFetch:
    found = parse_batches(a_fetch(first, batches), first, first, LIMITS, joining)
    assert all(isinstance(piece, OutgoingBatch) and piece.room for piece in found.batches)
    return found


def bodies(found: ParsedFetch) -> list[bytes]:
    return [bytes(piece.body) for piece in found.batches if isinstance(piece, OutgoingBatch)]


def rooms(found: ParsedFetch) -> set[PooledBuffer]:
    return {piece.room for piece in found.batches if isinstance(piece, OutgoingBatch) and piece.room}


def two_twins(found: ParsedFetch) -> tuple[PartitionReplicator, PartitionReplicator]:
    one, other = begun(0), begun(0)
    for track in (one, other):
        track.take(found, PooledBuffer(bytearray()), 5)
    return one, other


def test_what_one_target_wants_no_more_stays_for_the_other() -> None:
    joining = BufferPool(LIMITS)
    found = joined(joining, 0, 8)
    before = bodies(found)
    one, other = two_twins(found)
    one.set_back()
    assert {room.uses for room in rooms(found)} == {1}
    for first in range(8, 200, 8):
        joined(joining, first, 8)
    assert bodies(found) == before, "the room of a twin that still sends was written over"
    other.set_back()
    assert {room.uses for room in rooms(found)} == {0}
    later = [joined(joining, 200, 8)]
    while not rooms(found) & rooms(later[-1]):
        two_twins(later[-1])
        later.append(joined(joining, 200, 8))
        assert len(later) < 10, "it is never used again"


def test_all_of_one_cut_lies_apart_before_any_of_it_is_queued() -> None:
    """Nothing is counted between the cut and the queue."""
    joining = BufferPool(LIMITS)
    found = joined(joining, 0, 80)
    whole = b"".join(bodies(found))
    assert len(rooms(found)) > 2, "one room would show little"
    assert [whole.count(bytes([offset]) * BATCH_BYTES) for offset in range(80)] == [1] * 80
    assert {room.uses for room in rooms(found)} == {0}


def test_rooms_are_full_by_what_waits_and_free_by_what_is_dropped() -> None:
    joining = BufferPool(LIMITS)
    twins: list[PartitionReplicator] = []
    for first in range(0, 100_000, 8):
        if joining.full():
            break
        twins += two_twins(joined(joining, first, 8))
    assert joining.full(), "nothing bounds the rooms"
    for one in twins[::2]:
        one.set_back()
    assert joining.full()
    twins[1].set_back()
    twins[3].set_back()
    assert not joining.full()
