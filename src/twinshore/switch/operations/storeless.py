"""A forced switch while the store is down: planned from the settings and the surviving cluster, which also keeps the
state.

A temporary store is filled with what the cluster says of its links: producer, twins, and homes. So the same steps run
on it. Missing is what only the dead store has: progress, operator overrides, and rights held back from the twins.

The log of `twinshore.homes` there decides between two concurrent switches, and between two processes that resume the
same one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError
from twinshore.config.frozen import SWITCH_CLIENT_ID, TWINS_TOPIC
from twinshore.config.model import Link, TopicPartition, TwinNaming
from twinshore.config.sections.switch import SECTION as SWITCH
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG
from twinshore.kafka.state_topic import StateTopic
from twinshore.replication.core.claim_records import LinkClaimState, LinkClaimStates, LinkWriter, iter_anchors
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.links import load_links
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.routing.core.home_records import HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import HomeChange, HomeRow, LinkIdentity, TwinRow
from twinshore.state.opening import open_responsive
from twinshore.state.store import Store, temporary_store
from twinshore.switch.core.steps import STEPS, SwitchState, SwitchStep, begin_switch
from twinshore.switch.drain import TERMINATE_S_MAX
from twinshore.switch.operations import dispatch
from twinshore.switch.operations import plan as planning
from twinshore.switch.operations import run as running
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest, check_expressions
from twinshore.switch.operations.run import (
    CALL_S,
    ClusterRecordKeeper,
    ClusterSwitchRecord,
    SwitchCaller,
    read_switch_records,
)
from twinshore.switch.operations.show import SwitchView
from twinshore.switch.step_runner import StepRunner, continue_switch

STORE_TIMEOUT_S = 2.5
RECORD_IDLE_S_MAX = 2.0  # a switch at work writes its record more often, but while a command runs
POLL_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class LastWriters:
    """`strange`: partitions that end with records of an unknown producer. `ours`: a broker knows the link's recorded
    producer as a writer of any of them.
    """

    strange: tuple[str, ...] = ()
    ours: bool = True

    @property
    def refused(self) -> bool:
        """Returns whether nothing shows that the state records match the link's current producer."""
        return bool(self.strange) and not self.ours


NO_FOREIGN_WRITERS = LastWriters()


@dataclass(frozen=True, slots=True)
class WithoutStore:
    """`store` holds what the new home says. `why`: why the real one is not used. `begun`: the switch to resume. `last`:
    last writers of the matched twins.
    """

    store: Store
    why: str
    left: tuple[RecoveredLink, ...]
    begun: ClusterSwitchRecord | None
    claims: Mapping[str, str]
    last: LastWriters = NO_FOREIGN_WRITERS


@contextmanager
def open_store_or_cluster(
    request: SwitchPlanRequest, settings: Settings
) -> Iterator[tuple[Settings, Store | WithoutStore]]:
    """Yields the settings with all current links, and the store; if the store does not answer, the replacement."""
    check_expressions(request.topics)
    try:
        store = open_responsive(settings, STORE_TIMEOUT_S)
    except StoreError as error:
        with _put_together(request, settings, error) as without:
            yield settings, without
        return
    with store:
        yield settings.with_links(load_links(settings, store).links), store


def plan(request: SwitchPlanRequest, settings: Settings, where: Store | WithoutStore, *, by: str) -> SwitchPlan:
    """Like `dispatch.plan_switch`, with or without the store."""
    if isinstance(where, Store):
        return dispatch.plan_switch(request, settings, where, by=by)
    if request.wave or request.group or request.of or request.producer:
        return SwitchPlan(shown=(where.why,), refusal=RefusedError("switch.store-needed"))
    if not request.topics:
        raise ConfigError("switch.nothing-to-switch")
    if where.begun:
        return _onward(where, where.begun.state)
    if refused := _refused(request, where):
        return SwitchPlan(shown=(where.why,), refusal=refused)
    found = planning.plan(request, settings, where.store, by=by, kept=request.to)
    remarks = found.remarks
    if where.last.strange:
        partitions = f"{join_names(where.last.strange)} on {request.to}"
        remark = (
            f"{partitions} ends with records of another writer than the link: see that no mirror of it runs any more"
        )
        remarks = (*remarks, f"{remark}, as the fence does not shut out late requests of such a writer")
    return dispatch.add_commands(replace(found, shown=(where.why, *found.shown), remarks=remarks), settings)


