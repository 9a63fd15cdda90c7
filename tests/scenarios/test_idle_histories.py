"""A source that loses its end and grows beyond it while nobody can reach it, under a partition that rests: its twin
must not go on with another history. On real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testkit.cluster import RigCluster
from tests.scenarios.incident_stage import CALM, QUICK, IncidentStage, cut_to, down_and_up, log_file
from tests.scenarios.mirror_rig import read_all
from twinshore.config.incident_policy import POLICY_STOP
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import PartitionMetadata

pytestmark = pytest.mark.claim(
    "topics",
    "idle-histories",
    "a source that loses its end under a resting partition and grows beyond it unseen, also by an "
    "unclean election of three brokers, ends in a truncation that names the range; nothing is written"
    " beyond it",
)

ORDERS = TopicPartition("orders", 0)
MIRROR = {"away_after_s": 2, "task_run_s": 4, "tasks_per_link": 1, "heartbeat_s": 0}
OLD = [[b"old %d" % offset for offset in range(first, first + 10)] for first in range(0, 100, 10)]
NEW = [[b"new %d" % offset for offset in range(first, first + 10)] for first in (90, 100)]


@contextmanager
def staged(folder: Path, east: RigCluster) -> Iterator[IncidentStage]:
    stage = IncidentStage(folder, MIRROR, east=east)
    try:
        stage.up()
        yield stage
    finally:
        stage.close()


def rest_behind_a_look(stage: IncidentStage) -> None:
    """The mirror starts anew and so looks at the twin; then a hand-over or two pass on what it knows."""
    stage.crossed("orders", 0)
    stage.rig.process.end()
    stage.rig.process.start()
    stage.put(stage.east, CALM, 0, [[b"it runs"]])
    stage.crossed(CALM, 0, within_s=90)
    time.sleep(10)
    assert stage.ends(stage.west, "orders", 0) == 100


def holds_the_old_alone(stage: IncidentStage) -> None:
    """The ledger names what the source lost, and the twin ends where the old history did."""
    stage.crossed(CALM, 0)
    row = stage.row("orders", "truncation")
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 90, 100), row
    assert row.incident.policy == POLICY_STOP
    held = [value for _, _, value, *_ in read_all(stage.west.cluster, "orders", 0)]
    assert held == [value for batch in OLD for value in batch]


@pytest.mark.long
def test_a_source_that_lost_its_end_and_grew_again_unseen_is_told(tmp_path: Path) -> None:
    with staged(tmp_path, RigCluster("east", jvm_flags=QUICK, via_proxy=True)) as stage:
        stage.east.create_topic("orders")
        stage.put(stage.east, "orders", 0, OLD)
        stage.start()
        rest_behind_a_look(stage)
        stage.east.proxy(0).cut()

        def accident() -> None:
            path = log_file(stage.east, "orders", 0)
            cut_to(path, 90)
            for kind in ("*.snapshot", "*.index", "*.timeindex"):
                for stale in path.parent.glob(kind):
                    stale.unlink()

        down_and_up(stage.east.brokers[0], accident)
        assert stage.ends(stage.east, "orders", 0) == 90
        stage.put(stage.east, "orders", 0, NEW)
        stage.put(stage.east, CALM, 0, [[b"calm"]])
        stage.east.proxy(0).heal()
        holds_the_old_alone(stage)


def led(kafka: KafkaCluster) -> PartitionMetadata:
    return kafka.partition_of(ORDERS, refresh=True)


@pytest.mark.long
def test_an_unclean_leader_of_three_brokers_is_told_as_well(tmp_path: Path) -> None:
    settings = {
        "unclean.leader.election.enable": "true",
        "broker.session.timeout.ms": "3000",
        "replica.lag.time.max.ms": "2000",
        "offsets.topic.replication.factor": "1",
    }
    east = RigCluster("east", brokers=3, via_proxy=True, jvm_flags=QUICK, heap_mb=256, settings=settings)
    with staged(tmp_path, east) as stage:
        stage.east.create_topic("orders", copies=2, settings={"min.insync.replicas": "1"})
        with closing(KafkaCluster(stage.east.cluster)) as kafka:
            first = led(kafka).leader
            (second,) = [node for node in led(kafka).replicas if node != first]
            brokers = {broker.node_id: broker for broker in stage.east.brokers}
            stage.put(stage.east, "orders", 0, OLD[:9])
            stage.until(lambda: len(led(kafka).isr) == 2, 30, "an election")
            brokers[second].kill()
            stage.until(lambda: led(kafka).isr == (first,), 30, "an election")
            stage.put(stage.east, "orders", 0, OLD[9:])
            stage.start()
            rest_behind_a_look(stage)
            for number in range(3):
                stage.east.proxy(number).cut()
            brokers[first].kill()
            brokers[second].restart()
            stage.until(lambda: led(kafka).leader == second, 60, "an election")
            stage.put(stage.east, "orders", 0, NEW)
            for number in range(3):
                stage.east.proxy(number).heal()
            stage.until(lambda: bool(stage.rows("orders", "truncation")), 60, "an election")
        holds_the_old_alone(stage)
