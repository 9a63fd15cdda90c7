"""Batches of empty records that take offsets below a twin's log start: they are cut off before anybody reads them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from twinshore.wire.batch import BODY_IN_LENGTH, CONTROL, HEADER_BYTES, BatchHeader, restamp, seal
from twinshore.wire.codecs import Codec, codec_of, compress, decompress
from twinshore.wire.primitives import Buffer, varint

# Brokers unpack a batch to check each record; a few MB of that is a few milliseconds.
FILLER_RECORDS_MAX = 200_000
# Each has the time stamp 0, so that no search by time ever ends at one; an empty key, because compacted topics refuse
# records without one; no value; no headers.
_TIMESTAMP = 0


class Filler(NamedTuple):
    """A filler batch but for its stamp: `stamped` makes its header."""

    header: BatchHeader
    body: bytes

    def stamped(self, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
        """Its header, base offset 0."""
        return restamp(self.header, producer_id, producer_epoch, sequence)


def _record(delta: int) -> bytes:
    deltas = b"\0" + varint(delta)
    return varint(1 + len(deltas) + 3) + b"\0" + deltas + b"\0\1\0"


@cache
def _body(count: int) -> bytes:
    out = bytearray()
    for delta in range(count):
        out += _record(delta)
    return compress(Codec.ZSTD, bytes(out))


def filler(count: int) -> Filler:
    """A batch that takes `count` offsets, at most FILLER_RECORDS_MAX; the usual sizes are made once."""
    if not 0 < count <= FILLER_RECORDS_MAX:
        raise ValueError(f"a filler of {count} records")
    body = _body(count) if count == FILLER_RECORDS_MAX else _body.__wrapped__(count)
    plain = BatchHeader(
        base_offset=0,
        length=BODY_IN_LENGTH + len(body),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=Codec.ZSTD,
        last_offset_delta=count - 1,
        base_timestamp=_TIMESTAMP,
        max_timestamp=_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return Filler(seal(plain, body), body)


def is_filler(data: Buffer, header: BatchHeader) -> bool:
    """Whether a batch is filler that readers see: by its time and by its first record."""
    if header.attributes & CONTROL or not header.count or header.base_timestamp or header.max_timestamp:
        return False
    body = decompress(codec_of(header.attributes), memoryview(data)[HEADER_BYTES:])
    return body.startswith(_record(0))
