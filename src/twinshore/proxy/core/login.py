"""A client's login: what each frame becomes until the client is served.

Clients choose a mechanism by SaslHandshake. After v1 they wrap SASL messages in SaslAuthenticate; after v0 they send
them bare, without a header. Besides, only ApiVersions is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, api_name
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.primitives import I32
from twinshore.kafka.protocol.requests import Request, read_request, response_frame
from twinshore.kafka.protocol.sasl import LoginRefusedError, ScramKeys, ScramServer
from twinshore.proxy.core.api_versions import build_versions_response
from twinshore.proxy.core.message_codec import build_response, decode_request
from twinshore.proxy.core.model import ApiVersionRanges, DisconnectClient, Parts
from twinshore.proxy.core.traffic import parse_client_software

LOGIN_API_VERSIONS: Final[ApiVersionRanges] = {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
# What a client that is not known yet may send at once, as with brokers (sasl.server.max.receive.size).
LOGIN_REQUEST_BYTES_MAX: Final = 512 << 10
# All that a client is told, which does not show whether the user exists.
_REFUSED = "Authentication failed: user or password is wrong"


@dataclass(frozen=True, slots=True)
class ClientPrincipal:
    """Unnamed if no login is required. `password` is known only if the client sent one."""

    name: str = ""
    password: str = field(default="", repr=False)


class ContinueLogin(NamedTuple):
    """Answer with this frame; the login continues."""

    frame: Parts


class AcceptLogin(NamedTuple):
    """The credentials are right: answer with `frame`, or with `refused` if the principal is not admitted."""

    principal: ClientPrincipal
    frame: Parts
    refused: Parts


class RefuseLogin(NamedTuple):
    """Answer with this frame after a pause, and disconnect."""

    why: str
    frame: Parts


class CheckCredentials(NamedTuple):
    """Check the credentials, which takes time, then answer with `entered` or `refused`."""

    principal: ClientPrincipal
    entered: Parts
    refused: Parts


LoginStep: TypeAlias = ContinueLogin | AcceptLogin | RefuseLogin | CheckCredentials | DisconnectClient


class ClientLogin:
    """The login of one client.

    `keys`: a user's SCRAM keys, made up for unknown users. `software`: the client library.
    """

    def __init__(self, keys: Callable[[str], ScramKeys], mechanisms: Sequence[str], nonce: Callable[[], str]) -> None:
        self._keys, self._mechanisms, self._nonce = keys, mechanisms, nonce
        self._mechanism = self.software = ""
        self._bare = False
        self._scram: ScramServer | None = None

    def step(self, frame: memoryview, offers: ApiVersionRanges) -> LoginStep:
        """Process a frame. WireError if unreadable."""
        if self._bare:
            return self._message(bytes(frame), _as_bare)
        request = read_request(frame)
        low, high = LOGIN_API_VERSIONS.get(request.key, (0, -1))
        if request.key == API_VERSIONS:
            self.software = parse_client_software(request)
            return ContinueLogin(_framed(request, [build_versions_response(request, {**offers, **LOGIN_API_VERSIONS})]))
        if not low <= request.version <= high or (request.key == SASL_AUTHENTICATE) != bool(self._mechanism):
            return DisconnectClient(f"it asked {api_name(request.key)} v{request.version} before it had logged in")
        if request.key == SASL_HANDSHAKE:
            return self._handshake(request)
        return self._message(bytes(decode_request(request).auth_bytes), _wrapped(request))

    def _handshake(self, request: Request) -> LoginStep:
        wanted = str(decode_request(request).mechanism)
        known = wanted in self._mechanisms
        code = Code.none if known else Code.unsupported_sasl_mechanism
        body = build_response(request, error_code=code, mechanisms=tuple(self._mechanisms))
        if not known:
            why = f"it wants to log in by {wanted!r:.40}, and [proxy] sasl has no such"
            return RefuseLogin(why, _framed(request, body))
        self._mechanism, self._bare = wanted, request.version == 0
        return ContinueLogin(_framed(request, body))

    def _message(self, message: bytes, frames: _Frames) -> LoginStep:
        try:
            if self._mechanism == SaslMechanism.PLAIN:
                return self._plain(message, frames)
            if self._scram is None:
                self._scram = ScramServer(SaslMechanism(self._mechanism), self._keys, self._nonce())
                return ContinueLogin(frames(self._scram.first(message), ""))
            entered = frames(self._scram.final(message), "")
            return AcceptLogin(ClientPrincipal(self._scram.user), entered, frames(None, _REFUSED))
        except LoginRefusedError as refused:
            return RefuseLogin(f"its login is refused: {refused.message}", frames(None, _REFUSED))

    def _plain(self, message: bytes, frames: _Frames) -> LoginStep:
        try:
            other, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginRefusedError("its message of PLAIN cannot be read") from None
        if other not in ("", user) or not user or not password:
            raise LoginRefusedError("it gives no user or no password, or would act as another user")
        return CheckCredentials(ClientPrincipal(user, password), frames(b"", ""), frames(None, _REFUSED))


# Frames a SASL message, or the refusal if there is none.
_Frames: TypeAlias = Callable[[bytes | None, str], Parts]


def _as_bare(message: bytes | None, _: str) -> Parts:
    # After v0 no response tells of a refusal: the connection ends.
    return [] if message is None else [I32.pack(len(message)) + message]


def _wrapped(request: Request) -> _Frames:
    def framed(message: bytes | None, why: str) -> Parts:
        code = Code.sasl_authentication_failed if message is None else Code.none
        values = {"error_code": code, "error_message": why or None, "auth_bytes": message or b""}
        return _framed(request, build_response(request, **values))

    return framed


def _framed(request: Request, body: Parts) -> Parts:
    return response_frame(request.key, request.version, request.number, body)
