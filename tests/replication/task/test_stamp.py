"""One cut is stamped for many targets: each gets the very bytes that a cut of its own would give it."""

from __future__ import annotations

import random

import pytest

from tests.replication.task.parcels import parse_batches, sent_under
from tests.replication.task.test_uncut import a_log
from twinshore.kafka.protocol.batch_join import compiled_loops
from twinshore.kafka.protocol.record_batch import (
    KEPT_ATTRIBUTES,
    SEQUENCE_SPAN,
    check_crc,
    encode_header,
    seal,
    split_batches,
)
from twinshore.replication.task.core.batches import (
    BufferPool,
    FilledGap,
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    SequenceMap,
)
from twinshore.replication.task.core.messages import TaskLimits

ONE = SequenceMap(producer_id=9, producer_epoch=2, base_offset=0, base_sequence=0)
# Its data began elsewhere, and its sequences wrap on the way.
OTHER = SequenceMap(producer_id=2**40, producer_epoch=77, base_offset=-5, base_sequence=SEQUENCE_SPAN - 40)
LIMITS = TaskLimits(merge_below_bytes=300, join_below_bytes=4000, merged_bytes_max=9000)


def cut_once(data: bytes, aborted: list[tuple[int, int]], joining: BufferPool | None = None) -> ParsedFetch:
    return parse_batches(memoryview(data), 0, 0, LIMITS, joining, aborted)


def sent(found: ParsedFetch, stamp: SequenceMap) -> list[bytes]:
    """What a broker receives, each batch with its offset, so that none may take another's place."""
    return [
        b"%d " % piece.base + head + bytes(piece.body)
        for piece, head in sent_under(stamp, found.batches)
        if isinstance(piece, OutgoingBatch)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_one_cut_stamped_for_two_targets_is_two_cuts(seed: int) -> None:
    assert compiled_loops(), "neighbours must be joined here"
    data, aborted = a_log(random.Random(seed))
    both = cut_once(data, aborted, BufferPool(LIMITS))
    bodies = [bytes(piece.body) for piece in both.batches if isinstance(piece, OutgoingBatch)]
    for stamp in (ONE, OTHER, ONE):
        assert sent(both, stamp) == sent(cut_once(data, aborted, BufferPool(LIMITS)), stamp)
    assert bodies == [bytes(piece.body) for piece in both.batches if isinstance(piece, OutgoingBatch)]


@pytest.mark.parametrize("seed", range(20))
def test_each_target_has_its_own_producer_and_sequences_without_gaps(seed: int) -> None:
    data, aborted = a_log(random.Random(seed))
    found = cut_once(data, aborted)
    for stamp in (ONE, OTHER):
        following = stamp.sequence(0)
        for piece, head in sent_under(stamp, found.batches):
            if isinstance(piece, OffsetGap):
                assert head == b""
                continue
            ((view, header),) = split_batches(memoryview(head + bytes(piece.body)))
            check_crc(view, header)
            anew = piece.header._replace(
                base_offset=0,
                leader_epoch=-1,
                attributes=piece.header.attributes & KEPT_ATTRIBUTES,
                producer_id=stamp.producer_id,
                producer_epoch=stamp.producer_epoch,
                base_sequence=following,
            )
            assert head == encode_header(seal(anew, piece.body)), "as if its CRC were made of all its bytes"
            following = (following + header.count) % SEQUENCE_SPAN


def test_a_leap_leaves_the_sequence_to_the_offset() -> None:
    data, _ = a_log(random.Random(1), batches=1)
    (batch,) = cut_once(data, []).batches
    assert isinstance(batch, OutgoingBatch)
    behind = batch._replace(base=60)
    for gap, sequence in ((FilledGap(0, 60), 60), (OffsetGap(0, 60), 0)):
        *_, (_, head) = sent_under(ONE, [gap, behind])
        ((_, header),) = split_batches(memoryview(head + bytes(batch.body)))
        assert header.base_sequence == sequence
