"""What follows a topic besides its records, on real brokers: settings, partitions, deletion, and being made again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from testkit.clients import add_partitions, alter_topic, delete_topic
from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from twinshore.cli.app import app, register_verbs
from twinshore.config.incident_policy import POLICY_KEEP_TWIN, POLICY_TOPIC, IncidentKind
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, create_admin_client, create_topic
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import AuditRow, IncidentRow, LinkStateRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "topics",
    "topics-follow",
    "settings, partitions, deletion and re-creation follow; a recreated topic is known across a restart",
)

LINK = "east->west"
FOLLOW = f'[links."{LINK}".follow]\nevery_s = 0.5\n'


def produce(cluster: Cluster, topic: str, partition: int, count: int, word: str = "value") -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{word} {number}".encode(), partition=partition)
    assert producer.flush(30) == 0


def own_settings(cluster: Cluster, topic: str) -> dict[str, str | None]:
    with closing(KafkaCluster(cluster)) as kafka:
        return {name: one.value for name, one in kafka.admin.topic_settings([topic])[topic].items() if one.own}


def alter(cluster: Cluster, topic: str, **changes: str | None) -> None:
    alter_topic(cluster, topic, {name.replace("_", "."): value for name, value in changes.items()})


def names(cluster: Cluster) -> set[str]:
    return set(create_admin_client(cluster).list_topics(timeout=10).topics)


class FollowRig(Rig):
    """A mirror of topics of one name's beginning, between two plain clusters."""

    def __init__(self, folder: Path, source: LabCluster, target: LabCluster, topics: str, follow: str = "") -> None:
        clusters = [source.cluster, target.cluster]
        text = settings_text(folder, clusters, {LINK: topics}, mirror={"tasks_per_link": 1, "task_run_s": 5})
        super().__init__(folder, text + FOLLOW + follow)

    def begin(self) -> None:
        self.process.start()
        self.until_said("replicated by this process", within_s=90)

    def rows(self, topic: str) -> list[IncidentRow]:
        return [row for row in self.ledger(LINK) if row.incident.topic == topic]

    def kept(self) -> tuple[tuple[AuditRow, ...], tuple[LinkStateRow, ...]]:
        with open_store(f"sqlite:///{self.folder / 'store.db'}") as store:
            return store.audit.rows(LINK), store.link_states.of(LINK)

    def run(self, *words: str) -> str:
        register_verbs()
        result = CliRunner().invoke(app, [*words, "--settings", str(self.process.settings)], catch_exceptions=False)
        assert result.exit_code == 0
        return result.output


@pytest.fixture
def stem(unique_topic: str) -> str:
    return unique_topic[-30:]


@pytest.fixture
def rig(tmp_path: Path, east: LabCluster, west: LabCluster, stem: str) -> Iterator[FollowRig]:
    made = FollowRig(tmp_path, east, west, f"{stem}.*")
    yield made
    made.process.end()


def test_settings_partitions_and_topics_that_end_or_begin_anew(
    rig: FollowRig, east: LabCluster, west: LabCluster, stem: str
) -> None:
    orders, bills = f"{stem}.orders", f"{stem}.bills"
    east.create_topic(orders, partitions=2, settings={"segment.ms": "600000", "retention.ms": "86400000"})
    east.create_topic(bills)
    produce(east.cluster, orders, 0, 100)
    produce(east.cluster, bills, 0, 10)
    rig.begin()
    until(lambda: same_ends(east.cluster, west.cluster, orders, 2), 30, "the first records crossed", rig)

    settings_follow(rig, east.cluster, west.cluster, orders)
    add_partitions(east.cluster, orders, 4)
    produce(east.cluster, orders, 3, 50)
    until(lambda: same_ends(east.cluster, west.cluster, orders, 4), 15, "grown partitions are carried", rig)
    # What has no receipt yet when its topic goes is for ever "not carried", and then the twin is not deleted unasked.
    until(lambda: rig.told(LINK).get((orders, 3)) == 50, 30, "the receipts say so", rig)
    made_again_stops_alone(rig, east.cluster, west.cluster, orders, bills)
    agreed_begins_again(rig, east.cluster, west.cluster, orders)

    # Deleted: the twin is kept, and the ledger says so.
    delete_topic(east.cluster, bills)
    until(lambda: bool(rig.rows(bills)), 15, "the ledger has the deletion", rig)
    (row,) = rig.rows(bills)
    assert (row.incident.kind, row.incident.policy) == (IncidentKind.DELETED_TOPIC, POLICY_KEEP_TWIN)
    time.sleep(3)
    assert spans(west.cluster, bills, 1) == [(0, 20)]
    assert len(rig.rows(bills)) == 1
    assert rig.process.said.count(f"topic {bills} was deleted") == 1


