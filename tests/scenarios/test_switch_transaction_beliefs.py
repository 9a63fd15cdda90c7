"""What a switch leans on where transactions are open, shown on real brokers of two Kafka versions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest
from kio.schema.end_txn.v3 import EndTxnRequest, EndTxnResponse
from kio.schema.list_transactions.v0 import ListTransactionsRequest, ListTransactionsResponse
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16

from testkit.raw_writer import RawWriter
from tests.scenarios.switch_stage import Stage, add_rules, drop_rules, rules_of_ids, seen, staged, until, write_rule
from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind, ProducerState
from twinshore.kafka.metadata import NO_LEADER
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.record_batch import HEADER_BYTES, split_batches
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    TRANSACTIONS_KEY,
    TransactionMarker,
    encode_describe_transactions,
    encode_markers,
    parse_describe_transactions,
    parse_markers,
)
from twinshore.kafka.transactional_ids import OPEN_STATES, TransactionalIds, TransactionalProducer
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

VERSIONS = [KAFKA_NEWEST, KAFKA_3]
pytestmark = pytest.mark.long
TRANSACTIONAL = 0x10
BY_NAME_IN_TRANSACTIONS = 11
PATIENCE_S = 20.0
LOG = "__transaction_state"
UNKNOWN_ID = 105


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with staged(request.param) as found:
        add_rules(found, rules_of_ids())
        yield found


@pytest.fixture
def parts(stage: Stage, unique_topic: str) -> list[TopicPartition]:
    """Each on a broker of its own; anna may write there."""
    stage.lab.create_topic(unique_topic, partitions=3, copies=1)
    add_rules(stage, [write_rule(unique_topic)])
    return [TopicPartition(unique_topic, number) for number in range(3)]


def talk_of(kafka: KafkaCluster) -> TransactionalIds:
    return TransactionalIds(kafka, patience_s=PATIENCE_S, go=lambda: None)


def ends(stage: Stage, parts: list[TopicPartition], kind: OffsetKind = OffsetKind.LOG_END) -> list[int]:
    return list(stage.kafka.list_offsets(parts, kind).values())


def stable(stage: Stage, parts: list[TopicPartition]) -> list[int]:
    return ends(stage, parts, OffsetKind.LAST_STABLE)


def produce(
    kafka: KafkaCluster, writer: TransactionalProducer, named: TopicPartition, sequence: int, records: int = 2
) -> int:
    """The code for one batch of the writer's transaction."""
    line = kafka.connection_to(kafka.leader_of(named))
    version = min(BY_NAME_IN_TRANSACTIONS, line.handwritten_version(PRODUCE_KEY))
    data = RawWriter.batch(records)
    ((_, header),) = split_batches(memoryview(data))
    batch = RawWriter.sealed(
        header._replace(
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=sequence,
            attributes=header.attributes | TRANSACTIONAL,
        ),
        data[HEADER_BYTES:],
    )
    topic = (named.topic, bytes(16), [(named.partition, b"", batch)])
    body = b"".join(encode_produce(version, [topic], transactional_id=writer.name))
    return read_produce_response(line.call_raw(PRODUCE_KEY, version, body), 0, version).appended[0].error


def hash_of(name: str) -> int:
    """By which an id's part of the log of transactions is found: what Java makes of the text, without its sign."""
    found = 0
    for letter in name:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return 0 if found == 1 << 31 else min(found, (1 << 32) - found)


def coordinator_of(kafka: KafkaCluster, name: str) -> int:
    parts = kafka.metadata([LOG], refresh=True).topics[LOG].partitions
    return kafka.leader_of(TopicPartition(LOG, hash_of(name) % len(parts)))


def commit(stage: Stage, writer: TransactionalProducer) -> int:
    """What the coordinator says to anna."""
    request = EndTxnRequest(
        transactional_id=TransactionalId(writer.name),
        producer_id=ProducerId(writer.producer_id),
        producer_epoch=i16(writer.epoch),
        committed=True,
    )
    line = stage.anna.connection_to(coordinator_of(stage.kafka, writer.name))
    return int(line.call(request, EndTxnResponse).error_code)


def listed_at(kafka: KafkaCluster, node: int, states: tuple[str, ...] = OPEN_STATES) -> dict[str, str]:
    """The state of each transactional id that this broker coordinates and that is in one of these states."""
    answer = kafka.connection_to(node).call(ListTransactionsRequest(state_filters=states), ListTransactionsResponse)
    assert not answer.error_code
    return {str(one.transactional_id): str(one.transaction_state) for one in answer.transaction_states}


