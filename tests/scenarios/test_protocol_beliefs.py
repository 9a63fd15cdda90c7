"""What the mirror leans on, shown on real brokers of two Kafka versions. If one breaks, a belt has broken."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from testkit.clients import delete_records
from testkit.raw_writer import RawWriter
from tests.scenarios.raw_writers_log import end_of, state_of
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.admin import alter_quotas
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import QuotaEntity
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchedPartitionById,
    FetchPartitionById,
    FetchResponseById,
    encode_fetch_by_id,
    parse_fetch_by_id,
)
from twinshore.kafka.protocol.produce import PRODUCE_KEY, PRODUCE_VERSION_BY_ID
from twinshore.kafka.protocol.record_batch import LOG_APPEND_TIME_FLAG, Record, encode_batch
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, ONE_COMPILER_FLAG

WEEK_MS = 7 * 24 * 3600 * 1000
pytestmark = pytest.mark.long

VERSIONS = [KAFKA_NEWEST, KAFKA_3]
# Swept each second, so that the default of 24 hours can be seen at work.
SETTINGS = {"producer.id.expiration.check.interval.ms": "1000", "unclean.leader.election.enable": "true"}


def fetched(kafka: KafkaCluster, writer: RawWriter, offset: int, last_fetched_epoch: int) -> FetchedPartitionById:
    """What the leader answers to a consumer that says which epoch its last record had."""
    epoch = kafka.partition_of(writer.partition, refresh=True).leader_epoch
    body = encode_fetch_by_id(
        max_bytes=1 << 20,
        isolation=1,
        partitions=[FetchPartitionById(writer.topic_id, 0, offset, epoch, last_fetched_epoch, 1 << 20)],
    )
    (part,) = parse_fetch_by_id(writer.leader.call_raw(FETCH_KEY, FETCH_VERSION, body), 0).partitions
    return part


@pytest.fixture(scope="module", params=VERSIONS)
def lab(request: pytest.FixtureRequest) -> Iterator[LabCluster]:
    with LabCluster(
        "beliefs", version=request.param, brokers=3, heap_mb=256, settings=SETTINGS, jvm_flags=(ONE_COMPILER_FLAG,)
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(lab: LabCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(lab.cluster)
    yield cluster
    cluster.close()


@pytest.fixture
def writer(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> RawWriter:
    lab.create_topic(unique_topic, copies=1)
    return RawWriter(kafka, unique_topic)


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def test_only_replica_minus_two_is_shown_the_log_end(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic, copies=3)
    writer = RawWriter(kafka, unique_topic)
    assert writer.write(5, 0).error == 0
    leader = kafka.leader_of(writer.partition)
    followers = [broker for broker in lab.brokers if broker.node_id != leader]
    for sequence in range(5, 30, 5):
        until(
            lambda: (
                len(create_admin_client(lab.cluster).list_topics(unique_topic).topics[unique_topic].partitions[0].isrs)
                == 3
            )
        )
        for follower in followers:
            follower.pause()
        try:
            assert writer.write(5, sequence, acks=1).error == 0
            ends = {kind: kafka.list_offsets([writer.partition], kind)[writer.partition] for kind in OffsetKind}
            last = sequence + 4
            assert state_of(writer) == (0, last), "DescribeProducers speaks of the log end"
            tail = kafka.read_tail_batch(writer.partition, last)
        finally:
            for follower in followers:
                follower.resume()
        assert (ends[OffsetKind.EARLIEST], ends[OffsetKind.LOG_END]) == (0, last + 1)
        # A follower that the leader already knows as fallen out holds nothing back, whatever the metadata that another
        # broker showed says: as happens on a busy machine, whose brokers miss their heartbeats. Then once more.
        if ends[OffsetKind.HIGH_WATERMARK] == sequence:
            break
    assert (ends[OffsetKind.HIGH_WATERMARK], ends[OffsetKind.LAST_STABLE], tail) == (sequence, sequence, None)
    until(lambda: kafka.list_offsets([writer.partition], OffsetKind.HIGH_WATERMARK)[writer.partition] == last + 1)
    tail = kafka.read_tail_batch(writer.partition, last)
    assert tail is not None
    assert (tail.base_offset, tail.last_offset, tail.producer_id) == (sequence, last, writer.producer_id)


def test_a_batch_sent_again_gets_its_old_offset(writer: RawWriter) -> None:
    for number in range(8):
        assert writer.write(3, 3 * number).base_offset == 3 * number
    for number in range(3, 8):
        again = writer.write(3, 3 * number)
        assert (again.error, again.base_offset) == (0, 3 * number)
    assert end_of(writer) == 24


def test_the_comparison_is_of_sequences_not_of_content(writer: RawWriter) -> None:
    assert writer.write(3, 0, value=b"one").base_offset == 0
    other = writer.write(3, 0, value=b"quite another content", time_ms=1)
    assert (other.error, other.base_offset) == (0, 0)
    assert end_of(writer) == 3


def test_older_than_five_batches_is_refused_and_nothing_is_written(writer: RawWriter) -> None:
    for number in range(8):
        assert writer.write(3, 3 * number).error == 0
    # Not 46, as the protocol's documents promise: only "out of sequence", as for data that was never written.
    assert {writer.write(3, 3 * number).error for number in range(3)} == {Code.out_of_order_sequence_number}
    assert end_of(writer) == 24


def test_a_gap_an_overlap_or_another_cut_is_out_of_sequence(writer: RawWriter) -> None:
    assert writer.write(4, 0).error == 0
    assert writer.write(4, 4).error == 0
    answers = {
        "gap": writer.write(2, 9).error,
        "overlap": writer.write(4, 6).error,
        "first half of the last": writer.write(2, 4).error,
        "both in one": writer.write(8, 0).error,
    }
    assert set(answers.values()) == {Code.out_of_order_sequence_number}, answers
    assert end_of(writer) == 8
    assert writer.write(1, 8).base_offset == 8


def test_an_unknown_producer_may_start_at_any_sequence(writer: RawWriter) -> None:
    first = writer.write(2, 123_456)
    assert (first.error, first.base_offset) == (0, 0)
    assert writer.write(2, 123_459).error == Code.out_of_order_sequence_number
    assert writer.write(2, 123_458).base_offset == 2


def test_sequences_wrap_from_two_to_the_31st_to_zero(writer: RawWriter) -> None:
    top = 2**31 - 1
    assert writer.write(5, top - 7).error == 0
    crossing = writer.write(6, top - 2)
    assert (crossing.error, crossing.base_offset) == (0, 5)
    assert state_of(writer) == (0, 2)
    again = writer.write(6, top - 2)
    assert (again.error, again.base_offset) == (0, 5)
    assert writer.write(1, 4).error == Code.out_of_order_sequence_number
    assert writer.write(1, 3).base_offset == 11


def test_a_batch_that_ends_at_the_last_sequence_is_followed_by_zero(writer: RawWriter) -> None:
    assert writer.write(3, 2**31 - 3).error == 0
    assert writer.write(1, 0).base_offset == 3


def test_producer_state_expires_by_the_age_of_the_data(writer: RawWriter) -> None:
    old_ms = int(time.time() * 1000) - WEEK_MS
    assert writer.write(3, 10, time_ms=old_ms).error == 0
    until(lambda: state_of(writer) is None)
    assert writer.write(3, 700, time_ms=old_ms).error == 0, "belt 2 is missing now: any sequence is taken"
    assert writer.write(3, 703).error == 0
    time.sleep(2.5)
    assert state_of(writer) == (0, 705), "fresh data is remembered"
    assert writer.write(3, 900).error == Code.out_of_order_sequence_number


def test_what_a_leader_refuses_in_a_batch(writer: RawWriter, lab: LabCluster, unique_topic: str) -> None:
    now_ms = int(time.time() * 1000)
    bounds = {"message.timestamp.after.max.ms": "3600000"}  # the default since Kafka 4.0
    writer.kafka.admin.alter_topic_settings(unique_topic, bounds, topic_id=writer.topic_id)
    until(lambda: writer.write(1, 0, time_ms=now_ms + 2 * 3600 * 1000).error == Code.invalid_timestamp)
    end = end_of(writer)  # some went through before the bound was in force
    assert writer.write(3, 0, count=2).error == Code.invalid_record, "count is not last offset delta + 1"
    assert writer.write(3, 0, last_offset_delta=5).error == Code.invalid_record
    assert writer.write(1, 0, attributes=0x20).error == Code.invalid_record, "the control bit"
    assert writer.write(1, 0, base_offset=7).error == Code.invalid_record, "a base offset that is not zero"
    one = encode_batch([Record(0, now_ms, b"k", b"v")])
    assert writer.send([one, one]).error == Code.invalid_record, "two batches"
    assert writer.send([one[:-1] + b"\xff"]).error == Code.corrupt_message
    assert end_of(writer) == end
    compacted = f"{unique_topic}-compacted"
    lab.create_topic(compacted, settings={"cleanup.policy": "compact"}, copies=1)
    keyless = RawWriter(writer.kafka, compacted)
    assert keyless.write(1, 0, key=None).error == Code.invalid_record
    assert end_of(keyless) == 0


def test_a_refused_batch_uses_up_no_sequence(writer: RawWriter) -> None:
    assert writer.write(3, 0).error == 0
    assert writer.write(3, 3, count=2).error == Code.invalid_record
    assert writer.write(3, 3).base_offset == 3


def test_an_open_timestamp_bound_lets_the_future_in(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic, settings={"message.timestamp.after.max.ms": str(2**63 - 1)}, copies=1)
    assert RawWriter(kafka, unique_topic).write(1, 0, time_ms=2**52).error == 0


def test_a_recreated_topic_refuses_the_old_id(
    writer: RawWriter, lab: LabCluster, kafka: KafkaCluster, unique_topic: str
) -> None:
    assert writer.write(1, 0).error == 0
    kafka.admin.delete_topic(unique_topic, topic_id=writer.topic_id)
    lab.create_topic(unique_topic, copies=1)
    until(lambda: kafka.metadata([unique_topic]).topics[unique_topic].topic_id not in (writer.topic_id, bytes(16)))
    until(lambda: end_of(writer) == 0)
    answer = writer.write(1, 1)
    if writer.leader.api_version(PRODUCE_KEY, PRODUCE_VERSION_BY_ID) == PRODUCE_VERSION_BY_ID:
        assert answer.error == Code.unknown_topic_id
        assert lab.version == KAFKA_NEWEST
    else:
        assert (answer.error, answer.base_offset) == (0, 0), "by name, data goes into the new topic: look before"
        assert lab.version == KAFKA_3
    body = encode_fetch_by_id(
        session_id=0,
        session_epoch=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation=0,
        partitions=[FetchPartitionById(writer.topic_id, 0, 0, -1, -1, 1 << 20)],
    )
    fetched = parse_fetch_by_id(writer.leader.call_raw(FETCH_KEY, FETCH_VERSION, body), 0)
    assert [one.error for one in fetched.partitions] == [Code.unknown_topic_id]


def test_markers_take_offsets_that_no_sequence_counts(writer: RawWriter) -> None:
    assert writer.write(5, 0).error == 0
    assert writer.mark(0) == 0
    assert writer.mark(0, times=1000) == 0
    assert end_of(writer) == 1006
    assert writer.kafka.list_offsets([writer.partition], OffsetKind.LAST_STABLE)[writer.partition] == 1006
    assert state_of(writer) == (0, 4)
    assert writer.write(2, 5).base_offset == 1006


def test_markers_fence_a_zombie(writer: RawWriter) -> None:
    assert writer.write(5, 0).error == 0
    assert writer.mark(7) == 0
    assert writer.mark(6) == Code.transaction_coordinator_fenced
    assert writer.mark(7) == 0
    assert writer.write(1, 5).error == 0, "markers of the same producer epoch do not fence data"
    assert writer.mark(8, epoch=1) == 0
    assert writer.write(1, 6).error == Code.invalid_producer_epoch
    assert writer.mark(9, epoch=0) == Code.invalid_producer_epoch
    assert writer.write(1, 6, epoch=1).error == Code.out_of_order_sequence_number, "a new epoch begins at 0"
    assert writer.write(1, 0, epoch=1).base_offset == 9


def test_a_marker_makes_an_unknown_producer_begin_at_zero(writer: RawWriter) -> None:
    old_ms = int(time.time() * 1000) - WEEK_MS
    until(lambda: writer.mark(0) == 0)
    assert state_of(writer) == (0, -1)
    assert writer.write(1, 55).error == Code.out_of_order_sequence_number
    assert writer.write(1, 0).base_offset == 1
    expired = RawWriter(writer.kafka, writer.partition.topic)
    assert expired.write(3, 10, time_ms=old_ms).error == 0
    until(lambda: state_of(expired) is None)
    assert expired.mark(0) == 0, "it carries the time of today, so it outlives the data around it"
    assert expired.write(3, 13, time_ms=old_ms).error == Code.out_of_order_sequence_number
    assert expired.write(3, 0, time_ms=old_ms).error == 0


def test_brokers_take_the_append_time_bit_away(writer: RawWriter) -> None:
    assert writer.write(1, 0, time_ms=5_000, attributes=LOG_APPEND_TIME_FLAG, max_timestamp=777_000).error == 0
    stored = writer.kafka.read_tail_batch(writer.partition, 0)
    assert stored is not None
    assert stored.attributes & LOG_APPEND_TIME_FLAG == 0, "so consumers would see 5 000 where the source showed 777 000"
    assert (stored.base_timestamp, stored.max_timestamp) == (5_000, 777_000)


def test_an_epoch_has_an_end(writer: RawWriter) -> None:
    assert writer.write(5, 0).error == 0
    epoch = writer.kafka.partition_of(writer.partition).leader_epoch
    assert writer.kafka.epoch_ends({writer.partition: epoch})[writer.partition] == (epoch, 5)


def test_a_fetch_names_where_the_histories_part(lab: LabCluster, kafka: KafkaCluster, unique_topic: str) -> None:
    """And what a source says of the epochs it lost, once an unclean leader has grown beyond its old end."""
    lab.create_topic(unique_topic, copies=2, settings={"min.insync.replicas": "1"})
    writer = RawWriter(kafka, unique_topic)
    named, brokers = writer.partition, {broker.node_id: broker for broker in lab.brokers}
    assert writer.write(5, 0).error == 0
    until(lambda: len(kafka.partition_of(named, refresh=True).isr) == 2)
    first = kafka.leader_of(named)
    (second,) = [node for node in kafka.partition_of(named).replicas if node != first]
    brokers[second].kill()
    until(lambda: kafka.partition_of(named, refresh=True).isr == (first,), 60)
    assert writer.write(5, 5, acks=1).error == 0
    until(lambda: kafka.read_batch(named, 9) is not None)
    tail = kafka.read_batch(named, 9)
    assert tail is not None
    old = tail[1].leader_epoch
    assert old == kafka.partition_of(named).leader_epoch, "a consumer is shown in which epoch a batch was written"
    brokers[first].kill()
    brokers[second].restart()
    try:
        until(lambda: kafka.partition_of(named, refresh=True).leader == second, 60)
        until(lambda: end_of(writer) == 5)
        other = RawWriter(kafka, unique_topic)
        assert other.write(10, 0, acks=1).error == 0
        before = kafka.read_batch(named, 4)
        now = kafka.partition_of(named).leader_epoch
        assert before is not None
        begin = before[1].leader_epoch
        assert now > old >= begin
        answers = [kafka.epoch_ends({named: epoch})[named] for epoch in (begin, old, now, now + 1)]
        assert answers == [(begin, 5), (begin, 5), (now, 15), (-1, -1)]
        parted = fetched(kafka, writer, 10, old)
        assert (parted.error, parted.diverging_epoch, bytes(parted.records)) == (0, (begin, 5), b"")
        unasked = fetched(kafka, writer, 10, -1)
        assert (unasked.error, unasked.diverging_epoch) == (0, None), "who names no epoch is told nothing"
        assert fetched(kafka, writer, 10, now).diverging_epoch is None
        assert fetched(kafka, writer, 10, now + 1).error == Code.offset_out_of_range, "an epoch that it never heard of"
        delete_records(lab.cluster, {named: 12})
        assert kafka.epoch_ends({named: begin})[named] == (begin, 12), "one below the log's start ends there"
    finally:
        brokers[first].restart()


def test_a_topic_that_is_not_there_is_named(kafka: KafkaCluster) -> None:
    with pytest.raises(KafkaError, match=r"beliefs: .* ghost-0: .*UNKNOWN_TOPIC_OR_PARTITION, code 3"):
        kafka.list_offsets([TopicPartition("ghost", 0)], OffsetKind.LOG_END)


def test_who_appended_reads_all_that_came_before(kafka: KafkaCluster, lab: LabCluster, unique_topic: str) -> None:
    """So the log's order decides who came first: each sees its own line and whatever stands before it."""
    StateTopic(kafka, unique_topic).make({}, lasting=True)
    start = threading.Barrier(6)

    def begin(number: int) -> list[bytes | None]:
        with closing(KafkaCluster(lab.cluster, patience_s=20)) as own:
            notebook = StateTopic(own, unique_topic)
            start.wait()
            notebook.append([(b"%d" % number, b"")], 5)
            return [note.key for notes, _ in notebook.pages(0) for note in notes]

    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(begin, range(6)))
    assert {keys[0] for keys in seen} == {seen[0][0]}
    assert all(b"%d" % number in keys for number, keys in enumerate(seen))
    assert all(longer[: len(shorter)] == shorter for shorter, longer in itertools.pairwise(sorted(seen, key=len)))


