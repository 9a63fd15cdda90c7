"""All of a cluster and of a store that a command may not change, to be compared with what is there afterwards."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from twinshore.config.model import TopicPartition, is_heartbeats_topic
from twinshore.kafka.admin import read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster

State = dict[str, object]
Seen = TypeVar("Seen")
# What a mirror at work writes by itself, beat after beat.
BEATS = (
    *("leases", "link_status", "positions", "source_producers"),
    *("partition_delays", "watchers", "link_states"),
)


def of_cluster(lab: LabCluster) -> State:
    """Topics with their ids, settings and logs' spans, rules, and where each group stands."""
    admin = create_admin_client(lab.cluster)
    with closing(KafkaCluster(lab.cluster)) as kafka:
        topics = {
            name: one.topic_id.hex()
            for name, one in kafka.metadata().topics.items()
            # Heartbeats come by themselves; a group's log also says when its members came and went.
            if not is_heartbeats_topic(name) and name != "__consumer_offsets"
        }
        parts = [
            TopicPartition(name, part.partition)
            for name, one in kafka.metadata().topics.items()
            if name in topics
            for part in one.partitions
        ]
        spans: State = {
            f"{kind.name} of {named}": at
            for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END, OffsetKind.LAST_STABLE)
            for named, at in kafka.list_offsets(parts, kind).items()
        }
        rules = read_acls(kafka)
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    settings: State = {
        f"settings of {resource.name}": {name: one.value for name, one in done.result(timeout=30).items()}
        for resource, done in admin.describe_configs(asked).items()
    }
    found: State = {"topics": topics, "rules": rules, **spans, **settings}
    for group in admin.list_consumer_groups().result(timeout=30).valid:
        (done,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group.group_id)]).values()
        places = done.result(timeout=30).topic_partitions or []
        found[f"places of {group.group_id}"] = sorted((at.topic, at.partition, at.offset) for at in places)
    return found


def of_store(file: Path, but: tuple[str, ...] = ()) -> State:
    """The rows of each table, but for these."""
    with closing(sqlite3.connect(file)) as store:
        lines = [line for line in store.iterdump() if line.startswith("INSERT INTO")]
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(line.split('"')[1], []).append(line)
    return {table: sorted(rows) for table, rows in found.items() if table not in but}


def at_rest(look: Callable[[], Seen], within_s: float = 120.0) -> Seen:
    """What is there, once two looks one after the other see the same."""
    until_s, before = time.monotonic() + within_s, look()
    while (now := look()) != before:
        assert time.monotonic() < until_s, "it goes on changing"
        before = now
        time.sleep(0.5)
    return before