def listed(kafka: KafkaCluster, nodes: Iterable[int], states: tuple[str, ...] = OPEN_STATES) -> dict[str, str]:
    """The same of all brokers."""
    return {name: state for node in nodes for name, state in listed_at(kafka, node, states).items()}


def open_state(stage: Stage, writer: TransactionalProducer) -> str:
    """Empty where no coordinator lists a transaction of the writer that is open."""
    return listed(stage.kafka, stage.nodes).get(writer.name, "")


def state_of(stage: Stage, named: TopicPartition, writer: TransactionalProducer) -> ProducerState | None:
    states = stage.kafka.describe_producers([named])[named]
    return next((one for one in states if one.producer_id == writer.producer_id), None)


def test_an_open_transaction_without_data_is_seen_at_its_coordinator_alone(
    stage: Stage, parts: list[TopicPartition]
) -> None:
    talk, denial = talk_of(stage.anna), write_rule(parts[0].topic, deny=True)
    writer = talk.acquire(parts[0].topic, 60.0)
    assert not talk.begin(writer, parts[:2])
    assert open_state(stage, writer) == "Ongoing"
    assert talk_of(stage.kafka).open_of(writer.name) == set(parts[:2])
    assert state_of(stage, parts[0], writer) is None, "DescribeProducers does not know of it"
    assert ends(stage, parts) == stable(stage, parts) == [0, 0, 0]
    add_rules(stage, [denial])
    assert talk.begin(writer, parts[2:]) == {parts[2]: Code.topic_authorization_failed}
    assert produce(stage.anna, writer, parts[0], 0) == Code.topic_authorization_failed
    talk.abort(writer)
    talk.complete(writer)
    assert ends(stage, parts) == [1, 1, 0], "its markers are appended, denied or not"
    assert not open_state(stage, writer)


def test_an_operator_ends_a_transaction_by_taking_its_id(stage: Stage, parts: list[TopicPartition]) -> None:
    """With its marker in the log at once; the client of before can only start anew."""
    talk, denial = talk_of(stage.anna), write_rule(parts[0].topic, deny=True)
    writer = talk.acquire(parts[0].topic, 60.0)
    assert not talk.begin(writer, parts[:1])
    assert produce(stage.anna, writer, parts[0], 0) == 0
    assert (ends(stage, parts), stable(stage, parts)) == ([2, 0, 0], [0, 0, 0])
    add_rules(stage, [denial])
    taken = talk_of(stage.kafka).acquire(writer.name, 60.0)
    assert (taken.producer_id, taken.epoch) == (writer.producer_id, writer.epoch + 2)
    assert ends(stage, parts) == stable(stage, parts) == [3, 0, 0]
    assert listed(stage.kafka, stage.nodes, ())[writer.name] == "Empty"
    with pytest.raises(KafkaError) as caught:
        talk.abort(writer)
    assert caught.value.code == Code.producer_fenced
    drop_rules(stage, [denial])
    assert produce(stage.anna, writer, parts[0], 2) == Code.invalid_producer_epoch
    with pytest.raises(KafkaError) as caught:
        talk.begin(writer, parts[:1])
    assert caught.value.code == Code.producer_fenced


def test_a_transaction_whose_client_is_gone_ends_in_spite_of_denials(stage: Stage, parts: list[TopicPartition]) -> None:
    talk = talk_of(stage.anna)
    writer = talk.acquire(parts[0].topic, 2.0)
    assert not talk.begin(writer, parts[:1])
    began = time.monotonic()
    assert produce(stage.anna, writer, parts[0], 0) == 0
    add_rules(stage, [write_rule(parts[0].topic, deny=True)])
    assert ends(stage, parts) == [2, 0, 0]
    until(lambda: ends(stage, parts) == [3, 0, 0])
    assert 1.5 < time.monotonic() - began < 10.0, "the client's time, and the coordinator's next look"
    until(lambda: not open_state(stage, writer))


def mark(stage: Stage, writer: TransactionalProducer, named: TopicPartition, coordinator_epoch: int) -> int:
    marker = TransactionMarker(
        writer.producer_id, writer.epoch, False, coordinator_epoch, [(named.topic, [named.partition])]
    )
    line = stage.kafka.connection_to(stage.kafka.leader_of(named))
    (one,) = parse_markers(line.call_raw(MARKERS_KEY, MARKERS_VERSION, encode_markers([(marker, 1)])))
    return one.error


