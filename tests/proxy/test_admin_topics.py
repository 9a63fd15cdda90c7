"""Topics are made where rules say, deleted and grown at their home, and a cluster that is away costs its own alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from testkit.errors import mentions
from tests.proxy.admin_talks import (
    BAD_ASSIGNMENT,
    EXISTS,
    NOT_CONTROLLER,
    POLICY,
    THROTTLED,
    TIMED_OUT,
    UNKNOWN_TOPIC,
    Clusters,
    codes,
    each_done,
    played,
)
from tests.proxy.talks import EAST, WEST, asked, asked_part, seen
from twinshore.proxy.core.api_versions import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import build_message, to_error_code
from twinshore.proxy.core.model import HomeRoute, ProxiedCluster, RoutingTable
from twinshore.routing.core.leader_cluster import NoLeader, NoLeaderReason, describe_decision

CREATED = each_done("topics", lambda one: {"name": one.name, "num_partitions": 2})
DELETED = each_done("responses", lambda one: {"name": one}, "topic_names")
GROWN = each_done("results", lambda one: {"name": one.name})


def versions(key: int) -> range:
    low, high = HANDLED_API_VERSIONS[key]
    return range(low, high + 1)


def creation(version: int, *topics: str, brokers: tuple[int, ...] = (), validate_only: bool = False) -> Any:
    kind = asked_part(CREATE_TOPICS, version, "topics")
    assigned = asked_part(CREATE_TOPICS, version, "topics", "assignments")
    given = (build_message(assigned, partition_index=0, broker_ids=brokers),) if brokers else ()
    made = (
        build_message(kind, name=name, num_partitions=2, replication_factor=1, assignments=given) for name in topics
    )
    return asked(CREATE_TOPICS, version, topics=tuple(made), validate_only=validate_only)


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
def test_topics_are_made_where_rules_of_names_say(version: int) -> None:
    clusters, news = Clusters(CREATED), []
    found = played(creation(version, "new", "app-1", "bills"), clusters, news=lambda: news.append(1))
    assert codes(found.topics) == {"new": 0, "app-1": 0, "bills": EXISTS}
    (why,) = [one.error_message for one in found.topics if one.name == "bills"]
    assert why == "Topic 'bills' already exists, on cluster west"
    made = {place: [str(one.name) for one in parts] for place, parts in clusters.asked("topics").items()}
    assert made == {EAST: ["new"], WEST: ["app-1"]}
    assert found.throttle_time == timedelta(0), "one cluster's throttle is not the other's"
    assert news, "the clusters are looked at again at once"


def test_a_topic_that_was_made_a_moment_ago_elsewhere_exists() -> None:
    clusters = Clusters(CREATED, more={"west": {"young"}})
    assert codes(played(creation(5, "young"), clusters).topics) == {"young": EXISTS}
    assert clusters.heard == []


def test_a_topic_that_was_deleted_a_moment_ago_is_for_its_controller_to_make() -> None:
    clusters = Clusters(CREATED)
    assert codes(played(creation(5, "orders"), clusters).topics) == {"orders": 0}
    assert list(clusters.asked("topics")) == [EAST]


def test_a_topic_that_had_a_home_is_made_there_again() -> None:
    clusters = Clusters(CREATED)
    now = seen(homes={"once": "west", "far": "nowhere"})
    assert codes(played(creation(5, "once", "far"), clusters, now=now).topics) == {"once": 0, "far": EXISTS}
    assert {place: [str(one.name) for one in parts] for place, parts in clusters.asked("topics").items()} == {
        WEST: ["once"],
    }


def led(topic: str, cluster: str | None, *, held: bool = False) -> RoutingTable:
    """The clusters' own words of a topic."""
    return replace(seen(), leads={topic: HomeRoute(cluster, 3, held=held)})


def test_the_clusters_own_words_of_a_home_count() -> None:
    clusters = Clusters(CREATED)
    assert codes(played(creation(5, "once"), clusters, now=led("once", "west")).topics) == {"once": 0}
    assert list(clusters.asked("topics")) == [WEST]
    (found,) = played(creation(5, "far"), clusters, now=led("far", None)).topics
    assert (int(found.error_code), len(clusters.heard)) == (EXISTS, 1)
    assert found.error_message == describe_decision("far", NoLeader(NoLeaderReason.ELSEWHERE))
    found = played(asked(DELETE_TOPICS, 5, topic_names=("orders",)), Clusters(DELETED), now=led("orders", "east"))
    assert codes(found.responses) == {"orders": POLICY}


def test_a_topic_that_is_being_moved_does_not_grow() -> None:
    topics = (build_message(asked_part(CREATE_PARTITIONS, 3, "topics"), name="orders", count=3),)
    asks = asked(CREATE_PARTITIONS, 3, topics=topics)
    for now in (led("orders", "east", held=True), seen().without(frozenset(seen().clusters))):
        clusters = Clusters(GROWN)
        (found,) = played(asks, clusters, now=now).results
        assert (int(found.error_code), clusters.heard) == (TIMED_OUT, [])
        assert mentions(found.error_message, "orders")
    found = played(asks, Clusters(GROWN), now=led("orders", None))
    assert codes(found.results) == {"orders": UNKNOWN_TOPIC}, "what is here is a twin"


def test_a_try_alone_is_passed_on_as_one() -> None:
    clusters = Clusters(CREATED)
    played(creation(5, "new", validate_only=True), clusters)
    assert [found.validate_only for _, _, found in clusters.heard] == [True]


