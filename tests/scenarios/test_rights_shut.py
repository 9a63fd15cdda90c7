"""What is shut on the source is shut on its twin, also on a target where everybody may use what no ACL speaks of."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.clients import add_acl, topic_id
from testkit.cluster import RigCluster
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.rights_stage import acl, client, guarded, may_read, may_write
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.admin import create_acls, delete_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.replication.sync.cluster_comparison import OPEN_WITHOUT_ACLS_SETTING

pytestmark = pytest.mark.claim(
    "topics",
    "rights-shut",
    "ACLs that follow open nothing else, also where everybody may use what no ACL speaks of: the last"
    " rule of a topic stays, a new twin carries nothing before its rules stand, and the ledger says "
    "what it waits for; a refusal is told once a day, and no name writes a line of the log",
)

LINK = "east->west"
ALL_BUT_DELETE = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
READS = acl("payroll", AclOperation.READ)
NO_RULES = Acl(
    ResourceType.CLUSTER,
    "kafka-cluster",
    PatternType.LITERAL,
    "User:mirror",
    "*",
    AclOperation.ALTER,
    AclPermission.DENY,
)


@pytest.fixture(scope="module")
def source() -> Iterator[RigCluster]:
    with guarded("east") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target() -> Iterator[RigCluster]:
    with guarded("west", "anna", "bert", settings={OPEN_WITHOUT_ACLS_SETTING: "true"}) as cluster:
        yield cluster


@pytest.fixture
def rig(tmp_path: Path, source: RigCluster, target: RigCluster) -> Iterator[Rig]:
    ends = [source.cluster_as("mirror"), target.cluster_as("mirror")]
    text = settings_text(
        tmp_path, ends, {LINK: "payroll|bare|late|undeleted|partly"}, mirror={"tasks_per_link": 1, "refresh_s": 1}
    )
    made = Rig(tmp_path, text + f'[links."{LINK}".follow]\nevery_s = 0.5\n')
    yield made
    made.process.end()


@pytest.mark.long
def test_nothing_is_opened_where_everybody_may_use_what_no_rule_speaks_of(
    rig: Rig, source: RigCluster, target: RigCluster
) -> None:
    for kind, name in (("broker", "kafka-cluster"), ("topic", "*")):
        add_acl(source.cluster, "mirror", "all", kind, name)
    add_acl(target.cluster, "mirror", "all", "broker", "kafka-cluster")
    target.create_topic("theirs")
    for topic in ("payroll", "bare", "undeleted", "partly"):
        source.create_topic(topic)
        assert may_write(source.cluster, topic)
    anna, bert = (target.cluster_as(name) for name in ("anna", "bert"))
    with client(source) as east, client(target) as west:
        create_acls(east, [READS])
        create_acls(west, [acl("undeleted", operation, "User:mirror") for operation in ALL_BUT_DELETE])
        rig.process.start()
        until(lambda: crossed(target, "payroll") and crossed(target, "bare"), 120, "they cross", rig)
        until(lambda: crossed(target, "undeleted"), 120, "it crosses by the rights that it was given", rig)
        assert not may_delete(target, "undeleted"), "the operator's word, and no rule of the mirror's own gives it"
        assert not [
            rule for rule in read_acls(west) or () if rule.name == "undeleted" and rule.operation == AclOperation.ALL
        ]
        until(lambda: crossed(target, "partly"), 120, "it crosses by a rule of the mirror's own", rig)
        own = acl("partly", AclOperation.ALL, "User:mirror")
        create_acls(west, [replace(own, host="10.9.9.9"), acl("partly", AclOperation.WRITE, "User:*")])
        until(lambda: own in (read_acls(west) or ()), 60, "it has its own", rig)
        time.sleep(3)  # some looks
        assert own in (read_acls(west) or ()), "it cannot do without"
        delete_acls(west, [own])
        until(lambda: own in (read_acls(west) or ()), 60, "and it comes back", rig)
        # Since rules come before records, these need not be waited for.
        assert may_read(anna, "payroll")
        assert not shut_out(bert, "theirs"), "everybody may use what no rule speaks of"
        assert shut_out(bert, "payroll")
        assert shut_out(anna, "bare")
        assert shut_out(bert, "bare")

        delete_acls(east, [READS])
        until(lambda: READS not in (read_acls(west) or (READS,)), 90, "the rule is taken back", rig)
        until(lambda: shut_out(anna, "payroll"), 60, "brokers know", rig)
        assert shut_out(bert, "payroll"), "the last rule of a topic stays"
        nothing_crosses_before_its_rules_stand(rig, source, target, west)
        assert shut_out(bert, "late")
        a_name_writes_no_line_of_the_log(rig, east)
        what_is_refused_again_and_again_is_told_once(rig, source, west)


@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_NEWEST])
def test_brokers_name_what_they_let_everybody_do_and_hide_whether(version: str) -> None:
    with guarded("shy", settings={OPEN_WITHOUT_ACLS_SETTING: "false"}, version=version) as shy, client(shy) as found:
        (node,) = found.metadata([], refresh=True).brokers
        assert found.admin.broker_settings(node)[OPEN_WITHOUT_ACLS_SETTING].value is None


def may_delete(target: RigCluster, topic: str) -> bool:
    """Whether the mirror's user may cut the topic's log, which takes the right to delete the topic."""
    with closing(KafkaCluster(target.cluster_as("mirror"), patience_s=30.0)) as found:
        named = {topic: topic_id(target.cluster, topic)}
        _, failed = found.delete_records_of_each({TopicPartition(topic, 0): 0}, named)
    assert all(error.code == Code.topic_authorization_failed for error in failed.values()), failed
    return not failed


def crossed(target: RigCluster, topic: str) -> bool:
    return spans(target.cluster, topic, 1) == [(0, 1)]


def shut_out(user: Cluster, topic: str) -> bool:
    return not may_read(user, topic) and not may_write(user, topic)


def rule_by_hand(west: KafkaCluster, rule: Acl, rig: Rig) -> None:
    """The brokers tell of it before the controller, which asks its own copy, may know it."""
    create_acls(west, [rule])
    until(lambda: rule in (read_acls(west) or ()), 30, f"{rule} stands", rig)
    time.sleep(2)


def nothing_crosses_before_its_rules_stand(
    rig: Rig, source: RigCluster, target: RigCluster, west: KafkaCluster
) -> None:
    """Where the target takes no rule a new topic waits, with its row; then it goes by itself."""
    rule_by_hand(west, NO_RULES, rig)
    source.create_topic("late")
    assert may_write(source.cluster, "late")
    rig.until_said("topic late waits for its ACLs", within_s=90)

    def told() -> list[str]:
        rows = [row for row in rig.ledger(LINK) if row.incident.topic == "late" and not row.closed_ms]
        return [row.incident.sentence for row in rows if row.incident.kind == "rights lost"]

    until(lambda: any("Alter on the cluster" in sentence for sentence in told()), 60, "its row", rig)
    assert spans(target.cluster, "late", 1) == [(0, 0)], "the twin is there, and empty"
    time.sleep(6)  # some ten looks, each refused for the same reason
    for words in ("topic late waits for its ACLs", "acl allow User:mirror all on topic late"):
        lines = [line for line in rig.process.said.splitlines() if words in line]
        assert len(lines) == 1, lines
        assert "Request(" not in lines[0], "the objects of a broker's program say nothing to an operator"
        assert "Session" not in lines[0]
    delete_acls(west, [NO_RULES])
    until(lambda: crossed(target, "late"), 90, "late crosses", rig)
    until(lambda: all(row.closed_ms for row in rig.ledger(LINK) if row.incident.topic == "late"), 60, "closed", rig)


def a_name_writes_no_line_of_the_log(rig: Rig, east: KafkaCluster) -> None:
    forged = "09:00:00 east->west: all is well"
    create_acls(east, [acl("payroll", AclOperation.ALL, f"User:eve\n{forged}")])
    assert f"User:eve\\n{forged} " in rig.until_said("User:eve", within_s=90)
    rig.until_said(f"User:eve\\n{forged} all on topic payroll", within_s=60)
    for said in (rig.process.said, rig.verb("mirror", "plan", "--details"), rig.verb("audit")):
        assert f"User:eve\\n{forged} all on topic payroll" in said, said[-3000:]
        assert not [line for line in said.splitlines() if line.startswith(forged)], said[-3000:]


def what_is_refused_again_and_again_is_told_once(rig: Rig, source: RigCluster, west: KafkaCluster) -> None:
    """A setting of a twin that the mirror may not change, through a dozen looks."""
    rule_by_hand(west, acl("payroll", AclOperation.ALTER_CONFIGS, "User:mirror", permission=AclPermission.DENY), rig)
    with client(source) as east:
        named = topic_id(source.cluster, "payroll")
        east.admin.alter_topic_settings("payroll", {"segment.ms": "3600000"}, topic_id=named)
    rig.until_said("segment.ms of payroll", within_s=90)
    time.sleep(6)
    told = [line for line in rig.process.said.splitlines() if "segment.ms of payroll" in line]
    assert len(told) == 1, told
    assert "(refused: " in told[0]
    audit = json.loads(rig.verb("audit", "--json"))
    assert len([row for row in audit if row["subject"] == "segment.ms of payroll"]) == 1
