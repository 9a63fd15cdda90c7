"""By which numbers and ports clients know brokers, and where topics and groups are."""

from __future__ import annotations

import pytest

from tests.proxy.talks import LAYOUT, seen
from twinshore.fleet import Link, Naming
from twinshore.proxy.core.layout import NOBODY
from twinshore.proxy.core.seen import Seen, apart, homes_of, one_way_homes
from twinshore.store import HomeRow


def test_a_broker_has_the_same_number_and_port_whichever_others_there_are() -> None:
    assert (LAYOUT.number("east", 1), LAYOUT.port_of("east", 1)) == (1, 19094)
    assert (LAYOUT.number("west", 1001), LAYOUT.port_of("west", 1001)) == (101, 19194)
    assert LAYOUT.number("west", NOBODY) == NOBODY
    assert LAYOUT.port_of("west", 99) == LAYOUT.last_port == 19292


def test_brokers_that_would_share_a_number_are_told_apart() -> None:
    assert LAYOUT.apart([1, 2, 3]) == ([1, 2, 3], [])
    assert LAYOUT.apart([101, 1, 201, 5]) == ([1, 5], [101, 201])


def test_a_topic_is_led_to_its_home_or_to_the_first_cluster_that_has_it() -> None:
    plain = seen()
    assert [plain.route(topic) for topic in ("orders", "bills", "shared", "none")] == ["east", "west", "east", None]
    assert seen(homes={"shared": "west"}).route("shared") == "west"
    assert seen(homes={"shared": "north"}).route("shared") == "east", "north is not behind this proxy"
    assert seen(homes={"shared": "west"}, away=("west",)).route("shared") == "west", "what east has is a twin"
    assert plain.is_elsewhere("bills", "east")
    assert not plain.is_elsewhere("bills", "west")
    assert not plain.is_elsewhere("none", "east"), "that is for the broker to say"


def test_groups_are_at_home_on_the_first_cluster_also_while_it_is_away() -> None:
    assert seen(away=("east",)).group_home() == "east"
    assert [seen().stays(topic) for topic in ("orders", "bills", "shared", "none")] == [True, False, True, True]
    assert seen(homes={"shared": "west"}).stays("shared"), "east has a twin of it"


@pytest.mark.parametrize(
    ("rows", "home"),
    [
        ((("east<>west", "west"),), "west"),
        ((("east<>west", "east"), ("north<>west", "west")), "east"),
        ((("north<>west", "west"), ("east<>west", "east")), "east"),
        ((("east<>west", "east"), ("east<>west", "west")), "west"),
    ],
)
def test_of_a_chain_of_pairs_the_home_is_where_the_topic_is_no_twin(
    rows: tuple[tuple[str, str], ...], home: str
) -> None:
    assert homes_of(HomeRow(pair, "orders", home, 1, 0, "") for pair, home in rows) == {"orders": home}


def test_what_a_link_carries_is_at_home_where_it_begins() -> None:
    clusters = seen(more_on_east=frozenset({"bills"})).clusters.values()
    there, back = Link("west", "east", ("shared", "bills")), Link("east", "west", ("shared",))
    assert one_way_homes(clusters, [there]) == {"shared": "west", "bills": "west"}
    assert one_way_homes(clusters, [there, back]) == {"bills": "west"}, "which way shared goes the store alone knows"
    assert one_way_homes(clusters, [Link("west", "east", ("shared",), naming=Naming.PREFIX)]) == {}
    assert one_way_homes(clusters, [Link("west", "north", ("shared",))]) == {}


def test_a_topic_stays_where_it_was_led_to_as_long_as_that_cluster_has_it() -> None:
    plain = seen(more_on_east=frozenset({"bills"}))
    assert plain.route("bills") == "east"
    made = Seen(plain.clusters, before={"bills": "west", "orders": "west", "shared": "north"})
    assert [made.route(topic) for topic in ("bills", "orders", "shared")] == ["west", "east", "east"]
    assert Seen(plain.clusters, {"bills": "east"}, before={"bills": "west"}).route("bills") == "east", "a home counts"


def test_whoever_does_not_know_yet_which_is_a_twin_leads_nobody_to_either() -> None:
    shown = Seen(apart(seen().clusters))
    assert [shown.route(topic) for topic in ("orders", "bills", "shared")] == ["east", "west", None]
