"""Admin calls that only tests and benches make: topics, records, groups' offsets, users and ACLs are changed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import TopicPartition as ClientTopicPartition

from twinshore.config.frozen import NOTES_TOPICS, RESCUED_TOPIC
from twinshore.config.model import Cluster, SaslMechanism, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import ask_as_group, create_admin_client
from twinshore.lab.processes import LabError

_GONE_WITHIN_S = 60.0


def commit_group_offsets(cluster: Cluster, group: str, *places: ClientTopicPartition) -> None:
    ask_as_group(cluster, group, lambda consumer: consumer.commit(offsets=list(places), asynchronous=False))


def delete_topic(cluster: Cluster, topic: str) -> None:
    admin = create_admin_client(cluster)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(timeout=40)


def delete_all_topics(cluster: Cluster, keep: str = "") -> None:
    """Deletes every topic but Kafka's own and `keep`. Returns when they are gone."""
    admin = create_admin_client(cluster)
    deadline = time.monotonic() + _GONE_WITHIN_S
    while True:
        left = [topic for topic in admin.list_topics(timeout=10).topics if topic != keep and not topic.startswith("__")]
        if not left:
            return
        if time.monotonic() > deadline:
            raise LabError(f"cluster {cluster.name} still has {', '.join(sorted(left))}")
        # A topic under deletion answers with an error; the list decides.
        for gone in admin.delete_topics(left, operation_timeout=20).values():
            gone.exception(30)
        time.sleep(0.1)


def forget_links(cluster: Cluster, admin: AdminClient | None = None) -> None:
    """Removes every trace of links and switches from a target, so that a mirror with another store can start there.

    `admin`: an existing client, for frequent callers.
    """
    admin = admin or create_admin_client(cluster)
    topics = admin.list_topics(timeout=10).topics
    there = [name for name in NOTES_TOPICS if name in topics and name != RESCUED_TOPIC]
    if not there:
        return
    for gone in admin.delete_topics(there, operation_timeout=30).values():
        gone.result(timeout=40)
    deadline = time.monotonic() + 30
    while not admin.list_topics(timeout=10).topics.keys().isdisjoint(there) and time.monotonic() < deadline:
        time.sleep(0.02)


def topic_id(cluster: Cluster, topic: str) -> bytes:
    with closing(KafkaCluster(cluster)) as kafka:
        return kafka.metadata([topic]).topics[topic].topic_id


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes each log's records below the offset; returns the new log starts."""
    admin = create_admin_client(cluster)
    asked = admin.delete_records(
        [ClientTopicPartition(partition.topic, partition.partition, at) for partition, at in before.items()]
    )
    return {
        TopicPartition(one.topic, one.partition): done.result(timeout=40).low_watermark for one, done in asked.items()
    }


def add_partitions(cluster: Cluster, topic: str, total: int) -> None:
    admin = create_admin_client(cluster)
    admin.create_partitions([NewPartitions(topic, total)], operation_timeout=30)[topic].result(timeout=40)


def alter_topic(cluster: Cluster, topic: str, settings: Mapping[str, str | None]) -> None:
    """Changes topic settings; None restores the default."""
    _alter(create_admin_client(cluster), ConfigResource.Type.TOPIC, topic, settings)


def set_scram_password(cluster: Cluster, user: str, password: str, mechanism: SaslMechanism) -> None:
    kind = ScramMechanism.SCRAM_SHA_256 if mechanism is SaslMechanism.SCRAM_SHA_256 else ScramMechanism.SCRAM_SHA_512
    admin = create_admin_client(cluster)
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode(), os.urandom(16))
    admin.alter_user_scram_credentials([change])[user].result(timeout=30)


def alter_brokers(cluster: Cluster, node_ids: tuple[int, ...], settings: Mapping[str, str]) -> None:
    admin = create_admin_client(cluster)
    for node_id in node_ids:
        _alter(admin, ConfigResource.Type.BROKER, str(node_id), settings)


def _alter(admin: AdminClient, kind: Any, name: str, settings: Mapping[str, str | None]) -> None:
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(timeout=30)


def add_acl(cluster: Cluster, user: str, operation: str, kind: str, name: str, *, prefixed: bool = False) -> None:
    """Allows the user one operation on one resource, named as in Kafka: "read" "topic" "orders".

    `prefixed`: on all resources whose names begin so.
    """
    what, do = ResourceType[kind.upper()], AclOperation[operation.upper()]
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    acl = AclBinding(what, name, pattern, f"User:{user}", "*", do, AclPermissionType.ALLOW)
    admin = create_admin_client(cluster)
    for done in admin.create_acls([acl]).values():
        done.result(timeout=30)
    # The controller has it now; brokers a moment later.
    here = AclBindingFilter(what, name, pattern, f"User:{user}", "*", do, AclPermissionType.ALLOW)
    deadline = time.monotonic() + 10
    while not admin.describe_acls(here).result(timeout=30):
        if time.monotonic() > deadline:
            raise LabError(f"cluster {cluster.name}: the brokers do not see the new ACL of {user}")
        time.sleep(0.02)
