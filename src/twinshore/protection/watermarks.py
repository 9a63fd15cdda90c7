"""Asks a cluster's leaders for high watermarks, at a fixed spacing and without waiting for answers.

While writes wait, a side is asked every `SPACING_S`: a write is confirmed a round trip and some milliseconds after the
twin has it. One request for each broker covers all that waits there.
"""

from __future__ import annotations

import logging
import math
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kio.schema.list_offsets.v7 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsTopic
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection, decode_body, encode_body
from twinshore.kafka.leader_queries import CONSUMER_REPLICA_ID
from twinshore.kafka.metadata import metadata_request
from twinshore.kafka.protocol.apis import LIST_OFFSETS, METADATA
from twinshore.kafka.protocol.framing import InFlightRequests
from twinshore.protection.core.model import SideView

log = logging.getLogger(__name__)

SPACING_S: Final = 0.003
IDLE_SPACING_S: Final = 0.5
IN_FLIGHT_MAX: Final = 128
ANSWER_TIMEOUT_S: Final = 3.0
METADATA_INTERVAL_S: Final = 1.0
_VERSION: Final = 7
_LATEST: Final = -1

Views = Mapping[TopicPartition, SideView]


@dataclass(slots=True)
class _Broker:
    """A connection, and when what was asked on it."""

    connection: Connection
    in_flight: InFlightRequests
    asked: deque[float] = field(default_factory=deque)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class WatermarkPoller:
    """One cluster. `heard` gets the answers, in the poller's thread. `with_ids`: topic ids are asked with each answer,
    since offsets are asked by name; else they are those of the last metadata.
    """

    def __init__(self, kafka: KafkaCluster, client_id: str, heard: Callable[[Views], None], *, with_ids: bool) -> None:
        self._kafka, self._client_id, self._heard, self._with_ids = kafka, client_id, heard, with_ids
        self._lock = threading.Lock()
        self._all: frozenset[TopicPartition] = frozenset()
        self._waiting: frozenset[TopicPartition] = frozenset()
        self._brokers: dict[int, _Broker] = {}
        self._bodies: dict[tuple[int, frozenset[TopicPartition]], bytes] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._ids: dict[str, str] = {}
        self._looked_s = self._asked_s = -math.inf
        self._waker, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._outage = RepeatFilter(logging.LoggerAdapter(log, {"cluster": kafka.name}))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watermarks of {kafka.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._nudge()
        self._thread.join(ANSWER_TIMEOUT_S)

    def watch(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets the partitions that are asked twice a second."""
        with self._lock:
            self._all = frozenset(partitions)

    def ask(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets the partitions that are asked at the short spacing, from now on."""
        with self._lock:
            before, self._waiting = self._waiting, frozenset(partitions)
        if self._waiting and not before:
            self._nudge()

    def _nudge(self) -> None:
        with suppress(OSError):
            self._wake.send(b"\0")

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._turn()
                self._outage.well("watermarks are read again")
            except Exception as error:  # the next turn asks again; meanwhile nothing is confirmed
                self._outage.say(f"watermarks are not read: {describe_error(error)}")
                self._close_all()
                self._stopped.wait(IDLE_SPACING_S)
        self._close_all()
        self._selector.close()
        self._waker.close()
        self._wake.close()

    def _turn(self) -> None:
        with self._lock:
            waiting, everything = self._waiting, self._all
        now_s = steady_s()
        spacing_s = SPACING_S if waiting else IDLE_SPACING_S
        if now_s - self._asked_s >= spacing_s:
            self._asked_s = now_s
            self._send(waiting or everything, now_s)
        for key, _ in self._selector.select(max(0.0, self._asked_s + spacing_s - steady_s())):
            if key.fileobj is self._waker:
                self._waker.recv(64)
            else:
                self._receive(key.data)
        self._check_late(now_s)

    # -- asking

    def _send(self, partitions: frozenset[TopicPartition], now_s: float) -> None:
        if not partitions:
            return
        if now_s - self._looked_s >= METADATA_INTERVAL_S:
            self._look(partitions, now_s)
        by_node: dict[int, set[TopicPartition]] = {}
        for partition in partitions:
            if partition in self._leaders:
                by_node.setdefault(self._leaders[partition][0], set()).add(partition)
        for node, ours in by_node.items():
            broker = self._brokers.get(node) or self._dial(node)
            if len(broker.asked) >= IN_FLIGHT_MAX:
                continue
            key = node, frozenset(ours)
            body = self._bodies.get(key) or self._bodies.setdefault(key, self._encode(key[1]))
            broker.asked.append(now_s)
            broker.connection.begin(LIST_OFFSETS, _VERSION, [body], timeout_s=ANSWER_TIMEOUT_S)
            if self._with_ids:
                request = metadata_request(sorted({partition.topic for partition in ours}))
                version = int(request.__version__)
                broker.connection.begin(METADATA, version, [encode_body(request)], timeout_s=ANSWER_TIMEOUT_S)

    def _look(self, partitions: frozenset[TopicPartition], now_s: float) -> None:
        """Learns leaders, epochs and ids."""
        topics = sorted({partition.topic for partition in self._all | partitions})
        found = self._kafka.metadata(topics).topics
        leaders = {
            TopicPartition(name, one.partition): (one.leader, one.leader_epoch)
            for name, topic in found.items()
            for one in topic.partitions
            if one.leader >= 0
        }
        if leaders != self._leaders:
            self._leaders = leaders
            self._bodies.clear()
        self._ids = {name: topic.topic_id.hex() for name, topic in found.items()}
        self._looked_s = now_s

    def _encode(self, partitions: Iterable[TopicPartition]) -> bytes:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition in sorted(partitions):
            topics.setdefault(partition.topic, []).append(
                ListOffsetsPartition(
                    partition_index=i32(partition.partition),
                    current_leader_epoch=i32(self._leaders[partition][1]),
                    timestamp=i64(_LATEST),
                )
            )
        request = ListOffsetsRequest(
            replica_id=BrokerId(CONSUMER_REPLICA_ID),
            isolation_level=i8(0),
            topics=tuple(ListOffsetsTopic(name=TopicName(name), partitions=tuple(p)) for name, p in topics.items()),
        )
        return encode_body(request)

    def _dial(self, node: int) -> _Broker:
        connection = self._kafka.dial(node)
        broker = self._brokers[node] = _Broker(connection, connection.hand_over(self._client_id))
        self._selector.register(broker.connection.transport, selectors.EVENT_READ, broker)
        return broker

    # -- answers

    def _receive(self, broker: _Broker) -> None:
        reader, transport = broker.in_flight.frame_reader, broker.connection.transport
        while (got := transport.recv_into(reader.room())) > 0:
            reader.took(got)
        while (answer := broker.in_flight.answer()) is not None:
            body = answer.view[answer.position :]
            if answer.asked.api.key == METADATA:
                topics = decode_body(body, MetadataResponse).topics
                self._told(broker, {str(one.name): one.topic_id.hex for one in topics if one.topic_id})
                continue
            listed = decode_body(body, ListOffsetsResponse)
            partitions = [(str(topic.name), one) for topic in listed.topics for one in topic.partitions]
            broker.offsets = {
                TopicPartition(name, int(one.partition_index)): (int(one.leader_epoch), int(one.offset))
                for name, one in partitions
                if not one.error_code
            }
            if len(broker.offsets) < len(partitions):
                self._looked_s = -math.inf
            if not self._with_ids:
                self._told(broker, self._ids)
        if got == 0:
            raise KafkaError(f"{broker.connection.place}: the broker closed the connection", retriable=True)

    def _told(self, broker: _Broker, ids: Mapping[str, str]) -> None:
        asked_s, heard_s = broker.asked.popleft(), steady_s()
        self._heard(
            {
                partition: SideView(ids[partition.topic], *found, asked_s, heard_s)
                for partition, found in broker.offsets.items()
                if partition.topic in ids
            }
        )

    def _check_late(self, now_s: float) -> None:
        for broker in self._brokers.values():
            if broker.asked and now_s - broker.asked[0] > ANSWER_TIMEOUT_S:
                raise KafkaError(f"{broker.connection.place}: no answer in time", retriable=True)

    def _close_all(self) -> None:
        for broker in self._brokers.values():
            with suppress(KeyError, ValueError):
                self._selector.unregister(broker.connection.transport)
            broker.connection.close()
        self._brokers.clear()
        self._looked_s = -math.inf
