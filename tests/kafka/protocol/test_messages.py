"""Fetch, produce, markers and frames against kio: each side reads what the other wrote."""

from __future__ import annotations

import importlib
import io
import struct
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.describe_transactions.v0 import request as transactions_request
from kio.schema.describe_transactions.v0 import response as transactions_response
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch_request
from kio.schema.fetch.v13 import response as fetch_response
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.types import BrokerId, ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v1 import request as markers_request
from kio.schema.write_txn_markers.v1 import response as markers_response
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, TZAware, i16, i32, i32Timedelta, i64

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.fetch import FetchPartitionById, FetchResponseById, encode_fetch_by_id, parse_fetch_by_id
from twinshore.kafka.protocol.framing import frame_request, read_response_header
from twinshore.kafka.protocol.produce import ProducedPartition, encode_produce, read_produce_response
from twinshore.kafka.protocol.transactions import (
    MarkedPartition,
    TransactionMarker,
    TransactionState,
    encode_describe_transactions,
    encode_markers,
    parse_describe_transactions,
    parse_markers,
)

A, B = uuid.UUID(int=7), uuid.UUID(int=1 << 127)
UUIDS = st.sampled_from([A, B])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ERRORS = st.sampled_from([0, 1, 3, 6, 74, 75])


def from_kio(entity: Any) -> memoryview:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


def by_kio(schema: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    return entity


@given(
    st.lists(
        st.builds(FetchPartitionById, UUIDS.map(lambda u: u.bytes), INT32, INT64, INT32, INT32, INT32), max_size=300
    ),
    st.lists(st.tuples(UUIDS.map(lambda u: u.bytes), INT32), max_size=5),
    INT32,
)
def test_kio_reads_our_fetch(
    wanted: list[FetchPartitionById], forgotten: list[tuple[bytes, int]], session: int
) -> None:
    body = encode_fetch_by_id(
        session_id=session,
        session_epoch=3,
        max_wait_ms=250,
        min_bytes=1,
        max_bytes=16 << 20,
        isolation=1,
        partitions=wanted,
        forgotten=forgotten,
    )
    request = by_kio(fetch_request.FetchRequest, body)
    assert [
        FetchPartitionById(
            topic.topic_id.bytes,
            part.partition,
            part.fetch_offset,
            part.current_leader_epoch,
            part.last_fetched_epoch,
            part.partition_max_bytes,
        )
        for topic in request.topics
        for part in topic.partitions
    ] == sorted(wanted, key=lambda part: [w.topic_id for w in wanted].index(part.topic_id))
    assert sorted((t.topic_id.bytes, p) for t in request.forgotten_topics_data for p in t.partitions) == sorted(
        forgotten
    )
    assert (request.session_id, request.session_epoch, request.isolation_level) == (session, 3, 1)
    assert (request.replica_id, request.max_wait, request.max_bytes) == (-1, timedelta(milliseconds=250), 16 << 20)


@st.composite
def fetched(draw: st.DrawFn) -> fetch_response.FetchResponse:
    def part() -> fetch_response.PartitionData:
        tags: dict[str, Any] = {}
        if draw(st.booleans()):
            tags["diverging_epoch"] = fetch_response.EpochEndOffset(epoch=i32(draw(INT32)), end_offset=i64(4))
        if draw(st.booleans()):
            tags["current_leader"] = fetch_response.LeaderIdAndEpoch(leader_id=BrokerId(3), leader_epoch=i32(9))
        if draw(st.booleans()):
            tags["snapshot_id"] = fetch_response.SnapshotId(end_offset=i64(4), epoch=i32(1))
        aborted = draw(st.none() | st.lists(st.tuples(INT64, INT64), max_size=3))
        return fetch_response.PartitionData(
            partition_index=i32(draw(INT32)),
            error_code=ErrorCode(draw(ERRORS)),
            high_watermark=i64(draw(INT64)),
            last_stable_offset=i64(draw(INT64)),
            log_start_offset=i64(draw(INT64)),
            aborted_transactions=None
            if aborted is None
            else tuple(
                fetch_response.AbortedTransaction(producer_id=ProducerId(pid), first_offset=i64(first))
                for pid, first in aborted
            ),
            records=draw(st.none() | st.binary(max_size=300).map(Records)),
            **tags,
        )

    return fetch_response.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=draw(st.integers(0, 1000)))),
        error_code=ErrorCode(draw(ERRORS)),
        session_id=i32(draw(INT32)),
        responses=tuple(
            fetch_response.FetchableTopicResponse(
                topic_id=draw(UUIDS), partitions=tuple(part() for _ in range(draw(st.integers(0, 3))))
            )
            for _ in range(draw(st.integers(0, 3)))
        ),
    )


def described(answer: FetchResponseById) -> list[tuple[Any, ...]]:
    return [(*part[:-1], bytes(part.records)) for part in answer.partitions]


