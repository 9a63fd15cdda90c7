"""The records inside a batch: decode, encode, and the walk over their frames that rewriting is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.batch import (
    BODY_IN_LENGTH,
    HEADER_BYTES,
    TIMESTAMP_APPEND,
    BatchHeader,
    head_bytes,
    seal,
)
from twinshore.wire.codecs import DECOMPRESSED_BYTES_MAX, Codec, codec_of, compress, decompress
from twinshore.wire.primitives import Buffer, LongVarintError, read_varint, varint

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths, header count: one byte each

Headers = tuple[tuple[bytes, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Frame(NamedTuple):
    """Where a record lies in its batch's plain bytes: `data[start:end]` from its attributes byte on.

    `rest` is where the bytes after both deltas begin: key, value and headers, the same in any batch.
    """

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int


def plain_records(view: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The batch's records, decompressed; raises WireError when `header.count` cannot be in them."""
    codec = codec_of(header.attributes)
    try:
        data = decompress(codec, view[HEADER_BYTES:], limit_bytes)
    except WireError as error:
        raise error.within(f"batch at offset {header.base_offset}") from error
    if header.count * RECORD_BYTES_MIN > len(data):
        raise WireError(
            f"batch at offset {header.base_offset} claims {header.count} records in {len(data)} bytes of records"
        )
    return data


def frames(data: bytes, header: BatchHeader) -> Iterator[Frame]:
    """The frames of a batch's records in order, checked: they fill `data`, and their offsets rise within the batch."""
    position, size = 0, len(data)
    last_delta = -1
    delta_max = header.last_offset_delta
    new = tuple.__new__
    try:
        for _ in range(header.count):
            # One-byte values are read in place: this loop is most of what rewriting costs.
            byte = data[position]
            if byte < 0x80:
                length, start = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, start = read_varint(data, position)
            end = start + length
            if length < RECORD_BYTES_MIN - 1 or end > size:
                raise _bad(header, position, f"a record claims {length} bytes of {size - start}")
            byte = data[start + 1]
            if byte < 0x80:
                timestamp_delta, rest = (byte >> 1) ^ -(byte & 1), start + 2
            else:
                timestamp_delta, rest = read_varint(data, start + 1, 64)
            byte = data[rest]
            if byte < 0x80:
                offset_delta, rest = (byte >> 1) ^ -(byte & 1), rest + 1
            else:
                offset_delta, rest = read_varint(data, rest)
            if not last_delta < offset_delta <= delta_max or rest >= end:
                raise _bad(header, position, f"a record has offset delta {offset_delta} after {last_delta}")
            yield new(Frame, (start, rest, end, timestamp_delta, offset_delta))
            last_delta, position = offset_delta, end
    except IndexError as error:
        raise _bad(header, position, "the records end too early") from error
    except LongVarintError as error:
        raise _bad(header, position, error.message) from error
    if position != size:
        raise _bad(header, position, f"{size - position} bytes follow the last record")


def decode_batch(view: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Every record of one batch as a consumer sees it. The CRC is not checked; `limit_bytes` bounds decompression."""
    return list(iter_records(view, header, limit_bytes=limit_bytes))


def iter_records(view: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """As `decode_batch`, one record at a time."""
    data = plain_records(view, header, limit_bytes)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_APPEND else None
    for _, rest, end, timestamp_delta, offset_delta in frames(data, header):
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        try:
            key, position = _blob(data, rest, end)
            value, position = _blob(data, position, end)
            headers, position = _headers(data, position, end)
        except (IndexError, WireError) as error:
            reason = error.message if isinstance(error, WireError) else "a record ends too early"
            raise _bad(header, rest, reason) from error
        if position != end:
            raise _bad(header, position, f"a record has {end - position} bytes too many")
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)


def _blob(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80:
        length, start = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        length, start = read_varint(data, position)
    if length == -1:
        return None, start
    stop = start + length
    if length < 0 or stop > end:
        raise WireError(f"a field claims {length} bytes of {end - start}")
    return data[start:stop], stop


def _headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    if data[position] == 0:
        return (), position + 1
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise WireError(f"a record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _blob(data, position, end)
        if key is None:
            raise WireError("a header has no key")
        value, position = _blob(data, position, end)
        headers.append((key, value))
    return tuple(headers), position


def _bad(header: BatchHeader, position: int, reason: str) -> WireError:
    return WireError(f"batch at offset {header.base_offset}: {reason} (record bytes, {position} from their start)")


def record_rest(key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """A record's bytes after its deltas."""
    parts = [_sized(key), _sized(value), varint(len(headers))]
    for name, content in headers:
        parts += [_sized(name), _sized(content)]
    return b"".join(parts)


def _sized(content: bytes | None) -> bytes:
    return b"\1" if content is None else varint(len(content)) + content


def encode_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch with a right CRC. Offsets come from the records; `attributes` are the bits beside the codec's.

    `base_offset` and `last_offset` widen the batch beyond its records, as compaction leaves it; a batch without any
    needs both.
    """
    content = list(records)
    if base_offset is None:
        base_offset = content[0].offset
    if last_offset is None:
        last_offset = content[-1].offset
    base_timestamp = content[0].timestamp if content else -1
    out = []
    for record in content:
        deltas = varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
        rest = record_rest(record.key, record.value, record.headers)
        out += [varint(1 + len(deltas) + len(rest)), b"\0", deltas, rest]
    body = compress(codec, b"".join(out)) if out else b""
    header = BatchHeader(
        base_offset=base_offset,
        length=BODY_IN_LENGTH + len(body),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in content), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(content),
    )
    return head_bytes(seal(header, body)) + body
