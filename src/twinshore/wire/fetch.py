"""Fetch v13: by topic id, with incremental sessions (KIP-227). Every KRaft broker speaks this version."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.apis import FETCH, SPOKEN
from twinshore.wire.primitives import (
    I32,
    NO_TAGS,
    PAIR32,
    PAST_END,
    Buffer,
    read_count,
    read_tags,
    read_uuid,
    read_uvarint,
    skip_tags,
    truncated,
    uvarint,
)

FETCH_KEY = FETCH
FETCH_VERSION = SPOKEN[FETCH][1]

_REQUEST = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_ANSWER = struct.Struct(">ihi")
_ANSWER_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")


class FetchPartition(NamedTuple):
    topic_id: bytes
    partition: int
    position: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class FetchedPartition(NamedTuple):
    """`diverging_epoch` is (epoch, end offset), `current_leader` (node, epoch), `aborted` (producer id, offset)."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    aborted: list[tuple[int, int]]
    records: memoryview


class FetchAnswer(NamedTuple):
    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedPartition]


def encode_fetch(
    *,
    max_bytes: int,
    partitions: Sequence[FetchPartition],
    session_id: int = 0,
    session_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    isolation: int = 0,
    forgotten: Sequence[tuple[bytes, int]] = (),
) -> bytes:
    """The request's body as a consumer sends it. Session epoch 0 opens a session, -1 asks for none."""
    wanted: dict[bytes, list[bytes]] = {}
    for topic_id, partition, position, leader_epoch, last_fetched_epoch, limit_bytes in partitions:
        entry = _PARTITION.pack(partition, leader_epoch, position, last_fetched_epoch, -1, limit_bytes, 0)
        wanted.setdefault(topic_id, []).append(entry)
    dropped: dict[bytes, list[bytes]] = {}
    for topic_id, partition in forgotten:
        dropped.setdefault(topic_id, []).append(I32.pack(partition))
    return b"".join(
        (
            _REQUEST.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch),
            _by_topic(wanted),
            _by_topic(dropped),
            b"\1",  # rack id: ""
            NO_TAGS,
        )
    )


def _by_topic(entries: dict[bytes, list[bytes]]) -> bytes:
    out = [uvarint(len(entries) + 1)]
    for topic_id, ours in entries.items():
        out += [topic_id, uvarint(len(ours) + 1), *ours, NO_TAGS]
    return b"".join(out)


def parse_fetch(view: memoryview, position: int = 0) -> FetchAnswer:
    """`position` is that after the response header. Records are views of `view`: read them before it is reused."""
    try:
        throttle_ms, error, session_id = _ANSWER.unpack_from(view, position)
        topics, position = read_count(view, position + _ANSWER.size)
        partitions: list[FetchedPartition] = []
        for _ in range(topics):
            topic_id, position = read_uuid(view, position)
            count, position = read_count(view, position)
            for _ in range(count):
                fetched, position = _partition(view, position, topic_id)
                partitions.append(fetched)
            position = skip_tags(view, position)
        skip_tags(view, position)
    except PAST_END as past_end:
        raise truncated("a fetch response", view) from past_end
    return FetchAnswer(throttle_ms, error, session_id, partitions)


def _partition(view: memoryview, position: int, topic_id: bytes) -> tuple[FetchedPartition, int]:
    partition, error, high_watermark, stable, log_start = _ANSWER_PARTITION.unpack_from(view, position)
    count, position = read_count(view, position + _ANSWER_PARTITION.size)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(view, position))
        position = skip_tags(view, position + _ABORTED.size)
    size, position = read_uvarint(view, position + 4)  # the preferred read replica is not for us
    end = position + max(size - 1, 0)
    if end > len(view):
        raise WireError(f"the records of partition {partition} run past the end", offset=position)
    records = view[position:end]
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    if view[end] == 0:
        position = end + 1
    else:
        tags: dict[int, tuple[int, int]] = {}

        def read_diverging(at: Buffer, start: int) -> None:
            tags[0] = _EPOCH_END.unpack_from(at, start)

        def read_leader(at: Buffer, start: int) -> None:
            tags[1] = PAIR32.unpack_from(at, start)

        position = read_tags(view, end, {0: read_diverging, 1: read_leader})
        diverging, leader = tags.get(0), tags.get(1)
    return (
        FetchedPartition(
            topic_id, partition, error, high_watermark, stable, log_start, diverging, leader, aborted, records
        ),
        position,
    )
