"""OffsetFetch v8 and OffsetCommit v8: where consumer groups stand, many groups in one request.

A group whose part of an answer is the same bytes as last time is known by them and not read again: of a hundred
thousand places a second hardly any has changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import OFFSET_FETCH, SPOKEN
from twinshore.kafka.protocol.primitives import (
    I16,
    I32,
    NO_TAGS,
    PAST_END,
    compact_string,
    read_compact_string,
    read_count,
    skip_tags,
    truncated,
    uvarint,
)

PLACES_VERSION = SPOKEN[OFFSET_FETCH][1]

Where = tuple[str, int]

_PLACE = struct.Struct(">iqi")
_CODE = struct.Struct(">ih")
# No generation, no member, no instance: a commit from outside, which a broker takes only while the group has no member.
_FROM_OUTSIDE = I32.pack(-1) + b"\1" + b"\0"
_NO_EPOCH = -1
# What a coordinator writes for a place beside names and text: lengths, numbers, the topic's id, the record's frame.
_WRITTEN_BYTES = 80


class Place(NamedTuple):
    """Where a group reads on, and the text that its consumer left beside it."""

    offset: int
    metadata: str | None = ""


class GroupPlaces(NamedTuple):
    """A group's places by topic and partition. `raw` is the answer's part, to know it again; `error` is Kafka's code of
    the whole group, `failed` that of each partition that could not be read."""

    group: str
    error: int
    places: dict[Where, Place]
    failed: dict[Where, int]
    raw: bytes


def encode_offset_fetch(groups: Mapping[str, Iterable[Where] | None], *, stable: bool = False) -> bytes:
    """The request's body: these places of each group, or all of its places for None. `stable`: a place that an open
    transaction is about to move is an error, UNSTABLE_OFFSET_COMMIT; else the last one that holds is answered."""
    out = [uvarint(len(groups) + 1)]
    for group, wanted in groups.items():
        out += [compact_string(group), b"\0" if wanted is None else _wanted(wanted), NO_TAGS]
    out += [b"\1" if stable else b"\0", NO_TAGS]
    return b"".join(out)


def _wanted(wanted: Iterable[Where]) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for topic, partition in wanted:
        topics.setdefault(topic, []).append(I32.pack(partition))
    out = [uvarint(len(topics) + 1)]
    for topic, ours in topics.items():
        out += [compact_string(topic), uvarint(len(ours) + 1), *ours, NO_TAGS]
    return b"".join(out)


def parse_offset_fetch(body: bytes, known: Mapping[str, GroupPlaces]) -> list[GroupPlaces]:
    """Each group answered for. One that says the same as in `known` is that very object."""
    found: list[GroupPlaces] = []
    try:
        count, position = read_count(body, I32.size)
        for _ in range(count):
            group, after = read_compact_string(body, position)
            if group is None:
                raise WireError("a group without a name", offset=position)
            before = known.get(group)
            if before is not None and body.startswith(before.raw, after):
                found.append(before)
                position = after + len(before.raw)
                continue
            one, position = _group(body, after, group)
            found.append(one)
        skip_tags(body, position)
    except PAST_END as past_end:
        raise truncated("an answer about groups' places", body) from past_end
    return found


def _group(body: bytes, start: int, group: str) -> tuple[GroupPlaces, int]:
    places: dict[Where, Place] = {}
    failed: dict[Where, int] = {}
    topics, position = read_count(body, start)
    for _ in range(topics):
        topic, position = read_compact_string(body, position)
        if topic is None:
            raise WireError("a topic without a name", offset=position)
        position = _places(body, position, topic, places, failed)
    (error,) = I16.unpack_from(body, position)
    position = skip_tags(body, position + I16.size)
    return GroupPlaces(group, error, places, failed, body[start:position]), position


def _places(body: bytes, position: int, topic: str, places: dict[Where, Place], failed: dict[Where, int]) -> int:
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
            places[topic, partition] = Place(offset, metadata)
    return skip_tags(body, position)


def encode_offset_commit(group: str, places: Mapping[Where, Place]) -> bytes:
    """The request's body: a commit for a group without members. Leader epochs of another cluster mean nothing: none."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), place in places.items():
        entry = _PLACE.pack(partition, place.offset, _NO_EPOCH) + compact_string(place.metadata) + NO_TAGS
        topics.setdefault(topic, []).append(entry)
    out = [compact_string(group), _FROM_OUTSIDE, uvarint(len(topics) + 1)]
    for topic, ours in topics.items():
        out += [compact_string(topic), uvarint(len(ours) + 1), *ours, NO_TAGS]
    out.append(NO_TAGS)
    return b"".join(out)


def portions(group: str, places: Mapping[Where, Place], most_bytes: int) -> Iterator[dict[Where, Place]]:
    """The places in parts, each of about so many bytes in the coordinator's log, or of one place. A coordinator writes
    what one request commits as one batch, and refuses all of it where that is larger than a batch may be."""
    some: dict[Where, Place] = {}
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


def parse_offset_commit(body: bytes) -> dict[Where, int]:
    """Kafka's code for each place."""
    codes: dict[Where, int] = {}
    try:
        topics, position = read_count(body, I32.size)
        for _ in range(topics):
            topic, position = read_compact_string(body, position)
            if topic is None:
                raise WireError("a topic without a name", offset=position)
            partitions, position = read_count(body, position)
            for _ in range(partitions):
                partition, error = _CODE.unpack_from(body, position)
                position = skip_tags(body, position + _CODE.size)
                codes[topic, partition] = error
            position = skip_tags(body, position)
        skip_tags(body, position)
    except PAST_END as past_end:
        raise truncated("an answer about a commit", body) from past_end
    return codes
