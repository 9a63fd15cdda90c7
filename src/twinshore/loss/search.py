"""The smallest schedule that does harm, by what a partition and its clients may do and suffer: fewest faults first,
then fewest steps. Pure.

States from which the same follows are one (`merged`). What was reached with fewer faults is never looked at again.
Where only losses are sought, a state that can lose nothing any more without a fault ends its branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from twinshore.loss.partition import NOWHERE, Damage, Deed, Move, Partition, Sent, begin, damages
from twinshore.loss.replication import Moved, reads, replication, sends, waits
from twinshore.loss.settings import Commit, Fault, Harm, Reset, Setup, Truncation

STATES_MAX = 200_000
# States that are known for each that may be looked at. Searches that end have four to nine of them.
KNOWN_OF_EACH, KNOWN_LEAST = 10, 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, and how the partition stood before and after."""

    move: Move
    before: Partition
    after: Partition


@dataclass(frozen=True, slots=True)
class Schedule:
    damage: Damage
    steps: tuple[Step, ...]

    @property
    def faults(self) -> int:
        return sum(step.move.is_fault for step in self.steps)


@dataclass(frozen=True, slots=True)
class Explored:
    """`whole`: every schedule within the bounds was looked at, for the harms that were not found. `states`: how many
    different ones were gone on from."""

    setup: Setup
    faults_max: int
    sought: tuple[Harm, ...]
    found: dict[Harm, Schedule]
    states: int
    whole: bool


def quiet(setup: Setup, state: Partition) -> Iterator[tuple[Move, Partition]]:
    """All that can happen without a fault, in an order that is always the same."""
    return chain(sends(setup, state, faults=False), waits(state), replication(setup, state), reads(setup, state))


def explore(
    setup: Setup, *, faults_max: int, sought: tuple[Harm, ...] = tuple(Harm), states_max: int = STATES_MAX
) -> Explored:
    """Looks until each harm sought is found, all is seen, or `states_max` states are; also no further once ten times as
    many are known, most of which wait: they are what fills memory."""
    first = begin(setup)
    queue: list[tuple[int, int, int, Partition]] = [(0, 0, 0, first)]
    came: dict[int, tuple[int, Move, Partition]] = {}
    waiting: dict[Partition, tuple[int, int]] = {first: (0, 0)}
    seen: set[Any] = set()
    found: dict[Harm, Schedule] = {}
    number = 0
    only_losses, known_max = set(sought) == {Harm.LOST}, max(KNOWN_OF_EACH * states_max, KNOWN_LEAST)
    while queue and len(found) < len(sought) and len(seen) < states_max and len(waiting) < known_max:
        spent, steps, at, state = heappop(queue)
        key = merged(setup, state)
        if key in seen:
            continue
        seen.add(key)
        for damage in damages(state):
            if damage.harm in sought and damage.harm not in found:
                found[damage.harm] = Schedule(damage, _way(came, at, state))
        after = chain(quiet(setup, state), faults(setup, state) if spent < faults_max else ())
        for move, then in after:
            cost = (spent + move.is_fault, steps + 1)
            known = waiting.get(then)
            if known is not None and known <= cost:
                continue
            waiting[then] = cost
            if only_losses and cost[0] == faults_max and stays_whole(then) and not any(damages(then)):
                continue
            number += 1
            came[number] = (at, move, state)
            heappush(queue, (*cost, number, then))
    return Explored(setup, faults_max, sought, found, len(seen), not queue)


def _way(came: dict[int, tuple[int, Move, Partition]], at: int, state: Partition) -> tuple[Step, ...]:
    steps: list[Step] = []
    while at:
        at, move, before = came[at]
        steps.append(Step(move, before, state))
        state = before
    return tuple(reversed(steps))


def merged(setup: Setup, state: Partition) -> Any:
    """The same for states from which the same harm follows by the same moves: they differ in what nothing that follows
    depends on. Brokers' numbers are names. Of epochs only their order counts, and of the epoch that a producer knows
    only which leaders it shuts out. Where a follower's log ends is of use to a leader only above its own high
    watermark."""
    leader = state.leader
    high = state.replicas[leader - 1].high if leader else 0
    leading = [one.epoch for broker, one in enumerate(state.replicas, 1) if one.leads or broker == leader]
    epochs = {entry.epoch for one in state.replicas for entry in one.log}
    rank = {epoch: at for at, epoch in enumerate(sorted({*epochs, *leading}))}
    by_epoch = setup.truncation is Truncation.EPOCH
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


def stays_whole(state: Partition) -> bool:
    """Without a further fault no record can be lost from here on: who leads is reached and stays the leader, a leader's
    log only grows, and nobody else takes himself for it and acknowledges. Of readers it says nothing."""
    if state.reader is not None or state.led is None or not state.led.reachable:
        return False
    return not any(one.leads for broker, one in enumerate(state.replicas, 1) if broker != state.leader)


def faults(setup: Setup, state: Partition) -> Moved:
    for broker in state.brokers:
        replica = state.of(broker)
        if not replica.up:
            continue
        if Fault.CRASH in setup.faults:
            yield Move(Deed.CRASH, broker), _down(state, broker, len(replica.log))
        if Fault.POWER in setup.faults and replica.flushed < len(replica.log):
            yield Move(Deed.POWER, broker), _down(state, broker, replica.flushed)
        alone = len(state.replicas) == 1
        if Fault.CUT in setup.faults and not replica.cut and not alone:
            yield (
                Move(Deed.CUT, broker),
                state.with_replica(broker, replica._replace(cut=True, view=_view(state, broker))),
            )
        if Fault.SLOW in setup.faults and not replica.slow and not replica.cut and not alone:
            yield Move(Deed.SLOW, broker), state.with_replica(broker, replica._replace(slow=True))
    if Fault.ANSWER in setup.faults:
        yield from sends(setup, state, faults=True)
    yield from _of_reading(setup, state)


def _of_reading(setup: Setup, state: Partition) -> Moved:
    reader, leader = state.reader, state.led
    if reader is None:
        return
    if Fault.READER in setup.faults:
        yield Move(Deed.READER), state._replace(reader=reader._replace(place=reader.committed, hand=0))
    if setup.reset is Reset.NONE:
        return
    # Where the application keeps its place itself, brokers have none to forget.
    if Fault.REST in setup.faults and reader.committed != NOWHERE and setup.commit is not Commit.TOGETHER:
        gone = reader._replace(place=NOWHERE, committed=NOWHERE, hand=0)
        yield Move(Deed.REST), state._replace(reader=gone)
    if Fault.RETENTION in setup.faults and leader is not None and state.first < leader.high:
        yield Move(Deed.DELETE, 0, leader.log[state.first].record), state._replace(first=state.first + 1)


def _view(state: Partition, broker: int) -> int:
    return len(state.in_sync) if state.leader == broker else 0


def _down(state: Partition, broker: int, end: int) -> Partition:
    replica = state.of(broker)
    refused = replica.waiting
    down = replica.cut_to(end)._replace(up=False, cut=False, slow=False, leads=False, view=0, waiting=())
    return state.with_replica(broker, down).answered(refused, Sent.REFUSED)
