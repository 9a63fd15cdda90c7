"""Our walkers of groups' places against kio's, made from Kafka's own schemas."""

from __future__ import annotations

import datetime
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8 import OffsetCommitRequest, OffsetCommitResponse
from kio.schema.offset_commit.v8 import response as committed
from kio.schema.offset_fetch.v8 import OffsetFetchRequest, OffsetFetchResponse
from kio.schema.offset_fetch.v8 import response as fetched
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.offsets import (
    CommittedOffset,
    GroupOffsets,
    TopicPartitionTuple,
    encode_offset_commit,
    encode_offset_fetch,
    parse_offset_commit,
    parse_offset_fetch,
    split_commit,
)

NAMES = st.text("abcxyz-._", min_size=1, max_size=200)
WHERES = st.tuples(NAMES, st.integers(0, 2**31 - 1))
PLACES = st.builds(CommittedOffset, st.integers(0, 2**63 - 1), st.none() | st.text(max_size=300))
GROUPS = st.dictionaries(NAMES, st.dictionaries(WHERES, PLACES, max_size=6), max_size=5)


def by_topic(places: dict[TopicPartitionTuple, CommittedOffset]) -> dict[str, dict[int, CommittedOffset]]:
    found: dict[str, dict[int, CommittedOffset]] = {}
    for (topic, partition), place in places.items():
        found.setdefault(topic, {})[partition] = place
    return found


def answer(groups: dict[str, dict[TopicPartitionTuple, CommittedOffset]], code: int = 0) -> bytes:
    told = tuple(
        fetched.OffsetFetchResponseGroup(
            group_id=GroupId(group),
            topics=tuple(
                fetched.OffsetFetchResponseTopics(
                    name=TopicName(topic),
                    partitions=tuple(
                        fetched.OffsetFetchResponsePartitions(
                            partition_index=i32(partition),
                            committed_offset=i64(place.offset),
                            committed_leader_epoch=i32(7),
                            metadata=place.metadata,
                            error_code=ErrorCode(0),
                        )
                        for partition, place in ours.items()
                    ),
                )
                for topic, ours in by_topic(places).items()
            ),
            error_code=ErrorCode(code),
        )
        for group, places in groups.items()
    )
    buffer = io.BytesIO()
    entity_writer(OffsetFetchResponse)(
        buffer, OffsetFetchResponse(throttle_time=i32Timedelta.parse(datetime.timedelta()), groups=told)
    )
    return buffer.getvalue()


@given(GROUPS)
def test_places_are_read_as_kafka_writes_them(groups: dict[str, dict[TopicPartitionTuple, CommittedOffset]]) -> None:
    found = parse_offset_fetch(answer(groups), {})
    assert {one.group: one.places for one in found} == groups
    assert all(one.error == 0 and one.failed == {} for one in found)


@given(GROUPS, GROUPS)
def test_a_group_that_says_the_same_is_known_by_its_bytes(
    before: dict[str, dict[TopicPartitionTuple, CommittedOffset]],
    after: dict[str, dict[TopicPartitionTuple, CommittedOffset]],
) -> None:
    known = {one.group: one for one in parse_offset_fetch(answer(before), {})}
    for one in parse_offset_fetch(answer({**before, **after}), known):
        assert one.places == {**before, **after}[one.group]
        if one.group not in after:
            assert one is known[one.group]


def test_a_group_refused_says_so() -> None:
    (found,) = parse_offset_fetch(answer({"g": {}}, code=30), {})
    assert found == GroupOffsets("g", 30, {}, {}, found.raw)


@given(GROUPS, st.data())
def test_an_answer_cut_short_is_no_answer(
    groups: dict[str, dict[TopicPartitionTuple, CommittedOffset]], data: st.DataObject
) -> None:
    whole = answer(groups)
    with pytest.raises(WireError):
        parse_offset_fetch(whole[: data.draw(st.integers(4, len(whole) - 1))], {})


@given(st.dictionaries(NAMES, st.none() | st.lists(WHERES, max_size=5, unique=True), max_size=4))
def test_what_is_asked_is_what_kafka_reads(groups: dict[str, list[TopicPartitionTuple] | None]) -> None:
    request, _ = entity_reader(OffsetFetchRequest)(memoryview(encode_offset_fetch(groups)), 0)
    read = {
        str(one.group_id): None
        if one.topics is None
        else sorted((str(topic.name), int(partition)) for topic in one.topics for partition in topic.partition_indexes)
        for one in request.groups
    }
    assert read == {group: None if wanted is None else sorted(wanted) for group, wanted in groups.items()}
    assert request.require_stable is False
    asked, _ = entity_reader(OffsetFetchRequest)(memoryview(encode_offset_fetch(groups, stable=True)), 0)
    assert asked.require_stable is True


@given(NAMES, st.dictionaries(WHERES, PLACES, max_size=6))
def test_a_commit_is_one_from_outside_and_names_no_epoch(
    group: str, places: dict[TopicPartitionTuple, CommittedOffset]
) -> None:
    request, _ = entity_reader(OffsetCommitRequest)(memoryview(encode_offset_commit(group, places)), 0)
    assert (request.group_id, request.member_id, request.group_instance_id) == (group, "", None)
    assert request.generation_id_or_member_epoch == -1
    read = {
        (str(topic.name), int(one.partition_index)): CommittedOffset(int(one.committed_offset), one.committed_metadata)
        for topic in request.topics
        for one in topic.partitions
    }
    assert read == places
    assert all(one.committed_leader_epoch == -1 for topic in request.topics for one in topic.partitions)


@given(st.dictionaries(WHERES, st.sampled_from([0, 3, 16, 25]), max_size=6))
def test_each_place_has_its_code(codes: dict[TopicPartitionTuple, int]) -> None:
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, {})[partition] = code
    told = tuple(
        committed.OffsetCommitResponseTopic(
            name=TopicName(topic),
            partitions=tuple(
                committed.OffsetCommitResponsePartition(partition_index=i32(number), error_code=ErrorCode(code))
                for number, code in ours.items()
            ),
        )
        for topic, ours in topics.items()
    )
    buffer = io.BytesIO()
    entity_writer(OffsetCommitResponse)(
        buffer, OffsetCommitResponse(throttle_time=i32Timedelta.parse(datetime.timedelta()), topics=told)
    )
    assert parse_offset_commit(buffer.getvalue()) == codes


@given(st.dictionaries(WHERES, PLACES, max_size=40), st.integers(100, 3000))
def test_portions_hold_each_place_once_and_none_is_larger_than_asked_but_for_a_single_place(
    places: dict[TopicPartitionTuple, CommittedOffset], most_bytes: int
) -> None:
    parts = list(split_commit("group", places, most_bytes))
    assert [item for part in parts for item in part.items()] == list(places.items())
    for part in parts:
        text = sum(len((place.metadata or "").encode()) + len(topic) for (topic, _), place in part.items())
        assert len(part) == 1 or (part and text <= most_bytes)
