"""Small neighbouring batches as one: fewer, larger appends on the target, the same records at the same offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from twinshore.fleet.errors import TooLargeError
from twinshore.wire.batch import (
    BODY_IN_LENGTH,
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    seal,
)
from twinshore.wire.codecs import codec_of, compress
from twinshore.wire.primitives import varint
from twinshore.wire.records import frames, plain_records
from twinshore.wire.slice import rewrite_frames

Batch = tuple[memoryview, BatchHeader]

# What a batch made here unpacks to: a consumer's default fetch of one partition, which every client reads.
MERGED_PLAIN_BYTES_MAX = 1 << 20
# A small batch that unpacks to more for each of its bytes crosses as it is. So what it costs to merge a fetch is
# bounded by the fetch's size, whatever its batches hold.
PLAIN_PER_BYTE_MAX = 32

_TABLE = 4096
_VARINTS = [varint(value) for value in range(_TABLE)]
# What a record's frame begins with when it fills a body of n bytes and both deltas are 0: length, attributes, deltas.
# No record fills 65 bytes, since its length would take one byte at 63 and two at 64.
_NO_FRAME = b"no frame"
_FRAME_STARTS = [
    varint(n - (1 if n < 65 else 2)) + b"\0\0\0" if n >= 7 and n != 65 else _NO_FRAME for n in range(_TABLE)
]
_FRAME_OPENINGS = [varint(length) + b"\0" for length in range(_TABLE + 16)]


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


class Merged(NamedTuple):
    """One batch made of so many `batches`, or the only one as it is."""

    body: bytes
    header: BatchHeader
    batches: int


def merge_small(batches: Sequence[Batch], begin: int = 0, *, plain_bytes_max: int = MERGED_PLAIN_BYTES_MAX) -> Merged:
    """Batches that `can_merge`, each with the next: as many from `begin` on as unpack to `plain_bytes_max` together.

    Deltas are written anew; offsets, timestamps, keys, values and headers read as before. Each CRC is checked first,
    since the new one would hide damage; WireError names the batch.
    """
    first = batches[begin][1]
    base_offset, attributes, base_timestamp = first[0], first[5], first[7]
    codec = codec_of(attributes)
    out: list[bytes] = []
    latest = -(1 << 63)
    next_offset = base_offset
    left, merged_count = plain_bytes_max, len(batches) - begin
    for view, header in islice(batches, begin, None) if begin else batches:
        offset, length, _, _, crc, ours, last_delta, timestamp, _, _, _, _, count = header
        if offset != next_offset or ours != attributes or count != last_delta + 1:
            raise ValueError(f"batch at offset {offset} cannot follow one that ends at {next_offset - 1}")
        raw = view.tobytes()
        if crc32c(raw[CRC_START:]) != crc:
            check_crc(view, header)
        size = length - BODY_IN_LENGTH
        # The common case, one plain record whose deltas are 0, is cut at known places instead of being walked.
        if (
            count == 1
            and size < _TABLE
            and not attributes
            and raw.startswith(start := _FRAME_STARTS[size], HEADER_BYTES)
        ):
            moved, late = offset - base_offset, timestamp - base_timestamp
            deltas = (_VARINTS[late] if 0 <= late < _TABLE else varint(late)) + (
                _VARINTS[moved] if moved < _TABLE else varint(moved)
            )
            rest = raw[HEADER_BYTES + len(start) :]
            out += (_FRAME_OPENINGS[1 + len(deltas) + len(rest)], deltas, rest)
        else:
            try:
                plain = plain_records(raw, header, min(left, PLAIN_PER_BYTE_MAX * length) if attributes else length)
            except TooLargeError:
                merged_count = len(out)  # each packed one so far is a piece of its own
                break
            left -= len(plain)
            chosen = frames(plain, header)
            ours_anew = rewrite_frames(plain, header, chosen, base_timestamp, base_offset=base_offset)
            out.append(ours_anew.data)
            timestamp = ours_anew.max_timestamp
        if timestamp > latest:
            latest = timestamp
        next_offset = offset + last_delta + 1
    if merged_count < 2:
        return Merged(bytes(batches[begin][0][HEADER_BYTES:]), first, 1)
    body = compress(codec, b"".join(out))
    merged = first._replace(
        leader_epoch=batches[begin + merged_count - 1][1].leader_epoch,
        last_offset_delta=next_offset - base_offset - 1,
        max_timestamp=latest,
        base_sequence=-1,
        count=next_offset - base_offset,
    )
    return Merged(body, seal(merged, body), merged_count)
