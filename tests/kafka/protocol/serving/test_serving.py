"""Produce and Fetch in both roles and every version: against kio, against ourselves, and cut anywhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kafka.protocol.serving.kio_schemas import by_kio
from twinshore.config.errors import WireError
from twinshore.kafka.protocol import fetch, produce
from twinshore.kafka.protocol.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    ForgottenPartition,
)
from twinshore.kafka.protocol.produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
)
from twinshore.kafka.protocol.requests import Endpoint

I16, I32, I64 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
CODES = st.sampled_from([0, 1, 3, 6, 45, 87, 100])
NAMES = st.text(max_size=12)
BY_ID = {produce: produce.PRODUCE_VERSION_BY_ID, fetch: fetch.FETCH_VERSION_BY_ID}
IDS = st.integers(1, 2**128 - 1).map(lambda number: number.to_bytes(16, "big"))
PAIRS = st.none() | st.tuples(I32, I32)
ENDPOINTS = st.lists(st.builds(Endpoint, I32, NAMES, I32, st.none() | NAMES), max_size=2)
# A log's bytes are not looked into here.
RECORDS = st.none() | st.binary(max_size=40)
# What kio can say in a datetime.
TIMES = st.integers(-1, 200_000_000_000_000)
# There are over fifty pairs of message and version.
few = settings(max_examples=15)


def together(ones: list[Any]) -> list[Any]:
    """Of one topic in a row."""
    return sorted(ones, key=lambda one: one.topic)


def many(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(one, max_size=6).map(together)


def produce_requests(topics: st.SearchStrategy[Any]) -> st.SearchStrategy[ProduceRequest]:
    return st.builds(
        ProduceRequest, st.none() | NAMES, I16, I32, many(st.builds(ProduceRequestPartition, topics, I32, RECORDS))
    )


def produce_answers(topics: st.SearchStrategy[Any]) -> st.SearchStrategy[ProduceResponse]:
    refused = st.lists(st.tuples(I32, st.none() | NAMES), max_size=2)
    one = st.builds(ProducedPartition, topics, I32, CODES, I64, TIMES, I64, st.none() | NAMES, PAIRS, refused)
    return st.builds(ProduceResponse, many(one), I32, ENDPOINTS)


def fetch_requests(topics: st.SearchStrategy[Any]) -> st.SearchStrategy[FetchRequest]:
    wanted = many(st.builds(FetchRequestPartition, topics, I32, I64, I32, I32, I32, I64))
    dropped = many(st.builds(ForgottenPartition, topics, I32))
    numbers = (I32, I32, I32, st.integers(0, 1))
    return st.builds(FetchRequest, *numbers, wanted, I32, I32, dropped, NAMES, st.tuples(I32, I64))


def fetch_answers(topics: st.SearchStrategy[Any]) -> st.SearchStrategy[FetchResponse]:
    aborted = st.none() | st.lists(st.tuples(I64, I64), max_size=3)
    epoch_end, snapshot = st.none() | st.tuples(I32, I64), st.none() | st.tuples(I64, I32)
    numbers = (I32, CODES, I64, I64, I64)
    one = st.builds(FetchResponsePartition, topics, *numbers, aborted, I32, RECORDS, epoch_end, PAIRS, snapshot)
    return st.builds(FetchResponse, I32, CODES, I32, many(one), ENDPOINTS)


PRODUCE_VERSIONS, FETCH_VERSIONS = list(produce.PRODUCE_VERSIONS), list(fetch.FETCH_VERSIONS)


def topics_of(module: Any, version: int) -> st.SearchStrategy[Any]:
    return IDS if version >= BY_ID[module] else NAMES


def kios_topic(entity: Any) -> str | bytes:
    if hasattr(entity, "topic_id"):
        return bytes(16) if entity.topic_id is None else bytes(entity.topic_id.bytes)
    return str(entity.name if hasattr(entity, "name") else entity.topic)


def topics(ones: Any) -> list[tuple[str | bytes, list[Any]]]:
    return [(topic, list(ours)) for topic, ours in groupby(ones, key=lambda one: one.topic)]


def body(written: Any) -> bytes:
    return written if isinstance(written, bytes) else b"".join(written)


def test_every_version_that_clients_send_is_there() -> None:
    assert (PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[-1]) == (3, 13)
    assert (FETCH_VERSIONS[0], FETCH_VERSIONS[-1]) == (4, 18)
    with pytest.raises(WireError, match="Produce v2 is not served here, only v3-13"):
        produce.read_produce_request(memoryview(b""), 0, 2)
    with pytest.raises(WireError, match="Fetch v19 is not served here, only v4-18"):
        fetch.read_fetch_request(memoryview(b""), 0, 19)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few
@given(data=st.data())
def test_produce_requests(version: int, data: st.DataObject) -> None:
    wanted = data.draw(produce_requests(topics_of(produce, version)))
    written = body(produce.write_produce_request(version, wanted))
    read = produce.read_produce_request(memoryview(b"xx" + written), 2, version)
    assert read == wanted
    theirs = by_kio("produce", version, "request", written)
    assert (theirs.transactional_id, theirs.acks) == (wanted.transactional_id, wanted.acks)
    assert [kios_topic(topic) for topic in theirs.topic_data] == [topic for topic, _ in topics(wanted.batches)]
    parts = [part for topic in theirs.topic_data for part in topic.partition_data]
    assert [(part.index, part.records) for part in parts] == [(one.partition, one.records) for one in wanted.batches]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_reader_of_one_client_s_produce_requests_reads_what_anybody_would(version: int) -> None:
    """Behind a request that it remembers: the same cut anywhere, longer, or with any byte another one."""
    topic = IDS_OF_ONE if version >= produce.PRODUCE_VERSION_BY_ID else "orders"
    whole = body(
        produce.write_produce_request(
            version, ProduceRequest(None, 1, 1000, [ProduceRequestPartition(topic, 3, b"batch")])
        )
    )
    others = [whole[:end] for end in range(len(whole))] + [whole + b"\0", whole + b"\1\0\0"]
    others += [whole[:at] + bytes([byte]) + whole[at + 1 :] for at in range(len(whole)) for byte in (0, 1, 0x80, 0xFF)]
    for other in others:
        reader = produce.ProduceRequestReader()
        for written in (whole, whole, other, whole):
            view = memoryview(b"xx" + written)
            assert outcome(reader.read, view, 2, version) == outcome(produce.read_produce_request, view, 2, version), (
                other
            )


def test_a_reader_remembers_no_request_that_is_written_oddly() -> None:
    """A count may be written longer than it need be: what follows it then stands elsewhere."""
    plain = body(
        produce.write_produce_request(
            9, ProduceRequest(None, 1, 1000, [ProduceRequestPartition("orders", 3, b"batch")])
        )
    )
    odd = plain[:7] + b"\x82\x00" + plain[8:]
    assert produce.read_produce_request(memoryview(odd), 0, 9) == produce.read_produce_request(memoryview(plain), 0, 9)
    reader = produce.ProduceRequestReader()
    for written in (odd, plain, odd, odd, plain, plain):
        view = memoryview(written)
        assert reader.read(view, 0, 9) == produce.read_produce_request(view, 0, 9)


IDS_OF_ONE = bytes(range(16))


def outcome(read: Callable[..., Any], *words: Any) -> Any:
    """What it reads, or that it cannot be read."""
    try:
        return read(*words)
    except WireError:
        return WireError


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few
@given(data=st.data())
def test_produce_answers(version: int, data: st.DataObject) -> None:
    given_answer = data.draw(produce_answers(topics_of(produce, version)))
    appended = [
        one._replace(
            log_start=one.log_start if version >= 5 else -1,
            refused=one.refused if version >= 8 else [],
            message=one.message if version >= 8 else None,
            current_leader=one.current_leader if version >= 10 else None,
        )
        for one in given_answer.appended
    ]
    wanted = given_answer._replace(appended=appended, endpoints=given_answer.endpoints if version >= 10 else [])
    written = produce.write_produce_response(version, given_answer)
    assert produce.read_produce_response(memoryview(written), 0, version) == wanted
    odd = [one for one in appended if one.error or one.refused or one.message is not None or one.current_leader]
    assert produce.is_all_appended(memoryview(b"xx" + written), 2, version) is not bool(odd or wanted.endpoints)
    theirs = by_kio("produce", version, "response", written)
    assert [kios_topic(topic) for topic in theirs.responses] == [topic for topic, _ in topics(appended)]
    parts = [part for topic in theirs.responses for part in topic.partition_responses]
    assert [(part.index, int(part.error_code), part.base_offset) for part in parts] == [
        (one.partition, one.error, one.base_offset) for one in appended
    ]
    if version >= 8:
        assert [part.error_message for part in parts] == [one.message for one in appended]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few
@given(data=st.data())
def test_fetch_requests(version: int, data: st.DataObject) -> None:
    drawn = data.draw(fetch_requests(topics_of(fetch, version)))
    wanted = drawn._replace(
        wanted=[
            one._replace(
                leader_epoch=one.leader_epoch if version >= 9 else -1,
                last_fetched_epoch=one.last_fetched_epoch if version >= 12 else -1,
                log_start=one.log_start if version >= 5 else -1,
            )
            for one in drawn.wanted
        ],
        session_id=drawn.session_id if version >= 7 else 0,
        session_epoch=drawn.session_epoch if version >= 7 else -1,
        dropped=drawn.dropped if version >= 7 else [],
        rack=drawn.rack if version >= 11 else "",
        replica=drawn.replica if version >= 15 else (drawn.replica[0], -1),
    )
    written = fetch.write_fetch_request(version, drawn)
    assert fetch.read_fetch_request(memoryview(b"x" + written), 1, version) == wanted
    theirs = by_kio("fetch", version, "request", written)
    assert (theirs.min_bytes, theirs.max_bytes, theirs.isolation_level) == (
        wanted.min_bytes,
        wanted.max_bytes,
        wanted.isolation,
    )
    assert [kios_topic(topic) for topic in theirs.topics] == [topic for topic, _ in topics(wanted.wanted)]
    parts = [part for topic in theirs.topics for part in topic.partitions]
    assert [(part.partition, part.fetch_offset, part.partition_max_bytes) for part in parts] == [
        (one.partition, one.position, one.max_bytes) for one in wanted.wanted
    ]
    if version >= 12:
        assert [(part.current_leader_epoch, part.last_fetched_epoch, part.log_start_offset) for part in parts] == [
            (one.leader_epoch, one.last_fetched_epoch, one.log_start) for one in wanted.wanted
        ]
    if version >= 15:
        assert (theirs.replica_state.replica_id, theirs.replica_state.replica_epoch) == wanted.replica


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few
@given(data=st.data())
def test_fetch_answers(version: int, data: st.DataObject) -> None:
    drawn = data.draw(fetch_answers(topics_of(fetch, version)))
    tags = version >= 12
    fetched = [
        one._replace(
            log_start=one.log_start if version >= 5 else -1,
            preferred_replica=one.preferred_replica if version >= 11 else -1,
            diverging_epoch=one.diverging_epoch if tags else None,
            current_leader=one.current_leader if tags else None,
            snapshot=one.snapshot if tags else None,
        )
        for one in drawn.fetched
    ]
    wanted = drawn._replace(
        error=drawn.error if version >= 7 else 0,
        session_id=drawn.session_id if version >= 7 else 0,
        fetched=fetched,
        endpoints=drawn.endpoints if version >= 16 else [],
    )
    written = body(fetch.write_fetch_response(version, drawn))
    assert fetch.read_fetch_response(memoryview(written), 0, version) == wanted
    theirs = by_kio("fetch", version, "response", written)
    parts = [part for topic in theirs.responses for part in topic.partitions]
    assert [kios_topic(topic) for topic in theirs.responses] == [topic for topic, _ in topics(fetched)]
    assert [(part.partition_index, part.high_watermark, part.last_stable_offset, part.records) for part in parts] == [
        (one.partition, one.high_watermark, one.last_stable_offset, one.records) for one in fetched
    ]
    if tags:
        leaders = [(part.current_leader.leader_id, part.current_leader.leader_epoch) for part in parts]
        assert leaders == [one.current_leader or (-1, -1) for one in fetched]


def one_of_each(module: Any, version: int) -> list[tuple[Callable[..., Any], bytes]]:
    """Each reader with bytes that have everything in them."""
    topic: str | bytes = uuid.UUID(int=9).bytes if version >= BY_ID[module] else "orders"
    if module is produce:
        request = ProduceRequest(
            "tx", 1, 5000, [ProduceRequestPartition(topic, 0, b"abc"), ProduceRequestPartition(topic, 1, None)]
        )
        appended = ProducedPartition(topic, 0, 87, -1, -1, 3, "worse", (4, 5), [(2, "bad"), (3, None)])
        answer = ProduceResponse([appended], 7, [Endpoint(4, "b4", 9092, "a")])
        return [
            (produce.read_produce_request, body(produce.write_produce_request(version, request))),
            (produce.read_produce_response, produce.write_produce_response(version, answer)),
        ]
    wanted = FetchRequest(
        5, 1, 99, 1, [FetchRequestPartition(topic, 0, 7, 50, 2, 2)], 3, 4, [ForgottenPartition(topic, 5)], "a", (1, 2)
    )
    fetched = FetchResponsePartition(topic, 0, 0, 9, 9, 0, [(7, 3)], 2, b"abc", (1, 2), (3, 4), (5, 6))
    told = FetchResponse(0, 0, 3, [fetched], [Endpoint(4, "b4", 9092, None)])
    return [
        (fetch.read_fetch_request, fetch.write_fetch_request(version, wanted)),
        (fetch.read_fetch_response, body(fetch.write_fetch_response(version, told))),
    ]


@pytest.mark.parametrize(
    ("module", "version"), [(produce, one) for one in PRODUCE_VERSIONS] + [(fetch, one) for one in FETCH_VERSIONS]
)
def test_what_is_cut_anywhere_is_a_wire_error(module: Any, version: int) -> None:
    for read, data in one_of_each(module, version):
        read(memoryview(data), 0, version)
        for end in range(len(data)):
            with pytest.raises(WireError):
                read(memoryview(data)[:end], 0, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_an_answer_that_is_cut_anywhere_is_not_taken_for_a_whole_one(version: int) -> None:
    topic: str | bytes = uuid.UUID(int=9).bytes if version >= produce.PRODUCE_VERSION_BY_ID else "orders"
    written = produce.write_produce_response(
        version, ProduceResponse([ProducedPartition(topic, 0, 0, 7), ProducedPartition(topic, 1, 0, 8)])
    )
    assert produce.is_all_appended(memoryview(written), 0, version)
    for end in range(len(written)):
        with suppress(WireError):
            assert not produce.is_all_appended(memoryview(written)[:end], 0, version), end


@pytest.mark.parametrize(("version", "tags"), [(8, False), (9, True)])
def test_a_size_beyond_the_frame_is_a_wire_error(version: int, tags: bool) -> None:
    (read, data), _ = one_of_each(produce, version)
    at = data.index(b"abc")
    huge = b"\xff\xff\xff\xff\x07" if tags else b"\x7f\xff\xff\xff"
    spoilt = data[: at - (1 if tags else 4)] + huge + data[at:]
    with pytest.raises(WireError, match="past the end"):
        read(memoryview(spoilt), 0, version)


def test_records_are_neither_copied_nor_moved() -> None:
    asked = produce.write_produce_request(9, ProduceRequest(None, 1, 1, [ProduceRequestPartition("t", 0, b"abc")]))
    frame = memoryview(bytearray(b"".join(asked)))
    (batches,) = produce.read_produce_request(frame, 0, 9).batches
    assert isinstance(batches.records, memoryview) and batches.records.obj is frame.obj
    sent = produce.write_produce_request(9, ProduceRequest(None, 1, 1, [batches]))
    assert any(one is batches.records for one in sent)
    told = fetch.write_fetch_response(
        13, FetchResponse(0, 0, 0, [FetchResponsePartition(bytes(16), 0, 0, 1, 1, records=b"abc")])
    )
    answer = memoryview(bytearray(body(told)))
    (fetched,) = fetch.read_fetch_response(answer, 0, 13).fetched
    assert isinstance(fetched.records, memoryview) and fetched.records.obj is answer.obj
    assert any(one is fetched.records for one in fetch.write_fetch_response(13, FetchResponse(0, 0, 0, [fetched])))


@pytest.mark.parametrize(("version", "topic"), [(12, bytes(16)), (13, "orders")])
def test_a_topic_is_named_as_its_version_names_it(version: int, topic: str | bytes) -> None:
    with pytest.raises(WireError, match="named by its"):
        produce.write_produce_response(version, ProduceResponse([ProducedPartition(topic, 0, 0, 0)]))
