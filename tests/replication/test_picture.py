"""The drawing of what runs, from heartbeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.errors import mentions
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.topology_view import (
    NewestHeartbeat,
    build_topology,
    draw_topology,
    parse_heartbeat_path,
)

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
    assert parse_heartbeat_path(topic, "north", CLUSTERS) == path


def test_links_run_are_silent_unseen_or_not_to_be_asked() -> None:
    links = [Link("east", "west"), Link("west", "north", chain=True), Link("east", "north"), Link("north", "east")]
    beats = [
        NewestHeartbeat(("east",), 0.2),
        NewestHeartbeat(("east", "west"), 1.0),
        NewestHeartbeat(("west", "north"), 60.0),
        NewestHeartbeat(("east", "west", "north"), 61.0),
        NewestHeartbeat(("far", "west"), 2.0),
    ]
    seen = build_topology(links, beats, {"east": "nobody answers"})
    assert [(link.link, link.state, link.settings) for link in seen.links] == [
        ("east->west", "runs", True),
        ("west->north", "silent", True),
        ("east->north", "unseen", True),
        ("north->east", "unknown", True),
        ("far->west", "runs", False),
    ]
    assert (seen.links[1].chain, seen.links[0].naming) == (True, TwinNaming.SAME.value)
    assert draw_topology(seen) == [
        "east",
        "└─ west  1 s ago",
        "   └─ north  61 s ago",
        "far",
        "└─ west  2 s ago",
        "west",
        "└─ north  60 s ago",
    ]
    assert draw_topology(build_topology(links, [], {})) == []


def test_branches_stay_apart() -> None:
    beats = [NewestHeartbeat(("a", "b"), 0), NewestHeartbeat(("a", "c"), 0), NewestHeartbeat(("a", "b", "d"), 0)]
    assert draw_topology(build_topology([], beats, {})) == ["a", "├─ b  0 s ago", "│  └─ d  0 s ago", "└─ c  0 s ago"]


def test_links_of_a_broadcast_are_named_together() -> None:
    links = [Link("a", "b", broadcast="prices"), Link("a", "c", broadcast="prices"), Link("a", "d")]
    seen = build_topology(links, [], {})
    assert seen.describe_broadcasts() == ["broadcast prices: a -> b, c"]
    assert [one["broadcast"] for one in seen.as_values()["links"]] == ["prices", "prices", ""]  # type: ignore[attr-defined]


def test_homes_are_counted_by_pair() -> None:
    homes = (("east<>north", "north", 1), ("east<>west", "east", 2), ("east<>west", "west", 1))
    seen = replace(build_topology([], [], {}), homes=homes)
    one, other = seen.describe_homes()
    assert mentions(one, "east<>north", "1 topic", "north") and mentions(other, "east<>west", "2 topics", "1 topic")
    assert seen.as_values()["homes"] == [{"pair": pair, "home": home, "topics": n} for pair, home, n in homes]
