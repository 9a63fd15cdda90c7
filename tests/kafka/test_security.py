"""Every kind of security on real brokers; secrets and certificates exchanged while everything runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.access import LabSecurity
from testkit.clients import add_acl, topic_id
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, SaslMechanism, Secret, Security, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import librdkafka_settings
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST


def use_everything(cluster: Cluster) -> None:
    """Our own connections, the admin client and a producer."""
    kafka = KafkaCluster(cluster, patience_s=15)
    try:
        kafka.admin.create_topic("things", partitions=1)
        named = TopicPartition("things", 0)
        producer = Producer({**librdkafka_settings(cluster), "log_level": 0})
        producer.produce("things", b"value", partition=0)
        assert producer.flush(20) == 0
        assert kafka.list_offsets([named], OffsetKind.LOG_END) == {named: 1}
        assert kafka.init_producer_id()[0] >= 0
    finally:
        kafka.close()


def refusal(cluster: Cluster) -> KafkaError:
    kafka = KafkaCluster(cluster, patience_s=1)
    with pytest.raises(KafkaError) as caught:
        kafka.metadata([])
    kafka.close()
    return caught.value


def with_secret(lab: RigCluster, secret: Path) -> Cluster:
    security = replace(lab.cluster.security, password=Secret(file=str(secret)))
    return replace(lab.cluster, security=security)


@pytest.mark.parametrize(
    ("kind", "tls", "version"),
    [
        (LabSecurity.SASL_PLAIN, True, KAFKA_3),
        (LabSecurity.SASL_SCRAM_256, False, KAFKA_NEWEST),
        (LabSecurity.SASL_SCRAM_512, True, KAFKA_NEWEST),
    ],
)
def test_passwords(cluster_factory: ClusterFactory, tmp_path: Path, kind: LabSecurity, tls: bool, version: str) -> None:
    lab = cluster_factory(security=kind, tls=tls, version=version, heap_mb=256)
    use_everything(lab.cluster)
    secret = tmp_path / "password"
    secret.write_text("wrong")
    cluster = with_secret(lab, secret)
    error = refusal(cluster)
    assert "admin" in str(error)
    assert error.code == 58
    assert not error.retriable
    kafka = KafkaCluster(cluster)
    with pytest.raises(KafkaError, match="refused"):
        kafka.cluster_id()
    secret.write_text(lab.cluster.security.password.read() + "\n")
    assert kafka.cluster_id() == lab.cluster_id, "the file is read at every connection"
    kafka.close()
    other = SaslMechanism.SCRAM_SHA_512 if kind is not LabSecurity.SASL_SCRAM_512 else SaslMechanism.SCRAM_SHA_256
    error = refusal(replace(lab.cluster, security=replace(lab.cluster.security, sasl=other)))
    assert f"does not take SASL {other}" in str(error)
    assert f"it offers {lab.cluster.security.sasl}" in error.hint


def test_certificates_of_both_sides(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory(security=LabSecurity.MTLS, authorizer=True, users=["bob"], heap_mb=256)
    use_everything(lab.cluster)
    bare = replace(lab.cluster.security, cert_file="", key_file="")
    assert "refused the TLS connection" in str(refusal(replace(lab.cluster, security=bare)))
    plain = refusal(replace(lab.cluster, security=Security()))
    assert "TLS" in str(plain)
    lab.access.rotate_certificates()
    use_new = KafkaCluster(lab.cluster)
    assert use_new.cluster_id() == lab.cluster_id
    settings = use_new.admin.topic_settings(["things"])
    assert settings.keys() == {"things"}
    use_new.close()


def test_missing_rights_are_named(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory(security=LabSecurity.SASL_SCRAM_256, authorizer=True, users=["bob"], heap_mb=256)
    lab.create_topic("things")
    with closing(KafkaCluster(lab.cluster_as("bob"), patience_s=10)) as bob:
        lacks_rights(lab, bob, TopicPartition("things", 0))


def lacks_rights(lab: RigCluster, bob: KafkaCluster, named: TopicPartition) -> None:
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        bob.list_offsets([named], OffsetKind.LOG_END)
    assert "Describe on topic things" in caught.value.hint
    for attempt, hint in (
        (lambda: bob.admin.create_topic("new", partitions=1), "grant Create on topic new or on the cluster"),
        (lambda: bob.admin.topic_settings(["things"]), "grant DescribeConfigs on topic things"),
        (lambda: bob.admin.broker_settings(1), "grant DescribeConfigs on the cluster"),
        (bob.init_producer_id, "grant IdempotentWrite on the cluster, or Write on any topic"),
    ):
        with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED") as caught:
            attempt()
        assert caught.value.hint == hint
    add_acl(lab.cluster, "bob", "describe", "topic", "things")
    assert bob.list_offsets([named], OffsetKind.LOG_END) == {named: 0}
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        bob.describe_producers([named])
    assert "Read on topic things" in caught.value.hint
    meant = topic_id(lab.cluster, "things")
    changes: list[tuple[Callable[[], object], str]] = [
        (lambda: bob.delete_records({named: 0}, {"things": meant}), "grant Delete on topic things"),
        (
            lambda: bob.admin.alter_topic_settings("things", {"retention.ms": "1"}, topic_id=meant),
            "grant AlterConfigs on topic things",
        ),
        (lambda: bob.admin.create_partitions("things", 2, topic_id=meant), "grant Alter on topic things"),
        (lambda: bob.admin.delete_topic("things", topic_id=meant), "grant Delete on topic things"),
    ]
    for change, hint in changes:
        with pytest.raises(KafkaError, match="AUTHORIZATION_FAILED") as caught:
            change()
        assert caught.value.hint == hint


def test_tokens(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    lab = cluster_factory(security=LabSecurity.SASL_OAUTHBEARER, tls=True, heap_mb=256)
    use_everything(lab.cluster)
    stale = tmp_path / "token"
    good = Path(lab.cluster.security.token_file).read_text()
    lab.access.renew_token("admin", life_s=-120)
    stale.write_text(Path(lab.cluster.security.token_file).read_text())
    cluster = replace(lab.cluster, security=replace(lab.cluster.security, token_file=str(stale)))
    error = refusal(cluster)
    assert "credentials are refused: invalid_token" in str(error)
    assert error.code == 58
    stale.write_text(good)
    kafka = KafkaCluster(cluster)
    assert kafka.cluster_id() == lab.cluster_id
    lifetime_s = kafka.connection_to(1).expires_at - time.monotonic()
    assert 60 < lifetime_s < 3600 * 0.8 + 1, "the broker ends the session with the token"
    kafka.close()


def test_unsecured_tokens_on_a_lab_listener(cluster_factory: ClusterFactory) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    lab = cluster_factory(
        heap_mb=256,
        settings={
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "listener.name.client.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.client.oauthbearer.sasl.jaas.config": f'{module} unsecuredLoginStringClaim_sub="x";',
        },
    )
    security = Security(sasl=SaslMechanism.OAUTHBEARER, username="somebody")
    use_everything(replace(lab.cluster, security=security))


def test_a_session_that_ends_is_left_before_the_broker_ends_it(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory(security=LabSecurity.SASL_PLAIN, heap_mb=256, settings={"connections.max.reauth.ms": "1500"})
    kafka = KafkaCluster(lab.cluster)
    node = next(iter(kafka.metadata([]).brokers))
    first = kafka.connection_to(node)
    assert first.expires_at < time.monotonic() + 1.5
    assert kafka.connection_to(node) is first
    time.sleep(1.3)
    assert not first.usable
    second = kafka.connection_to(node)
    assert second is not first
    assert second.usable
    assert kafka.cluster_id() == lab.cluster_id
    kafka.close()
    assert not math.isinf(second.expires_at)
