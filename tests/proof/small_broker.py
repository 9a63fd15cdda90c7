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

from tests.kafka.peers import next_request, peer, say
from twinshore.config.model import Cluster
from twinshore.kafka.protocol.apis import API_VERSIONS, DESCRIBE_CONFIGS, FETCH, LIST_OFFSETS, METADATA
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import (
    FetchResponse,
    FetchResponsePartition,
    read_fetch_request,
    write_fetch_response,
)
from twinshore.kafka.protocol.handshake import ApiVersionRange, ApiVersionsResponse, encode_api_versions
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.kafka.protocol.requests import Request, response_frame

OFFERS = [
    ApiVersionRange(METADATA, 0, 12),
    ApiVersionRange(LIST_OFFSETS, 0, 7),
    ApiVersionRange(FETCH, 0, 13),
    ApiVersionRange(API_VERSIONS, 0, 3),
    ApiVersionRange(DESCRIBE_CONFIGS, 4, 4),
]
TOPIC_RESOURCE, SET_ON_TOPIC = 2, 1
TOPIC = "small"
TOPIC_ID = uuid.UUID(int=7).bytes
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
        self.topic_id = TOPIC_ID
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
            request = next_request(connection)
            if request.key == API_VERSIONS:
                say(connection, request, [encode_api_versions(request.version, ApiVersionsResponse(0, OFFERS))])
            elif request.key == METADATA:
                say(connection, request, [_encoded(self._metadata())])
            elif request.key == LIST_OFFSETS:
                say(connection, request, [_encoded(self._offset(request.view))])
            elif request.key == DESCRIBE_CONFIGS:
                say(connection, request, [_encoded(self._settings())])
            elif request.key == FETCH and not self._fetch(connection, request):
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
            topic_id=None if self.hidden else uuid.UUID(bytes=self.topic_id),
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

    def _offset(self, body: memoryview) -> ListOffsetsResponse:
        # One topic with one partition: the time asked for is the last but the tags.
        (timestamp,) = struct.unpack(">q", body[-11:-3])
        part = ListOffsetsPartitionResponse(
            partition_index=i32(0), error_code=ErrorCode.none, offset=i64(self.start if timestamp == -2 else self.end)
        )
        topic = ListOffsetsTopicResponse(name=TopicName(TOPIC), partitions=(part,))
        return ListOffsetsResponse(throttle_time=_ZERO, topics=(topic,))

    def _fetch(self, connection: socket.socket, request: Request) -> bool:
        wanted = read_fetch_request(request.view, request.position, request.version)
        position, most = wanted.wanted[0].position, wanted.max_bytes
        with self.lock:
            self.on_fetch(position)
            fault = self.faults.popleft() if self.faults else 0
            error, records = (fault, b"") if isinstance(fault, int) else (0, b"")
            if not error and not self.start <= position <= self.end:
                error = int(Code.offset_out_of_range)
            if not error:
                records = self._read(position, most)
        said = self._fetched(request, error, records)
        if fault == "close":
            return False
        if fault == "huge":
            connection.sendall(struct.pack(">ii", 0x7FFFFFFF, request.number) + said[8:100])
            return False
        if fault == "other":
            connection.sendall(self._fetched(request._replace(number=request.number + 1), 0, self.log[-1][0]))
            return True
        if fault == "cut":
            connection.sendall(said[: len(said) // 2])
            return False
        connection.sendall(said)
        return True

    def _fetched(self, request: Request, error: int, records: bytes) -> bytes:
        """The frame of an answer."""
        part = FetchResponsePartition(self.topic_id, 0, error, self.end, self.end, self.start, [], -1, records)
        body = write_fetch_response(request.version, FetchResponse(0, 0, 0, [part]))
        return b"".join(response_frame(request.key, request.version, request.number, body))

    def _read(self, position: int, most: int) -> bytes:
        """Whole batches and, as brokers do, a torn one at the end."""
        wanted = b"".join(view for view, header in self.log if header.last_offset >= position)
        first = next((len(view) for view, header in self.log if header.last_offset >= position), 0)
        return wanted[: max(first, most)]


def _encoded(entity: MetadataResponse | ListOffsetsResponse | DescribeConfigsResponse) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
