"""Fetch for both sides: as client v13, which each KRaft broker knows, with incremental sessions (KIP-227); as broker v4
to v18. By topic id from v13 on, before by name.

`visible_spans` says which offsets of a response read-committed consumers see: no control or aborted records, no
compaction holes. Below the last stable offset a response lists all aborted transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from twinshore.config.errors import WireError
from twinshore.config.grouping import grouped
from twinshore.kafka.protocol.apis import FETCH, HANDWRITTEN_VERSIONS
from twinshore.kafka.protocol.primitives import (
    COMPACT_ENCODING,
    I32,
    NO_TAGS,
    PAIR32,
    Buffer,
    Encoding,
    Topic,
    encoding_of,
    parser,
    read_bytes,
    read_name,
    read_pairs,
    read_topics,
    skip_tags,
    write_partitions,
)
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    iter_records,
)
from twinshore.kafka.protocol.requests import (
    Endpoint,
    group_by_topic,
    read_endpoints,
    topic_bytes,
    write_endpoints,
    write_tags,
    write_topics,
)
from twinshore.kafka.protocol.rewrite import hole_free_runs

Item = TypeVar("Item")
FETCH_KEY = FETCH
FETCH_VERSION = HANDWRITTEN_VERSIONS[FETCH][1]

_REQUEST = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_ANSWER = struct.Struct(">ihi")
_NO_RECORDS = memoryview(b"")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")


class FetchPartitionById(NamedTuple):
    topic_id: bytes
    partition: int
    position: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class FetchedPartitionById(NamedTuple):
    """`diverging_epoch`: (epoch, end offset). `current_leader`: (node, epoch). `aborted`: (producer id, offset)."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    aborted: list[tuple[int, int]]
    records: memoryview


class FetchResponseById(NamedTuple):
    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedPartitionById]


def encode_fetch_by_id(
    *,
    max_bytes: int,
    partitions: Sequence[FetchPartitionById],
    session_id: int = 0,
    session_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    isolation: int = 0,
    forgotten: Sequence[tuple[bytes, int]] = (),
) -> bytes:
    """Returns the body of a consumer's request. Session epoch 0 opens a session, -1 uses none."""
    wanted: dict[bytes, list[bytes]] = {}
    for topic_id, partition, position, leader_epoch, last_fetched_epoch, limit_bytes in partitions:
        entry = _PARTITION.pack(partition, leader_epoch, position, last_fetched_epoch, -1, limit_bytes, 0)
        wanted.setdefault(topic_id, []).append(entry)
    dropped = grouped((topic_id, I32.pack(partition)) for topic_id, partition in forgotten)
    opening = _REQUEST.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch)
    no_rack = b"\1"
    return opening + write_partitions(wanted.items()) + write_partitions(dropped.items()) + no_rack + NO_TAGS


@parser("a fetch response")
def parse_fetch_by_id(view: memoryview, position: int = 0) -> FetchResponseById:
    """`position`: after the response header. Records are views of `view`: use them before it is reused."""
    throttle_ms, error, session_id = _ANSWER.unpack_from(view, position)
    read = partial(_read_fetched, COMPACT_ENCODING, view, FETCH_VERSION, _by_id)
    partitions, position = read_topics(COMPACT_ENCODING, view, position + _ANSWER.size, True, read)
    skip_tags(view, position)
    return FetchResponseById(throttle_ms, error, session_id, partitions)


def _by_id(*fields: Any) -> FetchedPartitionById:
    """Takes the fields of a FetchResponsePartition."""
    *ends, aborted, _, records, diverging_epoch, current_leader, _ = fields
    marks = diverging_epoch, current_leader
    return FetchedPartitionById._make((*ends, *marks, aborted or [], records or _NO_RECORDS))


FETCH_VERSIONS = range(4, 19)
FETCH_VERSION_BY_ID = 13
CONSUMER_REPLICA_ID: Final = -1

_LOG_START, _SESSIONS, _EPOCHS, _PREFERRED, _LAST_EPOCH, _NO_REPLICA, _ENDPOINTS = 5, 7, 9, 11, 12, 15, 16

