"""A broker behind the proxy dies and comes back under clients: nothing is lost, and the other cluster's go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.conftest import ClusterFactory
from tests.proxy.served import ProxyProcess, proxy_before
from tests.scenarios.mirror_rig import read_all
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.core.model import FAN_OUT_TIMEOUT_S
from twinshore.state.core.values import HomeRow
from twinshore.state.store import open_store

AWAY_S = 6.0
SLOWEST_S = 2.0
GOES = HomeRow("east<>north", "proxy-goes", "north", 1, 1, "test")
DOWN = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Writer:
    """Writes numbers to a topic until it is ended, and knows which were acknowledged and how long each took."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[object] = []
        self.slowest_s = 0.0
        self._topic, self._stop = topic, threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 2}
        self._producer = Producer({**settings, "reconnect.backoff.max.ms": 500, "message.timeout.ms": 60_000})
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def end(self) -> list[int]:
        """What it wrote, all of it acknowledged."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert self._producer.flush(60) == 0
        assert self.failed == []
        return self.acknowledged

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            self._send(number)
            number += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        began_s = time.monotonic()

        def heard(error: object, _: Message) -> None:
            if error is not None:
                self.failed.append(error)
                return
            self.acknowledged.append(number)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

        self._producer.produce(self._topic, str(number), on_delivery=heard)


@pytest.mark.long
@pytest.mark.claim("proxy", "dead", "a dead cluster behind the proxy costs topics on the other one nothing")
def test_a_killed_broker_comes_back_and_nothing_is_lost_or_written_twice(
    east: LabCluster, cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    north = cluster_factory("north")
    east.create_topic("proxy-steady")
    north.create_topic("proxy-shaken")
    for lab in (east, north):
        lab.create_topic("proxy-goes")
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.homes.settle([GOES])
    with proxy_before(tmp_path, east.cluster, north.cluster) as proxy:
        steady, shaken = Writer(proxy.bootstrap, "proxy-steady"), Writer(proxy.bootstrap, "proxy-shaken")
        reader = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": "shaken",
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        reader.subscribe(["proxy-shaken", "proxy-steady"])
        read: dict[str, list[int]] = {"proxy-shaken": [], "proxy-steady": []}
        take(reader, read, until=lambda: all(len(one) > 50 for one in read.values()))
        steady.slowest_s = 0.0
        north.brokers[0].kill()
        began_s = time.monotonic()
        take(reader, read, until=lambda: time.monotonic() - began_s > AWAY_S)
        assert steady.slowest_s < SLOWEST_S, "the other cluster's topics wait for nothing"
        print(f"told: slowest answer to a producer of the other cluster's topic meanwhile {steady.slowest_s:.2f} s")
        north.brokers[0].launch()
        north.brokers[0].wait_ready()
        wrote = len(shaken.acknowledged)
        take(reader, read, until=lambda: len(shaken.acknowledged) > wrote + 100)
        written = {"proxy-steady": steady.end(), "proxy-shaken": shaken.end()}
        take(reader, read, until=lambda: all(len(read[topic]) >= len(ours) for topic, ours in written.items()))
        reader.close()
        assert read == written
        assert f"cluster {north.name} answers again" in proxy.said()
        for lab, topic in ((east, "proxy-steady"), (north, "proxy-shaken")):
            assert len(read_all(lab.cluster, topic, 0)) == len(written[topic]), "none is there twice"
        _a_topic_is_followed_to_where_it_has_had_fewer_leaders(proxy, east, north)
        _a_cluster_that_hangs_holds_up_nobody_for_long(proxy, north)


def _a_topic_is_followed_to_where_it_has_had_fewer_leaders(
    proxy: ProxyProcess, east: LabCluster, north: LabCluster
) -> None:
    with closing(KafkaCluster(east.cluster)) as there, closing(KafkaCluster(north.cluster)) as here:
        goes = TopicPartition(GOES.topic, 0)
        assert there.partition_of(goes).leader_epoch < here.partition_of(goes).leader_epoch
    writer = Writer(proxy.bootstrap, GOES.topic)
    wait_until(lambda: len(writer.acknowledged) > 50)
    with open_store(proxy.url) as store:
        assert store.homes.move(replace(GOES, home="east"), seen=1) is not None
    wait_until(lambda: bool(read_all(east.cluster, GOES.topic, 0)))
    wrote = writer.end()
    found = [len(read_all(lab.cluster, GOES.topic, 0)) for lab in (north, east)]
    assert sum(found) == len(wrote)
    assert min(found) > 0


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


def _a_cluster_that_hangs_holds_up_nobody_for_long(proxy: ProxyProcess, north: LabCluster) -> None:
    north.brokers[0].pause()
    try:
        for within_s in (FAN_OUT_TIMEOUT_S + SLOWEST_S, SLOWEST_S):
            began_s = time.monotonic()
            # It asks for all topics first, and so of both clusters.
            writer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 2})
            writer.list_topics(timeout=30)
            writer.produce("proxy-steady", "while the other hangs")
            assert writer.flush(30) == 0
            assert time.monotonic() - began_s < within_s, "it is known by now"
            until_s = time.monotonic() + 30
            while proxy.health()[1]["clusters"][north.name]["answers"]:
                assert time.monotonic() < until_s
                time.sleep(0.1)
    finally:
        north.brokers[0].resume()


def take(reader: Consumer, read: dict[str, list[int]], *, until: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 90
    while not until():
        assert time.monotonic() < give_up_s, {topic: len(ours) for topic, ours in read.items()}
        for message in reader.consume(500, timeout=0.2):
            error = message.error()
            if error is None:
                read[message.topic() or ""].append(int(message.value() or b""))
            else:
                # librdkafka tells of brokers that are down, and goes on.
                assert error.retriable() or error.code() in DOWN, error
