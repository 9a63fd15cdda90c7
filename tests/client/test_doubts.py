"""A call bears a header by which it is known again wherever it was copied to; those in doubt are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from tests.client.spool.spooling import put
from tests.client.turning import Stage, stage
from twinshore.client.core.spool_format import SpoolRecord, find_own_send_id, find_send_id
from twinshore.client.dedupe import SEARCH_BACK_MS, SendSearch, with_send_id
from twinshore.client.pending import PendingSend
from twinshore.client.spool import Spool
from twinshore.config.frozen import CALL_HEADER
from twinshore.kafka.clock import steady_s, wall_ms

__all__ = ["stage"]

HEADERS = st.lists(st.tuples(st.sampled_from([CALL_HEADER, "other"]), st.none() | st.binary(max_size=9)), max_size=4)
NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000


@given(HEADERS, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_mark_is_the_call_s_own_whatever_it_bore_before(
    headers: list[tuple[str, bytes | None]], number: int, timestamp: int
) -> None:
    """As of a program that reads records and sends them on."""
    kept = PendingSend(number, "orders", b"value", None, -1, None, timestamp, tuple(headers))
    found = with_send_id(kept, "who", 77)
    assert find_send_id(found.headers) == find_own_send_id(found.headers, number) == b"who-%d" % number
    assert find_own_send_id(found.headers, number + 1) is None
    assert found.headers[:-1] == kept.headers
    assert found.timestamp == (timestamp or 77), "a time that the application has set stays"
    assert find_send_id(()) is None


class Log:
    """A topic's, of one partition, as consumers read it."""

    def __init__(self, records: Sequence[tuple[bytes | None, int]]) -> None:
        self.records, self.begins = records, list[int]()

    def consumer(self, _: dict[str, Any]) -> Log:
        return self

    def list_topics(self, topic: str, **_: Any) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=(0,))})

    def offsets_for_times(self, asked: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        since_ms = asked[0].offset
        self.begins.append(since_ms)
        late = [offset for offset, (_, time_ms) in enumerate(self.records) if time_ms >= since_ms]
        return [TopicPartition(asked[0].topic, 0, late[0] if late else -1)]

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, len(self.records)

    def assign(self, begins: list[TopicPartition]) -> None:
        self.left = list(range(begins[0].offset, len(self.records))) if begins else []

    def consume(self, *_: Any) -> list[Message]:
        left, self.left = self.left, []
        return [Message(topic="orders", partition=0, offset=one, headers=self._headers(one)) for one in left]

    def _headers(self, offset: int) -> list[tuple[str, str | bytes | None]]:
        mark = self.records[offset][0]
        return [] if mark is None else [(CALL_HEADER, mark)]

    def close(self) -> None:
        pass


def turns(stage: Stage) -> None:
    """Until its searches are over, and what is left was sent."""
    until_s = steady_s() + 30
    while not stage.producer._router.pending.is_empty("orders"):
        assert steady_s() < until_s
        stage.turn()


def left_there(folder: Path, *calls: tuple[int, int, bytes | None]) -> None:
    """By an earlier process: the number of each, its time, and its mark."""
    spool = Spool(folder)
    for number, time_ms, mark in calls:
        headers = () if mark is None else ((CALL_HEADER, mark),)
        put(spool, SpoolRecord(number, "orders", b"%d" % number, None, 0, time_ms, headers, NOW_MS))
    spool.close()


def sent_by_the_next_process(stage: Stage, folder: Path) -> list[bytes]:
    stage.opens("orders", spool=folder, recognise=True)
    turns(stage)
    return [value for _, value in stage.log("east") if value != b"first"]


@pytest.mark.parametrize("time_ms", [NOW_MS, NOW_MS - 100 * HOUR_MS])
def test_what_an_earlier_process_left_is_looked_for_from_the_earliest_of_its_times(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_ms: int
) -> None:
    """Times that an application sets fall and rise; and the first call was kept before calls bore marks."""
    there = [(b"before-%d" % number, time_ms - (1 - number % 2) * HOUR_MS) for number in range(1, 20)]
    log = Log([(None, time_ms - 2 * HOUR_MS), *sorted(there, key=lambda one: one[1])])
    monkeypatch.setattr("twinshore.client.dedupe.Consumer", log.consumer)
    left = [(number, time_ms - (1 - number % 2) * HOUR_MS, b"before-%d" % number) for number in range(1, 25)]
    left_there(tmp_path, (0, time_ms - 500 * HOUR_MS, None), *left)
    assert sent_by_the_next_process(stage, tmp_path) == [b"%d" % number for number in (0, *range(20, 25))]
    assert log.begins == [time_ms - HOUR_MS - SEARCH_BACK_MS], "what bears no mark counts for nothing"
    assert stage.said == []


def test_where_nothing_that_is_left_bears_a_mark_of_its_own_nothing_is_looked_for(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that sends records on may hand a mark on: it is another call's, which is there."""
    log = Log([(b"another-7", NOW_MS), (b"another-0", NOW_MS)])
    monkeypatch.setattr("twinshore.client.dedupe.Consumer", log.consumer)
    left_there(tmp_path, (0, NOW_MS, None), (1, NOW_MS, b"another-7"), (2, NOW_MS, b"9" * 9_999))
    assert sent_by_the_next_process(stage, tmp_path) == [b"0", b"1", b"2"]
    assert log.begins == []


@pytest.mark.parametrize("awaited", [False, True])
def test_no_more_is_kept_in_mind_of_a_log_than_is_in_doubt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    """It holds calls of the same producer that were answered, and of others, as many as they like."""
    producer, heard, searches = stage.opens("orders", recognise=True), list[Message](), list[SendSearch]()
    doubts = producer._router.unconfirmed
    assert doubts is not None
    stage.at("east").lives = False

    def hears(_: KafkaError | None, message: Message | None) -> None:
        assert message is not None
        heard.append(message)

    def searched(*words: Any) -> SendSearch:
        searches.append(SendSearch(*words))
        return searches[-1]

    for number in range(10):
        producer.produce("orders", b"%d" % number, on_delivery=hears if awaited else None)
    who = doubts._who.encode()
    crossed = [b"%s-%d" % (who, number) for number in range(1, 5)]  # the first call of all was answered
    others = [b"another-%d" % number for number in range(500)] + [b"%s-%d" % (who, 999_000 + n) for n in range(500)]
    log = Log([(mark, wall_ms()) for mark in (*others, *crossed)])
    monkeypatch.setattr("twinshore.client.dedupe.Consumer", log.consumer)
    monkeypatch.setattr("twinshore.client.dedupe.SendSearch", searched)
    monkeypatch.setattr("twinshore.client.dedupe.FOUND_SENDS_MAX", 4)
    stage.hears("west", 2, "orders")
    stage.turn()
    turns(stage)
    (search,) = searches
    assert (set(search.found), search.why) == (set(crossed), "")
    assert [value for _, value in stage.log("west")] == [b"%d" % number for number in range(4, 10)]
    assert all((found is not None) is awaited for found in search.found.values()), "a record is held for whoever waits"
    producer.poll()
    assert [one.offset() for one in heard] == ([1_000, 1_001, 1_002, 1_003] if awaited else [])


def test_a_search_that_finds_more_than_it_may_hold_says_so_and_what_it_found_counts(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log([(b"before-%d" % number, NOW_MS) for number in range(6)])
    monkeypatch.setattr("twinshore.client.dedupe.Consumer", log.consumer)
    monkeypatch.setattr("twinshore.client.dedupe.FOUND_SENDS_MAX", 3)
    left_there(tmp_path, *((number, NOW_MS, b"before-%d" % number) for number in range(6)))
    assert sent_by_the_next_process(stage, tmp_path) == [b"3", b"4", b"5"]
    assert ["may be there twice" in one for one in stage.said] == [True]


def test_a_refusal_that_comes_once_is_no_doubt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinshore.client.dedupe.Consumer", Log([]).consumer)
    producer = stage.opens("orders", recognise=True)
    producer.produce("orders", b"refused")
    stage.at("east").answers(KafkaError.MSG_SIZE_TOO_LARGE)
    stage.turn()
    assert producer._router.unconfirmed is not None
    assert not producer._router.unconfirmed._doubts
