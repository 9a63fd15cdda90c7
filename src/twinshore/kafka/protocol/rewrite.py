"""Rewrites batches: parts of one as batches, LogAppendTime as CreateTime, small neighbours as one.

Records keep offsets, keys, values and headers; codecs stay, CRCs are valid. Batches are decompressed for this: one that
would take too much time or memory is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from twinshore.config.errors import TooLargeError, WireError
from twinshore.kafka.protocol.primitives import varint
from twinshore.kafka.protocol.record_batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    RecordFrame,
    check_crc,
    codec_of,
    compress,
    plain_records,
    record_frames,
    seal,
)

_INT64 = 1 << 63
_PIECES_JOINED = 4096


class RewrittenRecords(NamedTuple):
    """The kept records: their number and bounds, which are undefined when `kept` is 0."""

    data: bytes
    kept: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def rewrite_frames(
    data: bytes,
    header: BatchHeader,
    chosen: Iterable[RecordFrame],
    base_timestamp: int,
    *,
    base_offset: int | None = None,
    timestamp: int | None = None,
) -> RewrittenRecords:
    """Rewrite `chosen` records against another base timestamp, and `base_offset` or the first kept offset. `timestamp`
    replaces each record's.
    """
    data_anew = bytearray()
    out: list[bytes] = []
    kept = 0
    last_offset = -1
    latest = -_INT64
    source_base, source_timestamp = header.base_offset, header.base_timestamp
    for start, rest, end, timestamp_delta, offset_delta in chosen:
        offset = source_base + offset_delta
        if base_offset is None:
            base_offset = offset
        stamped = source_timestamp + timestamp_delta if timestamp is None else timestamp
        if not -_INT64 <= stamped - base_timestamp < _INT64:
            raise WireError(f"record at offset {offset}: its timestamp {stamped} is out of range")
        deltas = varint(stamped - base_timestamp) + varint(offset - base_offset)
        out += (varint(1 + len(deltas) + end - rest), data[start : start + 1], deltas, data[rest:end])
        last_offset = offset
        kept += 1
        if not kept % _PIECES_JOINED:
            # Each piece is an object many times its size.
            data_anew += b"".join(out)
            out.clear()
        if stamped > latest:
            latest = stamped
    plain = bytes(data_anew) + b"".join(out) if data_anew else b"".join(out)
    return RewrittenRecords(plain, kept, base_offset or 0, last_offset, latest)


# Far above brokers' default limit (1 MB compressed), and below what a task can hold or process at a time.
REWRITE_BYTES_MAX = 64 << 20
REWRITE_RECORDS_MAX = 1 << 19


class SlicedBatch(NamedTuple):
    """A rewritten batch, and the decompressed size of its records."""

    body: bytes
    header: BatchHeader
    plain_bytes: int


def slice_runs(
    view: memoryview,
    header: BatchHeader,
    runs: Iterable[tuple[int, int]],
    *,
    limit_bytes: int = REWRITE_BYTES_MAX,
) -> Iterator[SlicedBatch]:
    """Yields the records of each offset range, in rising order, as one batch from first record to last. The source
    batch is decompressed once, and walked lazily.

    LogAppendTime becomes CreateTime. WireError for a wrong CRC, or a range without records.
    """
    check_crc(view, header)
    _check_count(header)
    timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    base_timestamp = header.base_timestamp if timestamp is None else timestamp
    data = plain_records(view, header, limit_bytes)
    walk = record_frames(data, header)
    frame = next(walk, None)

    def chosen(first: int, end: int) -> Iterator[RecordFrame]:
        nonlocal frame
        while frame is not None and (offset := header.base_offset + frame.offset_delta) < end:
            if offset >= first:
                yield frame
            frame = next(walk, None)

    for first, end in runs:
        anew = rewrite_frames(data, header, chosen(first, end), base_timestamp, timestamp=timestamp)
        if not anew.kept:
            raise WireError(f"batch at offset {header.base_offset} holds no record at offsets {first} to {end - 1}")
        yield _sealed(anew, header, base_timestamp)
    for _ in walk:
        # Records that are not kept are checked as well.
        pass


def _sealed(anew: RewrittenRecords, header: BatchHeader, base_timestamp: int) -> SlicedBatch:
    body = compress(codec_of(header.attributes), anew.data)
    sliced = header._replace(
        base_offset=anew.base_offset,
        attributes=header.attributes & CODEC_MASK,
        last_offset_delta=anew.last_offset - anew.base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=anew.max_timestamp,
        base_sequence=-1,
        count=anew.kept,
    )
    return SlicedBatch(body, seal(sliced, body), len(anew.data))


def _check_count(header: BatchHeader) -> None:
    if header.count > REWRITE_RECORDS_MAX:
        sentence = f"its {header.count} records are more than are rewritten here"
        raise TooLargeError(f"batch at offset {header.base_offset}: {sentence}")


def hole_free_runs(
    view: memoryview, header: BatchHeader, *, limit_bytes: int = REWRITE_BYTES_MAX
) -> list[tuple[int, int]]:
    """Returns the batch's offset runs [first, end) without holes; compaction leaves several."""
    _check_count(header)
    runs: list[tuple[int, int]] = []
    first = end = -1
    for frame in record_frames(plain_records(view, header, limit_bytes), header):
        offset = header.base_offset + frame.offset_delta
        if offset != end:
            if end > first:
                runs.append((first, end))
            first = offset
        end = offset + 1
    if end > first:
        runs.append((first, end))
    return runs


