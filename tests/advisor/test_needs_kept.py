"""Whatever is needed: under the settings that are given for it, the model of a partition keeps the need."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossTolerance,
    OrderingNeed,
    SettingsChoice,
    choose_settings,
)
from twinshore.advisor.core.simulator.model import (
    Anomaly,
    AutoOffsetReset,
    CommitMode,
    FaultKind,
    ModelConfig,
    ProducerAcks,
)
from twinshore.advisor.core.simulator.search import explore
from twinshore.kafka.brokers import ELIGIBLE_REPLICAS_FEATURE

# How far back a reader finds records is retention's, as the reason beside auto.offset.reset says.
KINDS = frozenset(FaultKind) - {FaultKind.RETENTION}
OF_READERS = frozenset({FaultKind.READER, FaultKind.REST})
THROUGH = {"through one fault": 1, "through two faults": 2}
COMMITS = {"before a record is handled": CommitMode.BEFORE, "after a record is handled": CommitMode.AFTER}
CHOICES = [
    choose_settings(ApplicationNeeds(*words, replicas=replicas))
    for words in itertools.product(LossTolerance, OrderingNeed, DuplicateTolerance, LatencyNeed, AvailabilityNeed)
    for replicas in (1, 2, 3)
]


def commit_of(choice: SettingsChoice) -> CommitMode:
    if choice.value("results and offsets") == "in one transaction":
        assert choice.value("commit") is None, "one way to keep a place, not two"
        return CommitMode.WITH_RESULTS
    if choice.value("enable.auto.commit") == "true":
        return CommitMode.AUTO
    return COMMITS[str(choice.value("commit"))]


def setup_of(choice: SettingsChoice, records: int) -> ModelConfig:
    """The settings as the model takes them."""
    value = choice.value
    return ModelConfig(
        choice.needs.replicas,
        records,
        ProducerAcks(str(value("acks"))),
        int(str(value("min.insync.replicas"))),
        value("unclean.leader.election.enable") == "true",
        elr=value(ELIGIBLE_REPLICAS_FEATURE) == "1",
        idempotent=value("enable.idempotence") == "true",
        retries=value("retries") != "0" and value("acks") != "0",
        in_flight=value("max.in.flight.requests.per.connection") != "1",
        commit=commit_of(choice),
        reset=AutoOffsetReset(str(value("auto.offset.reset"))),
    )


def faults_named(choice: SettingsChoice) -> int:
    """Through how many faults records are kept, by the answer's own words."""
    (named,) = [count for words, count in THROUGH.items() if any(words in says for says in choice.prices)]
    return named


def searches() -> dict[tuple[ModelConfig, Anomaly, int], ApplicationNeeds]:
    """What must not be found, each once. Needs that contradict each other are told so, and one of them is not kept."""
    found: dict[tuple[ModelConfig, Anomaly, int], ApplicationNeeds] = {}
    for choice in CHOICES:
        needs = choice.needs
        if choice.against:
            continue
        one, two = replace(setup_of(choice, 1), faults=KINDS), replace(setup_of(choice, 2), faults=KINDS)
        if needs.loss is LossTolerance.NONE:
            found.setdefault((one, Anomaly.LOST, faults_named(choice)), needs)
            found.setdefault((replace(one, elr=False), Anomaly.LOST, 1), needs)
        if needs.loss is LossTolerance.FEW:
            # The last records of a leader that dies are allowed, and none for a reader's own fault.
            found.setdefault((replace(two, faults=OF_READERS), Anomaly.LOST, 2), needs)
        if needs.duplicates is DuplicateTolerance.NONE:
            found.setdefault((one, Anomaly.TWICE, 2), needs)
        if needs.order is OrderingNeed.KEY:
            unread = replace(two, commit=CommitMode.NONE, reset=AutoOffsetReset.NONE)
            found.setdefault((unread, Anomaly.REORDERED, 1), needs)
    return found


@pytest.mark.timeout(120)
def test_no_schedule_within_the_faults_named_breaks_what_was_asked_for() -> None:
    looked = searches()
    assert {harm for _, harm, _ in looked} == set(Anomaly)
    for (setup, harm, faults), needs in looked.items():
        found = explore(setup, faults_max=faults, sought=(harm,))
        assert found.whole and not found.found, (needs, harm, found.found)


def test_one_fault_more_than_is_named_is_told_for_a_reason() -> None:
    for replicas, elr in ((2, True), (3, False)):
        choice = choose_settings(ApplicationNeeds(replicas=replicas, availability=AvailabilityNeed.NONE))
        setup = replace(setup_of(choice, 1), elr=elr, faults=KINDS)
        assert Anomaly.LOST in explore(setup, faults_max=2, sought=(Anomaly.LOST,)).found


def test_more_replicas_keep_them_through_as_many() -> None:
    choice = choose_settings(ApplicationNeeds(replicas=4))
    setup = replace(setup_of(choice, 1), commit=CommitMode.NONE, reset=AutoOffsetReset.NONE)
    found = explore(setup, faults_max=faults_named(choice), sought=(Anomaly.LOST,))
    assert found.whole and not found.found


def test_what_is_handled_once_is_committed_in_one_way() -> None:
    for loss in (LossTolerance.NONE, LossTolerance.FEW):
        value = choose_settings(ApplicationNeeds(loss, duplicates=DuplicateTolerance.NONE)).value
        assert value("results and offsets") == "in one transaction" and value("commit") is None
        assert (value("isolation.level"), value("auto.offset.reset")) == ("read_committed", "none")
        assert value("transactional.id")
    for choice in CHOICES:
        commit_of(choice)
