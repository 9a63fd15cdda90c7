"""What consumers of `read = "both"` are shown, and which producers mix topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

from tests.proxy.talks import EAST, LAYOUT, answer, asked, asked_part, by_kio, request, said_part, seen, view
from tests.proxy.test_records import sent
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol import fetch
from twinshore.kafka.protocol.apis import FETCH, LIST_OFFSETS
from twinshore.kafka.protocol.record_batch import BatchHeader, encode_header, seal
from twinshore.protection.core.model import ProtectionLevel, ReadEnd, ReadFrom
from twinshore.protection.core.records import TopicProtection
from twinshore.proxy.core.message_codec import build_message
from twinshore.proxy.core.model import ForwardRequest, RespondLater
from twinshore.proxy.core.protected_reads import WAIT_S_MAX, WAIT_S_MIN, cut_records
from twinshore.proxy.core.protected_topics import NoProtection
from twinshore.proxy.core.session import ClientSession

BOTH = TopicProtection(ProtectionLevel.SYNC, 1, read=ReadFrom.BOTH)
NOT_HERE = 6


class Known(NoProtection):
    """Of orders both sides have what is below `end`."""

    levels: Mapping[str, TopicProtection] = {"orders": BOTH}
    reads_both: Collection[str] = ("orders",)

    def __init__(self, end: ReadEnd | None) -> None:
        self.end = end
        self.awaited: list[TopicPartition] = []
        self.mixing: list[tuple[set[str], str]] = []

    def read_end(self, partition: TopicPartition, cluster: str) -> ReadEnd | None:
        assert (partition, cluster) == (TopicPartition("orders", 0), "east")
        return self.end

    def awaits(self, partition: TopicPartition) -> None:
        self.awaited.append(partition)

    def note_mixing(self, topics: Iterable[str], client_id: str) -> None:
        self.mixing.append((set(topics), client_id))


def session(known: Known) -> ClientSession:
    return ClientSession(EAST, LAYOUT, lambda: None, protection=known)


def batch(base: int, count: int, epoch: int = 0) -> bytes:
    header = BatchHeader(base, leader_epoch=epoch, last_offset_delta=count - 1, count=count)
    return encode_header(seal(header, b"r" * 10 * count)) + b"r" * 10 * count


RECORDS = batch(10, 5) + batch(15, 5) + batch(20, 5, epoch=2)


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (ReadEnd(25, 2), 25),
        (ReadEnd(24, 2), 20),
        (ReadEnd(20, 2), 20),
        (ReadEnd(19, 2), 15),
        (ReadEnd(10, 2), 10),
        (ReadEnd(100, 1), 20),
        (ReadEnd(100, -1), 10),
        (ReadEnd(), 10),
    ],
)
def test_batches_are_shown_whole_if_both_sides_have_them_and_their_epoch(end: ReadEnd, left: int) -> None:
    shown = cut_records(RECORDS, end)
    whole = {10: b"", 15: batch(10, 5), 20: batch(10, 5) + batch(15, 5), 25: RECORDS}
    assert shown == whole[left]
    assert (shown is RECORDS) == (left == 25)


def fetched(talk: ClientSession, version: int, *parts: fetch.FetchResponsePartition) -> tuple[Any, float]:
    """What a client is told of these answers of the home, and after how long; the same if they pass unchanged."""
    wanted = [fetch.FetchRequestPartition(one.topic, one.partition, 10, 1000) for one in parts]
    body = fetch.write_fetch_request(version, fetch.FetchRequest(500, 1, 1 << 20, 0, wanted))
    move = talk.move(request(FETCH, version, [body]), seen())
    assert isinstance(move, ForwardRequest), move
    assert move.rewrite is not None
    home = view(list(fetch.write_fetch_response(version, fetch.FetchResponse(0, 0, 0, parts))))
    told = move.rewrite(home, 0)
    found = {
        str(one.topic): one
        for one in fetch.read_fetch_response(home if told is None else view(told), 0, version).fetched
    }
    return found, told.wait_s if isinstance(told, RespondLater) else 0.0


def part(topic: str, records: bytes = RECORDS) -> fetch.FetchResponsePartition:
    return fetch.FetchResponsePartition(topic, 0, 0, 25, 25, 0, records=records)


@pytest.mark.parametrize("version", [4, 12])
def test_clients_of_all_ages_are_shown_what_both_have_and_ends_there(version: int) -> None:
    known = Known(ReadEnd(20, 2))
    found, wait_s = fetched(session(known), version, part("orders"), part("shared"))
    assert len(found["orders"].records) == 2 * len(batch(10, 5))
    assert (found["orders"].high_watermark, found["orders"].last_stable_offset) == (20, 20)
    assert (len(found["shared"].records), found["shared"].high_watermark) == (len(RECORDS), 25)
    assert wait_s == 0
    assert known.awaited == [TopicPartition("orders", 0)]


def test_whoever_is_shown_nothing_waits_longer_each_time_and_is_at_once_shown_what_comes() -> None:
    known = Known(ReadEnd(10, 2))
    talk = session(known)
    waits = []
    for _ in range(30):
        found, wait_s = fetched(talk, 12, part("orders"))
        assert (found["orders"].error, bytes(found["orders"].records)) == (0, b"")
        waits.append(wait_s)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (WAIT_S_MIN, WAIT_S_MAX)
    assert len(known.awaited) < len(waits), "a twin that stands still is not asked all the time"
    known.end = ReadEnd(15, 2)
    found, wait_s = fetched(talk, 12, part("orders"))
    assert (len(found["orders"].records), wait_s) == (len(batch(10, 5)), 0)
    known.end = ReadEnd(10, 2)
    assert fetched(talk, 12, part("orders"))[1] == WAIT_S_MIN
    assert fetched(talk, 12, part("orders"), part("shared"))[1] == 0, "other records do not wait"


def test_without_a_bound_and_once_both_have_all_answers_pass_as_they_are() -> None:
    for end in (None, ReadEnd(25, 2)):
        found, wait_s = fetched(session(Known(end)), 12, part("orders"))
        assert (len(found["orders"].records), found["orders"].high_watermark, wait_s) == (len(RECORDS), 25, 0)


def listed(known: Known, *times: int) -> list[tuple[int, int]]:
    """Error and offset for each time asked, where the home has 7, 7 and so on."""
    kind = asked_part(LIST_OFFSETS, 5, "topics", "partitions")
    found = []
    for time in times:
        parts = (build_message(kind, partition_index=0, current_leader_epoch=-1, timestamp=time),)
        topics = (build_message(asked_part(LIST_OFFSETS, 5, "topics"), name="orders", partitions=parts),)
        move = session(known).move(asked(LIST_OFFSETS, 5, replica_id=-1, topics=topics), seen())
        assert isinstance(move, ForwardRequest), move
        said = build_message(said_part(LIST_OFFSETS, 5, "topics", "partitions"), partition_index=0, offset=7)
        body = answer(
            LIST_OFFSETS,
            5,
            topics=(build_message(said_part(LIST_OFFSETS, 5, "topics"), name="orders", partitions=(said,)),),
        )
        assert move.rewrite is not None
        told = move.rewrite(body, 0)
        (topic,) = by_kio(LIST_OFFSETS, 5, body if told is None else view(told)).topics
        found.append((int(topic.partitions[0].error_code), int(topic.partitions[0].offset)))
    return found


def test_latest_is_where_both_end_and_is_asked_again_until_that_is_known() -> None:
    assert listed(Known(ReadEnd(5, 0)), -1, -2, 1_000) == [(0, 5), (0, 7), (0, 7)]
    assert listed(Known(ReadEnd(9, 0)), -1) == [(0, 7)]
    assert listed(Known(ReadEnd()), -1, -2) == [(NOT_HERE, -1), (0, 7)]
    assert listed(Known(None), -1) == [(0, 7)]


def test_producers_that_write_protected_and_other_topics_on_one_connection_are_noted() -> None:
    for requests, mixes in (
        ([("orders",), ("orders",)], False),
        ([("shared",), ("shared",)], False),
        ([("orders", "shared")], True),
        ([("orders",), ("shared",)], True),
        ([("shared",), ("orders",)], True),
    ):
        known = Known(None)
        talk = session(known)
        for topics in requests:
            talk.move(sent(*topics), seen())
        assert known.mixing == [({"orders"}, "app")] * mixes, requests
    known = Known(None)
    for topic in ("orders", "shared"):
        session(known).move(sent(topic), seen())
        session(known).move(sent("orders", "shared", transactional="t"), seen())
    assert known.mixing == [], "two connections, and transactions"
