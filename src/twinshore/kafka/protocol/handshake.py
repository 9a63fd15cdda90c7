"""ApiVersions v0 to v4, SaslHandshake v1 and SaslAuthenticate v1; ApiVersions for both sides."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.apis import API_VERSIONS
from twinshore.kafka.protocol.primitives import (
    I16,
    I32,
    I64,
    PLAIN_ENCODING,
    Buffer,
    Encoding,
    encoding_of,
    parser,
    read_name,
    uvarint,
)

API_VERSIONS_VERSION_MAX = 4
UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")
_LEVELS = struct.Struct(">hh")
_FEATURES, _EPOCH, _FINALIZED, _ZK_READY = range(4)


class ClientSoftware(NamedTuple):
    """What a client tells of itself, from v3 on."""

    name: str
    version: str


class ApiVersionRange(NamedTuple):
    key: int
    lowest: int
    highest: int


class FeatureRange(NamedTuple):
    """A feature's lowest and highest level, supported or finalized."""

    name: str
    lowest: int
    highest: int


class ApiVersionsResponse(NamedTuple):
    """`finalized_epoch`: -1 if unknown; must never decrease."""

    error: int
    offers: Sequence[ApiVersionRange]
    throttle_ms: int = 0
    features: Sequence[FeatureRange] = ()
    finalized_epoch: int = -1
    finalized: Sequence[FeatureRange] = ()
    zk_migration_ready: bool = False


def encode_api_versions_request(version: int, software: ClientSoftware) -> bytes:
    notation = _notation(version)
    if version < 3:
        return b""
    return notation.string(software.name) + notation.string(software.version) + notation.no_tags


@parser("a request for API versions")
def read_api_versions_request(view: Buffer, position: int, version: int) -> ClientSoftware | None:
    """None before v3."""
    notation = _notation(version)
    if version < 3:
        return None
    name, position = read_name(notation, view, position)
    software_version, position = read_name(notation, view, position)
    notation.skip_tags(view, position)
    return ClientSoftware(name, software_version)


def encode_api_versions(version: int, answer: ApiVersionsResponse) -> bytes:
    """Returns the response's body. Answer an unknown version in version 0, with `UNSUPPORTED_VERSION`."""
    notation = _notation(version)
    out = [I16.pack(answer.error), notation.counted(len(answer.offers))]
    out += [_RANGE.pack(*offer) + notation.no_tags for offer in answer.offers]
    if version >= 1:
        out.append(I32.pack(answer.throttle_ms))
    if version >= 3:
        out.append(_tags_of(answer, notation))
    return b"".join(out)


def _tags_of(answer: ApiVersionsResponse, notation: Encoding) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if answer.features:
        tags.append((_FEATURES, _features(answer.features, notation)))
    if answer.finalized_epoch != -1:
        tags.append((_EPOCH, I64.pack(answer.finalized_epoch)))
    if answer.finalized:
        # Here the higher level is first.
        turned = [FeatureRange(one.name, one.highest, one.lowest) for one in answer.finalized]
        tags.append((_FINALIZED, _features(turned, notation)))
    if answer.zk_migration_ready:
        tags.append((_ZK_READY, b"\1"))
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)


def _features(features: Sequence[FeatureRange], notation: Encoding) -> bytes:
    out = [notation.counted(len(features))]
    out += [notation.string(one.name) + _LEVELS.pack(one.lowest, one.highest) + notation.no_tags for one in features]
    return b"".join(out)


@parser("an answer about API versions")
def parse_api_versions(view: Buffer, position: int, version: int) -> ApiVersionsResponse:
    """`position`: after the response header. A broker that does not know the version answers in version 0."""
    notation = _notation(version)
    throttle_ms = 0
    (error,) = I16.unpack_from(view, position)
    if error == UNSUPPORTED_VERSION:
        version, notation = 0, PLAIN_ENCODING
    count, position = notation.read_count(view, position + I16.size)
    offers: list[ApiVersionRange] = []
    for _ in range(count):
        offers.append(ApiVersionRange(*_RANGE.unpack_from(view, position)))
        position = notation.skip_tags(view, position + _RANGE.size)
    if version >= 1:
        (throttle_ms,) = I32.unpack_from(view, position)
        position += I32.size
    tags, _ = notation.read_tags(view, position)
    epoch = I64.unpack_from(view, tags[_EPOCH])[0] if _EPOCH in tags else -1
    is_ready = _ZK_READY in tags and view[tags[_ZK_READY]] != 0
    features = _read_features(notation, view, tags.get(_FEATURES))
    turned = _read_features(notation, view, tags.get(_FINALIZED))
    finalized = tuple(FeatureRange(one.name, one.highest, one.lowest) for one in turned)
    return ApiVersionsResponse(error, tuple(offers), throttle_ms, features, epoch, finalized, is_ready)


def _read_features(notation: Encoding, view: Buffer, position: int | None) -> tuple[FeatureRange, ...]:
    if position is None:
        return ()
    count, position = notation.read_count(view, position)
    features: list[FeatureRange] = []
    for _ in range(count):
        name, position = read_name(notation, view, position)
        features.append(FeatureRange(name, *_LEVELS.unpack_from(view, position)))
        position = notation.skip_tags(view, position + _LEVELS.size)
    return tuple(features)


def _notation(version: int) -> Encoding:
    if not 0 <= version <= API_VERSIONS_VERSION_MAX:
        raise WireError(f"ApiVersions v{version} is not spoken here, only v0-{API_VERSIONS_VERSION_MAX}")
    return encoding_of(API_VERSIONS, version)


SASL_VERSION = 1


class SaslAuthenticateResponse(NamedTuple):
    """The server's message. `lifetime_ms`: how long the session lasts, 0 for ever."""

    error: int
    reason: str | None
    message: bytes
    lifetime_ms: int


def encode_sasl_handshake(mechanism: str) -> bytes:
    return PLAIN_ENCODING.string(mechanism)


@parser("an answer about SASL mechanisms")
def parse_sasl_handshake(view: Buffer) -> tuple[int, list[str]]:
    """Returns the error code, and the listener's mechanisms."""
    (error,) = I16.unpack_from(view)
    count, position = PLAIN_ENCODING.read_count(view, I16.size)
    mechanisms: list[str] = []
    for _ in range(count):
        mechanism, position = read_name(PLAIN_ENCODING, view, position)
        mechanisms.append(mechanism)
    return error, mechanisms


def encode_sasl_authenticate(message: bytes) -> bytes:
    return I32.pack(len(message)) + message


@parser("an answer about SASL")
def parse_sasl_authenticate(view: Buffer) -> SaslAuthenticateResponse:
    (error,) = I16.unpack_from(view)
    reason, position = PLAIN_ENCODING.read_string(view, I16.size)
    size, position = PLAIN_ENCODING.read_size(view, position)
    end = position + max(0, size)
    if end > len(view):
        raise WireError("a SASL message runs past the end", offset=position)
    (lifetime_ms,) = I64.unpack_from(view, end)
    return SaslAuthenticateResponse(error, reason, bytes(view[position:end]), lifetime_ms)
