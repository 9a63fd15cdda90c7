"""Each kind of security lets in who should come in, as whom, and nobody else."""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster, Security
from twinshore.lab.clients import create_admin_client, create_topic
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, KAFKA_OLDEST
from twinshore.lab.processes import LabError


def refusal(cluster: Cluster, topic: str) -> str:
    """The name of Kafka's error when this client creates a topic."""
    with pytest.raises(KafkaException) as caught:
        create_topic(cluster, topic)
    error: KafkaError = caught.value.args[0]
    return error.name()


def comes_in(cluster: Cluster) -> bool:
    try:
        return bool(create_admin_client(cluster).list_topics(timeout=3).brokers)
    except KafkaException:
        return False


@pytest.mark.parametrize(
    ("kind", "tls", "version"),
    [
        # tests/kafka/test_security.py tries certificates and tokens of the same listeners each day.
        pytest.param(LabSecurity.MTLS, False, KAFKA_NEWEST, marks=pytest.mark.long),
        (LabSecurity.SASL_PLAIN, False, KAFKA_NEWEST),
        (LabSecurity.SASL_SCRAM_256, True, KAFKA_NEWEST),
        pytest.param(LabSecurity.SASL_SCRAM_512, False, KAFKA_3, marks=pytest.mark.long),
        pytest.param(LabSecurity.SASL_OAUTHBEARER, True, KAFKA_NEWEST, marks=pytest.mark.long),
        pytest.param(LabSecurity.SASL_OAUTHBEARER, False, KAFKA_3, marks=pytest.mark.long),
    ],
)
def test_users_come_in_and_do_what_they_may(
    cluster_factory: ClusterFactory, kind: LabSecurity, tls: bool, version: str
) -> None:
    own = cluster_factory(security=kind, tls=tls, version=version, authorizer=True, users=["bob"], heap_mb=256)
    create_topic(own.cluster, "admins")
    bob = own.cluster_as("bob")
    assert refusal(bob, "bobs") == "TOPIC_AUTHORIZATION_FAILED"
    add_acl(own.cluster, "bob", "create", "topic", "bobs")
    add_acl(own.cluster, "bob", "describe", "topic", "bobs")
    create_topic(bob, "bobs")
    assert not comes_in(replace(own.cluster, security=Security()))


def test_tls_shows_a_certificate_of_the_clusters_authority(cluster_factory: ClusterFactory) -> None:
    own = cluster_factory(security=LabSecurity.TLS, heap_mb=256)
    create_topic(own.cluster, "hidden")
    assert not comes_in(replace(own.cluster, security=Security()))
    before = served_certificate(own)
    own.rotate_certificates()
    assert served_certificate(own) != before
    assert comes_in(own.cluster)


def served_certificate(own: RigCluster) -> str:
    host, _, port = own.bootstrap[0].rpartition(":")
    return ssl.get_server_certificate((host, int(port)), ca_certs=own.cluster.security.ca_file)


@pytest.mark.parametrize("kind", [LabSecurity.SASL_PLAIN, LabSecurity.SASL_SCRAM_256])
def test_a_new_password_ends_the_old_one(cluster_factory: ClusterFactory, kind: LabSecurity) -> None:
    own = cluster_factory(security=kind, users=["eve"], heap_mb=256)
    password = own.cluster_as("eve").security.password
    old_file = own.folder / "old.password"
    old_file.write_text(password.read())
    eve = own.add_user("eve", "new-password")
    stale = replace(eve, security=replace(eve.security, password=replace(password, file=str(old_file))))
    assert password.read() == "new-password"
    assert comes_in(eve)
    assert not comes_in(stale)


@pytest.mark.long
def test_a_token_that_has_ended_is_refused(cluster_factory: ClusterFactory) -> None:
    own = cluster_factory(security=LabSecurity.SASL_OAUTHBEARER, heap_mb=256)
    assert comes_in(own.cluster)
    own.access.renew_token("admin", life_s=-120)
    assert not comes_in(own.cluster)


@pytest.mark.parametrize(
    "arguments",
    [
        {"security": LabSecurity.SASL_SCRAM_256, "version": KAFKA_OLDEST},
        {"security": LabSecurity.TLS, "authorizer": True},
        {"tls": True},
        {"brokers": 2},
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(arguments: dict[str, object]) -> None:
    with pytest.raises((ConfigError, LabError)):
        RigCluster("never", **arguments)  # type: ignore[arg-type]
