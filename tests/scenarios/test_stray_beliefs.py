"""What becomes of requests that a broker has received and not read yet when their sender is gone."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from testkit.raw_writer import RawWriter
from tests.scenarios.raw_writers_log import end_of
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.framing import InFlightRequests
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, split_batches
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, ONE_COMPILER_FLAG

pytestmark = pytest.mark.long

LAG_S = 6.0  # so long a follower is waited for
SETTINGS = {"replica.lag.time.max.ms": str(int(1000 * LAG_S))}


@pytest.fixture(scope="module", params=[KAFKA_NEWEST, KAFKA_3])
def lab(request: pytest.FixtureRequest) -> Iterator[LabCluster]:
    with LabCluster(
        "strays", version=request.param, brokers=3, heap_mb=256, settings=SETTINGS, jvm_flags=(ONE_COMPILER_FLAG,)
    ) as cluster:
        yield cluster


@pytest.fixture
def kafka(lab: LabCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(lab.cluster)
    yield cluster
    cluster.close()


def in_sync(lab: LabCluster, topic: str) -> list[int]:
    return list(create_admin_client(lab.cluster).list_topics(topic).topics[topic].partitions[0].isrs)


def two_requests(writer: RawWriter) -> bytes:
    """Of three records each, as a task sends them one behind the other."""
    exchange, version, found = InFlightRequests("lost"), writer.leader.handwritten_version(PRODUCE_KEY), b""
    for sequence in (0, 3):
        data = writer.batch(3)
        ((_, header),) = split_batches(memoryview(data))
        ours = header._replace(producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=sequence)
        batch = writer.sealed(ours, data[HEADER_BYTES:])
        body = b"".join(encode_produce(version, [(writer.partition.topic, writer.topic_id, [(0, b"", batch)])]))
        found += b"".join(bytes(part) for part in exchange.ask(PRODUCE_KEY, version, [body], time.monotonic() + 60))
    return found


@pytest.mark.parametrize(("reset", "lands"), [(True, 3), (False, 6)])
def test_what_waits_behind_a_lagging_follower_is_dropped_by_a_reset_alone(
    lab: LabCluster, kafka: KafkaCluster, unique_topic: str, *, reset: bool, lands: int
) -> None:
    """A broker reads a connection's next request once it has answered the one before. One that ends in order is read to
    its end, however late; so a pump's connections are reset when it dies or lets go of them, and only where no reset
    arrives, as from a host that is gone, what it sent may land so late."""
    lab.create_topic(unique_topic, copies=3)
    writer = RawWriter(kafka, unique_topic)
    deadline_s = time.monotonic() + 20
    while len(in_sync(lab, unique_topic)) < 3:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    leader = kafka.leader_of(writer.partition)
    node = kafka.metadata([]).brokers[leader]
    lagging = next(broker for broker in lab.brokers if broker.node_id not in (leader, lab.brokers[0].node_id))
    with closing(socket.create_connection((node.host, node.port))) as line:
        if reset:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        lagging.pause()
        line.sendall(two_requests(writer))
        time.sleep(0.5)
    try:
        assert end_of(writer) == 3, "the second one waits for the answer to the first"
        time.sleep(LAG_S + 6.0)
        assert end_of(writer) == lands
    finally:
        lagging.resume()
    time.sleep(2.0)
    assert end_of(writer) == lands
