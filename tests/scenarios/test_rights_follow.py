"""ACLs, quotas and SCRAM users follow between two guarded clusters: shown by acting as the users themselves."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.scenarios.mirror_rig import Rig, settings_text, until
from tests.scenarios.raw_writer import RawWriter
from twinshore.cli.entry import app, gather
from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.rights import Acl, Operation, Pattern, Permission, QuotaEntity, Resource
from twinshore.kafka.rights_requests import alter_quotas, create_acls, delete_acls, read_acls, read_quotas
from twinshore.lab import LabCluster, LabSecurity
from twinshore.lab.clients import allow

LINK = "east->west"
QUOTA = QuotaEntity((("user", "anna"),))
TOPICS = ("orders", "orders-eu", "secret")


def acl(
    name: str,
    operation: Operation,
    who: str = "User:anna",
    *,
    pattern: Pattern = Pattern.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(Resource.TOPIC, name, pattern, who, "*", operation, permission)


READ_ALL = acl("*", Operation.READ)
NOT_SECRET = acl("secret", Operation.ALL, permission=Permission.DENY)
EVERYTHING = acl("orders", Operation.ALL, "User:bert", pattern=Pattern.PREFIXED)
THEIRS = acl("orders", Operation.READ, "User:zoe")


def guarded(name: str, *users: str) -> LabCluster:
    flags = ("-XX:TieredStopAtLevel=1",)
    kind = LabSecurity.SASL_SCRAM_256
    return LabCluster(name, security=kind, authorizer=True, users=("mirror", *users), heap_mb=256, jvm_flags=flags)


@pytest.fixture(scope="module")
def source() -> Iterator[LabCluster]:
    with guarded("east", "anna", "bert", "carl") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target() -> Iterator[LabCluster]:
    with guarded("west") as cluster:
        yield cluster


@contextlib.contextmanager
def client(cluster: LabCluster) -> Iterator[KafkaCluster]:
    with contextlib.closing(KafkaCluster(cluster.cluster)) as found:
        yield found


def may_read(cluster: Cluster, topic: str) -> bool:
    """Whether a broker gives this user the topic's first batch."""
    with contextlib.closing(KafkaCluster(cluster, patience_s=5.0)) as found:
        try:
            return found.read_tail_batch(NamedPartition(topic, 0), 0) is not None
        except KafkaError as error:
            assert error.code == Code.TOPIC_AUTHORIZATION_FAILED, error
            return False


def may_write(cluster: Cluster, topic: str) -> bool:
    """Whether this user's record is taken."""
    with contextlib.closing(KafkaCluster(cluster, patience_s=5.0)) as found:
        try:
            return RawWriter(found, topic).write(1, 0).error == Code.NONE
        except KafkaError as error:
            assert error.code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED), error
            return False


@pytest.fixture
def rig(tmp_path: Path, source: LabCluster, target: LabCluster) -> Iterator[Rig]:
    text = settings_text(
        tmp_path,
        [source.cluster_as("mirror"), target.cluster_as("mirror")],
        {LINK: "orders.*|secret"},
        mirror={"lanes": 1},
    )
    follow = [f'[links."{LINK}".follow]', "every_s = 0.5", "quotas = true"]
    for name in ("anna", "bert"):
        file = source.cluster_as(name).security.password.file
        follow += [f'[links."{LINK}".follow.users.{name}]', f"password_file = '{file}'"]
    made = Rig(tmp_path, text + "\n".join(follow) + "\n")
    yield made
    made.process.end()


