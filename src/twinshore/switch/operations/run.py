"""Runs, resumes, or rolls back a switch, and imports switch states that a cluster keeps because the store was down."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
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
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import find_new_switches, is_kept_on_cluster, pair_name
from twinshore.replication.links import effective_links
from twinshore.replication.operations.link_admin import AddLink, ChangeLink
from twinshore.replication.operations.link_admin import act as change_links
from twinshore.replication.operations.link_admin import plan as plan_links
from twinshore.replication.sync.topic_deletion import deletion_guard
from twinshore.routing.core.home_records import HomeLog, homes_place
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.endpoints import LinkClients
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.store import Store
from twinshore.switch import handover
from twinshore.switch.announce import HomeAnnouncer, claim_topics
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, SwitchStatus, begin_rollback, begin_switch
from twinshore.switch.core.takeover import (
    HomeEpoch,
    describe_takeover,
    drop_topics,
    find_topics_moved_since,
    homes_by_topic,
)
from twinshore.switch.drain import CommandSteps
from twinshore.switch.empty_logs import SwitchWithoutDataSteps
from twinshore.switch.failback import FailbackSteps, RebuildSteps
from twinshore.switch.group import GroupSwitchSteps
from twinshore.switch.operations.plan import SwitchPlan, escape_topic, take_over
from twinshore.switch.operations.show import SwitchView, find_switch
from twinshore.switch.step_runner import SwitchSteps, call_before_announcing, continue_switch, run_steps
from twinshore.switch.write_access import WriterAccess

REQUEST_TIMEOUT_S = 3.0
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ClusterSwitchRecord:
    """A switch whose state is kept on the new home, and the digest of that state."""

    record: SwitchState
    digest: str


class ClusterRecordKeeper:
    """Saves a switch state on a cluster. `seen`: digest of the state already there; empty for none."""

    def __init__(self, notes: HomesTopic, seen: str) -> None:
        self._notes, self._seen = notes, seen

    def save(self, record: SwitchState) -> None:
        """Raises RefusedError if another process has resumed the switch; StoreError if the cluster does not answer, so
        that the caller waits as for a store.
        """
        try:
            self._seen = self._notes.save(record.id, switch_state_values(record.as_kept()), self._seen, wall_ms())
        except KafkaError as error:
            if not error.retriable:
                raise
            raise StoreError("switch.record-not-saved", cause=error.message) from error


def switch_state_values(record: SwitchState) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.to_json())
    return found


def read_switch_records(log: HomeLog) -> dict[str, ClusterSwitchRecord]:
    """Returns the valid switch states on a cluster."""
    found: dict[str, ClusterSwitchRecord] = {}
    for switch in log.records.switches():
        raw = log.records.record(switch)
        try:
            record = SwitchState.from_json(json.dumps(raw)) if raw else None
        except WireError:
            continue
        if record and record.id == switch and record.kind is SwitchKind.FORCED and record.kept:
            found[switch] = ClusterSwitchRecord(record, log.records.digest(switch))
    return found


def import_cluster_records(settings: Settings, store: Store, tell: Tell) -> None:
    for name in sorted({one.target for one in settings.links if one.naming is TwinNaming.SAME}):
        with closing(
            KafkaCluster(settings.cluster(name), patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)
        ) as cluster:
            notes = HomesTopic(cluster)
            try:
                notes.read()
            except KafkaError as error:
                tell(f"whether {name} keeps a switch that was made without this store is not known: {error.message}")
                continue
        records = {switch: switch_state_values(one.record) for switch, one in read_switch_records(notes.log).items()}
        known = {row.id: row for row in store.switches.all()} if records else {}
        for row in find_new_switches(records, known.values(), wall_ms()):
            store.switches.take_up(row, known.get(row.id))


def move_record_to_store(
    record: SwitchState, notes: HomesTopic, store: Store, save: Callable[[SwitchState], None]
) -> SwitchState:
    """Returns the cluster's current state, kept by the store from now on; a process that still runs the switch there is
    stopped by this. Steps done without the store are repeated, except for topics that have moved since. Raises
    RefusedError while another switch has one of them.
    """
    lines = notes.read()
    unread = [lines[topic] for topic in record.names() if topic in lines and lines[topic].newer]
    if unread:
        raise RefusedError("routing.newer-home", topic=unread[0].topic, version=unread[0].newer, place=homes_place())
    if notes.log.records.is_newer(record.id):
        raise RefusedError("switch.newer-record", switch=record.id[:8])
    there = read_switch_records(notes.log).get(record.id)
    if there is not None:
        record = there.record.tell(wall_ms(), "the store keeps the switch again")
        ClusterRecordKeeper(notes, there.digest).save(record)
    record = replace(
        handover.record_last_known_settings(store, record),
        kept="",
        awaits_store=False,
        late=record.awaits_store,
        waits="",
    )
    record = keep_own_topics(record, {topic: (line.home, line.term) for topic, line in lines.items()}, store)
    save(record)
    notes.forget(record.id, wall_ms())
    return record


def restart_uncommitted(record: SwitchState) -> SwitchState:
    """Returns an uncommitted switch at its first step, to begin again with the store."""
    if record.committed or record.state is not SwitchStatus.RUNNING:
        return record
    return replace(record, deed=STEPS[record.kind][0])


def keep_own_topics(record: SwitchState, lines: Mapping[str, HomeEpoch], store: Store) -> SwitchState:
    """Claims the topics, and drops those that are no longer where this switch put them."""
    pair = pair_name(Link(record.old, record.new))
    # Claim the topics first, so that none moves in between.
    others = claim_topics(store, record)
    record = drop_topics(
        record, find_topics_moved_since(record, homes_by_topic(store.homes.of(pair)), lines), wall_ms()
    )
    held = [] if record.ended else [row for row in others if row.topic in record.names()]
    if record.ended or held:
        store.topics_in_switch.end(record.id)
    if held:
        raise RefusedError(
            "switch.topics-claimed",
            topics=join_names([row.topic for row in held], NAMED_MAX),
            switch=held[0].switch_id[:8],
        )
    return record


CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class SwitchCaller:
    """`stop`: roll back if still possible. `before_hold`: called once, right before the announcement. `behind_flip`:
    called once the topics have moved; must not raise.
    """

    by: str
    tell: Tell
    stop: threading.Event
    before_hold: Callable[[], None] = lambda: None
    behind_flip: Callable[[], None] = lambda: None


def run_switch(planned: SwitchPlan, settings: Settings, store: Store, asking: SwitchCaller) -> SwitchView:
    """Returns the switch at the end. Creates the reverse link first if missing."""
    if planned.record is None:
        raise planned.refused or ConfigError("switch.nothing-to-switch")
    record = planned.record
    if planned.takes_over:
        with closing(KafkaCluster(settings.cluster(record.new), patience_s=CALL_S, call_s=CALL_S)) as new:
            for other in planned.takes_over:
                take_over(other, record.names(), new, store, asking.by)
                asking.tell(describe_takeover(other, record.names()))
    if planned.back_topics and record.kind is not SwitchKind.DRILL:
        ensure_link_carries(record.back, planned.back_topics, settings, store, asking)
    return _go_on(begin_switch(record, wall_ms()), settings, store, asking)


def require_writable_store(store: Store) -> None:
    """Raises RefusedError if the store is read-only: a switch would stop after its first step."""
    try:
        store.leases.check_writable()
    except StoreError as error:
        raise RefusedError("switch.store-read-only", cause=error.message, remedy=error.hint) from error


def resume(asked: str, settings: Settings, store: Store, asking: SwitchCaller) -> SwitchView:
    """Resumes a switch whose process is gone, including one that began without the store."""
    return _again(asked, settings, store, asking, lambda record: continue_switch(record, asking.by, wall_ms()))


def roll_back(asked: str, settings: Settings, store: Store, asking: SwitchCaller) -> SwitchView:
    """Rolls back a switch whose process is gone. Raises RefusedError past the point of no return."""

    def back(record: SwitchState) -> SwitchState:
        if record.committed:
            raise RefusedError("switch.committed", switch=record.id[:8], step=str(record.deed))
        return begin_rollback(continue_switch(record, asking.by, wall_ms()), f"{asking.by} turned it back", wall_ms())

    return _again(asked, settings, store, asking, back)


def _again(
    asked: str, settings: Settings, store: Store, asking: SwitchCaller, onward: Callable[[SwitchState], SwitchState]
) -> SwitchView:
    """`onward`: returns the state to begin with; may refuse."""
    import_cluster_records(settings, store, asking.tell)
    row = store.switches.of(find_switch(store, asked, open_only=True).id)
    assert row is not None
    record = SwitchState.from_json(row.switch_state)
    onward(record)
    return _go_on(record, settings, store, asking, (row.switch_state, onward))


def _go_on(
    record: SwitchState,
    settings: Settings,
    store: Store,
    asking: SwitchCaller,
    over: tuple[str, Callable[[SwitchState], SwitchState]] | None = None,
) -> SwitchView:
    """`over`, to resume: the row's record as read before this process had the lease, and how to continue."""
    link, back = links_both_ways(record, settings, store)
    with (
        exclusive(f"switch {record.id}", store, asking.by) as lease,
        LinkClients(link, settings, client_id=SWITCH_CLIENT_ID, patience_s=CALL_S, call_s=CALL_S) as ends,
    ):
        kept = store.switches.of(record.id)
        stale = kept is not None and (over is None or kept.switch_state != over[0])
        if kept is not None and stale and not (record.kept and is_kept_on_cluster(kept)):
            raise RefusedError("switch.record-changed", switch=record.id[:8])
        began = lease.row()  # a lease that is lost and taken again is another one

        def save(now: SwitchState) -> None:
            if began is None or not store.switches.save(now.row(wall_ms()), began):
                raise RefusedError("switch.lease-lost", switch=now.id[:8])

        was_kept = bool(record.kept)
        if was_kept:
            record = move_record_to_store(record, HomesTopic(ends.target), store, save)
        record = over[1](record) if over else record
        record = restart_uncommitted(record) if was_kept else record
        now_ms = steady_clock()

        def holds() -> bool:
            return began is not None and lease.generation() == began.epoch

        work = build_step_executor(record, link, back, settings, store, ends, now_ms, holds)
        once = call_before_announcing(asking.before_hold, work.once)
        ended = run_steps(
            record, once, save, now_ms=now_ms, tell=asking.tell, stop=asking.stop, behind_flip=asking.behind_flip
        )
    return SwitchView(ended.id, ended)


