"""ListOffsets v7 asked for log ends alone: what says where a run of markers would land, and where it left the log.

As Kafka's debugging replica: a consumer would be shown the high watermark, which followers hold back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.wire.apis import LIST_OFFSETS, SPOKEN
from twinshore.wire.primitives import (
    NO_TAGS,
    PAST_END,
    compact_string,
    read_compact_string,
    read_count,
    skip_tags,
    truncated,
    uvarint,
)

LOG_ENDS_KEY = LIST_OFFSETS
LOG_ENDS_VERSION = SPOKEN[LIST_OFFSETS][1]

_DEBUGGER = -2
_LATEST = -1
_OPENING = struct.Struct(">ib")
_WANTED = struct.Struct(">iiq")
_ANSWER = struct.Struct(">ihqqi")


class LogEnd(NamedTuple):
    """`end` means nothing when there is an `error`."""

    topic: str
    partition: int
    error: int
    end: int


def encode_log_ends(topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> bytes:
    """The request's body, for partitions by topic, each with the leader epoch in which alone it is to be answered (-1:
    in any)."""
    out = [_OPENING.pack(_DEBUGGER, 0), uvarint(len(topics) + 1)]
    for topic, partitions in topics:
        out += [compact_string(topic), uvarint(len(partitions) + 1)]
        out += [_WANTED.pack(partition, epoch, _LATEST) + NO_TAGS for partition, epoch in partitions]
        out.append(NO_TAGS)
    return b"".join(out) + NO_TAGS


def parse_log_ends(view: memoryview, position: int) -> list[LogEnd]:
    """`position` is that after the response header."""
    found: list[LogEnd] = []
    try:
        topics, position = read_count(view, position + 4)
        for _ in range(topics):
            topic, position = read_compact_string(view, position)
            partitions, position = read_count(view, position)
            for _ in range(partitions):
                partition, error, _, end, _ = _ANSWER.unpack_from(view, position)
                found.append(LogEnd(topic or "", partition, error, end))
                position = skip_tags(view, position + _ANSWER.size)
            position = skip_tags(view, position)
        skip_tags(view, position)
    except PAST_END as past_end:
        raise truncated("a log ends response", view) from past_end
    return found
