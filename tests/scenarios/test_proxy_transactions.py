"""Producers of transactions come through a proxy, exactly once from one topic to another, also while both move."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.plain_clients import PlainWriter, records_there
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_groups_home import move_groups
from tests.scenarios.test_proxy_switch import proxies
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.operations.groups_move import GroupsMoveStage

pytestmark = pytest.mark.usefixtures("no_topics_of_earlier_modules")


@pytest.fixture(scope="module")
def proxy(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    east.create_topic("proxy-tx")
    west.create_topic("proxy-tx-west")
    with proxy_before(tmp_path_factory.mktemp("proxy"), east.cluster, west.cluster) as made:
        yield made


def transactional(bootstrap: str, name: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 2})
    made.init_transactions(60)
    return made


def numbers_in(lab: LabCluster, topic: str, partitions: int = 1) -> list[int]:
    return sorted(number for _, _, number in records_there(lab, topic, partitions))


def test_transactions_are_committed_and_aborted(proxy: ProxyProcess, east: LabCluster) -> None:
    producer = transactional(proxy.bootstrap, "tx-1")
    for number in range(6):
        producer.begin_transaction()
        producer.produce("proxy-tx", f"{number}", "key")
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert numbers_in(east, "proxy-tx") == [0, 2, 4]


def test_one_who_comes_later_shuts_out_who_came_before(proxy: ProxyProcess, east: LabCluster) -> None:
    first = transactional(proxy.bootstrap, "tx-2")
    first.begin_transaction()
    first.produce("proxy-tx", "100", "key")
    first.flush(30)
    second = transactional(proxy.bootstrap, "tx-2")
    with pytest.raises(KafkaException):
        first.commit_transaction(30)
    second.begin_transaction()
    second.produce("proxy-tx", "101", "key")
    second.commit_transaction(30)
    assert 101 in numbers_in(east, "proxy-tx")
    assert 100 not in numbers_in(east, "proxy-tx")


def test_a_topic_elsewhere_is_refused_and_the_transaction_can_be_aborted(proxy: ProxyProcess, east: LabCluster) -> None:
    producer = transactional(proxy.bootstrap, "tx-3")
    producer.begin_transaction()
    producer.produce("proxy-tx-west", "200", "key")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("proxy-tx", "201", "key")
    producer.commit_transaction(30)
    assert 201 in numbers_in(east, "proxy-tx")


class Copier:
    """Reads one topic and writes another one, exactly once; an error that lets it abort makes it begin again."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self._bootstrap, self._source, self._target = bootstrap, source, target
        self.aborted = 0
        self.copied = 0
        self.fatal: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": f"copier-{self._source}", "log_level": 2}
        settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        while not self._stopping.is_set():
            consumer = Consumer({**settings, "enable.auto.commit": False})
            consumer.subscribe([self._source])
            try:
                self._copy(consumer, transactional(self._bootstrap, f"copier-{self._source}"))
            except KafkaException as error:
                if not self._stopping.is_set():
                    self.fatal.append(str(error))
            finally:
                consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer) -> None:
        while not self._stopping.is_set():
            found = [one for one in consumer.consume(50, 0.2) if one.error() is None]
            if not found:
                continue
            try:
                producer.begin_transaction()
                for one in found:
                    producer.produce(self._target, one.value(), one.key(), one.partition() or 0)
                places = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 30)
                self._commit(producer)
                self.copied += len(found)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self.aborted += 1
                producer.abort_transaction(30)
                self._rewind(consumer)

    def _commit(self, producer: Producer) -> None:
        """A call that waits for groups to come behind a switch may time out, and is made again."""
        while True:
            try:
                return producer.commit_transaction(30)
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping.is_set():
                    raise

    def _rewind(self, consumer: Consumer) -> None:
        """To where the last transaction that was committed ended."""
        while not self._stopping.is_set():
            try:
                for place in consumer.committed(consumer.assignment(), 30):
                    if place.offset >= 0:
                        consumer.seek(place)
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                time.sleep(0.2)
            else:
                return

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.mark.long
@pytest.mark.claim("proxy", "transactions", "exactly once from topic to topic while both move, and groups with them")
def test_exactly_once_goes_along_with_its_topics_and_groups(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    topics = "proxy-eos-in", "proxy-eos-out"
    east.create_topic(topics[1], partitions=3)
    with carried(east, west, "proxy-eos-in", tmp_path, more=[topics[1]]) as rig, proxies(rig, 1) as some:
        fill(east, topics[1], 1)
        writer = PlainWriter(some[0].bootstrap, topics[0], 200)
        copier = Copier(some[0].bootstrap, *topics)
        try:
            until(lambda: copier.copied > 300, 90, "it copies")
            said = rig.switch("run", *topics, "--to", "west", "--yes")
            assert said.code == 0, said.text + some[0].said()
            assert move_groups(rig, "west")[-1] is GroupsMoveStage.MOVE
            count = copier.copied + 300
            until(lambda: copier.copied > count, 120, "it copies on")
            acked = writer.stop()
            until(lambda: len(records_there(west, topics[1], 3)) >= len(acked), 120, "it copies all")
        finally:
            writer.stop()
            copier.stop()
        one, other = (Counter((key, number) for _, key, number in records_there(west, topic, 3)) for topic in topics)
        assert one == other and max(other.values()) == 1
        assert len(one) == len(acked) and writer.failed == []
        print(f"told: {len(one)} records, each copied once; {copier.aborted} transactions aborted")
        assert copier.fatal == [], copier.fatal