@given(fetched())
def test_we_read_kios_fetch_answer(response: fetch_response.FetchResponse) -> None:
    none = (-1, -1)
    answer = parse_fetch_by_id(memoryview(b"head" + from_kio(response)), 4)
    expected = []
    for topic in response.responses:
        assert topic.topic_id
        for part in topic.partitions:
            diverging = (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
            leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
            expected.append(
                (
                    topic.topic_id.bytes,
                    part.partition_index,
                    part.error_code.value,
                    part.high_watermark,
                    part.last_stable_offset,
                    part.log_start_offset,
                    None if diverging == none else diverging,
                    None if leader == none else leader,
                    [(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()],
                    part.records or b"",
                )
            )
    assert described(answer) == expected
    assert (answer.error, answer.session_id) == (response.error_code.value, response.session_id)
    assert timedelta(milliseconds=answer.throttle_ms) == response.throttle_time


def test_fetched_records_are_views_not_copies() -> None:
    part = fetch_response.PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode(0),
        high_watermark=i64(1),
        aborted_transactions=None,
        records=Records(b"abc"),
    )
    response = fetch_response.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode(0),
        responses=(fetch_response.FetchableTopicResponse(topic_id=A, partitions=(part,)),),
    )
    buffer = bytearray(from_kio(response))
    (only,) = parse_fetch_by_id(memoryview(buffer), 0).partitions
    buffer[buffer.index(b"abc")] = ord("x")
    assert bytes(only.records) == b"xbc"


PRODUCE_VERSIONS = st.integers(9, 13)


@given(
    PRODUCE_VERSIONS,
    st.lists(st.tuples(INT32, st.binary(min_size=61, max_size=61), st.binary(max_size=200)), max_size=200),
    st.none() | st.text(max_size=5),
)
def test_kio_reads_our_produce(version: int, parts: list[tuple[int, bytes, bytes]], transaction: str | None) -> None:
    topics: list[tuple[str, bytes, Any]] = [
        ("orders", A.bytes, parts),
        ("é", B.bytes, [(1, b"head", memoryview(b"body"))]),
        ("empty", A.bytes, []),
    ]
    buffers = encode_produce(version, topics, acks=1, timeout_ms=99, transactional_id=transaction)
    schema = importlib.import_module(f"kio.schema.produce.v{version}.request")
    request = by_kio(schema.ProduceRequest, b"".join(buffers))
    names = [topic.name for topic in request.topic_data] if version < 13 else None
    ids = [topic.topic_id.bytes for topic in request.topic_data] if version == 13 else None
    assert names == (["orders", "é", "empty"] if version < 13 else None)
    assert ids == ([A.bytes, B.bytes, A.bytes] if version == 13 else None)
    assert [(part.index, part.records) for part in request.topic_data[0].partition_data] == [
        (partition, head + body) for partition, head, body in parts
    ]
    assert request.topic_data[1].partition_data[0].records == b"headbody"
    assert (request.acks, request.timeout, request.transactional_id) == (1, timedelta(milliseconds=99), transaction)


def test_produce_does_not_copy_bodies() -> None:
    body = memoryview(bytearray(b"body"))
    assert any(buffer is body for buffer in encode_produce(9, [("t", A.bytes, [(0, b"head", body)])]))


@given(PRODUCE_VERSIONS, st.data())
def test_we_read_kios_produce_answer(version: int, data: st.DataObject) -> None:
    schema = importlib.import_module(f"kio.schema.produce.v{version}.response")
    expected = []
    topics = []
    for name, topic_id in data.draw(st.lists(st.sampled_from([("a", A), ("ü", B)]), max_size=2, unique=True)):
        parts = []
        for _ in range(data.draw(st.integers(0, 3))):
            error, base, start = data.draw(st.tuples(ERRORS, INT64, INT64))
            message = data.draw(st.none() | st.text(min_size=1, max_size=9))
            leader = data.draw(st.none() | st.tuples(st.integers(0, 9), INT32)) if version >= 10 else None
            record = data.draw(st.none() | st.text(max_size=5))
            tags = {}
            if leader:
                tags["current_leader"] = schema.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            parts.append(
                schema.PartitionProduceResponse(
                    index=i32(1),
                    error_code=ErrorCode(error),
                    base_offset=i64(base),
                    log_start_offset=i64(start),
                    record_errors=()
                    if record is None
                    else (schema.BatchIndexAndErrorMessage(batch_index=i32(4), batch_index_error_message=record),),
                    error_message=message,
                    **tags,
                )
            )
            topic = name if version < 13 else topic_id.bytes
            refused = [] if record is None else [(4, record)]
            expected.append(ProducedPartition(topic, 1, error, base, -1, start, message, leader, refused))
            text = message or (None if record is None else f"record 4: {record}")
            assert expected[-1].reason == text
        named = {"name": TopicName(name)} if version < 13 else {"topic_id": topic_id}
        topics.append(schema.TopicProduceResponse(**named, partition_responses=tuple(parts)))
    more: dict[str, Any] = {}
    if version >= 10 and data.draw(st.booleans()):
        more["node_endpoints"] = (schema.NodeEndpoint(node_id=BrokerId(1), host="h", port=i32(9092)),)
    view = from_kio(schema.ProduceResponse(responses=tuple(topics), **more))
    assert read_produce_response(view, 0, version).appended == expected


