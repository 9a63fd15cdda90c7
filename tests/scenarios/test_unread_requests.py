"""What becomes of a request that a throttled connection carries, unread, when its sender goes: on real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from testkit.raw_writer import RawWriter
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security, TopicPartition
from twinshore.kafka.admin import alter_quotas
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import QuotaEntity
from twinshore.kafka.protocol.framing import frame_request
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

IDLE_S = 9.0
BYTES_S = 10_000
# What was sent in ten seconds counts: so much brings a throttle of some five seconds, and of some twenty.
SHORT, LONG = 15 * BYTES_S, 30 * BYTES_S
LOOK_S = 0.2
SLOW_S = 5.0


@pytest.fixture(scope="module", params=[KAFKA_NEWEST, pytest.param(KAFKA_3, marks=pytest.mark.long)])
def lab(request: pytest.FixtureRequest) -> Iterator[LabCluster]:
    settings = {"connections.max.idle.ms": str(int(1000 * IDLE_S))}
    with LabCluster("unread", version=request.param, heap_mb=256, settings=settings) as cluster:
        yield cluster


class Sender:
    """A connection with a quota of its own that was throttled, and has sent one batch more."""

    def __init__(self, lab: LabCluster, topic: str, topic_id: bytes, number: int, size: int) -> None:
        self.named = TopicPartition(topic, number)
        self._topic_id, self._client_id = topic_id, f"sender-{number}"
        host, _, port = lab.cluster.bootstrap[0].rpartition(":")
        self.connection: Connection = open_connection((host, int(port)), Security(), client_id=self._client_id)
        self.version = self.connection.handwritten_version(PRODUCE_KEY)
        view = self.connection.call_raw(PRODUCE_KEY, self.version, self._body(size))
        answer = read_produce_response(view, 0, self.version)
        assert answer.appended[0].error == 0
        self.throttled_until_s = time.monotonic() + answer.throttle_ms / 1000
        request = frame_request(PRODUCE_KEY, self.version, 7, self._client_id, [self._body(1)])
        assert self.connection.transport.sendv(request) == sum(map(len, request))

    def _body(self, size: int) -> bytes:
        batch = RawWriter.batch(1, value=b"v" * size)
        topic = (self.named.topic, self._topic_id, [(self.named.partition, b"", batch)])
        return b"".join(encode_produce(self.version, [topic]))

    def hung_up(self) -> bool:
        """Whether the broker has closed the connection."""
        try:
            return self.connection.transport.recv_into(memoryview(bytearray(1))) == 0
        except KafkaError:
            return True


@pytest.mark.long
def test_what_lies_unread_lands_when_the_throttle_is_over_unless_the_connection_has_been_idle_for_too_long(
    lab: LabCluster, unique_topic: str
) -> None:
    """Neither a close nor a reset by the sender takes it back. What ends it is the broker's own
    `connections.max.idle.ms`, ten minutes by default: so long after its last answer it has closed the connection."""
    lab.create_topic(unique_topic, partitions=4)
    everybody = QuotaEntity((("client-id", ""),))
    with closing(KafkaCluster(lab.cluster)) as kafka:
        topic_id = RawWriter(kafka, unique_topic).topic_id
        alter_quotas(kafka, everybody, {"producer_byte_rate": float(BYTES_S)})
        time.sleep(1.0)
        closed, reset, left, kept = senders = [
            Sender(lab, unique_topic, topic_id, number, size) for number, size in enumerate((SHORT, SHORT, LONG, LONG))
        ]
        time.sleep(LOOK_S)
        reset.connection.transport.drop_unsent_at_close()
        for sender in (closed, reset, left):
            sender.connection.close()
        landed_s: dict[Sender, float] = {}
        hung_up_s = 0.0
        began_s = time.monotonic()
        until_s = max(sender.throttled_until_s for sender in senders) + SLOW_S
        while (now_s := time.monotonic()) < until_s:
            ends = kafka.list_offsets([sender.named for sender in senders], OffsetKind.LOG_END)
            for sender in senders:
                if ends[sender.named] > 1:
                    landed_s.setdefault(sender, now_s)
            if not hung_up_s and kept.hung_up():
                hung_up_s = now_s - began_s
            time.sleep(LOOK_S)
        kept.connection.close()
        assert set(landed_s) == {closed, reset}
        assert all(sender.throttled_until_s - began_s > 2.0 for sender in (closed, reset))
        assert all(landed_s[sender] > sender.throttled_until_s - 1.0 for sender in (closed, reset))
        assert all(sender.throttled_until_s - began_s > IDLE_S + 2.0 for sender in (left, kept))
        assert IDLE_S - 3.0 < hung_up_s < IDLE_S + 6.0