def run_switch(plan: SwitchPlan, settings: Settings, where: Store | WithoutStore, caller: SwitchCaller) -> SwitchView:
    """Like `dispatch.run_switch_plan`, with or without the store."""
    if isinstance(where, Store):
        return dispatch.run_switch_plan(plan, settings, where, caller)
    if plan.state is None:
        raise plan.refusal or ConfigError("switch.nothing-to-switch")
    begun = where.begun
    now_ms = wall_ms()
    state = continue_switch(begun.state, caller.by, now_ms) if begun else begin_switch(plan.state, now_ms)
    link, back = running.links_both_ways(state, settings, where.store)
    with LinkClients(link, settings, client_id=SWITCH_CLIENT_ID, patience_s=CALL_S, call_s=CALL_S) as clients:
        homes_topic = HomesTopic(clients.target)
        homes_topic.make()
        if begun:
            _must_be_left(homes_topic, begun, record_idle_limit_s(begun.state, settings.of(SWITCH).timeout_s), caller)
        clock = running.steady_clock()
        work = running.build_step_executor(state, link, back, settings, where.store, clients, clock)
        keeper = ClusterRecordKeeper(homes_topic, begun.digest if begun else "")
        ended = StepRunner(work.once, keeper.save, clock, caller.tell, caller.stop).run(state)
    if ended.as_kept().awaits_store:
        caller.tell("once the store answers, `twinshore switch resume` applies what the store alone knows")
    return SwitchView(ended.id, ended)


@contextmanager
def _put_together(request: SwitchPlanRequest, settings: Settings, error: StoreError) -> Iterator[WithoutStore]:
    settings.cluster(request.to)
    links = planning.links_leading_to(request.to, request.links, settings.links)
    links = [link for link in links if link.naming is TwinNaming.SAME]
    with planning.open_cluster(request.to, settings) as target:
        homes_topic = HomesTopic(target)
        records = homes_topic.read()
        left = tuple(found for link in links if (found := recover_link(link, target, records)))
        begun = _begun(request, read_switch_records(homes_topic.log))
        last = NO_FOREIGN_WRITERS if begun else _last_written(request, target, left)
    claims = {
        topic: claim.switch for link in left for topic in link.topics() if (claim := homes_topic.log.holder(topic))
    }
    with temporary_store(f"of what stands on {request.to}") as store:
        store_recovered_links(store, left, also=begun.state.names() if begun else ())
        why = f"{error.message}: the switch works from the settings, and from what stands on {request.to}"
        yield WithoutStore(store, why, left, begun, claims, last)


def _begun(request: SwitchPlanRequest, records: Mapping[str, ClusterSwitchRecord]) -> ClusterSwitchRecord | None:
    """Returns the oldest unfinished switch of such topics that began without the store."""
    begun = [
        record
        for record in records.values()
        if record.state.new == request.to
        and not (record.state.ended or record.state.awaits_store)
        and _matching(request, record.state.names())
    ]
    return min(begun, key=lambda record: record.state.begun_ms, default=None)


def _matching(request: SwitchPlanRequest, topics: Iterable[str]) -> list[str]:
    return sorted({topic for topic in topics if any(re.fullmatch(pattern, topic) for pattern in request.topics)})


def _onward(where: WithoutStore, state: SwitchState) -> SwitchPlan:
    steps = STEPS[state.kind]
    shown = (where.why, f"resumed: {SwitchView(state.id, state).sentence()}")
    return SwitchPlan(steps[steps.index(state.step) :], shown, state=state)


