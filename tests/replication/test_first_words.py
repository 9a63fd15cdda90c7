"""What a mirror says of a source's topics before it carries any: how many, or why none and what to do."""

from __future__ import annotations

import re

import pytest

from twinshore.replication.operations.run_plan import describe_topic_count

OWN = ["twinshore.heartbeats", "twinshore.twins"]


@pytest.mark.parametrize(
    ("admitted", "shown", "said"),
    [
        (["bills", "orders"], ["bills", "orders", "tmp"], "the link's filters admit 2 of its 3 topics"),
        (["orders", "twinshore.heartbeats"], ["orders", *OWN], "the link's filters admit 1 of its 1 topic"),
        ([], ["tmp"], "the link's filters admit none of its 1 topic: `twinshore link list` shows the filters"),
        (
            ["twinshore.heartbeats"],
            OWN,
            "it shows no topic to the mirror's user: .* grant that user the right Describe",
        ),
        ([], [], "a new topic is replicated within seconds"),
    ],
)
def test_where_nothing_is_admitted_it_says_why_and_what_to_do(admitted: list[str], shown: list[str], said: str) -> None:
    assert re.search(said, describe_topic_count(admitted, shown))