_OPENING = struct.Struct(">iiib")
_WANTED_4, _WANTED_5 = struct.Struct(">iqi"), struct.Struct(">iqqi")
_WANTED_9, _WANTED_12 = struct.Struct(">iiqqi"), struct.Struct(">iiqiqi")
_FETCHED_4, _FETCHED_5 = struct.Struct(">ihqq"), struct.Struct(">ihqqq")
_SESSION = struct.Struct(">hi")
_SNAPSHOT = struct.Struct(">qi")
_REPLICA = struct.Struct(">iq")
_REPLICA_TAG = 1
_REQUEST_TAGS = {_REPLICA_TAG: _REPLICA}
_DIVERGING_TAG, _LEADER_TAG, _SNAPSHOT_TAG = range(3)
_FETCHED_TAGS = {_DIVERGING_TAG: _EPOCH_END, _LEADER_TAG: PAIR32, _SNAPSHOT_TAG: _SNAPSHOT}


class FetchRequestPartition(NamedTuple):
    """A partition to fetch. `topic`: a name up to v12, a topic id from v13."""

    topic: Topic
    partition: int
    position: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1


class ForgottenPartition(NamedTuple):
    topic: Topic
    partition: int


class FetchRequest(NamedTuple):
    """`replica`: (id, epoch); consumers have none."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    wanted: Sequence[FetchRequestPartition]
    session_id: int = 0
    session_epoch: int = -1
    dropped: Sequence[ForgottenPartition] = ()
    rack: str = ""
    replica: tuple[int, int] = (CONSUMER_REPLICA_ID, -1)


class FetchResponsePartition(NamedTuple):
    """`aborted`: (producer id, first offset); None for a client that ignores transactions. `diverging_epoch`: (epoch,
    end offset). `current_leader`: (node, epoch). `snapshot`: (end offset, epoch).
    """

    topic: Topic
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_replica: int = -1
    records: memoryview | bytes | None = b""
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot: tuple[int, int] | None = None


class FetchResponse(NamedTuple):
    throttle_ms: int
    error: int
    session_id: int
    fetched: Sequence[FetchResponsePartition]
    endpoints: Sequence[Endpoint] = ()


@parser("a fetch request")
def read_fetch_request(view: memoryview, position: int, version: int) -> FetchRequest:
    """`position`: after the request header."""
    notation = _notation(version)
    replica = (CONSUMER_REPLICA_ID, -1)
    session = (0, -1)
    dropped: list[ForgottenPartition] = []
    rack = ""
    if version < _NO_REPLICA:
        replica = (I32.unpack_from(view, position)[0], -1)
        position += I32.size
    max_wait_ms, min_bytes, max_bytes, isolation = _OPENING.unpack_from(view, position)
    position += _OPENING.size
    if version >= _SESSIONS:
        session = PAIR32.unpack_from(view, position)
        position += PAIR32.size
    by_id = version >= FETCH_VERSION_BY_ID
    read = partial(_read_wanted, notation, view, _wanted_fields(version))
    wanted, position = read_topics(notation, view, position, by_id, read)
    if version >= _SESSIONS:
        dropped, position = read_topics(notation, view, position, by_id, partial(_read_dropped, view))
    if version >= _PREFERRED:
        rack, position = read_name(notation, view, position)
    tags, _ = read_pairs(notation, view, position, _REQUEST_TAGS)
    if version >= _NO_REPLICA:
        replica = tags.get(_REPLICA_TAG, replica)
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, isolation, wanted, *session, dropped, rack, replica)


def _read_wanted(
    notation: Encoding, view: memoryview, fields: struct.Struct, topic: Topic, position: int
) -> tuple[FetchRequestPartition, int]:
    values = fields.unpack_from(view, position)
    epoch = last_epoch = start = -1
    if fields is _WANTED_12:
        partition, epoch, offset, last_epoch, start, max_bytes = values
    elif fields is _WANTED_9:
        partition, epoch, offset, start, max_bytes = values
    elif fields is _WANTED_5:
        partition, offset, start, max_bytes = values
    else:
        partition, offset, max_bytes = values
    position = notation.skip_tags(view, position + fields.size)
    return FetchRequestPartition(topic, partition, offset, max_bytes, epoch, last_epoch, start), position


def _read_dropped(view: memoryview, topic: Topic, position: int) -> tuple[ForgottenPartition, int]:
    return ForgottenPartition(topic, I32.unpack_from(view, position)[0]), position + I32.size


def write_fetch_request(version: int, request: FetchRequest) -> bytes:
    """Returns the body; fields that the version lacks are left out."""
    notation = _notation(version)
    opening = _OPENING.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation)
    out = [opening if version >= _NO_REPLICA else I32.pack(request.replica[0]) + opening]
    if version >= _SESSIONS:
        out.append(PAIR32.pack(request.session_id, request.session_epoch))
    by_id = version >= FETCH_VERSION_BY_ID
    out.append(write_topics(notation, request.wanted, by_id, lambda one: _wanted(version, one) + notation.no_tags))
    if version >= _SESSIONS:
        out.append(write_topics(notation, request.dropped, by_id, lambda one: I32.pack(one.partition)))
    if version >= _PREFERRED:
        out.append(notation.string(request.rack))
    tagged = version >= _NO_REPLICA and request.replica != (CONSUMER_REPLICA_ID, -1)
    tags = [(_REPLICA_TAG, _REPLICA.pack(*request.replica) + notation.no_tags)] if tagged else []
    return b"".join([*out, write_tags(notation, tags)])


def _wanted_fields(version: int) -> struct.Struct:
    if version >= _LAST_EPOCH:
        return _WANTED_12
    if version >= _EPOCHS:
        return _WANTED_9
    return _WANTED_5 if version >= _LOG_START else _WANTED_4


def _wanted(version: int, one: FetchRequestPartition) -> bytes:
    _, partition, offset, max_bytes, epoch, last_epoch, start = one
    if version >= _LAST_EPOCH:
        return _WANTED_12.pack(partition, epoch, offset, last_epoch, start, max_bytes)
    if version >= _EPOCHS:
        return _WANTED_9.pack(partition, epoch, offset, start, max_bytes)
    if version >= _LOG_START:
        return _WANTED_5.pack(partition, offset, start, max_bytes)
    return _WANTED_4.pack(partition, offset, max_bytes)


def write_fetch_response(version: int, answer: FetchResponse) -> list[Buffer]:
    """Returns the body as buffers, records as they are; fields that the version lacks are left out."""
    notation = _notation(version)
    pending = I32.pack(answer.throttle_ms)
    if version >= _SESSIONS:
        pending += _SESSION.pack(answer.error, answer.session_id)
    topics = list(group_by_topic(answer.fetched))
    pending += notation.counted(len(topics))
    out: list[Buffer] = []
    for topic, partitions in topics:
        pending += topic_bytes(notation, topic, version >= FETCH_VERSION_BY_ID) + notation.counted(len(partitions))
        for one in partitions:
            pending += _before_records(notation, version, one)
            if one.records:
                out += [pending, one.records]
                pending = b""
            pending += _behind_records(notation, one)
        pending += notation.no_tags
    return [*out, pending + write_endpoints(notation, answer.endpoints if version >= _ENDPOINTS else ())]


def _before_records(notation: Encoding, version: int, one: FetchResponsePartition) -> bytes:
    where = (one.partition, one.error, one.high_watermark, one.last_stable_offset)
    out = [_FETCHED_5.pack(*where, one.log_start) if version >= _LOG_START else _FETCHED_4.pack(*where)]
    out.append(notation.counted(-1 if one.aborted is None else len(one.aborted)))
    out += [_ABORTED.pack(*each) + notation.no_tags for each in one.aborted or ()]
    if version >= _PREFERRED:
        out.append(I32.pack(one.preferred_replica))
    out.append(notation.sized(-1 if one.records is None else len(one.records)))
    return b"".join(out)


def _behind_records(notation: Encoding, one: FetchResponsePartition) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if one.diverging_epoch:
        tags.append((_DIVERGING_TAG, _EPOCH_END.pack(*one.diverging_epoch) + notation.no_tags))
    if one.current_leader:
        tags.append((_LEADER_TAG, PAIR32.pack(*one.current_leader) + notation.no_tags))
    if one.snapshot:
        tags.append((_SNAPSHOT_TAG, _SNAPSHOT.pack(*one.snapshot) + notation.no_tags))
    return write_tags(notation, tags)


@parser("a fetch response")
def read_fetch_response(view: memoryview, position: int, version: int) -> FetchResponse:
    """`position`: after the response header. Records are views of `view`."""
    notation = _notation(version)
    session = (0, 0)
    (throttle_ms,) = I32.unpack_from(view, position)
    position += I32.size
    if version >= _SESSIONS:
        session = _SESSION.unpack_from(view, position)
        position += _SESSION.size
    read = partial(_read_fetched, notation, view, version, FetchResponsePartition)
    fetched, position = read_topics(notation, view, position, version >= FETCH_VERSION_BY_ID, read)
    return FetchResponse(throttle_ms, *session, fetched, read_endpoints(notation, view, position))


def _read_fetched(
    notation: Encoding, view: memoryview, version: int, made: Callable[..., Item], topic: Topic, position: int
) -> tuple[Item, int]:
    start = preferred = -1
    if version >= _LOG_START:
        partition, error, watermark, stable, start = _FETCHED_5.unpack_from(view, position)
        position += _FETCHED_5.size
    else:
        partition, error, watermark, stable = _FETCHED_4.unpack_from(view, position)
        position += _FETCHED_4.size
    count, position = notation.read_count(view, position)
    aborted: list[tuple[int, int]] | None = None if count < 0 else []
    for _ in range(count):
        assert aborted is not None
        aborted.append(_ABORTED.unpack_from(view, position))
        position = notation.skip_tags(view, position + _ABORTED.size)
    if version >= _PREFERRED:
        (preferred,) = I32.unpack_from(view, position)
        position += I32.size
    records, position = read_bytes(notation, view, position, f"the records of partition {partition}")
    tags, position = read_pairs(notation, view, position, _FETCHED_TAGS)
    marks = tags.get(_DIVERGING_TAG), tags.get(_LEADER_TAG), tags.get(_SNAPSHOT_TAG)
    offsets = watermark, stable, start
    return made(topic, partition, error, *offsets, aborted, preferred, records, *marks), position


def _notation(version: int) -> Encoding:
    if version not in FETCH_VERSIONS:
        raise WireError(f"Fetch v{version} is not served here, only v{FETCH_VERSIONS[0]}-{FETCH_VERSIONS[-1]}")
    return encoding_of(FETCH, version)


_ABORT = 0
_CONTROL_KEY_BYTES = 4
_CONTROL_BYTES_MAX = 1 << 20


class AbortedTransactions:
    """The aborted transactions of one fetch. Pass batches in order, each once."""

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        """`listed`: producer id and first offset of each, from the fetch."""
        self._coming = sorted(listed, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def hides(self, view: memoryview, header: BatchHeader) -> bool:
        """Whether consumers do not see the batch's records."""
        if not header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
            return False
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.attributes & CONTROL_FLAG:
            if header.producer_id in self._open and _aborts(view, header):
                self._open.discard(header.producer_id)
            return True
        return header.producer_id in self._open


def _aborts(view: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch is an abort. Not one emptied by compaction: its data is gone as well."""
    if not header.count:
        return False
    check_crc(view, header)
    key = next(iter_records(view, header, limit_bytes=_CONTROL_BYTES_MAX)).key or b""
    return len(key) >= _CONTROL_KEY_BYTES and int.from_bytes(key[2:4], "big") == _ABORT


def visible_spans(
    view: memoryview, header: BatchHeader, at: int, aborted: AbortedTransactions
) -> Iterator[tuple[int, int, bool]]:
    """Yields (first, end, visible) without gaps from `at` to the batch's end."""
    stop = header.last_offset + 1
    if aborted.hides(view, header) or not header.count:
        runs = []
    elif header.count == header.last_offset_delta + 1:
        runs = [(header.base_offset, stop)]
    else:
        check_crc(view, header)
        runs = hole_free_runs(view, header)
    for first, end in runs:
        if end <= at:
            continue
        if first > at:
            yield at, first, False
        yield max(first, at), end, True
        at = end
    if at < stop:
        yield at, stop, False
