"""The drawing of what runs, from heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.config.model import Link, Naming
from twinshore.replication.core.heartbeat import LastBeat, drawing, path_of, picture

CLUSTERS = ("east", "west", "west.2", "north")


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("twinshore.heartbeats", ("north",)),
        ("east.twinshore.heartbeats", ("east", "north")),
        ("west.east.twinshore.heartbeats", ("east", "west", "north")),
        ("west.2.east.twinshore.heartbeats", ("east", "west.2", "north")),
        ("far.east.twinshore.heartbeats", ("east", "far", "north")),
    ],
)
def test_a_heartbeats_topic_says_by_its_name_which_way_it_came(topic: str, path: tuple[str, ...]) -> None:
    assert path_of(topic, "north", CLUSTERS) == path


def test_links_run_are_silent_unseen_or_not_to_be_asked() -> None:
    links = [Link("east", "west"), Link("west", "north", chain=True), Link("east", "north"), Link("north", "east")]
    beats = [
        LastBeat(("east",), 0.2),
        LastBeat(("east", "west"), 1.0),
        LastBeat(("west", "north"), 60.0),
        LastBeat(("east", "west", "north"), 61.0),
        LastBeat(("far", "west"), 2.0),
    ]
    seen = picture(links, beats, {"east": "nobody answers"})
    assert [(link.link, link.state, link.settings) for link in seen.links] == [
        ("east->west", "runs", True),
        ("west->north", "silent", True),
        ("east->north", "unseen", True),
        ("north->east", "unknown", True),
        ("far->west", "runs", False),
    ]
    assert (seen.links[1].chain, seen.links[0].naming) == (True, Naming.SAME.value)
    assert drawing(seen) == [
        "east",
        "└─ west  1 s ago",
        "   └─ north  61 s ago",
        "far",
        "└─ west  2 s ago",
        "west",
        "└─ north  60 s ago",
    ]
    assert drawing(picture(links, [], {})) == []


def test_branches_stay_apart() -> None:
    beats = [LastBeat(("a", "b"), 0), LastBeat(("a", "c"), 0), LastBeat(("a", "b", "d"), 0)]
    assert drawing(picture([], beats, {})) == ["a", "├─ b  0 s ago", "│  └─ d  0 s ago", "└─ c  0 s ago"]


def test_links_of_a_broadcast_are_named_together() -> None:
    links = [Link("a", "b", broadcast="prices"), Link("a", "c", broadcast="prices"), Link("a", "d")]
    seen = picture(links, [], {})
    assert seen.says_of_broadcasts() == ["broadcast prices: a -> b, c"]
    assert [one["broadcast"] for one in seen.as_values()["links"]] == ["prices", "prices", ""]  # type: ignore[attr-defined]


def test_homes_are_counted_by_pair() -> None:
    homes = (("east<>north", "north", 1), ("east<>west", "east", 2), ("east<>west", "west", 1))
    seen = replace(picture([], [], {}), homes=homes)
    assert seen.says_of_homes() == [
        "east<>north: 1 topic at home on north",
        "east<>west: 2 topics at home on east, 1 topic at home on west",
    ]
    assert seen.as_values()["homes"] == [{"pair": pair, "home": home, "topics": n} for pair, home, n in homes]
