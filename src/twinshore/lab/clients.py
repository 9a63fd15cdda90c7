"""Stock clients for the lab, the demo and tests: settings, topics, committed offsets, records and log ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.cimpl import TopicPartition as ClientTopicPartition
from kio.schema.metadata.v11 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v11.request import MetadataRequestTopic
from kio.schema.types import TopicName

from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.connection import librdkafka_settings as kafka_client_settings
from twinshore.kafka.connection import open_connection
from twinshore.kafka.metadata import NO_LEADER
from twinshore.kafka.pool import parse_address
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.processes import LabError

_ANSWER_S = 2.0
_END_OFFSETS_S = 5.0
_LIST_TOPICS_S = 10.0
_SHOWN_WITHIN_S = 60.0
_BATCH, _WAIT_S, _SILENCE_S_MAX = 10_000, 0.02, 60.0
T = TypeVar("T")
_COORDINATOR_MOVES = (Code.coordinator_load_in_progress, Code.coordinator_not_available, Code.not_coordinator)
# In a version that the lab's oldest Kafka also knows.
_NO_TOPICS = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def client_settings(cluster: Cluster) -> dict[str, Any]:
    """Settings of a confluent-kafka client, with passwords: only for this process."""
    # Brokers die here on purpose, so librdkafka logs nothing; errors come from the calls.
    return {**kafka_client_settings(cluster), "log_level": 2}


def create_admin_client(cluster: Cluster) -> AdminClient:
    """Creates an admin client. Keep a reference until its futures are done: they end with it."""
    return AdminClient({**client_settings(cluster), "socket.timeout.ms": 10_000})


def read_group_offsets(cluster: Cluster, group: str, topic: str, partitions: Iterable[int]) -> list[int]:
    """The group's committed offset in each partition; negative for none."""
    asked = [ClientTopicPartition(topic, number) for number in partitions]
    found = ask_as_group(cluster, group, lambda consumer: consumer.committed(asked, timeout=20))
    return [place.offset for place in found]


def ask_as_group(cluster: Cluster, group: str, ask: Callable[[Consumer], T]) -> T:
    """Calls `ask` with a consumer of the group, again while the coordinator moves."""
    deadline = time.monotonic() + 60
    with closing(Consumer({**client_settings(cluster), "group.id": group})) as consumer:
        while True:
            try:
                return ask(consumer)
            except KafkaException as error:
                # A new or moving coordinator: librdkafka leaves the retry to its user.
                if error.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def create_log_consumer(
    cluster: Cluster, *, committed: bool = False, settings: Mapping[str, Any] | None = None
) -> Consumer:
    """A consumer for `read_to_end`, without a group's offsets."""
    return Consumer(
        {
            **client_settings(cluster),
            "group.id": "twinshore-reads",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            # A fetch that waits at one partition's end would delay the next partition's first.
            "fetch.wait.max.ms": 10,
            **(settings or {}),
        }
    )


def read_to_end(
    consumer: Consumer, topic: str, partition: int, start: int = OFFSET_BEGINNING, below: int | None = None
) -> Iterator[Message]:
    """Yields records of a partition to its end, or below an offset, from a `create_log_consumer`.

    The end is an event, not a count: the last offset may be a marker's. Raises LabError after a minute of silence.
    """
    consumer.assign([ClientTopicPartition(topic, partition, start)])
    heard_s = time.monotonic()
    while True:
        messages = consumer.consume(_BATCH, timeout=_WAIT_S)
        if messages:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > _SILENCE_S_MAX:
            raise LabError("lab.no-records", topic=topic, partition=partition)
        for message in messages:
            at, failed = message.offset() or 0, message.error()
            if failed is None and (below is None or at < below):
                yield message
            elif failed is not None and failed.code() != ClientError._PARTITION_EOF:
                raise KafkaException(failed)
            if failed is not None if below is None else at >= below - (failed is None):
                return


