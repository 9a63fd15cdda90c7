"""Record batches, format v2: codecs, headers, CRCs and records.

Header functions work on views of the received buffer: no record is decoded, no body copied. A CRC is linear: when A
becomes B before `length` unchanged bytes, it changes by crc(A) ^ crc(B), shifted over `length` zero bytes. So a header
is replaced without reading the body, and the target's broker still refuses a body damaged in transit.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from twinshore.config.errors import TooLargeError, WireError
from twinshore.kafka.protocol.primitives import Buffer, LongVarintError, read_varint, varint

DECOMPRESSED_BYTES_MAX = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32 << 10
# Kafka's Java clients read only LZ4 frames whose blocks are independent, which cramjam does not write; so the frame is
# written here: magic, flags (version 1, independent blocks), 64 KB blocks, and the checksum of those two bytes.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_END = b"\0\0\0\0"
_FIRST_GUESS_BYTES = 16 << 10
# Distinguishes a full output buffer from malformed input: the message of Rust's standard library.
_NO_ROOM = "failed to write whole buffer"


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    try:
        return Codec(attributes & 0x07)
    except ValueError as error:
        raise WireError(f"batch attributes {attributes:#x} name the unknown codec {attributes & 0x07}") from error


def compress(codec: Codec, data: Buffer) -> bytes:
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESS[codec](data)


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """WireError for malformed input, TooLargeError for output beyond `limit_bytes`. Never produces more."""
    if codec is Codec.NONE or not data:
        if len(data) > limit_bytes:
            raise _too_large(codec, limit_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _snappy(data, limit_bytes)
    into = _DECOMPRESS_INTO[codec]
    guess = max(_FIRST_GUESS_BYTES, 8 * len(data))
    while True:
        size = min(guess, limit_bytes)
        out = bytearray(size)
        try:
            made = into(data, out)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise WireError(f"malformed {codec.name.lower()} data: {error}") from error
            if size == limit_bytes:
                raise _too_large(codec, limit_bytes) from error
            # All attempts together write at most 4/3 of the last one.
            guess *= 4
            continue
        del out[made:]
        return bytes(out)


def decompress_into(
    codec: Codec, data: Buffer, room: bytearray, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[bytearray, memoryview]:
    """Like `decompress`, into `room`. Returns the buffer for the next call, larger where `room` was too small, and the
    output. Fresh buffers cost several times the decompression.
    """
    into = _DECOMPRESS_INTO.get(codec)
    if into is not None and data:
        try:
            made = into(data, room)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise WireError(f"malformed {codec.name.lower()} data: {error}") from error
        else:
            if made > limit_bytes:
                raise _too_large(codec, limit_bytes)
            return room, memoryview(room)[:made]
    plain = decompress(codec, data, limit_bytes)
    larger = bytearray(min(limit_bytes, 2 * len(plain))) if len(plain) > len(room) else room
    return larger, memoryview(plain)


def _snappy(data: Buffer, limit_bytes: int) -> bytes:
    """Decompress snappy in xerial framing (Java clients, brokers), or bare (librdkafka)."""
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _snappy_block(view, limit_bytes, limit_bytes)
    made = []
    left = limit_bytes
    position, end = 0, len(view)
    while position < end:
        if view[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= end - position:
            raise WireError(f"a snappy block claims {size} bytes of {max(end - position, 0)}", offset=position)
        block = _snappy_block(view[position : position + size], left, limit_bytes)
        made.append(block)
        left -= len(block)
        position += size
    return b"".join(made)


def _snappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise WireError(f"malformed snappy data: {error}") from error


def _snappy_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += [len(block).to_bytes(4, "big"), block]
    return b"".join(out)


def _lz4_frame(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += [len(block).to_bytes(4, "little"), block]
        else:
            out += [(len(plain) | 1 << 31).to_bytes(4, "little"), bytes(plain)]
    out.append(_LZ4_END)
    return b"".join(out)


def _too_large(codec: Codec, limit_bytes: int) -> TooLargeError:
    sentence = f"its {codec.name.lower()} data holds more than {limit_bytes} bytes, too many to be unpacked here"
    return TooLargeError(sentence, hint="its bytes may be sound: they were not read")


_COMPRESS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    Codec.SNAPPY: _snappy_xerial,
    Codec.LZ4: _lz4_frame,
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
_DECOMPRESS_INTO: dict[Codec, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

_ONES = 0xFFFFFFFF
_STEP_BITS = 12  # below this many bytes the hardware's run over zeros is quicker than tables
_ZEROS = memoryview(bytes(1 << _STEP_BITS))


def shift_crc(difference: int, length: int) -> int:
    """Returns the CRC difference after `length` unchanged bytes."""
    carried = crc32c(_ZEROS[: length & 0xFFF], difference ^ _ONES) ^ _ONES
    steps = length >> _STEP_BITS
    power = 0
    while steps:
        if steps & 1:
            first, second, third, fourth = _power(power)
            low, high = first[carried & 255] ^ second[carried >> 8 & 255], third[carried >> 16 & 255]
            carried = low ^ high ^ fourth[carried >> 24]
        steps >>= 1
        power += 1
    return carried


def crc_shift_tables(length: int) -> tuple[array[int], ...]:
    """Returns tables for a shift over `length` unchanged bytes, one for each CRC byte, lowest first."""
    return _tables([shift_crc(1 << bit, length) for bit in range(32)])


@cache
def _power(power: int) -> tuple[array[int], ...]:
    """Returns tables for a shift over 2^(12 + power) bytes."""
    if power == 0:
        return _tables([crc32c(_ZEROS, 1 << bit ^ _ONES) ^ _ONES for bit in range(32)])
    half = 1 << _STEP_BITS + power - 1
    return _tables([shift_crc(shift_crc(1 << bit, half), half) for bit in range(32)])


def _tables(columns: list[int]) -> tuple[array[int], ...]:
    """Returns tables for each byte, from a linear map's images of 32 single bits."""
    tables = []
    for byte in range(4):
        table = array("I", bytes(4 * 256))
        for value in range(1, 256):
            low = value & -value
            table[value] = table[value ^ low] ^ columns[8 * byte + low.bit_length() - 1]
        tables.append(table)
    return tuple(tables)


