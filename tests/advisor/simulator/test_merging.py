"""A search that takes states for one finds what one does that knows nothing of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import chain, product

import pytest

from twinshore.advisor.core.simulator.model import (
    Anomaly,
    FaultKind,
    FlushMode,
    ModelAction,
    ModelConfig,
    ModelPartition,
    ProducerAcks,
    TruncationMode,
    build_initial_state,
    find_anomalies,
)
from twinshore.advisor.core.simulator.search import (
    canonicalize_state,
    explore,
    fault_transitions,
    faultless_transitions,
    is_safe_without_faults,
)

ONE = ModelConfig(records=1)


def fewest(setup: ModelConfig, most: int) -> int | None:
    """By looking at every state as it is: the least number of faults that loses a record."""
    now = {build_initial_state(setup)}
    for spent in range(most + 1):
        seen, queue, after = set(now), deque(now), set()
        while queue:
            state = queue.popleft()
            if any(damage.harm is Anomaly.LOST for damage in find_anomalies(state)):
                return spent
            for _, then in faultless_transitions(setup, state):
                if then not in seen:
                    seen.add(then)
                    queue.append(then)
            after |= {then for _, then in fault_transitions(setup, state)}
        now = after - seen
    return None


SMALL = [
    ModelConfig(2, 1, acks, 2, unclean, flush, truncation, elr, idempotent=acks is ProducerAcks.ALL)
    for acks, unclean, flush, truncation, elr in product(
        ProducerAcks, (False, True), FlushMode, TruncationMode, (False, True)
    )
    if not (elr and truncation is TruncationMode.HIGH_WATERMARK)
]


def test_the_verdict_is_that_of_looking_at_every_state() -> None:
    verdicts = set()
    for setup in [*SMALL, replace(SMALL[0], records=2), replace(ONE, min_insync=2, elr=True)]:
        most = 2 if setup.replicas == 2 and setup.records == 1 else 1
        found = explore(setup, faults_max=most, sought=(Anomaly.LOST,)).found.get(Anomaly.LOST)
        verdicts.add(found.faults if found else None)
        assert (found.faults if found else None) == fewest(setup, most), setup
    assert verdicts == {None, 1, 2}, "cases of each kind"


def states(setup: ModelConfig, limit: int) -> list[ModelPartition]:
    """Some that can be reached, in the order in which they are."""
    seen, queue = {build_initial_state(setup)}, deque([build_initial_state(setup)])
    found: list[ModelPartition] = []
    while queue and len(found) < limit:
        state = queue.popleft()
        found.append(state)
        for _, then in chain(faultless_transitions(setup, state), fault_transitions(setup, state)):
            if then not in seen:
                seen.add(then)
                queue.append(then)
    return found


def test_where_it_stays_whole_nothing_is_lost_without_a_fault() -> None:
    setup = ModelConfig(2, 2, ProducerAcks.LEADER, unclean=True, idempotent=False)
    safe = 0
    for state in states(setup, 3000):
        if not is_safe_without_faults(state) or any(find_anomalies(state)):
            continue
        safe += 1
        for _, then in faultless_transitions(setup, state):
            assert is_safe_without_faults(then)
            assert not any(damage.harm is Anomaly.LOST for damage in find_anomalies(then))
    assert safe > 100


def test_what_may_still_acknowledge_beside_the_leader_is_not_whole() -> None:
    setup = ModelConfig(records=1, acks=ProducerAcks.LEADER, idempotent=False)
    state = build_initial_state(setup)
    assert is_safe_without_faults(state)
    for move in (ModelAction.CUT, ModelAction.NOTICE):
        options = chain(faultless_transitions(setup, state), fault_transitions(setup, state))
        state = next(then for one, then in options if one.deed is move and one.broker == 1)
    assert not is_safe_without_faults(state), "the old leader takes itself for one"


def test_states_that_differ_only_in_brokers_numbers_are_one() -> None:
    state = build_initial_state(ONE)
    slow = state.of(2)._replace(slow=True)
    assert canonicalize_state(ONE, state.with_replica(2, slow)) == canonicalize_state(ONE, state.with_replica(3, slow))
    leader = state.with_replica(1, state.of(1)._replace(slow=True))
    assert canonicalize_state(ONE, state.with_replica(2, slow)) != canonicalize_state(ONE, leader)


@pytest.mark.parametrize("truncation", TruncationMode)
def test_of_epochs_the_order_counts(truncation: TruncationMode) -> None:
    setup = ModelConfig(records=1, truncation=truncation, faults=frozenset({FaultKind.CRASH}))
    state = build_initial_state(setup)
    renamed = tuple(one._replace(epoch=4) for one in state.replicas)
    later = state._replace(replicas=renamed, epoch=4, seen=2)
    assert canonicalize_state(setup, later) == canonicalize_state(setup, state._replace(seen=0))
    assert canonicalize_state(setup, later) != canonicalize_state(setup, later._replace(seen=5)), (
        "that leader is shut out"
    )
