"""A control connection to one broker: handshake, authentication, then one request at a time with a timeout. Also
librdkafka settings for a cluster.
"""

from __future__ import annotations

import io
import math
import secrets
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.protocol import RequestPayload, ResponsePayload

from twinshore import __version__
from twinshore.config.errors import ConfigError, KafkaError, WireError
from twinshore.config.frozen import CLIENT_ID, SOFTWARE_NAME
from twinshore.config.model import Cluster, SaslMechanism, Security
from twinshore.kafka.oauth import fetch_token
from twinshore.kafka.protocol.apis import API_VERSIONS, HANDWRITTEN_VERSIONS, api_name
from twinshore.kafka.protocol.error_codes import Code, error_kind
from twinshore.kafka.protocol.framing import (
    Dialogue,
    InFlightRequests,
    Response,
    ResponseOrderError,
    Result,
    drop_sent,
    negotiate_versions,
)
from twinshore.kafka.protocol.handshake import ClientSoftware
from twinshore.kafka.protocol.primitives import PAST_END_ERRORS, Buffer
from twinshore.kafka.protocol.response_check import check_response
from twinshore.kafka.protocol.sasl import Credentials, authenticate, negotiate_mechanism
from twinshore.kafka.transport import Transport, dial

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_MIN_S = 0.1
Payload = TypeVar("Payload", bound=ResponsePayload)
Value = TypeVar("Value")


