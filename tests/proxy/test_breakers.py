"""What breakers cut of a request is answered here, the rest goes on, and what was dropped is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import EAST, LAYOUT, carried, request, seen, told, view
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.apis import FETCH, PRODUCE
from twinshore.kafka.protocol.record_batch import HEADER_STRUCT, BatchHeader
from twinshore.proxy.core.breakers import (
    CLIENTS_PER_TOPIC_MAX,
    OTHER_CLIENTS,
    BreakerCounts,
    CircuitBreakers,
)
from twinshore.proxy.core.model import (
    BrokerRequest,
    DiscardRequest,
    FanOut,
    ForwardRequest,
    HomeRoute,
    ParkRequest,
    RequestDecision,
    RespondLater,
    RoutingTable,
)
from twinshore.proxy.core.session import RETRY_TIMEOUT_S, THROTTLE_MS, ClientSession
from twinshore.routing.core.subscribers import pattern_matches
from twinshore.state.core.proxy_values import BreakerKind, BreakerLimits, BreakerPolicy, BreakerRow, BreakerState

AGAIN, UNKNOWN_PRODUCER, SESSION_GONE, NOT_HERE = 19, 59, 70, 6
OPEN = BreakerRow(
    "orders", "*", BreakerKind.PRODUCE, BreakerState.OPEN, BreakerPolicy.REFUSE, "too much", "anna", since_ms=1_000
)
DROPS = replace(OPEN, policy=BreakerPolicy.DROP)
CUTS = replace(OPEN, kind=BreakerKind.FETCH)
KNOWN = seen(homes={"shared": "east", "bills": "west"})


class Box(CircuitBreakers):
    """With a clock that the test moves."""

    def __init__(self, *rows: BreakerRow) -> None:
        super().__init__()
        self.at(0)
        self.set(*rows)

    def at(self, now_s: float) -> None:
        self.tick(now_s, 1_000 + int(now_s * 1_000))

    def set(self, *rows: BreakerRow) -> None:
        self.take(rows, self.revision + 1)


def client(box: CircuitBreakers) -> ClientSession:
    return ClientSession(EAST, LAYOUT, lambda: None, box)


def batch(sequence: int = -1, count: int = 3, producer_id: int = 7 << 48, epoch: int = 0, crc: int = 0) -> bytes:
    body = b"x" * 20
    header = BatchHeader(0, 49 + len(body), -1, 2, crc, 0, count - 1, 0, 0, producer_id, epoch, sequence, count)
    return HEADER_STRUCT.pack(*(header if sequence >= 0 else header._replace(producer_id=-1))) + body


def produced(
    ours: ClientSession, *topics: str, acks: int = -1, records: bytes = batch(), known: RoutingTable = KNOWN
) -> RequestDecision:
    asked = produce.ProduceRequest(
        None, acks, 1_000, [produce.ProduceRequestPartition(one, 0, records) for one in topics]
    )
    return ours.move(request(PRODUCE, 9, produce.write_produce_request(9, asked)), known)


def errors(move: RequestDecision) -> list[tuple[str, int, int]]:
    found = produce.read_produce_response(told(move), 0, 9).appended
    return [(str(one.topic), one.error, one.base_offset) for one in found]


def asked_of(move: RequestDecision) -> list[str]:
    """The topics of which a broker is asked."""
    assert isinstance(move, ForwardRequest), move
    assert move.body is not None, "it is not as it came"
    return [str(one.topic) for one in produce.read_produce_request(view(move.body), 0, 9).batches]


def answer_of(move: RequestDecision, *topics: str) -> list[tuple[str, int]]:
    assert isinstance(move, ForwardRequest)
    assert move.rewrite is not None
    given = produce.ProduceResponse([produce.ProducedPartition(one, 0, 0, 5) for one in topics])
    parts = move.rewrite(view([produce.write_produce_response(9, given)]), 0)
    assert parts is not None
    return [(str(one.topic), one.error) for one in produce.read_produce_response(view(parts), 0, 9).appended]


@pytest.mark.parametrize(
    ("pattern", "name", "means"),
    [("orders", "orders", True), ("orders", "orders2", False), ("ord*", "orders", True), ("*", "", True)],
)
def test_a_breaker_names_a_topic_or_how_topics_begin(pattern: str, name: str, means: bool) -> None:
    assert pattern_matches(pattern, name) is means


def test_producers_of_a_topic_are_told_to_try_again_and_its_neighbours_go_on() -> None:
    box = Box(OPEN)
    ours = client(box)
    alone = produced(ours, "orders")
    assert errors(alone) == [("orders", AGAIN, -1)]
    assert produce.read_produce_response(told(alone), 0, 9).throttle_ms == THROTTLE_MS
    both = produced(ours, "orders", "shared")
    assert asked_of(both) == ["shared"]
    assert answer_of(both, "shared") == [("shared", 0), ("orders", AGAIN)]
    assert produce.read_produce_response(told(produced(ours, "orders")), 0, 9).throttle_ms == 0, (
        "it has more to write here"
    )
    assert box.tallies[OPEN.key] == BreakerCounts(3, 9, 3 * len(batch()))
    box.set(replace(OPEN, state=BreakerState.CLOSED))
    move = produced(ours, "orders")
    assert isinstance(move, ForwardRequest)
    assert move.body is None, "it goes as it came"


def test_a_breaker_of_one_client_is_none_of_the_others() -> None:
    ours = client(Box(replace(OPEN, topic="*", client="ap*")))
    assert errors(produced(ours, "orders")) == [("orders", AGAIN, -1)]
    assert isinstance(produced(client(Box(replace(OPEN, client="apple"))), "orders"), ForwardRequest)


def test_of_several_breakers_the_closest_says_what_is_answered() -> None:
    ours = client(Box(DROPS, replace(OPEN, client="app"), replace(DROPS, topic="ord*")))
    assert errors(produced(ours, "orders")) == [("orders", AGAIN, -1)]


def test_what_is_dropped_is_taken_for_written_and_stands_on_the_ledger() -> None:
    box = Box(DROPS)
    ours = client(box)
    assert errors(produced(ours, "orders")) == [("orders", 0, -1)]
    box.at(2)
    assert isinstance(produced(ours, "orders", acks=0), DiscardRequest)
    drop = box.drops["orders", "app"]
    assert (drop.breaker, drop.partitions, drop.records, drop.bytes) == ("orders", {0}, 6, 2 * len(batch()))
    assert (drop.since_ms, drop.until_ms) == (1_000, 3_000)
    box.set(replace(DROPS, state=BreakerState.CLOSED))
    assert (box.drops, box.ended) == ({}, [("orders", "app", drop)])


def test_who_waits_for_no_answer_cannot_be_refused_so_it_is_dropped() -> None:
    box = Box(OPEN)
    assert isinstance(produced(client(box), "orders", acks=0), DiscardRequest)
    assert box.drops["orders", "app"].records == 3
    both = produced(client(box), "orders", "shared", acks=0)
    assert asked_of(both) == ["shared"]
    assert isinstance(both, ForwardRequest)
    assert not both.answered


def test_a_client_with_countless_names_fills_no_memory() -> None:
    box = Box(DROPS)
    for number in range(CLIENTS_PER_TOPIC_MAX + 50):
        box.dropped(DROPS, "orders", f"client {number}", 0, 1, 1)
    assert len(box.drops) == CLIENTS_PER_TOPIC_MAX + 1
    assert box.drops["orders", OTHER_CLIENTS].records == 50


def test_successors_of_a_refused_batch_wait_for_it_behind_the_breaker() -> None:
    """A broker that has not seen the producer would take the second one for the first."""
    box = Box(OPEN)
    ours = client(box)
    for sequence in (10, 13):
        assert errors(produced(ours, "orders", records=batch(sequence))) == [("orders", AGAIN, -1)]
    box.set(replace(OPEN, state=BreakerState.CLOSED))
    assert errors(produced(ours, "orders", records=batch(16))) == [("orders", AGAIN, -1)]
    for sequence in (10, 13, 16):
        assert isinstance(produced(ours, "orders", records=batch(sequence)), ForwardRequest)
    box.set(OPEN)
    assert errors(produced(ours, "orders", records=batch(19))) == [("orders", AGAIN, -1)]
    box.set()
    assert errors(produced(ours, "orders", records=batch(22))) == [("orders", AGAIN, -1)]
    assert isinstance(produced(ours, "orders", records=batch(0, epoch=1)), ForwardRequest), "it has begun anew"
    box.at(RETRY_TIMEOUT_S + 1)
    assert isinstance(produced(ours, "orders", records=batch(22)), ForwardRequest), "what was refused has been given up"


def test_a_producer_whose_records_were_dropped_counts_anew_behind_the_breaker() -> None:
    box = Box(DROPS)
    ours = client(box)
    assert errors(produced(ours, "orders", records=batch(10))) == [("orders", 0, -1)]
    box.set(replace(DROPS, state=BreakerState.CLOSED))
    again = produced(client(box), "orders", "shared", records=batch(13))
    assert asked_of(again) == ["shared"], "also of a new connection"
    assert answer_of(again, "shared") == [("shared", 0), ("orders", UNKNOWN_PRODUCER)]
    assert isinstance(produced(ours, "orders", records=batch(0, epoch=1)), ForwardRequest)


def test_what_a_switch_holds_is_judged_again_as_a_whole_and_counted_once() -> None:
    box = Box(DROPS)
    ours = client(box)
    held = replace(KNOWN, leads={"shared": HomeRoute("east", 1, held=True)})
    move = produced(ours, "orders", "shared", known=held)
    assert isinstance(move, ParkRequest)
    assert move.refusal is not None and move.goes_first
    found = produce.read_produce_response(view(move.refusal), 0, 9).appended
    assert [(one.topic, one.error) for one in found] == [("orders", NOT_HERE), ("shared", NOT_HERE)]
    assert box.drops == {}
    assert asked_of(produced(ours, "orders", "shared")) == ["shared"]
    assert box.drops["orders", "app"].records == 3


def test_topics_that_have_moved_are_refused_beside_what_is_cut() -> None:
    ours = client(Box(OPEN))
    assert errors(produced(ours, "orders", "bills")) == [("bills", NOT_HERE, -1), ("orders", AGAIN, -1)]
    move = produced(ours, "orders", "bills", "shared")
    assert isinstance(move, FanOut)

    def broker(ask: BrokerRequest) -> memoryview:
        topics = [one.topic for one in produce.read_produce_request(view(ask.body), 0, 9).batches]
        assert topics == ["shared"]
        return view(
            [produce.write_produce_response(9, produce.ProduceResponse([produce.ProducedPartition("shared", 0, 0, 5)]))]
        )

    body, _ = carried(move, broker)
    answer = produce.read_produce_response(body, 0, 9)
    assert sorted((str(one.topic), one.error) for one in answer.appended) == [
        ("bills", NOT_HERE),
        ("orders", AGAIN),
        ("shared", 0),
    ]


def test_a_breaker_closes_by_itself_at_its_time() -> None:
    box = Box(replace(OPEN, until_ms=5_000))
    ours = client(box)
    box.at(3.9)
    assert errors(produced(ours, "orders")) == [("orders", AGAIN, -1)]
    box.at(4)
    assert isinstance(produced(ours, "orders"), ForwardRequest)


def test_too_many_records_a_second_trip_a_breaker_that_closes_once_all_is_quiet() -> None:
    row = replace(
        OPEN, topic="ord*", state=BreakerState.CLOSED, limits=BreakerLimits(records_s=5, above_s=2, quiet_s=4)
    )
    box = Box(row)
    ours, second = client(box), 0
    while not box.tripped(row.key):
        assert isinstance(produced(ours, "orders"), ForwardRequest)
        assert isinstance(produced(client(box), "orders"), ForwardRequest)
        second += 1
        box.at(second)
    assert second == 3
    assert errors(produced(ours, "orders")) == [("orders", AGAIN, -1)]
    assert isinstance(produced(ours, "shared"), ForwardRequest)
    while box.tripped(row.key):
        second += 1
        box.at(second)
    assert second == 9, "what is refused counts as well: it was wanted"
    assert isinstance(produced(ours, "orders"), ForwardRequest)


@pytest.mark.parametrize("again", [True, False])
def test_who_only_sends_again_what_was_refused_is_quiet(again: bool) -> None:
    """Its client tries each second, and has nothing new: a breaker that counted that would never close."""
    row = replace(OPEN, state=BreakerState.CLOSED, limits=BreakerLimits(records_s=5, above_s=2, quiet_s=4))
    box = Box(row)
    ours, second = client(box), 0
    while not box.tripped(row.key):
        produced(ours, "orders", records=batch(count=40, crc=second))
        second += 1
        box.at(second)
    tripped_s = second
    while box.tripped(row.key) and second < tripped_s + 30:
        produced(ours, "orders", records=batch(count=40, crc=99 if again else second))
        second += 1
        box.at(second)
    assert box.tripped(row.key) is not again
    if again:
        assert second <= tripped_s + 6
        assert isinstance(produced(ours, "orders", records=batch(count=40, crc=99)), ForwardRequest)


def fetched(
    ours: ClientSession, *topics: str, session: tuple[int, int] = (0, -1), version: int = 11
) -> RequestDecision:
    wanted = [fetch.FetchRequestPartition(one, 0, 5, 1 << 20) for one in topics]
    asked = fetch.FetchRequest(500, 1, 1 << 20, 0, wanted, *session)
    return ours.move(request(FETCH, version, [fetch.write_fetch_request(version, asked)]), KNOWN)


def opened(ours: ClientSession, session_id: int, *topics: str) -> None:
    """A session that the broker gives."""
    move = fetched(ours, *topics, session=(0, 0))
    assert isinstance(move, ForwardRequest)
    assert move.rewrite is not None
    move.rewrite(view(fetch.write_fetch_response(11, fetch.FetchResponse(0, 0, session_id, []))), 0)


def nothing_new(move: RequestDecision) -> tuple[int, int, int]:
    """Throttle time, error and session."""
    assert isinstance(move, RespondLater), move
    assert move.wait_s == 0.5, "as long as it would have waited at the broker"
    found = fetch.read_fetch_response(view(move.body), 0, 11)
    assert found.fetched == []
    return found.throttle_ms, found.error, found.session_id


def test_consumers_of_a_topic_find_nothing_new_and_ask_the_broker_nothing() -> None:
    box = Box(CUTS)
    ours = client(box)
    for session in ((0, -1), (0, 0)):
        assert nothing_new(fetched(ours, "orders", session=session)) == (THROTTLE_MS, 0, 0)
    assert box.tallies[CUTS.key].requests == 2
    assert isinstance(produced(ours, "orders"), ForwardRequest), "its producers go on"


def test_a_session_of_which_all_is_cut_stands_still_and_is_opened_anew_behind_the_breaker() -> None:
    box = Box()
    ours = client(box)
    opened(ours, 77, "orders")
    box.set(CUTS)
    for epoch in (1, 2):
        assert nothing_new(fetched(ours, session=(77, epoch))) == (THROTTLE_MS, 0, 77)
    box.set()
    assert fetch.read_fetch_response(told(fetched(ours, session=(77, 3))), 0, 11).error == SESSION_GONE
    opened(ours, 78, "orders")
    move = fetched(ours, session=(78, 1))
    assert isinstance(move, ForwardRequest)
    assert move.body is None


def test_a_consumer_of_which_some_is_cut_reads_the_rest_without_a_session() -> None:
    box = Box()
    ours = client(box)
    opened(ours, 77, "orders", "shared")
    box.set(CUTS)
    assert fetch.read_fetch_response(told(fetched(ours, session=(77, 1))), 0, 11).error == SESSION_GONE
    move = fetched(ours, "orders", "shared", session=(0, 0))
    assert isinstance(move, ForwardRequest)
    assert move.body is not None
    asked = fetch.read_fetch_request(view(move.body), 0, 11)
    assert ([one.topic for one in asked.wanted], asked.session_epoch) == (["shared"], -1)
    assert move.rewrite is not None
    given = fetch.FetchResponse(0, 0, 0, [fetch.FetchResponsePartition("shared", 0, 0, 9, 9, records=b"new")])
    parts = move.rewrite(view(fetch.write_fetch_response(11, given)), 0)
    assert parts is not None
    found = fetch.read_fetch_response(view(parts), 0, 11)
    assert [(one.topic, one.error, bytes(one.records or b"")) for one in found.fetched] == [
        ("shared", 0, b"new"),
        ("orders", 0, b""),
    ]
    assert found.session_id == 0
    box.set()
    opened(ours, 79, "orders", "shared")


def test_a_consumer_that_reads_too_much_trips_a_breaker() -> None:
    row = replace(CUTS, state=BreakerState.CLOSED, limits=BreakerLimits(bytes_s=100, above_s=1, quiet_s=3))
    box = Box(row)
    ours = client(box)
    much = fetch.FetchResponsePartition("orders", 0, 0, 9, 9, records=b"x" * 150)
    answer = fetch.write_fetch_response(11, fetch.FetchResponse(0, 0, 0, [much]))
    for second in (1, 2):
        move = fetched(ours, "orders")
        assert isinstance(move, ForwardRequest)
        assert move.rewrite is not None
        move.rewrite(view(answer), 0)
        box.at(second)
    assert box.tripped(row.key)
    nothing_new(fetched(ours, "orders"))


def test_of_a_transaction_nothing_is_dropped() -> None:
    """A transaction of which a part is lost would be none."""
    box = Box(DROPS)
    asked = produce.ProduceRequest("tx", -1, 1_000, [produce.ProduceRequestPartition("orders", 0, batch(10))])
    move = client(box).move(request(PRODUCE, 9, produce.write_produce_request(9, asked)), KNOWN)
    assert errors(move) == [("orders", AGAIN, -1)]
    assert (box.drops, box.gaps) == ({}, {})
