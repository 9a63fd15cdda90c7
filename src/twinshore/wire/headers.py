"""What stands before a request and an answer: size, and header. The broker's side is in `wire.serving.requests`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from twinshore.fleet.errors import WireError
from twinshore.wire.primitives import I32, NO_TAGS, PAST_END, Buffer, skip_tags, truncated

_HEADER = struct.Struct(">ihhih")
FRAME_BYTES_MAX = (1 << 31) - 1


def frame(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str,
    parts: Sequence[Buffer],
    flexible: bool = True,
) -> list[Buffer]:
    """The buffers to send in order: length and request header, then `parts` as they are."""
    client = client_id.encode()
    tail = client + NO_TAGS if flexible else client
    size = _HEADER.size - 4 + len(tail) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise WireError(f"a request of {size} bytes is beyond the protocol's {FRAME_BYTES_MAX}")
    return [_HEADER.pack(size, api_key, version, correlation_id, len(client)) + tail, *parts]


def read_response_header(view: memoryview, flexible: bool = True) -> tuple[int, int]:
    """Correlation id and the position of the body; `view` is the frame without its 4-byte length."""
    try:
        (correlation_id,) = I32.unpack_from(view)
        return correlation_id, skip_tags(view, 4) if flexible else 4
    except PAST_END as error:
        raise truncated("a response header", view) from error
