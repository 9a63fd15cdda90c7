"""The spool's files: segments of framed records, and marks of what is done.

A segment has a header, then records in frames with length and checksum. Each frame names its batch: records written and
synced together before anything later. So a readable frame proves that everything before its batch was on disk.

For each topic marks give a number below which all records are done, except those listed. They are one line: checksum
and JSON. With unreadable marks everything on disk is sent again. `next_number` exceeds each number ever given, so no
mark covers a later record.

A topic index holds what is not done, in send order. Most records are in number order: these are **ahead**, and only
counted. Records that came back or came late are listed, at most as many as librdkafka holds.

Unreadable bytes are **torn**, **damaged** or **unfinished**. Torn: a write never ended; no readable record follows, and
no caller was told of success. Damaged: a later record proves that the bytes were on disk. Unfinished: part of a batch
is readable, and no later write proves the rest.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from crc32c import crc32c

from twinshore.config.errors import UnsupportedError
from twinshore.config.frozen import CALL_HEADER, SPOOL_FRAME_MAGIC, SPOOL_SEGMENT_MAGIC, SPOOL_VERSION

_HEADER = struct.Struct(">8sHHIQQ")  # magic, version, nothing, salt, sequence, first number; its checksum follows
_CRC = struct.Struct(">I")
_PREFIX = struct.Struct(">4sIQI")  # magic, length of the whole frame, batch, checksum of both and of what follows
_COUNTED = struct.Struct(">IQ")
_BODY = struct.Struct(">QqqiHiiI")  # number, made, timestamp, partition, lengths of topic, key, value; headers
_HEAD = struct.Struct(">Hi")  # a record header: lengths of name and value
HEADER_BYTES = _HEADER.size + _CRC.size
PREFIX_BYTES = _PREFIX.size
_ABSENT = -1
TOPIC_BYTES_MAX = HEADER_NAME_BYTES_MAX = 0xFFFF

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """`salt` is part of each checksum, so that a frame inside a record's value is never taken for one of the segment.
    `first_number`: the lowest number, late records excepted.
    """

    sequence: int
    first_number: int
    salt: int


class SpoolRecord(NamedTuple):
    """A kept call. `number`: sequence number in the spool. `made_ms`: when the call was kept."""

    number: int
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: Headers
    made_ms: int


class FramedRecord(NamedTuple):
    """A record and its bytes in a segment. `batch`: everything before this byte was on disk when the record was
    written.
    """

    record: SpoolRecord
    at: int
    size: int
    batch: int


def header_bytes(header: SegmentHeader) -> bytes:
    text = _HEADER.pack(SPOOL_SEGMENT_MAGIC, SPOOL_VERSION, 0, header.salt, header.sequence, header.first_number)
    return text + _CRC.pack(crc32c(text))


def read_header(text: bytes) -> SegmentHeader | None:
    """None where unreadable; UnsupportedError for a later version."""
    if len(text) < HEADER_BYTES or crc32c(text[: _HEADER.size]) != _CRC.unpack_from(text, _HEADER.size)[0]:
        return None
    magic, version, _, salt, sequence, first_number = _HEADER.unpack_from(text)
    if magic != SPOOL_SEGMENT_MAGIC:
        return None
    if version != SPOOL_VERSION:
        raise UnsupportedError("client.spool-of-another-version", version=version, known=SPOOL_VERSION)
    return SegmentHeader(sequence, first_number, salt)


def body_bytes(record: SpoolRecord) -> bytes:
    """Returns the frame without what depends on its position. ValueError where a field is too long."""
    topic = record.topic.encode()
    parts = [topic, record.key or b"", record.value or b""]
    lengths = len(topic), _length(record.key), _length(record.value), len(record.headers)
    try:
        body = _BODY.pack(record.number, record.made_ms, record.timestamp, record.partition, *lengths)
        for name, value in record.headers:
            encoded = name.encode()
            parts += [_HEAD.pack(len(encoded), _length(value)), encoded, value or b""]
    except struct.error as error:
        raise ValueError(f"a record for topic {record.topic} cannot be kept: {error}") from error
    return b"".join([body, *parts])


def frame_bytes(body: bytes, batch: int, salt: int) -> bytes:
    length = PREFIX_BYTES + len(body)
    return _PREFIX.pack(SPOOL_FRAME_MAGIC, length, batch, _checksum(length, batch, body, salt)) + body


def frame_length(prefix: bytes) -> int | None:
    """Returns the length of the frame with this prefix, or None."""
    if len(prefix) < _PREFIX.size:
        return None
    magic, length, _, _ = _PREFIX.unpack_from(prefix)
    return length if magic == SPOOL_FRAME_MAGIC and length >= _PREFIX.size + _BODY.size else None


def read_frame(text: bytes, at: int, salt: int) -> FramedRecord | None:
    """Returns the frame in these bytes, which begin at `at`; None where the checksum differs."""
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
    return FramedRecord(record, at, len(text), batch)


def normalize_headers(given: Any) -> Headers:
    """Accepts headers as confluent-kafka does, a dict or pairs. TypeError or ValueError for others."""
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


@dataclass(frozen=True, slots=True)
class TopicMark:
    """Records with numbers below `below` are done, except those in `open`."""

    below: int = 0
    open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SpoolMarks:
    """`end`: segment and byte where the spool ended; later records are not covered, since a late one has a low number.
    `gaps`: unfinished bytes before `end`, by segment and byte, found when nothing followed them.
    """

    next_number: int = 0
    end: tuple[int, int] = (0, 0)
    topics: Mapping[str, TopicMark] = field(default_factory=dict)
    gaps: frozenset[tuple[int, int]] = frozenset()

    def text(self) -> bytes:
        topics = {name: [mark.below, list(mark.open)] for name, mark in sorted(self.topics.items())}
        told = {"version": SPOOL_VERSION, "next": self.next_number, "end": self.end, "topics": topics}
        if self.gaps:
            told["gaps"] = sorted(self.gaps)
        body = json.dumps(told).encode()
        return b"%08x %s\n" % (crc32c(body), body)


def read_marks(text: bytes) -> SpoolMarks | None:
    """None where unreadable; UnsupportedError for a later version."""
    checksum, _, body = text.removesuffix(b"\n").partition(b" ")
    if not body or checksum != b"%08x" % crc32c(body):
        return None
    found = json.loads(body)
    if found["version"] != SPOOL_VERSION:
        raise UnsupportedError("client.spool-of-another-version", version=found["version"], known=SPOOL_VERSION)
    topics = {name: TopicMark(below, tuple(still)) for name, (below, still) in found["topics"].items()}
    segment, at = found["end"]
    gaps = frozenset((sequence, begin) for sequence, begin in found.get("gaps", ()))
    return SpoolMarks(found["next"], (segment, at), topics, gaps)


SEND_NUMBER_DIGITS_MAX = 20


def find_send_id(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """By which a call is known; None where it has none."""
    return next((value for name, value in reversed(headers) if name == CALL_HEADER and value is not None), None)


def find_own_send_id(headers: Sequence[tuple[str, bytes | None]], number: int) -> bytes | None:
    """Returns the id of the call with this number. None where the record has another call's id, as when a program
    forwards headers.
    """
    mark = find_send_id(headers)
    return mark if mark is not None and _parted(mark)[1] == number else None


def _parted(mark: bytes) -> tuple[bytes, int]:
    """Split an id into sender and number, -1 in a foreign id."""
    who, _, number = mark.rpartition(b"-")
    return who, int(number) if number.isdigit() and len(number) <= SEND_NUMBER_DIGITS_MAX else -1


class EarlierSends:
    """One topic's calls with an id that an earlier process left and may have sent. `below`: most calls with lower
    numbers are done. `since_ms`: their earliest time; None without calls.
    """

    __slots__ = ("_below", "_first", "_last", "_named", "_who", "since_ms")

    def __init__(self, below: int) -> None:
        self._below = below
        self._named: set[int] = set()  # calls with numbers below `below`
        self._first = self._last = -1  # range of the others
        self._who: set[bytes] = set()
        self.since_ms: int | None = None

    def add(self, record: SpoolRecord) -> None:
        mark, number = find_own_send_id(record.headers, record.number), record.number
        if mark is None:
            return
        self._who.add(_parted(mark)[0])
        begun_ms = min(record.timestamp, record.made_ms)
        self.since_ms = begun_ms if self.since_ms is None else min(self.since_ms, begun_ms)
        if number < self._below:
            self._named.add(number)
        else:
            self._first = number if self._first < 0 else min(self._first, number)
            self._last = max(self._last, number)

    def __contains__(self, mark: bytes) -> bool:
        """Whether this is such a call, or between two: there may be millions, so only the range is stored."""
        who, number = _parted(mark)
        return who in self._who and (number in self._named or 0 <= self._first <= number <= self._last)


OPEN_NUMBERS_MAX = 10_000  # numbers in a mark; with more open it covers less, and a crash repeats more


class SpoolPosition(NamedTuple):
    """The byte range of a record."""

    segment: int
    at: int
    size: int


class TopicIndex:
    """One topic's records that are not done. `mark`: what an earlier process left as done."""

    __slots__ = ("_flying", "_highest", "_open", "_reached", "ahead", "back", "begin", "below", "pending", "refused")

    def __init__(self, mark: TopicMark | None = None) -> None:
        mark = mark or TopicMark()
        self.below = mark.below  # above each number ever sent
        self._open = frozenset(mark.open)
        self._highest = self._reached = -1
        self.ahead = 0
        self.begin: SpoolPosition | None = None  # before it nothing is ahead
        self.pending = 0  # not on disk yet
        self.back: list[tuple[int, SpoolPosition]] = []
        self._flying: dict[int, SpoolPosition] = {}
        self.refused: dict[int, SpoolPosition] = {}

    @property
    def unsent(self) -> int:
        return self.ahead + self.pending + len(self.back)

    @property
    def left(self) -> int:
        """The number of records on disk that are not done."""
        return self.ahead + len(self.back) + len(self._flying) + len(self.refused)

    def add_found(self, number: int, place: SpoolPosition, *, covered: bool) -> bool:
        """Add an earlier process's record. Returns whether to send it. `covered`: the mark is newer than the record."""
        if covered and number < self.below and number not in self._open:
            self._highest = max(self._highest, number)
            return False
        self.added(number, place)
        return True

    def added(self, number: int, place: SpoolPosition) -> None:
        """Add a record that is now on disk."""
        if number < self._highest or number < self.below:
            heapq.heappush(self.back, (number, place))
        else:
            self.ahead += 1
            self.begin = self.begin or place
        self._highest = max(self._highest, number)

    def meet(self, number: int) -> bool:
        """Returns whether a record met by the reader is ahead, not done or listed: a late record has a lower number
        than one before it.
        """
        if number < self.below or number <= self._reached:
            return False
        self._reached = number
        return True

    def handed_out(self, number: int, place: SpoolPosition, *, came_back: bool) -> None:
        """`came_back`: the record was listed, though a lower number may have been added since."""
        if came_back:
            self.back.remove((number, place))
            heapq.heapify(self.back)
        else:
            self.ahead -= 1
        self._flying[number] = place
        self.below = max(self.below, number + 1)

    def given_back(self, number: int) -> None:
        """List a record again that was not acknowledged. It goes before higher numbers."""
        heapq.heappush(self.back, (number, self._flying.pop(number)))

    def done(self, number: int) -> SpoolPosition | None:
        return self._flying.pop(number, None)

    def refuse(self, number: int) -> None:
        """Keep a record that a broker refused, without a delivery callback, for the next start."""
        self.refused[number] = self._flying.pop(number)

    def mark(self) -> TopicMark:
        named = [*(number for number, _ in self.back), *self._flying, *self.refused]
        still = sorted(number for number in named if number < self.below)
        if len(still) > OPEN_NUMBERS_MAX:
            return TopicMark(still[OPEN_NUMBERS_MAX], tuple(still[:OPEN_NUMBERS_MAX]))
        return TopicMark(self.below, tuple(still))


