"""Topics that a link admits and does not carry: what a proof, and what the lag, says of the link then."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from testkit.errors import mentions
from tests.scenarios.incident_stage import LINK, QUICK
from tests.scenarios.test_status_says_so import Watched
from twinshore.kafka.admin import create_acls, delete_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.lab.ports import free_port

pytestmark = pytest.mark.timeout(600)
LATE, HELD, RECORDS = "late", "held", 40
UNSEEN = Acl(
    ResourceType.TOPIC, LATE, PatternType.LITERAL, "User:mirror", "*", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Of one topic the twin was made, and the mirror may not see its settings; of another the target holds data of
    somebody else's."""
    port, scram = free_port(), LabSecurity.SASL_SCRAM_256
    west = RigCluster("west", security=scram, authorizer=True, users=("mirror",), jvm_flags=QUICK)
    mirror: dict[str, object] = {"metrics_port": port, "heartbeat_s": 0, "tasks_per_link": 1}
    made = Watched(tmp_path_factory.mktemp("refused"), mirror, west=west)
    made.port = port
    try:
        made.up()
        for kind, name in (("broker", "kafka-cluster"), ("topic", "*"), ("group", "*")):
            add_acl(west.cluster, "mirror", "all", kind, name)
        made.start()
        with closing(KafkaCluster(west.cluster)) as client:
            create_acls(client, [UNSEEN])
        west.create_topic(HELD)
        made.put(west, HELD, 0, [[b"theirs"]])
        for topic in (LATE, HELD):
            made.east.create_topic(topic)
            made.put(made.east, topic, 0, [[b"value"] * RECORDS])
        made.row(LATE, "rights lost", within_s=90)
        made.row(HELD, "foreign write", within_s=90)
        yield made
    finally:
        made.close()


@pytest.mark.long
@pytest.mark.claim(
    "groups",
    "proof-names-refused",
    "a proof names each admitted topic that the mirror refuses, with exit code 2, and calls no such link identical",
)
def test_a_proof_names_each_admitted_topic_that_does_not_cross(stage: Watched) -> None:
    code, said = stage.twinshore("prove", "--here")
    first, *rest = said.splitlines()
    assert (code, first.partition(":")[0]) == (2, "cannot tell"), said
    assert mentions(first, "2 topics"), said
    for topic, kind in ((LATE, "rights lost"), (HELD, "foreign write")):
        (line,) = [line for line in rest if line.startswith(f"{LINK}: {topic}: not compared: the mirror refuses it")]
        assert f", {kind}: " in line, line
    code, said = stage.twinshore("prove", "--here", "--json")
    values = json.loads(said)
    assert (code, values["state"]) == (2, "could not")
    assert {(lack["topic"], lack["partition"]) for lack in values["not_compared"]} == {(LATE, -1), (HELD, -1)}
    status = stage.status()
    assert {lack["topic"] for lack in status["not_compared"]} == {LATE, HELD}
    assert "could not tell of 2 topics or partitions" in stage.rig.verb("status")


def test_what_refused_topics_hold_is_missing(stage: Watched) -> None:
    stage.until_all_say("flowing", 2 * RECORDS, 60)
    age = re.search(r"^twinshore_link_recovery_point_seconds\{[^}]*\} (\S+)$", stage.metrics(), re.MULTILINE)
    assert age and float(age[1]) > 0, stage.metrics()


def test_a_proof_speaks_of_all_once_all_crosses(stage: Watched) -> None:
    with closing(KafkaCluster(stage.west.cluster)) as client:
        delete_acls(client, [UNSEEN])
    stage.rig.verb("link", "filter", LINK, "--exclude", HELD)
    stage.row(LATE, "rights lost", closed=True, within_s=120)
    stage.crossed(LATE, 0, 120)
    code, said = stage.twinshore("prove", "--here")
    assert (code, said.partition(":")[0]) == (0, "identical"), said
    assert stage.status()["not_compared"] == []
