"""Leader epochs rise whenever a topic moves; of earlier ones clients hear that they ended where it moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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
    seen,
    session,
    told,
)
from tests.proxy.test_moved import records
from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.apis import FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FOR_LEADER_EPOCH
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core import message_codec
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.message_codec import LEADER_EPOCHS_PER_TERM, TERMS_MAX, decode_request, to_error_code
from twinshore.proxy.core.model import BrokerRequest, BrokerResponse, ForwardRequest, HomeRoute, RoutingTable
from twinshore.proxy.core.session import ClientSession

THIRD = HomeRoute("west", 3, points=(112, 7))
BASE = 2 * LEADER_EPOCHS_PER_TERM


def on_west(lead: HomeRoute = THIRD) -> RoutingTable:
    return replace(seen(), offers=HANDLED_API_VERSIONS, leads={"shared": lead})


def test_epochs_of_a_later_term_are_higher_whatever_the_homes_count() -> None:
    last = -1
    for term in (1, 2, 3, TERMS_MAX):
        base = message_codec.get_epoch_base("shared", on_west(HomeRoute("west", term)))
        assert base is not None
        for epoch in (0, 5, LEADER_EPOCHS_PER_TERM - 1):
            told = message_codec.to_client_epoch(epoch, base)
            assert last < told < 1 << 31
            assert message_codec.to_home_epoch(told, base) == epoch
            last = told


@pytest.mark.parametrize("base", [None, BASE])
def test_what_is_no_epoch_of_this_term_is_none(base: int | None) -> None:
    for epoch in (-1, LEADER_EPOCHS_PER_TERM):
        assert message_codec.to_client_epoch(epoch, base) == -1
    for epoch in (-1, BASE - 1, BASE + LEADER_EPOCHS_PER_TERM):
        assert message_codec.to_home_epoch(epoch, base) == -1
    assert message_codec.is_earlier_term_epoch(BASE - 1, base) is (base is not None)
    assert not any(message_codec.is_earlier_term_epoch(one, base) for one in (-1, BASE))


def test_of_a_topic_that_no_switch_had_and_of_one_that_moved_too_often_none_is_told() -> None:
    assert message_codec.get_epoch_base("bills", on_west()) is None
    assert message_codec.get_epoch_base("shared", on_west(HomeRoute("west", TERMS_MAX + 1))) is None


def told_by(cluster: str) -> memoryview:
    topic, part = said_part(METADATA, 9, "topics"), said_part(METADATA, 9, "topics", "partitions")
    values = {
        "error_code": to_error_code(0),
        "leader_id": 2,
        "leader_epoch": 6,
        "replica_nodes": (2,),
        "isr_nodes": (2,),
    }
    parts = (part(partition_index=0, offline_replicas=(), **values),)
    names = {"east": ("orders", "shared"), "west": ("bills", "shared")}[cluster]
    topics = tuple(
        topic(
            error_code=to_error_code(0), name=one, is_internal=False, partitions=parts, topic_authorized_operations=-1
        )
        for one in names
    )
    return answer(METADATA, 9, topics=topics)


@pytest.mark.parametrize(("lead", "shown"), [(THIRD, BASE + 6), (HomeRoute("west", 1), 6)])
def test_metadata_tells_them_of_topics_that_a_switch_had(lead: HomeRoute, shown: int) -> None:
    move = session(EAST).move(asked(METADATA, 9, topics=None), on_west(lead))
    body, _ = carried(move, lambda ask: told_by(ask.place.cluster))
    topics = {str(one.name): one.partitions[0].leader_epoch for one in by_kio(METADATA, 9, body).topics}
    assert topics == {"orders": -1, "bills": -1, "shared": shown}


def wanted(epoch: int, last: int = -1) -> Request:
    parts = [fetch.FetchRequestPartition(one, 0, 41, 9000, epoch, last) for one in ("shared", "bills")]
    return request(FETCH, 12, [fetch.write_fetch_request(12, fetch.FetchRequest(500, 1, 9000, 0, parts))])


@pytest.mark.parametrize(
    ("epoch", "last", "asks"),
    [(BASE + 6, BASE + 5, (6, 5)), (BASE - LEADER_EPOCHS_PER_TERM + 6, BASE - 1, (-1, -1)), (-1, -1, (-1, -1))],
)
def test_a_broker_is_asked_by_epochs_of_its_own(epoch: int, last: int, asks: tuple[int, int]) -> None:
    move = session(WEST).move(wanted(epoch, last), on_west())
    assert isinstance(move, ForwardRequest)
    body = memoryview(b"".join(move.body)) if move.body is not None else wanted(epoch, last).view[-1:]
    if epoch < 0:
        assert move.body is None
        return
    shared, bills = fetch.read_fetch_request(body, 0, 12).wanted
    assert (shared.leader_epoch, shared.last_fetched_epoch) == asks
    assert (bills.leader_epoch, bills.last_fetched_epoch) == (-1, -1), "clients are told none of it"


def batches(*own: int) -> bytes:
    """Of these epochs, as a broker has them, the last one cut off."""
    made = [bytearray(records(5 * number, 5)) for number in range(len(own))]
    for number, (one, epoch) in enumerate(zip(made, own, strict=True)):
        one[:8], one[12:16] = (5 * number).to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return b"".join(made) + bytes(made[0][:40])


def fetched(lead: HomeRoute | None, *, at_home: bool = True) -> tuple[list[int], fetch.FetchResponsePartition, bool]:
    """The epochs of what a client is given; and whether the answer goes through as it came."""
    known = on_west(lead) if lead else replace(seen(), offers=HANDLED_API_VERSIONS, homes={"shared": "west"})
    cluster = "west" if at_home else "east"
    one = fetch.FetchResponsePartition("shared", 0, 0, 10, 10, records=batches(3, 6), diverging_epoch=(2, 9))
    given = fetch.FetchResponse(0, 0, 0, [one])
    shown = message_codec.to_client_fetch(given, known, cluster)
    (told,) = shown.fetched
    found = split_batches(memoryview(told.records or b""))
    plain = split_batches(memoryview(one.records or b""))
    assert [bytes(data[16:]) for data, _ in found] == [bytes(data[16:]) for data, _ in plain]
    assert len(told.records or b"") == len(one.records or b"")
    return [header.leader_epoch for _, header in found], told, shown is given


def test_batches_of_a_home_have_the_epochs_of_its_term() -> None:
    numbers, told, _ = fetched(THIRD)
    assert (numbers, told.diverging_epoch) == ([BASE + 3, BASE + 6], (BASE + 2, 9))
    for lead in (HomeRoute("west", 1), None):
        assert fetched(lead)[::2] == ([3, 6], True), "in its first term nothing is written anew"


@pytest.mark.parametrize("lead", [THIRD, HomeRoute("west", 1), None])
def test_batches_of_a_twin_have_none(lead: HomeRoute | None) -> None:
    """It counts leaders of its own, and its readers ask at home where an epoch ended."""
    numbers, told, _ = fetched(lead, at_home=False)
    assert (numbers, told.diverging_epoch) == ([-1, -1], None)


@pytest.mark.claim("proxy", "fetch-waits", "a consumer that waits while its topic moves hears of no cut log")
@pytest.mark.parametrize("then", [{}, {"shared": HomeRoute("east", 1)}])
@pytest.mark.parametrize("torn", [None, "east->west"])
def test_nothing_is_given_of_what_came_while_its_topic_moved(then: dict[str, HomeRoute], torn: str | None) -> None:
    """Behind a forced switch the new home has other records there. The client asks it by the epoch that it has."""
    known = [replace(on_west(), leads=then)]
    client = ClientSession(EAST, LAYOUT, lambda: None, now=lambda: known[-1])
    asks = fetch.write_fetch_request(
        12, fetch.FetchRequest(30_000, 1, 9000, 0, [fetch.FetchRequestPartition("shared", 0, 112, 9000)])
    )
    move = client.move(request(FETCH, 12, [asks]), known[0])
    known.append(on_west(HomeRoute("west", 3, points=(112, 7), torn=torn)))
    one = fetch.FetchResponsePartition("shared", 0, 0, 117, 117, 0, None, -1, bytes(records(0, 5)))
    assert isinstance(move, ForwardRequest) and move.rewrite is not None
    said = move.rewrite(memoryview(fetch_answer(one)), 0)
    assert isinstance(said, list)
    (got,) = fetch.read_fetch_response(memoryview(b"".join(said)), 0, 12).fetched
    assert (got.error, bytes(got.records or b"")) == (Code.not_leader_or_follower, b"")


def fetch_answer(one: fetch.FetchResponsePartition) -> bytes:
    return b"".join(fetch.write_fetch_response(12, fetch.FetchResponse(0, 0, 0, [one])))


def test_cut_off_and_hostile_batches_are_passed_on() -> None:
    known = on_west()
    for data in (b"", b"x" * 15, b"\0" * 200, b"\xff" * 200, batches(3)[:70]):
        one = fetch.FetchResponsePartition("shared", 0, 0, 10, 10, records=data)
        (told,) = message_codec.to_client_fetch(fetch.FetchResponse(0, 0, 0, [one]), known, "west").fetched
        assert len(told.records or b"") == len(data)


def of_epochs(*parts: tuple[int, int], version: int = 4) -> Request:
    """Where these epochs of partitions ended."""
    topic = asked_part(OFFSET_FOR_LEADER_EPOCH, version, "topics")
    part = asked_part(OFFSET_FOR_LEADER_EPOCH, version, "topics", "partitions")
    some = tuple(part(partition=number, current_leader_epoch=BASE + 9, leader_epoch=epoch) for number, epoch in parts)
    bills = (part(partition=0, current_leader_epoch=-1, leader_epoch=4),)
    topics = (topic(topic="shared", partitions=some), topic(topic="bills", partitions=bills))
    return asked(OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)


def ended(ask: BrokerRequest) -> BrokerResponse:
    """A broker that says of each epoch that it ended at a hundred times its number."""
    topic, part = (said_part(ask.key, ask.version, *names) for names in (["topics"], ["topics", "partitions"]))
    topics = tuple(
        topic(
            topic=one.topic,
            partitions=tuple(
                part(
                    error_code=to_error_code(0),
                    partition=p.partition,
                    leader_epoch=p.leader_epoch,
                    end_offset=100 * p.leader_epoch,
                )
                for p in one.partitions
            ),
        )
        for one in read_asked_of(ask).topics
    )
    return answer(ask.key, ask.version, topics=topics)


def read_asked_of(ask: BrokerRequest) -> Any:
    return decode_request(request(ask.key, ask.version, ask.body))


def ends(body: memoryview, version: int = 4) -> dict[tuple[str, int], tuple[int, int]]:
    topics = by_kio(OFFSET_FOR_LEADER_EPOCH, version, body).topics
    return {(str(t.topic), p.partition): (p.leader_epoch, p.end_offset) for t in topics for p in t.partitions}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_of_an_earlier_term_ended_where_the_topic_moved(version: int) -> None:
    move = session(WEST).move(of_epochs((0, BASE - 1), (1, BASE + 4), (2, 5), version=version), on_west())
    body, asks = carried(move, ended)
    (ask,) = asks
    known = {
        str(one.topic): [(p.partition, p.leader_epoch) for p in one.partitions] for one in read_asked_of(ask).topics
    }
    assert known == {"shared": [(1, 4)], "bills": [(0, 4)]}
    assert ends(body, version) == {
        ("shared", 0): (BASE - 1, 112),
        ("shared", 1): (BASE + 4, 400),
        ("shared", 2): (5, (1 << 63) - 1),  # a partition of which nobody said where it moved
        ("bills", 0): (4, 400),
    }
    (first, _) = by_kio(OFFSET_FOR_LEADER_EPOCH, version, body).topics
    assert str(first.topic) == "shared", "clients take the first of two that have one name"


def test_where_all_are_of_earlier_terms_and_where_a_broker_is_silent() -> None:
    body, _ = carried(session(WEST).move(of_epochs((0, 3)), on_west()), lambda _: None)
    parts = {
        str(t.topic): [(p.error_code, p.end_offset) for p in t.partitions]
        for t in by_kio(OFFSET_FOR_LEADER_EPOCH, 4, body).topics
    }
    assert parts["shared"] == [(0, 112)]
    assert parts["bills"][0][0] == 6


def test_at_the_old_home_all_of_it_is_refused() -> None:
    move = session(EAST).move(of_epochs((0, 3)), on_west())
    topics = by_kio(OFFSET_FOR_LEADER_EPOCH, 4, told(move)).topics
    assert {str(t.topic): t.partitions[0].error_code for t in topics} == {"shared": 6, "bills": 6}


def test_list_offsets_names_them_as_clients_see_them() -> None:
    topic, part = asked_part(LIST_OFFSETS, 6, "topics"), asked_part(LIST_OFFSETS, 6, "topics", "partitions")
    parts = (part(partition_index=0, current_leader_epoch=BASE + 9, timestamp=-1),)
    topics = (topic(name="shared", partitions=parts), topic(name="bills", partitions=parts))
    said_topic, said = said_part(LIST_OFFSETS, 6, "topics"), said_part(LIST_OFFSETS, 6, "topics", "partitions")

    def broker(ask: BrokerRequest) -> BrokerResponse:
        one, other = read_asked_of(ask).topics
        assert [t.partitions[0].current_leader_epoch for t in (one, other)] == [9, -1]
        told = (said(partition_index=0, error_code=to_error_code(0), timestamp=-1, offset=41, leader_epoch=6),)
        return answer(LIST_OFFSETS, 6, topics=tuple(said_topic(name=t.name, partitions=told) for t in (one, other)))

    move = session(WEST).move(asked(LIST_OFFSETS, 6, replica_id=-1, isolation_level=0, topics=topics), on_west())
    body, _ = carried(move, broker)
    found = {str(t.name): t.partitions[0].leader_epoch for t in by_kio(LIST_OFFSETS, 6, body).topics}
    assert found == {"shared": BASE + 6, "bills": 6}


@pytest.mark.parametrize(("term", "kept"), [(1, 5), (3, -1)])
def test_a_place_is_kept_without_an_epoch_that_no_cluster_counts(term: int, kept: int) -> None:
    topic, part = asked_part(OFFSET_COMMIT, 8, "topics"), asked_part(OFFSET_COMMIT, 8, "topics", "partitions")
    some = (part(partition_index=0, committed_offset=41, committed_leader_epoch=5, committed_metadata=""),)
    body = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "m", "group_instance_id": None}
    topics = tuple(topic(name=one, partitions=some) for one in ("shared", "orders"))
    sent = asked(OFFSET_COMMIT, 8, topics=topics, **body)
    move = session(EAST).move(sent, on_west(HomeRoute("west", term)))
    assert isinstance(move, ForwardRequest)
    if kept == 5:
        assert move.body is None
        return
    assert move.body is not None
    told = read_asked_of(BrokerRequest(EAST, OFFSET_COMMIT, 8, move.body))
    assert {str(t.name): t.partitions[0].committed_leader_epoch for t in told.topics} == {"shared": kept, "orders": 5}


def test_batches_of_an_older_format_keep_the_checksum_that_they_have_there() -> None:
    old = bytearray(batches(3))
    old[16] = 1
    told = bytes(message_codec._restamped(bytes(old), 1 << 20))
    assert (told[:100], told != bytes(old)) == (bytes(old[:100]), True), "the one behind it is of today's format"