def plan(rig: Rig) -> list[dict[str, str]]:
    gather()
    words = ["mirror", "plan", "--json", "--settings", str(rig.process.settings)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    found: list[dict[str, str]] = json.loads(result.output)
    return [line for line in found if line["step"] in ("change", "remark")]


def test_who_may_do_what_is_the_same_but_nobody_changes_a_twin(
    rig: Rig, source: LabCluster, target: LabCluster
) -> None:
    for side in (source, target):
        allow(side.cluster, "mirror", "all", "broker", "kafka-cluster")
        allow(side.cluster, "mirror", "all", "topic", "*")
    for topic in TOPICS:
        source.create_topic(topic)
        assert may_write(source.cluster, topic)
    with client(source) as east, client(target) as west:
        create_acls(east, [READ_ALL, NOT_SECRET, EVERYTHING])
        create_acls(west, [THEIRS])
        alter_quotas(east, QUOTA, {"producer_byte_rate": 1e6})
        anna, bert = (Cluster("west", target.bootstrap, source.cluster_as(name).security) for name in ("anna", "bert"))

        said_before_it_is_done(rig)
        rig.process.start()
        rig.until_said("carried by this process", within_s=90)
        until(lambda: READ_ALL in (read_acls(west) or ()), 30, "rules cross", rig)
        until(lambda: read_quotas(west) == {QUOTA: {"producer_byte_rate": 1e6}}, 10, "quotas cross", rig)
        rig.until_said("scram user bert")

        # Acting as the users, with the passwords they have on the source.
        until(lambda: may_read(anna, "orders") and may_read(anna, "orders-eu"), 20, "records cross", rig)
        assert not may_read(anna, "secret")
        assert may_read(bert, "orders")
        assert may_write(source.cluster_as("bert"), "orders")
        assert not may_write(bert, "orders"), "a twin is Twinshore's alone"
        assert not may_read(bert, "secret")
        own = {one for one in read_acls(west) or () if one.principal == "User:mirror"}
        assert len(own) == 2, "the mirror's own rules are each side's own"
        assert not [line for line in plan(rig) if line["step"] == "change"], "nothing is left to do"

        taken_back_on_both(rig, east, west, anna)
        create_acls(east, [READ_ALL])
        until(lambda: READ_ALL in (read_acls(west) or ()), 10, "wide again", rig)
        target.create_topic("private")
        wide_gives_way(rig, west, anna)
    gather()
    words = ["audit", "--json", "--settings", str(rig.process.settings)]
    audit = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)
    outcomes = {(row["subject"], row["after"]): row["outcome"] for row in audit}
    assert outcomes["allow User:anna read on every topic", "given"] == "done"
    held = outcomes["allow User:bert all on topic orders and all it begins", ""]
    assert held == "held back: it would let others change a twin"


def said_before_it_is_done(rig: Rig) -> None:
    said = plan(rig)
    lines = {(line["kind"], line["subject"]) for line in said if line["step"] == "change"}
    assert ("acl", "allow User:anna read on every topic") in lines
    assert ("acl", "deny User:anna all on topic secret") in lines
    assert ("quota", "producer_byte_rate of user anna") in lines
    assert ("scram user", "bert") in lines
    remarks = {line["subject"]: line["sentence"] for line in said if line["step"] == "remark"}
    assert "held back until the twin is promoted" in remarks["allow User:bert all on topic orders and all it begins"]
    assert "missing on the target" in remarks["carl"]


def taken_back_on_both(rig: Rig, east: KafkaCluster, west: KafkaCluster, anna: Cluster) -> None:
    """Taken back on the source, taken back on the target; what we did not write stays."""
    delete_acls(east, [READ_ALL])
    until(lambda: READ_ALL not in (read_acls(west) or ()), 10, "a rule is taken back", rig)
    assert not may_read(anna, "orders")
    assert THEIRS in (read_acls(west) or ())
    alter_quotas(east, QUOTA, {"producer_byte_rate": None})
    until(lambda: read_quotas(west) == {}, 10, "a quota is taken back", rig)


def wide_gives_way(rig: Rig, west: KafkaCluster, anna: Cluster) -> None:
    """A topic of the target's own: the wide rule gives way to one for each twin."""
    until(lambda: READ_ALL not in (read_acls(west) or ()), 10, "no longer wide", rig)
    assert may_read(anna, "orders")
    assert acl("orders-eu", Operation.READ) in (read_acls(west) or ())
