"""All brokers of a cluster are killed under load of the proxy's clients: what had crossed unanswered is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from testkit.errors import mentions
from testkit.jars import fetch_tools_classpath
from tests.conftest import ClusterFactory
from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.plain_clients import Acked, JavaWriter, PlainWriter, Written, written
from tests.scenarios.switch_rig import QUICK, SwitchRig
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import proxies
from twinshore.lab.jars import ONE_COMPILER_FLAG, find_java
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S

PARTITIONS = 3
WRITERS = 3


@dataclass
class Stage:
    """Producers of librdkafka, and one of Java, write through a proxy to a topic at home on east, whose twin is on
    west."""

    rig: SwitchRig
    proxy: ProxyProcess
    writers: list[PlainWriter]
    java: JavaWriter

    def strand(self) -> None:
        """Brokers take what they are sent, and nobody hears of it: the proxy stands still meanwhile."""
        (broker,) = self.rig.east.brokers
        broker.pause()
        time.sleep(1.5)
        os.kill(self.proxy.process.pid, signal.SIGSTOP)
        broker.resume()

    def crosses(self) -> None:
        """All that the old home took."""

        def level() -> bool:
            return self.rig.ends(self.rig.east) == self.rig.ends(self.rig.west)

        for _ in range(2):
            until(level, 60, "all of it crosses")
            time.sleep(0.3)

    def kill(self) -> None:
        for broker in self.rig.east.brokers:
            broker.kill()

    def moved(self) -> None:
        """By force, while clients try again and again."""
        said = self.rig.move("west", "--force")
        assert said.code == 0, said.text

    def stop(self) -> list[Acked]:
        """Once each producer has written some more; all that was acknowledged."""
        count = [len(one.acked) for one in self.writers]
        until(lambda: all(len(one.acked) > was + 100 for one, was in zip(self.writers, count, strict=True)), 90, "more")
        self.java.writes(100)
        acked = [one for writer in self.writers for one in writer.stop()] + self.java.stop()
        assert [one.failed for one in self.writers] == [[]] * WRITERS, self.proxy.said()
        assert self.java.failed() == [], self.java.said()
        return acked

    def there(self, acked: list[Acked]) -> Written:
        return written(self.rig.west, self.rig.topic, acked, PARTITIONS)

    def counted(self, name: str) -> int:
        return int(self.proxy.metrics()[f"twinshore_proxy_{name}_records_total"])


@contextmanager
def staged(
    cluster_factory: ClusterFactory, folder: Path, topic: str, mirror: Mapping[str, object] = QUICK
) -> Iterator[Stage]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(topic, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        fill(east, topic, 10, partition=number)
    links = {"east->west": topic, "west->east": topic}
    made = Rig(folder, settings_text(folder, [east.cluster, west.cluster], links, mirror=mirror))
    made.process.start()
    with ExitStack() as stack:
        stack.callback(made.process.end)
        until(lambda: spans(west.cluster, topic, PARTITIONS) == [(0, 10)] * PARTITIONS, 120, "carried")
        rig = SwitchRig(made, topic, east, west, PARTITIONS)
        (proxy,) = stack.enter_context(proxies(rig, 1))
        writers = [PlainWriter(proxy.bootstrap, topic, 300, name=f"w{number}") for number in range(WRITERS)]
        for one in writers:
            stack.callback(one.stop)
        java = JavaWriter(folder, proxy.bootstrap, topic, 300)
        stack.callback(java.kill)
        java.writes(200)
        yield Stage(rig, proxy, writers, java)


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "forced-known",
    "all brokers are killed under load: what had crossed without its acknowledgement is known again, and there once",
)
def test_what_had_crossed_unanswered_is_known_again(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """All that the old home took has crossed, so nothing at all is lost."""
    with staged(cluster_factory, tmp_path, "proxy-known") as stage:
        stage.strand()
        stage.crosses()
        stage.kill()
        time.sleep(SUBSCRIPTION_LEASE_S)
        os.kill(stage.proxy.process.pid, signal.SIGCONT)
        stage.moved()
        acked = stage.stop()
        found, known = stage.there(acked), stage.counted("deduplicated")
        assert known > 0, "or nothing was at stake"
        assert (found.records, found.wrong) == (len(acked), 0), (found, stage.proxy.said())
        assert stage.counted("possible_duplicate") == 0, stage.proxy.said()
        print(
            f"told: {found.records} records of {WRITERS + 1} producers, 0 lost, doubled or reordered;"
            f" {known} came again and were there"
        )


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "forced-counted", "the mirror dies before it has told the store: what may be there twice is counted"
)
def test_what_the_mirror_had_not_told_is_counted(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    # It carries on for as long as its lease, while the store takes nothing.
    with staged(cluster_factory, tmp_path, "proxy-unsure", {**QUICK, "lease_s": 30}) as stage:
        with closing(sqlite3.connect(tmp_path / "store.db", timeout=30)) as locked:
            locked.execute("BEGIN IMMEDIATE")
            stage.strand()
            stage.crosses()
            stage.rig.rig.process.child.send(signal.SIGKILL)
            stage.kill()
        time.sleep(SUBSCRIPTION_LEASE_S)
        os.kill(stage.proxy.process.pid, signal.SIGCONT)
        stage.moved()
        acked = stage.stop()
        found, unsure = stage.there(acked), stage.counted("possible_duplicate")
        assert (found.lost, found.doubled > 0) == (0, True), "or nothing was at stake"
        assert found.doubled <= unsure, stage.proxy.said()
        assert mentions(stage.proxy.said(), "written twice")
        print(f"told: {found.doubled} records are there twice, {unsure} were counted that might be")


class JavaConsole:
    """Kafka's console consumer of one partition, from its beginning on: offset and value of each record."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self._said, self._log = folder / "console.said", folder / "console.log"
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"]
        words += ["--formatter-property", "print.offset=true"]
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        command = [find_java(), ONE_COMPILER_FLAG, "-cp", fetch_tools_classpath(), tool, *words]
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=said, stderr=log)

    def read(self) -> list[tuple[int, str]]:
        lines = [one.split("\t") for one in self._said.read_text().split("\n")[:-1]]
        return [(int(offset.removeprefix("Offset:")), value) for offset, value in lines]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def said(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "forced-cut", "a consumer that had read what never crossed is told, and reads what is there instead"
)
def test_who_had_read_what_never_crossed_is_told(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """The new home's records lie at the offsets that they had read: without a word they would go on behind these."""
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic = "proxy-cut"
    east.create_topic(topic)
    fill(east, topic, 10)
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": topic}, mirror=QUICK))
    made.process.start()
    with ExitStack() as stack:
        stack.callback(made.process.end)
        until(lambda: spans(west.cluster, topic, 1) == [(0, 10)], 120, "carried")
        rig = SwitchRig(made, topic, east, west, 1)
        (proxy,) = stack.enter_context(proxies(rig, 1))
        usual = {"bootstrap.servers": proxy.bootstrap, "group.id": "none", "auto.offset.reset": "error", "log_level": 2}
        reader = Consumer({**usual, "enable.auto.commit": False})  # the groups' home dies
        stack.callback(reader.close)
        reader.assign([TopicPartition(topic, 0, 0)])
        console = JavaConsole(tmp_path, proxy.bootstrap, topic)
        stack.callback(console.kill)
        made.process.child.send(signal.SIGSTOP)
        fill(east, topic, 20)
        assert len(reader.consume(30, 30)) == 30
        until(lambda: len(console.read()) == 30, 60, "both have read it")
        for broker in east.brokers:
            broker.kill()
        made.process.child.send(signal.SIGKILL)  # what it had been sent meanwhile would cross yet
        said = rig.move("west", "--force")
        assert said.code == 0, said.text
        (point,) = rig.record()["topics"][0]["points"]
        assert point == 10
        fill(west, topic, 40)
        until(lambda: bool(_cuts(reader)), 60, "librdkafka's reader is told")
        until(lambda: len(console.read()) >= 70, 60, console.said())
        behind = [offset for offset, _ in console.read()[30:]]
        assert behind == list(range(point + 1, point + 41)), "behind the fence"
    print("told: both had read 20 records that never crossed; both were told, and 40 of 40 records were read instead")


def _cuts(reader: Consumer) -> list[KafkaError]:
    found = [one.error() for one in reader.consume(10, 0.2)]
    return [one for one in found if one is not None and "truncation" in one.str()]
