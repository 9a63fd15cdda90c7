"""From needs to settings: whatever is needed, the settings agree with each other, and what cannot be had is named."""

from __future__ import annotations

import itertools

import pytest

from testkit.errors import raises
from twinshore.advisor.core.model import (
    ConfigValue,
    PartitionSnapshot,
    ReliabilityKind,
    TopicSnapshot,
    build_profile,
    compute_majority,
)
from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossTolerance,
    OrderingNeed,
    choose_settings,
    read_advice,
)
from twinshore.advisor.operations.settings_advice import (
    build_topic_command,
    choice_as_values,
    choose_for_needs,
    describe_choice,
)
from twinshore.config.errors import ConfigError

EVERY = [
    ApplicationNeeds(*words, replicas=replicas)
    for words in itertools.product(LossTolerance, OrderingNeed, DuplicateTolerance, LatencyNeed, AvailabilityNeed)
    for replicas in range(1, 6)
]
NAMES = {"loss": "none", "order": "key", "duplicates": "few", "latency": "normal", "availability": "one"}


def test_settings_agree_with_each_other_whatever_is_needed() -> None:
    for needs in EVERY:
        choice = choose_settings(needs)
        value = choice.value
        names = [(one.side, one.name) for one in choice.settings]
        assert len(set(names)) == len(names)
        if value("enable.idempotence") == "true":
            assert (value("acks"), value("max.in.flight.requests.per.connection")) == ("all", "5"), needs
            assert value("retries") != "0"
        if value("transactional.id"):
            assert (value("enable.idempotence"), value("isolation.level")) == ("true", "read_committed"), needs
            assert value("results and offsets") == "in one transaction"


def test_each_need_is_met_unless_a_contradiction_says_otherwise() -> None:
    for needs in EVERY:
        value = choose_settings(needs).value
        if needs.loss is LossTolerance.NONE:
            assert (value("acks"), value("unclean.leader.election.enable")) == ("all", "false"), needs
            assert value("min.insync.replicas") == str(compute_majority(needs.replicas))
            assert value("enable.auto.commit") == "false"
        if needs.order is OrderingNeed.KEY:
            in_order = value("enable.idempotence") == "true" or value("retries") == "0"
            assert in_order or value("max.in.flight.requests.per.connection") == "1", needs
        if needs.duplicates is DuplicateTolerance.NONE:
            assert value("enable.idempotence") == "true" or value("retries") == "0", needs
        survives = int(value("min.insync.replicas") or 0) < needs.replicas
        if needs.availability is not AvailabilityNeed.NONE and not survives:
            assert choose_settings(needs).against, needs


def test_each_row_of_the_table_is_somebodys() -> None:
    used = {(one.name, one.value, one.why) for needs in EVERY for one in choose_settings(needs).settings}
    for row in read_advice()["settings"]:
        assert any((name, why) == (row["name"], row["why"]) for name, _, why in used), row


@pytest.mark.parametrize(
    ("needs", "kind"),
    [
        (ApplicationNeeds(), ReliabilityKind.CP),
        (ApplicationNeeds(replicas=5), ReliabilityKind.CP),
        (ApplicationNeeds(LossTolerance.FEW, availability=AvailabilityNeed.LAST), ReliabilityKind.AP),
        (ApplicationNeeds(LossTolerance.ANY, availability=AvailabilityNeed.LAST), ReliabilityKind.NEITHER),
    ],
)
def test_the_audit_calls_such_a_topic_what_was_meant(needs: ApplicationNeeds, kind: ReliabilityKind) -> None:
    nodes = tuple(range(1, needs.replicas + 1))
    known = {one.name: ConfigValue(one.value, own=True) for one in choose_settings(needs).settings}
    assert build_profile(TopicSnapshot("orders", (PartitionSnapshot(0, 1, nodes, nodes),), known)).kind is kind


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        (ApplicationNeeds(replicas=1), "one replica: a lost disk"),
        (ApplicationNeeds(replicas=2), "with one left nothing may be acknowledged"),
        (ApplicationNeeds(availability=AvailabilityNeed.LAST), "writing with one replica left"),
        (ApplicationNeeds(LossTolerance.FEW, replicas=1), "its partitions have no other"),
        (ApplicationNeeds(LossTolerance.ANY, availability=AvailabilityNeed.LAST), "records cut from the log"),
    ],
)
def test_what_cannot_be_had_together_is_named(needs: ApplicationNeeds, word: str) -> None:
    assert any(word in says for says in choose_settings(needs).against)


def test_what_can_be_had_has_no_contradiction() -> None:
    assert choose_settings(ApplicationNeeds()).against == ()
    assert choose_settings(ApplicationNeeds(duplicates=DuplicateTolerance.NONE)).against == ()
    assert choose_settings(ApplicationNeeds(replicas=2, availability=AvailabilityNeed.NONE)).against == ()
    assert any("slowest follower" in says for says in choose_settings(ApplicationNeeds(latency=LatencyNeed.LOW)).prices)


def test_it_is_told_as_files_of_settings() -> None:
    choice = choose_for_needs(**NAMES, replicas=3)
    lines = list(describe_choice(choice))
    assert {"acks=all", "min.insync.replicas=2", "enable.auto.commit=false"} <= set(lines)
    assert not [line for line in lines if not line.startswith("#") and "=" not in line]
    assert build_topic_command(choice).endswith(
        "--replication-factor 3 --config min.insync.replicas=2 --config unclean.leader.election.enable=false"
    )
    values = choice_as_values(choice)
    assert values["needs"]["loss"] == "none" and values["settings"][0]["name"] == "acks"
    refused = list(describe_choice(choose_for_needs(**{**NAMES, "availability": "last"}, replicas=3)))
    assert refused[0].startswith("# CONTRADICTION: ")


def test_a_need_that_nobody_knows_is_refused() -> None:
    with raises(ConfigError, "config.unknown-choice", option="loss", value="non", near="; did you mean none?"):
        choose_for_needs(**{**NAMES, "loss": "non"}, replicas=3)
    with raises(ConfigError, "advisor.out-of-range", option="replicas", value=0):
        choose_for_needs(**NAMES, replicas=0)
