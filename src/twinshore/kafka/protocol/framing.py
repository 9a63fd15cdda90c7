"""Frames in a byte stream, and the client's side of request and response, without IO.

A frame is a four-byte size and so many bytes. A driver (blocking socket, selector, asyncio) receives into `room`, calls
`took`, then `next` until None. The broker's side of headers is in `kafka.protocol.requests`.

A broker answers a connection's requests in order: a response to any but the oldest ends the connection. Times are
arguments: a driver checks `due_s`.

A dialogue is a generator for dependent requests. It yields a request, is sent the response's body, and returns its
result. `kafka.connection.Connection.hold` drives one; an event loop awaits each response and sends it in.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import API_VERSIONS, ApiFormat, api_format, api_name
from twinshore.kafka.protocol.handshake import (
    UNSUPPORTED_VERSION,
    ApiVersionsResponse,
    ClientSoftware,
    encode_api_versions_request,
    parse_api_versions,
)
from twinshore.kafka.protocol.primitives import I32, NO_TAGS, Buffer, parser, skip_tags

_HEADER = struct.Struct(">ihhih")
FRAME_BYTES_MAX = (1 << 31) - 1


def frame_request(
    api_key: int, version: int, correlation_id: int, client_id: str, parts: Sequence[Buffer], flexible: bool = True
) -> list[Buffer]:
    """Returns the buffers to send: size, request header, `parts`."""
    client = client_id.encode()
    tail = client + NO_TAGS if flexible else client
    size = _HEADER.size - 4 + len(tail) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise WireError(f"a request of {size} bytes is beyond the protocol's {FRAME_BYTES_MAX}")
    return [_HEADER.pack(size, api_key, version, correlation_id, len(client)) + tail, *parts]


@parser("a response header")
def read_response_header(view: memoryview, flexible: bool = True) -> tuple[int, int]:
    """Returns correlation id, and the body's position in `view`, a frame without its size."""
    (correlation_id,) = I32.unpack_from(view)
    return correlation_id, skip_tags(view, 4) if flexible else 4


SIZE_BYTES: Final = 4
BUFFER_BYTES: Final = 4 << 10
# Default size up to which a frame's claim is allocated at once; beyond, as bytes arrive.
TRUSTED_BYTES: Final = 4 << 20


class FrameSizeError(WireError):
    def __init__(self, what: str, size: int, bytes_max: int) -> None:
        hint = "this peer may speak TLS, or something else than Kafka's protocol"
        super().__init__(f"{what} claims {size} bytes", hint=hint)
        self.size, self.bytes_max = size, bytes_max


class FrameReader:
    """Cuts a byte stream into frames. Buffers are never resized: a frame stays readable until the next `room`, or for
    good if another buffer is lent before.
    """

    __slots__ = ("_buffer", "_filled", "_start", "_trusted", "_wanted")

    def __init__(self, trusted: int = TRUSTED_BYTES) -> None:
        self._trusted = trusted
        self._buffer = bytearray()
        self._start = self._filled = 0
        self._wanted = 0  # size of the frame at `_start`, with the size field; 0 while unknown

    @property
    def waiting(self) -> int:
        """Bytes received and not returned as frames."""
        return self._filled - self._start

    @property
    def lacks(self) -> int:
        """Bytes missing from the current frame; 0 while its size is unknown."""
        return max(0, self._start + self._wanted - self._filled)

    @property
    def wanted(self) -> int:
        """The size that the current frame claims."""
        return self._wanted - SIZE_BYTES

    @property
    def begun(self) -> memoryview:
        """The received part of the current frame."""
        return memoryview(self._buffer)[self._start + SIZE_BYTES : self._filled]

    def trust(self, size: int) -> None:
        """Allocate `size` bytes for the current frame at once."""
        self._make_room(SIZE_BYTES + size, SIZE_BYTES + size)

    @property
    def buffer(self) -> bytearray:
        """The buffer of the last frame: the lent one, or a larger one."""
        return self._buffer

    def lend(self, buffer: bytearray) -> None:
        """Receive into this buffer from now on. WireError where unrequested bytes wait."""
        if self.waiting:
            raise WireError(f"the peer sent {self.waiting} bytes unasked")
        self._buffer, self._start, self._filled = buffer, 0, 0

    def room(self) -> memoryview:
        """Returns space for at least one byte."""
        if self._start == self._filled:
            self._start = self._filled = 0
        needed = self._wanted or SIZE_BYTES
        if self._start + needed > len(self._buffer):
            self._make_room(needed, self._trusted)
        return memoryview(self._buffer)[self._filled :]

    def _make_room(self, needed: int, trusted: int) -> None:
        """Move the current frame to the start of a buffer. Large buffers grow as bytes arrive: a peer that claims much
        and sends little costs little.
        """
        have = len(self._buffer)
        if have < needed and have >= trusted and self._filled < have:
            return
        size = max(have, BUFFER_BYTES)
        if not (self._start and have >= trusted):
            size = _grown(size, needed, trusted)
        rest = memoryview(self._buffer)[self._start : self._filled]
        if size > have:
            self._buffer = bytearray(size)
        memoryview(self._buffer)[: len(rest)] = rest
        self._start, self._filled = 0, len(rest)

    def took(self, got: int) -> None:
        self._filled += got

    def next(self, bytes_max: int) -> memoryview | None:
        """Returns the next whole frame, without its size, or None. FrameSizeError beyond `bytes_max`."""
        start, wanted = self._start, self._wanted
        if not wanted:
            if self._filled - start < SIZE_BYTES:
                return None
            (size,) = I32.unpack_from(self._buffer, start)
            if not SIZE_BYTES <= size <= bytes_max:
                raise FrameSizeError("a frame", size, bytes_max)
            self._wanted = wanted = SIZE_BYTES + size
        end = start + wanted
        if end > self._filled:
            return None
        self._start, self._wanted = end, 0
        return memoryview(self._buffer).toreadonly()[start + SIZE_BYTES : end]

    def frame_with_size(self, frame: memoryview) -> memoryview:
        """Returns the last frame with its size, as received."""
        return memoryview(self._buffer).toreadonly()[self._start - len(frame) - SIZE_BYTES : self._start]

    def rest(self) -> None:
        """Release an empty buffer, most of an idle connection's memory. Returned frames stay readable for good."""
        if self._start == self._filled:
            self._buffer, self._start, self._filled = bytearray(), 0, 0

    def let_go(self) -> None:
        """Receive into a new, minimal buffer: returned frames stay readable for good."""
        rest = memoryview(self._buffer)[self._start : self._filled]
        self._buffer = bytearray(max(BUFFER_BYTES, len(rest)))
        self._buffer[: len(rest)] = rest
        self._start, self._filled = 0, len(rest)