@pytest.mark.parametrize("lab", VERSIONS, indirect=True)
def test_a_throttled_fetch_brings_nothing_and_counts_for_nothing(kafka: KafkaCluster, writer: RawWriter) -> None:
    """And its session goes on. A fetch brings a whole batch at least, and the quota of ten seconds at most."""
    size = 100_000
    for number in range(8):
        assert writer.write(1, number, value=b"v" * size).error == 0
    everybody = QuotaEntity((("client-id", ""),))

    def fetch(session_id: int, epoch: int, most: int, *, asked: bool = True) -> FetchResponseById:
        ask = FetchPartitionById(writer.topic_id, 0, 0, -1, -1, 1 << 20)
        body = encode_fetch_by_id(
            session_id=session_id,
            session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=most,
            isolation=0,
            partitions=[ask] if asked else [],
        )
        return parse_fetch_by_id(writer.leader.call_raw(FETCH_KEY, FETCH_VERSION, body), 0)

    found: list[FetchResponseById] = []

    def brings(session_id: int, epoch: int, most: int, *, asked: bool = True) -> bool:
        found.append(fetch(session_id, epoch, most, asked=asked))
        return bool(found[-1].partitions)

    try:
        alter_quotas(kafka, everybody, {"consumer_byte_rate": 8000.0})
        until(lambda: fetch(0, -1, 1).throttle_ms > 0)
        for _ in range(2):  # Not even after the time it was told: the batch is more than the quota of ten seconds.
            refused = fetch(0, 0, 1)
            assert (refused.error, refused.session_id, refused.partitions) == (0, 0, []), "no session is opened"
            assert 1400 < refused.throttle_ms < 2600, "it counted for nothing the last time"
        alter_quotas(kafka, everybody, {"consumer_byte_rate": 50_000.0})
        # The quota is altered in two places of the broker, one after the other: between them, one batch still passes.
        until(lambda: brings(0, 0, 10 << 20) and len(found[-1].partitions[0].records) > 2 * size)
        (part,) = found[-1].partitions
        assert len(part.records) <= 10 * 50_000
        assert found[-1].throttle_ms == 0
        session = found[-1].session_id
        told = [fetch(session, epoch, 2 * size, asked=False) for epoch in (1, 2)]
        assert all(one.throttle_ms > 0 and one.partitions == [] and one.error == 0 for one in told)
        assert [one.session_id for one in told] == [session, session]
        # Had the first counted, it were two seconds more; the span that brokers look back on varies by one.
        assert told[1].throttle_ms < told[0].throttle_ms + 1100
        alter_quotas(kafka, everybody, {"consumer_byte_rate": None})
        epochs = itertools.count(3)
        until(lambda: brings(session, next(epochs), 1, asked=False))
        assert len(found[-1].partitions[0].records) > size, "the session brings it later, a whole batch"
    finally:
        alter_quotas(kafka, everybody, {"consumer_byte_rate": None})