@pytest.mark.parametrize("version", [8, 14])
def test_other_produce_versions_are_refused(version: int) -> None:
    with pytest.raises(WireError, match=f"Produce v{version} is not spoken here"):
        encode_produce(version, [])


def test_kio_reads_our_markers() -> None:
    commit = TransactionMarker(44, 3, True, 7, [("orders", [0, 5]), ("other", [1])])
    request = by_kio(
        markers_request.WriteTxnMarkersRequest, encode_markers([(commit, 2), (commit._replace(commit=False), 300)])
    )
    assert [marker.transaction_result for marker in request.markers] == [True, True, *[False] * 300]
    for marker in request.markers:
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (44, 3, 7)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [
            ("orders", (0, 5)),
            ("other", (1,)),
        ]


def test_we_read_kios_markers_answer() -> None:
    topic = markers_response.WritableTxnMarkerTopicResult(
        name=TopicName("orders"),
        partitions=tuple(
            markers_response.WritableTxnMarkerPartitionResult(partition_index=i32(p), error_code=ErrorCode(e))
            for p, e in ((0, 0), (5, 52))
        ),
    )
    one = markers_response.WritableTxnMarkerResult(producer_id=ProducerId(44), topics=(topic,))
    view = from_kio(markers_response.WriteTxnMarkersResponse(markers=(one, one)))
    assert parse_markers(view, 0) == [MarkedPartition(44, "orders", 0, 0), MarkedPartition(44, "orders", 5, 52)] * 2


@pytest.mark.parametrize(("flexible", "schema"), [(True, HeaderV2), (False, HeaderV1)])
def test_kio_reads_our_frame(flexible: bool, schema: type[Any]) -> None:
    data = b"".join(frame_request(1, 13, 2**31 - 1, "twinshore", [b"ab", memoryview(b"cd")], flexible))
    assert struct.unpack(">i", data[:4]) == (len(data) - 4,)
    header, size = entity_reader(schema)(data, 4)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (1, 13, 2**31 - 1)
    assert header.client_id == "twinshore"
    assert data[4 + size :] == b"abcd"


def test_a_request_too_long_for_the_protocol_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(WireError, match="beyond the protocol"):
        frame_request(0, 9, 1, "x", [Huge()])


def test_response_headers() -> None:
    assert read_response_header(memoryview(b"\0\0\1\0\0rest")) == (256, 5)
    assert read_response_header(memoryview(b"\0\0\1\0\1\7\2abrest")) == (256, 9)
    assert read_response_header(memoryview(b"\0\0\1\0rest"), flexible=False) == (256, 4)
    for size in range(5):
        with pytest.raises(WireError, match="response header"):
            read_response_header(memoryview(b"\0\0\1\0\0"[:size]))


@given(fetched())
def test_an_answer_cut_anywhere_is_a_wire_error(response: fetch_response.FetchResponse) -> None:
    view = from_kio(response)
    for size in range(len(view)):
        with pytest.raises(WireError):
            parse_fetch_by_id(view[:size], 0)


def test_kio_reads_our_question_about_transactions() -> None:
    names = [f"twinshore.a->b.17.{number}" for number in range(200)]
    request = by_kio(transactions_request.DescribeTransactionsRequest, encode_describe_transactions(names))
    assert list(request.transactional_ids) == names


def test_we_read_how_transactions_stand_though_one_never_began() -> None:
    state = transactions_response.TransactionState(
        error_code=ErrorCode(0),
        transactional_id=TransactionalId("one"),
        transaction_state="Ongoing",
        transaction_timeout=i32Timedelta.parse(timedelta(seconds=20)),
        transaction_start_time=TZAware.truncate(datetime.fromtimestamp(5, UTC)),
        producer_id=ProducerId(17),
        producer_epoch=i16(3),
        topics=(transactions_response.TopicData(topic=TopicName("orders"), partitions=(i32(0), i32(5))),),
    )
    answer = transactions_response.DescribeTransactionsResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)), transaction_states=(state, state)
    )
    data = bytes(from_kio(answer))
    began = struct.pack(">iq", 20_000, 5_000)
    assert data.count(began) == 2
    view = memoryview(data.replace(began, struct.pack(">iq", 20_000, -1)))
    one = TransactionState(0, "one", "Ongoing", 17, 3, [("orders", 0), ("orders", 5)])
    assert parse_describe_transactions(view, 0) == [one, one]
    for end in range(len(view)):
        with pytest.raises(WireError):
            parse_describe_transactions(view[:end], 0)
