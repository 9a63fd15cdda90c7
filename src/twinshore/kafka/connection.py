"""A control connection to one broker: handshake, then one request at a time, every wait bounded."""

from __future__ import annotations

import io
import math
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kio.schema.api_versions.v0 import ApiVersionsRequest as ApiVersionsRequestV0
from kio.schema.api_versions.v0 import ApiVersionsResponse as ApiVersionsResponseV0
from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.protocol import RequestPayload, ResponsePayload

from twinshore import __version__
from twinshore.fleet import KafkaError, WireError
from twinshore.kafka.apis import API_VERSIONS, api_name, is_flexible
from twinshore.kafka.errors import Code
from twinshore.kafka.shapes import checked
from twinshore.kafka.transport import Transport
from twinshore.wire.frames import frame, read_response_header
from twinshore.wire.primitives import PAST_END, Buffer

TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 100 << 20
Answer = TypeVar("Answer", bound=ResponsePayload)
Value = TypeVar("Value")
_LENGTH = struct.Struct(">i")


class Connection:
    """Calls from several threads take turns. After a time-out or a lost connection it is closed for good.

    `expires_at` is on time.monotonic(): when the broker will want a new authentication; `inf` where it never will.
    """

    def __init__(self, transport: Transport, *, client_id: str, timeout_s: float) -> None:
        self.transport = transport
        self.place = transport.place
        self.expires_at = math.inf
        self.closed = False
        # Whether its broker was seen to belong to the right cluster: as long as it is open it leads to no other.
        self.vouched = False
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._correlation_id = 0
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._turn = threading.Lock()
        self._retired = False

    @property
    def usable(self) -> bool:
        return not self.closed and not self._retired and time.monotonic() < self.expires_at

    def close(self) -> None:
        self.closed = True
        self.transport.close()

    def retire(self) -> None:
        """Closes it now, or at the end of the call that another thread has under way."""
        self._retired = True
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def api_version(self, api_key: int, highest_ours: int, lowest_ours: int = 0) -> int:
        """The version both sides know; KafkaError names API and broker when there is none."""
        offered = self._versions.get(api_key)
        if offered is None:
            raise KafkaError(
                f"{self.place}: the broker does not offer {api_name(api_key)}",
                code=Code.UNSUPPORTED_VERSION,
                hint="Twinshore needs Kafka 3.1 or newer",
            )
        version = min(highest_ours, offered[1])
        if version < max(lowest_ours, offered[0]):
            raise KafkaError(
                f"{self.place}: the broker offers {api_name(api_key)} in versions {offered[0]} to {offered[1]}, "
                f"Twinshore needs {lowest_ours} to {highest_ours}",
                code=Code.UNSUPPORTED_VERSION,
                hint="Twinshore needs Kafka 3.1 or newer",
            )
        return version

    def call(self, request: RequestPayload, answer: type[Answer], *, timeout_s: float | None = None) -> Answer:
        """Sends a kio request and reads the kio response type that belongs to it."""
        api_key, version = int(request.__api_key__), int(request.__version__)
        if self._versions:
            self.api_version(api_key, version, version)
        return self._decode(self._exchange(request, timeout_s), answer, api_key)

    def call_raw(self, api_key: int, version: int, body: bytes, *, timeout_s: float | None = None) -> memoryview:
        """Sends an encoded body; returns the response's body, after its header."""
        flexible = is_flexible(api_key, version)
        return self._body(self._round_trip(api_key, version, body, flexible, timeout_s), flexible)

    def ask(
        self,
        api_key: int,
        version: int,
        body: bytes,
        read: Callable[[memoryview], Value],
        *,
        timeout_s: float | None = None,
    ) -> Value:
        """Sends an encoded body, and what `read` makes of the answer's; KafkaError where it cannot."""
        view = self.call_raw(api_key, version, body, timeout_s=timeout_s)
        try:
            return read(view)
        except (WireError, LookupError, struct.error, ValueError, OverflowError) as error:
            raise self._unreadable(api_key, error) from error

    def next_correlation_id(self) -> int:
        """For callers that drive the transport themselves after the handshake."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def handshake(self, *, timeout_s: float | None = None) -> None:
        """Learns which API versions the broker offers."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        body = _encode(ApiVersionsRequest(client_software_name="twinshore", client_software_version=__version__))
        response = self._round_trip(API_VERSIONS, 3, body, True, timeout_s)
        # Its response header never carries tags. A broker that does not know our version answers in version 0.
        if len(response) >= 6 and int.from_bytes(response[4:6], "big") == Code.UNSUPPORTED_VERSION:
            left_s = deadline - time.monotonic()
            response = self._round_trip(API_VERSIONS, 0, _encode(ApiVersionsRequestV0()), False, left_s)
            self._take_versions(self._decode(response[4:], ApiVersionsResponseV0, API_VERSIONS))
        else:
            self._take_versions(self._decode(response[4:], ApiVersionsResponse, API_VERSIONS))

    def _take_versions(self, answer: ApiVersionsResponse | ApiVersionsResponseV0) -> None:
        if answer.error_code:
            raise KafkaError(
                f"{self.place}: ApiVersions answered {answer.error_code.name}", code=int(answer.error_code)
            )
        self._versions = {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}

    def _exchange(self, request: RequestPayload, timeout_s: float | None) -> memoryview:
        api_key, version = int(request.__api_key__), int(request.__version__)
        response = self._round_trip(api_key, version, _encode(request), request.__flexible__, timeout_s)
        return self._body(response, request.__flexible__)

    def _body(self, response: memoryview, flexible: bool) -> memoryview:
        try:
            return response[read_response_header(response, flexible)[1] :]
        except WireError as error:
            self.retire()
            raise KafkaError(f"{self.place}: the answer's header cannot be read: {error.message}") from error

    def _decode(self, body: memoryview, answer: type[Answer], api_key: int) -> Answer:
        try:
            entity, _ = entity_reader(answer)(checked(body.toreadonly(), answer), 0)
        except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError) as error:
            raise self._unreadable(api_key, error) from error
        return entity

    def _unreadable(self, api_key: int, error: Exception) -> KafkaError:
        self.retire()
        reason = "it ends too early" if isinstance(error, PAST_END) else getattr(error, "message", str(error))
        return KafkaError(
            f"{self.place}: the answer to {api_name(api_key)} cannot be read: {reason}",
            hint="is this a Kafka broker, and not newer than this version of Twinshore?",
        )

    def _round_trip(
        self, api_key: int, version: int, body: bytes, flexible: bool, timeout_s: float | None
    ) -> memoryview:
        try:
            return self._take_turn(api_key, version, body, flexible, timeout_s)
        finally:
            if self._retired:
                self.retire()

    def _take_turn(
        self, api_key: int, version: int, body: bytes, flexible: bool, timeout_s: float | None
    ) -> memoryview:
        with self._turn:
            if self.closed:
                raise KafkaError(f"{self.place}: the connection is closed", retriable=True)
            correlation_id = self.next_correlation_id()
            deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
            try:
                self._send(
                    frame(api_key, version, correlation_id, self._client_id, [body], flexible), deadline, api_key
                )
                response = self._receive(deadline, api_key)
            except BaseException:
                # Half a request or half a response leaves the stream out of step.
                self.close()
                raise
            answered = _LENGTH.unpack_from(response)[0]
            if answered != correlation_id:
                self.close()
                raise KafkaError(
                    f"{self.place}: {api_name(api_key)} {correlation_id} got the answer to {answered}", retriable=True
                )
            return response

    def _send(self, buffers: list[Buffer], deadline: float, api_key: int) -> None:
        rest = memoryview(b"".join(buffers))
        while rest:
            taken = self.transport.sendv([rest])
            if taken > 0:
                rest = rest[taken:]
            elif not self.transport.wait(writable=True, deadline=deadline):
                raise self._late(api_key)

    def _receive(self, deadline: float, api_key: int) -> memoryview:
        head = bytearray(4)
        self._fill(memoryview(head), deadline, api_key)
        size = _LENGTH.unpack(head)[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise KafkaError(
                f"{self.place}: the answer to {api_name(api_key)} claims {size} bytes",
                hint="this listener may speak TLS, or something else than Kafka",
            )
        body = memoryview(bytearray(size))
        self._fill(body, deadline, api_key)
        return body

    def _fill(self, view: memoryview, deadline: float, api_key: int) -> None:
        while view:
            got = self.transport.recv_into(view)
            if got > 0:
                view = view[got:]
            elif got == 0:
                raise KafkaError(
                    f"{self.place}: the broker closed the connection during {api_name(api_key)}",
                    retriable=True,
                    hint="if this repeats: does the listener want TLS or SASL?",
                )
            elif not self.transport.wait(deadline=deadline):
                raise self._late(api_key)

    def _late(self, api_key: int) -> KafkaError:
        return KafkaError(f"{self.place}: no answer to {api_name(api_key)} in time", retriable=True)


def _encode(request: RequestPayload) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()