HEADER_BYTES = 61
PREFIX_BYTES = 12  # base offset and length: not counted by the header's own length
CRC_START = 21  # the CRC covers everything from the attributes on
BODY_IN_LENGTH = HEADER_BYTES - PREFIX_BYTES
MESSAGE_BYTES_DEFAULT = 1_048_588  # brokers' default limit for a batch

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40
KEPT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME_FLAG

SEQUENCE_SPAN = 1 << 31

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
_I64 = struct.Struct(">q")
_CRC_AT, _DELTA_AT, _SEQUENCE_AT = 17, 23, 53
_BEHIND_ID = 10  # bytes of a header after the producer id


class BatchHeader(NamedTuple):
    """By default an empty batch without a producer; `seal` sets length and CRC."""

    base_offset: int = 0
    length: int = 0
    leader_epoch: int = -1
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int = 0  # type: ignore[assignment]  # Kafka's name for it, tuple's own is not needed

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def next_batch(view: memoryview, position: int, next_offset: int) -> tuple[memoryview, BatchHeader] | None:
    """Returns the batch at `position`; None if incomplete, as at a fetch's end. WireError below `next_offset`."""
    size = len(view)
    if position + HEADER_BYTES > size:
        if position + 17 <= size and view[position + 16] != 2:
            raise _old_format(view[position + 16], int.from_bytes(view[position : position + 8], "big"), position)
        return None
    header = tuple.__new__(BatchHeader, HEADER_STRUCT.unpack_from(view, position))
    base_offset, length, _, magic, _, _, last_delta, _, _, _, _, _, count = header
    if magic != 2 or length < BODY_IN_LENGTH or base_offset < next_offset or not 0 <= count <= last_delta + 1 > 0:
        raise _malformed(header, next_offset, position)
    end = position + PREFIX_BYTES + length
    return None if end > size else (view[position:end], header)


