"""What becomes of one client's fetches where its site has a twin: it is led there, waits there, and is sent home."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.near_stage import ELSEWHERE, PARIS, client, known, level_at, look, near
from tests.proxy.talks import (
    EAST,
    LAYOUT,
    WEST,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    request,
    said_part,
    told,
    view,
)
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, METADATA, PRODUCE
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.breakers import CircuitBreakers
from twinshore.proxy.core.follower_fetch import (
    REDIRECT_INTERVAL_MIN_S,
    SESSION_CHECK_INTERVAL_S,
    FollowerFetchRules,
    NetworkTable,
    TwinLogBounds,
)
from twinshore.proxy.core.message_codec import build_message
from twinshore.proxy.core.model import BrokerId, ForwardRequest, HomeRoute, RespondLater, RespondNow
from twinshore.proxy.core.session import ClientSession
from twinshore.state.core.proxy_values import BreakerKind, BreakerPolicy, BreakerRow, BreakerState

NOT_HERE, OUT_OF_RANGE, NO_SESSION, DENIED = 6, 1, 70, 29
WEST_2 = LAYOUT.number("west", 2)


def wanted(
    *topics: str,
    at: int = 50,
    version: int = 12,
    session_id: int = 0,
    epoch: int = -1,
    rack: str = "",
    replica: int = -1,
) -> Request:
    parts = [fetch.FetchRequestPartition(topic, 0, at, 1000) for topic in topics]
    body = fetch.FetchRequest(500, 1, 1 << 20, 0, parts, session_id, epoch, (), rack, (replica, -1))
    return request(FETCH, version, [fetch.write_fetch_request(version, body)])


def said(body: memoryview, version: int = 12) -> dict[str, tuple[int, int, bytes]]:
    """Error, preferred replica and records by topic."""
    found = fetch.read_fetch_response(body, 0, version)
    assert found.error == 0, found
    return {str(one.topic): (one.error, one.preferred_replica, bytes(one.records or b"")) for one in found.fetched}


def fetched(*topics: str, session_id: int = 0, **values: Any) -> memoryview:
    parts = [fetch.FetchResponsePartition(topic, 0, 0, 9, 9, records=b"batch")._replace(**values) for topic in topics]
    return view(list(fetch.write_fetch_response(12, fetch.FetchResponse(0, 0, session_id, parts))))


def passed(move: object) -> ForwardRequest:
    assert isinstance(move, ForwardRequest), move
    assert move.rewrite is not None
    return move


def heard(move: object, body: memoryview) -> tuple[memoryview, float]:
    """What the client is told, and after how long."""
    told = passed(move).rewrite(body, 0)  # type: ignore[misc]
    if isinstance(told, RespondLater):
        return view(told.body), told.wait_s
    return (body if told is None else view(told)), 0.0


def test_a_client_whose_site_has_a_fresh_twin_is_led_there() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, EAST)
    body = told(talk.move(wanted("orders", "shared"), now))
    assert said(body) == {"orders": (0, WEST_2, b""), "shared": (0, -1, b"")}
    at_twin = client(made, WEST)
    assert passed(at_twin.move(wanted("orders"), now)).place == WEST
    assert made.led == 1


def test_nobody_else_is_led_anywhere() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    for move in (
        client(made, EAST, "10.1.0.9").move(wanted("orders"), now),
        client(made, EAST, ELSEWHERE).move(wanted("orders"), now),
        client(made, EAST).move(wanted("orders", version=11), now),
        client(made, EAST).move(wanted("orders", replica=-2), now),
        client(near(), EAST).move(wanted("orders"), now),
        client(made, EAST).move(wanted("shared"), now),
    ):
        assert passed(move).place == EAST


def test_a_client_without_a_network_may_name_its_site_as_its_rack() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    assert said(told(client(made, EAST, ELSEWHERE).move(wanted("orders", rack="paris"), now)))["orders"][1] == WEST_2
    assert passed(client(made, EAST, ELSEWHERE).move(wanted("orders", rack="eu-1a"), now)).place == EAST
    assert passed(client(made, EAST, "10.1.0.9").move(wanted("orders", rack="paris"), now)).place == EAST


def test_what_is_wanted_for_the_first_time_is_read_at_home_and_looked_at() -> None:
    made, now = near(), known()
    made.tick(100, now)
    assert passed(client(made, EAST).move(wanted("orders"), now)).place == EAST
    assert made.wanted() == ["orders"]
    client(made, EAST).move(wanted("bills", "nowhere"), now)
    assert made.wanted() == ["orders"], "nobody near has another"


def test_a_place_before_the_twin_begins_is_read_at_home() -> None:
    made, now = near(), known()
    made.tick(100, now)
    made.wants("orders")
    made.take([look(100, twin=TwinLogBounds(2, 60, 100))])
    made.tick(100, now)
    assert passed(client(made, EAST).move(wanted("orders", at=59), now)).place == EAST
    assert said(told(client(made, EAST).move(wanted("orders", at=60), now)))["orders"][1] == WEST_2


def test_whoever_comes_back_soon_is_let_be_for_a_while() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, EAST)
    told(talk.move(wanted("orders"), now))
    assert passed(talk.move(wanted("orders"), now)).place == EAST
    level_at(made, 100 + REDIRECT_INTERVAL_MIN_S, now)
    assert said(told(talk.move(wanted("orders"), now)))["orders"][1] == WEST_2


def test_a_session_at_home_is_opened_anew_once_there_is_somewhere_to_go() -> None:
    made, now = near(), known()
    made.tick(100, now)
    talk = client(made, EAST)
    heard(talk.move(wanted("orders", "shared", epoch=0), now), fetched("orders", "shared", session_id=7))
    assert passed(talk.move(wanted(session_id=7, epoch=1), now)).place == EAST
    level_at(made, 101, now)
    made.tick(111, now)
    level_at(made, 111, now)
    over = fetch.read_fetch_response(told(talk.move(wanted(session_id=7, epoch=2), now)), 0, 12)
    assert over.error == NO_SESSION
    assert said(told(talk.move(wanted("orders", "shared", epoch=0), now)))["orders"][1] == WEST_2
    heard(talk.move(wanted("shared", epoch=0), now), fetched("shared", session_id=8))
    assert passed(talk.move(wanted(session_id=8, epoch=1), now)).place == EAST


def test_a_session_of_a_client_that_cannot_be_led_goes_on() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, EAST)
    opened = passed(talk.move(wanted("orders", epoch=0, version=11), now))
    assert opened.rewrite is not None
    opened.rewrite(view(list(fetch.write_fetch_response(11, fetch.FetchResponse(0, 0, 7, [])))), 0)
    for number in range(1, 4):
        made.tick(100 + 40 * number, now)
        level_at(made, 100 + 40 * number, now)
        assert passed(talk.move(wanted(session_id=7, epoch=number, version=11), now)).place == EAST


def test_a_session_of_whoever_came_back_is_led_again_after_a_while() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, EAST)
    told(talk.move(wanted("orders"), now))
    heard(talk.move(wanted("orders", epoch=0), now), fetched("orders", session_id=7))
    for number, at_s in enumerate((101.0, 131.0, 161.0), 1):
        level_at(made, at_s, now)
        assert passed(talk.move(wanted(session_id=7, epoch=number), now)).place == EAST, at_s
    level_at(made, 161 + SESSION_CHECK_INTERVAL_S, now)
    assert isinstance(talk.move(wanted(session_id=7, epoch=4), now), RespondNow)


def test_a_session_keeps_its_topics_looked_at() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, WEST)
    heard(talk.move(wanted("orders", epoch=0), now), fetched("orders", session_id=7))
    for number in range(1, 30):
        made.tick(100 + 10 * number, now)
        made.take([look(100 + 10 * number)])
        made.tick(100 + 10 * number, now)
        assert passed(talk.move(wanted(session_id=7, epoch=number), now)).place == WEST, number


def test_whoever_reads_a_twin_goes_home_once_it_is_not_to_be_read() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk, other = client(made, WEST), client(made, WEST)
    heard(talk.move(wanted("orders", "bills", epoch=0), now), fetched("orders", "bills", session_id=7))
    assert passed(talk.move(wanted(session_id=7, epoch=1), now)).place == WEST
    made.tick(106, now)
    over = fetch.read_fetch_response(told(talk.move(wanted(session_id=7, epoch=2), now)), 0, 12)
    assert over.error == NO_SESSION
    body, asks = carried(talk.move(wanted("orders", "bills", epoch=0), now), lambda _: fetched("bills"))
    assert said(body) == {"bills": (0, -1, b"batch"), "orders": (NOT_HERE, -1, b"")}
    assert [one.topic for one in fetch.read_fetch_request(view(asks[0].body), 0, 12).wanted] == ["bills"]
    assert said(told(other.move(wanted("orders"), now))) == {"orders": (NOT_HERE, -1, b"")}


def test_a_switch_sends_readers_of_a_twin_home_and_leaves_them_where_it_becomes_home() -> None:
    made, before = near(), known(orders=HomeRoute("east", 1))
    level_at(made, 100, before, term=1)
    talk = client(made, WEST)
    assert passed(talk.move(wanted("orders"), before)).place == WEST
    held = known(orders=HomeRoute("east", 1, held=True, moves=True))
    made.tick(100.1, held)
    assert said(told(talk.move(wanted("orders"), held)))["orders"][0] == NOT_HERE
    moved = known(orders=HomeRoute("west", 2))
    made.tick(100.2, moved)
    assert passed(talk.move(wanted("orders"), moved)).place == WEST
    assert said(told(client(made, EAST).move(wanted("orders"), moved)))["orders"][0] == NOT_HERE


def test_whoever_comes_to_a_twin_before_it_was_looked_at_waits_a_moment() -> None:
    made, now = near(), known()
    made.tick(100, now)
    move = client(made, WEST).move(wanted("orders", "bills"), now)
    assert isinstance(move, RespondLater)
    assert said(view(move.body)) == {"orders": (0, -1, b""), "bills": (0, -1, b"")}
    made.tick(104, now)
    assert said(told(client(made, WEST).move(wanted("orders"), now)))["orders"][0] == NOT_HERE


def test_a_place_that_the_twin_has_not_reached_waits_for_it() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    talk = client(made, WEST)
    lost = fetched("orders", session_id=7, error=OUT_OF_RANGE, records=b"")
    body, wait_s = heard(talk.move(wanted("orders", at=101, epoch=0), now), lost)
    assert (said(body), wait_s > 0) == ({"orders": (0, -1, b"")}, True)
    level_at(made, 104, now)
    body, wait_s = heard(talk.move(wanted(session_id=7, epoch=1), now), lost)
    assert (said(body), wait_s > 0) == ({"orders": (0, -1, b"")}, True), "it is not named again"
    level_at(made, 106, now)
    body, wait_s = heard(talk.move(wanted(session_id=7, epoch=2), now), lost)
    assert (said(body), wait_s) == ({"orders": (NOT_HERE, -1, b"")}, 0.0), "for so long, and then home says it"


def test_records_of_others_do_not_wait_for_a_place_that_is_ahead() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    parts = [
        fetch.FetchResponsePartition("orders", 0, OUT_OF_RANGE, -1, -1),
        fetch.FetchResponsePartition("bills", 0, 0, 9, 9, records=b"batch"),
    ]
    body = view(list(fetch.write_fetch_response(12, fetch.FetchResponse(0, 0, 0, parts))))
    found, wait_s = heard(client(made, WEST).move(wanted("orders", "bills", at=101), now), body)
    assert (said(found), wait_s) == ({"orders": (0, -1, b""), "bills": (0, -1, b"batch")}, 0.0)


@pytest.mark.parametrize(
    ("at", "error"), [(100, OUT_OF_RANGE), (5, OUT_OF_RANGE), (50, DENIED), (50, 3), (50, NOT_HERE)]
)
def test_whatever_else_is_wrong_at_a_twin_sends_its_reader_home(at: int, error: int) -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    lost = fetched("orders", "bills", error=error, records=b"")
    body, wait_s = heard(client(made, WEST).move(wanted("orders", "bills", at=at), now), lost)
    assert (said(body), wait_s) == ({"orders": (NOT_HERE, -1, b""), "bills": (error, -1, b"")}, 0.0)
    assert made.redirected_home == 1


def test_bytes_that_are_read_at_a_twin_are_counted_and_stay_as_they_came() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    move = passed(client(made, WEST).move(wanted("orders", "bills"), now))
    assert move.rewrite is not None
    assert move.rewrite(fetched("orders", "bills"), 0) is None
    assert made.bytes_read == {"west": len(b"batch")}


def test_records_are_written_at_home_alone() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    sent = produce.write_produce_request(
        9, produce.ProduceRequest(None, -1, 1000, [produce.ProduceRequestPartition("orders", 0, b"x")])
    )
    body = told(client(made, WEST).move(request(PRODUCE, 9, sent), now))
    assert produce.read_produce_response(body, 0, 9).appended[0].error == NOT_HERE
    assert passed(client(made, EAST).move(request(PRODUCE, 9, sent), now)).place == EAST


@pytest.mark.parametrize("all_topics", [True, False])
@pytest.mark.parametrize(("address", "replicas"), [(PARIS, (1, WEST_2)), ("10.1.0.9", (1,)), (ELSEWHERE, (1,))])
def test_who_leads_the_twin_is_told_as_a_replica_to_clients_of_its_site(
    all_topics: bool, address: str, replicas: tuple[int, ...]
) -> None:
    now = known()
    part = said_part(METADATA, 9, "topics", "partitions")
    topic = said_part(METADATA, 9, "topics")

    def broker(ask: Any) -> memoryview:
        node = 1 if ask.place.cluster == "east" else 2
        one = {"partition_index": 0, "leader_id": node, "leader_epoch": 4}
        made = build_message(part, **one, replica_nodes=(node,), isr_nodes=(node,))
        whole = build_message(topic, name="orders", partitions=(made,))
        return answer(METADATA, 9, topics=(whole,))

    named = None if all_topics else (build_message(asked_part(METADATA, 9, "topics"), name="orders"),)
    move = client(near(), EAST, address).move(asked(METADATA, 9, topics=named), now)
    body, _ = carried(move, broker)
    (found,) = by_kio(METADATA, 9, body).topics
    (one,) = found.partitions
    assert (one.leader_id, one.replica_nodes, one.isr_nodes) == (1, replicas, (1,))


def test_a_breaker_on_another_topic_leaves_it_all_as_it_is() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    row = BreakerRow(
        "bills", "*", BreakerKind.FETCH, BreakerState.OPEN, BreakerPolicy.REFUSE, "too much", "anna", since_ms=1_000
    )
    box = CircuitBreakers()
    box.take([row], 1)

    def talk(place: BrokerId) -> ClientSession:
        found = ClientSession(place, LAYOUT, lambda: None, box, follower_fetch=made)
        found.comes_from(PARIS)
        return found

    body = told(talk(EAST).move(wanted("orders", "bills"), now))
    assert said(body) == {"orders": (0, WEST_2, b""), "bills": (0, -1, b"")}
    lost = fetched("orders", error=OUT_OF_RANGE, records=b"")
    body, wait_s = heard(talk(WEST).move(wanted("orders", "bills", at=101), now), lost)
    assert (said(body), wait_s > 0) == ({"orders": (0, -1, b""), "bills": (0, -1, b"")}, True)


def test_a_connected_client_goes_by_the_networks_that_are_in_force() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    at_home, at_twin, by_rack = client(made, EAST, ELSEWHERE), client(made, WEST), client(made, WEST, ELSEWHERE)
    assert passed(at_home.move(wanted("orders"), now)).place == EAST
    assert passed(at_twin.move(wanted("orders"), now)).place == WEST
    assert passed(by_rack.move(wanted("orders", rack="paris"), now)).place == WEST
    made.obey(made.rules, NetworkTable([("192.168.0.0/16", "paris"), ("10.2.0.0/16", "frankfurt")]), now)
    assert said(told(at_home.move(wanted("orders"), now)))["orders"][1] == WEST_2
    assert said(told(at_twin.move(wanted("orders"), now)))["orders"][0] == NOT_HERE
    assert passed(by_rack.move(wanted("orders", rack="paris"), now)).place == WEST
    made.obey(made.rules, NetworkTable([("10.2.0.0/16", "paris")]), now)
    assert passed(at_twin.move(wanted("orders"), now)).place == WEST


def test_a_session_at_a_twin_ends_once_its_client_is_of_another_site() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    at_twin = client(made, WEST)
    opened = passed(at_twin.move(wanted("orders", epoch=0), now))
    heard(opened, fetched("orders", session_id=7))
    assert passed(at_twin.move(wanted(session_id=7, epoch=1), now)).place == WEST
    made.obey(made.rules, NetworkTable([("10.2.0.0/16", "frankfurt")]), now)
    answer_ = fetch.read_fetch_response(told(at_twin.move(wanted(session_id=7, epoch=2), now)), 0, 12)
    assert answer_.error == NO_SESSION


def test_a_site_without_networks_any_more_has_no_views() -> None:
    made, now = near(), known()
    level_at(made, 100, now)
    assert made.view("paris")
    made.obey(FollowerFetchRules(), NetworkTable([]), now)
    assert (made.view("paris"), made.site_of(PARIS)) == ({}, "")
