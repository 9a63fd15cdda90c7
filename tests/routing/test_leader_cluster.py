"""Which cluster leads a topic: one test a line of the table."""

from __future__ import annotations

import pytest

from twinshore.routing.core.leader_cluster import (
    KnownHome,
    Leader,
    LeaderDecision,
    NoLeader,
    NoLeaderReason,
    TopicCopy,
    describe_decision,
    leader_cluster,
)

LEASE_S = 5.0
EAST, WEST = KnownHome("east", (1, 0)), KnownHome("west", (2, 0))
LATER, SOON = 9.0, 1.0


def copy(cluster: str, word: KnownHome | None = None, *, twin: bool = False, has: bool = True) -> TopicCopy:
    return TopicCopy(cluster, answered=True, has_topic=has, is_twin=twin, home=word)


def silent(cluster: str, *, could: bool = True) -> TopicCopy:
    return TopicCopy(cluster, answered=False, could_carry=could)


@pytest.mark.parametrize(
    ("remembered", "copies", "waited_s", "leads"),
    [
        # a: what is remembered holds until a higher word is heard.
        (WEST, (silent("east"), silent("west")), 0.0, Leader("west")),
        (WEST, (copy("east", EAST), silent("west")), 0.0, Leader("west")),
        (EAST, (silent("east"), copy("west", WEST, twin=True)), 0.0, Leader("west")),
        (EAST, (copy("east"), copy("west", KnownHome("west", (1, 0)))), 0.0, Leader("east")),
        (EAST, (silent("east"), copy("west", twin=True)), LATER, Leader("east")),
        (KnownHome("north", (1, 0)), (copy("west"),), 0.0, NoLeader(NoLeaderReason.ELSEWHERE, ("north",))),
        # b: all that could have it answered.
        (None, (copy("east", EAST), copy("west", WEST, twin=True)), 0.0, Leader("west")),
        (None, (copy("east"), copy("west", twin=True)), 0.0, Leader("east")),
        (None, (copy("east"), copy("west", EAST, twin=True)), 0.0, Leader("east")),
        (None, (copy("east", has=False), copy("west")), 0.0, Leader("west")),
        (None, (copy("east"), silent("north", could=False)), 0.0, Leader("east")),
        (None, (copy("west", twin=True),), 0.0, NoLeader(NoLeaderReason.SOURCE, ("west",))),
        (None, (copy("east", has=False), copy("west", has=False)), 0.0, NoLeader(NoLeaderReason.TOPIC)),
        (None, (copy("west", KnownHome("north", (1, 0))),), 0.0, NoLeader(NoLeaderReason.ELSEWHERE, ("north",))),
        (
            None,
            (copy("east", KnownHome("east", (2, 0))), copy("west", WEST)),
            0.0,
            NoLeader(NoLeaderReason.CLASH, ("east", "west")),
        ),
        # c: one is silent, and what answered is a twin.
        (None, (silent("east"), copy("west", twin=True)), LATER, NoLeader(NoLeaderReason.SOURCE, ("west",))),
        (
            None,
            (silent("east"), copy("west", twin=True), copy("north")),
            LATER,
            NoLeader(NoLeaderReason.SOURCE, ("west",)),
        ),
        (None, (silent("east"), copy("west", EAST, twin=True)), LATER, NoLeader(NoLeaderReason.SILENT, ("east",))),
        (None, (silent("east"), copy("west", has=False)), LATER, NoLeader(NoLeaderReason.SILENT, ("east",))),
        # d: one is silent, and nothing speaks against the one that answered.
        (None, (silent("east"), copy("west")), SOON, NoLeader(NoLeaderReason.LEASE, ("east",), LEASE_S - SOON)),
        (None, (silent("east"), copy("west")), LEASE_S, Leader("west", ("east",))),
        (
            None,
            (copy("east", EAST), silent("west")),
            SOON,
            NoLeader(NoLeaderReason.LEASE, ("west",), LEASE_S - SOON),
        ),
        (None, (copy("east", EAST), silent("west")), LATER, Leader("east", ("west",))),
        (None, (silent("east"), copy("west", WEST, twin=True)), LATER, Leader("west", ("east",))),
        # e: no link explains it.
        (None, (copy("east"), copy("west")), LATER, NoLeader(NoLeaderReason.LINK, ("east", "west"))),
        (None, (copy("east"), copy("west"), silent("north")), LATER, NoLeader(NoLeaderReason.LINK, ("east", "west"))),
    ],
)
def test_each_line_of_the_table(
    remembered: KnownHome | None, copies: tuple[TopicCopy, ...], waited_s: float, leads: LeaderDecision
) -> None:
    assert leader_cluster(remembered, copies, waited_s, LEASE_S) == leads


def test_a_start_that_waits_for_all_never_leads_past_a_silent_cluster() -> None:
    assert leader_cluster(None, (silent("east"), copy("west")), LATER, LEASE_S, start_all=True) == NoLeader(
        NoLeaderReason.SILENT, ("east",)
    )
    assert leader_cluster(WEST, (silent("east"), copy("west")), 0.0, LEASE_S, start_all=True) == Leader("west")


def test_the_reason_names_the_topic_and_the_clusters() -> None:
    assert describe_decision("audit", NoLeader(NoLeaderReason.LINK, ("east", "west"))) == (
        "topic audit has no known home: several clusters have it, and no link explains which one is its home:"
        " east, west"
    )
    assert "east" in describe_decision("audit", Leader("west", ("east",)))
    assert "east" not in describe_decision("audit", Leader("west"))
