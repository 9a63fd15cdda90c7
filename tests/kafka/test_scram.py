"""SCRAM against the exchange printed in RFC 7677, and against servers that lie."""

import base64
import hashlib
import hmac

import pytest

from twinshore.config.errors import KafkaError
from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.sasl import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc7677() -> ScramClient:
    return ScramClient(SaslMechanism.SCRAM_SHA_256, "user", "pencil", NONCE, "east")


def test_the_exchange_of_rfc_7677() -> None:
    client = rfc7677()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(SERVER_FINAL)


def test_sha_512_agrees_with_a_server_that_stores_only_its_keys() -> None:
    client = ScramClient(SaslMechanism.SCRAM_SHA_512, "a,b=c", "pässword", "abc", "east")
    assert client.first() == b"n,,n=a=2Cb=3Dc,r=abc"
    salt = b"salt of the sea"
    server_first = b"r=abcdef,s=" + base64.b64encode(salt) + b",i=8192"
    final = client.final(server_first)
    without_proof, proof = final.split(b",p=")
    salted = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), salt, 8192)
    stored_key = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signed = b"n=a=2Cb=3Dc,r=abc," + server_first + b"," + without_proof
    mask = hmac.digest(stored_key, signed, "sha512")
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True))
    assert hashlib.sha512(client_key).digest() == stored_key
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    client.verify(b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha512")))


@pytest.mark.parametrize(
    ("server_first", "complaint"),
    [
        (b"r=someone-else,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b"x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=W22ZaJ0SNY7soEsUEjb6gQ==", "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000, "iterations"),
        (b"r=" + NONCE.encode() + "x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=\u0664\u0660\u0669\u0666".encode(), "iterations"),
        (b"r=" + NONCE.encode() + b"x,s=!!,i=4096", "base64"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "nonce"),
    ],
)
def test_a_server_that_does_not_keep_to_the_protocol_gets_no_proof(server_first: bytes, complaint: str) -> None:
    with pytest.raises(KafkaError, match=rf"^east: SCRAM: .*{complaint}"):
        rfc7677().final(server_first)


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"", b"v=", b"e=other-error"])
def test_a_server_that_does_not_know_the_password_is_not_trusted(server_final: bytes) -> None:
    client = rfc7677()
    client.final(SERVER_FIRST)
    with pytest.raises(KafkaError, match="SCRAM"):
        client.verify(server_final)


def test_a_server_that_signs_before_it_saw_a_proof_is_not_trusted() -> None:
    with pytest.raises(KafkaError, match="password"):
        rfc7677().verify(b"v=")
