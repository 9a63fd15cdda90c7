"""Produce v3 to v13 for both sides, by topic id in v13, before by name; own requests from v9 on. Older versions have
older record formats. Batches are never joined or copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import HANDWRITTEN_VERSIONS, PRODUCE
from twinshore.kafka.protocol.primitives import (
    I32,
    NO_TAGS,
    PAIR32,
    PAST_END_ERRORS,
    Buffer,
    Encoding,
    Topic,
    compact_string,
    encoding_of,
    parser,
    read_bytes,
    read_pairs,
    read_topics,
    truncated_error,
    uvarint,
)
from twinshore.kafka.protocol.requests import (
    ARRAY_ELEMENTS_MAX,
    Endpoint,
    group_by_topic,
    read_endpoints,
    topic_bytes,
    write_endpoints,
    write_tags,
    write_topics,
)

PRODUCE_KEY = PRODUCE
PRODUCE_VERSION_BY_ID = 13

_OPENING = struct.Struct(">hi")


def encode_produce(
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[int, bytes, Buffer]]]],
    *,
    acks: int = -1,
    timeout_ms: int = 30000,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Returns the body as buffers. `topics`: (name, topic id, [(partition, batch head, batch body)])."""
    lowest, highest = HANDWRITTEN_VERSIONS[PRODUCE]
    if not lowest <= version <= highest:
        raise WireError(f"Produce v{version} is not spoken here, only v{lowest}-{highest}")
    opening = compact_string(transactional_id) + _OPENING.pack(acks, timeout_ms) + uvarint(len(topics) + 1)
    out: list[Buffer] = []
    pending = opening
    for name, topic_id, partitions in topics:
        pending += topic_id if version >= PRODUCE_VERSION_BY_ID else compact_string(name)
        pending += uvarint(len(partitions) + 1)
        for partition, head, body in partitions:
            out.append(pending + I32.pack(partition) + uvarint(len(head) + len(body) + 1) + head)
            out.append(body)
            pending = NO_TAGS
        pending += NO_TAGS
    out.append(pending + NO_TAGS)
    return out


def response_bytes_min(version: int, partitions: int) -> int:
    """Returns the least size of a response for so many partitions of one topic, with size and header."""
    topic = 18 if version >= PRODUCE_VERSION_BY_ID else 4
    return 15 + topic + (_APPENDED.size + 3) * partitions


PRODUCE_VERSIONS = range(3, 14)

_BEFORE_LOG_START = struct.Struct(">ihqq")
_APPENDED = struct.Struct(">ihqqq")
_LOG_START, _MESSAGES, _LEADERS = 5, 8, 10
_LEADER_TAG = 0
_TAGS = {_LEADER_TAG: PAIR32}


class ProduceRequestPartition(NamedTuple):
    """Records for a partition. `topic`: a name up to v12, a topic id from v13."""

    topic: Topic
    partition: int
    records: memoryview | bytes | None


class ProduceRequest(NamedTuple):
    """With `acks` 0 the client must get no response."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: Sequence[ProduceRequestPartition]


class ProducedPartition(NamedTuple):
    """`topic`: a name up to v12, a topic id from v13. `current_leader`: (node, epoch). `refused`: indexes in the batch
    and reasons of refused records.
    """

    topic: Topic
    partition: int
    error: int
    base_offset: int
    log_append_time: int = -1
    log_start: int = -1
    message: str | None = None
    current_leader: tuple[int, int] | None = None
    refused: Sequence[tuple[int, str | None]] = ()

    @property
    def reason(self) -> str | None:
        """The broker's message, or its reason for the first refused record."""
        return self.message or next((f"record {index}: {why}" for index, why in self.refused), None)


class ProduceResponse(NamedTuple):
    """`throttle_ms`: for how long the broker mutes this connection."""

    appended: Sequence[ProducedPartition]
    throttle_ms: int = 0
    endpoints: Sequence[Endpoint] = ()


