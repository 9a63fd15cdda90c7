"""SASL on a fresh connection. Secrets are read now, so a rotated one counts at the next connection."""

from __future__ import annotations

import json
import math
import secrets
import time

from kio.schema.sasl_authenticate.v1 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse

from twinshore.fleet import ConfigError, KafkaError, SaslMechanism, Security
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, describe
from twinshore.kafka.oauth import fetch_token
from twinshore.kafka.scram import ScramClient

# Leave before the broker shows us the door: it closes a connection that speaks after its session's end.
_LIFETIME_PART = 0.8


def authenticate(connection: Connection, security: Security, timeout_s: float) -> float:
    """Returns when the session ends on time.monotonic(), `inf` for never."""
    mechanism = security.sasl
    if mechanism is None:
        return math.inf
    deadline = time.monotonic() + timeout_s
    _choose(connection, mechanism, timeout_s)
    talk = _Talk(connection, security, deadline)
    if mechanism is SaslMechanism.PLAIN:
        talk.plain()
    elif mechanism is SaslMechanism.OAUTHBEARER:
        talk.oauthbearer()
    else:
        talk.scram(mechanism)
    return time.monotonic() + talk.lifetime_s * _LIFETIME_PART if talk.lifetime_s > 0 else math.inf


def _choose(connection: Connection, mechanism: SaslMechanism, timeout_s: float) -> None:
    answer = connection.call(
        SaslHandshakeRequest(mechanism=mechanism.value), SaslHandshakeResponse, timeout_s=timeout_s
    )
    if answer.error_code:
        offered = ", ".join(sorted(answer.mechanisms)) or "none"
        raise KafkaError(
            f"{connection.place}: the listener does not take SASL {mechanism.value}",
            code=int(answer.error_code),
            hint=f"it offers {offered}",
        )


class _Talk:
    def __init__(self, connection: Connection, security: Security, deadline: float) -> None:
        self.lifetime_s = 0.0
        self._connection = connection
        self._security = security
        self._deadline = deadline

    def plain(self) -> None:
        self._say(f"\0{self._user()}\0{self._security.password.read()}".encode())

    def scram(self, mechanism: SaslMechanism) -> None:
        nonce, place = secrets.token_urlsafe(24), self._connection.place
        scram = ScramClient(mechanism, self._user(), self._security.password.read(), nonce, place)
        scram.verify(self._say(scram.final(self._say(scram.first()))))

    def oauthbearer(self) -> None:
        token = fetch_token(self._security, timeout_s=self._left_s())
        answer = self._say(f"n,,\x01auth=Bearer {token.text}\x01\x01".encode())
        if not answer:
            return
        # A refusal comes as JSON with code 0; the broker says 58 only after our acknowledgement (RFC 7628).
        self._say(b"\x01", reason=_status(answer))
        raise self._refused(_status(answer))

    def _user(self) -> str:
        if not self._security.username:
            raise ConfigError(f"SASL {self._security.sasl} needs a username")
        return self._security.username

    def _left_s(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _say(self, message: bytes, *, reason: str = "") -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = self._connection.call(request, SaslAuthenticateResponse, timeout_s=self._left_s())
        if answer.error_code:
            raise self._refused(reason or answer.error_message or describe(int(answer.error_code)).sentence)
        self.lifetime_s = answer.session_lifetime.total_seconds()
        return answer.auth_bytes

    def _refused(self, reason: str) -> KafkaError:
        who = f" of user {self._security.username}" if self._security.username else ""
        return KafkaError(
            f"{self._connection.place}: the SASL {self._security.sasl} credentials{who} are refused: {reason}",
            code=Code.SASL_AUTHENTICATION_FAILED,
            hint="check user name and secret; a rotated secret is read again at the next connection",
        )


def _status(answer: bytes) -> str:
    try:
        return str(json.loads(answer).get("status", "refused"))
    except (ValueError, AttributeError):
        return "refused"
