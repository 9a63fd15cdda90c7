"""SCRAM's server side against the client's, against the exchange printed in RFC 7677, and against clients that lie."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import raises
from tests.kafka.test_scram import NONCE, SERVER_FINAL, SERVER_FIRST
from twinshore.config.errors import ConfigError
from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.sasl import (
    LoginRefusedError,
    ScramClient,
    ScramKeys,
    ScramServer,
    derive_scram_keys,
    parse_scram_keys,
)

SHA_512 = SaslMechanism.SCRAM_SHA_512
KEYS = derive_scram_keys("sesame", SHA_512, b"of the sea", 4096)
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def server(user: str = "anna", keys: ScramKeys = KEYS, mechanism: SaslMechanism = SHA_512) -> ScramServer:
    return ScramServer(mechanism, {user: keys}.__getitem__, "ours")


def test_the_exchange_of_rfc_7677() -> None:
    text = SERVER_FIRST.decode()
    salt = text.partition(",s=")[2].partition(",")[0]
    keys = derive_scram_keys("pencil", SaslMechanism.SCRAM_SHA_256, base64.b64decode(salt), 4096)
    nonce = text.removeprefix(f"r={NONCE}").partition(",")[0]
    found = ScramServer(SaslMechanism.SCRAM_SHA_256, {"user": keys}.__getitem__, nonce)
    assert found.first(CLIENT_FIRST) == SERVER_FIRST
    assert found.final(CLIENT_FINAL) == SERVER_FINAL
    assert found.user == "user"


@pytest.mark.parametrize("user", ["anna", "a,b=c", "=2C", "ünö", "tokenauth=true"])
def test_our_client_and_our_server_agree(user: str) -> None:
    client, ours = ScramClient(SHA_512, user, "sesame", "theirs", "east"), server(user)
    client.verify(ours.final(client.final(ours.first(client.first()))))
    assert ours.user == user


def test_a_wrong_password_is_refused() -> None:
    client, ours = ScramClient(SHA_512, "anna", "wrong", "theirs", "east"), server()
    said = client.final(ours.first(client.first()))
    with pytest.raises(LoginRefusedError, match="user 'anna': "):
        ours.final(said)


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (b"p=tls-unique,,n=anna,r=x", "cannot be read, or wants what is not served"),
        (b"n,,m=ext,n=anna,r=x", "wants what is not served"),
        (b"n,,n=anna", "cannot be read"),
        (b"n,,n=anna,r=x,tokenauth=true", "delegation token"),
        (b"n,a=root,n=anna,r=x", "act as another user"),
        (b"\xff", "not UTF-8"),
        (b"", "cannot be read"),
    ],
)
def test_first_messages_that_are_not_taken(first: bytes, complaint: str) -> None:
    with pytest.raises(LoginRefusedError, match=complaint):
        server().first(first)


@pytest.mark.parametrize(
    ("final", "complaint"),
    [
        (b"c=biws,r=theirs,p=AAAA", "belongs to another login"),
        (b"c=eSws,r=theirsours,p=AAAA", "belongs to another login"),
        (b"c=biws,r=theirsours,p=AAAA", "no proof"),
        (b"c=biws,r=theirsours,p=!!", "not base64"),
        (b"", "belongs to another login"),
    ],
)
def test_final_messages_that_are_not_taken(final: bytes, complaint: str) -> None:
    ours = server()
    ours.first(b"n,,n=anna,r=theirs")
    with pytest.raises(LoginRefusedError, match=complaint):
        ours.final(final)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_message_is_understood_or_refused(first: bytes, final: bytes) -> None:
    with contextlib.suppress(LoginRefusedError):
        server().first(first)
    ours = server()
    ours.first(b"n,,n=anna,r=theirs")
    with pytest.raises(LoginRefusedError):
        ours.final(final)


def test_keys_are_written_as_kafka_writes_them() -> None:
    assert parse_scram_keys(KEYS.text, SHA_512) == KEYS
    assert KEYS.text.startswith("salt=b2YgdGhlIHNlYQ==,stored_key=")
    assert "stored_key" not in repr(KEYS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must be salt="),
        (KEYS.text.replace("iterations=4096", "iterations=1"), "have 1 iterations, not 4096 to"),
        (KEYS.text.replace("iterations=4096", "iterations=many"), "cannot be read"),
        (KEYS.text.replace("salt=", "salt=!"), "cannot be read"),
        (derive_scram_keys("x", SaslMechanism.SCRAM_SHA_256, b"s", 4096).text, "are not of SCRAM-SHA-512"),
    ],
)
def test_keys_that_are_none(text: str, complaint: str) -> None:
    with raises(ConfigError, "kafka.invalid-scram-keys") as caught:
        parse_scram_keys(text, SHA_512)
    assert complaint in caught.value.values["fault"]
