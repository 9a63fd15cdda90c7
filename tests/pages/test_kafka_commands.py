"""Lines with Kafka's own tools do what their pages say, as they stand, on clusters with an authorizer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from testkit.errors import mentions, raises
from tests.conftest import ClusterFactory
from tests.pages.shell import PAGES, block, blocks, kafka_tools, play, replaced
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from twinshore.config.errors import RefusedError
from twinshore.lab.clients import client_settings

ADMIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="page";
"""
RECORDS = 500


def guarded(start: ClusterFactory, name: str) -> RigCluster:
    kind = LabSecurity.SASL_SCRAM_256
    cluster = start(name, security=kind, authorizer=True, users=("twinshore",), heap_mb=256)
    cluster.add_user("admin", "page")  # One file of the operator's is for both sides.
    return cluster


def address(cluster: RigCluster) -> str:
    return cluster.cluster.bootstrap[0]


def produce(cluster: RigCluster) -> None:
    producer = Producer({**client_settings(cluster.cluster), "acks": "all"})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.mark.long
def test_kafkas_tools_do_what_the_pages_let_them_do(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Rights for a whole mirror, what to save of a source, a twin that becomes a topic, a topic that goes."""
    east, west = guarded(cluster_factory, "east"), guarded(cluster_factory, "west")
    east.create_topic("orders", partitions=2, settings={"retention.ms": "7200000"})
    add_acl(east.cluster, "anna", "READ", "topic", "orders")
    produce(east)
    tools = kafka_tools(tmp_path / "tools")
    (tmp_path / "admin.properties").write_text(ADMIN)
    sides = {"kafka-east-1:9092": address(east), "kafka-west-1:9092": address(west)}
    names = f"EAST={address(east)} WEST={address(west)}\n"
    played = []

    def run(text: str, before: str = "", **words: str) -> str:
        played.append(text)
        return play(before + replaced(text, **words), tmp_path, tools)

    run(block("operations", "acls() {"), **sides)
    user = [side.cluster_as("twinshore") for side in (east, west)]
    rig = Rig(tmp_path / "mirror", settings_text(tmp_path, user, {"east->west": "orders"}))
    rig.process.start()
    try:
        until(lambda: same_ends(east.cluster, west.cluster, "orders", 2), 90, "all crossed", rig)
        rig.until_said("acl allow User:anna read on topic orders: given")
        plan = rig.verb("mirror", "plan")
    finally:
        assert rig.process.end() == 0
    for said in (rig.process.said, plan):
        assert not re.search(r"right|authori[sz]|denied", said.lower()), said

    run(block("operations", "> east-settings.txt"), names)
    assert "retention.ms=7200000" in (tmp_path / "east-settings.txt").read_text()
    assert "User:anna" in (tmp_path / "east-acls.txt").read_text()

    run(block("operations", "--delete-config"), names)
    described = block("operations", "> east-settings.txt").splitlines()[0].replace("$EAST", "$WEST").split(" > ")[0]
    now = play(names + described, tmp_path, tools)
    assert "retention.ms=604800000" in now
    assert "cleanup.policy=compact" in now
    for page in PAGES:
        for line in re.findall(r"`(kafka-[a-z]+\.sh --bootstrap-server [^`]+)`", page.read_text()):
            where = f"{address(west)} --command-config admin.properties"
            run(line, **{"WEST:9092": where})
    lines = [line for page in PAGES for text in blocks(page) for line in text.splitlines()]
    left = [line for line in lines if re.match(r" *(kafka-|acls)", line) and line not in "\n".join(played)]
    assert left == []


@pytest.mark.long
def test_the_rights_of_the_page_are_enough_to_switch_there_and_back(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """A user of Twinshore's that is no super user fences the old home and carries the other way."""
    east, west = guarded(cluster_factory, "east"), guarded(cluster_factory, "west")
    east.create_topic("orders", partitions=2)
    for side in (east, west):
        add_acl(side.cluster, "anna", "WRITE", "topic", "orders")
    produce(east)
    tools = kafka_tools(tmp_path / "tools")
    (tmp_path / "admin.properties").write_text(ADMIN)
    sides = {"kafka-east-1:9092": address(east), "kafka-west-1:9092": address(west)}
    rights = replaced(block("operations", "acls() {"), **sides)
    play(rights, tmp_path, tools)
    user = [side.cluster_as("twinshore") for side in (east, west)]
    rig = Rig(tmp_path / "mirror", settings_text(tmp_path, user, {"east->west": "orders"}))
    rig.process.start()
    try:
        until(lambda: same_ends(east.cluster, west.cluster, "orders", 2), 90, "all crossed", rig)
        with raises(RefusedError, "switch.no-acl-rights", cluster="east"):
            rig.verb("switch", "run", "orders", "--to", "west", "--yes")
        play(rights + block("operations", "write_to $EAST\nread_from $WEST"), tmp_path, tools)
        for home, other in (("west", "east"), ("east", "west")):
            said = rig.verb("switch", "run", "orders", "--to", home, "--yes")
            assert mentions(said, "done", "orders", home)
            assert "no authorizer" not in said, "the old home was fenced"
            assert not re.search(r"not allowed|not authori[sz]ed|lacks", said.lower()), said
            produce({"east": east, "west": west}[home])
            until(lambda: same_ends(east.cluster, west.cluster, "orders", 2), 90, f"{other} has all", rig)
    finally:
        assert rig.process.end() == 0
