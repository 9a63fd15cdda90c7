"""From needs to settings: whatever is needed, the settings agree with each other, and what cannot be had is named."""

from __future__ import annotations

import itertools

import pytest

from twinshore.advisor.core.model import Kind, Known, Partition, Topic, majority, profile_of
from twinshore.advisor.core.settings import DECISIONS, Availability, Duplicates, Latency, Loss, Needs, Order, choose
from twinshore.advisor.operations.settings import chosen, sentences_of, topic_command, values_of
from twinshore.config.errors import ConfigError

EVERY = [
    Needs(*words, replicas=replicas)
    for words in itertools.product(Loss, Order, Duplicates, Latency, Availability)
    for replicas in range(1, 6)
]
NAMES = {"loss": "none", "order": "key", "duplicates": "few", "latency": "normal", "availability": "one"}


def test_settings_agree_with_each_other_whatever_is_needed() -> None:
    for needs in EVERY:
        choice = choose(needs)
        value = choice.value
        names = [(one.side, one.name) for one in choice.settings]
        assert len(set(names)) == len(names)
        if value("enable.idempotence") == "true":
            assert (value("acks"), value("max.in.flight.requests.per.connection")) == ("all", "5"), needs
            assert value("retries") != "0"
        if value("transactional.id"):
            assert (value("enable.idempotence"), value("isolation.level")) == ("true", "read_committed"), needs
            assert value("results and places") == "in one transaction"


def test_each_need_is_met_unless_a_contradiction_says_otherwise() -> None:
    for needs in EVERY:
        value = choose(needs).value
        if needs.loss is Loss.NONE:
            assert (value("acks"), value("unclean.leader.election.enable")) == ("all", "false"), needs
            assert value("min.insync.replicas") == str(majority(needs.replicas))
            assert value("enable.auto.commit") == "false"
        if needs.order is Order.KEY:
            in_order = value("enable.idempotence") == "true" or value("retries") == "0"
            assert in_order or value("max.in.flight.requests.per.connection") == "1", needs
        if needs.duplicates is Duplicates.NONE:
            assert value("enable.idempotence") == "true" or value("retries") == "0", needs
        survives = int(value("min.insync.replicas") or 0) < needs.replicas
        if needs.availability is not Availability.NONE and not survives:
            assert choose(needs).against, needs


def test_each_row_of_the_table_is_somebodys() -> None:
    used = {(one.name, one.value, one.why) for needs in EVERY for one in choose(needs).settings}
    for row in DECISIONS:
        assert any(name == row.name and why == row.why for name, _, why in used), row.name


@pytest.mark.parametrize(
    ("needs", "kind"),
    [
        (Needs(), Kind.CP),
        (Needs(replicas=5), Kind.CP),
        (Needs(Loss.FEW, availability=Availability.LAST), Kind.AP),
        (Needs(Loss.ANY, availability=Availability.LAST), Kind.NEITHER),
    ],
)
def test_the_audit_calls_such_a_topic_what_was_meant(needs: Needs, kind: Kind) -> None:
    nodes = tuple(range(1, needs.replicas + 1))
    known = {one.name: Known(one.value, own=True) for one in choose(needs).settings}
    assert profile_of(Topic("orders", (Partition(0, 1, nodes, nodes),), known)).kind is kind


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        (Needs(replicas=1), "one replica: a lost disk"),
        (Needs(replicas=2), "with one left nothing may be acknowledged"),
        (Needs(availability=Availability.LAST), "writing with one replica left"),
        (Needs(Loss.FEW, replicas=1), "its partitions have no other"),
        (Needs(Loss.ANY, availability=Availability.LAST), "records cut from the log"),
    ],
)
def test_what_cannot_be_had_together_is_named(needs: Needs, word: str) -> None:
    assert any(word in says for says in choose(needs).against)


def test_what_can_be_had_has_no_contradiction() -> None:
    assert choose(Needs()).against == ()
    assert choose(Needs(duplicates=Duplicates.NONE)).against == ()
    assert choose(Needs(replicas=2, availability=Availability.NONE)).against == ()
    assert any("slowest follower" in says for says in choose(Needs(latency=Latency.LOW)).prices)


def test_it_is_told_as_files_of_settings() -> None:
    choice = chosen(**NAMES, replicas=3)
    lines = list(sentences_of(choice))
    assert "# acknowledged means that all replicas in sync have it" in lines
    assert {"acks=all", "min.insync.replicas=2", "enable.auto.commit=false"} <= set(lines)
    assert not [line for line in lines if not line.startswith("#") and "=" not in line]
    assert topic_command(choice).endswith(
        "--replication-factor 3 --config min.insync.replicas=2 --config unclean.leader.election.enable=false"
    )
    values = values_of(choice)
    assert values["needs"]["loss"] == "none" and values["settings"][0]["name"] == "acks"
    refused = list(sentences_of(chosen(**{**NAMES, "availability": "last"}, replicas=3)))
    assert refused[0].startswith("# CONTRADICTION: no loss, and writing with one replica left")


def test_a_need_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="--loss is 'non'; did you mean none"):
        chosen(**{**NAMES, "loss": "non"}, replicas=3)
    with pytest.raises(ConfigError, match="--replicas is 0"):
        chosen(**NAMES, replicas=0)
