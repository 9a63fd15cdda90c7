"""A transaction lives where groups are at home; what it would write elsewhere is refused so that it can be aborted."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.talks import (
    EAST,
    WEST,
    answer,
    asked,
    asked_part,
    by_kio,
    carried,
    seen,
    session,
    told,
    view,
)
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.protocol.apis import DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.message_codec import build_message, decode_request, to_error_code
from twinshore.proxy.core.model import (
    BrokerId,
    BrokerRequest,
    BrokerResponse,
    ForwardRequest,
    HomeRoute,
    ParkRequest,
    RequestDecision,
    RoutingTable,
)
from twinshore.proxy.core.transaction_requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)

NOT_COORDINATOR, LOADING, NO_TOPIC, NO_GROUP, BUSY, NOT_TRIED, UNKNOWN_ID = 16, 14, 29, 30, 51, 55, 105
NOT_MAPPED = 49
MOVES = HomeRoute("east", 1, moves=True)
HELD = HomeRoute("east", 1, held=True, moves=True)


def led(**leads: HomeRoute) -> RoutingTable:
    return replace(seen(), leads={name.replace("groups", GROUPS_HOME): one for name, one in leads.items()})


def adds(*topics: str, version: int = 3) -> Request:
    part = asked_part(ADD_PARTITIONS_TO_TXN, version, "v3_and_below_topics")
    named = tuple(build_message(part, name=topic, partitions=(0, 1)) for topic in topics)
    return asked(ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id="tx", v3_and_below_topics=named)


def codes(move: RequestDecision, version: int = 3) -> dict[str, int]:
    body = view(move.refusal or []) if isinstance(move, ParkRequest) else told(move)
    found: dict[str, int] = {}
    for topic in by_kio(ADD_PARTITIONS_TO_TXN, version, body).results_by_topic_v3_and_below:
        assert [one.partition_index for one in topic.results_by_partition] == [0, 1]
        found[str(topic.name)] = int(topic.results_by_partition[0].partition_error_code)
    return found


@pytest.mark.parametrize("version", range(4))
def test_it_begins_with_topics_that_are_at_home_there(version: int) -> None:
    passed = session().move(adds("orders", "shared", version=version), seen())
    assert isinstance(passed, ForwardRequest)
    for place in (WEST, None):
        away = session(place).move(adds("orders", version=version), seen())
        assert codes(away, version) == {"orders": NOT_COORDINATOR}


def test_what_is_elsewhere_is_refused_and_nothing_else_is_done() -> None:
    assert codes(session().move(adds("orders", "bills"), seen())) == {"orders": NOT_TRIED, "bills": NO_TOPIC}


@pytest.mark.claim("proxy", "between", "transactions wait between a switch and the move of groups behind it")
def test_what_a_switch_has_moved_waits_for_groups_to_come_behind_it() -> None:
    """franz-go and aiokafka end where brokers refuse a topic; all ask again where another transaction is in the way."""
    move = session().move(adds("orders", "bills"), led(bills=HomeRoute("west", 2)))
    assert isinstance(move, ParkRequest)
    assert codes(move) == {"orders": BUSY, "bills": BUSY}
    gathers = session().move(adds("orders", "bills"), led(bills=HomeRoute("west", 2), groups=MOVES))
    assert isinstance(gathers, ParkRequest)
    assert codes(gathers) == {"orders": NOT_MAPPED, "bills": NOT_MAPPED}, "a member that copies is to join anew"
    stays = led(bills=HomeRoute("west", 1))
    assert codes(session().move(adds("bills"), stays)) == {"bills": NO_TOPIC}, "it was never anywhere else"


@pytest.mark.parametrize("known", [led(orders=HELD), led(groups=HELD), seen().without(frozenset(seen().clusters))])
def test_none_begins_while_its_topics_or_the_groups_move(known: RoutingTable) -> None:
    move = session().move(adds("orders", "shared"), known)
    assert isinstance(move, ParkRequest)
    assert codes(move) == {"orders": BUSY, "shared": BUSY}


def test_one_that_is_open_ends_wherever_it_is() -> None:
    for place in (EAST, WEST):
        assert isinstance(session(place).move(asked(END_TXN, 3), led(groups=HELD)), ForwardRequest)
    assert code(END_TXN, session(None).move(asked(END_TXN, 3), seen())) == NOT_COORDINATOR


@pytest.mark.parametrize("known", [seen(), led(bills=HomeRoute("west", 2))])
@pytest.mark.parametrize(("said", "heard"), [(48, 0), (51, 51), (0, 0)])
def test_one_that_was_refused_as_it_began_can_be_aborted(said: int, heard: int, known: RoutingTable) -> None:
    talk = session()
    talk.move(adds("bills"), known)
    body = answer(END_TXN, 3, error_code=to_error_code(said))
    for committed, wanted in ((True, said), (False, heard), (False, said)):
        move = talk.move(asked(END_TXN, 3, transactional_id="tx", committed=committed), seen())
        assert isinstance(move, ForwardRequest)
        parts = move.rewrite(body, 0) if move.rewrite else None
        assert int(by_kio(END_TXN, 3, view(parts) if parts else body).error_code) == wanted


def code(key: int, move: RequestDecision) -> int:
    body = view(move.refusal or []) if isinstance(move, ParkRequest) else told(move)
    return int(by_kio(key, 3, body).error_code)


def test_places_become_part_of_it_at_the_groups_home() -> None:
    adding = asked(ADD_OFFSETS_TO_TXN, 3)
    assert isinstance(session().move(adding, seen()), ForwardRequest)
    assert code(ADD_OFFSETS_TO_TXN, session(WEST).move(adding, seen())) == NOT_COORDINATOR
    assert code(ADD_OFFSETS_TO_TXN, session().move(adding, led(groups=HELD))) == BUSY
    assert isinstance(session().move(adding, led(groups=MOVES)), ForwardRequest), "who waited here would not join anew"


def commits(*topics: str) -> Request:
    topic = asked_part(TXN_OFFSET_COMMIT, 3, "topics")
    part = asked_part(TXN_OFFSET_COMMIT, 3, "topics", "partitions")
    places = (build_message(part, partition_index=4, committed_offset=9),)
    named = tuple(build_message(topic, name=one, partitions=places) for one in topics)
    return asked(TXN_OFFSET_COMMIT, 3, group_id="g", topics=named)


def place_codes(move: RequestDecision) -> dict[str, int]:
    body = view(move.refusal or []) if isinstance(move, ParkRequest) else told(move)
    topics: Any = by_kio(TXN_OFFSET_COMMIT, 3, body).topics
    return {str(one.name): int(one.partitions[0].error_code) for one in topics}


def test_places_are_committed_where_the_home_has_their_topics() -> None:
    passed = session().move(commits("orders", "shared"), seen())
    assert isinstance(passed, ForwardRequest)
    assert GROUPS_HOME in passed.topics
    assert place_codes(session(WEST).move(commits("orders"), seen())) == {"orders": NOT_COORDINATOR}
    assert place_codes(session().move(commits("bills"), seen())) == {"bills": NO_GROUP}
    assert place_codes(session().move(commits("orders"), led(groups=HELD))) == {"orders": LOADING}
    assert isinstance(session().move(commits("orders"), led(groups=MOVES)), ForwardRequest), "what was begun ends"


def test_an_id_is_given_at_the_groups_home() -> None:
    first = asked(INIT_PRODUCER_ID, 4, transactional_id="tx", producer_id=-1)
    assert isinstance(session().move(first, seen()), ForwardRequest)
    found = by_kio(INIT_PRODUCER_ID, 4, told(session(WEST).move(first, seen())))
    assert (int(found.error_code), found.producer_id) == (NOT_COORDINATOR, -1)


@pytest.mark.parametrize(("there", "asked_for"), [(77, 77), (78, -1), (None, 77)])
def test_a_number_that_another_cluster_gave_is_left_out(there: int | None, asked_for: int) -> None:
    again = asked(INIT_PRODUCER_ID, 4, transactional_id="tx", producer_id=77, producer_epoch=3)

    def broker(ask: BrokerRequest) -> BrokerResponse:
        if ask.key == DESCRIBE_TRANSACTIONS:
            return described(there)
        return answer(INIT_PRODUCER_ID, 4, producer_id=99, producer_epoch=1)

    body, asks = carried(session().move(again, seen()), broker)
    assert by_kio(INIT_PRODUCER_ID, 4, body).producer_id == 99
    assert [one.place for one in asks] == [BrokerId("east", 1)] * 2
    sent = decode_request(Request(INIT_PRODUCER_ID, 4, 1, "app", view(asks[1].body), 0))
    epoch = 3 if asked_for > 0 else -1
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("tx", asked_for, epoch)


def described(producer_id: int | None) -> memoryview:
    """One id, as its coordinator tells of it: of those that it does not know an error, and no producer."""
    code = 0 if producer_id else UNKNOWN_ID
    state = struct.pack(">iqqh", 60_000, -1, producer_id or -1, 3)
    return memoryview(b"\0\0\0\0\2" + struct.pack(">h", code) + b"\3tx\6Empty" + state + b"\1\0\0")
