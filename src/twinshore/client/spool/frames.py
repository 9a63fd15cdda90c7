"""What a segment of a spool is made of: a header, and records, each in a frame with its length and checksum. Pure.

A frame also says where its batch began: what was written to disk together, and synced before anything was written
behind it. So a frame that can be read proves of everything before its batch that it was on disk once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from twinshore.fleet import NotYetError

VERSION = 1
SEGMENT_MAGIC = b"TWSPOOL\n"
FRAME_MAGIC = b"\xf5SPR"
_HEADER = struct.Struct(">8sHHIQQ")  # magic, version, nothing, salt, sequence, first number; its checksum follows
_CRC = struct.Struct(">I")
_PREFIX = struct.Struct(">4sIQI")  # magic, length of the whole frame, batch, checksum of both and of what follows
_COUNTED = struct.Struct(">IQ")
_BODY = struct.Struct(">QqqiHiiI")  # number, made, timestamp, partition, lengths of topic, key, value; headers
_HEAD = struct.Struct(">Hi")  # of a record's header: lengths of its name and value
HEADER_BYTES = _HEADER.size + _CRC.size
PREFIX_BYTES = _PREFIX.size
_ABSENT = -1
TOPIC_BYTES_MAX = HEADER_NAME_BYTES_MAX = 0xFFFF

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """`salt` is in every checksum of the segment, so that a frame in somebody's value is not taken for one of ours.
    `first_number`: no record in it has a lower one, but for those that come late."""

    sequence: int
    first_number: int
    salt: int


class SpoolRecord(NamedTuple):
    """A call that was kept back. `number`: the how-manieth of the spool it is; `made_ms`: when it was kept."""

    number: int
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers
    made_ms: int


class Framed(NamedTuple):
    """A record where it lies in its segment. `batch`: all before there was on disk when this was written."""

    record: SpoolRecord
    at: int
    size: int
    batch: int


def header_bytes(header: SegmentHeader) -> bytes:
    text = _HEADER.pack(SEGMENT_MAGIC, VERSION, 0, header.salt, header.sequence, header.first_number)
    return text + _CRC.pack(crc32c(text))


def read_header(text: bytes) -> SegmentHeader | None:
    """None where it cannot be read; NotYetError where it is of a later version."""
    if len(text) < HEADER_BYTES or crc32c(text[: _HEADER.size]) != _CRC.unpack_from(text, _HEADER.size)[0]:
        return None
    magic, version, _, salt, sequence, first_number = _HEADER.unpack_from(text)
    if magic != SEGMENT_MAGIC:
        return None
    if version != VERSION:
        raise NotYetError(f"the spool is of version {version}, and this is version {VERSION}", hint="update the client")
    return SegmentHeader(sequence, first_number, salt)


def body_bytes(record: SpoolRecord) -> bytes:
    """All of its frame but what depends on where it lies. ValueError where something of it is too long."""
    topic = record.topic.encode()
    parts = [topic, record.key or b"", record.value or b""]
    try:
        body = _BODY.pack(
            record.number,
            record.made_ms,
            record.timestamp,
            record.partition,
            len(topic),
            _length(record.key),
            _length(record.value),
            len(record.headers),
        )
        for name, value in record.headers:
            encoded = name.encode()
            parts += [_HEAD.pack(len(encoded), _length(value)), encoded, value or b""]
    except struct.error as error:
        raise ValueError(f"a record for topic {record.topic} cannot be kept: {error}") from error
    return b"".join([body, *parts])


def frame_bytes(body: bytes, batch: int, salt: int) -> bytes:
    length = PREFIX_BYTES + len(body)
    return _PREFIX.pack(FRAME_MAGIC, length, batch, _checksum(length, batch, body, salt)) + body


def frame_length(prefix: bytes) -> int | None:
    """How long the frame is that begins so; None where none does."""
    if len(prefix) < _PREFIX.size:
        return None
    magic, length, _, _ = _PREFIX.unpack_from(prefix)
    return length if magic == FRAME_MAGIC and length >= _PREFIX.size + _BODY.size else None


def read_frame(text: bytes, at: int, salt: int) -> Framed | None:
    """The frame that these bytes are, which lie there in a segment; None where its checksum is another one."""
    if frame_length(text) != len(text):
        return None
    whole = text[_PREFIX.size :]
    _, length, batch, checksum = _PREFIX.unpack_from(text)
    if checksum != _checksum(length, batch, whole, salt):
        return None
    number, made_ms, timestamp, partition, topic_bytes, key_bytes, value_bytes, count = _BODY.unpack_from(whole)
    place = _BODY.size + topic_bytes
    topic = whole[_BODY.size : place].decode()
    key, place = _cut(whole, place, key_bytes)
    value, place = _cut(whole, place, value_bytes)
    headers = []
    for _ in range(count):
        name_bytes, head_bytes = _HEAD.unpack_from(whole, place)
        place += _HEAD.size
        name, place = whole[place : place + name_bytes].decode(), place + name_bytes
        head, place = _cut(whole, place, head_bytes)
        headers.append((name, head))
    record = SpoolRecord(number, topic, value, key, partition, timestamp, tuple(headers), made_ms)
    return Framed(record, at, len(text), batch)


def given_headers(given: Any) -> Headers:
    """As confluent-kafka takes them: a dict, or pairs. TypeError or ValueError where they are none that a record can
    have."""
    if not given:
        return ()
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given
    found = []
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | str | None):
            raise TypeError("a header is a name and a value that is bytes, str or None")
        if len(name.encode()) > HEADER_NAME_BYTES_MAX:
            raise ValueError(f"the name of a header has {HEADER_NAME_BYTES_MAX:,} bytes at most")
        found.append((name, value.encode() if isinstance(value, str) else value))
    return tuple(found)


def _checksum(length: int, batch: int, whole: bytes, salt: int) -> int:
    return crc32c(whole, crc32c(_COUNTED.pack(length, batch), salt))


def _length(value: bytes | None) -> int:
    return _ABSENT if value is None else len(value)


def _cut(whole: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    return (None, at) if length == _ABSENT else (whole[at : at + length], at + length)
