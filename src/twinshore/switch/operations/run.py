"""Runs, resumes, or rolls back a switch, and imports switch states that a cluster keeps because the store was down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError, WireError
from twinshore.config.frozen import SWITCH_CLIENT_ID
from twinshore.config.model import Link, TwinNaming
from twinshore.config.sections.switch import SECTION as SWITCH
from twinshore.config.sentences import Tell, join_names
from twinshore.config.settings import Settings
from twinshore.groups.offset_move import links_between
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.replication.core.ownership import find_new_switches, is_kept_on_cluster, pair_name
from twinshore.replication.operations.link_admin import AddLink, ChangeLink
from twinshore.replication.operations.link_admin import act as change_links
from twinshore.replication.operations.link_admin import plan as plan_links
from twinshore.replication.sync.deletion_guard import deletion_guard
from twinshore.routing.core.home_records import HomeLog, homes_place
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.endpoints import LinkClients
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.store import Store
from twinshore.switch import handover
from twinshore.switch.announce import claim_topics
from twinshore.switch.core.steps import (
    STEPS,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    begin_rollback,
    begin_switch,
    switch_lease,
)
from twinshore.switch.core.takeover import (
    HomeEpoch,
    describe_takeover,
    drop_topics,
    find_topics_moved_since,
    homes_by_topic,
)
from twinshore.switch.drain import CommandSteps
from twinshore.switch.failback import FailbackSteps, RebuildSteps
from twinshore.switch.operations.one_client import GroupSwitchSteps
from twinshore.switch.operations.plan import SwitchPlan, current_links, escape_topic, open_cluster, take_over
from twinshore.switch.operations.show import SwitchView, find_switch
from twinshore.switch.operations.without_data import SwitchWithoutDataSteps
from twinshore.switch.step_runner import ClusterSteps, StepRunner, SwitchSteps, continue_switch

CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class ClusterSwitchRecord:
    """A switch whose state is kept on the new home, and the digest of that state."""

    state: SwitchState
    digest: str


class ClusterRecordKeeper:
    """Saves a switch state on a cluster. `seen`: digest of the state already there; empty for none."""

    def __init__(self, homes_topic: HomesTopic, seen: str) -> None:
        self._homes_topic, self._seen = homes_topic, seen

    def save(self, state: SwitchState) -> None:
        """Raises RefusedError if another process has resumed the switch; StoreError if the cluster does not answer, so
        that the caller waits as for a store.
        """
        try:
            self._seen = self._homes_topic.save(state.id, switch_state_values(state.as_kept()), self._seen, wall_ms())
        except KafkaError as error:
            if not error.retriable:
                raise
            raise StoreError("switch.record-not-saved", cause=error.message) from error


def switch_state_values(state: SwitchState) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(state.to_json())
    return found


def read_switch_records(log: HomeLog) -> dict[str, ClusterSwitchRecord]:
    """Returns the valid switch states on a cluster."""
    found: dict[str, ClusterSwitchRecord] = {}
    for switch in log.records.switches():
        raw = log.records.record(switch)
        try:
            state = SwitchState.from_json(json.dumps(raw)) if raw else None
        except WireError:
            continue
        if state and state.id == switch and state.kind is SwitchKind.FORCED and state.kept:
            found[switch] = ClusterSwitchRecord(state, log.records.digest(switch))
    return found


def import_cluster_records(settings: Settings, store: Store, tell: Tell) -> None:
    for name in sorted({link.target for link in settings.links if link.naming is TwinNaming.SAME}):
        with open_cluster(name, settings, CALL_S) as cluster:
            homes_topic = HomesTopic(cluster)
            try:
                homes_topic.read()
            except KafkaError as error:
                tell(f"whether {name} keeps a switch that was made without this store is not known: {error.message}")
                continue
        found = read_switch_records(homes_topic.log)
        records = {switch: switch_state_values(record.state) for switch, record in found.items()}
        known = {row.id: row for row in store.switches.all()} if records else {}
        for row in find_new_switches(records, known.values(), wall_ms()):
            store.switches.take_up(row, known.get(row.id))


def move_record_to_store(
    state: SwitchState, homes_topic: HomesTopic, store: Store, save: Callable[[SwitchState], None]
) -> SwitchState:
    """Returns the cluster's current state, kept by the store from now on; a process that still runs the switch there is
    stopped by this. Steps done without the store are repeated, except for topics that have moved since. Raises
    RefusedError while another switch has one of them.
    """
    records = homes_topic.read()
    for record in (records[topic] for topic in state.names() if topic in records):
        if record.newer:
            raise RefusedError("routing.newer-home", topic=record.topic, version=record.newer, place=homes_place())
    if homes_topic.log.records.is_newer(state.id):
        raise RefusedError("switch.newer-record", switch=state.id[:8])
    there = read_switch_records(homes_topic.log).get(state.id)
    if there is not None:
        state = there.state.tell(wall_ms(), "the store keeps the switch again")
        ClusterRecordKeeper(homes_topic, there.digest).save(state)
    state = handover.record_last_known_settings(store, state)
    state = replace(state, kept="", awaits_store=False, late=state.awaits_store, waits="")
    state = keep_own_topics(state, {topic: (record.home, record.term) for topic, record in records.items()}, store)
    save(state)
    homes_topic.forget(state.id, wall_ms())
    return state


def restart_uncommitted(state: SwitchState) -> SwitchState:
    """Returns an uncommitted switch at its first step, to begin again with the store."""
    if state.committed or state.state is not SwitchStatus.RUNNING:
        return state
    return replace(state, step=STEPS[state.kind][0])


def keep_own_topics(state: SwitchState, lines: Mapping[str, HomeEpoch], store: Store) -> SwitchState:
    """Claims the topics, and drops those that are no longer where this switch put them."""
    pair = pair_name(Link(state.old, state.new))
    # Claim the topics first, so that none moves in between.
    others = claim_topics(store, state)
    state = drop_topics(state, find_topics_moved_since(state, homes_by_topic(store.homes.of(pair)), lines), wall_ms())
    held = [] if state.ended else [row for row in others if row.topic in state.names()]
    if state.ended or held:
        store.topics_in_switch.end(state.id)
    if held:
        topics = join_names([row.topic for row in held])
        raise RefusedError("switch.topics-claimed", topics=topics, switch=held[0].switch_id[:8])
    return state


@dataclass(frozen=True, slots=True)
class SwitchCaller:
    """`stop`: roll back if still possible. `before_hold`: called once, right before the announcement. `behind_flip`:
    called once the topics have moved; must not raise. `begun`: called with a switch's id before its first step.
    """

    by: str
    tell: Tell
    stop: threading.Event
    before_hold: Callable[[], None] = lambda: None
    behind_flip: Callable[[], None] = lambda: None
    begun: Callable[[str], None] = lambda _: None


def run_switch(plan: SwitchPlan, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Returns the switch at the end. Creates the reverse link first if missing."""
    if plan.state is None:
        raise plan.refusal or ConfigError("switch.nothing-to-switch")
    state = plan.state
    if plan.takes_over:
        with open_cluster(state.new, settings, CALL_S) as new:
            for other in plan.takes_over:
                take_over(other, state.names(), new, store, caller.by)
                caller.tell(describe_takeover(other, state.names()))
    if plan.back_topics:
        ensure_link_carries(state.back, plan.back_topics, settings, store, caller)
    return _go_on(begin_switch(state, wall_ms()), settings, store, caller)


