"""Authentication against peers: one that knows the password, and one that pretends to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import struct

import pytest

from tests.kafka.peers import Talk, answer, greet, peer, read_message
from twinshore.fleet import KafkaError, SaslMechanism, Secret, Security
from twinshore.kafka.opening import open_connection
from twinshore.wire import apis

SALT, ROUNDS = b"salt of the sea", 4096


def scram_broker(password: str, final: bytes = b"") -> Talk:
    """Says `final` at the end, whoever asks; without it, what one that knows the password says."""

    def serve(connection: socket.socket) -> None:
        greet(connection, (apis.SASL_HANDSHAKE, 0, 1), (apis.SASL_AUTHENTICATE, 0, 2))
        _, _, correlation_id, _ = read_message(connection)
        answer(connection, correlation_id, struct.pack(">hih", 0, 1, 13) + b"SCRAM-SHA-256")
        correlation_id, first = message(connection)
        nonce = re.search(rb"r=([^,]+)", first)
        assert nonce is not None
        server_first = b"r=%sx,s=%s,i=%d" % (nonce[1], base64.b64encode(SALT), ROUNDS)
        say(connection, correlation_id, server_first)
        correlation_id, proven = message(connection)
        signed = b",".join((first.removeprefix(b"n,,"), server_first, proven.rpartition(b",p=")[0]))
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ROUNDS)
        key = hmac.digest(salted, b"Server Key", "sha256")
        say(connection, correlation_id, final or b"v=" + base64.b64encode(hmac.digest(key, signed, "sha256")))

    return serve


def message(connection: socket.socket) -> tuple[int, bytes]:
    _, _, correlation_id, rest = read_message(connection)
    after_client = 2 + struct.unpack_from(">h", rest)[0]
    return correlation_id, rest[after_client + 4 :]


def say(connection: socket.socket, correlation_id: int, text: bytes) -> None:
    answer(connection, correlation_id, struct.pack(">hhi", 0, -1, len(text)) + text + struct.pack(">q", 0))


@pytest.fixture
def security(monkeypatch: pytest.MonkeyPatch) -> Security:
    monkeypatch.setenv("TWINSHORE_TEST_PASSWORD", "pencil")
    secret = Secret(env="TWINSHORE_TEST_PASSWORD")
    return Security(sasl=SaslMechanism.SCRAM_SHA_256, username="user", password=secret)


def test_a_broker_that_knows_the_password_is_trusted(security: Security) -> None:
    with peer(scram_broker("pencil")) as address:
        open_connection(address, security).close()


@pytest.mark.parametrize("talk", [scram_broker("pencil", b"v=AAAA"), scram_broker("rubber")], ids=["junk", "other"])
def test_a_broker_that_does_not_know_the_password_gets_no_connection(security: Security, talk: Talk) -> None:
    with peer(talk) as address, pytest.raises(KafkaError, match="does not know the password") as caught:
        open_connection(address, security)
    assert "impostor" in caught.value.hint
    assert f":{address[1]}: " in str(caught.value)
