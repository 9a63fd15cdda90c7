"""Groups that move to another cluster: members gather, nothing is committed, and they are found where they are then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import EAST, WEST, asked, by_kio, carried, session, told, view
from tests.proxy.talks import seen as plain
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH
from twinshore.proxy.core.api_versions import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from twinshore.proxy.core.model import ForwardRequest, HomeRoute, ParkRequest, RequestDecision, RoutingTable
from twinshore.proxy.core.transaction_requests import TXN_OFFSET_COMMIT

LOADING, NOT_COORDINATOR, REBALANCING = 14, 16, 27
ANNOUNCED = HomeRoute("east", 1, moves=True)
HELD = HomeRoute("east", 1, held=True, moves=True)
MOVED = HomeRoute("west", 2, came="east")
AWAY = HomeRoute(None, 2)


def seen(lead: HomeRoute) -> RoutingTable:
    return replace(plain(), leads={GROUPS_HOME: lead})


def asks(key: int, lead: HomeRoute) -> RequestDecision:
    return session().move(asked(key, 4 if key == HEARTBEAT else 3, group_id="g"), seen(lead))


def error_of(key: int, move: RequestDecision) -> int:
    version = 4 if key == HEARTBEAT else 3
    body = view(move.refusal or []) if isinstance(move, ParkRequest) else told(move)
    return int(by_kio(key, version, body).error_code)


@pytest.mark.parametrize("lead", [ANNOUNCED, HELD, AWAY])
def test_members_are_told_to_join_anew_and_wait_then(lead: HomeRoute) -> None:
    assert error_of(HEARTBEAT, asks(HEARTBEAT, lead)) == REBALANCING
    join = asks(JOIN_GROUP, lead)
    assert isinstance(join, ParkRequest)
    assert error_of(JOIN_GROUP, join) == LOADING
    for key in (SYNC_GROUP, LEAVE_GROUP):
        assert isinstance(asks(key, lead), ForwardRequest), "it does no harm"


def commit(lead: HomeRoute) -> RequestDecision:
    return session().move(asked(OFFSET_COMMIT, 5, group_id="g"), seen(lead))


def test_they_commit_what_they_have_read_until_places_are_copied() -> None:
    passed = commit(ANNOUNCED)
    assert isinstance(passed, ForwardRequest)
    assert GROUPS_HOME in passed.topics, "the mover waits until it is answered"
    assert isinstance(commit(HELD), ParkRequest)
    assert isinstance(commit(AWAY), ParkRequest)
    assert isinstance(session().move(asked(OFFSET_FETCH, 5, group_id="g", topics=()), seen(HELD)), ForwardRequest)


def test_a_proxy_that_hears_of_no_switch_commits_no_place_and_has_members_wait() -> None:
    """No mover waits for it any more, so groups may be elsewhere by now."""
    deaf = plain().without(frozenset(plain().clusters))
    assert isinstance(session().move(asked(OFFSET_COMMIT, 5, group_id="g"), deaf), ParkRequest)
    assert isinstance(session().move(asked(TXN_OFFSET_COMMIT, 3, group_id="g"), deaf), ParkRequest)
    assert isinstance(session().move(asked(JOIN_GROUP, 3, group_id="g"), deaf), ParkRequest)
    assert error_of(HEARTBEAT, session().move(asked(HEARTBEAT, 4, group_id="g"), deaf)) == REBALANCING
    assert isinstance(session().move(asked(OFFSET_FETCH, 5, group_id="g", topics=()), deaf), ForwardRequest)


def test_then_they_are_found_at_their_new_home() -> None:
    for key in (HEARTBEAT, JOIN_GROUP, SYNC_GROUP):
        assert error_of(key, asks(key, MOVED)) == NOT_COORDINATOR
        there = session(WEST).move(asked(key, 3, group_id="g"), seen(MOVED))
        assert isinstance(there, ForwardRequest)
    assert seen(MOVED).group_home() == "west"
    _, questions = carried(session(EAST).move(asked(FIND_COORDINATOR, 3, key="g"), seen(MOVED)), lambda _: None)
    assert [one.place.cluster for one in questions] == ["west"]


def test_places_in_topics_that_their_home_has_not_live_with_the_topic() -> None:
    assert [seen(MOVED).stays(topic) for topic in ("orders", "bills", "shared")] == [False, True, True]
