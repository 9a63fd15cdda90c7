"""A search that takes states for one finds what one does that knows nothing of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain, product

import pytest

from twinshore.advisor.core.simulator.model import (
    Acks,
    Deed,
    Fault,
    Flush,
    Harm,
    Partition,
    Setup,
    Truncation,
    begin,
    damages,
)
from twinshore.advisor.core.simulator.search import explore, faults, merged, quiet, stays_whole

ONE = Setup(records=1)


def fewest(setup: Setup, most: int) -> int | None:
    """By looking at every state as it is: the least number of faults that loses a record."""
    now = {begin(setup)}
    for spent in range(most + 1):
        seen, queue, after = set(now), deque(now), set()
        while queue:
            state = queue.popleft()
            if any(damage.harm is Harm.LOST for damage in damages(state)):
                return spent
            for _, then in quiet(setup, state):
                if then not in seen:
                    seen.add(then)
                    queue.append(then)
            after |= {then for _, then in faults(setup, state)}
        now = after - seen
    return None


SMALL = [
    Setup(2, 1, acks, 2, unclean, flush, truncation, elr, idempotent=acks is Acks.ALL)
    for acks, unclean, flush, truncation, elr in product(Acks, (False, True), Flush, Truncation, (False, True))
    if not (elr and truncation is Truncation.HIGH_WATERMARK)
]


def test_the_verdict_is_that_of_looking_at_every_state() -> None:
    verdicts = set()
    for setup in [*SMALL, replace(SMALL[0], records=2), replace(ONE, min_insync=2, elr=True)]:
        most = 2 if setup.replicas == 2 and setup.records == 1 else 1
        found = explore(setup, faults_max=most, sought=(Harm.LOST,)).found.get(Harm.LOST)
        verdicts.add(found.faults if found else None)
        assert (found.faults if found else None) == fewest(setup, most), setup
    assert verdicts == {None, 1, 2}, "cases of each kind"


def states(setup: Setup, limit: int) -> list[Partition]:
    """Some that can be reached, in the order in which they are."""
    seen, queue = {begin(setup)}, deque([begin(setup)])
    found: list[Partition] = []
    while queue and len(found) < limit:
        state = queue.popleft()
        found.append(state)
        for _, then in chain(quiet(setup, state), faults(setup, state)):
            if then not in seen:
                seen.add(then)
                queue.append(then)
    return found


def test_where_it_stays_whole_nothing_is_lost_without_a_fault() -> None:
    setup = Setup(2, 2, Acks.LEADER, unclean=True, idempotent=False)
    safe = 0
    for state in states(setup, 3000):
        if not stays_whole(state) or any(damages(state)):
            continue
        safe += 1
        for _, then in quiet(setup, state):
            assert stays_whole(then)
            assert not any(damage.harm is Harm.LOST for damage in damages(then))
    assert safe > 100


def test_what_may_still_acknowledge_beside_the_leader_is_not_whole() -> None:
    setup = Setup(records=1, acks=Acks.LEADER, idempotent=False)
    state = begin(setup)
    assert stays_whole(state)
    for move in (Deed.CUT, Deed.NOTICE):
        options = chain(quiet(setup, state), faults(setup, state))
        state = next(then for one, then in options if one.deed is move and one.broker == 1)
    assert not stays_whole(state), "the old leader takes itself for one"


def test_states_that_differ_only_in_brokers_numbers_are_one() -> None:
    state = begin(ONE)
    slow = state.of(2)._replace(slow=True)
    assert merged(ONE, state.with_replica(2, slow)) == merged(ONE, state.with_replica(3, slow))
    leader = state.with_replica(1, state.of(1)._replace(slow=True))
    assert merged(ONE, state.with_replica(2, slow)) != merged(ONE, leader)


@pytest.mark.parametrize("truncation", Truncation)
def test_of_epochs_the_order_counts(truncation: Truncation) -> None:
    setup = Setup(records=1, truncation=truncation, faults=frozenset({Fault.CRASH}))
    state = begin(setup)
    renamed = tuple(one._replace(epoch=4) for one in state.replicas)
    later = state._replace(replicas=renamed, epoch=4, seen=2)
    assert merged(setup, later) == merged(setup, state._replace(seen=0))
    assert merged(setup, later) != merged(setup, later._replace(seen=5)), "that leader is shut out"
