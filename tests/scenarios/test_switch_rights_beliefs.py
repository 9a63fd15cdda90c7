"""What a switch leans on as it keeps writers out by ACL, shown on real brokers of two Kafka versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from testkit.raw_writer import RawWriter
from tests.scenarios.switch_stage import Stage, add_rules, drop_rules, rules_of_ids, staged, until, write_rule
from twinshore.config.model import TopicPartition
from twinshore.kafka.admin import create_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import ANY_USER, PatternType
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, read_produce_response
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, make_filler
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

VERSIONS = [KAFKA_NEWEST, KAFKA_3]
pytestmark = pytest.mark.long
PATIENCE_S = 20.0


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with staged(request.param) as found:
        yield found


@pytest.fixture
def topic(stage: Stage, unique_topic: str) -> str:
    """One that anna may write to."""
    stage.lab.create_topic(unique_topic, copies=1)
    add_rules(stage, [write_rule(unique_topic), *rules_of_ids()])
    return unique_topic


class Pen:
    """Writes to one partition as a producer without an id, over a line of its own."""

    def __init__(self, stage: Stage, kafka: KafkaCluster, named: TopicPartition) -> None:
        seen = stage.kafka.metadata([named.topic]).topics[named.topic]
        self.node = seen.partitions[named.partition].leader
        self.line = kafka.dial(self.node)
        self.version = self.line.handwritten_version(PRODUCE_KEY)
        self._named, self._topic_id = named, seen.topic_id

    def write(self) -> int:
        part = (self._named.partition, b"", RawWriter.batch(1))
        body = b"".join(encode_produce(self.version, [(self._named.topic, self._topic_id, [part])]))
        return (
            read_produce_response(self.line.call_raw(PRODUCE_KEY, self.version, body), 0, self.version)
            .appended[0]
            .error
        )


def code_for(stage: Stage, user: str, topic: str) -> int:
    """What the leader says to this user's record."""
    with closing(KafkaCluster(stage.lab.cluster_as(user))) as kafka:
        pen = Pen(stage, kafka, TopicPartition(topic, 0))
        with closing(pen.line):
            return pen.write()


REFUSED = Code.topic_authorization_failed


def test_a_denial_beats_whatever_allows(stage: Stage, unique_topic: str) -> None:
    stage.lab.create_topic(unique_topic, copies=1)
    denial = write_rule(unique_topic, deny=True)
    for allowance in (
        write_rule(unique_topic),
        write_rule(unique_topic[:-2], pattern=PatternType.PREFIXED),
        write_rule("*"),
        write_rule(unique_topic, ANY_USER),
    ):
        assert code_for(stage, "anna", unique_topic) == REFUSED
        add_rules(stage, [allowance])
        assert code_for(stage, "anna", unique_topic) == 0
        add_rules(stage, [denial])
        assert code_for(stage, "anna", unique_topic) == REFUSED, allowance
        drop_rules(stage, [denial])
        assert code_for(stage, "anna", unique_topic) == 0
        drop_rules(stage, [allowance])


def test_a_denial_of_everybody_stops_our_own_user_too(stage: Stage, unique_topic: str) -> None:
    """So a rule that allows everybody is taken away for the while, and none is denied to everybody. `bob` is us."""
    stage.lab.create_topic(unique_topic, copies=1)
    everybody, ours = write_rule(unique_topic, ANY_USER), write_rule(unique_topic, "User:bob")
    denial = write_rule(unique_topic, ANY_USER, deny=True)
    users = ("anna", "bob", "admin")
    add_rules(stage, [everybody, ours])
    assert [code_for(stage, user, unique_topic) for user in users] == [0, 0, 0]
    add_rules(stage, [denial])
    assert [code_for(stage, user, unique_topic) for user in users] == [REFUSED, REFUSED, 0], "all but super users"
    drop_rules(stage, [denial, everybody])
    assert [code_for(stage, user, unique_topic) for user in users] == [REFUSED, 0, 0]


def test_a_broker_enforces_what_it_shows(stage: Stage, unique_topic: str) -> None:
    """The answer to a new rule is the controller's; each broker hears of it by itself, tenths of a second later."""
    stage.lab.create_topic(unique_topic, partitions=3, copies=1)
    allowed, denial = write_rule(unique_topic), write_rule(unique_topic, deny=True)
    add_rules(stage, [allowed])
    pens = [Pen(stage, stage.anna, TopicPartition(unique_topic, number)) for number in range(3)]
    assert len({pen.node for pen in pens}) == 3
    after_shown: list[int] = []
    refused_at: list[float] = []

    def race(pen: Pen) -> None:
        with closing(KafkaCluster(stage.lab.cluster)) as kafka:
            while denial not in (read_acls(kafka, pen.node) or set()):
                pass
            after_shown.append(pen.write())
            refused_at.append(time.monotonic())

    lags: list[float] = []
    for _ in range(3):
        racers = [threading.Thread(target=race, args=(pen,)) for pen in pens]
        for racer in racers:
            racer.start()
        assert not create_acls(stage.kafka, [denial])
        answered = time.monotonic()
        for racer in racers:
            racer.join()
        lags += [at - answered for at in refused_at]
        refused_at.clear()
        drop_rules(stage, [denial])
    for pen in pens:
        pen.line.close()
    assert after_shown == [REFUSED] * 9
    assert max(lags) < 3.0


