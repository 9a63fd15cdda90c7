"""The smallest schedules that do harm, and that there is none where Kafka promises so."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from twinshore.advisor.core.simulator.model import (
    Anomaly,
    AutoOffsetReset,
    CommitMode,
    FaultKind,
    FlushMode,
    ModelAction,
    ModelConfig,
    ProducerAcks,
    TruncationMode,
    build_initial_state,
)
from twinshore.advisor.core.simulator.search import Exploration, Schedule, explore

ONE = ModelConfig(records=1)
CP = ModelConfig(records=1, min_insync=2)


def lost(setup: ModelConfig, faults: int = 2) -> Exploration:
    return explore(setup, faults_max=faults, sought=(Anomaly.LOST,))


def loss_of(setup: ModelConfig, faults: int = 2) -> Schedule:
    return lost(setup, faults).found[Anomaly.LOST]


def deeds(schedule: Schedule) -> list[ModelAction]:
    return [step.move.deed for step in schedule.steps if step.move.is_fault]


def test_all_acks_with_one_in_sync_need_two_faults_to_lose() -> None:
    schedule = loss_of(ONE)
    assert deeds(schedule) == [ModelAction.SLOW, ModelAction.POWER]
    assert schedule.damage.record == 1
    none = lost(ONE, 1)
    assert (none.found, none.whole) == ({}, True)


def test_two_in_sync_and_eligible_replicas_lose_nothing_by_two_faults() -> None:
    found = explore(replace(CP, elr=True), faults_max=2)
    assert (found.found, found.whole) == ({}, True)
    assert found.states > 1000


def test_two_in_sync_lose_nothing_while_disks_keep_what_was_written() -> None:
    for setup in (replace(CP, flush=FlushMode.EACH), replace(CP, faults=frozenset(FaultKind) - {FaultKind.POWER})):
        found = lost(setup)
        assert (found.found, found.whole) == ({}, True)


def test_without_eligible_replicas_who_was_last_in_sync_leads_whatever_became_of_its_log() -> None:
    """What KIP-966 mends: the others have the record and may not lead."""
    schedule = loss_of(CP)
    assert deeds(schedule) == [ModelAction.SLOW, ModelAction.POWER]
    end = schedule.steps[-1].after
    assert [one.holds(1) for one in end.replicas].count(True) == 2


def test_the_high_watermark_alone_loses_by_two_crashes_and_leader_epochs_do_not() -> None:
    setup = replace(CP, faults=frozenset({FaultKind.CRASH}), truncation=TruncationMode.HIGH_WATERMARK)
    schedule = loss_of(setup)
    assert deeds(schedule) == [ModelAction.CRASH, ModelAction.CRASH]
    assert any(step.move.deed is ModelAction.LET_OFFSETS_FOLLOW for step in schedule.steps)
    assert lost(replace(setup, truncation=TruncationMode.EPOCH)).found == {}


@pytest.mark.parametrize(
    ("acks", "fault"), [(ProducerAcks.LEADER, ModelAction.CRASH), (ProducerAcks.NONE, ModelAction.UNANSWERED)]
)
def test_weaker_acks_lose_by_one_fault(acks: ProducerAcks, fault: ModelAction) -> None:
    schedule = loss_of(ModelConfig(records=1, acks=acks, min_insync=2, idempotent=False), 1)
    assert deeds(schedule) == [fault]


def test_unclean_election_loses_though_everything_is_flushed() -> None:
    setup = ModelConfig(records=1, unclean=True, flush=FlushMode.EACH)
    assert deeds(loss_of(setup)) == [ModelAction.SLOW, ModelAction.CRASH]
    assert lost(replace(setup, unclean=False)).found == {}


def test_a_producer_doubles_and_reorders_only_without_idempotence() -> None:
    setup = ModelConfig(replicas=2, min_insync=2, idempotent=False)
    sought = (Anomaly.TWICE, Anomaly.REORDERED)
    found = explore(setup, faults_max=1, sought=sought)
    assert set(found.found) == set(sought)
    assert explore(replace(setup, idempotent=True), faults_max=1, sought=sought).found == {}
    waiting = explore(replace(setup, in_flight=False), faults_max=1, sought=(Anomaly.REORDERED,))
    assert (waiting.found, waiting.whole) == ({}, True)


@pytest.mark.parametrize(
    ("commit", "harms"),
    [
        (CommitMode.AUTO, {Anomaly.LOST, Anomaly.TWICE}),
        (CommitMode.BEFORE, {Anomaly.LOST}),
        (CommitMode.AFTER, {Anomaly.TWICE}),
    ],
)
def test_what_one_dead_consumer_does(commit: CommitMode, harms: set[Anomaly]) -> None:
    setup = ModelConfig(replicas=1, commit=commit, faults=frozenset({FaultKind.READER}))
    assert set(explore(setup, faults_max=1).found) == harms


@pytest.mark.parametrize(
    ("commit", "reset", "harms"),
    [
        (
            CommitMode.AFTER,
            AutoOffsetReset.LATEST,
            {Anomaly.LOST: ModelAction.DELETE, Anomaly.TWICE: ModelAction.READER},
        ),
        (
            CommitMode.AFTER,
            AutoOffsetReset.EARLIEST,
            {Anomaly.LOST: ModelAction.DELETE, Anomaly.TWICE: ModelAction.READER},
        ),
        (CommitMode.WITH_RESULTS, AutoOffsetReset.LATEST, {Anomaly.LOST: ModelAction.DELETE}),
        (CommitMode.WITH_RESULTS, AutoOffsetReset.NONE, {}),
    ],
)
def test_what_a_place_that_is_gone_does(
    commit: CommitMode, reset: AutoOffsetReset, harms: dict[Anomaly, ModelAction]
) -> None:
    kinds = frozenset({FaultKind.READER, FaultKind.REST, FaultKind.RETENTION})
    found = explore(ModelConfig(replicas=1, commit=commit, reset=reset, faults=kinds), faults_max=1)
    assert {harm: deeds(schedule)[0] for harm, schedule in found.found.items()} == harms
    assert explore(ModelConfig(replicas=1, commit=commit, reset=reset), faults_max=0).found == {}


@pytest.mark.parametrize("fault", [FaultKind.READER, FaultKind.REST])
def test_latest_skips_and_earliest_does_not(fault: FaultKind) -> None:
    setup = ModelConfig(replicas=1, commit=CommitMode.AFTER, reset=AutoOffsetReset.LATEST, faults=frozenset({fault}))
    assert Anomaly.LOST in explore(setup, faults_max=1).found
    assert set(explore(replace(setup, reset=AutoOffsetReset.EARLIEST), faults_max=1).found) == {Anomaly.TWICE}


def test_a_place_is_forgotten_only_where_brokers_keep_it() -> None:
    rests = ModelConfig(replicas=1, reset=AutoOffsetReset.EARLIEST, faults=frozenset({FaultKind.REST}))
    assert set(explore(replace(rests, commit=CommitMode.AFTER), faults_max=1).found) == {Anomaly.TWICE}
    assert explore(replace(rests, commit=CommitMode.WITH_RESULTS), faults_max=1).found == {}


def test_a_schedule_is_a_chain_of_steps_and_the_same_each_time() -> None:
    schedule = loss_of(ONE)
    assert schedule.steps[0].before == build_initial_state(ONE)
    assert all(one.after == two.before for one, two in pairwise(schedule.steps))
    assert loss_of(ONE) == schedule


def test_a_search_that_was_not_whole_says_so() -> None:
    found = explore(CP, faults_max=2, states_max=50)
    assert (found.found, found.states, found.whole) == ({}, 50, False)


def test_what_it_knows_of_and_has_not_looked_at_is_bounded_too() -> None:
    """From one state of five replicas many others follow, and each is kept."""
    wide = ModelConfig(replicas=5, records=4, min_insync=3)
    found = explore(wide, faults_max=4, sought=(Anomaly.LOST,), states_max=1_000)
    assert (found.found, found.whole) == ({}, False)
    assert found.states < 1_000, "it ended by what waits"


@pytest.mark.parametrize("commit", CommitMode)
def test_without_a_fault_nothing_is_harmed_whatever_is_set(commit: CommitMode) -> None:
    for acks, elr, unclean, truncation in product(ProducerAcks, (False, True), (False, True), TruncationMode):
        idempotent = acks is ProducerAcks.ALL
        setup = ModelConfig(
            2, 2, acks, 2, unclean, truncation=truncation, elr=elr, idempotent=idempotent, commit=commit
        )
        found = explore(setup, faults_max=0)
        assert (found.found, found.whole) == ({}, True), setup
