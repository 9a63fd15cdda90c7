"""A forced switch while the store is down: planned from the settings and the surviving cluster, which also keeps the
state.

A temporary store holds what the cluster says. The log of `twinshore.homes` there decides between two concurrent
switches, and between two processes that resume the same one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
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
from twinshore.switch.operations.plan import (
    NAMED_MAX,
    REQUEST_TIMEOUT_S,
    SwitchPlan,
    SwitchPlanRequest,
    SwitchPlanStep,
    check_expressions,
)
from twinshore.switch.operations.run import (
    CALL_S,
    ClusterRecordKeeper,
    ClusterSwitchRecord,
    SwitchCaller,
    read_switch_records,
)
from twinshore.switch.operations.show import SwitchView
from twinshore.switch.step_runner import continue_switch, run_steps

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
        return SwitchPlan(
            shown=(where.why,),
            refusal=RefusedError("switch.store-needed"),
        )
    if not request.topics:
        raise ConfigError("switch.nothing-to-switch")
    if where.begun:
        return _onward(where, where.begun.state)
    if refused := _refused(request, where):
        return SwitchPlan(shown=(where.why,), refusal=refused)
    found = planning.plan(request, settings, where.store, by=by, kept=request.to)
    found = replace(found, shown=(where.why, *found.shown), remarks=(*found.remarks, *_strange(request, where.last)))
    return dispatch.add_commands(found, settings)


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
        saved = ClusterRecordKeeper(homes_topic, begun.digest if begun else "")
        ended = run_steps(state, work.once, saved.save, now_ms=clock, tell=caller.tell, stop=caller.stop)
    if ended.as_kept().awaits_store:
        caller.tell("once the store answers, `twinshore switch resume` gives what it alone remembers")
    return SwitchView(ended.id, ended)


@contextmanager
def _put_together(request: SwitchPlanRequest, settings: Settings, error: StoreError) -> Iterator[WithoutStore]:
    settings.cluster(request.to)
    links = [link for link in settings.links if link.target == request.to and link.naming is TwinNaming.SAME]
    links = [link for link in links if not request.links or link.name in request.links]
    with closing(
        KafkaCluster(settings.cluster(request.to), patience_s=REQUEST_TIMEOUT_S, call_s=REQUEST_TIMEOUT_S)
    ) as target:
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
    wanted = [re.compile(pattern) for pattern in request.topics]
    ours = [
        record
        for record in records.values()
        if record.state.new == request.to
        and not (record.state.ended or record.state.awaits_store)
        and any(pattern.fullmatch(topic) for topic in record.state.names() for pattern in wanted)
    ]
    return min(ours, key=lambda record: record.state.begun_ms, default=None)


def _onward(where: WithoutStore, state: SwitchState) -> SwitchPlan:
    in_order = STEPS[state.kind]
    steps = tuple(SwitchPlanStep(step) for step in in_order[in_order.index(state.step) :])
    shown = (where.why, f"gone on with: {SwitchView(state.id, state).sentence()}")
    return SwitchPlan(steps, shown, state=state)


def _refused(request: SwitchPlanRequest, where: WithoutStore) -> ConfigError | RefusedError | None:
    wanted = [re.compile(pattern) for pattern in request.topics]

    def meant(topics: Iterable[str]) -> list[str]:
        return sorted({topic for topic in topics if any(pattern.fullmatch(topic) for pattern in wanted)})

    if not where.left:
        return RefusedError("switch.no-claims", cluster=request.to)
    if mapped := meant(topic for link in where.left for topic in link.mapped):
        return RefusedError("switch.mapped-twins", topics=join_names(mapped, NAMED_MAX))
    if held := meant(where.claims):
        switch = where.claims[held[0]]
        return RefusedError(
            "switch.claimed-in-store", topics=join_names(held, NAMED_MAX), switch=switch[:8], cluster=request.to
        )
    if where.last.refused:
        return RefusedError(
            "switch.foreign-writer",
            partitions=join_names(where.last.strange, NAMED_MAX),
            cluster=request.to,
            claims=TWINS_TOPIC,
        )
    return None


def _last_written(request: SwitchPlanRequest, target: KafkaCluster, left: Iterable[RecoveredLink]) -> LastWriters:
    """Checks the matched topics; returns no foreign writers if brokers do not tell."""
    wanted = [re.compile(pattern) for pattern in request.topics]
    try:
        each = [
            find_last_writers(
                target, link, {topic for topic in link.topics() if any(so.fullmatch(topic) for so in wanted)}
            )
            for link in left
        ]
    except KafkaError as error:
        if error.retriable:
            raise
        return NO_FOREIGN_WRITERS
    return LastWriters(
        tuple(name for writers in each for name in writers.strange), all(not writers.refused for writers in each)
    )


def _strange(request: SwitchPlanRequest, last: LastWriters) -> Iterator[str]:
    if last.strange:
        yield (
            f"{join_names(last.strange, NAMED_MAX)} on {request.to} ends with records of another writer than the link: "
            "see "
            "that no mirror of it runs any more, as late requests of such a writer are not shut out"
        )


def record_idle_limit_s(state: SwitchState, timeout_s: float) -> float:
    """Returns how long a running switch may leave its state unchanged. Nothing is saved during an operator's command,
    which this host's settings end after `timeout_s`.
    """
    runs = state.command and state.step in (SwitchStep.BEFORE, SwitchStep.AFTER)
    return RECORD_IDLE_S_MAX + (timeout_s + TERMINATE_S_MAX if runs else 0)


def _must_be_left(homes_topic: HomesTopic, begun: ClusterSwitchRecord, still_s: float, caller: SwitchCaller) -> None:
    """Raises RefusedError if another process changes the switch within `still_s`."""
    if still_s > RECORD_IDLE_S_MAX:
        caller.tell(f"a command may still run for whoever began the switch: it is watched for {still_s:g} s")
    until_s = time.monotonic() + still_s
    while time.monotonic() < until_s:
        homes_topic.read()
        if homes_topic.log.records.digest(begun.state.id) != begun.digest:
            raise RefusedError("switch.record-changed", switch=begun.state.id[:8])
        if caller.stop.wait(POLL_INTERVAL_S):
            raise RefusedError("switch.takeover-stopped", switch=begun.state.id[:8])
