"""Producers whose topics came by force: what had crossed is known again, and what nobody knows of is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import LAYOUT, WEST, carried, session, view
from tests.proxy.test_moved import MINE, STALE, TAG, TWICE, leads, line, moved, records, sent
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN
from twinshore.proxy.core.model import (
    UNKNOWN_RECORDS,
    ForwardRequest,
    HomeRoute,
    ProducerTail,
    RoutingTable,
    add_term_stamp,
    assume_unknown_tails,
    build_replicated_tails,
    get_term_stamp,
)
from twinshore.proxy.core.record_requests import check_sequence, find_duplicate_offset, parse_batch
from twinshore.proxy.core.session import ClientSession
from twinshore.proxy.core.traffic import TrafficTable
from twinshore.proxy.lazy_store import describe_unknown_tails
from twinshore.routing.core.home_records import HomeConflict
from twinshore.state.core.values import ReplicatedPrefix, SourceBatch, SourceProducer

BATCHES = SourceBatch(0, 4, 100, 1), SourceBatch(5, 9, 107, 1)
KNOWN = ProducerTail(3, 9, True, BATCHES)
TORN = HomeRoute("west", 2, torn="east->west", points=(112, 0))


def forced(known: ProducerTail | None = KNOWN, *, unsure: bool = False) -> RoutingTable:
    """The topic is on west, whereto it came by force."""
    seen = moved(TORN)
    wrote = {("shared", 0): {MINE: known}} if known else {}
    return replace(seen, wrote=wrote, unsure={("shared", 0): 9} if unsure else {})


def counted() -> tuple[ClientSession, TrafficTable]:
    flows = TrafficTable()
    return ClientSession(WEST, LAYOUT, lambda: None, traffic=flows), flows


def answer_to(first: int, count: int = 1, epoch: int = 3, known: ProducerTail = KNOWN) -> produce.ProducedPartition:
    data = records(first, count, epoch=epoch)
    body, asks = carried(session(WEST).move(sent(data), forced(known)), lambda _: None)
    assert asks == []
    (one,) = produce.read_produce_response(body, 0, 11).appended
    return one


def test_a_line_says_how_its_topic_came_by_force() -> None:
    told = replace(line("west", 2, how="forced"), link="east->west", points=(112, 0))
    assert leads(told).torn == TORN.torn, "also for a proxy that has just begun"
    assert (leads(told).came, leads(told).sound) == ("", 2)
    assert leads(told, replace(told, step=7)).torn == TORN.torn
    assert leads(told, since_ms=5_001).torn is None, "nobody sends again what is that old"
    assert leads(told, line("east", 3, how="planned")).torn is None


@pytest.mark.parametrize(("first", "count", "offset"), [(0, 5, 100), (5, 5, 107)])
def test_a_batch_that_had_crossed_is_told_as_written_where_it_is(first: int, count: int, offset: int) -> None:
    one = answer_to(first, count)
    assert (one.error, one.base_offset) == (0, offset)


@pytest.mark.parametrize(("first", "count"), [(9, 1), (3, 2), (SEQUENCE_SPAN - 5, 3)])
def test_one_that_lies_before_and_of_which_no_place_is_known_is_told_as_a_second_one(first: int, count: int) -> None:
    """All that a producer wrote before what crossed has crossed."""
    assert answer_to(first, count).error == TWICE


def test_its_place_is_known_where_numbers_begin_anew() -> None:
    batch = SourceBatch(SEQUENCE_SPAN - 2, 1, 300, 1)
    one = answer_to(SEQUENCE_SPAN - 2, 4, known=ProducerTail(3, 1, True, (batch,)))
    assert (one.error, one.base_offset) == (0, 300)


def test_whose_producer_was_shut_out_stays_so() -> None:
    assert answer_to(5, 5, epoch=2).error == STALE


@pytest.mark.parametrize(("first", "epoch"), [(10, 3), (11, 3), (500, 3), (0, 4)])
def test_what_lies_behind_goes_on_also_where_something_is_lost_before_it(first: int, epoch: int) -> None:
    move = session(WEST).move(sent(records(first, epoch=epoch)), forced())
    assert isinstance(move, ForwardRequest) and move.body is not None
    (one,) = produce.read_produce_request(view(move.body), 0, 11).batches
    header = parse_batch(one.records)
    assert header is not None and header.producer_id == add_term_stamp(MINE, get_term_stamp(2))


def test_half_of_a_batch_never_crosses_so_it_is_refused() -> None:
    header = parse_batch(records(9, 2))
    assert header is not None
    assert check_sequence(header, KNOWN) is Code.out_of_order_sequence_number
    assert find_duplicate_offset(header, KNOWN) is None


def test_only_what_had_crossed_is_left_out_of_a_request() -> None:
    move = session(WEST).move(sent(records(5, 5), also="bills"), forced())
    given = produce.ProduceResponse([produce.ProducedPartition("bills", 0, 0, 5)])
    body, asks = carried(move, lambda _: view(produce.write_produce_response(11, given)))
    told = {str(one.topic): (one.error, one.base_offset) for one in produce.read_produce_response(body, 0, 11).appended}
    assert (told, len(asks)) == ({"shared": (0, 107), "bills": (0, 5)}, 1)


def test_both_are_counted_what_was_known_and_what_nobody_knew() -> None:
    talk, flows = counted()
    carried(talk.move(sent(records(5, 5)), forced()), lambda _: None)
    assert (flows.again.known, flows.again.unsure) == (5, 0)
    talk.move(sent(records(10, 3)), forced())
    assert flows.again.unsure == 0, "all that had crossed is known"
    first = talk.move(sent(records(10, 3)), forced(unsure=True))
    assert isinstance(first, ForwardRequest) and first.rewrite is not None
    talk.move(sent(records(13, 2)), forced(None, unsure=True))
    assert flows.again.unsure == 5
    said = produce.ProduceResponse([produce.ProducedPartition("shared", 0, 0, 41)])
    first.rewrite(memoryview(produce.write_produce_response(11, said)), 0)
    for number in range(5):
        talk.move(sent(records(15 + 2 * number, 2)), forced(unsure=True))
    assert flows.again.unsure == 9, "no more may be there than had crossed unknown"


def test_of_one_producer_no_more_than_five_batches_were_on_their_way() -> None:
    talk, flows = counted()
    known = replace(forced(None), unsure={("shared", 0): 100})
    for number in range(7):
        talk.move(sent(records(number)), known)
    assert flows.again.unsure == 5


def crossing(*ids: int, to_offset: int = 112, term: int = 2, all_known: bool = True) -> ReplicatedPrefix:
    return ReplicatedPrefix(term, to_offset, all_known, tuple(SourceProducer(one, 3, BATCHES) for one in ids))


def test_what_had_crossed_is_known_by_ids_as_clients_have_them() -> None:
    found = build_replicated_tails("shared", TORN, {("shared", 0): crossing(MINE, 4001, TAG | 1 << 40 | 5)})
    assert found == ({("shared", 0): {MINE: KNOWN}}, {})
    later = TORN._replace(term=3)
    old, new = add_term_stamp(MINE, get_term_stamp(1)), add_term_stamp(TAG | 4002, get_term_stamp(2))
    found = build_replicated_tails("shared", later, {("shared", 0): crossing(old, new)})
    assert found.wrote == {("shared", 0): {TAG | 4002: KNOWN}}, "of the term before alone"


def test_where_more_had_crossed_than_is_known_that_is_told() -> None:
    found = build_replicated_tails("shared", TORN, {("shared", 0): crossing(MINE, to_offset=100)})
    assert found.unsure == {("shared", 0): 12}
    assert found.wrote == {("shared", 0): {MINE: KNOWN}}, "what is known counts all the same"
    crowded = build_replicated_tails("shared", TORN, {("shared", 0): crossing(MINE, all_known=False)})
    assert crowded.unsure == {("shared", 0): UNKNOWN_RECORDS}
    nothing = build_replicated_tails("shared", TORN, {})
    assert nothing == assume_unknown_tails("shared", TORN) == ({}, {("shared", 0): 112}), "the second one had nothing"
    sure = build_replicated_tails("bills", TORN, {("bills", 0): crossing()})
    told = (
        "shared came by force, and of the last 12 offsets it is not known who wrote them: as much may be written twice"
    )
    assert describe_unknown_tails({"shared": found, "bills": sure}) == told
    assert "some were forgotten" in describe_unknown_tails({"shared": crowded})
    assert describe_unknown_tails({"bills": sure}) == ""


def test_what_a_new_home_has_lost_again_is_not_called_written() -> None:
    """Its point is where its log ended; receipts told of more."""
    found = build_replicated_tails("shared", TORN._replace(points=(110, 0)), {("shared", 0): crossing(MINE)})
    assert found.wrote == {("shared", 0): {MINE: ProducerTail(3, 4, True, BATCHES[:1])}}
    assert found.unsure == {}, "the rest is nowhere there, so it is written"
    lost = build_replicated_tails("shared", TORN._replace(points=(104, 0)), {("shared", 0): crossing(MINE)})
    assert (lost.wrote, lost.unsure) == ({}, {("shared", 0): UNKNOWN_RECORDS})


def test_a_move_that_was_heard_is_news_whatever_the_clocks_say() -> None:
    told = replace(line("west", 2, how="forced"), link="east->west", points=(112, 0))
    assert leads(line("east", 1), told, since_ms=5_001).torn == TORN.torn
    clash = HomeConflict(told, replace(told, points=(100, 0), switch="6" * 32))
    after = leads(clash, replace(told, step=9))
    assert (after.torn, after.sound) == (TORN.torn, 2), "also behind words that differed"
    assert leads(clash).held
