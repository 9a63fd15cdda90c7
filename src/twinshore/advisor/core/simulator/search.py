"""Searches for the smallest harmful schedule, fewest faults first, then fewest steps; and plays scripted stories.

Equivalent states are merged (`canonicalize_state`). A state reached with fewer faults is never searched again. If only
losses are sought, a state safe without further faults ends its branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final

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
    ProducerAcks,
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
    """`ends`: the harm at the end, or None. `moral`: the lesson."""

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


def _send(record: int, broker: int = 1) -> ModelEvent:
    return ModelEvent(ModelAction.SEND, broker, record)


def _fetch(*brokers: int) -> tuple[ModelEvent, ...]:
    return tuple(ModelEvent(ModelAction.FETCH, broker) for broker in brokers)


def _gone(broker: int, heir: int = 0, by: ModelAction = ModelAction.CRASH) -> tuple[ModelEvent, ...]:
    return ModelEvent(by, broker), ModelEvent(ModelAction.NOTICE, broker, heir)


_SLOW_LEADER = (ModelEvent(ModelAction.SLOW, 1), ModelEvent(ModelAction.SHRINK, 1))
_BACK = (ModelEvent(ModelAction.RESTART, 1), ModelEvent(ModelAction.ELECT, 1))
_ALONE = ModelConfig(replicas=1, records=1)
_READ = (_send(1), ModelEvent(ModelAction.POLL, 1, 1))
_AGAIN = ModelConfig(replicas=1, commit=CommitMode.AFTER)
_HANDLED = (ModelEvent(ModelAction.HANDLE, 0, 1), ModelEvent(ModelAction.COMMIT))
_DIES = ModelEvent(ModelAction.READER)
_LAST_WORDS = (_send(1), *_fetch(2, 3, 2, 3), *_SLOW_LEADER, _send(2))

STORIES: Final = (
    Story(
        "two-rounds",
        "A record is acknowledged only in the second round of fetches",
        ModelConfig(records=1, min_insync=2),
        (_send(1), *_fetch(2, 3, 2, 3, 2)),
        None,
        "A follower's fetch brings the record; its next one tells the leader that it has it. Only then the high"
        " watermark rises, and followers hear of that one round later still.",
    ),
    Story(
        "acks-0",
        "acks=0: a record goes to a broker that is down",
        ModelConfig(records=1, acks=ProducerAcks.NONE, idempotent=False),
        (ModelEvent(ModelAction.CRASH, 1), _send(1), ModelEvent(ModelAction.NOTICE, 1, 2)),
        Anomaly.LOST,
        "The producer does not wait for an answer, so nobody learns of the loss.",
    ),
    Story(
        "acks-1",
        "acks=1: the leader dies before a follower has fetched",
        ModelConfig(records=1, acks=ProducerAcks.LEADER, idempotent=False),
        (_send(1), *_gone(1, 2), ModelEvent(ModelAction.RESTART, 1), *_fetch(1)),
        Anomaly.LOST,
        "An election that is clean loses it: being in sync does not mean having the last records. acks=all waits.",
    ),
    Story(
        "acks-1-cut",
        "acks=1: a leader that is cut off goes on acknowledging",
        ModelConfig(records=1, acks=ProducerAcks.LEADER, idempotent=False),
        (*_gone(1, 2, ModelAction.CUT), _send(1), ModelEvent(ModelAction.HEAL, 1), *_fetch(1)),
        Anomaly.LOST,
        "The old leader does not know yet that it is none. With acks=all it could acknowledge nothing alone.",
    ),
    Story(
        "one-replica",
        "One replica: a machine loses its power",
        _ALONE,
        (_send(1), *_gone(1, 0, ModelAction.POWER), *_BACK),
        Anomaly.LOST,
        "acks=all waits for all replicas in sync, and that is one. Kafka leaves it to the system when records are on"
        " disk, and to other replicas to have them.",
    ),
    Story(
        "refused",
        "Consistency before availability: with too few in sync writers are refused, and nothing is lost",
        ModelConfig(replicas=2, records=1, min_insync=2),
        (*_gone(2), _send(1), ModelEvent(ModelAction.RESTART, 2), *_fetch(2), _send(1), *_fetch(2, 2), *_gone(1, 2)),
        None,
        "With acks=all the producer hears NOT_ENOUGH_REPLICAS and tries again until a second replica is back. So what"
        " is acknowledged outlives the leader. With three replicas one may be away without a refusal.",
    ),
    Story(
        "min-insync-1",
        "acks=all, min.insync.replicas=1: all in sync means the leader alone",
        ModelConfig(records=1),
        (*_SLOW_LEADER, _send(1), *_gone(1, 0, ModelAction.POWER), *_BACK),
        Anomaly.LOST,
        "A leader that answers its followers too slowly puts them out of the in-sync set, and acks=all waits for itself"
        " alone. With min.insync.replicas=2 the record is refused instead.",
    ),
    Story(
        "last-in-sync",
        "acks=all, min.insync.replicas=2: the last replica in sync loses its disk's last writes",
        ModelConfig(min_insync=2),
        (*_LAST_WORDS, *_gone(1, 0, ModelAction.POWER), *_BACK),
        Anomaly.LOST,
        "Record 2 is refused, but record 1 is lost though two others have it: only who was in sync last may lead,"
        " whatever became of its log. Eligible leader replicas (KIP-966) mend it.",
    ),
    Story(
        "eligible",
        "The same with eligible leader replicas: nothing is lost",
        ModelConfig(min_insync=2, elr=True),
        (*_LAST_WORDS, *_gone(1, 2, ModelAction.POWER)),
        None,
        "Who left the in-sync set while too few stayed may still lead, for nothing was acknowledged without it since.",
    ),
    Story(
        "unclean",
        "Unclean election: a replica that lags is made the leader",
        ModelConfig(replicas=2, records=1, unclean=True),
        (
            ModelEvent(ModelAction.SLOW, 2),
            ModelEvent(ModelAction.SHRINK, 2),
            _send(1),
            *_gone(1, 2),
            ModelEvent(ModelAction.RECOVER, 2),
            ModelEvent(ModelAction.RESTART, 1),
            *_fetch(1),
        ),
        Anomaly.LOST,
        "The old leader still has the record when it comes back, and cuts it: followers' logs are cut to the leader's.",
    ),
    Story(
        "truncation-high-watermark",
        "Before leader epochs: a follower cuts a record that was acknowledged",
        ModelConfig(records=1, min_insync=2, truncation=TruncationMode.HIGH_WATERMARK),
        (_send(1), *_fetch(2, 3, 2, 3), *_gone(1, 3), ModelEvent(ModelAction.LET_OFFSETS_FOLLOW, 2), *_gone(3, 2)),
        Anomaly.LOST,
        "Broker 2 has the record, but not yet heard that it is below the high watermark. As it turns to a new leader it"
        " cuts it to fetch it again, and is the leader itself before it can.",
    ),
    Story(
        "truncation-epoch",
        "The same with leader epochs (KIP-101): nothing is lost",
        ModelConfig(records=1, min_insync=2),
        (_send(1), *_fetch(2, 3, 2, 3), *_gone(1, 3), *_fetch(2), *_gone(3, 2)),
        None,
        "A follower asks the new leader where the epoch of its own last record ended, and cuts only what lies beyond.",
    ),
    Story(
        "retry-new-leader",
        "The leader dies before it has answered, and the producer sends again: repeated, not lost",
        ModelConfig(records=1, min_insync=2, idempotent=False),
        (_send(1), *_fetch(2, 3), *_gone(1, 2), _send(1, 2), *_fetch(3, 3)),
        Anomaly.TWICE,
        "The new leader had the record already. Idempotence would have it recognised by its sequence number, which"
        " replicas learn with the record.",
    ),
    Story(
        "retry-twice",
        "An answer is lost, and the producer sends again",
        ModelConfig(replicas=1, records=1, idempotent=False),
        (ModelEvent(ModelAction.UNANSWERED, 1, 1), _send(1)),
        Anomaly.TWICE,
        "The producer cannot know whether the first one was appended.",
    ),
    Story(
        "retry-once",
        "The same with idempotence: the record is there once",
        _ALONE,
        (ModelEvent(ModelAction.UNANSWERED, 1, 1), _send(1)),
        None,
        "The broker knows the record by its producer's sequence number.",
    ),
    Story(
        "auto-commit",
        "An offset is committed before its record is handled",
        ModelConfig(replicas=1, records=1, commit=CommitMode.AUTO),
        (*_READ, ModelEvent(ModelAction.COMMIT), _DIES),
        Anomaly.LOST,
        "A timer commits what was handed out. It does so in clients that commit by one of their own, and in Java where"
        " another thread handles what poll() gave.",
    ),
    Story(
        "commit-after",
        "An offset is committed after its record was handled",
        ModelConfig(replicas=1, records=1, commit=CommitMode.AFTER),
        (
            *_READ,
            ModelEvent(ModelAction.HANDLE, 0, 1),
            _DIES,
            ModelEvent(ModelAction.POLL, 1, 1),
            ModelEvent(ModelAction.HANDLE, 0, 1),
        ),
        Anomaly.TWICE,
        "Nothing is lost, and what was not committed is handled again: handle a record twice like once.",
    ),
    Story(
        "together",
        "The offset is kept with the result, in one transaction: neither lost nor repeated",
        ModelConfig(replicas=1, records=1, commit=CommitMode.WITH_RESULTS),
        (*_READ, _DIES, ModelEvent(ModelAction.POLL, 1, 1), ModelEvent(ModelAction.HANDLE, 0, 1), _DIES),
        None,
        "Wherever the consumer dies, result and offset are both there or both not: the application's store has both,"
        " and a consumer that starts seeks to the offset there.",
    ),
    Story(
        "newest",
        "auto.offset.reset=latest: what was not committed at a restart is never read again",
        replace(_AGAIN, reset=AutoOffsetReset.LATEST),
        (*_READ, _DIES, _send(2), ModelEvent(ModelAction.SEEK, 1)),
        Anomaly.LOST,
        "The group had committed nothing yet, so the next consumer begins at the end: the record that was in hand is"
        " gone for this group, and so is what came meanwhile.",
    ),
    Story(
        "oldest",
        "auto.offset.reset=earliest: the oldest is what retention has left",
        replace(_AGAIN, reset=AutoOffsetReset.EARLIEST),
        (
            _send(1),
            _send(2),
            ModelEvent(ModelAction.DELETE, 0, 1),
            ModelEvent(ModelAction.SEEK, 1),
            ModelEvent(ModelAction.POLL, 1, 2),
        ),
        Anomaly.LOST,
        "Earliest repeats rather than skips, and still cannot bring back what was deleted before it was read. Whoever"
        " is slower than retention loses in silence.",
    ),
    Story(
        "offsets-retention",
        "A group rests until its committed offset expires, and latest skips what came",
        replace(_AGAIN, reset=AutoOffsetReset.LATEST),
        (*_READ, *_HANDLED, ModelEvent(ModelAction.REST), _send(2), ModelEvent(ModelAction.SEEK, 1)),
        Anomaly.LOST,
        "offsets.retention.minutes begins when the last member leaves. A group that comes back later is a new one.",
    ),
    Story(
        "offsets-retention-earliest",
        "The same with earliest: all that is there is handled again",
        replace(_AGAIN, records=1, reset=AutoOffsetReset.EARLIEST),
        (
            *_READ,
            *_HANDLED,
            ModelEvent(ModelAction.REST),
            ModelEvent(ModelAction.SEEK, 1),
            ModelEvent(ModelAction.POLL, 1, 1),
            ModelEvent(ModelAction.HANDLE, 0, 1),
        ),
        Anomaly.TWICE,
        "Nothing is skipped, and everything that retention has left comes again.",
    ),
)