class Connection:
    """A connection to one broker. Threads take turns. A timeout or lost connection closes it.

    `expires_at`: when the broker requires a new authentication, by time.monotonic(); `inf` for never.
    """

    def __init__(self, transport: Transport, *, client_id: str, timeout_s: float) -> None:
        self.transport = transport
        self.place = transport.place
        self.expires_at = math.inf
        self.closed = False
        # The address connected to.
        self.address = ("", 0)
        # The broker's cluster, once seen: an open connection leads to no other.
        self.cluster_id = ""
        # One for each call that waits for its turn, or for its answer.
        self.callers: deque[None] = deque()
        self.timeout_s = timeout_s
        self._in_flight = InFlightRequests(client_id)
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
        """Close now, or after another thread's current call."""
        self._retired = True
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def handwritten_version(self, api_key: int) -> int:
        """Returns the version for a request encoded in `kafka.protocol`."""
        lowest_ours, highest_ours = HANDWRITTEN_VERSIONS[api_key]
        return self.api_version(api_key, highest_ours, lowest_ours)

    def api_version(self, api_key: int, highest_ours: int, lowest_ours: int = 0) -> int:
        """Returns the highest version that both sides know. KafkaError where there is none."""
        offered = self._versions.get(api_key)
        if offered is None:
            raise self._unsupported(f"does not offer {api_name(api_key)}")
        version = min(highest_ours, offered[1])
        if version < max(lowest_ours, offered[0]):
            raise self._unsupported(
                f"offers {api_name(api_key)} in versions {offered[0]} to {offered[1]}, "
                f"Twinshore needs {lowest_ours} to {highest_ours}"
            )
        return version

    def _unsupported(self, what: str) -> KafkaError:
        hint = "Twinshore needs Kafka 3.1 or newer"
        return KafkaError(f"{self.place}: the broker {what}", code=Code.unsupported_version, hint=hint)

    def call(self, request: RequestPayload, answer: type[Payload], *, timeout_s: float | None = None) -> Payload:
        api_key, version = int(request.__api_key__), int(request.__version__)
        if self._versions:
            self.api_version(api_key, version, version)
        return self._decode(self.call_raw(api_key, version, encode_body(request), timeout_s=timeout_s), answer, api_key)

    def call_raw(self, api_key: int, version: int, body: bytes, *, timeout_s: float | None = None) -> memoryview:
        """Send an encoded body. Returns the response's body."""
        try:
            answer = self._take_turn(api_key, version, body, timeout_s)
        finally:
            if self._retired:
                self.retire()
        return answer.view[answer.position :]

    def ask(
        self,
        api_key: int,
        version: int,
        body: bytes,
        read: Callable[[memoryview], Value],
        *,
        timeout_s: float | None = None,
    ) -> Value:
        """Send an encoded body. Returns the result of `read`; KafkaError where that fails."""
        view = self.call_raw(api_key, version, body, timeout_s=timeout_s)
        try:
            return read(view)
        except (WireError, LookupError, struct.error, ValueError, OverflowError) as error:
            raise self._unreadable(api_key, error) from error

    def hand_over(self, client_id: str) -> InFlightRequests:
        """Returns the request state, for callers that drive the transport themselves after the handshake."""
        self._in_flight.client_id = client_id
        return self._in_flight

    def lend(self, buffer: bytearray) -> None:
        """Receive the next response into this buffer, or into a larger one."""
        try:
            self._in_flight.frame_reader.lend(buffer)
        except WireError as error:
            raise protocol_violation_error(error, self.place) from error

    def begin(self, api_key: int, version: int, parts: Sequence[Buffer], *, timeout_s: float) -> None:
        """Send a request. `finish` returns its response."""
        deadline_s = time.monotonic() + timeout_s
        waiting = self._in_flight.ask(api_key, version, parts, deadline_s)
        while waiting:
            taken = self.transport.sendv(waiting)
            if taken > 0:
                drop_sent(waiting, taken)
            elif not self.transport.wait(writable=True, deadline=deadline_s):
                raise self._late(api_key)

    def finish(self, timeout_s: float | None = None) -> Response:
        """Returns the response to the oldest request, within its own timeout or `timeout_s` from now: the caller may
        have been busy. After any error close the connection.
        """
        in_flight = self._in_flight
        if timeout_s is not None:
            in_flight.extend_deadline(time.monotonic() + timeout_s)
        frame_reader, asked = in_flight.frame_reader, in_flight.oldest
        try:
            while (answer := in_flight.answer()) is None:
                got = self.transport.recv_into(frame_reader.room())
                if got > 0:
                    frame_reader.took(got)
                    continue
                if got == 0:
                    raise KafkaError(
                        f"{self.place}: the broker closed the connection during {api_name(asked.api.key)}",
                        retriable=True,
                        hint="if this repeats: does the listener want TLS or SASL?",
                    )
                if frame_reader.lacks:
                    self.transport.expect_bytes(frame_reader.lacks)
                if not self.transport.wait(deadline=asked.deadline_s):
                    raise self._late(asked.api.key)
        except WireError as error:
            raise protocol_violation_error(error, self.place) from error
        self.transport.expect_bytes(1)
        return answer

    def hold(self, talk: Dialogue[Result], *, timeout_s: float) -> Result:
        """Drive a dialogue within `timeout_s`. Returns its result."""
        deadline = time.monotonic() + timeout_s
        key = API_VERSIONS
        try:
            question = next(talk)
            while True:
                key = question.key
                if self._versions and key != API_VERSIONS:
                    self.api_version(key, question.version, question.version)
                left_s = max(REQUEST_TIMEOUT_MIN_S, deadline - time.monotonic())
                question = talk.send(self.call_raw(*question, timeout_s=left_s))
        except StopIteration as end:
            learnt: Result = end.value
            return learnt
        except WireError as error:
            raise self._unreadable(key, error) from error

    def handshake(self, *, timeout_s: float) -> None:
        """Learns which API versions the broker offers."""
        answer = self.hold(negotiate_versions(ClientSoftware(SOFTWARE_NAME, __version__)), timeout_s=timeout_s)
        if answer.error:
            name = error_kind(answer.error).name
            raise KafkaError(f"{self.place}: ApiVersions answered {name}", code=answer.error)
        self._versions = {offer.key: (offer.lowest, offer.highest) for offer in answer.offers}

    def _decode(self, body: memoryview, answer: type[Payload], api_key: int) -> Payload:
        try:
            return decode_body(body, answer)
        except (SerialError, WireError, LookupError, struct.error, ValueError, OverflowError) as error:
            raise self._unreadable(api_key, error) from error

    def _unreadable(self, api_key: int, error: Exception) -> KafkaError:
        self.retire()
        reason = "it ends too early" if isinstance(error, PAST_END_ERRORS) else getattr(error, "message", str(error))
        return KafkaError(
            f"{self.place}: the answer to {api_name(api_key)} cannot be read: {reason}",
            hint="is this a Kafka broker, and not newer than this version of Twinshore?",
        )

    def _take_turn(self, api_key: int, version: int, body: bytes, timeout_s: float | None) -> Response:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + limit_s
        self.callers.append(None)
        try:
            if not self._turn.acquire(timeout=max(0.0, limit_s)):
                raise self._late(api_key)
            try:
                return self._call(api_key, version, body, max(REQUEST_TIMEOUT_MIN_S, until_s - time.monotonic()))
            finally:
                self._turn.release()
        finally:
            self.callers.pop()

    def _call(self, api_key: int, version: int, body: bytes, limit_s: float) -> Response:
        if self.closed:
            raise KafkaError(f"{self.place}: the connection is closed", retriable=True)
        try:
            # Each response has its own buffer, which the caller may keep.
            self.lend(bytearray())
            self.begin(api_key, version, [body], timeout_s=limit_s)
            return self.finish()
        except BaseException:
            # Half a request or half a response leaves the stream out of step.
            self.close()
            raise

    def _late(self, api_key: int) -> KafkaError:
        return KafkaError(f"{self.place}: no answer to {api_name(api_key)} in time", retriable=True)


