"""ACLs, quotas and SCRAM users follow between two guarded clusters: shown by acting as the users themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.clients import add_acl, delete_topic
from testkit.cluster import RigCluster
from testkit.errors import mentions
from tests.pages.shell import kafka_tools, play
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.rights_stage import acl, client, guarded, may_read, may_write, remove_user
from twinshore.cli.app import app, register_verbs
from twinshore.config.frozen import FOLLOWERS_TOPIC, TWINS_TOPIC
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Cluster
from twinshore.kafka.admin import alter_quotas, create_acls, delete_acls, read_acls, read_quotas, read_scram_users
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import AclOperation, AclPermission, PatternType, QuotaEntity, ResourceType

pytestmark = pytest.mark.claim(
    "topics",
    "rights-follow",
    "ACLs are the same after sync, as the users themselves find, those of groups by the filters that "
    "hold now; quotas and SCRAM users follow",
)

LINK = "east->west"
BERTS = "allow User:bert all on topic orders and all it begins"
ANNA_READS = "allow User:anna read on topic"
QUOTA = QuotaEntity((("user", "anna"),))
TOPICS = ("orders", "orders-eu", "secret")


READ_ALL = acl("*", AclOperation.READ)
NOT_SECRET = acl("secret", AclOperation.ALL, permission=AclPermission.DENY)
EVERYTHING = acl("orders", AclOperation.ALL, "User:bert", pattern=PatternType.PREFIXED)
THEIRS = acl("orders", AclOperation.READ, "User:zoe")
OURS, OTHERS = (replace(acl(name, AclOperation.READ), resource=int(ResourceType.GROUP)) for name in ("ours", "others"))
GIVEN = {acl(topic, AclOperation.READ) for topic in TOPICS}


@pytest.fixture(scope="module")
def source() -> Iterator[RigCluster]:
    with guarded("east", "anna", "bert", "carl") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target() -> Iterator[RigCluster]:
    with guarded("west") as cluster:
        yield cluster


@pytest.fixture
def rig(tmp_path: Path, source: RigCluster, target: RigCluster) -> Iterator[Rig]:
    text = settings_text(
        tmp_path,
        [source.cluster_as("mirror"), target.cluster_as("mirror")],
        {LINK: "orders.*|secret"},
        mirror={"tasks_per_link": 1},
    )
    follow = [f'[links."{LINK}".follow]', "every_s = 0.5", "quotas = true", "group_acls = true"]
    for name in ("anna", "bert"):
        file = source.cluster_as(name).security.password.file
        follow += [f'[links."{LINK}".follow.users.{name}]', f"password_file = '{file}'"]
    made = Rig(tmp_path, text + "\n".join(follow) + "\n")
    yield made
    made.process.end()


def plan(rig: Rig) -> list[dict[str, str]]:
    register_verbs()
    words = ["mirror", "plan", "--json", "--settings", str(rig.process.settings)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    found: list[dict[str, str]] = json.loads(result.output)
    return [line for line in found if line["step"] in ("change", "remark")]


def test_who_may_do_what_is_the_same_but_nobody_changes_a_twin(
    rig: Rig, source: RigCluster, target: RigCluster
) -> None:
    for side in (source, target):
        add_acl(side.cluster, "mirror", "all", "broker", "kafka-cluster")
        add_acl(side.cluster, "mirror", "all", "topic", "*")
    for topic in TOPICS:
        source.create_topic(topic)
        assert may_write(source.cluster, topic)
    with client(source) as east, client(target) as west:
        create_acls(east, [READ_ALL, NOT_SECRET, EVERYTHING, OURS, OTHERS])
        create_acls(west, [THEIRS])
        alter_quotas(east, QUOTA, {"producer_byte_rate": 1e6})
        anna, bert = (Cluster("west", target.bootstrap, source.cluster_as(name).security) for name in ("anna", "bert"))

        said_before_it_is_done(rig)
        rig.process.start()
        rig.until_said("replicated by this process", within_s=90)
        until(lambda: (read_acls(west) or frozenset()) >= GIVEN, 60, "rules cross", rig)
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
        # The twin of the heartbeats is made a moment after the others, and its rules with the next look.
        until(lambda: not [line for line in plan(rig) if line["step"] == "change"], 60, "nothing is left to do", rig)

        nothing_else_is_opened(west, target, anna)
        new_twins_are_ruled_first(rig, source, target, anna)
        somebody_elses_topic_gets_none(rig, target, east, west)
        groups_as_operators_say(rig, west)
        taken_back_on_both(rig, east, west, anna)
        stays_revoked(rig, target, west)
    register_verbs()
    words = ["audit", "--json", "--settings", str(rig.process.settings)]
    audit = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)
    outcomes = {(row["subject"], row["after"]): row["outcome"] for row in audit}
    assert outcomes[f"{ANNA_READS} orders", "given"] == "done"
    held = outcomes[BERTS, ""]
    assert held.startswith("held back: ")


@pytest.mark.claim(
    "topics", "own-topics-open", "a user who may write to Twinshore's own topics is an incident until that is denied"
)
def test_who_else_may_write_to_our_own_topics_is_told_and_the_printed_line_ends_it(
    tmp_path: Path, source: RigCluster, target: RigCluster
) -> None:
    for side in (source, target):
        add_acl(side.cluster, "mirror", "all", "broker", "kafka-cluster")
        add_acl(side.cluster, "mirror", "all", "topic", "*")
    back, carl = "west->east", source.cluster_as("carl")
    clusters = [target.cluster_as("mirror"), source.cluster_as("mirror")]
    text = settings_text(tmp_path, clusters, {back: "nothing"}, mirror={"tasks_per_link": 1})
    rig = Rig(tmp_path, text + f'[links."{back}".follow]\nevery_s = 0.5\n')

    def told() -> list[str]:
        rows = [row for row in rig.ledger(back) if row.closed_ms is None]
        return [row.incident.sentence for row in rows if row.incident.kind is IncidentKind.OWN_TOPICS_OPEN]

    source.create_topic(FOLLOWERS_TOPIC)
    rig.process.start()
    try:
        rig.until_said("replicated by this process", within_s=90)
        with client(source) as east:
            wide = acl("twinshore.", AclOperation.WRITE, "User:carl", pattern=PatternType.PREFIXED)
            create_acls(east, [wide])
            until(lambda: len(told()) == 1, 30, "it is told who may write", rig)
            until(lambda: may_write(carl, TWINS_TOPIC), 10, "the rule holds")
            sasl, module = source.cluster.security, "org.apache.kafka.common.security.scram.ScramLoginModule"
            (tmp_path / "admin.properties").write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="
                f'{module} required username="{sasl.username}" password="{sasl.password.read()}";\n'
            )
            (sentence,) = told()
            assert str(wide) in sentence
            play(sentence.partition("(try: ")[2].removesuffix(")"), tmp_path, kafka_tools(tmp_path / "tools"))
            until(lambda: not told(), 30, "the row is closed", rig)
            until(lambda: not may_write(carl, TWINS_TOPIC), 10, "the denial holds")
            assert may_write(carl, FOLLOWERS_TOPIC)  # as each application must
    finally:
        rig.process.end()


def said_before_it_is_done(rig: Rig) -> None:
    said = plan(rig)
    lines = {(line["kind"], line["subject"]) for line in said if line["step"] == "change"}
    assert ("acl", f"{ANNA_READS} orders-eu") in lines
    assert not [subject for _, subject in lines if mentions(subject, "User:anna", "every topic")]
    assert [kind for kind, subject in lines if mentions(subject, "deny User:anna", "secret")] == ["acl"]
    assert ("quota", "producer_byte_rate of user anna") in lines
    assert ("scram user", "bert") in lines
    remarks = {line["subject"]: line["sentence"] for line in said if line["step"] == "remark"}
    assert "held back: " in remarks[BERTS]
    assert "missing on the target" in remarks["carl"]


def taken_back_on_both(rig: Rig, east: KafkaCluster, west: KafkaCluster, anna: Cluster) -> None:
    """Taken back on the source, taken back on the target; what we did not write stays."""
    delete_acls(east, [READ_ALL])
    until(lambda: not GIVEN & (read_acls(west) or GIVEN), 30, "a rule is taken back", rig)
    assert not may_read(anna, "orders")
    assert THEIRS in (read_acls(west) or ())
    alter_quotas(east, QUOTA, {"producer_byte_rate": None})
    until(lambda: read_quotas(west) == {}, 10, "a quota is taken back", rig)


def groups_as_operators_say(rig: Rig, west: KafkaCluster) -> None:
    """Rules of groups follow the filters that hold now, and `mirror plan` says the same."""
    until(lambda: (read_acls(west) or frozenset()) >= {OURS, OTHERS}, 60, "rules of groups cross", rig)
    rig.verb("link", "filter", LINK, "--exclude-groups", "others")
    until(lambda: OTHERS not in (read_acls(west) or {OTHERS}), 60, "the rule of an excluded group goes", rig)
    assert OURS in (read_acls(west) or ())
    assert not [line for line in plan(rig) if line["step"] == "change"], "nothing is left to do"
    rig.verb("link", "reset", LINK)
    until(lambda: OTHERS in (read_acls(west) or ()), 60, "the rule of an admitted group comes", rig)


def nothing_else_is_opened(west: KafkaCluster, target: RigCluster, anna: Cluster) -> None:
    """A topic of the target's own, made while a rule of the source lets anna read every topic there."""
    target.create_topic("salaries")
    assert may_write(target.cluster, "salaries")
    assert not may_read(anna, "salaries")
    assert all(one.names_one() for one in read_acls(west) or () if one.principal == "User:anna")