def _refused(request: SwitchPlanRequest, where: WithoutStore) -> ConfigError | RefusedError | None:
    if not where.left:
        return RefusedError("switch.no-claims", cluster=request.to)
    if mapped := _matching(request, (topic for link in where.left for topic in link.mapped)):
        return RefusedError("switch.mapped-twins", topics=join_names(mapped))
    if held := _matching(request, where.claims):
        switch = where.claims[held[0]][:8]
        return RefusedError("switch.claimed-in-store", topics=join_names(held), switch=switch, cluster=request.to)
    if where.last.refused:
        strange = join_names(where.last.strange)
        return RefusedError("switch.foreign-writer", partitions=strange, cluster=request.to, claims=TWINS_TOPIC)
    return None


def _last_written(request: SwitchPlanRequest, target: KafkaCluster, left: Iterable[RecoveredLink]) -> LastWriters:
    """Checks the matched topics; returns no foreign writers if brokers do not tell."""
    try:
        each = [find_last_writers(target, link, _matching(request, link.topics())) for link in left]
    except KafkaError as error:
        if error.retriable:
            raise
        return NO_FOREIGN_WRITERS
    strange = tuple(partition for writers in each for partition in writers.strange)
    return LastWriters(strange, all(not writers.refused for writers in each))


def record_idle_limit_s(state: SwitchState, timeout_s: float) -> float:
    """Returns how long a running switch may leave its state unchanged. Nothing is saved during an operator's command,
    which this host's settings end after `timeout_s`.
    """
    runs = state.command and state.step in (SwitchStep.BEFORE, SwitchStep.AFTER)
    return RECORD_IDLE_S_MAX + (timeout_s + TERMINATE_S_MAX if runs else 0)


def _must_be_left(homes_topic: HomesTopic, begun: ClusterSwitchRecord, still_s: float, caller: SwitchCaller) -> None:
    """Raises RefusedError if another process changes the switch within `still_s`."""
    if still_s > RECORD_IDLE_S_MAX:
        caller.tell(f"a command of the process that began the switch may still run: waits {still_s:g} s")
    until_s = time.monotonic() + still_s
    while time.monotonic() < until_s:
        homes_topic.read()
        if homes_topic.log.records.digest(begun.state.id) != begun.digest:
            raise RefusedError("switch.record-changed", switch=begun.state.id[:8])
        if caller.stop.wait(POLL_INTERVAL_S):
            raise RefusedError("switch.takeover-stopped", switch=begun.state.id[:8])


@dataclass(frozen=True, slots=True)
class RecoveredLink:
    """The state of a link by the new home. `mapped`: topics whose twins have mapped offsets."""

    link: Link
    identity: LinkIdentity
    twins: tuple[TwinRow, ...]
    homes: tuple[HomeRow, ...]
    mapped: tuple[str, ...]

    def topics(self) -> set[str]:
        return {row.topic for row in self.twins}

    def elsewhere(self) -> dict[str, str]:
        return {row.topic: row.home for row in self.homes if row.home != self.link.source}


def recover_link(link: Link, target: KafkaCluster, records: Mapping[str, HomeRecord]) -> RecoveredLink | None:
    """Returns None if no state record shows that the link writes there. `records`: the home records of that cluster."""
    state = _read_claim(link, target)
    if state is None or state.writer is None:
        return None
    return rebuild_link_state(link, state, state.writer, records)


def rebuild_link_state(
    link: Link, state: LinkClaimState, writer: LinkWriter, records: Mapping[str, HomeRecord]
) -> RecoveredLink:
    ids = {state.source_id: link.source, writer.target_cluster_id: link.target}
    clusters = (state.source_id, writer.target_cluster_id)
    identity = LinkIdentity(link.name, writer.producer_id, writer.producer_epoch, *clusters)
    rows = [
        TwinRow(
            *(link.name, topic, partition, anchors.source_topic_id, anchors.target_topic_id),
            *(run.offset, run.sequence, 0, run.inherited, run.epoch),
        )
        for (topic, _), anchors in sorted(state.twins.items())
        for partition, run in iter_anchors([anchors])
    ]
    topics = {row.topic for row in rows}
    homes = [
        HomeRow(
            pair_name(link), topic, ids.get(record.cluster_id, record.home), record.term, record.since_ms, record.set_by
        )
        for topic, record in sorted(records.items())
        # A mirror that runs forgets a twin that has become a home. An unknown home is none of a store's.
        if not record.newer and (topic in topics or ids.get(record.cluster_id) == link.target)
    ]
    mapped = sorted({topic for (topic, _), anchors in state.twins.items() if anchors.mapped})
    return RecoveredLink(link, identity, tuple(rows), tuple(homes), tuple(mapped))


