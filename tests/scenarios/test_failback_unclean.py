"""An old home comes back with another history than the one that crossed: an unclean election took its end."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.cluster import RigCluster
from testkit.errors import mentions
from tests.scenarios.incident_stage import QUICK
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.test_switch import switch
from tests.scenarios.test_switched_home import read
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import PartitionMetadata
from twinshore.lab.clients import client_settings
from twinshore.state.store import open_store

TOPIC = "lost-orders"
KEPT, LOST, WEST = 90, 10, 6
SETTINGS = {
    "unclean.leader.election.enable": "true",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.replication.factor": "1",
}


def write(lab: RigCluster, name: str, records: int) -> None:
    """Each record in a batch of its own, so that logs part between records."""
    producer = Producer({**client_settings(lab.cluster), "linger.ms": 0, "batch.num.messages": 1, "acks": "all"})
    for number in range(records):
        producer.produce(TOPIC, b"%s %d" % (name.encode(), number), b"key", partition=0)
    assert producer.flush(60) == 0


@pytest.mark.long
@pytest.mark.claim(
    "switch",
    "failback-unclean",
    "after an unclean election that left east with another history, shorter than what crossed or longer: all that"
    " diverged is rescued, and nothing else; east ends identical",
)
@pytest.mark.parametrize("late", [5, 40], ids=["shorter", "longer"])
def test_all_that_diverged_is_saved_and_east_is_identical_afterwards(tmp_path: Path, late: int) -> None:
    with (
        RigCluster("east", brokers=3, via_proxy=True, jvm_flags=QUICK, heap_mb=256, settings=SETTINGS) as east,
        RigCluster("west", jvm_flags=QUICK) as west,
    ):
        east.create_topic(TOPIC, copies=2, settings={"min.insync.replicas": "1"})
        links = {"east->west": TOPIC, "west->east": TOPIC}
        quick = {"tasks_per_link": 1, "refresh_s": 0.5}
        rig = Rig(tmp_path, settings_text(tmp_path, [east.wan_cluster, west.cluster], links, mirror=quick))
        with closing(KafkaCluster(east.cluster)) as kafka:

            def led() -> PartitionMetadata:
                return kafka.partition_of(TopicPartition(TOPIC, 0), refresh=True)

            first = led().leader
            (second,) = [node for node in led().replicas if node != first]
            brokers = {broker.node_id: broker for broker in east.brokers}
            write(east, "kept", KEPT)
            until(lambda: len(led().isr) == 2, 60, "both have it")
            brokers[second].kill()
            until(lambda: led().isr == (first,), 60, "one is left")
            write(east, "lost", LOST)
            rig.process.start()
            try:
                until(lambda: spans(west.cluster, TOPIC, 1) == [(0, KEPT + LOST)], 120, "all has crossed", rig)
                for number in range(3):
                    east.proxy(number).cut()
                code, said = switch(rig, "run", TOPIC, "--to", "west", "--force", "--yes")
                assert code == 0, said
                write(west, "west", WEST)
                brokers[first].kill()
                brokers[second].restart()
                until(lambda: led().leader == second, 90, "an unclean election", rig)
                assert spans(east.cluster, TOPIC, 1) == [(0, KEPT)]
                write(east, "late", late)
                brokers[first].restart()
                until(lambda: len(led().isr) == 2, 90, "both are there again", rig)
                for number in range(3):
                    east.proxy(number).heal()
                _came_back(rig, east, west, late)
            finally:
                rig.process.end()


def _came_back(rig: Rig, east: RigCluster, west: RigCluster, late: int) -> None:
    def stopped() -> bool:
        with open_store(url_in(rig.folder)) as store:
            return any(row.incident.policy.stops for row in store.incidents.rows("west->east", open_only=True))

    until(stopped, 120, "it is told", rig)
    code, said = switch(rig, "failback", TOPIC, "--old", "east", "--dry-run")
    assert (code, f"{late} records, {late} of them committed" in said) == (0, True), said
    assert mentions(said, "not known")
    code, said = switch(rig, "failback", TOPIC, "--old", "east", "--yes")
    assert code == 0, said
    assert f"done: {late} records rescued to" in said
    (path,) = (rig.folder / "rescued").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["offset"] for one in lines[1:-1]] == list(range(KEPT, KEPT + late))
    until(lambda: spans(east.cluster, TOPIC, 1) == spans(west.cluster, TOPIC, 1), 120, "filled again", rig)
    for isolation in ("read_committed", "read_uncommitted"):
        assert read(east, TOPIC, 0, isolation) == read(west, TOPIC, 0, isolation)
    print(f"told: {late} records of another history rescued, {LOST} that it lost are there again")