def new_twins_are_ruled_first(rig: Rig, source: RigCluster, target: RigCluster, anna: Cluster) -> None:
    """Rules of a new topic stand on its twin before anything is carried there."""
    source.create_topic("orders-us")
    assert may_write(source.cluster, "orders-us")
    until(lambda: spans(target.cluster, "orders-us", 1) == [(0, 1)], 60, "the record crosses", rig)
    assert may_read(anna, "orders-us"), "at once: its rules came first"


def somebody_elses_topic_gets_none(rig: Rig, target: RigCluster, east: KafkaCluster, west: KafkaCluster) -> None:
    """A topic in the place of a twin that was deleted by hand: rules of its name are others' now."""
    delete_topic(target.cluster, "orders-us")
    target.create_topic("orders-us")
    # It says "deleted" if it looks between the two, else "deleted and made again".
    rig.until_said("topic orders-us: the twin orders-us ")
    theirs, twins = (acl(name, AclOperation.READ, "User:dora") for name in ("orders-us", "orders-eu"))
    create_acls(east, [theirs, twins])
    until(lambda: twins in (read_acls(west) or ()), 60, "the rule of a twin crosses", rig)
    assert theirs not in (read_acls(west) or ())
    assert not [line for line in plan(rig) if line["step"] == "change"], "nothing is planned for it"


def stays_revoked(rig: Rig, target: RigCluster, west: KafkaCluster) -> None:
    """A user who is taken away on the target is not made again."""
    remove_user(target, "bert")
    rig.until_said("scram user bert: was removed on the target")
    time.sleep(2)  # four looks
    assert "bert" not in {user.name for user in read_scram_users(west)}
