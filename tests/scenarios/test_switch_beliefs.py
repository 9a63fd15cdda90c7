"""What a switch leans on beside rights and transactions, shown on real brokers of two Kafka versions: the marker fence,
claims in a compacted topic, and a topic that is deleted and made again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from testkit.clients import alter_brokers
from testkit.raw_writer import RawWriter
from tests.scenarios.held_request import Held
from tests.scenarios.raw_writers_log import end_of, state_of
from tests.scenarios.switch_stage import Stage, seen, staged, until
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import NO_LEADER, NO_TOPIC_ID, read_metadata
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchPartitionById,
    encode_fetch_by_id,
    parse_fetch_by_id,
)
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.kafka.state_topic import StateTopic
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

VERSIONS = [KAFKA_NEWEST, KAFKA_3]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with staged(request.param) as found:
        yield found


@pytest.fixture
def link(stage: Stage, unique_topic: str) -> RawWriter:
    """The producer of an old link, before its first batch."""
    stage.lab.create_topic(unique_topic, copies=1)
    return RawWriter(stage.kafka, unique_topic)


def fence(link: RawWriter) -> int:
    return link.mark(0, epoch=link.epoch + 1)


def stable_end(link: RawWriter) -> int:
    return link.kafka.list_offsets([link.partition], OffsetKind.LAST_STABLE)[link.partition]


def test_a_marker_of_the_next_epoch_shuts_the_old_link_out(stage: Stage, link: RawWriter) -> None:
    assert link.write(5, 0).error == 0
    held = Held(link, 2, 5)
    assert fence(link) == 0
    assert end_of(link) == stable_end(link) == 6, "it takes one offset"
    assert state_of(link) == (link.epoch + 1, -1)
    assert link.write(2, 5).error == Code.invalid_producer_epoch
    assert held.let_go().error == Code.invalid_producer_epoch, "sent before the fence, there after it"
    assert link.write(5, 0).error == Code.invalid_producer_epoch, "not told as a duplicate any more, though it is one"
    assert link.mark(0) == Code.invalid_producer_epoch, "markers of the old epoch are shut out as well"
    for isolation in ("read_committed", "read_uncommitted"):
        assert seen(stage.lab, link.partition, isolation) == [0, 1, 2, 3, 4]
    assert end_of(link) == 6


def test_who_takes_the_next_epoch_begins_at_zero(link: RawWriter) -> None:
    following = link.epoch + 1
    assert link.write(5, 0).error == 0
    assert fence(link) == 0
    assert link.write(2, 5, epoch=following).error == Code.out_of_order_sequence_number
    assert link.write(2, 0, epoch=following).base_offset == 6, "the fence stops the epochs before it alone"
    assert fence(link) == 0
    assert end_of(link) == 9, "a fence that is written again is one more offset"
    assert link.write(2, 2, epoch=following).base_offset == 9


def test_a_fence_holds_where_the_link_never_wrote(stage: Stage, link: RawWriter) -> None:
    held = Held(link, 2, 0)
    assert fence(link) == 0
    assert state_of(link) == (link.epoch + 1, -1)
    assert [link.write(2, sequence).error for sequence in (0, 55)] == [Code.invalid_producer_epoch] * 2
    assert held.let_go().error == Code.invalid_producer_epoch
    assert end_of(link) == stable_end(link) == 1
    assert seen(stage.lab, link.partition, "read_committed") == []


def test_a_fence_is_forgotten_with_its_producer(stage: Stage, link: RawWriter) -> None:
    """A day after it was written, by default: who was held back for longer is let in, at any sequence."""
    expiry, day_ms = "producer.id.expiration.ms", 24 * 3600 * 1000
    assert link.write(5, 0).error == 0
    assert fence(link) == 0
    nodes = tuple(stage.nodes)
    alter_brokers(stage.lab.cluster, nodes, {expiry: "1500"})
    try:
        until(lambda: state_of(link) is None)
    finally:
        alter_brokers(stage.lab.cluster, nodes, {expiry: str(day_ms)})
    assert link.write(2, 77).base_offset == 6


def led_by(stage: Stage, prefix: str, node: int) -> RawWriter:
    """A topic of one copy on this broker."""
    for number in range(12):
        stage.lab.create_topic(f"{prefix}-{number}", copies=1)
        link = RawWriter(stage.kafka, f"{prefix}-{number}")
        if stage.kafka.leader_of(link.partition) == node:
            return link
    raise AssertionError("each broker is given some topic")


def test_a_fence_outlives_its_leader_and_its_brokers_death(stage: Stage, unique_topic: str) -> None:
    stage.lab.create_topic(unique_topic, copies=3)
    moved = RawWriter(stage.kafka, unique_topic)
    leader = stage.kafka.leader_of(moved.partition)
    stayed = led_by(stage, unique_topic, leader)
    until(lambda: len(stage.kafka.partition_of(moved.partition, refresh=True).isr) == 3)
    for link in (moved, stayed):
        assert link.write(5, 0).error == 0
        assert fence(link) == 0
    broker = next(one for one in stage.lab.brokers if one.node_id == leader)
    broker.kill()
    try:
        until(lambda: stage.kafka.partition_of(moved.partition, refresh=True).leader not in (leader, NO_LEADER))
        assert end_of(moved) == 6
        assert moved.write(2, 5).error == Code.invalid_producer_epoch
    finally:
        broker.restart()
    until(lambda: stage.kafka.partition_of(stayed.partition, refresh=True).leader == leader)
    assert end_of(stayed) == 6
    assert stayed.write(2, 5).error == Code.invalid_producer_epoch
    assert state_of(stayed) == (stayed.epoch + 1, -1)


def test_two_claims_of_one_key_agree_until_the_topic_is_compacted(stage: Stage, unique_topic: str) -> None:
    """The log's order decides for whoever reads now. Later the older claim of a key is cleaned away, and the younger
    one is the first: so each claimant has a key of its own, or terms are compared."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    StateTopic(stage.kafka, unique_topic).make(settings, lasting=True)
    start = threading.Barrier(2)

    def claim(who: bytes) -> list[bytes | None]:
        with closing(KafkaCluster(stage.lab.cluster)) as kafka:
            notebook = StateTopic(kafka, unique_topic)
            start.wait()
            notebook.append([(b"orders", who)], wall_ms())
            return [note.value for notes, _ in notebook.pages(0) for note in notes]

    with ThreadPoolExecutor(2) as pool:
        seen_by = list(pool.map(claim, (b"one", b"two")))
    first, second = max(seen_by, key=len)
    assert {claims[0] for claims in seen_by} == {first}
    notebook = StateTopic(stage.kafka, unique_topic)

    def cleaned() -> bool:
        notebook.append([(b"other", b"")], wall_ms())  # the last segment is never cleaned
        time.sleep(0.2)
        return [note.value for notes, _ in notebook.pages(0) for note in notes if note.key == b"orders"] == [second]

    until(cleaned)


