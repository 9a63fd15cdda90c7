"""How a client logs in before it is served: what becomes of each of its frames until then. Pure.

Clients choose a mechanism by SaslHandshake. Behind its v1 they wrap the mechanism's messages in SaslAuthenticate;
behind v0 they send them bare, as frames without a header. Nothing but ApiVersions is answered besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, api_name
from twinshore.kafka.protocol.errors import Code
from twinshore.kafka.protocol.primitives import I32
from twinshore.kafka.protocol.sasl import LoginRefusedError, ScramKeys, ScramServer
from twinshore.kafka.protocol.server import Request, answer_frame, read_request
from twinshore.proxy.core.messages import answer_kind, error, filled, read_asked, written
from twinshore.proxy.core.model import HangUp, Parts, Ranges
from twinshore.proxy.core.offers import versions_body
from twinshore.proxy.core.traffic import software_of

OFFERED: Final[Ranges] = {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
# What a client that is not known yet may send at once, as with brokers (sasl.server.max.receive.size).
BYTES_MAX: Final = 512 << 10
# All that a client is told of why: no word says whether there is such a user.
_REFUSED = "Authentication failed: user or password is wrong"


@dataclass(frozen=True, slots=True)
class Who:
    """Who a client is; without a name where it need not say. `password` is known only where it showed it."""

    name: str = ""
    password: str = field(default="", repr=False)


class Answer(NamedTuple):
    """The client is answered with this frame, and goes on to log in."""

    frame: Parts


class Enter(NamedTuple):
    """It is who it says, and hears so by this frame; or by the other one that it is refused all the same."""

    who: Who
    frame: Parts
    refused: Parts


class Refuse(NamedTuple):
    """It hears so by this frame, after a pause, and is hung up on."""

    why: str
    frame: Parts


class Judge(NamedTuple):
    """Whether it is who it says is to be found out, which takes time: then it hears the one or the other."""

    who: Who
    entered: Parts
    refused: Parts


Step: TypeAlias = Answer | Enter | Refuse | Judge | HangUp


class Login:
    """That of one client. `keys`: what is kept of a user for SCRAM, or seems to be. `software`: the library
    that it says that it is."""

    def __init__(self, keys: Callable[[str], ScramKeys], mechanisms: Sequence[str], nonce: Callable[[], str]) -> None:
        self._keys, self._mechanisms, self._nonce = keys, mechanisms, nonce
        self._mechanism = self.software = ""
        self._bare = False
        self._scram: ScramServer | None = None

    def step(self, frame: memoryview, offers: Ranges) -> Step:
        """What becomes of the frame. WireError where it cannot be read."""
        if self._bare:
            return self._message(bytes(frame), _as_bare)
        request = read_request(frame)
        low, high = OFFERED.get(request.key, (0, -1))
        if request.key == API_VERSIONS:
            self.software = software_of(request)
            return Answer(_framed(request, [versions_body(request, {**offers, **OFFERED})]))
        if not low <= request.version <= high or (request.key == SASL_AUTHENTICATE) != bool(self._mechanism):
            return HangUp(f"it asked {api_name(request.key)} v{request.version} before it had logged in")
        if request.key == SASL_HANDSHAKE:
            return self._handshake(request)
        return self._message(bytes(read_asked(request).auth_bytes), _wrapped(request))

    def _handshake(self, request: Request) -> Step:
        wanted = str(read_asked(request).mechanism)
        known = wanted in self._mechanisms
        code = Code.NONE if known else Code.UNSUPPORTED_SASL_MECHANISM
        kind = answer_kind(request.key, request.version)
        body = written(filled(kind, error_code=error(code), mechanisms=tuple(self._mechanisms)))
        if not known:
            return Refuse(f"it wants to log in by {wanted!r:.40}, and [proxy] sasl has no such", _framed(request, body))
        self._mechanism, self._bare = wanted, request.version == 0
        return Answer(_framed(request, body))

    def _message(self, message: bytes, frames: _Frames) -> Step:
        try:
            if self._mechanism == SaslMechanism.PLAIN:
                return self._plain(message, frames)
            if self._scram is None:
                self._scram = ScramServer(SaslMechanism(self._mechanism), self._keys, self._nonce())
                return Answer(frames(self._scram.first(message), ""))
            entered = frames(self._scram.final(message), "")
            return Enter(Who(self._scram.user), entered, frames(None, _REFUSED))
        except LoginRefusedError as refused:
            return Refuse(f"its login is refused: {refused.message}", frames(None, _REFUSED))

    def _plain(self, message: bytes, frames: _Frames) -> Step:
        try:
            other, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginRefusedError("its message of PLAIN cannot be read") from None
        if other not in ("", user) or not user or not password:
            raise LoginRefusedError("it gives no user or no password, or would act as somebody else")
        return Judge(Who(user, password), frames(b"", ""), frames(None, _REFUSED))


# Frames a message of the mechanism's, or without one the refusal.
_Frames: TypeAlias = Callable[[bytes | None, str], Parts]


def _as_bare(message: bytes | None, _: str) -> Parts:
    # Behind v0 no answer says that a login is refused: the connection ends.
    return [] if message is None else [I32.pack(len(message)) + message]


def _wrapped(request: Request) -> _Frames:
    def framed(message: bytes | None, why: str) -> Parts:
        kind = answer_kind(request.key, request.version)
        code = Code.SASL_AUTHENTICATION_FAILED if message is None else Code.NONE
        told = filled(kind, error_code=error(code), error_message=why or None, auth_bytes=message or b"")
        return _framed(request, written(told))

    return framed


def _framed(request: Request, body: Parts) -> Parts:
    return answer_frame(request.key, request.version, request.number, body)