def split_batches(view: memoryview) -> list[tuple[memoryview, BatchHeader]]:
    """Returns the complete batches, in order."""
    found: list[tuple[memoryview, BatchHeader]] = []
    position = next_offset = 0
    while (batch := next_batch(view, position, next_offset)) is not None:
        found.append(batch)
        header = batch[1]
        position += PREFIX_BYTES + header[1]
        next_offset = header[0] + header[6] + 1
    return found


def _malformed(header: BatchHeader, next_offset: int, position: int) -> WireError:
    base = header.base_offset
    if header.magic != 2:
        return _old_format(header.magic, base, position)
    if header.length < BODY_IN_LENGTH:
        return WireError(f"batch at offset {base} claims {header.length} bytes, fewer than a header", offset=position)
    if base < 0:
        return WireError(f"batch claims the negative offset {base}", offset=position)
    if base < next_offset:
        return WireError(f"batch at offset {base} follows one that ends at {next_offset - 1}", offset=position)
    offsets = header.last_offset_delta + 1
    return WireError(f"batch at offset {base} claims {header.count} records in {offsets} offsets", offset=position)


def _old_format(magic: int, base_offset: int, position: int) -> WireError:
    return WireError(
        f"batch at offset {base_offset} has message format v{magic}, not v2",
        offset=position,
        hint="only format v2 (Kafka 0.11 and later) is replicated; rewrite the topic with a current producer",
    )


def check_crc(view: Buffer, header: BatchHeader) -> None:
    """WireError where the CRC does not match."""
    actual = crc32c(view[CRC_START:])
    if actual != header.crc:
        base = header.base_offset
        raise WireError(f"corrupt batch at offset {base}: its CRC says {header.crc:08x}, its bytes say {actual:08x}")