def ids_shown(stage: Stage, topic: str) -> list[bytes]:
    """The topic's id as each broker knows it now; none where there is no such topic."""
    lines = [stage.kafka.connection_to(node) for node in stage.nodes]
    seen_there = [read_metadata(line, [topic], timeout_s=10.0).topics[topic] for line in lines]
    return [NO_TOPIC_ID if one.error else one.topic_id for one in seen_there]


def test_a_deleted_topics_name_is_free_at_once_and_its_id_is_refused(stage: Stage, unique_topic: str) -> None:
    """The controller's word is at once; each broker follows within half a second, so each is asked for the new id."""
    stage.lab.create_topic(unique_topic, copies=3)
    old = RawWriter(stage.kafka, unique_topic)
    assert old.write(5, 0).error == 0
    stage.kafka.admin.delete_topic(unique_topic, topic_id=old.topic_id)
    stage.kafka.admin.create_topic(unique_topic, partitions=1, replication_factor=3)
    until(lambda: not {old.topic_id, NO_TOPIC_ID} & set(ids_shown(stage, unique_topic)))
    assert len(set(ids_shown(stage, unique_topic))) == 1
    new = RawWriter(stage.kafka, unique_topic)
    assert end_of(new) == 0, "an empty log"
    asked = encode_fetch_by_id(
        session_id=0,
        session_epoch=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation=0,
        partitions=[FetchPartitionById(old.topic_id, 0, 0, -1, -1, 1 << 20)],
    )
    (part,) = parse_fetch_by_id(new.leader.call_raw(FETCH_KEY, FETCH_VERSION, asked), 0).partitions
    assert part.error == Code.unknown_topic_id
    # A producer of Kafka 3 knows no ids: what it sends late goes into the new topic.
    late = new.send([new.batch(1)], topic_id=old.topic_id)
    assert (late.error, late.base_offset) == ((Code.unknown_topic_id, -1) if stage.newest else (0, 0))


def test_places_go_with_their_topic_and_may_be_put_back_once_it_is_new(stage: Stage, unique_topic: str) -> None:
    stage.lab.create_topic(unique_topic, copies=3)
    stage.lab.create_topic(f"{unique_topic}-other", copies=3)
    where, other, group = (unique_topic, 0), (f"{unique_topic}-other", 0), unique_topic
    topic_id = RawWriter(stage.kafka, unique_topic).topic_id
    with closing(ConsumerGroups(stage.kafka)) as groups:
        until(lambda: group in groups.coordinators([group]))
        node = groups.coordinators([group])[group]

        def places() -> dict[TopicPartitionTuple, int]:
            found, _ = groups.places({node: {group: None}}, {})
            return {place: one.offset for place, one in found[group].places.items()}

        def put(place: TopicPartitionTuple, offset: int) -> bool:
            return groups.commit({node: {group: {place: CommittedOffset(offset)}}}) == {group: {place: 0}}

        until(lambda: put(where, 3) and put(other, 4))
        assert places() == {where: 3, other: 4}
        stage.kafka.admin.delete_topic(unique_topic, topic_id=topic_id)
        stage.kafka.admin.create_topic(unique_topic, partitions=1, replication_factor=3)
        # Before its coordinator has heard of the deletion a place would be taken, and would go with the old topic.
        until(lambda: not {topic_id, NO_TOPIC_ID} & set(ids_shown(stage, unique_topic)))
        until(lambda: places() == {other: 4})
        assert put(where, 1)
        time.sleep(1.0)
        assert places() == {where: 1, other: 4}