Batch = tuple[memoryview, BatchHeader]

# Decompressed limit of merged batches: a consumer's default fetch of a partition, which each client reads.
MERGED_PLAIN_BYTES_MAX = 1 << 20
# A small batch with a higher compression ratio is not merged. So the cost of merging a fetch is
# bounded by the fetch's size.
PLAIN_PER_BYTE_MAX = 32


def can_merge(first: BatchHeader, second: BatchHeader) -> bool:
    """Whether `second` may follow `first` in one batch: contiguous, no holes, one codec, CreateTime, plain data."""
    attributes = first[5]
    return (
        attributes == second[5]
        and attributes <= CODEC_MASK
        and first[0] + first[6] + 1 == second[0]
        and first[12] == first[6] + 1
        and second[12] == second[6] + 1
    )


class MergedBatch(NamedTuple):
    """One batch made of `batches` batches; a single one is unchanged."""

    body: bytes
    header: BatchHeader
    batches: int


def merge_small(
    batches: Sequence[Batch], begin: int = 0, *, plain_bytes_max: int = MERGED_PLAIN_BYTES_MAX
) -> MergedBatch:
    """Merge batches from `begin` on, up to `plain_bytes_max` decompressed; `can_merge` must hold for neighbours.

    Deltas are rewritten; records read as before. Each CRC is checked, since the new one would hide damage; WireError
    names the batch.
    """
    first = batches[begin][1]
    base_offset, attributes, base_timestamp = first[0], first[5], first[7]
    codec = codec_of(attributes)
    out: list[bytes] = []
    latest = -(1 << 63)
    next_offset = base_offset
    left, merged_count = plain_bytes_max, len(batches) - begin
    for view, header in islice(batches, begin, None) if begin else batches:
        offset, length, _, _, crc, ours, last_delta, _, _, _, _, _, count = header
        if offset != next_offset or ours != attributes or count != last_delta + 1:
            raise ValueError(f"batch at offset {offset} cannot follow one that ends at {next_offset - 1}")
        raw = view.tobytes()
        if crc32c(raw[CRC_START:]) != crc:
            check_crc(view, header)
        try:
            plain = plain_records(raw, header, min(left, PLAIN_PER_BYTE_MAX * length) if attributes else length)
        except TooLargeError:
            merged_count = len(out)  # each compressed batch so far is one piece
            break
        left -= len(plain)
        new = rewrite_frames(plain, header, record_frames(plain, header), base_timestamp, base_offset=base_offset)
        out.append(new.data)
        latest = max(latest, new.max_timestamp)
        next_offset = offset + last_delta + 1
    if merged_count < 2:
        return MergedBatch(bytes(batches[begin][0][HEADER_BYTES:]), first, 1)
    body = compress(codec, b"".join(out))
    merged = first._replace(
        leader_epoch=batches[begin + merged_count - 1][1].leader_epoch,
        last_offset_delta=next_offset - base_offset - 1,
        max_timestamp=latest,
        base_sequence=-1,
        count=next_offset - base_offset,
    )
    return MergedBatch(body, seal(merged, body), merged_count)
