"""A forced switch while the store is down: planned from the settings and the surviving cluster, which also keeps the
state.

A temporary store holds what the cluster says. The log of `twinshore.homes` there decides between two concurrent
switches, and between two processes that resume the same one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError
from twinshore.config.frozen import SWITCH_CLIENT_ID, TWINS_TOPIC
from twinshore.config.model import TwinNaming
from twinshore.config.sections.switch import SECTION as SWITCH
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.links import load_links
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.opening import open_responsive
from twinshore.state.store import Store, temporary_store
from twinshore.switch.core.steps import STEPS, SwitchState, SwitchStep, begin_switch
from twinshore.switch.drain import TERMINATE_S_MAX
from twinshore.switch.link_recovery import (
    LastWriters,
    RecoveredLink,
    find_last_writers,
    recover_link,
    store_recovered_links,
)
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
NO_FOREIGN_WRITERS = LastWriters()
RECORD_IDLE_S_MAX = 2.0  # a switch at work writes its record more often, but while a command runs
POLL_INTERVAL_S = 0.2


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
