"""Consumers behind proxies of a topic that is protected with `--read both`: they see no record that a switch loses."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.plain_clients import Place, PlainWriter, records_there
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import proxies
from twinshore.lab.cluster import LabCluster

PARTITIONS = 3


def protect(rig: SwitchRig, level: str) -> None:
    """One broker a side is weak, as the verb says."""
    words = ("--level", level, "--read", "both", "--alone-after", "4", "--even-weak")
    assert f"topic {rig.topic} is {level}" in rig.rig.verb("protection", "set", rig.topic, *words)


class Reader:
    """Reads all partitions from the beginning, without a group, in a thread. `read`: what writers wrote, as it came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 2}
        self._consumer = Consumer(
            {**settings, "auto.offset.reset": "error", "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 100}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.read: list[tuple[Place, str, int]] = []
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for one in self._consumer.consume(500, 0.1):
                if (error := one.error()) is not None:
                    self.errors.append(error.str())
                elif (value := (one.value() or b"").decode()).isdigit():
                    place = one.partition() or 0, int(one.offset() or 0)
                    self.read.append((place, (one.key() or b"").decode(), int(value)))
        self._consumer.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def at_stake(rig: SwitchRig, home: LabCluster, twin: LabCluster, writer: PlainWriter) -> list[tuple[Place, str, int]]:
    """The mirror stands still, a consumer past the proxy sees more than the twin has, and the home dies."""
    with Reader(",".join(home.cluster.bootstrap), rig.topic) as past:
        until(lambda: len(past.read) >= len(writer.acked), 60, "it has read what is there")
        rig.rig.process.child.send(signal.SIGSTOP)
        until(lambda: len(past.read) > len(records_there(twin, rig.topic, PARTITIONS)), 60, "it sees more than crossed")
        for broker in home.brokers:
            broker.kill()
        rig.rig.process.child.send(signal.SIGCONT)
        return list(past.read)


def protected_partitions(proxy: ProxyProcess, topic: str) -> float:
    """Until a new twin is level, the home that was switched to acknowledges alone, and consumers read all it has."""
    found = proxy.metrics().items()
    return sum(n for name, n in found if "protected_partitions" in name and topic in name and '"protected"' in name)


@pytest.mark.claim("protection", "reads", "read = both: in forced switches no consumer saw a record that was lost")
@pytest.mark.parametrize("switches", [1, pytest.param(3, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_no_consumer_sees_a_record_that_a_forced_switch_loses(
    cluster_factory: ClusterFactory, tmp_path: Path, switches: int
) -> None:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic = f"read-both-{switches}"
    east.create_topic(topic, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        fill(east, topic, 10, partition=number)
    links = {"east->west": topic, "west->east": topic}
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    made.process.start()
    lost, home, twin = 0, east, west
    with ExitStack() as stack:
        stack.callback(made.process.end)
        until(lambda: spans(west.cluster, topic, PARTITIONS) == [(0, 10)] * PARTITIONS, 120, "the records are on west")
        rig = SwitchRig(made, topic, east, west)
        protect(rig, "strict")
        (proxy,) = stack.enter_context(proxies(rig, 1))
        writer = PlainWriter(proxy.bootstrap, topic, 300.0)
        stack.callback(writer.stop)
        reader = stack.enter_context(Reader(proxy.bootstrap, topic))
        for turn in range(switches):
            count = len(reader.read) + 600
            until(lambda: len(reader.read) >= count, 120, f"consumers read, turn {turn}")  # noqa: B023
            past = at_stake(rig, home, twin, writer)
            said = rig.move(twin.cluster.name, "--force")
            assert said.code == 0, said.text
            saw = list(reader.read)  # first: writers go on at once
            there = set(records_there(twin, topic, PARTITIONS))
            wrong = [one for one in saw if one not in there]
            assert not wrong, f"{len(wrong)} of {len(saw)}: {wrong[:3]}"
            lost += sum(one not in there for one in past)
            count = len(saw) + 300
            until(lambda: len(reader.read) >= count, 120, "consumers go on at the new home")  # noqa: B023
            for broker in home.brokers:
                broker.restart()
            if turn + 1 < switches:
                assert rig.switch("failback", topic, "--old", home.cluster.name, "--yes").code == 0
                until(lambda: protected_partitions(proxy, topic) == PARTITIONS, 120, "both sides acknowledge again")
            home, twin = twin, home
        writer.stop()
        assert reader.errors == [], "no place was out of range"
    places = [place for place, _, _ in reader.read]
    assert len(places) == len(set(places)), "no record was read again"
    assert lost, "or nothing was at stake"
    print(f"told: {len(places)} records read, none lost; consumers past the proxy saw {lost} that were")


@pytest.mark.long
def test_while_the_home_alone_acknowledges_consumers_of_other_proxies_read_there_and_it_is_shown(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "read-alone", tmp_path) as rig, ExitStack() as stack:
        protect(rig, "sync")
        one, other = stack.enter_context(proxies(rig, 2))
        writer = PlainWriter(one.bootstrap, rig.topic, 200.0)
        stack.callback(writer.stop)
        reader = stack.enter_context(Reader(other.bootstrap, rig.topic))
        until(lambda: len(reader.read) >= 400, 60, "consumers read")
        said = rig.rig.verb("protection", "show")
        assert mentions(said, "acknowledged by the home and the twin", "consumers read what both have")
        rig.rig.process.kill()
        there = len(records_there(west, rig.topic, PARTITIONS))
        until(lambda: len(reader.read) >= there + 600, 60, "consumers read what the home alone acknowledged")
        assert "consumers read all that it has there" in rig.rig.verb("protection", "show")
        rig.rig.process.start()
        until(lambda: "read what both have" in rig.rig.verb("protection", "show"), 120, "both again")
        assert reader.errors == []
