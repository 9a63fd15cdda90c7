"""What markers, fillers and cuts lean on, shown on real brokers of two Kafka versions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.clients import delete_records
from testkit.raw_writer import RawWriter
from tests.scenarios.incident_stage import QUICK
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind, ProducerState
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.transactions import (
    FILLER_RECORDS_MAX,
    LOG_ENDS_KEY,
    LOG_ENDS_VERSION,
    MARKERS_KEY,
    MARKERS_VERSION,
    LogEnd,
    TransactionMarker,
    encode_list_offsets,
    encode_markers,
    make_filler,
    parse_list_offsets,
    parse_markers,
)
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.replication.task.core.markers import marker_producer_id

pytestmark = pytest.mark.long

WEEK_MS = 7 * 24 * 3600 * 1000
SETTINGS = {"producer.id.expiration.check.interval.ms": "1000"}


@pytest.fixture(scope="module", params=[KAFKA_NEWEST, KAFKA_3])
def lab(request: pytest.FixtureRequest) -> Iterator[LabCluster]:
    with LabCluster(
        "markers", version=request.param, brokers=1, jvm_flags=QUICK, heap_mb=384, settings=SETTINGS
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(lab: LabCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(lab.cluster)
    yield cluster
    cluster.close()


@pytest.fixture
def writer(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> RawWriter:
    lab.create_topic(unique_topic, partitions=4, copies=1)
    return RawWriter(kafka, unique_topic)


def ends(writer: RawWriter, partitions: Sequence[int] = (0,), epoch: int = -1) -> list[LogEnd]:
    body = encode_list_offsets([(writer.partition.topic, [(partition, epoch) for partition in partitions])])
    answered = parse_list_offsets(writer.leader.call_raw(LOG_ENDS_KEY, LOG_ENDS_VERSION, body), 0)
    # A broker answers in whatever order it likes.
    return sorted(answered, key=lambda one: one.partition)


def end_of(writer: RawWriter) -> int:
    (found,) = ends(writer)
    assert not found.error
    return found.end


def mark(writer: RawWriter, runs: Sequence[tuple[int, int, Sequence[int]]], producer_id: int = -1) -> dict[int, int]:
    """Writes (times, coordinator epoch, partitions) as one request; the code of each partition."""
    ours = producer_id if producer_id >= 0 else marker_producer_id(writer.producer_id)
    topic = writer.partition.topic
    wanted = [
        (TransactionMarker(ours, 0, False, epoch, [(topic, partitions)]), times) for times, epoch, partitions in runs
    ]
    view = writer.leader.call_raw(MARKERS_KEY, MARKERS_VERSION, encode_markers(wanted))
    return {one.partition: one.error for one in parse_markers(view, 0)}


def states(writer: RawWriter) -> dict[int, ProducerState]:
    return {one.producer_id: one for one in writer.kafka.describe_producers([writer.partition])[writer.partition]}


def seen(lab: LabCluster, topic: str, isolation: str) -> list[int]:
    """The offsets that a consumer is given."""
    consumer = Consumer(
        {
            **client_settings(lab.cluster),
            "group.id": f"seen-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[int] = []
    try:
        consumer.assign([ClientTopicPartition(topic, 0, -2)])
        while True:
            message = consumer.poll(20.0)
            assert message is not None
            if error := message.error():
                assert error.name() == "_PARTITION_EOF", error
                return found
            found.append(message.offset() or 0)
    finally:
        consumer.close()


def test_markers_under_an_id_of_their_own_leave_our_sequence_alone(lab: LabCluster, writer: RawWriter) -> None:
    assert writer.write(5, 0).error == 0
    assert mark(writer, [(1000, 3, [0])]) == {0: 0}
    assert end_of(writer) == 1005
    assert states(writer)[writer.producer_id].last_sequence == 4
    ours = states(writer)[marker_producer_id(writer.producer_id)]
    assert (ours.last_sequence, ours.coordinator_epoch, ours.current_txn_start) == (-1, 3, -1)
    assert writer.kafka.list_offsets([writer.partition], OffsetKind.LAST_STABLE)[writer.partition] == 1005
    assert writer.write(2, 6).error == Code.out_of_order_sequence_number
    assert writer.write(2, 5).base_offset == 1005
    for isolation in ("read_committed", "read_uncommitted"):
        assert seen(lab, writer.partition.topic, isolation) == [0, 1, 2, 3, 4, 1005, 1006]


def test_a_forgotten_writer_stays_forgotten_under_markers(writer: RawWriter) -> None:
    """So a marker of the writer's own id, which would bring it back with a sequence that begins at 0, is never sent."""
    old_ms = int(time.time() * 1000) - WEEK_MS
    assert writer.write(3, 10, time_ms=old_ms).error == 0
    deadline = time.monotonic() + 20.0
    while writer.producer_id in states(writer):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert mark(writer, [(2, 0, [0])]) == {0: 0}
    assert writer.producer_id not in states(writer)
    assert writer.write(3, 900, time_ms=old_ms).base_offset == 5