BLOCK_BYTES = 256 << 10
ReadBytes = Callable[[int, int], bytes]


class SegmentGapKind(StrEnum):
    TORN = "torn"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class SegmentGap:
    """Bytes of a segment that hold no record; reading continues at `until`."""

    at: int
    until: int
    kind: SegmentGapKind


class BlockReader:
    """Reads bytes up to `end`, a block at a time."""

    def __init__(self, read: ReadBytes, end: int) -> None:
        self._read, self.end = read, end
        self._begin, self._block = 0, b""

    def bytes_at(self, at: int, size: int) -> bytes:
        size = max(0, min(size, self.end - at))
        if at < self._begin or at + size > self._begin + len(self._block):
            self._begin, self._block = at, self._read(at, min(max(size, BLOCK_BYTES), self.end - at))
        begin = at - self._begin
        return self._block[begin : begin + size]

    def frame_at(self, at: int, salt: int) -> FramedRecord | None:
        length = frame_length(self.bytes_at(at, PREFIX_BYTES))
        if length is None or at + length > self.end:
            return None
        found = read_frame(self.bytes_at(at, length), at, salt)
        return found if found is None or found.batch <= at else None


def read_framed_records(blocks: BlockReader, salt: int, begin: int) -> Iterator[FramedRecord]:
    """Yields records up to the first unreadable bytes."""
    at = begin
    while at < blocks.end and (found := blocks.frame_at(at, salt)) is not None:
        yield found
        at += found.size