def restamp(header: BatchHeader, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
    """Returns the header for the target, with base offset 0 and a new producer.

    Codec and timestamp type are kept; the transactional, control and delete-horizon bits are cleared. The body is not
    read: the new CRC matches exactly when the old one did.
    """
    _, length, _, _, old_crc, attributes, last_delta, base_time, max_time, _, _, _, count = header
    old = _REST.pack(*header[5:])
    attributes &= KEPT_ATTRIBUTES
    new = _REST.pack(attributes, last_delta, base_time, max_time, producer_id, producer_epoch, sequence, count)
    crc = old_crc ^ shift_crc(crc32c(old) ^ crc32c(new), length - BODY_IN_LENGTH)
    return _HEAD.pack(0, length, -1, 2, crc) + new


def duplicate_check_bytes(head: bytes) -> tuple[bytes, bytes]:
    """Returns the sequences (first, last) by which a broker detects a producer's duplicates, and the CRC, which is
    certain.
    """
    return head[_SEQUENCE_AT : _SEQUENCE_AT + 4] + head[_DELTA_AT : _DELTA_AT + 4], head[_CRC_AT:CRC_START]


def is_next_in_sequence(compared: bytes, before: bytes) -> bool:
    """Whether a broker accepts `compared` after `before`, as from `duplicate_check_bytes`."""
    first, delta = (int.from_bytes(before[at : at + 4], "big") for at in (0, 4))
    return next_sequence(first, delta + 1) == int.from_bytes(compared[:4], "big")


def with_producer_id(header: BatchHeader, producer_id: int) -> bytes:
    """Returns the header with another producer id, without reading the body."""
    behind = header.length - BODY_IN_LENGTH + _BEHIND_ID
    difference = crc32c(_I64.pack(header.producer_id)) ^ crc32c(_I64.pack(producer_id))
    return encode_header(header._replace(producer_id=producer_id, crc=header.crc ^ shift_crc(difference, behind)))


def seal(header: BatchHeader, body: Buffer) -> BatchHeader:
    """Returns `header` with length and CRC for `body`."""
    return _with(header, len(body), crc32c(body, _head_crc(header)))


def seal_known(header: BatchHeader, size: int, body_crc: int) -> BatchHeader:
    """Like `seal`, for an unread body of this size and CRC."""
    return _with(header, size, shift_crc(_head_crc(header), size) ^ body_crc)


def _head_crc(header: BatchHeader) -> int:
    try:
        return crc32c(_REST.pack(*header[5:]))
    except struct.error as error:
        raise WireError(f"batch at offset {header.base_offset} would need a header out of range: {error}") from error


def _with(header: BatchHeader, size: int, crc: int) -> BatchHeader:
    return header._replace(length=BODY_IN_LENGTH + size, magic=2, crc=crc)


def encode_header(header: BatchHeader) -> bytes:
    return HEADER_STRUCT.pack(*header)


def batch_end(records: memoryview, place: int) -> int:
    """Returns the end of the batch at `place`, by the length that the batch claims."""
    return place + PREFIX_BYTES + int.from_bytes(records[place + _I64.size : place + PREFIX_BYTES], "big")


def next_sequence(sequence: int, count: int) -> int:
    """Returns the sequence `count` records later; 0 follows 2^31 - 1, as in brokers."""
    return (sequence + count) % SEQUENCE_SPAN


def sequence_of(base_offset: int, base_sequence: int, offset: int) -> int:
    """Returns the sequence of `offset`, if `base_offset` has `base_sequence` and no offset between is missing."""
    return (base_sequence + offset - base_offset) % SEQUENCE_SPAN


RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths, header count: one byte each

Headers = tuple[tuple[bytes, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordContent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class DatedContent(NamedTuple):
    """A record's content and timestamp; None for LogAppendTime."""

    content: RecordContent
    timestamp_ms: int | None

    def copied_from(self, theirs: DatedContent) -> bool:
        """Whether this may be a copy of `theirs`: copies keep timestamps if the target's broker allows."""
        return self.content == theirs.content and self.timestamp_ms in (None, theirs.timestamp_ms)


class RecordFrame(NamedTuple):
    """A record's position in the batch's plain bytes: `data[start:end]`, from the attributes byte on.

    `rest`: where key, value and headers begin, the same bytes in any batch.
    """

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int


def plain_records(view: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Returns the decompressed records. WireError where `header.count` records cannot fit in them."""
    codec = codec_of(header.attributes)
    try:
        data = decompress(codec, view[HEADER_BYTES:], limit_bytes)
    except WireError as error:
        raise error.within(f"batch at offset {header.base_offset}") from error
    if header.count * RECORD_BYTES_MIN > len(data):
        sentence = f"claims {header.count} records in {len(data)} bytes of records"
        raise WireError(f"batch at offset {header.base_offset} {sentence}")
    return data


def record_frames(data: bytes, header: BatchHeader) -> Iterator[RecordFrame]:
    """Yields frames of records, checked: they fill `data`, and offsets rise within the batch."""
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
            yield new(RecordFrame, (start, rest, end, timestamp_delta, offset_delta))
            last_delta, position = offset_delta, end
    except IndexError as error:
        raise _bad(header, position, "the records end too early") from error
    except LongVarintError as error:
        raise _bad(header, position, error.message) from error
    if position != size:
        raise _bad(header, position, f"{size - position} bytes follow the last record")


def decode_batch(view: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Returns the batch's records as a consumer sees them. The CRC is not checked."""
    return list(iter_records(view, header, limit_bytes=limit_bytes))


def iter_records(view: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Like `decode_batch`, one record at a time."""
    data = plain_records(view, header, limit_bytes)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    for _, rest, end, timestamp_delta, offset_delta in record_frames(data, header):
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


def encode_record_rest(key: bytes | None, value: bytes | None, headers: Headers = ()) -> bytes:
    """Returns a record's bytes after its deltas."""
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
    """Returns a batch with a valid CRC. `attributes`: bits besides the codec.

    `base_offset` and `last_offset` widen the batch, as compaction does; a batch without records needs both.
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
        rest = encode_record_rest(record.key, record.value, record.headers)
        out += [varint(1 + len(deltas) + len(rest)), b"\0", deltas, rest]
    body = compress(codec, b"".join(out)) if out else b""
    header = BatchHeader(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes | codec,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in content), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(content),
    )
    return encode_header(seal(header, body)) + body