def test_one_request_marks_many_partitions_each_as_often_as_it_needs(writer: RawWriter) -> None:
    # A new leader answers 3 for a moment; this waits until all serve.
    writer.kafka.list_offsets(
        [TopicPartition(writer.partition.topic, number) for number in range(4)], OffsetKind.LOG_END
    )
    assert mark(writer, [(1, 0, [0, 1, 2, 3]), (4, 0, [1, 2]), (5000, 0, [2])]) == dict.fromkeys(range(4), 0)
    assert [one.end for one in ends(writer, range(4))] == [1, 5, 5005, 1]


def test_later_markers_of_a_request_hide_what_befell_earlier_ones(writer: RawWriter) -> None:
    """Why the log's end, and no code, says what came of a run."""
    assert mark(writer, [(1, 5, [0])]) == {0: 0}
    assert mark(writer, [(3, 4, [0]), (1, 5, [0])]) == {0: 0}
    assert end_of(writer) == 2
    assert mark(writer, [(1, 6, [0]), (3, 5, [0])]) == {0: Code.transaction_coordinator_fenced}
    assert end_of(writer) == 3


def test_a_log_end_is_told_in_the_leader_epoch_that_is_named_alone(lab: LabCluster, writer: RawWriter) -> None:
    """What a marker request cannot name: whoever asks so, as a debugging replica even, learns that the leader moved."""
    assert writer.write(3, 0).error == 0
    epoch = writer.kafka.partition_of(writer.partition).leader_epoch
    (now,) = ends(writer, epoch=epoch)
    assert (now.error, now.end) == (0, 3)
    (later,) = ends(writer, epoch=epoch + 1)
    assert later.error == Code.unknown_leader_epoch
    lab.brokers[0].restart()
    with closing(KafkaCluster(lab.cluster)) as kafka:
        after = RawWriter(kafka, writer.partition.topic)
        now_led = kafka.partition_of(writer.partition).leader_epoch
        assert now_led > epoch, "the same broker leads again, in another epoch"
        (old,) = ends(after, epoch=epoch)
        assert old.error == Code.fenced_leader_epoch
        (again,) = ends(after, epoch=now_led)
        assert (again.error, again.end) == (0, 3)


def test_fillers_take_offsets_and_are_cut_off(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic, copies=1, settings={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    writer = RawWriter(kafka, unique_topic)
    whole, rest = make_filler(FILLER_RECORDS_MAX), make_filler(345)
    at = 0
    for one in (whole, whole, whole, rest):
        head = one.encode_header(writer.producer_id, writer.epoch, at)
        answer = writer.send([head + one.body])
        assert (answer.error, answer.base_offset) == (0, at)
        at += one.header.count
    assert end_of(writer) == at
    cut = at - 45
    ids = {unique_topic: writer.topic_id}
    assert kafka.delete_records({writer.partition: cut}, ids) == {writer.partition: cut}
    assert kafka.list_offsets([writer.partition], OffsetKind.EARLIEST)[writer.partition] == cut
    assert delete_records(lab.cluster, {writer.partition: at}) == {writer.partition: at}
    assert writer.write(2, at).error == 0
    assert seen(lab, unique_topic, "read_uncommitted") == [at, at + 1]


def test_delete_records_needs_delete_in_the_policy(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic, copies=1, settings={"cleanup.policy": "compact"})
    writer = RawWriter(kafka, unique_topic)
    assert writer.write(3, 0).error == 0
    with pytest.raises(Exception, match="POLICY_VIOLATION"):
        kafka.delete_records({writer.partition: 2}, {unique_topic: writer.topic_id})
