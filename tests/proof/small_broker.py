"""A broker of one partition over a real socket: its log is a list of batches, and it fails when told to."""

from __future__ import annotations

import contextlib
import datetime
import io
import socket
import struct
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator

from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tests.kafka.peers import peer
from twinshore.fleet import Cluster
from twinshore.kafka.errors import Code
from twinshore.wire.batch import split_batches
from twinshore.wire.primitives import uvarint

METADATA, LIST_OFFSETS, FETCH, API_VERSIONS, DESCRIBE_CONFIGS = 3, 2, 1, 18, 32
TOPIC_RESOURCE, SET_ON_TOPIC = 2, 1
TOPIC = "small"
_ZERO = i32Timedelta.parse(datetime.timedelta())


class SmallBroker:
    """`faults` are taken one for each fetch: an error code to answer, "cut" half way through an answer, "close",
    "other" for the end of the log as the answer to another request, or "huge" for an answer that claims to be of two
    gigabytes. `on_fetch` is told each position that is asked for."""

    def __init__(self, name: str, data: bytes, *, start: int = 0) -> None:
        self.name = name
        self.log = [(bytes(view), header) for view, header in split_batches(memoryview(data))]
        self.start = start
        self.settings: dict[str, str] = {}
        self.hidden, self.leader = False, 1
        self.faults: deque[int | str] = deque()
        self.fetched: list[int] = []
        self.on_fetch: Callable[[int], None] = self.fetched.append
        self.lock = threading.Lock()

    @property
    def end(self) -> int:
        return self.log[-1][1].last_offset + 1 if self.log else 0

    @contextlib.contextmanager
    def serving(self) -> Iterator[Cluster]:
        """How to reach it, until the block ends."""
        with peer(self._talk) as (host, port):
            self._address = host, port
            yield Cluster(self.name, (f"{host}:{port}",))

    def _talk(self, connection: socket.socket) -> None:
        while True:
            key, correlation_id, body = _request(connection)
            if key == API_VERSIONS:
                entries = [(METADATA, 0, 12), (LIST_OFFSETS, 0, 7), (FETCH, 0, 13), (API_VERSIONS, 0, 3)]
                entries.append((DESCRIBE_CONFIGS, 4, 4))
                said = b"".join(struct.pack(">hhhB", *one, 0) for one in entries)
                _answer(connection, correlation_id, struct.pack(">hB", 0, len(entries) + 1) + said + bytes(5))
            elif key == METADATA:
                _answer(connection, correlation_id, b"\0" + _encoded(self._metadata()))
            elif key == LIST_OFFSETS:
                _answer(connection, correlation_id, b"\0" + _encoded(self._offset(body)))
            elif key == DESCRIBE_CONFIGS:
                _answer(connection, correlation_id, b"\0" + _encoded(self._settings()))
            elif key == FETCH and not self._fetch(connection, correlation_id, body):
                return

    def _metadata(self) -> MetadataResponse:
        one = BrokerId(1)
        part = MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=i32(0),
            leader_id=BrokerId(self.leader),
            leader_epoch=i32(0),
            replica_nodes=(one,),
            isr_nodes=(one,),
        )
        topic = MetadataResponseTopic(
            error_code=ErrorCode.unknown_topic_or_partition if self.hidden else ErrorCode.none,
            name=TopicName(TOPIC),
            topic_id=None if self.hidden else uuid.UUID(int=7),
            partitions=() if self.hidden else (part,),
        )
        host, port = self._address
        broker = MetadataResponseBroker(node_id=one, host=host, port=i32(port))
        return MetadataResponse(
            throttle_time=_ZERO, brokers=(broker,), cluster_id=self.name, controller_id=one, topics=(topic,)
        )

    def _settings(self) -> DescribeConfigsResponse:
        settings = tuple(
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=i8(SET_ON_TOPIC),
                is_sensitive=False,
                synonyms=(),
                documentation=None,
            )
            for name, value in self.settings.items()
        )
        result = DescribeConfigsResult(
            error_code=ErrorCode.none,
            error_message=None,
            resource_type=i8(TOPIC_RESOURCE),
            resource_name=TOPIC,
            configs=settings,
        )
        return DescribeConfigsResponse(throttle_time=_ZERO, results=(result,))

    def _offset(self, body: bytes) -> ListOffsetsResponse:
        # One topic with one partition: the time asked for is the last but the tags.
        (timestamp,) = struct.unpack(">q", body[-11:-3])
        part = ListOffsetsPartitionResponse(
            partition_index=i32(0), error_code=ErrorCode.none, offset=i64(self.start if timestamp == -2 else self.end)
        )
        topic = ListOffsetsTopicResponse(name=TopicName(TOPIC), partitions=(part,))
        return ListOffsetsResponse(throttle_time=_ZERO, topics=(topic,))

    def _fetch(self, connection: socket.socket, correlation_id: int, body: bytes) -> bool:
        (position,) = struct.unpack_from(">q", body, body.index(uuid.UUID(int=7).bytes) + 16 + 1 + 8)
        (most,) = struct.unpack_from(">i", body, 12)
        with self.lock:
            self.on_fetch(position)
            fault = self.faults.popleft() if self.faults else 0
            error, records = (fault, b"") if isinstance(fault, int) else (0, b"")
            if not error and not self.start <= position <= self.end:
                error = int(Code.OFFSET_OUT_OF_RANGE)
            if not error:
                records = self._read(position, most)
        said = _fetched(error, self.end, self.start, records)
        if fault == "close":
            return False
        if fault == "huge":
            connection.sendall(struct.pack(">ii", 0x7FFFFFFF, correlation_id) + said[:100])
            return False
        if fault == "other":
            _answer(connection, correlation_id + 1, _fetched(0, self.end, self.start, self.log[-1][0]))
            return True
        if fault == "cut":
            connection.sendall(struct.pack(">ii", len(said) + 4, correlation_id) + said[: len(said) // 2])
            return False
        _answer(connection, correlation_id, said)
        return True

    def _read(self, position: int, most: int) -> bytes:
        """Whole batches and, as brokers do, a torn one at the end."""
        wanted = b"".join(view for view, header in self.log if header.last_offset >= position)
        first = next((len(view) for view, header in self.log if header.last_offset >= position), 0)
        return wanted[: max(first, most)]


def _fetched(error: int, end: int, start: int, records: bytes) -> bytes:
    part = struct.pack(">ihqqqB", 0, error, end, end, start, 1) + struct.pack(">i", -1)
    part += uvarint(len(records) + 1) + records + b"\0"
    topic = b"\2" + uuid.UUID(int=7).bytes + b"\2" + part + b"\0"
    return b"\0" + struct.pack(">ihi", 0, 0, 0) + topic + b"\0"


def _encoded(entity: MetadataResponse | ListOffsetsResponse | DescribeConfigsResponse) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _request(connection: socket.socket) -> tuple[int, int, bytes]:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    whole = _exactly(connection, size)
    key, _, correlation_id, client = struct.unpack_from(">hhih", whole)
    return key, correlation_id, whole[10 + client + 1 :]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connection.recv(size - len(data))
        if not got:
            raise OSError("the client left")
        data += got
    return data


def _answer(connection: socket.socket, correlation_id: int, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)