def protocol_violation_error(error: WireError, place: str) -> KafkaError:
    return KafkaError(f"{place}: {error.message}", retriable=isinstance(error, ResponseOrderError), hint=error.hint)


def encode_body(request: RequestPayload) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def decode_body(body: memoryview, answer: type[Payload]) -> Payload:
    """Raises one of several errors for a body of another form."""
    entity, _ = entity_reader(answer)(check_response(body.toreadonly(), answer), 0)
    return entity


# Leave before the broker closes the connection for a request after the session's end.
_LIFETIME_PART = 0.8


def open_connection(
    address: tuple[str, int],
    security: Security,
    *,
    client_id: str = CLIENT_ID,
    timeout_s: float = CONNECT_TIMEOUT_S,
    call_s: float | None = None,
    cluster: str = "",
    given: str = "",
) -> Connection:
    """Connect, learn API versions and authenticate, within `timeout_s`. Later calls get `call_s`, by default the same.
    Errors name the address, and the cluster. `given`: a password in place of the configured one.
    """
    deadline = time.monotonic() + timeout_s
    transport = dial(address, security, connect_timeout_s=timeout_s, cluster=cluster)
    connection = Connection(transport, client_id=client_id, timeout_s=timeout_s if call_s is None else call_s)
    connection.address = address
    try:
        connection.handshake(timeout_s=deadline - time.monotonic())
        if security.sasl:
            connection.expires_at = _authenticate(connection, security, security.sasl, deadline, given)
    except BaseException:
        connection.close()
        raise
    return connection


def _authenticate(
    connection: Connection, security: Security, mechanism: SaslMechanism, deadline: float, given: str
) -> float:
    """Returns the session's end by time.monotonic(), `inf` for never."""

    def left_s() -> float:
        return max(0.1, deadline - time.monotonic())

    connection.hold(negotiate_mechanism(mechanism, connection.place), timeout_s=left_s())
    credentials = read_credentials(security, mechanism, left_s(), given)
    lifetime_s = connection.hold(authenticate(credentials, connection.place), timeout_s=left_s())
    return time.monotonic() + lifetime_s * _LIFETIME_PART if lifetime_s > 0 else math.inf


def read_credentials(security: Security, mechanism: SaslMechanism, timeout_s: float, given: str = "") -> Credentials:
    """Read secrets now, so that rotated ones count at the next connection. `given` replaces the secret."""
    if mechanism is SaslMechanism.OAUTHBEARER:
        return Credentials(mechanism, security.username, given or fetch_token(security, timeout_s=timeout_s).text)
    if not security.username:
        raise ConfigError("kafka.no-username", mechanism=str(mechanism))
    return Credentials(mechanism, security.username, given or security.password.read(), secrets.token_urlsafe(24))


_TOKEN_TIMEOUT_S = 10.0
_TOKEN_LIFETIME_S = 300.0


def librdkafka_settings(cluster: Cluster) -> dict[str, Any]:
    """Returns settings for confluent-kafka. They hold current secrets: never log or store them."""
    security = cluster.security
    bootstrap = ",".join(cluster.bootstrap)
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": security.protocol}
    if security.tls:
        settings |= _tls(security)
    if security.sasl is SaslMechanism.OAUTHBEARER:
        settings |= _oauthbearer(security)
    elif security.sasl:
        settings |= {"sasl.mechanism": security.sasl.value, "sasl.username": security.username}
        settings["sasl.password"] = security.password.read()
    return settings


def _tls(security: Security) -> dict[str, Any]:
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https" if security.check_hostname else "none"}
    files = {"ca": security.ca_file, "certificate": security.cert_file, "key": security.key_file or security.cert_file}
    settings |= {f"ssl.{kind}.location": path for kind, path in files.items() if path}
    if security.key_password:
        settings["ssl.key.password"] = security.key_password.read()
    return settings


def _oauthbearer(security: Security) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        found = fetch_token(security, timeout_s=_TOKEN_TIMEOUT_S)
        return found.text, found.expires_s or time.time() + _TOKEN_LIFETIME_S

    return {"sasl.mechanism": SaslMechanism.OAUTHBEARER.value, "oauth_cb": token}
