"""Two guarded clusters for the scenarios of rights: rules in one line, and what a user may do, shown by doing it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion  # type: ignore[attr-defined]

from testkit.access import LabSecurity
from testkit.cluster import RigCluster
from testkit.raw_writer import RawWriter
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_NEWEST


def acl(
    name: str,
    operation: AclOperation,
    who: str = "User:anna",
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, who, "*", operation, permission)


def guarded(
    name: str, *users: str, settings: Mapping[str, str] | None = None, version: str = KAFKA_NEWEST, brokers: int = 1
) -> RigCluster:
    flags = ("-XX:TieredStopAtLevel=1",)
    kind = LabSecurity.SASL_SCRAM_256
    who = ("mirror", *users)
    return RigCluster(
        name,
        version=version,
        brokers=brokers,
        security=kind,
        authorizer=True,
        users=who,
        heap_mb=256,
        jvm_flags=flags,
        settings=settings,
    )


@contextlib.contextmanager
def client(cluster: LabCluster) -> Iterator[KafkaCluster]:
    with contextlib.closing(KafkaCluster(cluster.cluster)) as found:
        yield found


def may_read(cluster: Cluster, topic: str) -> bool:
    """Whether a broker gives this user the topic's first batch."""
    with contextlib.closing(KafkaCluster(cluster, patience_s=30.0)) as found:
        try:
            return found.read_tail_batch(TopicPartition(topic, 0), 0) is not None
        except KafkaError as error:
            assert error.code == Code.topic_authorization_failed, error
            return False


def may_write(cluster: Cluster, topic: str) -> bool:
    """Whether this user's record is taken."""
    with contextlib.closing(KafkaCluster(cluster, patience_s=30.0)) as found:
        try:
            return RawWriter(found, topic).write(1, 0).error == Code.none
        except KafkaError as error:
            assert error.code in (Code.topic_authorization_failed, Code.cluster_authorization_failed), error
            return False


def remove_user(cluster: RigCluster, name: str) -> None:
    """Takes a SCRAM user away, as an operator does."""
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    admin = create_admin_client(cluster.cluster)
    for done in admin.alter_user_scram_credentials([gone]).values():
        done.result(timeout=30)