def test_what_was_let_in_before_a_denial_is_appended_after_it(stage: Stage, unique_topic: str) -> None:
    """A request's rights are judged once, before its first append: so ends still move when every leader shows the
    denial, and whoever reads them waits for what is under way."""
    stage.lab.create_topic(unique_topic, partitions=60, copies=1)
    allowed, denial = write_rule(unique_topic), write_rule(unique_topic, deny=True)
    add_rules(stage, [allowed])
    seen = stage.kafka.metadata([unique_topic]).topics[unique_topic]
    node = seen.partitions[0].leader
    mine = [TopicPartition(unique_topic, one.partition) for one in seen.partitions if one.leader == node]
    large = make_filler(FILLER_RECORDS_MAX)
    head = large.encode_header(-1, -1, -1)
    with closing(stage.anna.dial(node)) as line:
        version = line.handwritten_version(PRODUCE_KEY)
        parts: list[tuple[int, bytes, Buffer]] = [(named.partition, head, large.body) for named in mine]
        line.begin(PRODUCE_KEY, version, encode_produce(version, [(unique_topic, seen.topic_id, parts)]), timeout_s=60)
        assert not create_acls(stage.kafka, [denial])
        until(lambda: denial in (read_acls(stage.kafka, node) or set()))
        early = stage.kafka.list_offsets(mine, OffsetKind.LOG_END)
        found = line.finish(60.0)
        answers = read_produce_response(found.view[found.position :], 0, version).appended
    assert {one.error for one in answers} == {0}
    late = stage.kafka.list_offsets(mine, OffsetKind.LOG_END)
    assert sum(late.values()) > sum(early.values())


class Application:
    """A producer of librdkafka under load: what became of each record, in the order in which it was told."""

    def __init__(self, stage: Stage, topic: str, **settings: Any) -> None:
        self.told: list[tuple[int, str, int]] = []
        self.raised: list[str] = []
        base = {**client_settings(stage.lab.cluster_as("anna")), "linger.ms": 2, "batch.num.messages": 10}
        self.producer = Producer({**base, **settings})
        self._topic, self._number = topic, 0

    def write(self, records: int) -> None:
        for _ in range(records):
            number = self._number

            def tell(error: Any, message: Any, number: int = number) -> None:
                self.told.append((number, error.name() if error else "", -1 if error else message.offset()))

            try:
                self.producer.produce(self._topic, b"%d" % number, on_delivery=tell)
                self._number += 1
            except KafkaException as error:
                self.raised.append(error.args[0].name())
        self.producer.poll(0)

    def load(self, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            self.write(10)
            time.sleep(0.005)

    def offsets(self) -> list[int]:
        return [offset for _, error, offset in self.told if not error]

    def failed(self) -> list[tuple[int, str]]:
        return [(number, error) for number, error, _ in self.told if error]


def under_load(stage: Stage, application: Application, topic: str) -> None:
    """A denial comes while it writes, and goes again."""
    denial = write_rule(topic, deny=True)
    application.load(0.2)
    assert application.producer.flush(PATIENCE_S) == 0
    assert not application.failed()
    running = threading.Thread(target=application.load, args=(1.0,))
    running.start()
    add_rules(stage, [denial])
    running.join()
    application.producer.flush(PATIENCE_S)
    drop_rules(stage, [denial])


def test_an_idempotent_producer_is_told_of_each_record_and_goes_on(stage: Stage, topic: str) -> None:
    """It loses its place in nothing: each record under way comes back once, those that were written in their order and
    the others as errors, batches of them sometimes out of turn; later ones are refused at once, and after the denial
    it goes on with the next epoch of its id."""
    application = Application(stage, topic, **{"enable.idempotence": True})
    under_load(stage, application, topic)
    failed = application.failed()
    assert failed
    assert {error for _, error in failed} == {"TOPIC_AUTHORIZATION_FAILED"}
    assert sorted(number for number, _, _ in application.told) == list(range(len(application.told))), "each once"
    written = [number for number, error, _ in application.told if not error]
    assert written == sorted(written)
    assert set(application.raised) <= {"TOPIC_AUTHORIZATION_FAILED"}
    before = len(application.offsets())

    def taken() -> bool:
        application.write(5)
        application.producer.flush(PATIENCE_S)
        return len(application.offsets()) > before

    until(taken)
    assert application.offsets() == list(range(len(application.offsets()))), "nothing twice, nothing out of order"
    named = TopicPartition(topic, 0)
    assert stage.kafka.list_offsets([named], OffsetKind.LOG_END)[named] == len(application.offsets())
    (state,) = stage.kafka.describe_producers([named])[named]
    assert state.epoch > 0


def test_a_producer_without_gaps_is_ended_by_a_denial(stage: Stage, topic: str) -> None:
    application = Application(stage, topic, **{"enable.idempotence": True, "enable.gapless.guarantee": True})
    application.write(50)
    assert application.producer.flush(PATIENCE_S) == 0
    denial = write_rule(topic, deny=True)
    add_rules(stage, [denial])
    with pytest.raises(KafkaException, match="gap-less"):
        application.load(PATIENCE_S)
    drop_rules(stage, [denial])
    application.write(1)
    assert application.raised[-1] == "_FATAL", "for good"


class Transactional:
    """Words for a transactional producer: each says what came of it, by librdkafka's name."""

    def __init__(self, stage: Stage, topic: str) -> None:
        settings = {**client_settings(stage.lab.cluster_as("anna")), "linger.ms": 2, "transactional.id": topic}
        self.producer = Producer(settings)
        self.producer.init_transactions(PATIENCE_S)
        self._topic = topic

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self) -> list[str]:
        told: list[str] = []
        self.producer.produce(
            self._topic, b"x", on_delivery=lambda error, _: told.append(error.name() if error else "")
        )
        self.producer.flush(PATIENCE_S)
        return told

    def commit(self) -> tuple[str, bool, bool]:
        return self._ended(self.producer.commit_transaction)

    def abort(self) -> tuple[str, bool, bool]:
        return self._ended(self.producer.abort_transaction)

    def _ended(self, end: Any) -> tuple[str, bool, bool]:
        """Its name, whether the transaction is to be aborted, whether the producer is done for."""
        try:
            end(PATIENCE_S)
        except KafkaException as error:
            told = error.args[0]
            return told.name(), told.txn_requires_abort(), told.fatal()
        return "", False, False


