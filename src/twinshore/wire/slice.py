"""Parts of a batch as batches of their own, and LogAppendTime batches as CreateTime ones.

Each result is (body, header): records read by a consumer at the same offsets as before, codec kept, CRC right.
Records are written anew against another base for that: same key, value and headers, other deltas.
A batch is unpacked and walked for that, which takes memory and time: one that would take too much is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twinshore.fleet.errors import TooLargeError, WireError
from twinshore.wire.batch import CODEC_MASK, TIMESTAMP_APPEND, BatchHeader, check_crc, seal
from twinshore.wire.codecs import codec_of, compress
from twinshore.wire.primitives import varint
from twinshore.wire.records import Frame, frames, plain_records

_INT64 = 1 << 63
_PIECES_JOINED = 4096


class Rewritten(NamedTuple):
    """What was kept, how many records, and their bounds; the bounds mean nothing when `kept` is 0."""

    data: bytes
    kept: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def rewrite_frames(
    data: bytes,
    header: BatchHeader,
    chosen: Iterable[Frame],
    base_timestamp: int,
    *,
    base_offset: int | None = None,
    timestamp: int | None = None,
) -> Rewritten:
    """The plain records of a batch against another base timestamp, and `base_offset` or else the first one kept: those
    that are `chosen`. `timestamp`, when given, becomes that of every record."""
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
            # Each piece is an object of its own, many times its size.
            data_anew += b"".join(out)
            out.clear()
        if stamped > latest:
            latest = stamped
    plain = bytes(data_anew) + b"".join(out) if data_anew else b"".join(out)
    return Rewritten(plain, kept, base_offset or 0, last_offset, latest)


# Far above what brokers take by default (1 MB packed), and below what a pump can be asked to hold or walk at a time.
REWRITE_BYTES_MAX = 64 << 20
REWRITE_RECORDS_MAX = 1 << 19


class Sliced(NamedTuple):
    """A batch made here, and what its records take unpacked."""

    body: bytes
    header: BatchHeader
    plain_bytes: int


def slice_runs(
    view: memoryview,
    header: BatchHeader,
    runs: Iterable[tuple[int, int]],
    *,
    limit_bytes: int = REWRITE_BYTES_MAX,
) -> Iterator[Sliced]:
    """The records in each of these ranges of offsets, which must rise, as one batch that begins at its first record and
    ends at its last. The batch is unpacked and walked once for all, as far as somebody asks.

    LogAppendTime becomes CreateTime on the way. Raises WireError when the CRC is wrong or no record lies there.
    """
    check_crc(view, header)
    _check_count(header)
    timestamp = header.max_timestamp if header.attributes & TIMESTAMP_APPEND else None
    base_timestamp = header.base_timestamp if timestamp is None else timestamp
    data = plain_records(view, header, limit_bytes)
    walk = frames(data, header)
    frame = next(walk, None)

    def chosen(first: int, end: int) -> Iterator[Frame]:
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
        # What is not kept is checked as well.
        pass


def _sealed(anew: Rewritten, header: BatchHeader, base_timestamp: int) -> Sliced:
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
    return Sliced(body, seal(sliced, body), len(anew.data))


def _check_count(header: BatchHeader) -> None:
    if header.count > REWRITE_RECORDS_MAX:
        sentence = f"its {header.count} records are more than are written anew here"
        raise TooLargeError(f"batch at offset {header.base_offset}: {sentence}")


def hole_free_runs(
    view: memoryview, header: BatchHeader, *, limit_bytes: int = REWRITE_BYTES_MAX
) -> list[tuple[int, int]]:
    """The offsets that the batch holds, as ranges [first, end) without holes, in order; compaction leaves several."""
    _check_count(header)
    runs: list[tuple[int, int]] = []
    first = end = -1
    for frame in frames(plain_records(view, header, limit_bytes), header):
        offset = header.base_offset + frame.offset_delta
        if offset != end:
            if end > first:
                runs.append((first, end))
            first = offset
        end = offset + 1
    if end > first:
        runs.append((first, end))
    return runs
