"""What a switch owes to the new home is given late, or once more: what others did there meanwhile stays."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import KafkaError, RefusedError
from twinshore.config.model import Cluster, Link
from twinshore.config.settings import Settings, load_settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import ANY_USER, Acl, PatternType, ResourceType
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.replication.core.planner import TWIN_SETTINGS
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.store import Store, open_store
from twinshore.switch import handover
from twinshore.switch.announce import claim_topics
from twinshore.switch.core.acl_rules import DeferredCleanup, RulesPlan
from twinshore.switch.core.steps import SwitchKind, SwitchState, SwitchStatus, SwitchStep, TopicMove
from twinshore.switch.core.unreplicated import UnreplicatedRange, ranges_to_json
from twinshore.switch.operations import plan, run
from twinshore.switch.operations.plan import find_conflicting_switches, take_over
from twinshore.switch.operations.run import SwitchCaller

BACK = Link("west", "east")
WEEK, YEAR = str(7 * 86_400_000), str(365 * 86_400_000)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in ("east", "west"))
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}[links."east->west"]\n')
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


@pytest.mark.parametrize("late", [False, True])
def test_what_somebody_has_set_since_stays(west: LabCluster, unique_topic: str, late: bool) -> None:
    """By a switch that was made without the store, and resumed weeks later."""
    west.create_topic(unique_topic, settings=dict(TWIN_SETTINGS))
    with closing(KafkaCluster(west.cluster)) as kafka:
        topic_id = kafka.metadata([unique_topic]).topics[unique_topic].topic_id
        kafka.admin.alter_topic_settings(unique_topic, {"retention.ms": YEAR}, topic_id=topic_id)
        deadline_s = time.monotonic() + 30  # a broker takes up a changed setting a moment after the controller
        while kafka.admin.topic_settings([unique_topic])[unique_topic]["retention.ms"].value != YEAR:
            assert time.monotonic() < deadline_s
        moved = TopicMove(topic=unique_topic, old_id="a" * 32, new_id=topic_id.hex(), term=1, partitions=1)
        given = json.dumps({unique_topic: json.dumps({"retention.ms": WEEK, "retention.bytes": "1000000"})})
        one = replace(record(SwitchKind.FORCED), topics=(moved,), given=given, late=late)
        said = handover.apply_topic_settings(kafka, Link("east", "west"), one)
        wanted, deadline_s = (YEAR if late else WEEK, "1000000"), time.monotonic() + 30
        while True:
            now = kafka.admin.topic_settings([unique_topic])[unique_topic]
            if (now["retention.ms"].value, now["retention.bytes"].value) == wanted:
                break
            assert time.monotonic() < deadline_s, now
    assert (f"left as it is: retention.ms of {unique_topic}" in said.sentence) is late


def test_what_was_taken_out_of_a_fail_back_is_freed_at_the_second_try(store: Store, east: LabCluster) -> None:
    """East has just come back, and does not answer the first time."""
    moved = tuple(
        TopicMove(topic=topic, old_id="a" * 32, new_id="b" * 32, term=2, partitions=1, points=(5,))
        for topic in ("late-bills", "late-orders")
    )
    one = replace(
        record(SwitchKind.FAILBACK),
        topics=moved,
        step=SwitchStep.REFILL,
        tails=ranges_to_json([UnreplicatedRange("late-bills", 0, 3, 9)]),
    )
    store.switches.save(one.row(NOW_MS))
    assert claim_topics(store, one) == ()
    with closing(KafkaCluster(east.cluster)) as kafka:
        notes = HomesTopic(kafka)
        notes.make()
        notes.read()
        notes.claim(one.names(), one.id, "anna", wall_ms())
        silent = Cluster("east", (f"127.0.0.1:{free_port()}",))
        with closing(KafkaCluster(silent, patience_s=0.5, call_s=0.5)) as dead, pytest.raises(KafkaError):
            (found,) = find_conflicting_switches(BACK, ["late-orders"], store)
            take_over(found, ["late-orders"], dead, store, "bob")
        (found,) = find_conflicting_switches(BACK, ["late-orders"], store)
        assert found.names() == ("late-bills",), "it goes on without the other one"
        take_over(found, ["late-orders"], kafka, store, "bob")
        notes.read()
        assert (notes.log.holder("late-orders"), notes.log.claimed(one.id)) == (None, ["late-bills"])
        assert [row.topic for row in store.topics_in_switch.of("east<>west")] == ["late-bills"]
        notes.release(one.names(), one.id, wall_ms())


def test_whoever_waited_for_the_lease_of_a_switch_that_is_done_does_nothing(settings: Settings, store: Store) -> None:
    """Two resume a switch that was made without the store; the second had read its row before the first was done."""
    kept = replace(record(SwitchKind.FORCED), step=SwitchStep.APPLY_SETTINGS, awaits_store=True, kept="west")
    stale = kept.row(NOW_MS)
    store.switches.save(replace(kept, kept="", awaits_store=False, state=SwitchStatus.DONE).row(NOW_MS))

    def onward(one: SwitchState) -> SwitchState:
        raise AssertionError(f"nobody goes on with {one.id}")

    asking = SwitchCaller("bob", lambda _: None, threading.Event())
    with raises(RefusedError, "switch.record-changed", switch=kept.id[:8]):
        run._go_on(kept, settings, store, asking, (stale.switch_state, onward))


def test_what_a_flipped_switch_denied_on_the_new_home_is_given_back_at_the_second_try(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One topic of two is moved back by force, and the new home does not answer the first time."""
    denied = {
        topic: Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, ANY_USER, "*", 4, 2) for topic in ("bills", "orders")
    }
    rights = json.dumps(RulesPlan(tuple(denied.values())).as_record())
    topics = tuple(
        TopicMove(topic=topic, old_id="a" * 32, new_id="b" * 32, term=1, partitions=1, points=(5,)) for topic in denied
    )
    one = replace(record(SwitchKind.PLANNED), topics=topics, step=SwitchStep.START_REVERSE, rights=rights)
    store.switches.save(one.row(NOW_MS))
    paid = list[DeferredCleanup]()

    def pay(_: object, debt: DeferredCleanup, __: str) -> None:
        paid.append(debt)
        if len(paid) == 1:
            raise KafkaError("east does not answer yet", retriable=True)

    monkeypatch.setattr(plan, "clean_up", pay)
    with closing(KafkaCluster(Cluster("east", (f"127.0.0.1:{free_port()}",)))) as east:
        for turn in range(2):
            row = store.switches.of(one.id)
            assert row is not None
            with nullcontext() if turn else pytest.raises(KafkaError):
                take_over(SwitchState.from_json(row.switch_state), ["orders"], east, store, "bob")
    assert [debt.topics for debt in paid] == [("orders",)] * 2
    assert {RulesPlan.from_record(json.loads(debt.rights)).deny for debt in paid} == {(denied["orders"],)}
    row = store.switches.of(one.id)
    assert row is not None
    assert SwitchState.from_json(row.switch_state).names() == ("bills",)
