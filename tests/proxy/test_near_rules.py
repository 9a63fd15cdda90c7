"""At which site a client is, how far a twin is behind, and which clusters its clients read at."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.near_stage import LEVEL, known, level_at, look, near
from twinshore.proxy.core.follower_fetch import (
    FIRST_CHECK_TIMEOUT_S,
    HOME_END_SAMPLES_MAX,
    TOPIC_WATCH_S,
    ExactTwin,
    FollowerFetchRules,
    HomeEndHistory,
    LinkCopy,
    MirrorLag,
    NetworkTable,
    TopicCheck,
    TwinLogBounds,
    build_topic_check,
    find_exact_twins,
)
from twinshore.proxy.core.model import BrokerId, HomeRoute

PART = ("orders", 0)
WEST = BrokerId("west", 2)


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("10.1.2.3", "wide"),
        ("10.1.9.9", "narrow"),
        ("10.1.9.7", "one"),
        ("::ffff:10.1.9.9", "narrow"),
        ("2001:db8:1::5", "six"),
        ("fe80::1%eth0", None),
        ("10.2.0.1", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_the_narrowest_network_that_holds_an_address_counts(address: str, site: str | None) -> None:
    networks = NetworkTable(
        [("10.1.0.0/16", "wide"), ("10.1.9.7", "one"), ("10.1.9.0/24", "narrow"), ("2001:db8::/32", "six")]
    )
    assert networks.of(address) == site
    assert NetworkTable([("0.0.0.0/0", "rest"), ("10.1.9.0/24", "narrow")]).of("8.8.8.8") == "rest"


def test_a_twin_is_behind_by_the_newest_moment_of_home_that_it_holds() -> None:
    home = HomeEndHistory()
    for second, end in enumerate((10, 20, 30, 40)):
        home.add(second, end, 10)
    assert [home.caught_up_since_s(end) for end in (40, 39, 20, 9)] == [3, 2, 1, -math.inf]
    level = MirrorLag()
    level.take(1, 0, 20, home)
    assert level.since_s == 1
    level.take(1, 0, 41, home)
    assert level.since_s == -math.inf, "it has what home does not have"


def test_a_log_that_has_become_shorter_is_another_one() -> None:
    home = HomeEndHistory()
    home.add(1, 30, 10)
    home.add(2, 20, 10)
    assert [home.caught_up_since_s(end) for end in (30, 20, 19)] == [2, 2, -math.inf]


@given(st.lists(st.integers(0, 5), max_size=600), st.floats(0.1, 3))
def test_of_a_log_that_grows_few_moments_are_kept_and_none_is_later_than_it_was(
    steps: list[int], every_s: float
) -> None:
    home, ends, kept_s = HomeEndHistory(), [0], 30.0
    for number, step in enumerate(steps):
        ends.append(ends[-1] + step)
        home.add(number * every_s, ends[-1], kept_s)
        assert len(home.moments) <= HOME_END_SAMPLES_MAX + 3
    for end in {ends[-1], ends[len(ends) // 2]}:
        found = home.caught_up_since_s(end)
        truth = max((number * every_s for number, had in enumerate(ends[1:]) if had <= end), default=-math.inf)
        assert found <= truth
        if steps and truth > (len(steps) - 1) * every_s - kept_s / 2:
            assert truth - found <= 2 * kept_s / HOME_END_SAMPLES_MAX + every_s


def test_clients_come_below_half_of_the_bound_and_leave_above_it() -> None:
    level = MirrorLag(since_s=0)
    assert [level.judge(now_s, 4) for now_s in (3, 2, 3, 4, 4.1, 3, 2)] == [False, True, True, True, False, False, True]


def test_sites_are_tried_in_the_order_given_and_home_ends_it() -> None:
    rules = FollowerFetchRules(
        {"a": "paris", "b": "rome", "c": "oslo", "d": "paris"}, {"paris": ("rome", "oslo"), "bern": ("rome",)}
    )
    assert list(rules.clusters_before_home("paris", "c")) == ["a", "d", "b"]
    assert list(rules.clusters_before_home("paris", "a")) == []
    assert list(rules.clusters_before_home("bern", "a")) == ["b"]
    assert list(rules.clusters_before_home("rome", "b")) == []
    assert list(rules.clusters_before_home("rome", "c")) == ["b"]
    assert [rules.known(site) for site in ("paris", "bern", "lima", "")] == [True, True, False, False]


def test_a_twin_is_what_links_brought_from_home_as_it_is_now() -> None:
    both = frozenset({0, 1})
    straight = LinkCopy("east", "west", "orders", "e1", "w1", both)
    onwards = LinkCopy("west", "south", "orders", "w1", "s1", frozenset({1, 2}))
    assert find_exact_twins([onwards, straight], {"orders": "east"}) == {
        "orders": (ExactTwin("west", "e1", "w1", both), ExactTwin("south", "e1", "s1", frozenset({1})))
    }
    other = LinkCopy("west", "south", "orders", "w0", "s1", both)
    assert [one.cluster for one in find_exact_twins([straight, other], {"orders": "east"})["orders"]] == ["west"]
    back = LinkCopy("west", "east", "orders", "w1", "e1", both)
    assert [one.cluster for one in find_exact_twins([straight, back], {"orders": "west"})["orders"]] == ["east"]
    assert find_exact_twins([straight], {}) == {}


def test_a_fresh_twin_is_read_by_clients_of_its_site_alone() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    assert (dict(made.view("paris")), dict(made.view("frankfurt"))) == ({PART: WEST}, {})
    assert made.serves("west", *PART)
    assert not made.serves("east", *PART)
    kept = made.view("paris")
    made.take([look(100.5)])
    made.tick(100.5, now)
    assert made.view("paris") is kept, "nothing is new"


def test_clients_of_a_site_without_a_fresh_twin_read_at_the_next_one() -> None:
    made = near(next_sites={"lyon": ("paris", "frankfurt"), "bonn": ("frankfurt", "paris")})
    level_at(made, 100, known())
    assert (dict(made.view("lyon")), dict(made.view("bonn"))) == ({PART: WEST}, {})


def test_a_twin_that_is_behind_is_left_and_taken_up_again() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    for second in range(1, 12):
        made.wants("orders")
        made.take([look(100 + second, 100 + second)])
        made.tick(100 + second, now)
        assert made.serves("west", *PART) == (second <= 5), second
    made.take([look(112, 112, TwinLogBounds(2, 0, 112))])
    made.tick(112, now)
    assert made.serves("west", *PART)


def test_a_twin_of_which_nobody_says_how_it_stands_is_left() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    made.tick(104, now)
    made.take([look(104, twin=None)])
    made.tick(104, now)
    assert made.serves("west", *PART)
    made.tick(105.1, now)
    assert not made.serves("west", *PART)


def test_what_no_link_carries_any_more_is_left_at_once() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    made.take([TopicCheck("orders", "east", 0, 100.5, {0: 100}, {})])
    made.tick(100.5, now)
    assert not made.serves("west", *PART)


TWINS = [ExactTwin(name, home_id, name, frozenset({0})) for name, home_id in (("west", "old"), ("north", "new"))]


@pytest.mark.parametrize("twins", [TWINS, TWINS[::-1]])
def test_a_twin_of_what_was_deleted_at_home_is_none_whatever_another_link_knows_by_now(twins: list[ExactTwin]) -> None:
    """The old topic's twin has 100 records; the new one grows past that."""
    made, now = near(), known()
    level_at(made, 100, now)
    assert made.serves("west", *PART)
    for at_s, end in ((101, 40), (102, 140), (103, 140)):
        at_twins = {
            "west": {("orders", "west"): {0: LEVEL}},
            "north": {("orders", "north"): {0: TwinLogBounds(1, 0, end)}},
        }
        found = build_topic_check(
            "orders", "east", 0, at_s, {("orders", "new"): {0: TwinLogBounds(1, 0, end)}}, twins, at_twins
        )
        assert (found.home_id, found.home_ends, list(found.twins)) == ("new", {0: end}, ["north"])
        made.take([found])
        made.tick(at_s, now)
        assert not made.serves("west", *PART)


