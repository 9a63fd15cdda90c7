"""An operator's words about deletions and stopped partitions, asked as a program asks; no cluster answers here."""

from __future__ import annotations

import pytest

from testkit.errors import mentions, raises
from tests.replication.operations.asked import LINK, settings_of
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.incident_policy import POLICY_STOP, POLICY_TOPIC, IncidentKind, IncidentPolicy
from twinshore.config.model import TopicPartition
from twinshore.replication.operations import incident_admin, twins
from twinshore.replication.operations.twins import KeepTwinStep
from twinshore.replication.sync.core.decisions import DeletionState, RememberState
from twinshore.replication.sync.core.lifecycle import (
    DELETE_APPROVAL,
    KEEP_TWIN,
    RECREATE_APPROVAL,
    ObservedTopic,
    Presence,
    TwinRange,
    lifecycle_row,
)
from twinshore.state.core.values import Incident, LinkIdentity, TwinRow
from twinshore.state.store import Store

SETTINGS = settings_of(f'[links."{LINK}"]\n[links."{LINK}".follow]\ndeleted = "delete"\n')


@pytest.fixture(autouse=True)
def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[TwinRange]:
    """What the twin of orders holds; both clusters have the topic, made again on the source."""
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    found = [TwinRange(0, 0, 1_000, 1_000, 1_000)]
    there = {"east": ObservedTopic(Presence.THERE, "zz", 1), "west": ObservedTopic(Presence.THERE, "bb", 1)}
    monkeypatch.setattr(twins, "observe_topics", lambda cluster, names: dict.fromkeys(names, there[cluster.name]))
    monkeypatch.setattr(twins, "read_twin_ranges", lambda *_: found)
    return found


def incident(store: Store, kind: IncidentKind, partition: int, policy: IncidentPolicy) -> None:
    store.incidents.add(Incident(LINK, "orders", partition, kind, 5, 7, policy, "a sentence."), now_ms=1)


def test_what_is_kept_then_is_in_the_plan_already(store: Store) -> None:
    (step,) = twins.plan_keep("orders", (), SETTINGS, store).steps
    assert step == KeepTwinStep(LINK, "orders", undo=False, kept=frozenset({"orders"}))
    assert store.link_states.of(LINK, KEEP_TWIN) == ()
    planned = twins.plan_keep("", (), SETTINGS, store, every=True)
    (step,) = twins.act_keep(planned, store, by="anna")
    assert mentions(step.sentence(done=True), LINK, "all its twins")
    (step,) = twins.act_keep(twins.plan_keep("orders", (), SETTINGS, store), store, by="anna")
    (step,) = twins.plan_keep("orders", (), SETTINGS, store, undo=True).steps
    assert "all of the link" in step.sentence(done=True)
    with raises(ConfigError, "replication.one-of-two"):
        twins.plan_keep("orders", (), SETTINGS, store, every=True)


