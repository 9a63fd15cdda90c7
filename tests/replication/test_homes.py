"""Where topics are at home: born where only one answer is possible, judged alike by both links of a pair."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.errors import mentions
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core.ownership import (
    FirstHome,
    HomeEvidence,
    HomeReason,
    decide_first_home,
    explain_homed_elsewhere,
    explain_no_home,
    explain_recreated_away,
    find_reverse_link,
    home_hint,
    homes_elsewhere,
    is_recreated_away,
    is_shared_topic,
    pair_name,
    topics_moved_here,
)
from twinshore.state.core.values import HomeRow

EAST, WEST = Link("east", "west"), Link("west", "east")
TOLD = (True, False, None)


def row(home: str, term: int = 1, topic: str = "orders") -> HomeRow:
    return HomeRow(pair_name(EAST), topic, home, term, 1, "me")


@pytest.mark.parametrize(
    ("held", "home", "why"),
    [
        (HomeEvidence(source=True, target=False), "east", HomeReason.RECORDS),
        (HomeEvidence(source=False, target=True), "west", HomeReason.RECORDS),
        (HomeEvidence(source=False, target=False), "", HomeReason.EMPTY),
        (HomeEvidence(source=True, target=True), "", HomeReason.BOTH_WRITTEN),
        (HomeEvidence(source=True, target=None), "", HomeReason.UNKNOWN),
        (HomeEvidence(source=None, target=False), "", HomeReason.UNKNOWN),
        (HomeEvidence(source=True, target=True, ours=True), "east", HomeReason.TWIN),
        (HomeEvidence(source=None, target=None, theirs=True), "west", HomeReason.TWIN),
        (HomeEvidence(source=True, target=True, ours=True, theirs=True), "", HomeReason.BOTH_TWINS),
    ],
)
def test_a_home_is_born_only_where_one_answer_is_possible(held: HomeEvidence, home: str, why: HomeReason) -> None:
    assert decide_first_home(EAST, held) == FirstHome(home, why)
    assert decide_first_home(EAST, held).contested == (why in (HomeReason.BOTH_WRITTEN, HomeReason.BOTH_TWINS))


@pytest.mark.parametrize(("source", "target", "ours", "theirs"), [*product(TOLD, TOLD, (True, False), (True, False))])
def test_both_links_of_a_pair_say_the_same(source: bool | None, target: bool | None, ours: bool, theirs: bool) -> None:
    assert decide_first_home(EAST, HomeEvidence(source, target, ours, theirs)) == decide_first_home(
        WEST, HomeEvidence(target, source, theirs, ours)
    )


def test_a_pair_is_called_the_same_from_both_sides_and_takes_the_sources_names() -> None:
    prefixed = replace(WEST, naming=TwinNaming.PREFIX)
    assert pair_name(EAST) == pair_name(WEST) == "east<>west"
    assert find_reverse_link(EAST, [EAST, WEST]) == WEST
    assert find_reverse_link(EAST, [EAST, prefixed]) is None
    assert find_reverse_link(prefixed, [EAST, prefixed]) is None
    assert find_reverse_link(EAST, [EAST, Link("west", "north"), Link("north", "east")]) is None


def test_a_topic_has_a_home_where_the_way_back_admits_it_too() -> None:
    narrow, wide = replace(WEST, topics=("bills.*",)), replace(WEST, topics=(".*",))
    assert is_shared_topic("bills", narrow)
    assert not is_shared_topic("orders", narrow)
    assert is_shared_topic("orders", narrow, wide), "operators have widened it, or the settings are wider"
    assert not is_shared_topic("twinshore.heartbeats", wide), "its twin has a name of its own"
    assert not is_shared_topic("twinshore.twins", wide)


def test_only_the_link_from_the_home_carries() -> None:
    homes = {"orders": row("east"), "bills": row("west", topic="bills")}
    assert homes_elsewhere(EAST, homes) == {"bills": homes["bills"]}
    assert homes_elsewhere(WEST, homes) == {"orders": homes["orders"]}
    assert homes_elsewhere(replace(EAST, naming=TwinNaming.PREFIX), homes) == {}, "by prefix both sides may be written"


def test_a_topic_has_strayed_where_its_home_surely_has_none_of_it() -> None:
    assert [
        held for held in (HomeEvidence(one, other) for one, other in product(TOLD, TOLD)) if is_recreated_away(held)
    ] == [HomeEvidence(source=True, target=False)]
    sentence = explain_recreated_away("orders", row("west"), EAST)
    assert all(name in sentence for name in ("orders", "its home west", "on east"))


def test_a_first_home_does_not_overrule_where_a_twin_came_from_and_a_later_one_does() -> None:
    assert topics_moved_here(EAST, {"orders": row("east")}) == frozenset()
    assert topics_moved_here(EAST, {"orders": row("east", term=2)}) == {"orders"}
    assert topics_moved_here(WEST, {"orders": row("east", term=2)}) == frozenset()
    assert topics_moved_here(replace(EAST, naming=TwinNaming.PREFIX), {"orders": row("east", term=2)}) == frozenset()


@pytest.mark.parametrize("why", [why for why in HomeReason if why not in (HomeReason.TWIN, HomeReason.RECORDS)])
def test_what_has_no_home_says_why_and_names_the_place(why: HomeReason) -> None:
    sentence = explain_no_home(EAST, "orders", FirstHome("", why))
    assert all(name in sentence for name in ("orders", "east", "west"))
    assert mentions(home_hint("orders", EAST), "twinshore link home", "orders east")
    assert mentions(explain_homed_elsewhere("orders", row("west"), EAST), "east->west", "west")


# -- any order of looks, rows and records


@dataclass
class Mirrors:
    """Two links of a pair, each with its own process, and one store. Logs are lists of who wrote each record."""

    logs: dict[str, list[str]] = field(default_factory=lambda: {"east": [], "west": []})
    homes: dict[str, HomeRow] = field(default_factory=dict)
    twins: set[str] = field(default_factory=set)
    seen: dict[str, HomeEvidence] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def write(self, cluster: str) -> None:
        """An application does."""
        self.logs[cluster].append(f"app {cluster}")

    def look(self, link: Link, back: Link) -> None:
        known = (link.name in self.twins, back.name in self.twins)
        self.seen[link.name] = HomeEvidence(bool(self.logs[link.source]), bool(self.logs[link.target]), *known)

    def decide(self, link: Link) -> None:
        """By what was seen, however long ago: the first row stands."""
        birth = decide_first_home(link, self.seen.pop(link.name, HomeEvidence(None, None)))
        if birth.home:
            self.homes.setdefault("orders", row(birth.home))

    def begin(self, link: Link) -> None:
        """The planner begins with no twin that holds what the link did not write."""
        if "orders" not in self.homes or homes_elsewhere(link, self.homes):
            return
        if link.name not in self.twins and self.logs[link.target]:
            self.told.add(link.name)
        else:
            self.twins.add(link.name)

    def carry(self, link: Link) -> None:
        """The broker takes a record only at the offset that it had."""
        source, target = self.logs[link.source], self.logs[link.target]
        if link.name not in self.twins or len(target) >= len(source):
            return
        if target != source[: len(target)]:
            self.told.add(link.name)
        else:
            target.append(source[len(target)])


EVENTS = ("write", "look", "decide", "begin", "carry")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.booleans()), max_size=60))
@settings(max_examples=400, deadline=None)
def test_whatever_happens_in_which_order_nothing_is_carried_backwards(events: list[tuple[str, bool]]) -> None:
    world = Mirrors()
    first = None
    for what, eastern in events:
        link, back = (EAST, WEST) if eastern else (WEST, EAST)
        before = {name: list(log) for name, log in world.logs.items()}
        match what:
            case "write":
                world.write(link.source)
            case "look":
                world.look(link, back)
            case "decide":
                world.decide(link)
            case "begin":
                world.begin(link)
            case _:
                world.carry(link)
        first = first or world.homes.get("orders")
        assert world.homes.get("orders") == first, "the first row stands"
        assert len(world.twins) <= 1, "one link alone carries the topic"
        for name, log in world.logs.items():
            assert log[: len(before[name])] == before[name], "nothing is overwritten"
            if first and name == first.home:
                assert set(log) <= {f"app {name}"}, "nothing is ever written to the home but by its applications"
            elif first is None:
                assert set(log) <= {f"app {name}"}, "nothing crosses before there is a home"
