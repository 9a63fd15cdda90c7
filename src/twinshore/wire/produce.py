"""Produce v9 to v13: v9 to v12 by topic name, v13 by topic id. Batches go out as they are, never joined or copied."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.apis import PRODUCE, SPOKEN
from twinshore.wire.primitives import (
    I32,
    NO_TAGS,
    PAIR32,
    PAST_END,
    Buffer,
    compact_string,
    read_compact_string,
    read_count,
    read_tags,
    read_uuid,
    skip_tags,
    truncated,
    uvarint,
)

PRODUCE_KEY = PRODUCE
PRODUCE_VERSION_BY_ID = 13

_OPENING = struct.Struct(">hi")
_ANSWER = struct.Struct(">ihqqq")


class ProducedPartition(NamedTuple):
    """`topic` is a name up to v12, a topic id from v13. `current_leader` is (node, epoch)."""

    topic: str | bytes
    partition: int
    error: int
    base_offset: int
    log_append_time: int
    log_start: int
    message: str | None
    current_leader: tuple[int, int] | None


def encode_produce(
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[int, bytes, Buffer]]]],
    *,
    acks: int = -1,
    timeout_ms: int = 30000,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The request's body as buffers. `topics`: (name, topic id, [(partition, batch head, batch body)])."""
    _check_version(version)
    opening = compact_string(transactional_id) + _OPENING.pack(acks, timeout_ms) + uvarint(len(topics) + 1)
    out: list[Buffer] = []
    pending = opening
    for name, topic_id, partitions in topics:
        pending += topic_id if version >= PRODUCE_VERSION_BY_ID else compact_string(name)
        pending += uvarint(len(partitions) + 1)
        for partition, head, body in partitions:
            out.append(pending + I32.pack(partition) + uvarint(len(head) + len(body) + 1) + head)
            out.append(body)
            pending = NO_TAGS
        pending += NO_TAGS
    out.append(pending + NO_TAGS)
    return out


def answer_bytes_least(version: int, partitions: int) -> int:
    """What the answer for so many partitions takes at least, with its size and header: of one topic, without errors."""
    topic = 18 if version >= PRODUCE_VERSION_BY_ID else 4
    return 15 + topic + (_ANSWER.size + 3) * partitions


def parse_produce(view: memoryview, position: int, version: int) -> list[ProducedPartition]:
    """`position` is that after the response header."""
    return parse_produced(view, position, version)[0]


def parse_produced(view: memoryview, position: int, version: int) -> tuple[list[ProducedPartition], int]:
    """As `parse_produce`, with the milliseconds for which the broker reads nothing more from this connection."""
    _check_version(version)
    produced: list[ProducedPartition] = []
    topic: str | bytes | None
    try:
        topics, position = read_count(view, position)
        for _ in range(topics):
            if version >= PRODUCE_VERSION_BY_ID:
                topic, position = read_uuid(view, position)
            else:
                topic, position = read_compact_string(view, position)
            count, position = read_count(view, position)
            for _ in range(count):
                partition, position = _partition(view, position, topic or "")
                produced.append(partition)
            position = skip_tags(view, position)
        (throttle_ms,) = I32.unpack_from(view, position)
        skip_tags(view, position + 4)
    except PAST_END as error:
        raise truncated("a produce response", view) from error
    return produced, throttle_ms


def _partition(view: memoryview, position: int, topic: str | bytes) -> tuple[ProducedPartition, int]:
    partition, error, base_offset, append_time, log_start = _ANSWER.unpack_from(view, position)
    record_message: str | None = None
    count, position = read_count(view, position + _ANSWER.size)
    for _ in range(count):
        (record,) = I32.unpack_from(view, position)
        text, position = read_compact_string(view, position + 4)
        record_message = record_message or f"record {record}: {text}"
        position = skip_tags(view, position)
    message, position = read_compact_string(view, position)
    leader: list[tuple[int, int]] = []

    def read_leader(at: Buffer, start: int) -> None:
        leader.append(PAIR32.unpack_from(at, start))

    position = read_tags(view, position, {0: read_leader})
    answer = ProducedPartition(
        topic,
        partition,
        error,
        base_offset,
        append_time,
        log_start,
        message or record_message,
        leader[0] if leader else None,
    )
    return answer, position


def _check_version(version: int) -> None:
    lowest, highest = SPOKEN[PRODUCE]
    if not lowest <= version <= highest:
        raise WireError(f"Produce v{version} is not spoken here, only v{lowest}-{highest}")
