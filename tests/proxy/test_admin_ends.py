"""Groups, and places of groups, end wherever they live; nothing elsewhere ends before the groups' home agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.admin_talks import Clusters, codes, played
from tests.proxy.talks import (
    EAST,
    WEST,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    newer_group,
    said_part,
    seen,
    session,
)
from twinshore.config.frozen import GROUPS_HOME
from twinshore.proxy.core.api_versions import DELETE_GROUPS, DESCRIBE_GROUPS, FIND_COORDINATOR, OFFSET_DELETE
from twinshore.proxy.core.message_codec import build_message, to_error_code
from twinshore.proxy.core.model import (
    ANY_BROKER,
    CONSUMER_GROUP_DESCRIBE,
    BrokerId,
    BrokerRequest,
    ForwardRequest,
    HomeRoute,
    ParkRequest,
    RoutingTable,
)

AGAIN, NOT_COORDINATOR, NON_EMPTY, NOT_FOUND, SUBSCRIBED = 14, 16, 68, 69, 86
WEST_KEEPS = BrokerId("west", 2)


def coordinators(
    home: int = 0,
    west: int = 0,
    *,
    found: int = 0,
    state: str = "Empty",
    described: int = 0,
    silent: bool = False,
    newer: tuple[str, ...] | None = (),
) -> Clusters:
    """Both clusters' coordinators, and what each says. `newer`: members of the newer protocol; None where home is
    silent about those."""

    def says(ask: BrokerRequest, asked_of: Any) -> memoryview | None:
        code = to_error_code(home if ask.place.cluster == "east" else west)
        if ask.key == FIND_COORDINATOR:
            part = said_part(FIND_COORDINATOR, ask.version, "coordinators")
            one = build_message(part, key="g", node_id=2, host="w2", port=9092, error_code=to_error_code(found))
            return answer(FIND_COORDINATOR, ask.version, coordinators=(one,))
        if ask.key == DESCRIBE_GROUPS:
            part = said_part(DESCRIBE_GROUPS, ask.version, "groups")
            group = build_message(part, group_id="g", group_state=state, error_code=to_error_code(described))
            return answer(DESCRIBE_GROUPS, ask.version, groups=(group,))
        if ask.key == CONSUMER_GROUP_DESCRIBE:
            return None if newer is None else newer_group(ask, dict.fromkeys(newer, ()), 4)
        if silent and ask.place.cluster == "west":
            return None
        if ask.key == DELETE_GROUPS:
            part = said_part(DELETE_GROUPS, ask.version, "results")
            results = (build_message(part, group_id=one, error_code=code) for one in asked_of.groups_names)
            return answer(DELETE_GROUPS, ask.version, results=tuple(results))
        return places_ended(asked_of, code)

    return Clusters(says)


def places_ended(asked_of: Any, code: Any) -> memoryview:
    topic, part = said_part(OFFSET_DELETE, 0, "topics"), said_part(OFFSET_DELETE, 0, "topics", "partitions")
    if code in (NOT_FOUND, NOT_COORDINATOR):
        return answer(OFFSET_DELETE, 0, error_code=code)
    topics = (
        build_message(topic, name=one.name, partitions=(build_message(part, error_code=code),))
        for one in asked_of.topics
    )
    return answer(OFFSET_DELETE, 0, topics=tuple(topics))


def deleted(
    version: int, clusters: Clusters, *, now: RoutingTable | None = None, place: BrokerId | None = EAST
) -> dict[str, int]:
    found = played(asked(DELETE_GROUPS, version, groups_names=("g",)), clusters, now=now, place=place)
    return codes(found.results, "group_id")


@pytest.mark.parametrize("version", range(3))
def test_a_group_ends_at_home_and_then_elsewhere(version: int) -> None:
    clusters = coordinators()
    assert deleted(version, clusters) == {"g": 0}
    assert [(place, key) for place, key, _ in clusters.heard] == [
        (EAST, DELETE_GROUPS),
        (BrokerId("west", ANY_BROKER), FIND_COORDINATOR),
        (WEST_KEEPS, DELETE_GROUPS),
    ]


@pytest.mark.parametrize(
    ("home", "west", "found", "told"),
    [
        (0, NOT_FOUND, 0, 0),
        (NOT_FOUND, 0, 0, 0),
        (NOT_FOUND, NOT_FOUND, 0, NOT_FOUND),
        (0, NON_EMPTY, 0, NON_EMPTY),
        (0, NOT_COORDINATOR, 0, AGAIN),
        (0, 0, 15, AGAIN),
        (NON_EMPTY, 0, 0, NON_EMPTY),
        (NOT_COORDINATOR, 0, 0, NOT_COORDINATOR),
    ],
)
def test_what_a_client_hears_of_a_group_is_what_is_left_of_it(home: int, west: int, found: int, told: int) -> None:
    clusters = coordinators(home, west, found=found)
    assert deleted(2, clusters) == {"g": told}
    if home not in (0, NOT_FOUND):
        assert [place for place, _, _ in clusters.heard] == [EAST], "nothing elsewhere ends before home agrees"


def test_no_group_is_deleted_while_a_cluster_is_away_or_by_another_broker() -> None:
    clusters = coordinators()
    assert deleted(2, clusters, now=seen(away=("west",))) == {"g": AGAIN}
    for place in (WEST, None):
        assert deleted(2, clusters, place=place) == {"g": NOT_COORDINATOR}
    assert clusters.heard == []


def test_a_coordinator_elsewhere_that_says_nothing_is_looked_for_again() -> None:
    silent, ours = coordinators(silent=True), session()
    for tries in (1, 2):
        body, _ = carried(ours.move(asked(DELETE_GROUPS, 2, groups_names=("g",)), seen()), silent)
        found = by_kio(DELETE_GROUPS, 2, body)
        assert codes(found.results, "group_id") == {"g": AGAIN}, "the client asks again, until all of it has ended"
        assert [key for _, key, _ in silent.heard].count(FIND_COORDINATOR) == tries


def test_a_cluster_that_hangs_is_asked_for_one_group_and_not_for_all() -> None:
    for clusters in (coordinators(silent=True), coordinators(found=15)):
        found = played(asked(DELETE_GROUPS, 2, groups_names=("g", "h", "i")), clusters)
        assert codes(found.results, "group_id") == dict.fromkeys("ghi", AGAIN)
        assert [key for _, key, _ in clusters.heard].count(FIND_COORDINATOR) == 1


def test_nothing_of_groups_ends_while_they_move() -> None:
    moving = HomeRoute("east", 1, held=True)
    now = replace(seen(), leads={GROUPS_HOME: moving})
    for asks in (asked(DELETE_GROUPS, 2, groups_names=("g",)), ends("orders")):
        move = session().move(asks, now)
        assert isinstance(move, ParkRequest)
        assert move.refusal is not None
    # Where they are at home then, they end first.
    there = replace(seen(), leads={GROUPS_HOME: HomeRoute("west", 2)})
    clusters = coordinators(home=NON_EMPTY)
    assert deleted(2, clusters, now=there, place=EAST) == {"g": NOT_COORDINATOR}
    assert deleted(2, clusters, now=there, place=WEST_KEEPS) == {"g": NON_EMPTY}
    assert next(place for place, key, _ in clusters.heard if key == DELETE_GROUPS) == WEST_KEEPS


def ends(*topics: str) -> Any:
    kind, part = asked_part(OFFSET_DELETE, 0, "topics"), asked_part(OFFSET_DELETE, 0, "topics", "partitions")
    return asked(
        OFFSET_DELETE,
        0,
        group_id="g",
        topics=tuple(
            build_message(kind, name=name, partitions=(build_message(part, partition_index=0),)) for name in topics
        ),
    )


def ended(clusters: Clusters, *topics: str) -> dict[str, int]:
    found = played(ends(*topics), clusters)
    assert int(found.error_code) == 0
    return {str(one.name): int(one.partitions[0].error_code) for one in found.topics}


def test_places_end_where_they_live() -> None:
    assert isinstance(session().move(ends("orders", "shared"), seen()), ForwardRequest)
    clusters = coordinators()
    assert ended(clusters, "orders", "bills") == {"orders": 0, "bills": 0}
    assert {
        place: [str(one.name) for one in found.topics] for place, key, found in clusters.heard if key == OFFSET_DELETE
    } == {
        EAST: ["orders"],
        WEST_KEEPS: ["bills"],
    }
    for place in (WEST, None):
        assert int(played(ends("orders"), clusters, place=place).error_code) == NOT_COORDINATOR


def test_places_elsewhere_stay_while_the_group_has_members() -> None:
    of_newer = coordinators(home=SUBSCRIBED, described=NOT_FOUND, state="Dead", newer=("me",))
    for clusters in (coordinators(home=SUBSCRIBED, state="Stable"), of_newer):
        assert ended(clusters, "orders", "bills") == {"orders": SUBSCRIBED, "bills": SUBSCRIBED}
        assert WEST_KEEPS not in {place for place, _, _ in clusters.heard}


@pytest.mark.parametrize(
    ("clusters", "told"),
    [
        (coordinators(home=NOT_FOUND), {"orders": 0, "bills": 0}),
        (coordinators(described=NOT_FOUND, state=""), {"orders": 0, "bills": 0}),
        (coordinators(west=NOT_COORDINATOR), {"orders": 0, "bills": AGAIN}),
        (coordinators(found=15), {"orders": 0, "bills": AGAIN}),
        (coordinators(silent=True), {"orders": 0, "bills": AGAIN}),
    ],
)
def test_one_that_fails_says_so_at_its_own_topics(clusters: Clusters, told: dict[str, int]) -> None:
    assert ended(clusters, "orders", "bills") == told


def test_a_group_of_which_home_cannot_say_whether_it_has_members_is_left_alone() -> None:
    assert int(played(ends("bills"), coordinators(described=15)).error_code) == AGAIN
    assert int(played(ends("bills"), coordinators(described=NOT_FOUND, newer=None)).error_code) == AGAIN
    assert int(played(ends("bills"), coordinators(west=NOT_FOUND)).error_code) == NOT_FOUND