def links_both_ways(record: SwitchState, settings: Settings, store: Store) -> tuple[Link, Link]:
    links = {one.link.name: one.link for one in effective_links(settings.links, store).values()}
    return links.get(record.link) or Link(record.old, record.new), links.get(record.back) or Link(
        record.new, record.old
    )


def build_step_executor(
    record: SwitchState,
    link: Link,
    back: Link,
    settings: Settings,
    store: Store,
    ends: LinkClients,
    now_ms: Callable[[], int],
    holds_lease: Callable[[], bool] = lambda: False,
) -> CommandSteps:
    """`now_ms`: the clock of the switch. `holds_lease`: of the switch; only under it topics are deleted."""
    guard = deletion_guard(back, settings, store, holds_lease)
    does: SwitchSteps | FailbackSteps | RebuildSteps | GroupSwitchSteps
    if record.kind is SwitchKind.REBUILD:
        does = RebuildSteps(back, settings, store, ends.source, ends.target, now_ms, guard)
    elif record.kind is SwitchKind.GROUP:
        does = GroupSwitchSteps(links_between(settings, store, record.old, record.new), settings, store, now_ms)
    else:
        words = HomeAnnouncer(ends.source, ends.target, time.monotonic)
        writers = WriterAccess(ends.source, ends.target, link, back, store)
        if record.kind in (SwitchKind.FAILBACK, SwitchKind.MAPPED_FAILBACK):
            does = FailbackSteps(link, back, settings, store, ends.source, ends.target, words, writers, now_ms, guard)
        else:
            whose = SwitchWithoutDataSteps if record.kind is SwitchKind.DATALESS else SwitchSteps
            does = whose(link, back, settings, store, ends.source, ends.target, words, writers, now_ms)
    return CommandSteps(settings.of(SWITCH), does)


def steady_clock() -> Callable[[], int]:
    """Returns a clock that is never set: a hold must not seem longer or shorter than it is."""
    begun_ms, begun_s = wall_ms(), steady_s()
    return lambda: begun_ms + int((steady_s() - begun_s) * 1000)


def ensure_link_carries(
    name: str, topics: Sequence[str], settings: Settings, store: Store, asking: SwitchCaller
) -> None:
    """Adds only these topics, by name, to the link, which is created if missing."""
    links = {one.link.name: one.link for one in effective_links(settings.links, store).values()}
    there = links.get(name)
    if there is not None and there.naming is not TwinNaming.SAME:
        raise RefusedError("switch.reverse-link-renames", link=name, topics=join_names(list(topics), NAMED_MAX))
    names = sorted({*(escape_topic(topic) for topic in topics), *(there.topics if there else ())})
    value = f"topics={json.dumps(names)}"
    planned = plan_links(ChangeLink(name, [value]) if there else AddLink(name, [value]), settings, store, by=asking.by)
    if planned.refused:
        raise planned.refused
    for step in change_links(planned, settings, store, by=asking.by):
        asking.tell(step.sentence(done=True))
