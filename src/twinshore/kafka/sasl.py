"""SASL as talks, without IO: secrets, nonce and token are arguments."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from twinshore.fleet import KafkaError, SaslMechanism
from twinshore.kafka.errors import Code, describe
from twinshore.kafka.scram import ScramClient
from twinshore.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from twinshore.wire.exchange import Question, Talk
from twinshore.wire.sasl import VERSION, encode_authenticate, encode_handshake, parse_authenticate, parse_handshake

# A mechanism's own messages: each of ours is yielded, each of the server's sent in.
Messages: TypeAlias = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Credentials:
    """`secret` is a password or a token. `nonce` is for SCRAM alone."""

    mechanism: SaslMechanism
    username: str = ""
    secret: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)


def choose(mechanism: SaslMechanism, place: str) -> Talk[None]:
    """Asks whether the listener takes this mechanism. Only then are secrets worth reading."""
    answer = yield Question(SASL_HANDSHAKE, VERSION, encode_handshake(mechanism.value))
    error, mechanisms = parse_handshake(answer)
    if error:
        offered = ", ".join(sorted(mechanisms)) or "none"
        raise KafkaError(
            f"{place}: the listener does not take SASL {mechanism.value}", code=error, hint=f"it offers {offered}"
        )


def log_in(credentials: Credentials, place: str) -> Talk[float]:
    """Returns how many seconds the session lasts, 0 for ever."""
    lifetime_ms = 0
    messages = _messages(credentials, place)
    reason = ""
    try:
        message = next(messages)
        while True:
            answer = yield Question(SASL_AUTHENTICATE, VERSION, encode_authenticate(message))
            said = parse_authenticate(answer)
            if said.error:
                why = reason or said.reason or describe(said.error).sentence
                raise _refused(credentials, place, why)
            lifetime_ms, reason = said.lifetime_ms, _status(credentials, said.message)
            message = messages.send(said.message)
    except StopIteration:
        return lifetime_ms / 1000


def _messages(credentials: Credentials, place: str) -> Messages:
    if credentials.mechanism is SaslMechanism.PLAIN:
        yield f"\0{credentials.username}\0{credentials.secret}".encode()
    elif credentials.mechanism is SaslMechanism.OAUTHBEARER:
        refusal = yield f"n,,\x01auth=Bearer {credentials.secret}\x01\x01".encode()
        if refusal:
            # A refusal comes as JSON with code 0; the broker says 58 only after our acknowledgement (RFC 7628).
            yield b"\x01"
            raise _refused(credentials, place, _status(credentials, refusal))
    else:
        scram = ScramClient(credentials.mechanism, credentials.username, credentials.secret, credentials.nonce, place)
        server_first = yield scram.first()
        scram.verify((yield scram.final(server_first)))


def _refused(credentials: Credentials, place: str, reason: str) -> KafkaError:
    who = f" of user {credentials.username}" if credentials.username else ""
    return KafkaError(
        f"{place}: the SASL {credentials.mechanism} credentials{who} are refused: {reason}",
        code=Code.SASL_AUTHENTICATION_FAILED,
        hint="check user name and secret; a rotated secret is read again at the next connection",
    )


def _status(credentials: Credentials, message: bytes) -> str:
    """Why a token is refused, of a message that says so; empty for other mechanisms."""
    if credentials.mechanism is not SaslMechanism.OAUTHBEARER or not message:
        return ""
    try:
        return str(json.loads(message).get("status", "refused"))
    except (ValueError, AttributeError):
        return "refused"
