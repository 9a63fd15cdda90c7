"""Searches for the smallest harmful schedule, fewest faults first, then fewest steps; and plays scripted stories.

Equivalent states are merged (`canonicalize_state`). A state reached with fewer faults is never searched again. If only
losses are sought, a state safe without further faults ends its branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib import resources
from itertools import chain
from typing import Any, Final

from pydantic import TypeAdapter

from twinshore.advisor.core.simulator.model import (
    NO_OFFSET,
    Anomaly,
    AnomalyCase,
    AutoOffsetReset,
    CommitMode,
    FaultKind,
    ModelAction,
    ModelConfig,
    ModelEvent,
    ModelPartition,
    SendState,
    Transitions,
    TruncationMode,
    build_initial_state,
    consumer_transitions,
    find_anomalies,
    producer_timeout_transitions,
    producer_transitions,
    replication_transitions,
)

STATES_MAX = 200_000
# Known states allowed for each searched one. Searches that end have four to nine.
KNOWN_STATES_FACTOR, KNOWN_STATES_MIN = 10, 10_000


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    move: ModelEvent
    before: ModelPartition
    after: ModelPartition


@dataclass(frozen=True, slots=True)
class Schedule:
    damage: AnomalyCase
    steps: tuple[ScheduleStep, ...]

    @property
    def faults(self) -> int:
        return sum(step.move.is_fault for step in self.steps)


@dataclass(frozen=True, slots=True)
class Exploration:
    """`whole`: every schedule within the bounds was searched for the harms not found. `states`: number of states
    expanded.
    """

    config: ModelConfig
    faults_max: int
    sought: tuple[Anomaly, ...]
    found: dict[Anomaly, Schedule]
    states: int
    whole: bool


def faultless_transitions(config: ModelConfig, state: ModelPartition) -> Iterator[tuple[ModelEvent, ModelPartition]]:
    """All transitions without a fault, in a fixed order."""
    return chain(
        producer_transitions(config, state, faults=False),
        producer_timeout_transitions(state),
        replication_transitions(config, state),
        consumer_transitions(config, state),
    )


def explore(
    config: ModelConfig, *, faults_max: int, sought: tuple[Anomaly, ...] = tuple(Anomaly), states_max: int = STATES_MAX
) -> Exploration:
    """Searches until each sought harm is found, all states are seen, or `states_max` are.

    The search also stops once ten times as many states are known: most of those wait and fill memory.
    """
    first = build_initial_state(config)
    queue: list[tuple[int, int, int, ModelPartition]] = [(0, 0, 0, first)]
    came: dict[int, tuple[int, ModelEvent, ModelPartition]] = {}
    waiting: dict[ModelPartition, tuple[int, int]] = {first: (0, 0)}
    seen: set[Any] = set()
    found: dict[Anomaly, Schedule] = {}
    number = 0
    only_losses, known_max = set(sought) == {Anomaly.LOST}, max(KNOWN_STATES_FACTOR * states_max, KNOWN_STATES_MIN)
    while queue and len(found) < len(sought) and len(seen) < states_max and len(waiting) < known_max:
        spent, steps, at, state = heappop(queue)
        key = canonicalize_state(config, state)
        if key in seen:
            continue
        seen.add(key)
        for damage in find_anomalies(state):
            if damage.harm in sought and damage.harm not in found:
                found[damage.harm] = Schedule(damage, _way(came, at, state))
        after = chain(
            faultless_transitions(config, state), fault_transitions(config, state) if spent < faults_max else ()
        )
        for move, then in after:
            cost = (spent + move.is_fault, steps + 1)
            known = waiting.get(then)
            if known is not None and known <= cost:
                continue
            waiting[then] = cost
            if only_losses and cost[0] == faults_max and is_safe_without_faults(then) and not any(find_anomalies(then)):
                continue
            number += 1
            came[number] = (at, move, state)
            heappush(queue, (*cost, number, then))
    return Exploration(config, faults_max, sought, found, len(seen), not queue)


def _way(
    came: dict[int, tuple[int, ModelEvent, ModelPartition]], at: int, state: ModelPartition
) -> tuple[ScheduleStep, ...]:
    steps: list[ScheduleStep] = []
    while at:
        at, move, before = came[at]
        steps.append(ScheduleStep(move, before, state))
        state = before
    return tuple(reversed(steps))


def canonicalize_state(config: ModelConfig, state: ModelPartition) -> Any:
    """Returns equal keys for states from which the same moves lead to the same harm.

    Broker numbers are only names. Of epochs only the order counts, and of the producer's epoch only which leaders it
    excludes. A follower's log end matters to a leader only above the leader's high watermark.
    """
    leader = state.leader
    high = state.replicas[leader - 1].high if leader else 0
    leading = [one.epoch for broker, one in enumerate(state.replicas, 1) if one.leads or broker == leader]
    epochs = {entry.epoch for one in state.replicas for entry in one.log}
    rank = {epoch: at for at, epoch in enumerate(sorted({*epochs, *leading}))}
    by_epoch = config.truncation is TruncationMode.EPOCH
    ranked = sorted(
        (
            tuple((entry.record, rank[entry.epoch]) for entry in one.log),
            one.flushed,
            one.high,
            (one.up, one.cut, one.slow, one.leads, one.in_sync, one.eligible, broker == leader, broker == state.last),
            rank[one.epoch] if one.leads or broker == leader else not by_epoch and one.epoch == state.epoch,
            one.view,
            max(one.told, high) if leader and one.in_sync and broker != leader else 0,
            one.waiting if len(one.waiting) < 2 else tuple(sorted(one.waiting)),
        )
        for broker, one in enumerate(state.replicas, 1)
    )
    start = state.start if leader and state.start > high else 0
    shut = sum(epoch < state.seen for epoch in set(leading))
    return tuple(ranked), start, shut, state.sent, state.reader, state.first


def is_safe_without_faults(state: ModelPartition) -> bool:
    """Whether no record can be lost without a further fault: the leader is reachable, its log only grows, and no other
    broker acts as leader. Always false with a consumer.
    """
    if state.reader is not None or state.led is None or not state.led.reachable:
        return False
    return not any(one.leads for broker, one in enumerate(state.replicas, 1) if broker != state.leader)


def fault_transitions(config: ModelConfig, state: ModelPartition) -> Transitions:
    for broker in state.brokers:
        replica = state.of(broker)
        if not replica.up:
            continue
        if FaultKind.CRASH in config.faults:
            yield ModelEvent(ModelAction.CRASH, broker), _down(state, broker, len(replica.log))
        if FaultKind.POWER in config.faults and replica.flushed < len(replica.log):
            yield ModelEvent(ModelAction.POWER, broker), _down(state, broker, replica.flushed)
        alone = len(state.replicas) == 1
        if FaultKind.CUT in config.faults and not replica.cut and not alone:
            yield (
                ModelEvent(ModelAction.CUT, broker),
                state.with_replica(broker, replica._replace(cut=True, view=_view(state, broker))),
            )
        if FaultKind.SLOW in config.faults and not replica.slow and not replica.cut and not alone:
            yield ModelEvent(ModelAction.SLOW, broker), state.with_replica(broker, replica._replace(slow=True))
    if FaultKind.LOST_RESPONSE in config.faults:
        yield from producer_transitions(config, state, faults=True)
    yield from _of_reading(config, state)


def _of_reading(config: ModelConfig, state: ModelPartition) -> Transitions:
    reader, leader = state.reader, state.led
    if reader is None:
        return
    if FaultKind.READER in config.faults:
        yield ModelEvent(ModelAction.READER), state._replace(reader=reader._replace(place=reader.committed, hand=0))
    if config.reset is AutoOffsetReset.NONE:
        return
    # If the application stores its offset, brokers have none to expire.
    if (
        FaultKind.REST in config.faults
        and reader.committed != NO_OFFSET
        and config.commit is not CommitMode.WITH_RESULTS
    ):
        gone = reader._replace(place=NO_OFFSET, committed=NO_OFFSET, hand=0)
        yield ModelEvent(ModelAction.REST), state._replace(reader=gone)
    if FaultKind.RETENTION in config.faults and leader is not None and state.first < leader.high:
        yield ModelEvent(ModelAction.DELETE, 0, leader.log[state.first].record), state._replace(first=state.first + 1)


def _view(state: ModelPartition, broker: int) -> int:
    return len(state.in_sync) if state.leader == broker else 0


def _down(state: ModelPartition, broker: int, end: int) -> ModelPartition:
    replica = state.of(broker)
    refused = replica.waiting
    down = replica.cut_to(end)._replace(up=False, cut=False, slow=False, leads=False, view=0, waiting=())
    return state.with_replica(broker, down).answered(refused, SendState.REFUSED)


@dataclass(frozen=True, slots=True)
class Story:
    """One of `stories.json`. `ends`: the harm at the end, or None. `moral`: the lesson."""

    name: str
    title: str
    config: ModelConfig
    script: tuple[ModelEvent, ...]
    ends: Anomaly | None
    moral: str


def play_story(story: Story) -> tuple[ScheduleStep, ...]:
    """Plays the script. Raises ValueError if the model does not allow a step."""
    state, steps = build_initial_state(story.config), []
    for move in story.script:
        able = dict(chain(faultless_transitions(story.config, state), fault_transitions(story.config, state)))
        if move not in able:
            raise ValueError(f"{story.name}: {move} cannot happen; what can: {', '.join(map(str, able))}")
        steps.append(ScheduleStep(move, state, able[move]))
        state = able[move]
    return tuple(steps)


STORIES: Final = TypeAdapter(tuple[Story, ...]).validate_json(
    resources.files("twinshore.advisor").joinpath("stories.json").read_bytes()
)
