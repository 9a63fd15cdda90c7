"""Batches whose bytes do not matter, and what a twin's track makes of batches whose bytes do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinshore.kafka.protocol.record_batch import Record, encode_batch, split_batches
from twinshore.replication.task.core.batches import (
    BatchParser,
    BufferPool,
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    SequenceMap,
)
from twinshore.replication.task.core.messages import PartitionConfig, TaskLimits
from twinshore.replication.task.core.partition import PartitionReplicator

HEADER = split_batches(memoryview(encode_batch([Record(0, 5, b"k", b"v")])))[0][1]


def a_batch(base: int, end: int, size: int = 10, max_timestamp: int = 5) -> OutgoingBatch:
    return OutgoingBatch(HEADER, b"body", base, end, size, max_timestamp)


def sent_under(
    stamp: SequenceMap, pieces: Iterable[OutgoingBatch | OffsetGap]
) -> Iterator[tuple[OutgoingBatch | OffsetGap, bytes]]:
    """What a track that queues these sends, in order, with the header that goes out; a gap has none."""
    track = PartitionReplicator(PartitionConfig("t", 0, "aa", "bb"), stamp, (b"a", 0), b"b")
    for piece in pieces:
        track.queue(piece, None)
    while track.waiting:
        piece, _ = track.waiting[0]
        if isinstance(piece, OffsetGap):
            yield track.send_gap(piece.end - piece.base, 0.0), b""
        else:
            track.waiting.popleft()
            yield piece, track.stamp.head(piece)


def parse_batches(
    records: memoryview,
    position: int,
    write_from: int,
    limits: TaskLimits,
    joining: BufferPool | None = None,
    aborted: Iterable[tuple[int, int]] = (),
) -> ParsedFetch:
    """Parses all batches from `position` on, with `BatchParser`."""
    return BatchParser(records, position, write_from, limits, joining, aborted).parse(1 << 62)