@parser("a produce request")
def read_produce_request(view: memoryview, position: int, version: int) -> ProduceRequest:
    """`position`: after the request header."""
    notation = _notation(version)
    transactional_id, position = notation.read_string(view, position)
    acks, timeout_ms = _OPENING.unpack_from(view, position)

    def read(topic: Topic, at: int) -> tuple[ProduceRequestPartition, int]:
        (partition,) = I32.unpack_from(view, at)
        records, at = read_bytes(notation, view, at + I32.size, "records to be produced")
        return ProduceRequestPartition(topic, partition, records), notation.skip_tags(view, at)

    by_id, start = version >= PRODUCE_VERSION_BY_ID, position + _OPENING.size
    batches, position = read_topics(notation, view, start, by_id, read, elements_max=ARRAY_ELEMENTS_MAX)
    notation.skip_tags(view, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, batches)


# Names are short. A longer prefix is not cached.
_KEPT_MAX = 1024


class ProduceRequestReader:
    """Reads one client's requests. Most have one batch, and equal the previous one up to the partition: only the rest
    is parsed.
    """

    __slots__ = ("_before", "_said", "_version")

    def __init__(self) -> None:
        self._version, self._before = -1, b""
        self._said = ProduceRequest(None, 0, 0, ())

    def read(self, view: memoryview, position: int, version: int) -> ProduceRequest:
        """Like `read_produce_request`."""
        begun = position + len(self._before)
        if version == self._version and view[position:begun] == self._before:
            notation, said = _NOTATIONS[version], self._said
            try:
                (partition,) = I32.unpack_from(view, begun)
                size, start = notation.read_size(view, begun + I32.size)
            except PAST_END_ERRORS as error:
                raise truncated_error("a produce request", view) from error
            end, behind = start + size, 3 * notation.no_tags
            if size >= 0 and end + len(behind) == len(view) and view[end:] == behind:
                one = ProduceRequestPartition(said.batches[0].topic, partition, view[start:end])
                return ProduceRequest(said.transactional_id, said.acks, said.timeout_ms, [one])
        return self._read_anew(view, position, version)

    def _read_anew(self, view: memoryview, position: int, version: int) -> ProduceRequest:
        found = read_produce_request(view, position, version)
        self._version, self._before = -1, b""
        if len(found.batches) == 1 and len(before := _before_partition(version, found)) <= _KEPT_MAX:
            self._version, self._before = version, before
            # The batch itself is not cached.
            self._said = found._replace(batches=[found.batches[0]._replace(records=None)])
        return found


def _before_partition(version: int, request: ProduceRequest) -> bytes:
    notation = _notation(version)
    opening = notation.string(request.transactional_id) + _OPENING.pack(request.acks, request.timeout_ms)
    topic = topic_bytes(notation, request.batches[0].topic, version >= PRODUCE_VERSION_BY_ID)
    return opening + notation.counted(1) + topic + notation.counted(1)


def write_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """Returns the body as buffers, records as they are."""
    notation = _notation(version)
    topics = list(group_by_topic(request.batches))
    pending = notation.string(request.transactional_id) + _OPENING.pack(request.acks, request.timeout_ms)
    pending += notation.counted(len(topics))
    out: list[Buffer] = []
    for topic, batches in topics:
        pending += topic_bytes(notation, topic, version >= PRODUCE_VERSION_BY_ID) + notation.counted(len(batches))
        for _, partition, records in batches:
            pending += I32.pack(partition) + notation.sized(-1 if records is None else len(records))
            if records:
                out += [pending, records]
                pending = b""
            pending += notation.no_tags
        pending += notation.no_tags
    return [*out, pending + notation.no_tags]


def write_produce_response(version: int, answer: ProduceResponse) -> bytes:
    """Returns the body; fields that the version lacks are left out."""
    notation = _notation(version)
    by_id, write = version >= PRODUCE_VERSION_BY_ID, partial(_appended, notation, version)
    endpoints = write_endpoints(notation, answer.endpoints if version >= _LEADERS else ())
    return write_topics(notation, answer.appended, by_id, write) + I32.pack(answer.throttle_ms) + endpoints


