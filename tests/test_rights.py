"""The rights that docs/mirror.md asks for are enough: a user who has them, and no others, runs the whole mirror."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.access import LabSecurity
from testkit.clients import add_acl, topic_id
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from tests.scenarios.warm_mirrors import IN_THREADS, start_warm
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.clients import client_settings
from twinshore.lab.processes import ChildProcess

ROOT = Path(__file__).resolve().parent.parent
USER = "mirror"
TOPIC = "orders"
RECORDS = 2_000
WITHIN_S = 90.0


def rights(side: str) -> list[tuple[str, str]]:
    """What the page asks for on one side: resource ("topic" or "cluster") and operation, as Kafka's enums say it."""
    text = (ROOT / "docs" / "mirror.md").read_text()
    table = text.split(f"on the **{side}**:")[1].split("\n\n")[1]
    rows = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    kinds = {"cluster": "broker", "transactional ids": "transactional_id"}
    return [
        (kinds.get(resource.strip().partition(" that")[0], "topic"), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation))
        for resource, operations, _ in rows
        for operation in operations.split(", ")
    ]


def grant(cluster: RigCluster, side: str) -> None:
    for kind, operation in rights(side):
        name = {"topic": TOPIC, "broker": "kafka-cluster", "transactional_id": "twinshore."}[kind]
        add_acl(cluster.cluster, USER, operation, kind, name, prefixed=kind == "transactional_id")


def produce(cluster: Cluster, first: int) -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, f"value {number}".encode(), str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0


def commit_nothing_much(cluster: Cluster) -> None:
    """A transaction of one record in each partition: each gets a marker behind it."""
    producer = Producer({**client_settings(cluster), "transactional.id": "orders"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(TOPIC, b"value", b"key", partition=partition)
    producer.commit_transaction(30)


def settings_for(source: RigCluster, target: RigCluster, folder: Path) -> Path:
    text = [f'[store]\nurl = "sqlite:///{folder}/store.db"\n']
    for cluster in (source, target):
        seen = cluster.cluster_as(USER)
        text += [
            f'[clusters.{cluster.name}]\nbootstrap = ["{seen.bootstrap[0]}"]\n',
            f'[clusters.{cluster.name}.security]\nsasl = "PLAIN"\nusername = "{USER}"',
            f'password_file = "{seen.security.password.file}"\n',
        ]
    text += [f'[links."{source.name}->{target.name}"]\n', "[mirror]\ntasks_per_link = 1\n"]
    path = folder / "twinshore.toml"
    path.write_text("\n".join(text))
    return path


def wait_for_ends(cluster: Cluster, each: int, mirror: ChildProcess, log: Path) -> None:
    """Returns when both partitions of the twin end there."""
    parts = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    deadline_s = time.monotonic() + WITHIN_S
    ends: dict[TopicPartition, int] = {}
    with contextlib.closing(KafkaCluster(cluster)) as client:
        while time.monotonic() < deadline_s and mirror.alive():
            if TOPIC in client.metadata(None).topics:
                ends = client.list_offsets(parts, OffsetKind.HIGH_WATERMARK)
                if set(ends.values()) == {each}:
                    return
            time.sleep(0.2)
    pytest.fail(f"the twin stands at {ends}, not at {each}; the mirror said:\n{log.read_text()}")


def test_the_rights_on_the_page_are_enough(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    secured = {"security": LabSecurity.SASL_PLAIN, "authorizer": True, "users": (USER,), "heap_mb": 256}
    source, target = cluster_factory("near", **secured), cluster_factory("far", **secured)
    grant(source, "source")
    grant(target, "target")
    source.create_topic(TOPIC, partitions=2)
    produce(source.cluster, 0)
    settings = settings_for(source, target, tmp_path)
    log = tmp_path / "mirror.log"
    command = [sys.executable, "-m", IN_THREADS, "mirror", "run", "--settings", str(settings)]
    mirror = start_warm(command, folder=tmp_path, log=log, environment={})
    try:
        wait_for_ends(target.cluster, RECORDS // 2, mirror, log)
        produce(source.cluster, RECORDS)
        commit_nothing_much(source.cluster)
        wait_for_ends(target.cluster, RECORDS + 2, mirror, log)
    finally:
        mirror.end(patience_s=60)
    said = log.read_text()
    assert "stopped in good order" in said
    assert "rights" not in said
    assert "closed units" in said
    # The log start follows the source's twice a minute; the same request, sooner.
    with contextlib.closing(KafkaCluster(target.cluster_as(USER))) as client:
        before, ids = {TopicPartition(TOPIC, 0): 10}, {TOPIC: topic_id(target.cluster, TOPIC)}
        assert client.delete_records(before, ids) == before
