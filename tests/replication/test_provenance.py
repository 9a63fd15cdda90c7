"""What a topic's descent says about carrying it on, and what stands in the journal of twins."""

from __future__ import annotations

import pytest

from twinshore.config.model import Link, Naming
from twinshore.replication.core.lineage import ORIGINAL, Descent, Hop, descent_of, why_it_stays

EAST, WEST, NORTH = Hop("id-e", "east"), Hop("id-w", "west"), Hop("id-n", "north")
FROM_EAST = Descent("aa", (EAST,))
AROUND = FROM_EAST.onward(WEST, "bb")
WEST_NORTH = Link("west", "north", naming=Naming.PREFIX)
WEST_NORTH_ON = Link("west", "north", naming=Naming.PREFIX, chain=True)


@pytest.mark.parametrize(
    ("link", "topic", "descent", "target", "words"),
    [
        (WEST_NORTH, "orders", ORIGINAL, "id-n", ""),
        (WEST_NORTH, "east.orders", FROM_EAST, "id-n", "is a twin itself, from east; with chain = true"),
        (WEST_NORTH_ON, "east.orders", FROM_EAST, "id-n", ""),
        (WEST_NORTH_ON, "north.orders", Descent("aa", (NORTH,)), "id-n", "came by north and does not go back to north"),
        (WEST_NORTH_ON, "odd", Descent("aa", (NORTH, EAST)), "id-n", "came by north -> east and does not go back"),
        (WEST_NORTH_ON, "north.orders", ORIGINAL, "id-n", ""),
        (WEST_NORTH_ON, "north.twinshore.heartbeats", ORIGINAL, "id-n", "came from north and does not go back"),
        (WEST_NORTH_ON, "east.twinshore.heartbeats", FROM_EAST, "id-n", ""),
        (WEST_NORTH, "twinshore.heartbeats", ORIGINAL, "id-n", ""),
    ],
)
def test_a_topic_goes_on_only_where_it_has_not_been(
    link: Link, topic: str, descent: Descent, target: str, words: str
) -> None:
    said = why_it_stays(link, topic, descent, target)
    assert words in said
    assert bool(said) == bool(words)


def test_what_was_told_of_another_topic_of_that_name_does_not_count() -> None:
    told = {"east.orders": FROM_EAST, "announced": Descent("", (EAST,))}
    assert descent_of("east.orders", "aa", told) == FROM_EAST
    assert descent_of("east.orders", "cc", told) == ORIGINAL, "the twin was deleted; somebody made a topic"
    assert descent_of("announced", "any", told).path == (EAST,), "it may be made at this moment"
    assert descent_of("orders", "aa", told) == ORIGINAL


def test_a_line_of_the_journal_reads_as_it_was_written() -> None:
    assert Descent.from_json(AROUND.to_json("west->north")) == AROUND
    for text in (b"", b"{}", b"[]", b'{"topic_id": "a", "path": [1]}', b"\xff", b"[" * 60_000, b" " * 99_999):
        assert Descent.from_json(text) is None
