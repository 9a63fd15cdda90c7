"""Whatever is needed: under the settings that are given for it, the model of a partition keeps the need."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from twinshore.advisor.core.settings import ELR, Availability, Choice, Duplicates, Latency, Loss, Needs, Order, choose
from twinshore.advisor.core.simulator.model import Acks, Commit, Fault, Harm, Reset, Setup
from twinshore.advisor.core.simulator.search import explore

# How far back a reader finds records is retention's, as the reason beside auto.offset.reset says.
KINDS = frozenset(Fault) - {Fault.RETENTION}
OF_READERS = frozenset({Fault.READER, Fault.REST})
THROUGH = {"through one fault": 1, "through two faults": 2}
COMMITS = {"before a record is handled": Commit.BEFORE, "after a record is handled": Commit.AFTER}
CHOICES = [
    choose(Needs(*words, replicas=replicas))
    for words in itertools.product(Loss, Order, Duplicates, Latency, Availability)
    for replicas in (1, 2, 3)
]


def commit_of(choice: Choice) -> Commit:
    if choice.value("results and places") == "in one transaction":
        assert choice.value("commit") is None, "one way to keep a place, not two"
        return Commit.TOGETHER
    if choice.value("enable.auto.commit") == "true":
        return Commit.AUTO
    return COMMITS[str(choice.value("commit"))]


def setup_of(choice: Choice, records: int) -> Setup:
    """The settings as the model takes them."""
    value = choice.value
    return Setup(
        choice.needs.replicas,
        records,
        Acks(str(value("acks"))),
        int(str(value("min.insync.replicas"))),
        value("unclean.leader.election.enable") == "true",
        elr=value(ELR) == "1",
        idempotent=value("enable.idempotence") == "true",
        retries=value("retries") != "0" and value("acks") != "0",
        in_flight=value("max.in.flight.requests.per.connection") != "1",
        commit=commit_of(choice),
        reset=Reset(str(value("auto.offset.reset"))),
    )


def faults_named(choice: Choice) -> int:
    """Through how many faults records are kept, by the answer's own words."""
    (named,) = [count for words, count in THROUGH.items() if any(words in says for says in choice.prices)]
    return named


def searches() -> dict[tuple[Setup, Harm, int], Needs]:
    """What must not be found, each once. Needs that contradict each other are told so, and one of them is not kept."""
    found: dict[tuple[Setup, Harm, int], Needs] = {}
    for choice in CHOICES:
        needs = choice.needs
        if choice.against:
            continue
        one, two = replace(setup_of(choice, 1), faults=KINDS), replace(setup_of(choice, 2), faults=KINDS)
        if needs.loss is Loss.NONE:
            found.setdefault((one, Harm.LOST, faults_named(choice)), needs)
            found.setdefault((replace(one, elr=False), Harm.LOST, 1), needs)
        if needs.loss is Loss.FEW:
            # The last records of a leader that dies are allowed, and none for a reader's own fault.
            found.setdefault((replace(two, faults=OF_READERS), Harm.LOST, 2), needs)
        if needs.duplicates is Duplicates.NONE:
            found.setdefault((one, Harm.TWICE, 2), needs)
        if needs.order is Order.KEY:
            unread = replace(two, commit=Commit.NONE, reset=Reset.NONE)
            found.setdefault((unread, Harm.REORDERED, 1), needs)
    return found


@pytest.mark.timeout(120)
def test_no_schedule_within_the_faults_named_breaks_what_was_asked_for() -> None:
    looked = searches()
    assert {harm for _, harm, _ in looked} == set(Harm)
    for (setup, harm, faults), needs in looked.items():
        found = explore(setup, faults_max=faults, sought=(harm,))
        assert found.whole and not found.found, (needs, harm, found.found)


def test_one_fault_more_than_is_named_is_told_for_a_reason() -> None:
    for replicas, elr in ((2, True), (3, False)):
        choice = choose(Needs(replicas=replicas, availability=Availability.NONE))
        setup = replace(setup_of(choice, 1), elr=elr, faults=KINDS)
        assert Harm.LOST in explore(setup, faults_max=2, sought=(Harm.LOST,)).found


def test_more_replicas_keep_them_through_as_many() -> None:
    choice = choose(Needs(replicas=4))
    setup = replace(setup_of(choice, 1), commit=Commit.NONE, reset=Reset.NONE)
    found = explore(setup, faults_max=faults_named(choice), sought=(Harm.LOST,))
    assert found.whole and not found.found


def test_what_is_handled_once_is_committed_in_one_way() -> None:
    for loss in (Loss.NONE, Loss.FEW):
        value = choose(Needs(loss, duplicates=Duplicates.NONE)).value
        assert value("results and places") == "in one transaction" and value("commit") is None
        assert (value("isolation.level"), value("auto.offset.reset")) == ("read_committed", "none")
        assert value("transactional.id")
    for choice in CHOICES:
        commit_of(choice)
