"""By which numbers and ports clients know brokers, and where topics and groups are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from tests.proxy.talks import LAYOUT, seen
from twinshore.config.model import Link, TwinNaming
from twinshore.proxy.core.leader_table import KnownHomes, choose_leader_clusters, find_doubted_leaders
from twinshore.proxy.core.model import NO_BROKER, ProxiedCluster, merge_pair_homes
from twinshore.routing.core.leader_cluster import Leader, LeaderDecision, NoLeader, NoLeaderReason
from twinshore.state.core.values import HomeRow


def test_a_broker_has_the_same_number_and_port_whichever_others_there_are() -> None:
    assert (LAYOUT.number("east", 1), LAYOUT.port_of("east", 1)) == (1, 19094)
    assert (LAYOUT.number("west", 1001), LAYOUT.port_of("west", 1001)) == (101, 19194)
    assert LAYOUT.number("west", NO_BROKER) == NO_BROKER
    assert LAYOUT.port_of("west", 99) == LAYOUT.last_port == 19292


def test_brokers_that_would_share_a_number_are_told_apart() -> None:
    assert LAYOUT.apart([1, 2, 3]) == ([1, 2, 3], [])
    assert LAYOUT.apart([101, 1, 201, 5]) == ([1, 5], [101, 201])


def test_a_topic_is_led_to_its_home_or_to_the_only_cluster_that_has_it() -> None:
    plain = seen()
    assert [plain.route(topic) for topic in ("orders", "bills", "shared", "none")] == ["east", "west", "east", None]
    assert seen(homes={"shared": "west"}).route("shared") == "west"
    away = seen(homes={"shared": "north"})
    assert (away.route("shared"), away.leaderless["shared"].lacks) == (None, NoLeaderReason.ELSEWHERE)
    assert seen(homes={"shared": "west"}, away=("west",)).route("shared") == "west", "what east has is a twin"
    assert plain.is_elsewhere("bills", "east")
    assert not plain.is_elsewhere("bills", "west")
    assert not plain.is_elsewhere("none", "east"), "that is for the broker to say"


def test_a_topic_of_two_clusters_that_no_link_explains_has_no_leader() -> None:
    torn = seen(homes={})
    assert torn.leaderless == {"shared": NoLeader(NoLeaderReason.LINK, ("east", "west"))}
    assert torn.is_elsewhere("shared", "east") and torn.is_elsewhere("shared", "west")


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
    assert merge_pair_homes(HomeRow(pair, "orders", home, 1, 0, "") for pair, home in rows) == {"orders": home}


def led(
    topic: str,
    heard: KnownHomes,
    stored: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, ProxiedCluster] = MappingProxyType({}),
) -> LeaderDecision:
    """East has bills as well, unless `more` says otherwise."""
    clusters = {**seen(more_on_east=frozenset({"bills"})).clusters, **more}
    return choose_leader_clusters(clusters.values(), stored, heard)[topic]


THERE, BACK = Link("west", "east", ("shared", "bills")), Link("east", "west", ("shared",))
UNSEEN = ProxiedCluster("east", "", -1, {}, frozenset(), {}, answers=False)
TORN = NoLeader(NoLeaderReason.LINK, ("east", "west"))


def test_what_a_link_carries_one_way_is_at_home_where_it_begins() -> None:
    assert [led(topic, KnownHomes((THERE,))) for topic in ("shared", "bills")] == [Leader("west"), Leader("west")]
    assert led("shared", KnownHomes((THERE, BACK))) == TORN, "which way shared goes neither link says"
    assert led("shared", KnownHomes((Link("west", "east", ("shared",), naming=TwinNaming.PREFIX),))) == TORN
    assert led("shared", KnownHomes((THERE, BACK)), {"shared": "east"}) == Leader("east"), "the store remembers"


def test_a_copy_that_its_cluster_calls_a_twin_is_none() -> None:
    east = replace(seen().clusters["east"], twins=frozenset({"shared"}))
    assert led("shared", KnownHomes((THERE, BACK)), more={"east": east}) == Leader("west")
    assert led("shared", KnownHomes(()), more={"east": east}) == Leader("west"), "also where its link was taken away"


@pytest.mark.claim("proxy", "unheard", "a proxy that starts while a cluster is silent leads no client to a twin")
@pytest.mark.parametrize("links", [(THERE,), None])
def test_a_silent_cluster_that_could_carry_a_topic_is_waited_for(links: tuple[Link, ...] | None) -> None:
    silent = frozenset({"east"})
    for more in ({"east": UNSEEN}, {}):
        heard = KnownHomes(links, silent, 1.0)
        clusters = {**seen().clusters, **more}
        assert led("bills", heard, more=clusters) == NoLeader(NoLeaderReason.LEASE, ("east",), 4.0)
        assert led("bills", replace(heard, waited_s=5.0), more=clusters) == Leader("west", ("east",))
        assert led("bills", replace(heard, waited_s=5.0, start_all=True), more=clusters) == NoLeader(
            NoLeaderReason.SILENT, ("east",)
        )
    west = replace(seen().clusters["west"], twins=frozenset({"bills"}))
    twin = NoLeader(NoLeaderReason.SOURCE, ("west",))
    assert led("bills", KnownHomes(links, silent, 99.0), more={"east": UNSEEN, "west": west}) == twin
    stored = {"bills": "west"}
    assert led("bills", KnownHomes(links, silent, 0.0), stored, {"east": UNSEEN, "west": west}) == Leader("west")


def test_a_cluster_that_cannot_carry_a_topic_is_not_waited_for() -> None:
    heard = KnownHomes((BACK,), frozenset({"east"}), 0.0)
    assert led("bills", heard, more={"east": UNSEEN}) == Leader("west")


@pytest.mark.claim("proxy", "unheard", "a proxy that starts while a cluster is silent leads no client to a twin")
def test_a_twin_whose_source_is_not_behind_the_proxy_has_no_leader_here() -> None:
    west = replace(seen().clusters["west"], twins=frozenset({"bills"}))
    from_north = (Link("north", "west", ("bills",)),)
    assert choose_leader_clusters([west], {}, KnownHomes(from_north))["bills"] == NoLeader(
        NoLeaderReason.SOURCE, ("west",)
    )
    assert choose_leader_clusters([west], {"bills": "north"}, KnownHomes(from_north))["bills"] == NoLeader(
        NoLeaderReason.ELSEWHERE, ("north",)
    )


@pytest.mark.claim("proxy", "unheard", "a proxy that starts while a cluster is silent leads no client to a twin")
def test_a_word_is_not_believed_before_the_clusters_were_waited_for_that_could_say_a_higher_one() -> None:
    clusters, words = seen().clusters.values(), {"shared": "west", "orders": "east"}
    heard = KnownHomes((THERE,), frozenset({"east"}), 1.0)
    assert find_doubted_leaders(words, clusters, {}, heard) == {
        "shared": NoLeader(NoLeaderReason.LEASE, ("east",), 4.0)
    }
    assert find_doubted_leaders(words, clusters, {"shared": "west"}, heard) == {}, "the store remembers"
    assert find_doubted_leaders(words, clusters, {}, replace(heard, waited_s=9.0))["shared"] == Leader(
        "west", ("east",)
    )
    assert find_doubted_leaders(words, clusters, {}, KnownHomes((THERE,))) == {}
