"""How a client logs in at the proxy, as a transcript: its frames, and what becomes of each."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import mentions
from tests.proxy.talks import by_kio, view
from twinshore.config.errors import WireError
from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.apis import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, api_format
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.framing import frame_request, read_response_header
from twinshore.kafka.protocol.handshake import ClientSoftware, encode_api_versions_request, parse_api_versions
from twinshore.kafka.protocol.sasl import ScramClient, derive_scram_keys
from twinshore.proxy.core.api_versions import HANDLED_API_VERSIONS
from twinshore.proxy.core.login import (
    AcceptLogin,
    CheckCredentials,
    ClientLogin,
    ClientPrincipal,
    ContinueLogin,
    RefuseLogin,
)
from twinshore.proxy.core.message_codec import build_message, encode_message, get_request_type
from twinshore.proxy.core.model import DisconnectClient, Parts

SCRAM = SaslMechanism.SCRAM_SHA_512.value
KEYS = derive_scram_keys("sesame", SaslMechanism.SCRAM_SHA_512, b"of the sea", 4096)
OTHER_KEYS = derive_scram_keys("nobody has it", SaslMechanism.SCRAM_SHA_512, b"of the sky", 4096)
UNTOLD = "Authentication failed: user or password is wrong"


def login(*mechanisms: str) -> ClientLogin:
    """There is anna alone, whose password is sesame."""
    return ClientLogin(
        lambda user: KEYS if user == "anna" else OTHER_KEYS, mechanisms or (SCRAM, "PLAIN"), lambda: "ours"
    )


def sent(key: int, version: int, body: Parts) -> memoryview:
    return memoryview(
        b"".join(frame_request(key, version, 7, "app", body, api_format(key, version).tags_in_request))[4:]
    )


def chosen(mechanism: str, version: int = 1) -> memoryview:
    return sent(
        SASL_HANDSHAKE,
        version,
        encode_message(build_message(get_request_type(SASL_HANDSHAKE, version), mechanism=mechanism)),
    )


def message(content: bytes, version: int = 2) -> memoryview:
    body = encode_message(build_message(get_request_type(SASL_AUTHENTICATE, version), auth_bytes=content))
    return sent(SASL_AUTHENTICATE, version, body)


def said(key: int, version: int, parts: Parts) -> tuple[int, memoryview]:
    """The number of an answer, and its body."""
    whole = view(parts)
    assert struct.unpack_from(">i", whole)[0] == len(whole) - 4
    number, position = read_response_header(whole[4:], api_format(key, version).tags_in_response)
    return number, whole[4:][position:]


def test_a_client_learns_what_is_offered_before_it_logs_in() -> None:
    asked = sent(API_VERSIONS, 3, [encode_api_versions_request(3, ClientSoftware("test", "1"))])
    ours = login()
    step = ours.step(asked, HANDLED_API_VERSIONS)
    assert isinstance(step, ContinueLogin)
    assert ours.software == "test 1"
    offers = parse_api_versions(said(API_VERSIONS, 3, step.frame)[1], 0, 3).offers
    assert {(17, 0, 1), (36, 0, 2), (METADATA, *HANDLED_API_VERSIONS[METADATA])} <= {tuple(one) for one in offers}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(version: int) -> None:
    ours = login()
    step = ours.step(chosen("PLAIN"), HANDLED_API_VERSIONS)
    assert isinstance(step, ContinueLogin)
    number, body = said(SASL_HANDSHAKE, 1, step.frame)
    assert (number, by_kio(SASL_HANDSHAKE, 1, body).mechanisms) == (7, (SCRAM, "PLAIN"))
    step = ours.step(message(b"\0anna\0sesame", version), HANDLED_API_VERSIONS)
    assert isinstance(step, CheckCredentials)
    assert step.principal == ClientPrincipal("anna", "sesame")
    assert "sesame" not in repr(step.principal)
    assert by_kio(SASL_AUTHENTICATE, version, said(SASL_AUTHENTICATE, version, step.entered)[1]).error_code == 0
    told = by_kio(SASL_AUTHENTICATE, version, said(SASL_AUTHENTICATE, version, step.refused)[1])
    assert (told.error_code, told.error_message) == (Code.sasl_authentication_failed, UNTOLD)


def test_scram() -> None:
    ours = login()
    ours.step(chosen(SCRAM), HANDLED_API_VERSIONS)
    client = ScramClient(SaslMechanism.SCRAM_SHA_512, "anna", "sesame", "theirs", "test")
    step = ours.step(message(client.first()), HANDLED_API_VERSIONS)
    assert isinstance(step, ContinueLogin)
    server_first = by_kio(SASL_AUTHENTICATE, 2, said(SASL_AUTHENTICATE, 2, step.frame)[1]).auth_bytes
    step = ours.step(message(client.final(server_first)), HANDLED_API_VERSIONS)
    assert isinstance(step, AcceptLogin)
    assert step.principal == ClientPrincipal("anna")
    client.verify(by_kio(SASL_AUTHENTICATE, 2, said(SASL_AUTHENTICATE, 2, step.frame)[1]).auth_bytes)


def test_behind_the_first_version_of_the_handshake_messages_are_bare() -> None:
    ours = login()
    ours.step(chosen("PLAIN", 0), HANDLED_API_VERSIONS)
    step = ours.step(memoryview(b"\0anna\0sesame"), HANDLED_API_VERSIONS)
    assert isinstance(step, CheckCredentials)
    assert bytes(view(step.entered)) == b"\0\0\0\0"
    assert step.refused == []
    ours = login()
    ours.step(chosen(SCRAM, 0), HANDLED_API_VERSIONS)
    client = ScramClient(SaslMechanism.SCRAM_SHA_512, "anna", "sesame", "theirs", "test")
    step = ours.step(memoryview(client.first()), HANDLED_API_VERSIONS)
    assert isinstance(step, ContinueLogin)
    step = ours.step(memoryview(client.final(bytes(view(step.frame)[4:]))), HANDLED_API_VERSIONS)
    assert isinstance(step, AcceptLogin)
    client.verify(bytes(view(step.frame)[4:]))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"root\0anna\0sesame", "would act as another user"),
        (b"\0anna\0", "no user or no password"),
        (b"anna", "cannot be read"),
        (b"\xff\0\xff\0\xff", "cannot be read"),
    ],
)
def test_a_login_that_is_refused_hears_nothing_of_why(content: bytes, why: str) -> None:
    ours = login()
    ours.step(chosen("PLAIN"), HANDLED_API_VERSIONS)
    step = ours.step(message(content), HANDLED_API_VERSIONS)
    assert isinstance(step, RefuseLogin)
    assert why in step.why
    told = by_kio(SASL_AUTHENTICATE, 2, said(SASL_AUTHENTICATE, 2, step.frame)[1])
    assert (told.error_code, told.error_message) == (Code.sasl_authentication_failed, UNTOLD)


def test_a_mechanism_that_is_not_taken_is_answered_with_those_that_are() -> None:
    step = login(SCRAM).step(chosen("PLAIN"), HANDLED_API_VERSIONS)
    assert isinstance(step, RefuseLogin)
    assert mentions(step.why, "'PLAIN'", "[proxy] sasl")
    told = by_kio(SASL_HANDSHAKE, 1, said(SASL_HANDSHAKE, 1, step.frame)[1])
    assert (told.error_code, told.mechanisms) == (Code.unsupported_sasl_mechanism, (SCRAM,))


def test_nothing_else_is_answered_before() -> None:
    for early in (sent(METADATA, 9, [b"\0" * 8]), message(b"\0anna\0sesame"), sent(SASL_HANDSHAKE, 9, [b""])):
        step = login().step(early, HANDLED_API_VERSIONS)
        assert isinstance(step, DisconnectClient)


@given(st.lists(st.binary(max_size=120), max_size=4), st.sampled_from(["PLAIN", SCRAM]), st.booleans())
def test_any_frame_is_judged_or_is_a_wire_error(frames: list[bytes], mechanism: str, bare: bool) -> None:
    ours = login()
    if bare:
        ours.step(chosen(mechanism, 0), HANDLED_API_VERSIONS)
    with contextlib.suppress(WireError):
        for one in frames:
            if not isinstance(step := ours.step(memoryview(one), HANDLED_API_VERSIONS), ContinueLogin):
                assert not isinstance(step, AcceptLogin)
                break