def scan_segment(read: ReadBytes, header: SegmentHeader, end: int) -> Iterator[FramedRecord | SegmentGap]:
    """Yields readable records and gaps, in order."""
    blocks, at = BlockReader(read, end), HEADER_BYTES
    while at < end:
        found = blocks.frame_at(at, header.salt)
        if found is not None:
            yield found
            at += found.size
            continue
        gap = gap_at(blocks, header.salt, at)
        yield gap
        at = gap.until


def gap_at(blocks: BlockReader, salt: int, at: int) -> SegmentGap:
    """Classify the unreadable bytes at `at`."""
    begin = _next(blocks, salt, at + 1)
    if begin is None:
        return SegmentGap(at, blocks.end, SegmentGapKind.TORN)
    proven = False
    behind: int | None = begin
    while not proven and behind is not None:
        last = behind
        for one in read_framed_records(blocks, salt, behind):
            last = one.at + one.size
            if one.batch > at:
                proven = True
                break
        behind = _next(blocks, salt, last) if last < blocks.end else None
    return SegmentGap(at, begin, SegmentGapKind.DAMAGED if proven else SegmentGapKind.UNFINISHED)


def _next(blocks: BlockReader, salt: int, at: int) -> int | None:
    """Returns where the next readable record begins."""
    while at < blocks.end:
        block = blocks.bytes_at(at, BLOCK_BYTES)
        place = block.find(SPOOL_FRAME_MAGIC)
        while place >= 0:
            if blocks.frame_at(at + place, salt) is not None:
                return at + place
            place = block.find(SPOOL_FRAME_MAGIC, place + 1)
        if at + len(block) >= blocks.end:
            return None
        at += max(1, len(block) - len(SPOOL_FRAME_MAGIC) + 1)
    return None
