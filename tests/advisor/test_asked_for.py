"""What `advise settings` gives is no fault for `build_advice`: both rooms mean the same promises."""

from __future__ import annotations

import itertools

from tests.advisor.seen_kit import having, part, topic
from twinshore.advisor.core.advice_report import build_advice
from twinshore.advisor.core.model import AdvisorPolicy, Severity
from twinshore.advisor.core.settings_advice import (
    ApplicationNeeds,
    AvailabilityNeed,
    DuplicateTolerance,
    LatencyNeed,
    LossTolerance,
    OrderingNeed,
    SettingOwner,
    choose_settings,
)
from twinshore.advisor.operations.advice_on_cluster import RULES

EVERY = [
    ApplicationNeeds(*words, replicas=replicas)
    for words in itertools.product(LossTolerance, OrderingNeed, DuplicateTolerance, LatencyNeed, AvailabilityNeed)
    for replicas in range(1, 6)
]


def test_the_advisor_takes_what_was_asked_for_as_asked_for() -> None:
    """Nothing on a topic with these settings is grave or a warning, and no `--fix` sets another value. Where losses do
    not matter, unclean elections are asked for, and warned of all the same."""
    for needs in EVERY:
        settings = {one.name: one.value for one in choose_settings(needs).settings if one.side is SettingOwner.TOPIC}
        del settings["replication.factor"]
        seen = having(topic("orders", part(0, *range(1, needs.replicas + 1)), also=settings))
        # How many replicas there can be is what a policy says.
        policy = AdvisorPolicy(limits={("", "copies"): min(3, needs.replicas)})
        for one in build_advice(seen, policy, RULES).findings:
            warned = needs.loss is LossTolerance.ANY and one.story == "unclean" and one.severity is Severity.WARNING
            assert one.safe is None and (warned or one.severity is Severity.NOTE), (needs, one)