def settings_follow(rig: FollowRig, east: Cluster, west: Cluster, orders: str) -> None:
    """What changes, changes; what is taken back, is taken back; the twin's own stay."""
    assert own_settings(west, orders)["segment.ms"] == "600000"
    alter(east, orders, segment_ms=None, flush_ms="7777", retention_ms="3600000")
    until(lambda: own_settings(west, orders).get("flush.ms") == "7777", 5, "a new setting followed", rig)
    until(lambda: "segment.ms" not in own_settings(west, orders), 5, "one taken back is gone", rig)
    assert own_settings(west, orders)["retention.ms"] == "-1"
    alter(west, orders, flush_ms="1")
    until(lambda: own_settings(west, orders).get("flush.ms") == "7777", 5, "it is given back", rig)
    audit, followed = rig.kept()
    assert ("topic setting", f"segment.ms of {orders}", "600000", "Kafka's default", "done") in [
        (row.kind, row.subject, row.before, row.after, row.outcome) for row in audit
    ]
    (source,) = [json.loads(row.value) for row in followed if row.subject == orders and row.kind == "topic setting"]
    assert source == {"flush.ms": "7777", "retention.ms": "3600000"}, "for the day it is promoted"


def made_again_stops_alone(rig: FollowRig, east: Cluster, west: Cluster, orders: str, bills: str) -> None:
    """A topic made again on the source: one row and one line, whatever tasks and task runs say; neighbours go on."""
    delete_topic(east, orders)
    until(lambda: orders not in names(east), 10, "it is gone", rig)
    create_topic(east, orders, partitions=3)
    produce(east, orders, 2, 7, "new")
    until(lambda: any(row.closed_ms is None for row in rig.rows(orders)), 15, "the ledger has it", rig)
    before = spans(west, orders, 4)
    time.sleep(6)  # a task run and many looks
    produce(east, bills, 0, 10)
    until(lambda: same_ends(east, west, bills, 1), 10, "its neighbour goes on", rig)
    (row,) = [row for row in rig.rows(orders) if row.incident.kind == "recreated topic"]
    assert f"{orders}-0 0 to 99, {orders}-3 0 to 49" in row.incident.sentence
    assert row.incident.policy == POLICY_TOPIC
    assert rig.process.said.count("made again") == 1, rig.process.said
    assert spans(west, orders, 4) == before, "the old twin is as it was"

    # The same across a restart, by the ids in the store.
    rig.process.end()
    rig.begin()
    until(lambda: rig.process.said.count("made again") == 2, 60, "it is told once more, by a new process", rig)
    time.sleep(2)
    assert [one.id for one in rig.rows(orders) if one.closed_ms is None] == [row.id]
    assert spans(west, orders, 4) == before


def agreed_begins_again(rig: FollowRig, east: Cluster, west: Cluster, orders: str) -> None:
    """An operator agrees: the old twin goes, a new one begins."""
    assert "starts again" in rig.run("mirror", "recreate", orders)
    until(
        lambda: same_ends(east, west, orders, 3) and spans(west, orders, 3)[2] == (0, 7),
        30,
        "the new topic crossed",
        rig,
    )
    until(lambda: all(one.closed_ms is not None for one in rig.rows(orders)), 5, "the ledger's row is closed", rig)
    assert mentions(rig.run("audit"), "deleted", "made again", f"{orders}-0 0 to 99")