def test_nobody_keeps_what_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a word would stand for ever, and be shown as if there were something that it keeps."""
    seen = {"east": Presence.GONE, "west": Presence.GONE}
    monkeypatch.setattr(
        twins, "observe_topics", lambda cluster, names: dict.fromkeys(names, ObservedTopic(seen[cluster.name]))
    )
    planned = twins.plan_keep("orders", (), SETTINGS, store)
    assert planned.steps == ()
    assert isinstance(planned.refusal, RefusedError)
    assert (planned.refusal.code, planned.refusal.values) == ("replication.twin-gone", {"topic": "orders"})
    seen["west"] = Presence.HIDDEN
    planned = twins.plan_keep("orders", (), SETTINGS, store)
    assert len(planned.steps) == 1, "a no needs no proof"
    assert "does not show it" in planned.shown[0]


def test_a_word_that_was_never_said_is_not_taken_back(store: Store) -> None:
    planned = twins.plan_keep("orders", (), SETTINGS, store, undo=True)
    assert [mentions(one, LINK, "orders") for one in planned.shown] == [True]
    assert (planned.steps, store.audit.rows(LINK)) == ((), ())
    list(twins.act_keep(twins.plan_keep("", (), SETTINGS, store, every=True), store, by="anna"))
    (line,) = twins.plan_keep("orders", (), SETTINGS, store, undo=True).shown
    assert "all of the link" in line
    list(twins.act_keep(twins.plan_keep("orders", (), SETTINGS, store), store, by="anna"))
    store.forget_topic(LINK, "orders")
    (step,) = twins.plan_keep("orders", (), SETTINGS, store, undo=True).steps
    assert step.kept == {""}, "also once its twin is gone"


def test_a_deletion_is_agreed_to_only_where_nothing_speaks_against_it(store: Store, held: list[TwinRange]) -> None:
    store.link_states.remember([lifecycle_row(LINK, RememberState("orders", DeletionState.NEEDS_APPROVAL), 1)])
    planned = twins.plan_delete("orders", SETTINGS.only(()), SETTINGS, store)
    assert planned.shown == ("east->west: its twin holds orders-0 0 to 999",)
    list(twins.act_delete(planned, store, by="anna"))
    assert [row.subject for row in store.link_states.of(LINK, DELETE_APPROVAL)] == ["orders"]
    held[0] = TwinRange(0, 0, 1_001, 1_000, 1_000)
    planned = twins.plan_delete("orders", SETTINGS.only(()), SETTINGS, store)
    assert planned.steps == ()
    assert isinstance(planned.refusal, RefusedError)
    assert "orders-0 holds offsets 1000 to 1000" in planned.refusal.message


def test_a_beginning_is_agreed_to_with_what_was_seen(store: Store, held: list[TwinRange]) -> None:
    with raises(ConfigError, "replication.topic-not-recreated", topic="orders"):
        twins.plan_recreate("orders", SETTINGS.only(()), SETTINGS, store)
    incident(store, IncidentKind.RECREATED_TOPIC, -1, POLICY_TOPIC)
    held[0] = TwinRange(0, 0, 1_200, 1_000, 1_000)
    planned = twins.plan_recreate("orders", SETTINGS.only(()), SETTINGS, store)
    assert isinstance(planned.refusal, RefusedError) and planned.refusal.code == "replication.twin-last-copy"
    assert any("orders-0 1000 to 1199: no progress" in line for line in planned.shown), "and it is shown all the same"
    planned = twins.plan_recreate("orders", SETTINGS.only(()), SETTINGS, store, even_unreplicated=True)
    assert store.link_states.of(LINK, RECREATE_APPROVAL) == ()
    held[0] = TwinRange(0, 0, 9_999, 1_000, 1_000)
    list(twins.act_recreate(planned, store, by="anna"))
    (row,) = store.link_states.of(LINK, RECREATE_APPROVAL)
    assert "1200" in row.value and "9999" not in row.value, "the agreement is to what the plan saw"


def test_a_stopped_partition_goes_on_and_the_audit_knows_who_said_so(store: Store) -> None:
    incident(store, IncidentKind.REFUSED, 0, POLICY_STOP)
    incident(store, IncidentKind.REFUSED, 1, POLICY_STOP)
    store.links.save_identity(LinkIdentity(LINK, 1, 0, "e", "w"))
    planned = incident_admin.plan("orders", 0, (), SETTINGS, store)
    assert [(step.partition, len(step.rows)) for step in planned.steps] == [(TopicPartition("orders", 0), 1)]
    assert len(store.incidents.rows(LINK, open_only=True)) == 2
    (step,) = incident_admin.act(planned, store, by="anna")
    assert step.sentence(done=True) == "east->west: orders-0 is resumed"
    assert [row.incident.partition for row in store.incidents.rows(LINK, open_only=True)] == [1]
    assert [(row.subject, row.outcome) for row in store.audit.rows()] == [("orders-0", "by anna")]
    list(incident_admin.act(planned, store, by="bert"))
    assert len(store.audit.rows()) == 1, "the row was closed already"
    with pytest.raises(ConfigError, match="no incident stops orders-7"):
        incident_admin.plan("orders", 7, (), SETTINGS, store)
