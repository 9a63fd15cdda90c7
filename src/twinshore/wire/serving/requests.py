"""A request's header as a broker reads it, and the frame of an answer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.apis import tags_in_answer, tags_in_request
from twinshore.wire.framing import FRAME_BYTES_MAX
from twinshore.wire.notation import read_plain_string
from twinshore.wire.primitives import NO_TAGS, PAST_END, Buffer, skip_tags, truncated

# What arrays of one request may have: topics, partitions and the like. To read so many takes a tenth of a second.
ELEMENTS_MAX = 50_000
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


def read_request(view: memoryview) -> Request:
    """`view` is the frame without its size."""
    try:
        key, version, number = _HEADER.unpack_from(view)
        client_id, position = read_plain_string(view, _HEADER.size)
        if tags_in_request(key, version):
            position = skip_tags(view, position)
    except PAST_END as error:
        raise truncated("a request header", view) from error
    return Request(key, version, number, client_id, view, position)


def answer_frame(key: int, version: int, number: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """The buffers to send in order: size and header, then `parts` as they are."""
    tags = NO_TAGS if tags_in_answer(key, version) else b""
    size = _ANSWER.size - 4 + len(tags) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise WireError(f"an answer of {size} bytes is beyond the protocol's {FRAME_BYTES_MAX}")
    return [_ANSWER.pack(size, number) + tags, *parts]