def test_a_home_that_says_nothing_leaves_its_twins_as_they_are_and_what_it_has_anew_begins_anew() -> None:
    made, now = near(), known()
    made.tick(100, now)
    made.wants("orders")
    twins, at_twins = TWINS[:1], {"west": {("orders", "west"): {0: LEVEL}}}
    for at_s, at_home in ((100, {("orders", "old"): {0: LEVEL}}), (101, {})):
        made.take([build_topic_check("orders", "east", 0, at_s, at_home, twins, at_twins)])
        made.tick(at_s, now)
        assert made.serves("west", *PART)
    again = [twins[0]._replace(home_id="new")]
    for at_s, end, serves in ((102, 140, False), (103, 100, True)):
        made.take(
            [
                build_topic_check(
                    "orders", "east", 0, at_s, {("orders", "new"): {0: TwinLogBounds(1, 0, end)}}, again, at_twins
                )
            ]
        )
        made.tick(at_s, now)
        assert made.serves("west", *PART) == serves


@pytest.mark.parametrize(
    ("lead", "reads"),
    [
        (HomeRoute("east", 1), True),
        (HomeRoute("east", 1, moves=True), False),
        (HomeRoute("east", 1, held=True), False),
        (HomeRoute("east", 2), False),
        (HomeRoute("west", 2), False),
        (HomeRoute(None, 1), False),
    ],
)
def test_nobody_reads_a_twin_while_its_topic_moves_nor_what_was_seen_before(lead: HomeRoute, reads: bool) -> None:
    made = near()
    level_at(made, 100, known(orders=HomeRoute("east", 1)), term=1)
    assert made.serves("west", *PART)
    made.tick(100.1, known(orders=lead))
    assert made.serves("west", *PART) == reads


def test_a_cluster_that_is_away_is_left_and_readers_stay_while_home_is() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    for name, reads in (("east", True), ("west", False)):
        silent = {**now.clusters, name: replace(now.clusters[name], answers=False)}
        made.tick(150, replace(now, clusters=silent))
        assert made.serves("west", *PART) == reads


def test_a_topic_is_looked_at_while_somebody_reads_it() -> None:
    made, now = near(), known()
    assert made.wanted() == []
    made.tick(100, now)
    made.wants("orders")
    assert (made.wanted(), made.is_first_check_pending("orders")) == (["orders"], True)
    made.tick(100 + FIRST_CHECK_TIMEOUT_S, now)
    assert not made.is_first_check_pending("orders")
    level_at(made, 104, now)
    made.tick(104 + TOPIC_WATCH_S, now)
    assert (made.wanted(), dict(made.view("paris"))) == ([], {})
    assert made.at("orders", "paris", now) == ["west"]
    assert [made.at(topic, "paris", now) for topic in ("bills", "nowhere")] == [[], []]