def _grown(have: int, needed: int, trusted: int) -> int:
    if needed <= have:
        return have
    if needed <= trusted:
        return max(needed, min(2 * have, trusted))
    return min(needed, max(2 * have, trusted))


def drop_sent(buffers: list[Buffer], sent: int) -> None:
    index = 0
    while index < len(buffers) and sent >= len(buffers[index]):
        sent -= len(buffers[index])
        index += 1
    del buffers[:index]
    if sent:
        buffers[0] = memoryview(buffers[0])[sent:]


_NUMBERS = 0x7FFFFFFF


class ResponseOrderError(WireError):
    """A response to another request than the oldest, or to none."""


class UnansweredRequest(NamedTuple):
    number: int
    api: ApiFormat
    deadline_s: float

    @property
    def what(self) -> str:
        return f"the answer to {api_name(self.api.key)}"


class Response(NamedTuple):
    """A whole response: its body begins at `position` of `view`."""

    asked: UnansweredRequest
    view: memoryview
    position: int


class InFlightRequests:
    """Numbers requests and matches responses, for one thread at a time. After a WireError close the connection."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.frame_reader = FrameReader()
        self._number = 0
        self._asked: deque[UnansweredRequest] = deque()

    @property
    def oldest(self) -> UnansweredRequest:
        """The request to be answered next; there must be one."""
        return self._asked[0]

    def ask(self, key: int, version: int, parts: Sequence[Buffer], deadline_s: float) -> list[Buffer]:
        """Returns the buffers to send."""
        self._number = number = (self._number + 1) & _NUMBERS
        api = api_format(key, version)
        self._asked.append(UnansweredRequest(number, api, deadline_s))
        return frame_request(key, version, number, self.client_id, parts, api.tags_in_request)

    def extend_deadline(self, deadline_s: float) -> None:
        """Set the next response's deadline: any sign of life may count."""
        number, api, _ = self._asked[0]
        self._asked[0] = UnansweredRequest(number, api, deadline_s)

    def answer(self) -> Response | None:
        """Returns the next whole response, or None. FrameSizeError, ResponseOrderError or another WireError for a
        protocol violation.
        """
        if not self._asked:
            if self.frame_reader.waiting:
                raise ResponseOrderError(f"the peer sent {self.frame_reader.waiting} bytes unasked")
            return None
        asked = self._asked[0]
        try:
            view = self.frame_reader.next(asked.api.response_bytes_max)
        except FrameSizeError as error:
            raise FrameSizeError(asked.what, error.size, error.bytes_max) from error
        if view is None:
            return None
        try:
            number, position = read_response_header(view, asked.api.tags_in_response)
        except WireError as error:
            raise WireError(f"{asked.what}: its header cannot be read: {error.message}") from error
        if number != asked.number:
            raise ResponseOrderError(f"{api_name(asked.api.key)} {asked.number} got the answer to {number}")
        self._asked.popleft()
        return Response(asked, view, position)


Result = TypeVar("Result")


class RequestBody(NamedTuple):
    """A body, in a version that the broker should know."""

    key: int
    version: int
    body: bytes


Dialogue: TypeAlias = Generator[RequestBody, memoryview, Result]


def negotiate_versions(software: ClientSoftware) -> Dialogue[ApiVersionsResponse]:
    """Learn a broker's API versions, in version 0 if it does not know the newest."""
    highest, first = 3, 0
    answer = yield RequestBody(API_VERSIONS, highest, encode_api_versions_request(highest, software))
    versions = parse_api_versions(answer, 0, highest)
    if versions.error != UNSUPPORTED_VERSION:
        return versions
    answer = yield RequestBody(API_VERSIONS, first, encode_api_versions_request(first, software))
    return parse_api_versions(answer, 0, first)
