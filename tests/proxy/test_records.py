"""Records go through as they are; what names a broker, or a topic that is elsewhere, does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.talks import EAST, LAYOUT, WEST, carried, request, seen, session, told, view
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, PRODUCE
from twinshore.kafka.protocol.requests import Endpoint, Request
from twinshore.proxy.core.model import BrokerId, DiscardRequest, DisconnectClient, ForwardRequest, HomeRoute
from twinshore.proxy.core.session import ClientSession

NOT_HERE, TIMED_OUT, NO_SESSION = 6, 7, 70


def sent(*topics: str, version: int = 11, acks: int = -1, transactional: str | None = None) -> Request:
    batches = [produce.ProduceRequestPartition(topic, 0, b"batch of " + topic.encode()) for topic in topics]
    body = produce.write_produce_request(version, produce.ProduceRequest(transactional, acks, 1500, batches))
    return request(PRODUCE, version, body)


def codes(body: memoryview, version: int = 11) -> dict[str, int]:
    return {str(one.topic): one.error for one in produce.read_produce_response(body, 0, version).appended}


def passed(move: object) -> ForwardRequest:
    assert isinstance(move, ForwardRequest), move
    return move


@pytest.mark.parametrize("version", range(3, 12))
def test_records_for_topics_that_are_here_go_through_as_they_came(version: int) -> None:
    move = passed(session().move(sent("orders", "shared", version=version), seen()))
    assert (move.place, move.answered) == (EAST, True)
    assert move.wait_s > 30
    assert not passed(session().move(sent("orders", acks=0, version=version), seen())).answered


def test_an_answer_that_names_no_broker_stays_as_it_came() -> None:
    move = passed(session().move(sent("orders"), seen()))
    assert move.rewrite is not None
    body = produce.write_produce_response(11, produce.ProduceResponse([produce.ProducedPartition("orders", 0, 0, 41)]))
    assert move.rewrite(memoryview(body), 0) is None


def test_of_a_new_leader_nothing_is_passed_on_and_the_clusters_are_looked_at_again() -> None:
    looks: list[None] = []
    move = passed(session(news=lambda: looks.append(None)).move(sent("orders"), seen()))
    assert move.rewrite is not None
    said = produce.ProduceResponse(
        [produce.ProducedPartition("orders", 0, NOT_HERE, -1, current_leader=(3, 9))],
        0,
        [Endpoint(3, "e3", 9092, "az")],
    )
    body = move.rewrite(memoryview(produce.write_produce_response(11, said)), 0)
    assert body is not None
    found = produce.read_produce_response(view(body), 0, 11)
    assert (found.appended[0].current_leader, found.endpoints) == (None, [])
    assert b"e3" not in view(body).tobytes(), "a broker's own address"
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("lead", "heard"),
    [
        (HomeRoute("east", 1, held=True), 6),
        (HomeRoute("west", 2), 6),
        (HomeRoute("east", 1), 29),
        (HomeRoute("east", 1, ran_out=True), 6),
    ],
)
def test_whom_a_switch_keeps_out_by_rules_is_told_to_look_again(lead: HomeRoute, heard: int) -> None:
    known = replace(seen(), leads={"orders": lead})
    talk = ClientSession(EAST, LAYOUT, lambda: None, now=lambda: known)
    move = passed(talk.move(sent("orders"), seen()))
    assert move.rewrite is not None
    said = produce.write_produce_response(11, produce.ProduceResponse([produce.ProducedPartition("orders", 0, 29, -1)]))
    parts = move.rewrite(memoryview(said), 0)
    assert parts is not None
    assert codes(view(parts)) == {"orders": heard}


@pytest.mark.parametrize(("lead", "heard"), [(HomeRoute("east", 1, held=True), 6), (HomeRoute("east", 1), 29)])
def test_whom_a_switch_keeps_out_of_a_part_is_told_to_look_again_too(lead: HomeRoute, heard: int) -> None:
    known = replace(seen(), leads={"orders": lead})
    talk = ClientSession(EAST, LAYOUT, lambda: None, now=lambda: known)
    said = view(
        produce.write_produce_response(11, produce.ProduceResponse([produce.ProducedPartition("orders", 0, 29, -1)]))
    )
    body, _ = carried(talk.move(sent("bills", "orders"), seen()), lambda _: said)
    assert codes(body) == {"bills": NOT_HERE, "orders": heard}


@pytest.mark.parametrize("place", [EAST, None])
def test_records_for_another_cluster_are_refused_so_that_the_client_looks_again(place: BrokerId | None) -> None:
    assert codes(told(session(place).move(sent("bills"), seen()))) == {"bills": NOT_HERE}


def test_records_for_two_clusters_are_parted_and_the_answers_joined() -> None:
    move = session().move(sent("bills", "orders"), seen())
    appended = produce.ProduceResponse([produce.ProducedPartition("orders", 0, 0, 41)], 5)
    body, asks = carried(move, lambda _: view(produce.write_produce_response(11, appended)))
    assert [one.place for one in asks] == [EAST]
    part = produce.read_produce_request(view(asks[0].body), 0, 11)
    assert [(one.topic, bytes(one.records or b"")) for one in part.batches] == [("orders", b"batch of orders")]
    assert codes(body) == {"bills": NOT_HERE, "orders": 0}
    body, _ = carried(session().move(sent("bills", "orders"), seen()), lambda _: None)
    assert codes(body) == {"bills": NOT_HERE, "orders": TIMED_OUT}


def test_whoever_waits_for_no_answer_gets_none() -> None:
    assert isinstance(session().move(sent("bills", acks=0), seen()), DisconnectClient)
    assert isinstance(session().move(sent("bills", "orders", acks=0), seen()), DisconnectClient)
    assert session().move(sent(acks=0), seen()) == DiscardRequest()


def test_records_of_a_transaction_pass_where_groups_are_at_home() -> None:
    assert passed(session().move(sent("orders", transactional="tx"), seen())).place == EAST
    assert codes(told(session(WEST).move(sent("bills", transactional="tx"), seen()))) == {"bills": 48}


def wanted(*topics: str, version: int = 12, session_id: int = 0, epoch: int = 0, dropped: str = "") -> Request:
    gone = [fetch.ForgottenPartition(dropped, 0)] if dropped else []
    parts = [fetch.FetchRequestPartition(topic, 0, 5, 1000) for topic in topics]
    asked = fetch.FetchRequest(500, 1, 1 << 20, 0, parts, session_id, epoch, gone)
    return request(FETCH, version, [fetch.write_fetch_request(version, asked)])


def fetched(*topics: str, session_id: int = 0, **values: Any) -> memoryview:
    parts = [fetch.FetchResponsePartition(topic, 0, 0, 9, 9, records=b"batch")._replace(**values) for topic in topics]
    return view(list(fetch.write_fetch_response(12, fetch.FetchResponse(0, 0, session_id, parts))))


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_of_what_is_here_goes_through_as_it_came(version: int) -> None:
    assert passed(session().move(wanted("orders", version=version), seen())).place == EAST


def test_a_leader_epoch_that_a_client_read_in_a_batch_is_not_passed_on() -> None:
    """Its broker would refuse it for ever once there was another leader."""
    parts = [
        fetch.FetchRequestPartition("orders", 0, 5, 1000, leader_epoch=3, last_fetched_epoch=3),
        fetch.FetchRequestPartition("shared", 0, 5, 9),
    ]
    asked = fetch.FetchRequest(500, 1, 1 << 20, 0, parts)
    move = passed(session().move(request(FETCH, 12, [fetch.write_fetch_request(12, asked)]), seen()))
    assert move.body is not None
    found = fetch.read_fetch_request(view(move.body), 0, 12)
    assert [(one.topic, one.position, one.leader_epoch, one.last_fetched_epoch) for one in found.wanted] == [
        ("orders", 5, -1, -1),
        ("shared", 5, -1, -1),
    ]
    assert passed(session().move(wanted("orders"), seen())).body is None


def test_what_is_fetched_stays_as_it_came_unless_it_names_a_broker() -> None:
    move = passed(session(WEST).move(wanted("bills"), seen()))
    assert move.rewrite is not None
    assert move.rewrite(fetched("bills"), 0) is None
    body = move.rewrite(fetched("bills", preferred_replica=2, current_leader=(3, 8)), 0)
    assert body is not None
    (found,) = fetch.read_fetch_response(view(body), 0, 12).fetched
    assert (found.preferred_replica, found.current_leader, bytes(found.records or b"")) == (102, None, b"batch")


def test_a_session_is_the_broker_s_until_a_topic_of_it_moves() -> None:
    ours, before = session(), seen()
    move = passed(ours.move(wanted("orders", "shared"), before))
    assert move.rewrite is not None
    move.rewrite(fetched("orders", "shared", session_id=77), 0)
    assert passed(ours.move(wanted(session_id=77, epoch=1), before)).place == EAST
    moved = seen(homes={"shared": "west"})
    body = told(ours.move(wanted(session_id=77, epoch=2), moved))
    assert fetch.read_fetch_response(body, 0, 12).error == NO_SESSION
    # What the client asks next goes without a session: what is refused here would be missing from the broker's.
    body, asks = carried(ours.move(wanted("orders", "shared"), moved), lambda _: fetched("orders"))
    part = fetch.read_fetch_request(view(asks[0].body), 0, 12)
    assert (part.session_epoch, [one.topic for one in part.wanted], part.max_wait_ms) == (-1, ["orders"], 0)
    found = fetch.read_fetch_response(body, 0, 12)
    assert (found.session_id, {one.topic: one.error for one in found.fetched}) == (0, {"orders": 0, "shared": NOT_HERE})


def test_a_session_that_let_the_moved_topic_go_goes_on() -> None:
    ours = session()
    move = passed(ours.move(wanted("orders", "shared"), seen()))
    assert move.rewrite is not None
    move.rewrite(fetched("orders", "shared", session_id=77), 0)
    assert passed(ours.move(wanted(session_id=77, epoch=1, dropped="shared"), seen(homes={"shared": "west"})))


def test_a_session_that_is_not_known_here_is_opened_anew() -> None:
    ours = session()
    assert fetch.read_fetch_response(told(ours.move(wanted(session_id=5, epoch=3), seen())), 0, 12).error == NO_SESSION
    move = passed(ours.move(wanted("orders"), seen()))
    assert move.rewrite is not None
    move.rewrite(fetched("orders", session_id=6), 0)
    lost = fetch.write_fetch_response(12, fetch.FetchResponse(0, NO_SESSION, 0, []))
    going = passed(ours.move(wanted(session_id=6, epoch=1), seen()))
    assert going.rewrite is not None
    going.rewrite(view(list(lost)), 0)
    assert fetch.read_fetch_response(told(ours.move(wanted(session_id=6, epoch=2), seen())), 0, 12).error == NO_SESSION


@pytest.mark.parametrize("place", [EAST, None])
def test_a_fetch_of_what_is_elsewhere_is_refused(place: BrokerId | None) -> None:
    found = fetch.read_fetch_response(told(session(place).move(wanted("bills", version=12), seen())), 0, 12)
    assert [(one.topic, one.error) for one in found.fetched] == [("bills", NOT_HERE)]


def test_a_fetch_over_two_clusters_says_at_once_what_has_moved() -> None:
    body, _ = carried(session().move(wanted("bills", "orders", epoch=-1), seen()), lambda _: None)
    assert {one.error for one in fetch.read_fetch_response(body, 0, 12).fetched} == {NOT_HERE}