def require_writable_store(store: Store) -> None:
    """Raises RefusedError if the store is read-only: a switch would stop after its first step."""
    try:
        store.leases.check_writable()
    except StoreError as error:
        raise RefusedError("switch.store-read-only", cause=error.message, remedy=error.hint) from error


def resume(asked: str, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Resumes a switch whose process is gone, including one that began without the store."""
    return _again(asked, settings, store, caller, lambda state: continue_switch(state, caller.by, wall_ms()))


def roll_back(asked: str, settings: Settings, store: Store, caller: SwitchCaller) -> SwitchView:
    """Rolls back a switch whose process is gone. Raises RefusedError past the point of no return."""

    def back(state: SwitchState) -> SwitchState:
        if state.committed:
            raise RefusedError("switch.committed", switch=state.id[:8], step=str(state.step))
        return begin_rollback(continue_switch(state, caller.by, wall_ms()), f"{caller.by} turned it back", wall_ms())

    return _again(asked, settings, store, caller, back)


def _again(
    asked: str, settings: Settings, store: Store, caller: SwitchCaller, onward: Callable[[SwitchState], SwitchState]
) -> SwitchView:
    """`onward`: returns the state to begin with; may refuse."""
    import_cluster_records(settings, store, caller.tell)
    row = store.switches.of(find_switch(store, asked, open_only=True).id)
    assert row is not None
    state = SwitchState.from_json(row.switch_state)
    onward(state)
    return _go_on(state, settings, store, caller, (row.switch_state, onward))


def _go_on(
    state: SwitchState,
    settings: Settings,
    store: Store,
    caller: SwitchCaller,
    over: tuple[str, Callable[[SwitchState], SwitchState]] | None = None,
) -> SwitchView:
    """`over`, to resume: the row's record as read before this process had the lease, and how to continue."""
    link, back = links_both_ways(state, settings, store)
    with (
        exclusive(switch_lease(state.id), store, caller.by) as lease,
        LinkClients(link, settings, client_id=SWITCH_CLIENT_ID, patience_s=CALL_S, call_s=CALL_S) as clients,
    ):
        kept = store.switches.of(state.id)
        stale = kept is not None and (over is None or kept.switch_state != over[0])
        if kept is not None and stale and not (state.kept and is_kept_on_cluster(kept)):
            raise RefusedError("switch.record-changed", switch=state.id[:8])
        began = lease.row()  # a lease that is lost and taken again is another one

        def save(now: SwitchState) -> None:
            if began is None or not store.switches.save(now.row(wall_ms()), began):
                raise RefusedError("switch.lease-lost", switch=now.id[:8])

        was_kept = bool(state.kept)
        if was_kept:
            state = move_record_to_store(state, HomesTopic(clients.target), store, save)
        state = over[1](state) if over else state
        state = restart_uncommitted(state) if was_kept else state
        now_ms = steady_clock()

        def holds() -> bool:
            return began is not None and lease.generation() == began.epoch

        work = build_step_executor(state, link, back, settings, store, clients, now_ms, holds)
        calls = (caller.before_hold, caller.behind_flip)
        caller.begun(state.id)
        ended = StepRunner(work.once, save, now_ms, caller.tell, caller.stop, *calls).run(state)
    return SwitchView(ended.id, ended)


def links_both_ways(state: SwitchState, settings: Settings, store: Store) -> tuple[Link, Link]:
    links = {link.name: link for link in current_links(settings, store)}
    return links.get(state.link) or Link(state.old, state.new), links.get(state.back) or Link(state.new, state.old)


STEP_CLASSES: Mapping[SwitchKind, type[ClusterSteps]] = {
    SwitchKind.DATALESS: SwitchWithoutDataSteps,
    SwitchKind.REBUILD: RebuildSteps,
    SwitchKind.FAILBACK: FailbackSteps,
    SwitchKind.MAPPED_FAILBACK: FailbackSteps,
}


def build_step_executor(
    state: SwitchState,
    link: Link,
    back: Link,
    settings: Settings,
    store: Store,
    clients: LinkClients,
    now_ms: Callable[[], int],
    holds_lease: Callable[[], bool] = lambda: False,
) -> CommandSteps:
    """`now_ms`: the clock of the switch. `holds_lease`: of the switch; only under it topics are deleted."""
    if state.kind is SwitchKind.GROUP:
        group = GroupSwitchSteps(links_between(settings, store, state.old, state.new), settings, store, now_ms)
        return CommandSteps(settings.of(SWITCH), group)
    guard = deletion_guard(back, settings, store, holds_lease)
    steps = STEP_CLASSES.get(state.kind, SwitchSteps)
    work = steps(link, back, settings, store, clients.source, clients.target, now_ms, guard)
    return CommandSteps(settings.of(SWITCH), work)


def steady_clock() -> Callable[[], int]:
    """Returns a clock that is never set: a hold must not seem longer or shorter than it is."""
    begun_ms, begun_s = wall_ms(), steady_s()
    return lambda: begun_ms + int((steady_s() - begun_s) * 1000)


def ensure_link_carries(
    name: str, topics: Sequence[str], settings: Settings, store: Store, caller: SwitchCaller
) -> None:
    """Adds only these topics, by name, to the link, which is created if missing."""
    there = {link.name: link for link in current_links(settings, store)}.get(name)
    if there is not None and there.naming is not TwinNaming.SAME:
        raise RefusedError("switch.reverse-link-renames", link=name, topics=join_names(topics))
    names = sorted({*(escape_topic(topic) for topic in topics), *(there.topics if there else ())})
    value = f"topics={json.dumps(names)}"
    planned = plan_links(ChangeLink(name, [value]) if there else AddLink(name, [value]), settings, store, by=caller.by)
    if planned.refusal:
        raise planned.refusal
    for step in change_links(planned, settings, store, by=caller.by):
        caller.tell(step.sentence(done=True))