def test_brokers_are_named_by_the_client_s_numbers_and_must_be_the_cluster_s() -> None:
    clusters = Clusters(CREATED)
    found = played(creation(5, "app-1", brokers=(102,)), clusters)
    assert codes(found.topics) == {"app-1": 0}
    ((place, (part,)),) = clusters.asked("topics").items()
    assert (place, part.assignments[0].broker_ids) == (WEST, (2,))
    for number in (1, 104, 909):
        found = played(creation(5, "app-1", brokers=(number,)), clusters)
        assert codes(found.topics) == {"app-1": BAD_ASSIGNMENT}
        assert mentions(found.topics[0].error_message, f"broker {number}", "west", "app-1")


def test_a_cluster_that_is_away_costs_its_own_topics_alone() -> None:
    clusters = Clusters(CREATED)
    found = played(creation(5, "new", "app-1"), clusters, now=seen(away=("west",)))
    assert codes(found.topics) == {"new": 0, "app-1": TIMED_OUT}
    told = {str(one.name): str(one.error_message or "") for one in found.topics}
    assert told["new"] == "" and mentions(told["app-1"], "west")
    silent = Clusters(CREATED, silent=("west",))
    found = played(creation(5, "new", "app-1", "bills"), silent)
    assert codes(found.topics) == {"new": 0, "app-1": TIMED_OUT, "bills": EXISTS}
    (why,) = [one.error_message for one in found.topics if one.name == "app-1"]
    assert mentions(why, "west", "in time")


def test_another_controller_has_a_client_ask_again() -> None:
    away = each_done("topics", lambda one: {"name": one.name}, error_code=to_error_code(NOT_CONTROLLER))
    assert codes(played(creation(5, "new"), Clusters(away)).topics) == {"new": NOT_CONTROLLER}


def test_a_quota_of_changes_is_told_with_how_long_it_lasts() -> None:
    quota = each_done("topics", lambda one: {"name": one.name}, error_code=to_error_code(THROTTLED))
    found = played(creation(6, "new"), Clusters(quota))
    assert (codes(found.topics), found.throttle_time) == ({"new": THROTTLED}, timedelta(milliseconds=7))


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
def test_topics_are_deleted_where_they_are_unless_they_are_mirrored(version: int) -> None:
    clusters = Clusters(DELETED, more={"west": {"young"}})
    named = ("orders", "bills", "young", "shared", "none")
    found = played(asked(DELETE_TOPICS, version, topic_names=named), clusters)
    assert codes(found.responses) == {"orders": 0, "bills": 0, "young": 0, "shared": POLICY, "none": 0}
    # Of what no broker knows a controller says whether it is there.
    assert clusters.asked("topic_names") == {EAST: ["orders", "none"], WEST: ["bills", "young"]}
    if version >= 5:
        (why,) = [one.error_message for one in found.responses if one.name == "shared"]
        assert mentions(why, "shared", "mirrored", "east", "west")
        found = played(
            asked(DELETE_TOPICS, version, topic_names=("orders",)), clusters, now=seen(homes={"orders": "east"})
        )
        assert mentions(found.responses[0].error_message, "orders", "mirrored")


def test_a_twin_on_a_cluster_that_is_away_keeps_a_topic_from_being_deleted() -> None:
    found = played(
        asked(DELETE_TOPICS, 5, topic_names=("shared", "orders")), Clusters(DELETED), now=seen(away=("west",))
    )
    assert codes(found.responses) == {"shared": POLICY, "orders": 0}


@pytest.mark.parametrize("version", versions(CREATE_PARTITIONS))
def test_partitions_are_made_at_the_topic_s_home(version: int) -> None:
    kind = asked_part(CREATE_PARTITIONS, version, "topics")
    assigned = asked_part(CREATE_PARTITIONS, version, "topics", "assignments")
    topics = [build_message(kind, name=name, count=3) for name in ("orders", "shared", "none")]
    topics.append(build_message(kind, name="bills", count=3, assignments=(build_message(assigned, broker_ids=(102,)),)))
    clusters = Clusters(GROWN)
    asks = asked(CREATE_PARTITIONS, version, topics=tuple(topics), validate_only=True)
    found = played(asks, clusters, now=seen(homes={"shared": "west"}))
    assert codes(found.results) == {"orders": 0, "shared": 0, "bills": 0, "none": 0}
    there = clusters.asked("topics")
    assert {place: [str(one.name) for one in parts] for place, parts in there.items()} == {
        EAST: ["orders", "none"],
        WEST: ["shared", "bills"],
    }
    assert there[WEST][1].assignments[0].broker_ids == (2,)
    assert all(found.validate_only for _, _, found in clusters.heard)


UNSEEN = replace(
    seen(), clusters={**seen().clusters, "west": ProxiedCluster("west", "", -1, {}, frozenset(), {}, answers=False)}
)


@pytest.mark.claim("proxy", "unheard", "a proxy that starts while a cluster is silent leads no client to a twin")
def test_while_a_cluster_has_not_answered_yet_no_topic_is_made_or_deleted() -> None:
    """What it has is not known: it may have the topic, or a twin of it."""
    for asks, told in (
        (creation(5, "bills"), "topics"),
        (asked(DELETE_TOPICS, 5, topic_names=("orders",)), "responses"),
    ):
        clusters = Clusters(CREATED if told == "topics" else DELETED)
        (found,) = getattr(played(asks, clusters, now=UNSEEN), told)
        assert int(found.error_code) == TIMED_OUT
        assert mentions(found.error_message, "cluster west")
        assert not clusters.heard


def test_a_twin_without_a_leader_is_not_deleted() -> None:
    west = replace(seen().clusters["west"], twins=frozenset({"bills"}))
    now = replace(seen(), clusters={**seen().clusters, "west": west})
    found = played(asked(DELETE_TOPICS, 5, topic_names=("bills",)), Clusters(DELETED), now=now)
    assert codes(found.responses) == {"bills": POLICY}
