"""Switches between clusters with authorizers: who follows nobody is held by ACL, and kept out of the old home."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.clients import add_acl
from testkit.cluster import RigCluster, rigged
from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.rights_stage import acl, client, guarded, may_write
from tests.scenarios.switch_rig import SwitchRig, ended
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_write_rules import Application
from tests.scenarios.whole_state import BEATS, State, at_rest, of_cluster, of_store
from twinshore.kafka.admin import create_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster

TOPIC = "rights-orders"


def opened(lab: RigCluster) -> None:
    """The mirror may do all that it needs, and is no super user; on east anna writes."""
    everything = ("describe", "alter", "create", "alter_configs", "describe_configs", "idempotent_write")
    for operation in (*everything, "cluster_action"):
        add_acl(lab.cluster, "mirror", operation, "broker", "kafka-cluster")
    for kind in ("topic", "group", "transactional_id"):
        add_acl(lab.cluster, "mirror", "all", kind, "*")
    if lab.name == "east":
        with client(lab) as kafka:
            create_acls(kafka, [acl("rights-", AclOperation.ALL, pattern=PatternType.PREFIXED)])


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with guarded("east", "anna", "bert") as east, guarded("west", "anna", "bert") as west:
        for lab in (east, west):
            opened(lab)
        east.create_topic(TOPIC, partitions=3)
        for number in range(3):
            fill(east, TOPIC, 10, partition=number)
        folder = tmp_path_factory.mktemp("rights")
        links = {"east->west": "rights-.*", "west->east": "rights-.*"}
        clusters = [lab.cluster_as("mirror") for lab in (east, west)]
        made = Rig(folder, settings_text(folder, clusters, links, mirror={"tasks_per_link": 1, "refresh_s": 0.5}))
        made.process.start()
        until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 10)] * 3, 120, "carried", made)
        yield SwitchRig(made, TOPIC, east, west)
        made.process.end()


def rules(lab: LabCluster) -> frozenset[Acl]:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        return read_acls(kafka) or frozenset()


@pytest.mark.long
@pytest.mark.claim("switch", "drill", "a drill changes nothing, by comparison of all there is, and holds nobody")
def test_a_drill_changes_nothing(rig: SwitchRig) -> None:
    """Rules, settings, logs, places of groups and the store's rows are as they were; what it tells is its own row."""
    drill = (*BEATS, "switches", "proofs")  # what it writes down of itself, and of what it proved

    def state() -> tuple[State, ...]:
        return of_cluster(rig.east), of_cluster(rig.west), of_store(rig.settings.parent / "store.db", drill)

    stand(rig.east, "readers", TOPIC)
    until(lambda: read_group_offsets(rig.west.cluster, "readers", TOPIC, [0]) == [7], 60, "the group follows", rig.rig)
    rig.settled("east", 1)
    rig.level()
    before = at_rest(state)  # a mirror that has just begun is done with what it does once
    said = rig.switch("drill", TOPIC, "--to", "west")
    assert said.code == 0, said.text
    after = state()
    differs = [
        f"{name}: {one.get(name)} became {other.get(name)}"
        for one, other in zip(before, after, strict=True)
        for name in {*one, *other}
        if one.get(name) != other.get(name)
    ]
    assert not differs
    print(f"told: {sum(map(len, before))} things compared on both clusters and in the store")

    application = Application(rigged(rig.east).cluster_as("anna"), TOPIC)
    application.goes_on()
    said = rig.switch("drill", TOPIC, "--to", "west")
    application.end()
    print("told:", said.last, f"{application.taken} records taken beside it, {len(application.refused)} refused")
    assert said.code == 0, said.text
    assert not application.refused
    assert (rules(rig.east), rules(rig.west)) == (before[0]["rules"], before[1]["rules"])
    rig.settled("east", 1)


def stand(lab: LabCluster, group: str, topic: str) -> None:
    """The group stands at offset 7 of partition 0, and has no members."""
    consumer = Consumer({**client_settings(lab.cluster), "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.claim("switch", "super-user", "a super user writes in the hold: it turns back, and rules are as before")
def test_a_super_user_who_writes_turns_it_back_and_no_rule_stays(rig: SwitchRig) -> None:
    before = rules(rig.east), rules(rig.west)
    planned = rig.switch("plan", TOPIC, "--to", "west")
    assert mentions(planned.text, "super users", TOPIC), planned.text
    assert mentions(planned.text, "rolls back")
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.05):
            fill(rig.east, TOPIC, 1, partition=2)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        said = rig.move("west", "--hold-s", "3")
    finally:
        over.set()
        thread.join()
    print("told:", said.text)
    assert (said.code, said.last.startswith("turned back: ")) == (1, True), said.text
    assert mentions(said.text, "super users")
    assert (rules(rig.east), rules(rig.west)) == before
    rig.settled("east", 1)
    assert may_write(rigged(rig.east).cluster_as("anna"), TOPIC)
    rig.same()


@pytest.mark.long
@pytest.mark.claim("switch", "held-by-acl", "who follows nobody is held by ACL, and kept out of the old home")
def test_who_follows_nobody_is_held_and_then_kept_out(rig: SwitchRig) -> None:
    anna = rigged(rig.east).cluster_as("anna"), rigged(rig.west).cluster_as("anna")
    before = sum(rig.level())
    application = Application(anna[0], TOPIC)
    application.goes_on()
    child, log = rig.begin("run", TOPIC, "--to", "west", "--yes")
    code = ended(child, log)
    said = log.read_text(encoding="utf-8")
    application.end()
    print("told:", said, application.refused, rig.record()["held_s"])
    assert code == 0, said
    assert application.refused, "it was held"
    assert not may_write(anna[0], TOPIC), "the twin is guarded"
    until(lambda: may_write(anna[1], TOPIC), 30, "anna writes at the new home")
    points = rig.record()["topics"][0]["points"]
    assert sum(points) == before + application.taken, "what was taken moved, and no more"
    rig.settled("west", 2)
    rig.same()
    taken = rig.level()
    until(lambda: rig.rig.told("west->east").get((TOPIC, 0), 0) == taken[0], 30, "the link back carries")
    # Who is given the right meanwhile is kept out by the next look, and has it when the topic is at home there.
    with client(rig.east) as kafka:
        fresh = acl(TOPIC, AclOperation.WRITE, "User:bert")
        create_acls(kafka, [fresh])
    denial = acl(TOPIC, AclOperation.WRITE, "User:bert", permission=AclPermission.DENY)
    until(lambda: denial in rules(rig.east), 60, "bert is kept out", rig.rig)
    assert not may_write(rigged(rig.east).cluster_as("bert"), TOPIC)
    # And home again: the guard goes, the other side is shut.
    said_back = rig.move("east")
    print("told:", said_back.text)
    assert said_back.code == 0, said_back.text
    until(lambda: may_write(anna[0], TOPIC), 30, "anna writes at home again")
    assert not may_write(anna[1], TOPIC)
    assert denial not in rules(rig.east), "by the switch, and no look puts it back"
    assert may_write(rigged(rig.east).cluster_as("bert"), TOPIC)
    rig.settled("east", 3)
    rig.same()
