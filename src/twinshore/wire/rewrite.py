"""Records written anew against another base: same key, value and headers, other deltas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.batch import BatchHeader
from twinshore.wire.primitives import varint
from twinshore.wire.records import Frame, frames

_INT64 = 1 << 63
_PIECES_JOINED = 4096


class Rewritten(NamedTuple):
    """What was kept, how many records, and their bounds; the bounds mean nothing when `kept` is 0."""

    data: bytes
    kept: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def rewrite(
    data: bytes,
    header: BatchHeader,
    *,
    base_timestamp: int,
    base_offset: int | None = None,
    bounds: tuple[int, int] | None = None,
    timestamp: int | None = None,
) -> Rewritten:
    """The plain records of a batch against another base timestamp, and `base_offset` or else the first one kept.

    Only offsets in [bounds[0], bounds[1]) are kept; `timestamp`, when given, becomes that of every record.
    """
    source_base = header.base_offset
    if bounds is None:
        chosen: Iterable[Frame] = frames(data, header)
    else:
        first, end = bounds
        chosen = (frame for frame in frames(data, header) if first <= source_base + frame.offset_delta < end)
    return rewrite_frames(data, header, chosen, base_timestamp, base_offset=base_offset, timestamp=timestamp)


def rewrite_frames(
    data: bytes,
    header: BatchHeader,
    chosen: Iterable[Frame],
    base_timestamp: int,
    *,
    base_offset: int | None = None,
    timestamp: int | None = None,
) -> Rewritten:
    """As `rewrite`, of these records of the batch only."""
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
