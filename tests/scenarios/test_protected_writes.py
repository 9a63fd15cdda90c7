"""Writers behind proxies of a protected topic: what they are told is written is on both sides."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from tests.scenarios.plain_clients import PlainWriter, TransactionalWriter, records_there
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import proxies
from tests.scenarios.test_switched_home import read
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.protection.topic import GatesTopic

AWAY_S = 8.0


def protect(rig: SwitchRig, level: str) -> None:
    """One broker a side is weak, as the verb says."""
    said = rig.rig.verb("protection", "set", rig.topic, "--level", level, "--alone-after", "4", "--even-weak")
    assert f"topic {rig.topic} is {level}, before async" in said


@pytest.mark.claim(
    "protection",
    "mirror-dies",
    "the mirror is killed under load: what a strict topic's writer was told is on the twin; it goes on by itself",
)
@pytest.mark.parametrize("idempotent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_a_writer_was_told_is_on_the_twin_when_the_mirror_dies(
    east: LabCluster, west: LabCluster, tmp_path: Path, idempotent: bool
) -> None:
    topic = f"protected-{'once' if idempotent else 'plain'}"
    with carried(east, west, topic, tmp_path) as rig:
        protect(rig, "strict")
        with proxies(rig, 1) as (proxy,):
            settings: dict[str, Any] = {"enable.idempotence": idempotent, "acks": -1 if idempotent else 1}
            writer = PlainWriter(proxy.bootstrap, topic, 200.0, **settings)
            try:
                until(lambda: len(writer.acked) >= 400, 60, "writes are confirmed")
                rig.rig.process.kill()
                told = len(writer.acked)
                time.sleep(AWAY_S)
                assert len(writer.acked) - told <= 100, "what was on its way is still confirmed, and no more"
                acked = list(writer.acked)
                there = {(place, key, number) for place, key, number in records_there(west, topic, 3)}
                lost = [one for one in acked if (one.place, one.key, one.number) not in there]
                assert not lost, f"{len(lost)} of {len(acked)}: {lost[:3]}"
                rig.rig.process.start()
                until(lambda: len(writer.acked) >= told + 1_000, 120, "writes go on by themselves")
            finally:
                writer.stop()
            assert writer.failed == [], "the application is told of no error"


@pytest.mark.claim(
    "protection",
    "alone-and-back",
    "the twin is not fed: sync goes on by the home alone, which is written down, and is protected again by itself",
)
@pytest.mark.long
def test_sync_goes_on_alone_and_comes_back_by_itself(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    with carried(east, west, "protected-sync", tmp_path) as rig:
        protect(rig, "sync")
        with proxies(rig, 1) as (proxy,):
            writer = PlainWriter(proxy.bootstrap, rig.topic, 200.0)
            try:
                until(lambda: len(writer.acked) >= 400, 60, "writes are confirmed")
                rig.rig.process.kill()
                told = len(writer.acked)
                until(lambda: len(writer.acked) >= told + 1_000, 60, "the home alone acknowledges")
                kafka = KafkaCluster(west.cluster)
                gates = GatesTopic(kafka).read().gates
                assert any(record.alone for (topic, _), record in gates.items() if topic == rig.topic), gates
                assert mentions(rig.rig.verb("protection", "show"), "acknowledged by the home alone since", "partition")
                rig.rig.process.start()
                reader = GatesTopic(kafka)
                until(lambda: not any(record.alone for record in reader.read().gates.values()), 120, "both again")
                kafka.close()
            finally:
                writer.stop()
            assert writer.failed == []


@pytest.mark.claim(
    "protection",
    "commits",
    "a commit is confirmed once the twin has the transaction and its end",
)
def test_a_commit_is_answered_once_the_twin_has_the_transaction_and_its_end(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "protected-commits", tmp_path) as rig:
        protect(rig, "strict")
        with proxies(rig, 1) as (proxy,):
            writer = TransactionalWriter(proxy.bootstrap, rig.topic)
            try:
                until(lambda: len(writer.committed_s) >= 50, 60, "transactions are committed")
                rig.rig.process.kill()
                time.sleep(1)
                told = len(writer.committed_s)
                time.sleep(AWAY_S)
                assert len(writer.committed_s) == told, "no commit is confirmed without the twin"
                there = len(read(west, rig.topic, 0, "read_committed")) - 10
                assert there >= told, f"{told} commits were confirmed, and the twin shows {there}"
                rig.rig.process.start()
                until(lambda: len(writer.committed_s) >= told + 50, 120, "commits go on by themselves")
            finally:
                writer.stop()
            assert writer.aborted == [], "the application is told of no error"


@pytest.mark.claim(
    "protection",
    "home-lost",
    "the home is killed, the switch forced: it says that nothing acknowledged is lost, and so it is; writes go on",
)
@pytest.mark.parametrize("level", [pytest.param("sync", marks=pytest.mark.long), "strict"])
def test_nothing_that_was_acknowledged_is_lost_with_the_home_and_writes_go_on_alone(
    cluster_factory: ClusterFactory, tmp_path: Path, level: str
) -> None:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    topic = f"protected-{level}"
    east.create_topic(topic, partitions=3)
    for number in range(3):
        fill(east, topic, 10, partition=number)
    links = {"east->west": topic, "west->east": topic}
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    made.process.start()
    with ExitStack() as stack:
        stack.callback(made.process.end)
        until(lambda: spans(west.cluster, topic, 3) == [(0, 10)] * 3, 120, "the records are on west")
        rig = SwitchRig(made, topic, east, west)
        protect(rig, level)
        (proxy,) = stack.enter_context(proxies(rig, 1))
        writer = PlainWriter(proxy.bootstrap, topic, 300.0)
        stack.callback(writer.stop)
        until(lambda: len(writer.acked) >= 600, 60, "writes are confirmed")
        for broker in east.brokers:
            broker.kill()
        told = list(writer.acked)
        said = rig.move("west", "--force")
        assert said.code == 0, said.text
        assert f"topic {topic} is {level}: nothing that its protected writers were told is lost" in said.text
        there = {(place, key, number) for place, key, number in records_there(west, topic, 3)}
        lost = [one for one in told if (one.place, one.key, one.number) not in there]
        assert not lost, f"{len(lost)} of {len(told)}: {lost[:3]}"
        until(lambda: len(writer.acked) >= len(told) + 300, 60, "west acknowledges, which has no twin now")
        for broker in east.brokers:
            broker.restart()
        # Right after its start a broker may still load its groups.
        until(lambda: rig.switch("failback", topic, "--old", "east", "--yes").code == 0, 60, "the old home is filled")
        gates = GatesTopic(stack.enter_context(closing(KafkaCluster(east.cluster))))
        until(lambda: any(one.confirmed for one in gates.read().gates.values()), 60, "writes wait for east now")
        writer.stop()
        assert writer.failed == []
