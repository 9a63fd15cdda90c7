"""Producers whose topics move: which ids they write under, what is held, what comes twice and what too early."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import EAST, WEST, answer, carried, request, said_part, seen, session, view
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import DESCRIBE_PRODUCERS, PRODUCE
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN, Record, check_crc, encode_batch
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import to_error_code
from twinshore.proxy.core.model import (
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    ForwardRequest,
    HomeRoute,
    ParkRequest,
    ProducerTail,
    RoutingTable,
    add_term_stamp,
    build_producer_tails,
    build_routes,
    extract_term_stamp,
    get_term_stamp,
)
from twinshore.proxy.core.record_requests import check_sequence, parse_batch
from twinshore.routing.core.home_records import HomeConflict, HomeRecord, HomeState

TAG = 77 << 48
MINE = TAG | 4001
NOT_HERE, EARLY, TWICE, STALE = 6, 45, 46, 47
NAMES = {"east-id": "east", "west-id": "west"}
SWITCH = "5" * 32


def line(
    home: str = "east", term: int = 1, state: HomeState = HomeState.SETTLED, switch: str = SWITCH, how: str = ""
) -> HomeRecord:
    source = "west" if home == "east" else "east"
    return HomeRecord(
        topic="shared",
        home=home,
        cluster_id=f"{home}-id",
        term=term,
        step=1,
        state=state,
        switch=switch,
        source=source,
        since_ms=5_000,
        how=how,
    )


def leads(*lines: HomeRecord | HomeConflict, since_ms: int = 0) -> HomeRoute:
    """What is known once these were said one after the other."""
    known: dict[str, HomeRoute] = {}
    for one in lines:
        known = build_routes({"shared": one}, NAMES, known, since_ms)
    return known["shared"]


HELD = line(state=HomeState.HELD)
MOVED = line("west", 2, how="planned")


def test_a_line_says_whether_its_topic_came_in_good_order() -> None:
    assert leads(HELD) == HomeRoute("east", 1, held=True, moves=True, sound=1)
    assert (leads(MOVED).came, leads(MOVED).sound) == ("east", 1), "also for a proxy that has just begun"
    assert leads(MOVED, line("west", 2, HomeState.ANNOUNCED, how="planned")).came == "east"
    assert leads(MOVED, since_ms=5_001).came == "", "nobody sends again what is that old"
    for how in ("forced", ""):
        lead = leads(HELD, line("west", 2, how=how))
        assert (lead.came, lead.sound) == ("", 2)


def test_terms_in_a_row_are_sound_as_far_as_each_is_known_to_be() -> None:
    back = line("east", 3, how="planned")
    assert leads(line(), MOVED, back).sound == 1
    assert leads(back).sound == 2
    assert leads(line(), line("west", 2, how="forced"), back).sound == 2
    assert leads(line(), back).sound == 2, "what was between is not known"


def test_where_clusters_disagree_or_the_home_is_unknown_nobody_writes() -> None:
    clash = HomeConflict(line("east", 2), line("west", 2))
    assert leads(clash).held
    assert leads(line(), clash) == HomeRoute("east", 1, held=True, sound=1)
    away = RoutingTable(seen().clusters, {}, HANDLED_API_VERSIONS, {"shared": leads(line("north", 2))})
    assert (away.route("shared"), away.is_elsewhere("shared", "east")) == (None, True)
    assert [one.is_elsewhere("bills", "west") for one in (away, away.without(frozenset({"west"})))] == [False, False]


def test_a_mirrors_first_word_leaves_a_topic_to_its_copies() -> None:
    """What is passed on of a topic that no switch has had stays as it is, and its leader epochs are not told."""
    assert build_routes({"shared": line(switch="")}, NAMES, {}, 0) == {}
    assert build_routes({"shared": line("west", 2, switch="")}, NAMES, {}, 0).keys() == {"shared"}


def test_the_clusters_own_word_counts_more_than_the_store_s() -> None:
    told = RoutingTable(seen().clusters, {"shared": "east"}, HANDLED_API_VERSIONS, {"shared": HomeRoute("west", 2)})
    assert told.route("shared") == "west"


@pytest.mark.parametrize("term", [1, 2, 3, 255, 256, 257])
def test_a_producer_has_an_id_for_each_term_and_is_known_by_all_of_them(term: int) -> None:
    stamp = get_term_stamp(term)
    assert 0 <= stamp < 256
    assert add_term_stamp(MINE, stamp) >> 48 == 77
    assert extract_term_stamp(add_term_stamp(MINE, stamp)) == stamp
    assert (add_term_stamp(MINE, stamp) == MINE) == (term in (1, 257))
    states = [(add_term_stamp(MINE, stamp), 2, 9), (4001, 0, 5), (add_term_stamp(MINE, get_term_stamp(term + 1)), 2, 3)]
    assert build_producer_tails(states, HomeRoute("west", term + 1, sound=term)) == {MINE: ProducerTail(2, 9)}


def test_of_what_a_producer_wrote_in_several_terms_the_latest_counts_that_is_sound() -> None:
    states = [(add_term_stamp(MINE, get_term_stamp(term)), 2, 10 * term) for term in (3, 1, 2)]
    assert build_producer_tails(states, HomeRoute("east", 4, sound=1)) == {MINE: ProducerTail(2, 30)}
    silent = states[1:]
    assert build_producer_tails(silent, HomeRoute("east", 4, sound=1)) == {MINE: ProducerTail(2, 20)}, (
        "it said nothing in the third"
    )
    assert build_producer_tails(silent, HomeRoute("east", 4, sound=3)) == {}


def test_what_no_client_of_a_proxy_writes_keeps_its_id() -> None:
    assert add_term_stamp(4001, 3) == 4001
    assert add_term_stamp(-1, 3) == -1
    assert add_term_stamp(TAG | 1 << 40, 3) == TAG | 1 << 40, "whose bits are taken"


@pytest.mark.parametrize(
    ("epoch", "first", "count", "how"),
    [
        (3, 10, 1, Code.none),
        (3, 11, 1, Code.out_of_order_sequence_number),
        (3, 9, 1, Code.duplicate_sequence_number),
        (3, 5, 5, Code.duplicate_sequence_number),
        (3, 9, 2, Code.out_of_order_sequence_number),
        (4, 0, 1, Code.none),
        (2, 10, 1, Code.invalid_producer_epoch),
        (3, SEQUENCE_SPAN - 5, 2, Code.duplicate_sequence_number),
    ],
)
def test_how_a_batch_stands_to_what_was_last(epoch: int, first: int, count: int, how: Code) -> None:
    header = parse_batch(records(first, count, epoch=epoch))
    assert header is not None
    assert check_sequence(header, ProducerTail(3, 9)) is how


def test_sequences_begin_anew_at_their_end() -> None:
    header = parse_batch(records(0))
    assert header is not None
    assert check_sequence(header, ProducerTail(3, SEQUENCE_SPAN - 1)) is Code.none
    assert check_sequence(header, ProducerTail(3, SEQUENCE_SPAN - 2)) is Code.out_of_order_sequence_number


def test_what_is_no_batch_is_for_the_broker_to_refuse() -> None:
    good = records(0)
    for bad in (b"", None, b"x" * 80, good[:-1], good + b"x", good + records(1)):
        assert parse_batch(bad) is None


def records(first: int, count: int = 1, epoch: int = 3, producer_id: int = MINE) -> bytes:
    made = [Record(number, 1000, b"key", b"value", ()) for number in range(count)]
    return encode_batch(made, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def sent(data: bytes, *, topic: str = "shared", version: int = 11, also: str = "") -> Request:
    batches = [produce.ProduceRequestPartition(one, 0, data) for one in (topic, also) if one]
    return request(
        PRODUCE, version, produce.write_produce_request(version, produce.ProduceRequest(None, -1, 1500, batches))
    )


def moved(lead: HomeRoute, *, learns: bool = False, known_there: bool = True) -> RoutingTable:
    known = {("shared", 0): {MINE: ProducerTail(3, 9)}} if known_there else {}
    offers = {**HANDLED_API_VERSIONS, DESCRIBE_PRODUCERS: (0, 0)}
    clusters = {
        name: one.__class__(name, one.cluster_id, one.controller, one.brokers, one.topics, offers)
        for name, one in seen().clusters.items()
    }
    return RoutingTable(
        clusters, {}, HANDLED_API_VERSIONS, {"shared": lead}, known, frozenset({"shared"} if learns else ())
    )


ON_WEST = HomeRoute("west", 2, came="east")


def code(body: memoryview, version: int = 11) -> int:
    (one,) = produce.read_produce_response(body, 0, version).appended
    return one.error


@pytest.mark.parametrize(
    "known",
    [
        moved(HomeRoute("east", 1, held=True)),
        moved(HomeRoute("east", 1), learns=True),
        moved(HomeRoute("east", 1)).without(frozenset({"east"})),
    ],
)
def test_what_is_held_waits_where_the_topic_is_and_is_refused_elsewhere(known: RoutingTable) -> None:
    held = session(EAST).move(sent(records(10)), known)
    assert isinstance(held, ParkRequest) and held.refusal is not None and held.goes_first
    assert code(view(held.refusal)) == NOT_HERE
    assert not isinstance(session(WEST).move(sent(records(10)), known), ParkRequest)
    assert isinstance(session(EAST).move(sent(records(10), topic="orders", also="shared"), known), ParkRequest)


def test_what_follows_goes_on_under_the_producer_s_id_of_this_term() -> None:
    move = session(WEST).move(sent(records(10, 2)), moved(ON_WEST))
    assert isinstance(move, ForwardRequest) and move.body is not None
    assert (move.place, move.topics) == (WEST, ("shared",))
    (one,) = produce.read_produce_request(view(move.body), 0, 11).batches
    header = parse_batch(one.records)
    assert header is not None and one.records is not None
    check_crc(memoryview(one.records), header)
    plain = parse_batch(records(10, 2))
    assert plain is not None
    assert header._replace(crc=0, producer_id=0) == plain._replace(crc=0, producer_id=0)
    assert header.producer_id == add_term_stamp(MINE, get_term_stamp(2))


def test_in_its_first_term_and_without_an_id_it_goes_on_as_it_came() -> None:
    for data, known in (
        (records(10), moved(HomeRoute("west", 1))),
        (records(-1, producer_id=-1, epoch=-1), moved(ON_WEST)),
    ):
        move = session(WEST).move(sent(data), known)
        assert isinstance(move, ForwardRequest) and move.body is None


@pytest.mark.parametrize(("first", "epoch", "wanted"), [(9, 3, TWICE), (0, 3, TWICE), (10, 2, STALE)])
def test_what_is_there_already_is_not_written_again(first: int, epoch: int, wanted: int) -> None:
    body, asks = carried(session(WEST).move(sent(records(first, epoch=epoch)), moved(ON_WEST)), lambda _: None)
    assert (code(body), asks) == (wanted, [])


def test_what_comes_too_early_is_refused_until_the_new_home_knows_its_producer() -> None:
    talk = session(WEST)
    knows: list[int] = []

    def broker(ask: BrokerRequest) -> BrokerResponse:
        if ask.key == DESCRIBE_PRODUCERS:
            return producers(knows)
        return view(
            produce.write_produce_response(11, produce.ProduceResponse([produce.ProducedPartition("shared", 0, 0, 41)]))
        )

    body, asks = carried(talk.move(sent(records(12)), moved(ON_WEST)), broker)
    assert (code(body), [one.key for one in asks]) == (EARLY, [DESCRIBE_PRODUCERS])
    knows.append(add_term_stamp(MINE, get_term_stamp(2)))
    body, asks = carried(talk.move(sent(records(12)), moved(ON_WEST)), broker)
    assert (code(body), [one.key for one in asks]) == (0, [DESCRIBE_PRODUCERS, PRODUCE])
    assert isinstance(talk.move(sent(records(20)), moved(ON_WEST)), ForwardRequest), "from then on it checks for itself"


def test_a_broker_that_says_nothing_has_it_sent_again_and_ends_no_producer() -> None:
    """librdkafka takes a batch that is out of order for the end of its producer; who leads a partition it asks anew."""
    body, _ = carried(session(WEST).move(sent(records(12)), moved(ON_WEST)), lambda _: None)
    assert code(body) == NOT_HERE
    elsewhere = producers([], refused=NOT_HERE)
    body, _ = carried(session(WEST).move(sent(records(12)), moved(ON_WEST)), lambda _: elsewhere)
    assert code(body) == NOT_HERE


def test_once_the_new_home_has_taken_a_batch_it_is_asked_nothing_more() -> None:
    talk = session(WEST)
    move = talk.move(sent(records(10)), moved(ON_WEST))
    assert isinstance(move, ForwardRequest) and move.rewrite is not None
    assert not isinstance(talk.move(sent(records(11)), moved(ON_WEST)), ForwardRequest), "it has not answered yet"
    said = produce.ProduceResponse([produce.ProducedPartition("shared", 0, 0, 41)])
    assert move.rewrite(memoryview(produce.write_produce_response(11, said)), 0) is None
    for first in (11, 9):
        assert isinstance(talk.move(sent(records(first)), moved(ON_WEST)), ForwardRequest)


@pytest.mark.parametrize(
    "known", [moved(ON_WEST, known_there=False), moved(ON_WEST._replace(came=""), known_there=False)]
)
def test_of_whom_nothing_is_known_all_goes_on(known: RoutingTable) -> None:
    assert isinstance(session(WEST).move(sent(records(500)), known), ForwardRequest)


def test_a_broker_that_cannot_tell_is_not_asked() -> None:
    known = moved(ON_WEST)
    offers = {key: versions for key, versions in HANDLED_API_VERSIONS.items() if key != DESCRIBE_PRODUCERS}
    clusters = {name: replace(one, offers=offers) for name, one in known.clusters.items()}
    old = RoutingTable(clusters, {}, HANDLED_API_VERSIONS, known.leads, known.wrote)
    assert isinstance(session(WEST).move(sent(records(12)), old), ForwardRequest)


def test_only_what_may_not_go_on_is_refused() -> None:
    place = BrokerId("west", 2)
    move = session(place).move(sent(records(9), also="bills"), moved(ON_WEST))
    given = produce.ProduceResponse([produce.ProducedPartition("bills", 0, 0, 5)])
    body, asks = carried(move, lambda _: view(produce.write_produce_response(11, given)))
    told = {str(one.topic): one.error for one in produce.read_produce_response(body, 0, 11).appended}
    assert (told, len(asks)) == ({"shared": TWICE, "bills": 0}, 1)


def producers(ids: list[int], *, refused: int = 0) -> memoryview:
    topic = said_part(DESCRIBE_PRODUCERS, 0, "topics")
    part = said_part(DESCRIBE_PRODUCERS, 0, "topics", "partitions")
    state = said_part(DESCRIBE_PRODUCERS, 0, "topics", "partitions", "active_producers")
    states = tuple(
        state(
            producer_id=one,
            producer_epoch=3,
            last_sequence=11,
            last_timestamp=0,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        )
        for one in ids
    )
    parts = (part(partition_index=0, error_code=to_error_code(refused), error_message=None, active_producers=states),)
    return answer(DESCRIBE_PRODUCERS, 0, topics=(topic(name="shared", partitions=parts),))
