"""OffsetFetch v8 and OffsetCommit v8: committed offsets of many groups in one request.

A group whose bytes are the same as last time is not parsed again: of a hundred thousand offsets few change in a second.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from twinshore.config.grouping import grouped
from twinshore.kafka.protocol.apis import HANDWRITTEN_VERSIONS, OFFSET_FETCH
from twinshore.kafka.protocol.primitives import (
    COMPACT_ENCODING,
    I16,
    I32,
    NO_TAGS,
    Buffer,
    compact_string,
    parser,
    read_compact_string,
    read_count,
    read_name,
    read_partitions,
    skip_tags,
    uvarint,
    write_partitions,
)

OFFSET_FETCH_VERSION = HANDWRITTEN_VERSIONS[OFFSET_FETCH][1]

TopicPartitionTuple = tuple[str, int]

_PLACE = struct.Struct(">iqi")
_CODE = struct.Struct(">ih")
# No generation, no member, no instance: a commit from outside, which a broker takes only while the group has no member.
_FROM_OUTSIDE = I32.pack(-1) + b"\1" + b"\0"
_NO_EPOCH = -1
# What a coordinator writes for an offset besides names and text: lengths, numbers, topic id, record frame.
_WRITTEN_BYTES = 80


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str | None = ""


class GroupOffsets(NamedTuple):
    """A group's committed offsets. `raw`: its bytes in the response, for comparison. `error`: Kafka's code for the
    group. `failed`: codes of partitions.
    """

    group: str
    error: int
    places: dict[TopicPartitionTuple, CommittedOffset]
    failed: dict[TopicPartitionTuple, int]
    raw: bytes


def encode_offset_fetch(groups: Mapping[str, Iterable[TopicPartitionTuple] | None], *, stable: bool = False) -> bytes:
    """Returns the body for these partitions of each group, None for all. `stable`: an offset that an open transaction
    may change is an error, UNSTABLE_OFFSET_COMMIT.
    """
    out = [uvarint(len(groups) + 1)]
    for group, wanted in groups.items():
        out += [compact_string(group), b"\0" if wanted is None else _wanted(wanted), NO_TAGS]
    out += [b"\1" if stable else b"\0", NO_TAGS]
    return b"".join(out)


def _wanted(wanted: Iterable[TopicPartitionTuple]) -> bytes:
    topics = grouped((compact_string(topic), I32.pack(partition)) for topic, partition in wanted)
    return write_partitions(topics.items())


@parser("an answer about committed offsets")
def parse_offset_fetch(view: Buffer, known: Mapping[str, GroupOffsets]) -> list[GroupOffsets]:
    """Returns each group of the response. An unchanged one is the object in `known`."""
    body = bytes(view)
    found: list[GroupOffsets] = []
    count, position = read_count(body, I32.size)
    for _ in range(count):
        group, after = read_name(COMPACT_ENCODING, body, position)
        before = known.get(group)
        if before is not None and body.startswith(before.raw, after):
            found.append(before)
            position = after + len(before.raw)
            continue
        one, position = _group(body, after, group)
        found.append(one)
    skip_tags(body, position)
    return found


def _group(body: bytes, start: int, group: str) -> tuple[GroupOffsets, int]:
    places: dict[TopicPartitionTuple, CommittedOffset] = {}
    failed: dict[TopicPartitionTuple, int] = {}
    topics, position = read_count(body, start)
    for _ in range(topics):
        topic, position = read_name(COMPACT_ENCODING, body, position)
        position = _places(body, position, topic, places, failed)
    (error,) = I16.unpack_from(body, position)
    position = skip_tags(body, position + I16.size)
    return GroupOffsets(group, error, places, failed, body[start:position]), position


def _places(
    body: bytes,
    position: int,
    topic: str,
    places: dict[TopicPartitionTuple, CommittedOffset],
    failed: dict[TopicPartitionTuple, int],
) -> int:
    partitions, position = read_count(body, position)
    for _ in range(partitions):
        partition, offset, _epoch = _PLACE.unpack_from(body, position)
        position += _PLACE.size
        metadata: str | None = ""
        if body[position] == 1:
            position += 1
        else:
            metadata, position = read_compact_string(body, position)
        (error,) = I16.unpack_from(body, position)
        position = skip_tags(body, position + I16.size)
        if error:
            failed[topic, partition] = error
        elif offset >= 0:
            places[topic, partition] = CommittedOffset(offset, metadata)
    return skip_tags(body, position)


def encode_offset_commit(group: str, places: Mapping[TopicPartitionTuple, CommittedOffset]) -> bytes:
    """Returns the body for a group without members, without leader epochs, which mean nothing on another cluster."""
    topics: dict[bytes, list[bytes]] = {}
    for (topic, partition), place in places.items():
        entry = _PLACE.pack(partition, place.offset, _NO_EPOCH) + compact_string(place.metadata) + NO_TAGS
        topics.setdefault(compact_string(topic), []).append(entry)
    return compact_string(group) + _FROM_OUTSIDE + write_partitions(topics.items()) + NO_TAGS


def split_commit(
    group: str, places: Mapping[TopicPartitionTuple, CommittedOffset], most_bytes: int
) -> Iterator[dict[TopicPartitionTuple, CommittedOffset]]:
    """Split into parts of about `most_bytes` in the coordinator's log. One request becomes one batch, and a coordinator
    refuses one that is too large.
    """
    some: dict[TopicPartitionTuple, CommittedOffset] = {}
    size = 0
    for where, place in places.items():
        needs = _WRITTEN_BYTES + len(group) + len(where[0]) + len((place.metadata or "").encode())
        if some and size + needs > most_bytes:
            yield some
            some, size = {}, 0
        some[where] = place
        size += needs
    if some:
        yield some


@parser("an answer about a commit")
def parse_offset_commit(body: Buffer) -> dict[TopicPartitionTuple, int]:
    found, position = read_partitions(body, I32.size, _CODE)
    skip_tags(body, position)
    return {(topic, partition): error for topic, (partition, error) in found}