DONE = ("", False, False)
TO_ABORT = ("TOPIC_AUTHORIZATION_FAILED", True, False)


def test_a_transaction_that_wrote_before_a_denial_may_commit(stage: Stage, topic: str) -> None:
    denial, writer, named = write_rule(topic, deny=True), Transactional(stage, topic), TopicPartition(topic, 0)
    writer.begin()
    assert writer.write() == [""]
    add_rules(stage, [denial])
    assert writer.commit() == DONE
    until(lambda: stage.kafka.list_offsets([named], OffsetKind.LAST_STABLE)[named] == 2)
    drop_rules(stage, [denial])
    writer.begin()
    assert writer.write() == [""]
    assert writer.commit() == DONE


def test_a_transaction_that_meets_a_denial_is_aborted_and_the_next_but_one_goes_on(stage: Stage, topic: str) -> None:
    denial, writer, named = write_rule(topic, deny=True), Transactional(stage, topic), TopicPartition(topic, 0)
    writer.begin()
    assert writer.write() == [""]
    add_rules(stage, [denial])
    assert writer.write() == ["TOPIC_AUTHORIZATION_FAILED"]
    assert writer.commit() == TO_ABORT
    assert writer.abort() == DONE
    until(lambda: stage.kafka.list_offsets([named], OffsetKind.LAST_STABLE)[named] == 2)
    drop_rules(stage, [denial])
    # The refused batch used up a sequence of the client's: its next transaction is refused once more.
    ends = []

    def committed() -> bool:
        writer.begin()
        try:
            writer.write()
        except KafkaException as error:
            ends.append(error.args[0].name())
            return writer.abort() != DONE
        ends.append(writer.commit()[0])
        return not ends[-1] or writer.abort() != DONE

    until(committed)
    assert not ends[-1]


def test_a_transaction_that_begins_under_a_denial_ends_its_producer(stage: Stage, topic: str) -> None:
    """The coordinator never took its partition, so that there is nothing to abort: librdkafka takes that for fatal."""
    denial, writer, named = write_rule(topic, deny=True), Transactional(stage, topic), TopicPartition(topic, 0)
    writer.begin()
    add_rules(stage, [denial])
    assert writer.write() == ["_PURGE_QUEUE"]
    assert writer.commit() == TO_ABORT
    assert writer.abort() == ("INVALID_TXN_STATE", False, True)
    assert stage.kafka.list_offsets([named], OffsetKind.LOG_END)[named] == 0
    drop_rules(stage, [denial])
    again = Transactional(stage, topic)
    again.begin()
    assert again.write() == [""]
    assert again.commit() == DONE
