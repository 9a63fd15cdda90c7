"""What `advise settings` gives is no fault for `advise`: both rooms mean the same promises."""

from __future__ import annotations

import itertools

from tests.advisor.seen_kit import having, part, topic
from twinshore.advisor.core.model import Policy, Weight
from twinshore.advisor.core.report import advise
from twinshore.advisor.core.rules.table import RULES
from twinshore.advisor.core.settings import Availability, Duplicates, Latency, Loss, Needs, Order, Side, choose

EVERY = [
    Needs(*words, replicas=replicas)
    for words in itertools.product(Loss, Order, Duplicates, Latency, Availability)
    for replicas in range(1, 6)
]


def test_the_advisor_takes_what_was_asked_for_as_asked_for() -> None:
    """Nothing on a topic with these settings is grave or a warning, and no `--fix` sets another value. Where losses do
    not matter, unclean elections are asked for, and warned of all the same."""
    for needs in EVERY:
        settings = {one.name: one.value for one in choose(needs).settings if one.side is Side.TOPIC}
        del settings["replication.factor"]
        seen = having(topic("orders", part(0, *range(1, needs.replicas + 1)), also=settings))
        # How many replicas there can be is what a policy says.
        policy = Policy(limits={("", "copies"): min(3, needs.replicas)})
        for one in advise(seen, policy, RULES).findings:
            warned = needs.loss is Loss.ANY and one.story == "unclean" and one.weight is Weight.WARNING
            assert one.safe is None and (warned or one.weight is Weight.NOTE), (needs, one)