def wait_for_brokers(cluster: Cluster, node_ids: set[int]) -> None:
    """Returns when each broker at `asked.bootstrap` itself shows all of these.

    Brokers learn of each other at different times, and librdkafka drops requests to a broker missing in a later
    response.
    """

    def lacks(address: tuple[str, int]) -> str:
        seen = _ask_metadata(address, cluster, _NO_TOPICS)
        shown = {int(one.node_id) for one in seen.brokers} if seen else set()
        return "" if shown >= node_ids else f"{sorted(shown)}, not {sorted(node_ids)}"

    _wait_for_each(cluster, lacks)


def _wait_for_each(cluster: Cluster, lacks: Callable[[tuple[str, int]], str]) -> None:
    deadline = time.monotonic() + _SHOWN_WITHIN_S
    for address in (parse_address(text, cluster.name) for text in cluster.bootstrap):
        while shows := lacks(address):
            if time.monotonic() > deadline:
                raise LabError(
                    "lab.brokers-not-seen",
                    cluster=cluster.name,
                    address=f"{address[0]}:{address[1]}",
                    seconds=_SHOWN_WITHIN_S,
                    shown=shows,
                )
            time.sleep(0.05)


def _ask_metadata(address: tuple[str, int], cluster: Cluster, asked: MetadataRequest) -> MetadataResponse | None:
    try:
        with closing(open_connection(address, cluster.security, timeout_s=_ANSWER_S)) as connection:
            return connection.call(asked, MetadataResponse)
    except KafkaError:
        return None


def create_topic(
    cluster: Cluster, topic: str, *, partitions: int = 1, copies: int = -1, settings: Mapping[str, str] | None = None
) -> None:
    """Creates a topic and returns when every partition has a leader. `copies` -1: the cluster's default."""
    admin = create_admin_client(cluster)
    new = NewTopic(topic, num_partitions=partitions, replication_factor=copies, config=dict(settings or {}))
    admin.create_topics([new], operation_timeout=30)[topic].result(timeout=40)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        seen = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(seen) == partitions and all(one.leader >= 0 for one in seen.values()):
            return
        time.sleep(0.05)
    raise LabError("lab.no-leaders", topic=topic, cluster=cluster.name)


def wait_for_leaders(cluster: Cluster, topic: str, partitions: int) -> None:
    """As `wait_for_brokers`, for a leader of every partition."""
    asked = MetadataRequestTopic(topic_id=None, name=TopicName(topic))

    def lacks(address: tuple[str, int]) -> str:
        seen = _ask_metadata(address, cluster, replace(_NO_TOPICS, topics=(asked,)))
        led = sum(one.leader_id != NO_LEADER for one in seen.topics[0].partitions) if seen else 0
        return "" if led >= partitions else f"{led} of {partitions} partitions of {topic} with a leader"

    _wait_for_each(cluster, lacks)


class LogEndReader:
    """Reads the ends of topics that may not exist yet."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._admin = create_admin_client(cluster)
        self._missing = set(topics)
        self._partitions: list[ClientTopicPartition] = []

    def read(self) -> dict[TopicPartition, int]:
        """The high watermarks, without partitions that do not exist or do not answer."""
        if self._missing:
            self._find_topics()
        ends = read_high_watermarks(self._admin, self._partitions)
        return {TopicPartition(partition.topic, partition.partition): end for partition, end in ends}

    def _find_topics(self) -> None:
        # Asked about topics before all of them exist, the client would keep calling the late ones unknown.
        known = self._admin.list_topics(timeout=_LIST_TOPICS_S).topics
        for topic in self._missing & set(known):
            partitions = known[topic].partitions
            if partitions and all(partition.leader >= 0 for partition in partitions.values()):
                self._missing.discard(topic)
                self._partitions += [ClientTopicPartition(topic, number) for number in partitions]


def read_high_watermarks(
    admin: AdminClient, partitions: Iterable[ClientTopicPartition]
) -> Iterator[tuple[ClientTopicPartition, int]]:
    """Yields the high watermarks, without partitions that do not answer."""
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    question = dict.fromkeys(partitions, latest)
    for partition, answer in admin.list_offsets(question, request_timeout=_END_OFFSETS_S).items() if question else ():
        try:
            yield partition, answer.result(_END_OFFSETS_S).offset
        except (KafkaException, TimeoutError):
            continue