def _appended(notation: Encoding, version: int, one: ProducedPartition) -> bytes:
    where = (one.partition, one.error, one.base_offset, one.log_append_time)
    if version < _LOG_START:
        return _BEFORE_LOG_START.pack(*where)
    out = [_APPENDED.pack(*where, one.log_start)]
    if version >= _MESSAGES:
        out.append(notation.counted(len(one.refused)))
        out += [I32.pack(at) + notation.string(why) + notation.no_tags for at, why in one.refused]
        out.append(notation.string(one.message))
    leader = one.current_leader if version >= _LEADERS else None
    tags = [(_LEADER_TAG, PAIR32.pack(*leader) + notation.no_tags)] if leader else []
    out.append(write_tags(notation, tags))
    return b"".join(out)


@parser("a produce response")
def read_produce_response(view: memoryview, position: int, version: int) -> ProduceResponse:
    """`position`: after the response header."""
    notation = _notation(version)
    read = partial(_read_appended, notation, view, version)
    appended, position = read_topics(notation, view, position, version >= PRODUCE_VERSION_BY_ID, read)
    (throttle_ms,) = I32.unpack_from(view, position)
    return ProduceResponse(appended, throttle_ms, read_endpoints(notation, view, position + I32.size))


@parser("a produce response")
def is_all_appended(view: memoryview, position: int, version: int) -> bool:
    """Whether a response has no error and no leader, without parsing the rest."""
    notation = _notation(version)
    read_count, (size, behind) = notation.read_count, _taken(version)
    whole = size + len(behind)
    topics, position = read_count(view, position)
    for _ in range(topics):
        length, position = (16, position) if version >= PRODUCE_VERSION_BY_ID else notation.read_length(view, position)
        count, position = read_count(view, position + length)
        for _ in range(count):
            if view[position + 4] or view[position + 5] or view[position + size : position + whole] != behind:
                return False
            position += whole
        position = notation.skip_tags(view, position)
    return len(view) == position + I32.size + len(notation.no_tags)


@cache
def _taken(version: int) -> tuple[int, bytes]:
    """Returns the size of a partition's fixed fields, and the bytes that follow without errors."""
    notation = _notation(version)
    behind = notation.counted(0) + notation.string(None) if version >= _MESSAGES else b""
    return (_BEFORE_LOG_START if version < _LOG_START else _APPENDED).size, behind + notation.no_tags


def _read_appended(
    notation: Encoding, view: memoryview, version: int, topic: Topic, position: int
) -> tuple[ProducedPartition, int]:
    fields = _BEFORE_LOG_START if version < _LOG_START else _APPENDED
    partition, error, base_offset, append_time, *start = fields.unpack_from(view, position)
    position += fields.size
    refused: list[tuple[int, str | None]] = []
    message = None
    if version >= _MESSAGES:
        count, position = notation.read_count(view, position)
        for _ in range(count):
            (at,) = I32.unpack_from(view, position)
            why, position = notation.read_string(view, position + I32.size)
            position = notation.skip_tags(view, position)
            refused.append((at, why))
        message, position = notation.read_string(view, position)
    tags, position = read_pairs(notation, view, position, _TAGS)
    log_start, leader = start[0] if start else -1, tags.get(_LEADER_TAG)
    found = ProducedPartition(topic, partition, error, base_offset, append_time, log_start, message, leader, refused)
    return found, position


def _notation(version: int) -> Encoding:
    found = _NOTATIONS.get(version)
    if found is None:
        raise WireError(f"Produce v{version} is not served here, only v{PRODUCE_VERSIONS[0]}-{PRODUCE_VERSIONS[-1]}")
    return found


_NOTATIONS = {version: encoding_of(PRODUCE, version) for version in PRODUCE_VERSIONS}
