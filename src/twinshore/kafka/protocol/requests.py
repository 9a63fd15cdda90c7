"""The broker's side of request headers and response frames, and common fields: topics by name or id, endpoints, small
values in tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import tags_in_request, tags_in_response
from twinshore.kafka.protocol.framing import FRAME_BYTES_MAX
from twinshore.kafka.protocol.primitives import (
    I32,
    NO_TAGS,
    Buffer,
    Encoding,
    Topic,
    parser,
    read_name,
    read_plain_string,
    skip_tags,
    uvarint,
)

# What arrays of one request may have: topics, partitions and the like. To read so many takes a tenth of a second.
ARRAY_ELEMENTS_MAX = 50_000
_HEADER = struct.Struct(">hhi")
_ANSWER = struct.Struct(">ii")


class Request(NamedTuple):
    """A whole request: its body begins at `position` of `view`."""

    key: int
    version: int
    number: int
    client_id: str | None
    view: memoryview
    position: int


@parser("a request header")
def read_request(view: memoryview) -> Request:
    """`view`: the frame without its size."""
    key, version, number = _HEADER.unpack_from(view)
    client_id, position = read_plain_string(view, _HEADER.size)
    if tags_in_request(key, version):
        position = skip_tags(view, position)
    return Request(key, version, number, client_id, view, position)


def response_frame(key: int, version: int, number: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """Returns the buffers to send: size, header, `parts`."""
    tags = NO_TAGS if tags_in_response(key, version) else b""
    size = _ANSWER.size - 4 + len(tags) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise WireError(f"an answer of {size} bytes is beyond the protocol's {FRAME_BYTES_MAX}")
    return [_ANSWER.pack(size, number) + tags, *parts]


ENDPOINTS_TAG = 0


class HasTopic(Protocol):
    """An item of a topic, given by name or id."""

    @property
    def topic(self) -> Topic: ...


TopicItem = TypeVar("TopicItem", bound=HasTopic)


class Endpoint(NamedTuple):
    node: int
    host: str
    port: int
    rack: str | None = None


def topic_bytes(notation: Encoding, topic: Topic, by_id: bool) -> bytes:
    if isinstance(topic, bytes) != by_id:
        raise WireError("a topic is named by its id" if by_id else "a topic is named by its name")
    return topic if isinstance(topic, bytes) else notation.string(topic)


def group_by_topic(ones: Iterable[TopicItem]) -> Iterator[tuple[Topic, list[TopicItem]]]:
    """Group neighbouring items of one topic, as clients and brokers send them."""
    for topic, ours in groupby(ones, key=attrgetter("topic")):
        yield topic, list(ours)


def write_topics(
    notation: Encoding, items: Iterable[TopicItem], by_id: bool, write: Callable[[TopicItem], bytes]
) -> bytes:
    topics = list(group_by_topic(items))
    out = [notation.counted(len(topics))]
    for topic, ours in topics:
        out += [topic_bytes(notation, topic, by_id), notation.counted(len(ours)), *map(write, ours), notation.no_tags]
    return b"".join(out)


def write_tags(notation: Encoding, tags: Sequence[tuple[int, bytes]]) -> bytes:
    """Returns tagged fields; nothing in versions without tags."""
    if not notation.no_tags:
        return b""
    if not tags:
        return NO_TAGS
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)


def write_endpoints(notation: Encoding, endpoints: Sequence[Endpoint]) -> bytes:
    """Returns the tagged fields of a response."""
    out = [notation.counted(len(endpoints))]
    for node, host, port, rack in endpoints:
        out += [I32.pack(node), notation.string(host), I32.pack(port), notation.string(rack), notation.no_tags]
    return write_tags(notation, [(ENDPOINTS_TAG, b"".join(out))] if endpoints else [])


def read_endpoints(notation: Encoding, view: Buffer, position: int) -> list[Endpoint]:
    """Reads the tagged fields of a response."""
    tags, _ = notation.read_tags(view, position)
    found: list[Endpoint] = []
    if ENDPOINTS_TAG not in tags:
        return found
    count, position = notation.read_count(view, tags[ENDPOINTS_TAG])
    for _ in range(count):
        (node,) = I32.unpack_from(view, position)
        host, position = read_name(notation, view, position + I32.size)
        (port,) = I32.unpack_from(view, position)
        rack, position = notation.read_string(view, position + I32.size)
        position = notation.skip_tags(view, position)
        found.append(Endpoint(node, host, port, rack))
    return found
