"""What a topic's descent says about carrying it on, and what stands in the journal of twins."""

from __future__ import annotations

import pytest

from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.lineage import NO_LINEAGE, Hop, Lineage, explain_not_replicated, find_lineage

EAST, WEST, NORTH = Hop("id-e", "east"), Hop("id-w", "west"), Hop("id-n", "north")
FROM_EAST = Lineage("aa", (EAST,))
AROUND = FROM_EAST.onward(WEST, "bb")
WEST_NORTH = Link("west", "north", naming=TwinNaming.PREFIX)
WEST_NORTH_ON = Link("west", "north", naming=TwinNaming.PREFIX, chain=True)


@pytest.mark.parametrize(
    ("link", "topic", "descent", "target", "words"),
    [
        (WEST_NORTH, "orders", NO_LINEAGE, "id-n", ""),
        (WEST_NORTH, "east.orders", FROM_EAST, "id-n", "is a twin itself, from east; with chain = true"),
        (WEST_NORTH_ON, "east.orders", FROM_EAST, "id-n", ""),
        (WEST_NORTH_ON, "north.orders", Lineage("aa", (NORTH,)), "id-n", "came by north and does not go back to north"),
        (WEST_NORTH_ON, "odd", Lineage("aa", (NORTH, EAST)), "id-n", "came by north -> east and does not go back"),
        (WEST_NORTH_ON, "north.orders", NO_LINEAGE, "id-n", ""),
        (WEST_NORTH_ON, "north.twinshore.heartbeats", NO_LINEAGE, "id-n", "came from north and does not go back"),
        (WEST_NORTH_ON, "east.twinshore.heartbeats", FROM_EAST, "id-n", ""),
        (WEST_NORTH, "twinshore.heartbeats", NO_LINEAGE, "id-n", ""),
    ],
)
def test_a_topic_goes_on_only_where_it_has_not_been(
    link: Link, topic: str, descent: Lineage, target: str, words: str
) -> None:
    said = explain_not_replicated(link, topic, descent, target)
    assert words in said
    assert bool(said) == bool(words)


def test_what_was_told_of_another_topic_of_that_name_does_not_count() -> None:
    told = {"east.orders": FROM_EAST, "announced": Lineage("", (EAST,))}
    assert find_lineage("east.orders", "aa", told) == FROM_EAST
    assert find_lineage("east.orders", "cc", told) == NO_LINEAGE, "the twin was deleted; somebody made a topic"
    assert find_lineage("announced", "any", told).path == (EAST,), "it may be made at this moment"
    assert find_lineage("orders", "aa", told) == NO_LINEAGE


def test_a_line_of_the_journal_reads_as_it_was_written() -> None:
    assert Lineage.from_json(AROUND.to_json("west->north")) == AROUND
    for text in (b"", b"{}", b"[]", b'{"topic_id": "a", "path": [1]}', b"\xff", b"[" * 60_000, b" " * 99_999):
        assert Lineage.from_json(text) is None