def store_recovered_links(store: Store, found: Iterable[RecoveredLink], also: Collection[str] = ()) -> None:
    """Of topics whose home is elsewhere, only the twins in `also` are saved."""
    for recovered_link in found:
        gone = (recovered_link.elsewhere().keys() | set(recovered_link.mapped)) - set(also)
        store.links.save_identity(recovered_link.identity)
        # Before the twins, which `flip` removes.
        store.topics_in_switch.change_homes([_home_change(row) for row in recovered_link.homes])
        store.twins.save([row for row in recovered_link.twins if row.topic not in gone])


def _home_change(row: HomeRow) -> HomeChange:
    return HomeChange(
        pair=row.pair,
        topic=row.topic,
        home=row.home,
        term=row.term,
        link="",
        back="",
        source_topic_id="",
        target_topic_id="",
        points=(),
        since_ms=row.since_ms,
        set_by=row.set_by,
    )


def find_last_writers(target: KafkaCluster, found: RecoveredLink, topics: Collection[str]) -> LastWriters:
    """Checks the last writers of these topics: if the state records are outdated, a fence shuts out the wrong producer.
    Reads only the ends where a broker remembers another producer.
    """
    pid = found.identity.producer_id
    own = {pid, marker_producer_id(pid)}
    below = {TopicPartition(row.topic, row.partition): row.inherited_end for row in found.twins if row.topic in topics}
    writers = target.describe_producers(below)
    others = [
        partition
        for partition, producers in writers.items()
        if any(producer.producer_id not in own and producer.last_sequence >= 0 for producer in producers)
    ]
    ends = target.list_offsets(others, OffsetKind.HIGH_WATERMARK) if others else {}
    strange = []
    for partition in others:
        last = target.read_tail_batch(partition, ends[partition] - 1) if ends[partition] > below[partition] else None
        if last is not None and not last.attributes & CONTROL_FLAG and last.producer_id not in own:
            strange.append(str(partition))
    known = any(producer.producer_id in own for producers in writers.values() for producer in producers)
    return LastWriters(tuple(sorted(strange)), known)


def _read_claim(link: Link, target: KafkaCluster) -> LinkClaimState | None:
    with target.errand():
        notebook, found = StateTopic(target, TWINS_TOPIC), LinkClaimStates(link.name)
        if not notebook.exists():
            return None
        for notes, _ in notebook.pages(0):
            for note in notes:
                found.take(note.key, note.value)
        if versions := [state.newer_writer for state in found.by_source.values() if state.newer_writer]:
            raise RefusedError("replication.newer-claim", link=link.name, cluster=target.name, version=versions[0])
        several = found.written(target.cluster_id())
        if len(several) > 1:
            several = _with_current_twins(link, several, target)
    if len(several) > 1:
        sources = join_names([state.source_id for state in several], len(several))
        ends = {"sources": sources, "source": link.source}
        raise RefusedError("switch.several-claims", cluster=target.name, link=link.name, **ends)
    return several[0] if several else None


def _with_current_twins(link: Link, several: list[LinkClaimState], target: KafkaCluster) -> list[LinkClaimState]:
    names = sorted({link.twin_of(topic) for state in several for topic, _ in state.twins})
    topics = target.metadata(names, refresh=True).topics
    ids = {topic.topic_id.hex() for topic in topics.values() if not topic.error}
    return [state for state in several if any(anchors.target_topic_id in ids for anchors in state.twins.values())]
