"""Asks a cluster's leaders for high watermarks, in an event loop and without waiting for answers.

While writes wait, a twin is asked every `SPACING_S`: a write is confirmed a round trip and some milliseconds after the
twin has it. One request for each broker covers all that waits there. What blocks is done by a thread: connecting, and
asking for leaders.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from kio.schema.list_offsets.v7 import ListOffsetsRequest
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
from twinshore.kafka.leader_queries import CONSUMER_REPLICA_ID, LeaderPartition, offset_for_leader_epoch
from twinshore.kafka.metadata import TopicMetadata, metadata_request
from twinshore.kafka.protocol.apis import LIST_OFFSETS, METADATA
from twinshore.kafka.protocol.framing import InFlightRequests
from twinshore.kafka.protocol.transactions import parse_list_offsets
from twinshore.protection.core.model import AskEpochEnd, SideView

log = logging.getLogger(__name__)

SPACING_S: Final = 0.003
IDLE_SPACING_S: Final = 0.5
IN_FLIGHT_MAX: Final = 128
ANSWER_TIMEOUT_S: Final = 3.0
METADATA_INTERVAL_S: Final = 1.0
DIALS_MAX: Final = 4
# Requests of so many sets of partitions are kept.
BODIES_MAX: Final = 64
_VERSION: Final = 7
_LATEST: Final = -1

Views = Mapping[TopicPartition, SideView]
Found = TypeVar("Found")


@dataclass(slots=True)
class _Broker:
    """A connection, and when what was asked on it. `offsets`, `ids`: as the last answers say, `bodies` of which are
    kept: most answers are like the one before.
    """

    connection: Connection
    in_flight: InFlightRequests
    asked: deque[tuple[float, bool]] = field(default_factory=deque)
    bodies: dict[int, memoryview] = field(default_factory=dict)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


class WatermarkQueries:
    """One cluster. `heard` gets the answers, and whether topic ids were asked with them: offsets are asked by name, so
    else the ids are those of the last metadata. All is called in the thread of the loop.
    """

    def __init__(
        self,
        kafka: KafkaCluster,
        client_id: str,
        loop: asyncio.AbstractEventLoop,
        heard: Callable[[Views, bool], None],
    ) -> None:
        self._kafka, self._client_id, self._loop, self._heard = kafka, client_id, loop, heard
        # So many: a broker that cannot be reached must not delay others.
        self._work = ThreadPoolExecutor(DIALS_MAX, f"leaders of {kafka.name}")
        self._brokers: dict[int, _Broker] = {}
        # Brokers that are being connected to, and until when others are not tried again.
        self._dialled: set[int] = set()
        self._rest_until_s: dict[int, float] = {}
        self._is_looking = False
        self._bodies: dict[tuple[int, frozenset[TopicPartition]], tuple[bytes, bytes, int]] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        # Partitions that were asked for since the last look: those that are asked most often must not hide others.
        self._unknown: set[TopicPartition] = set()
        self._ids: dict[str, str] = {}
        self._looked_s = -math.inf
        self._outage = RepeatFilter(logging.LoggerAdapter(log, {"cluster": kafka.name}), once=True)
        self._is_closed = False

    def close(self) -> None:
        """Call in the loop's thread."""
        self._is_closed = True
        self._work.shutdown(wait=False, cancel_futures=True)
        while self._brokers:
            self._close(self._brokers.popitem()[1])

    # -- asking

    def ask(self, partitions: Iterable[TopicPartition], *, with_ids: bool) -> None:
        """Sends one request to each leader. Leaders are learned first, and then nothing is asked yet."""
        now_s, wanted = steady_s(), frozenset(partitions)
        if not wanted or self._is_closed:
            return
        if now_s - self._looked_s >= METADATA_INTERVAL_S and not self._is_looking:
            self._looked_s, self._is_looking = now_s, True
            topics = {one.topic for one in {*self._unknown, *self._leaders, *wanted}}
            self._unknown.clear()
            self._run(partial(self._look, topics), self._learn, self._looked_in_vain)
        self._unknown |= wanted - self._leaders.keys()
        by_node: dict[int, set[TopicPartition]] = {}
        for partition in wanted & self._leaders.keys():
            by_node.setdefault(self._leaders[partition][0], set()).add(partition)
        for node, ours in by_node.items():
            broker = self._brokers.get(node)
            if broker is None:
                self._dial(node, now_s)
            elif len(broker.asked) < IN_FLIGHT_MAX:
                try:
                    self._send(broker, node, frozenset(ours), now_s, with_ids=with_ids)
                except Exception as error:
                    self._drop(node, error)

    def _send(
        self, broker: _Broker, node: int, partitions: frozenset[TopicPartition], now_s: float, *, with_ids: bool
    ) -> None:
        known = self._bodies.get((node, partitions))
        if known is None:
            request = metadata_request(sorted({partition.topic for partition in partitions}))
            known = self._encode(partitions), encode_body(request), int(request.__version__)
            if len(self._bodies) >= BODIES_MAX:
                self._bodies.clear()
            self._bodies[node, partitions] = known
        body, metadata_body, metadata_version = known
        broker.asked.append((now_s, with_ids))
        broker.connection.begin(LIST_OFFSETS, _VERSION, [body], timeout_s=ANSWER_TIMEOUT_S)
        if with_ids:
            broker.connection.begin(METADATA, metadata_version, [metadata_body], timeout_s=ANSWER_TIMEOUT_S)

    def tick(self) -> None:
        """Call several times a second: a leader that does not answer is asked on another connection."""
        now_s = steady_s()
        for node, broker in list(self._brokers.items()):
            if broker.asked and now_s - broker.asked[0][0] > ANSWER_TIMEOUT_S:
                self._drop(node, KafkaError(f"{broker.connection.place}: no answer in time", retriable=True))

    def ask_epoch_end(
        self, partition: TopicPartition, question: AskEpochEnd, done: Callable[[int, float], None]
    ) -> None:
        """`done` gets the end, -1 if the log has no record of the epoch, and when it was heard; nothing on errors."""

        def ask() -> int:
            connection = self._kafka.dial(self._leaders[partition][0])
            try:
                wanted = [LeaderPartition(partition, bytes.fromhex(question.topic_id), question.home_epoch)]
                epochs = {partition: question.epoch}
                answers = offset_for_leader_epoch(connection, wanted, epochs, timeout_s=ANSWER_TIMEOUT_S)
            finally:
                connection.close()
            code, (epoch, end) = answers[partition]
            if code:
                raise KafkaError(f"{partition}: the end of epoch {question.epoch} is not told", code=code)
            return end if epoch == question.epoch else -1

        self._run(ask, lambda end: done(end, steady_s()), lambda _: None)

    def _run(
        self,
        work: Callable[[], Found],
        done: Callable[[Found], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Has a thread do what blocks; `done` or `failed` is called in the loop's thread."""

        def run() -> None:
            try:
                found = work()
            except Exception as error:
                self._post(partial(failed, error))
            else:
                self._post(lambda: done(found))

        with suppress(RuntimeError):  # closed
            self._work.submit(run)

    def _post(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call)

    def _look(self, topics: set[str]) -> Mapping[str, TopicMetadata]:
        return self._kafka.metadata(sorted(topics)).topics

    def _learn(self, found: Mapping[str, TopicMetadata]) -> None:
        """Takes leaders, epochs and ids."""
        self._is_looking = False
        leaders = {
            TopicPartition(name, one.partition): (one.leader, one.leader_epoch)
            for name, topic in found.items()
            for one in topic.partitions
            if one.leader >= 0
        }
        if leaders != self._leaders:
            self._leaders = leaders
            self._bodies.clear()
        nodes = {node for node, _ in leaders.values()}
        self._rest_until_s = {node: until_s for node, until_s in self._rest_until_s.items() if node in nodes}
        self._ids = {name: topic.topic_id.hex() for name, topic in found.items()}

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

    def _dial(self, node: int, now_s: float) -> None:
        if node not in self._dialled and now_s >= self._rest_until_s.get(node, -math.inf):
            self._dialled.add(node)
            self._run(partial(self._kafka.dial, node), partial(self._connected, node), partial(self._drop, node))

    def _connected(self, node: int, connection: Connection) -> None:
        self._dialled.discard(node)
        if self._is_closed:
            connection.close()
            return
        broker = self._brokers[node] = _Broker(connection, connection.hand_over(self._client_id))
        self._loop.add_reader(connection.transport.fileno(), self._readable, node, broker)

    # -- answers

    def _readable(self, node: int, broker: _Broker) -> None:
        try:
            self._receive(broker)
            self._rest_until_s.pop(node, None)
            if not self._rest_until_s:
                self._outage.well("watermarks are read again")
        except Exception as error:
            self._drop(node, error)

    def _receive(self, broker: _Broker) -> None:
        reader, transport = broker.in_flight.frame_reader, broker.connection.transport
        while (got := transport.recv_into(reader.room())) > 0:
            reader.took(got)
            while (answer := broker.in_flight.answer()) is not None:
                self._take(broker, answer.asked.api.key, answer.view[answer.position :])
        if got == 0:
            raise KafkaError(f"{broker.connection.place}: the broker closed the connection", retriable=True)

    def _take(self, broker: _Broker, key: int, body: memoryview) -> None:
        asked_s, with_ids = broker.asked[0]
        if broker.bodies.get(key) != body:
            broker.bodies[key] = memoryview(bytes(body))
            if key == METADATA:
                topics = decode_body(body, MetadataResponse).topics
                broker.ids = {str(one.name): one.topic_id.hex for one in topics if one.topic_id}
            else:
                listed = parse_list_offsets(body)
                broker.offsets = {
                    TopicPartition(one.topic, one.partition): (one.epoch, one.end) for one in listed if not one.error
                }
                if len(broker.offsets) < len(listed):
                    self._looked_s = -math.inf
        if key == METADATA or not with_ids:
            broker.asked.popleft()
            ids, heard_s = broker.ids if with_ids else self._ids, steady_s()
            views = {
                partition: SideView(ids[partition.topic], *found, asked_s, heard_s)
                for partition, found in broker.offsets.items()
                if partition.topic in ids
            }
            self._heard(views, with_ids)

    # -- failures

    def _drop(self, node: int, error: Exception) -> None:
        """The broker is connected to again; until then nothing that it leads is confirmed."""
        if not self._is_closed:
            self._outage.say(f"watermarks are not read: {describe_error(error)}")
        self._dialled.discard(node)
        self._rest_until_s[node] = steady_s() + IDLE_SPACING_S / 2
        self._looked_s = -math.inf
        if (broker := self._brokers.pop(node, None)) is not None:
            self._close(broker)

    def _looked_in_vain(self, error: Exception) -> None:
        self._is_looking = False
        if not self._is_closed:
            self._outage.say(f"leaders are not known: {describe_error(error)}")

    def _close(self, broker: _Broker) -> None:
        with suppress(ValueError, OSError):
            self._loop.remove_reader(broker.connection.transport.fileno())
        broker.connection.close()