def test_an_abort_by_hand_tears_what_its_client_commits(stage: Stage, parts: list[TopicPartition]) -> None:
    """Its coordinator knows nothing of it, and the client is told that all was committed."""
    talk = talk_of(stage.anna)
    writer = talk.acquire(parts[0].topic, 60.0)
    assert not talk.begin(writer, parts[:1])
    assert produce(stage.anna, writer, parts[0], 0, 3) == 0
    assert mark(stage, writer, parts[0], 0) == 0
    assert stable(stage, parts[:1]) == [4], "readers go on"
    assert open_state(stage, writer) == "Ongoing"
    assert produce(stage.anna, writer, parts[0], 3, 2) == 0, "the client as well"
    assert commit(stage, writer) == 0
    until(lambda: not open_state(stage, writer))
    assert seen(stage.lab, parts[0], "read_committed") == [4, 5]
    assert seen(stage.lab, parts[0], "read_uncommitted") == [0, 1, 2, 4, 5]


def test_a_marker_above_the_coordinators_epoch_locks_the_id(stage: Stage, parts: list[TopicPartition]) -> None:
    """Its coordinator's own marker is refused ever after: the transaction never completes, nobody gets the id."""
    talk = talk_of(stage.anna)
    writer = talk.acquire(parts[0].topic, 60.0)
    assert not talk.begin(writer, parts[:1])
    assert produce(stage.anna, writer, parts[0], 0) == 0
    assert mark(stage, writer, parts[0], 1000) == 0
    assert commit(stage, writer) == 0
    time.sleep(1.0)
    assert open_state(stage, writer) == "PrepareCommit"
    assert ends(stage, parts[:1]) == [3], "no marker of the coordinator's"
    with pytest.raises(KafkaError) as caught:
        TransactionalIds(stage.anna, patience_s=1.0, go=lambda: None).acquire(writer.name, 60.0)
    assert caught.value.code == Code.concurrent_transactions


def id_in(partition: int, partitions: int) -> str:
    """An id that nobody uses, in this part of the log of transactions."""
    return next(name for number in range(10_000) if hash_of(name := f"probe-{number}") % partitions == partition)


def loaded(kafka: KafkaCluster) -> bool:
    """Whether each part of the log of transactions has a coordinator that has read it. Until then its broker lists
    nothing of it, and mostly without an error; asked about an id it says so."""
    parts = kafka.metadata([LOG], refresh=True).topics[LOG].partitions
    if any(one.leader == NO_LEADER for one in parts):
        return False
    for one in parts:
        line = kafka.connection_to(one.leader)
        body = encode_describe_transactions([id_in(one.partition, len(parts))])
        view = line.call_raw(TRANSACTIONS_KEY, line.handwritten_version(TRANSACTIONS_KEY), body)
        (told,) = parse_describe_transactions(view, 0)
        if told.error != UNKNOWN_ID:
            assert told.error in (Code.not_coordinator, Code.coordinator_load_in_progress)
            return False
    return True


def test_a_dead_site_that_returns_ends_what_was_open_by_itself(stage: Stage, parts: list[TopicPartition]) -> None:
    """Denied or not, some markers twice. Nothing more comes once every coordinator has loaded its log and none lists a
    transaction that is open."""
    talk, topic = talk_of(stage.anna), parts[0].topic
    gone, owed = talk.acquire(f"{topic}-gone", 12.0), talk.acquire(f"{topic}-owed", 60.0)
    for writer in (gone, owed):
        assert not talk.begin(writer, parts)
        assert [produce(stage.anna, writer, one, 0) for one in parts] == [0, 0, 0]
    add_rules(stage, [write_rule(topic, deny=True)])
    coordinator = coordinator_of(stage.kafka, owed.name)
    away = next(one for one in stage.lab.brokers if one.node_id != coordinator)
    away.stop()
    assert commit(stage, owed) == 0, "answered before its markers are there: one cannot be written now"
    assert listed_at(stage.kafka, coordinator)[owed.name] == "PrepareCommit"
    for broker in stage.lab.brokers:
        if broker.alive:
            broker.kill()
    for broker in stage.lab.brokers:
        broker.launch()
    for broker in stage.lab.brokers:
        broker.wait_ready()
    with closing(KafkaCluster(stage.lab.cluster)) as kafka:
        until(lambda: loaded(kafka) and not {gone.name, owed.name} & listed(kafka, stage.nodes).keys())
        settled = list(kafka.list_offsets(parts, OffsetKind.LOG_END).values())
        assert list(kafka.list_offsets(parts, OffsetKind.LAST_STABLE).values()) == settled
        # Two batches and two markers each; what was written before the site died is written again.
        assert all(6 <= end <= 8 for end in settled), settled
        time.sleep(1.0)
        assert list(kafka.list_offsets(parts, OffsetKind.LOG_END).values()) == settled
    for named in parts:
        assert len(seen(stage.lab, named, "read_committed")) == 2, "what was committed"
