"""SaslHandshake v1 and SaslAuthenticate v1: a mechanism is chosen, then its messages go to and fro."""

from __future__ import annotations

from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.wire.notation import PLAIN, read_name
from twinshore.wire.primitives import I16, I32, I64, PAST_END, Buffer, truncated

VERSION = 1


class Authenticated(NamedTuple):
    """The server's message; `lifetime_ms` is how long the session lasts, 0 for ever."""

    error: int
    reason: str | None
    message: bytes
    lifetime_ms: int


def encode_handshake(mechanism: str) -> bytes:
    return PLAIN.string(mechanism)


def parse_handshake(view: Buffer) -> tuple[int, list[str]]:
    """The error code, and the mechanisms that the listener takes."""
    try:
        (error,) = I16.unpack_from(view)
        count, position = PLAIN.read_count(view, I16.size)
        mechanisms: list[str] = []
        for _ in range(count):
            mechanism, position = read_name(PLAIN, view, position)
            mechanisms.append(mechanism)
    except PAST_END as past_end:
        raise truncated("an answer about SASL mechanisms", view) from past_end
    return error, mechanisms


def encode_authenticate(message: bytes) -> bytes:
    return I32.pack(len(message)) + message


def parse_authenticate(view: Buffer) -> Authenticated:
    try:
        (error,) = I16.unpack_from(view)
        reason, position = PLAIN.read_string(view, I16.size)
        size, position = PLAIN.read_size(view, position)
        end = position + max(0, size)
        if end > len(view):
            raise WireError("a SASL message runs past the end", offset=position)
        (lifetime_ms,) = I64.unpack_from(view, end)
    except PAST_END as past_end:
        raise truncated("an answer about SASL", view) from past_end
    return Authenticated(error, reason, bytes(view[position:end]), lifetime_ms)
