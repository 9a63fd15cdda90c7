"""Record batches, format v2: the 61-byte header read, checked, and written anew for the target.

Everything here works on views of the buffer a fetch was received into; no record is decoded and no body copied.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from twinshore.fleet.errors import WireError
from twinshore.wire.crc import carry
from twinshore.wire.primitives import Buffer

HEADER_BYTES = 61
PREFIX_BYTES = 12  # base offset and length: not counted by the header's own length
CRC_START = 21  # the CRC covers everything from the attributes on
BODY_IN_LENGTH = HEADER_BYTES - PREFIX_BYTES
MESSAGE_BYTES_DEFAULT = 1_048_588  # what brokers take as one batch of a topic that says nothing of it

CODEC_MASK = 0x07
TIMESTAMP_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
KEPT_ATTRIBUTES = CODEC_MASK | TIMESTAMP_APPEND

SEQUENCE_SPAN = 1 << 31

HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
_I64 = struct.Struct(">q")
_CRC_AT, _DELTA_AT, _SEQUENCE_AT = 17, 23, 53
_BEHIND_ID = 10  # bytes of a header that stand behind the producer id


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name for it, tuple's own is not needed

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def next_batch(view: memoryview, position: int, next_offset: int) -> tuple[memoryview, BatchHeader] | None:
    """The batch at `position`, at `next_offset` or later; None when it is incomplete: fetches end so."""
    size = len(view)
    if position + HEADER_BYTES > size:
        if position + 17 <= size and view[position + 16] != 2:
            raise _old_format(view[position + 16], int.from_bytes(view[position : position + 8], "big"), position)
        return None
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(view, position))
    base_offset, length, _, magic, _, _, last_delta, _, _, _, _, _, count = header
    if magic != 2 or length < BODY_IN_LENGTH or base_offset < next_offset or not 0 <= count <= last_delta + 1 > 0:
        raise _malformed(header, next_offset, position)
    end = position + PREFIX_BYTES + length
    return None if end > size else (view[position:end], header)


def split_batches(view: memoryview) -> list[tuple[memoryview, BatchHeader]]:
    """The complete batches in `view`, in order. An incomplete last one is left out."""
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
    return WireError(
        f"batch at offset {base} claims {header.count} records in {header.last_offset_delta + 1} offsets",
        offset=position,
    )


def _old_format(magic: int, base_offset: int, position: int) -> WireError:
    return WireError(
        f"batch at offset {base_offset} has message format v{magic}, not v2",
        offset=position,
        hint="only format v2 (Kafka 0.11 and later) crosses; rewrite the topic with a current producer",
    )


def check_crc(view: Buffer, header: BatchHeader) -> None:
    """Raises WireError when the batch's bytes are not those its CRC was made from."""
    actual = crc32c(view[CRC_START:])
    if actual != header.crc:
        base = header.base_offset
        raise WireError(f"corrupt batch at offset {base}: its CRC says {header.crc:08x}, its bytes say {actual:08x}")


def restamp(header: BatchHeader, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
    """The batch's header as the target is to receive it, base offset 0; the body stays as it is.

    Codec and timestamp type are kept; the transactional, control and delete-horizon bits are cleared. The body is not
    read: the new CRC is right exactly when the old one was, so damage is neither found here nor hidden.
    """
    _, length, _, _, old_crc, attributes, last_delta, base_time, max_time, old_id, old_epoch, old_sequence, count = (
        header
    )
    old = _REST.pack(attributes, last_delta, base_time, max_time, old_id, old_epoch, old_sequence, count)
    attributes &= KEPT_ATTRIBUTES
    new = _REST.pack(attributes, last_delta, base_time, max_time, producer_id, producer_epoch, sequence, count)
    crc = old_crc ^ carry(crc32c(old) ^ crc32c(new), length - BODY_IN_LENGTH)
    return _HEAD.pack(0, length, -1, 2, crc) + new


def compared_by(head: bytes) -> tuple[bytes, bytes]:
    """What a broker tells two batches of one producer apart by, their first and last sequence, and by what they are
    told apart for certain, the CRC."""
    return head[_SEQUENCE_AT : _SEQUENCE_AT + 4] + head[_DELTA_AT : _DELTA_AT + 4], head[_CRC_AT:CRC_START]


def may_follow(compared: bytes, before: bytes) -> bool:
    """Whether a broker takes the one behind the other, by their sequences as `compared_by` gives them."""
    first, delta = (int.from_bytes(before[at : at + 4], "big") for at in (0, 4))
    return next_sequence(first, delta + 1) == int.from_bytes(compared[:4], "big")


def with_producer_id(header: BatchHeader, producer_id: int) -> bytes:
    """The batch's header under another producer id, all else as it was; the body is not read."""
    behind = header.length - BODY_IN_LENGTH + _BEHIND_ID
    difference = crc32c(_I64.pack(header.producer_id)) ^ crc32c(_I64.pack(producer_id))
    return head_bytes(header._replace(producer_id=producer_id, crc=header.crc ^ carry(difference, behind)))


def seal(header: BatchHeader, body: Buffer) -> BatchHeader:
    """`header` with the length and CRC that fit `body`."""
    return _with(header, len(body), crc32c(body, _head_crc(header)))


def seal_known(header: BatchHeader, size: int, body_crc: int) -> BatchHeader:
    """As `seal`, for a body of that size whose own CRC is known: it is not read again."""
    return _with(header, size, carry(_head_crc(header), size) ^ body_crc)


def _head_crc(header: BatchHeader) -> int:
    try:
        return crc32c(_REST.pack(*header[5:]))
    except struct.error as error:
        raise WireError(f"batch at offset {header.base_offset} would need a header out of range: {error}") from error


def _with(header: BatchHeader, size: int, crc: int) -> BatchHeader:
    return header._replace(length=BODY_IN_LENGTH + size, magic=2, crc=crc)


def head_bytes(header: BatchHeader) -> bytes:
    return HEADER.pack(*header)


def end_at(records: memoryview, place: int) -> int:
    """Behind which byte the batch ends that begins at this one, by what it says itself: none of it is looked at."""
    return place + PREFIX_BYTES + int.from_bytes(records[place + _I64.size : place + PREFIX_BYTES], "big")


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records later; after 2^31 - 1 comes 0, as brokers count."""
    return (sequence + count) % SEQUENCE_SPAN


def sequence_of(anchor_offset: int, anchor_sequence: int, offset: int) -> int:
    """The sequence of `offset` when `anchor_offset` has `anchor_sequence` and all between are records."""
    return (anchor_sequence + offset - anchor_offset) % SEQUENCE_SPAN
