"""Who is kept from writing by ACLs, on real brokers, by their own clients; and how all of it is given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from testkit.clients import add_acl
from testkit.cluster import RigCluster
from testkit.errors import mentions
from tests.scenarios.rights_stage import acl, client, guarded, may_read, may_write
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.admin import create_acls, delete_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.access_control import ANY_USER, Acl, AclOperation, PatternType
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.switch import write_access
from twinshore.switch.core.acl_rules import AclChange, RulesPlan, plan_denial, plan_write_block

US = "User:mirror"
PARTITIONS = 3
STILL_S = 2.0
VERSIONS = [KAFKA_NEWEST, pytest.param(KAFKA_3, marks=pytest.mark.long)]


def opened(lab: RigCluster) -> None:
    """The mirror may do what it needs, and is no super user; everybody writes by a rule for many topics."""
    for operation in ("describe", "alter", "idempotent_write", "describe_configs"):
        add_acl(lab.cluster, "mirror", operation, "broker", "kafka-cluster")
    add_acl(lab.cluster, "mirror", "all", "topic", "*")
    with client(lab) as kafka:
        everybody = acl("test_", AclOperation.WRITE, ANY_USER, pattern=PatternType.PREFIXED)
        create_acls(kafka, [everybody, acl("test_", AclOperation.ALL, pattern=PatternType.PREFIXED)])


@pytest.fixture(scope="module", params=VERSIONS)
def lab(request: pytest.FixtureRequest) -> Iterator[RigCluster]:
    with guarded("old", "anna", "bert", version=request.param) as cluster:
        opened(cluster)
        yield cluster


@pytest.fixture(scope="module", params=VERSIONS)
def three(request: pytest.FixtureRequest) -> Iterator[RigCluster]:
    with guarded("old", "anna", version=request.param, brokers=3) as cluster:
        opened(cluster)
        yield cluster


class Application:
    """An idempotent producer that writes without pause: what became of each record, in the order that it was told."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.taken = 0
        self.refused: dict[str, int] = {}
        self._topic = topic
        self._producer = Producer(
            {**client_settings(cluster), "enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 50}
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _told(self, error: Any, _: Any) -> None:
        if error:
            self.refused[error.name()] = self.refused.get(error.name(), 0) + 1
        else:
            self.taken += 1

    def _run(self) -> None:
        while not self._over.is_set():
            for number in range(10):
                try:
                    self._producer.produce(self._topic, b"x", partition=number % PARTITIONS, on_delivery=self._told)
                except KafkaException as error:
                    name = f"at once {error.args[0].name()}"
                    self.refused[name] = self.refused.get(name, 0) + 1
            self._producer.poll(0.005)

    def goes_on(self, within_s: float = 30.0) -> float:
        """How long it took until the next record was taken."""
        before, began = self.taken, time.monotonic()
        while self.taken == before:
            assert time.monotonic() - began < within_s, self.refused
            time.sleep(0.01)
        return time.monotonic() - began

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(30.0) == 0


def ends(kafka: KafkaCluster, topic: str) -> list[int]:
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return list(kafka.list_offsets(parts, OffsetKind.LOG_END).values())


def stand_still(kafka: KafkaCluster, topic: str) -> float:
    """Nothing is appended any more; when the last append was seen."""
    seen, moved_s, began = ends(kafka, topic), 0.0, time.monotonic()
    while time.monotonic() - began < STILL_S:
        now = ends(kafka, topic)
        if now != seen:
            seen, moved_s = now, time.monotonic() - began
        time.sleep(0.01)
    return moved_s


def kept_out_and_let_in_again(lab: RigCluster, topic: str) -> None:
    lab.create_topic(topic, partitions=PARTITIONS, copies=1)
    anna = lab.cluster_as("anna")
    with client(lab) as watching, closing(KafkaCluster(lab.cluster_as("mirror"))) as kafka:
        before = read_acls(kafka)
        application = Application(anna, topic)
        application.goes_on()
        plan = plan_denial(write_access.read_acl_snapshot(kafka, [topic], US))
        began = time.monotonic()
        write_access.apply_rules_plan(kafka, plan)
        applied_s = time.monotonic() - began
        shown = write_access.confirm_rules_plan(kafka, plan)
        confirmed_s = time.monotonic() - began
        assert set(shown) == {broker.node_id for broker in lab.brokers}
        moved_s = stand_still(watching, topic)
        assert moved_s < 0.5, "what was under way, and nothing later"
        assert application.refused, "it tried"
        refused = dict(application.refused)
        assert may_read(anna, topic), "only to write is forbidden"

        still = ends(watching, topic)
        assert not may_write(lab.cluster_as("mirror"), topic), "we are kept out as well"
        assert ends(watching, topic) == still
        assert may_write(lab.cluster, topic), "no rule keeps a super user out"
        assert sum(ends(watching, topic)) == sum(still) + 1, "so its ends are watched"

        write_access.restore_rules(kafka, plan)
        write_access.confirm_rules_restored(kafka, plan)
        assert read_acls(kafka) == before
        resumed_s = application.goes_on()
        application.end()
        assert sum(ends(watching, topic)) == application.taken + 1, "nothing lost, nothing twice"
        print(
            f"told: {lab.version}, {len(lab.brokers)} brokers: applied after {applied_s:.3f} s, confirmed on each after"
            f" {confirmed_s:.3f} s, last append {moved_s:.3f} s behind that; the producer went on {resumed_s:.3f} s"
            f" after the rules were back, and had seen {refused}"
        )
        assert may_write(anna, topic), "a new producer as well"


def test_a_producer_that_follows_nobody_is_kept_out_and_goes_on_afterwards(lab: RigCluster, unique_topic: str) -> None:
    kept_out_and_let_in_again(lab, unique_topic)


@pytest.mark.long
def test_each_of_three_brokers_keeps_it_out(three: RigCluster, unique_topic: str) -> None:
    kept_out_and_let_in_again(three, unique_topic)


@pytest.mark.long
def test_a_broker_that_was_away_comes_back_and_keeps_it_out(three: RigCluster, unique_topic: str) -> None:
    """It hears of all rules before it leads anything again."""
    three.create_topic(unique_topic, partitions=PARTITIONS, copies=1)
    anna = three.cluster_as("anna")
    with client(three) as watching:
        assert may_write(anna, unique_topic)
        leader = watching.leader_of(TopicPartition(unique_topic, 0))
        (dead,) = (one for one in three.brokers if one.node_id == leader)
        dead.kill()
        ours = three.cluster_as("mirror")
        # Whoever died may have been the controller: that takes its time.
        with closing(KafkaCluster(ours)) as patient, closing(KafkaCluster(ours, patience_s=2.0)) as kafka:
            plan = plan_denial(write_access.read_acl_snapshot(patient, [unique_topic], US))
            write_access.apply_rules_plan(patient, plan)
            alive = {one.node_id for one in three.brokers} - {leader}
            assert set(write_access.confirm_rules_plan(kafka, plan, within_s=60.0)) == alive
            dead.restart()
            for _ in range(10):
                assert not may_write(anna, unique_topic), "from the first request that it takes"
            assert sum(ends(watching, unique_topic)) == 1
            assert leader in write_access.confirm_rules_plan(kafka, plan)
            write_access.restore_rules(kafka, plan)
            write_access.confirm_rules_restored(kafka, plan)
        assert may_write(anna, unique_topic)


def changes(steps: list[AclChange]) -> list[AclChange]:
    """One rule after the other."""
    return [AclChange(step.add, (one,)) for step in steps for one in step.acls]


def killed_after(kafka: KafkaCluster, steps: list[AclChange], count: int) -> None:
    for step in changes(steps)[:count]:
        assert not (create_acls if step.add else delete_acls)(kafka, step.acls)


def plans(kafka: KafkaCluster, topic: str) -> list[RulesPlan]:
    sight = write_access.read_acl_snapshot(kafka, [topic], US)
    return [plan_denial(sight), plan_write_block(sight)]


def test_killed_after_each_change_it_is_done_again_or_given_back(lab: RigCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic)
    with closing(KafkaCluster(lab.cluster_as("mirror"))) as kafka:
        before = read_acls(kafka)
        for plan in plans(kafka, unique_topic):
            for count in range(len(changes(plan.changes_to_apply())) + 1):
                killed_after(kafka, plan.changes_to_apply(), count)
                again = RulesPlan.from_record(plan.as_record())
                if count % 2:
                    write_access.apply_rules_plan(kafka, again)
                    write_access.confirm_rules_plan(kafka, again)
                    killed_after(kafka, plan.changes_to_restore(), count)
                write_access.restore_rules(kafka, again)
                write_access.confirm_rules_restored(kafka, again)
                assert read_acls(kafka) == before


def until_shown(kafka: KafkaCluster, lab: RigCluster, rule: Acl) -> None:
    """Who adds a rule is answered by the controller: a broker hears of it a moment later."""
    until_s = time.monotonic() + 20
    while any(rule not in (read_acls(kafka, broker.node_id) or ()) for broker in lab.brokers):
        assert time.monotonic() < until_s


def test_a_guard_takes_the_place_of_a_denial_and_nobody_slips_in(lab: RigCluster, unique_topic: str) -> None:
    neighbour = f"{unique_topic}-eu"
    for topic in (unique_topic, neighbour):
        lab.create_topic(topic)
    anna, bert, ours = (lab.cluster_as(name) for name in ("anna", "bert", "mirror"))
    late = acl(unique_topic, AclOperation.WRITE, "User:bert")
    with closing(KafkaCluster(ours)) as kafka:
        before = read_acls(kafka)
        assert before is not None
        shut = plan_denial(write_access.read_acl_snapshot(kafka, [unique_topic], US))
        write_access.apply_rules_plan(kafka, shut)
        write_access.confirm_rules_plan(kafka, shut)
        create_acls(kafka, [late])
        until_shown(kafka, lab, late)
        held = plan_write_block(write_access.read_acl_snapshot(kafka, [unique_topic], US))
        write_access.apply_rules_plan(kafka, held)
        write_access.confirm_rules_plan(kafka, held)
        assert [may_write(who, unique_topic) for who in (anna, bert, ours)] == [False, False, False]
        write_access.restore_rules(kafka, shut)
        write_access.confirm_rules_restored(kafka, shut)
        assert [may_write(who, unique_topic) for who in (anna, bert, ours)] == [False, False, True]
        assert [may_write(who, neighbour) for who in (anna, bert, ours)] == [True, True, True]
        assert may_read(anna, unique_topic)

        later = plan_write_block(write_access.read_acl_snapshot(kafka, [neighbour], US), held)
        write_access.apply_rules_plan(kafka, later)
        write_access.confirm_rules_plan(kafka, later)
        assert [may_write(who, unique_topic) for who in (anna, bert)] == [True, True], "it is no twin any more"
        assert [may_write(who, neighbour) for who in (anna, bert, ours)] == [False, False, True]
        write_access.restore_rules(kafka, later)
        write_access.confirm_rules_restored(kafka, later)
        assert read_acls(kafka) == before | {late}, "what others changed meanwhile stays"
        delete_acls(kafka, [late])


def test_who_may_not_change_rules_begins_nothing(lab: RigCluster, unique_topic: str) -> None:
    lab.create_topic(unique_topic)
    describe = Acl(4, "kafka-cluster", PatternType.LITERAL, "User:bert", "*", AclOperation.DESCRIBE, 3)
    with client(lab) as admin, closing(KafkaCluster(lab.cluster_as("bert"))) as kafka:
        with pytest.raises(KafkaError) as caught:
            write_access.read_acl_snapshot(kafka, [unique_topic])
        assert mentions(caught.value.hint, "Describe")
        create_acls(admin, [describe])
        until_shown(admin, lab, describe)
        before = read_acls(admin)
        with pytest.raises(KafkaError, match="old: ") as caught:
            write_access.read_acl_snapshot(kafka, [unique_topic])
        assert mentions(caught.value.hint, "Alter")
        plan = plan_denial(write_access.read_acl_snapshot(admin, [unique_topic]))
        with pytest.raises(KafkaError, match="add ACL: deny"):
            write_access.apply_rules_plan(kafka, plan)
        assert read_acls(admin) == before
        with pytest.raises(KafkaError, match="broker 1 does not show") as caught:
            write_access.confirm_rules_plan(admin, plan, within_s=0.1)
        assert caught.value.retriable
        delete_acls(admin, [describe])


def test_without_an_authorizer_nothing_is_changed(east: RigCluster, unique_topic: str) -> None:
    with closing(KafkaCluster(east.cluster)) as kafka:
        for plan in plans(kafka, unique_topic):
            assert plan.open_to_all == (unique_topic,)
            write_access.apply_rules_plan(kafka, plan)
            write_access.confirm_rules_plan(kafka, plan)
            write_access.restore_rules(kafka, plan)
