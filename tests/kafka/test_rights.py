"""ACLs, quotas and SCRAM users on a real broker, with and without an authorizer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from testkit.access import LabSecurity
from testkit.cluster import RigCluster
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, SaslMechanism, Secret, Security
from twinshore.kafka.admin import (
    alter_quotas,
    create_acls,
    delete_acls,
    may_alter_acls,
    read_acls,
    read_quotas,
    read_scram_users,
    set_scram_password,
)
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import (
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    QuotaEntity,
    ResourceType,
    ScramUser,
)
from twinshore.kafka.protocol.error_codes import Code

READ = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:anna", "*", AclOperation.READ, AclPermission.ALLOW)
DENY = Acl(ResourceType.TOPIC, "or", PatternType.PREFIXED, "User:*", "10.0.0.7", AclOperation.ALL, AclPermission.DENY)
GROUP = Acl(ResourceType.GROUP, "*", PatternType.LITERAL, "User:anna", "*", AclOperation.READ, AclPermission.ALLOW)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RigCluster]:
    kind = LabSecurity.SASL_SCRAM_256
    flags = ("-XX:TieredStopAtLevel=1",)
    with RigCluster("west", security=kind, authorizer=True, users=("anna",), heap_mb=256, jvm_flags=flags) as cluster:
        yield cluster


def test_acls_are_read_made_and_removed_one_by_one(guarded: RigCluster) -> None:
    with contextlib.closing(KafkaCluster(guarded.cluster)) as cluster:
        assert read_acls(cluster) == frozenset()
        assert create_acls(cluster, [READ, DENY, GROUP]) == {}
        assert create_acls(cluster, [READ]) == {}, "what is there already is no error"
        assert read_acls(cluster) == frozenset({READ, DENY, GROUP})
        assert read_acls(cluster, guarded.brokers[0].node_id) == frozenset({READ, DENY, GROUP})
        assert may_alter_acls(cluster)
        assert delete_acls(cluster, [DENY]) == {}
        assert delete_acls(cluster, [DENY]) == {}
        assert read_acls(cluster) == frozenset({READ, GROUP}), "a wide rule goes without the narrow ones it covers"
        bad = Acl(
            ResourceType.CLUSTER,
            "no-such",
            PatternType.LITERAL,
            "User:anna",
            "*",
            AclOperation.READ,
            AclPermission.ALLOW,
        )
        refused = create_acls(cluster, [READ, bad])
        assert list(refused) == [bad]
        assert "on cluster no-such" in refused[bad].message
        assert delete_acls(cluster, [READ, GROUP]) == {}


def test_who_may_not_look_is_told_what_to_grant(guarded: RigCluster) -> None:
    with contextlib.closing(KafkaCluster(guarded.cluster_as("anna"))) as cluster:
        with pytest.raises(KafkaError) as caught:
            read_acls(cluster)
        assert (caught.value.code, "Describe " in caught.value.hint) == (Code.cluster_authorization_failed, True)
        refused = create_acls(cluster, [READ])
        assert "Alter on the cluster" in refused[READ].hint
        assert delete_acls(cluster, [READ])[READ].code == Code.cluster_authorization_failed
        assert not may_alter_acls(cluster)


def test_a_cluster_without_an_authorizer_says_none(east: RigCluster) -> None:
    with contextlib.closing(KafkaCluster(east.cluster)) as cluster:
        assert read_acls(cluster) is None


def test_quotas_of_users_clients_and_defaults(guarded: RigCluster) -> None:
    anna = QuotaEntity((("client-id", ""), ("user", "anna")))
    everybody = QuotaEntity((("user", ""),))
    with contextlib.closing(KafkaCluster(guarded.cluster)) as cluster:
        alter_quotas(cluster, anna, {"producer_byte_rate": 1e6, "request_percentage": 12.5})
        alter_quotas(cluster, everybody, {"consumer_byte_rate": 2e6})
        until_quotas_are(
            cluster,
            {
                anna: {"producer_byte_rate": 1e6, "request_percentage": 12.5},
                everybody: {"consumer_byte_rate": 2e6},
            },
        )
        alter_quotas(cluster, anna, {"producer_byte_rate": None, "request_percentage": 25.0})
        alter_quotas(cluster, everybody, {"consumer_byte_rate": None})
        until_quotas_are(cluster, {anna: {"request_percentage": 25.0}})
        alter_quotas(cluster, anna, {"request_percentage": None})
        with pytest.raises(KafkaError, match="quotas of user anna"):
            alter_quotas(cluster, QuotaEntity((("user", "anna"),)), {"no_such_rate": 1.0})


def until_quotas_are(cluster: KafkaCluster, expected: dict[QuotaEntity, dict[str, float]]) -> None:
    """A broker answers from metadata that it takes up a moment after the controller has said yes."""
    deadline = time.monotonic() + 30
    while (found := read_quotas(cluster)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def until_user_is_known(cluster: KafkaCluster, user: ScramUser) -> None:
    deadline = time.monotonic() + 30
    while user not in (found := read_scram_users(cluster)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_scram_user_can_be_named_and_made_but_its_password_never_read(
    guarded: RigCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(KafkaCluster(guarded.cluster)) as cluster:
        assert ScramUser("anna", "SCRAM-SHA-256", 4096) in read_scram_users(cluster)
        bella = ScramUser("bella", "SCRAM-SHA-256", 8192)
        set_scram_password(cluster, bella, "geheim")
        until_user_is_known(cluster, bella)
    monkeypatch.setenv("BELLA", "geheim")
    security = Security(sasl=SaslMechanism.SCRAM_SHA_256, username="bella", password=Secret(env="BELLA"))
    with contextlib.closing(KafkaCluster(Cluster("west", guarded.bootstrap, security))) as as_bella:
        assert as_bella.cluster_id() == guarded.cluster_id
