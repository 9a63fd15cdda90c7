"""Authentication: against peers, one that knows the password and one that pretends to; and as a talk without any."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import socket
import struct
from collections.abc import Awaitable

import pytest

from tests.kafka.peers import Talk as PeerTalk
from tests.kafka.peers import answer, greet, peer, read_message
from twinshore.config.errors import KafkaError, WireError
from twinshore.config.model import SaslMechanism, Secret, Security
from twinshore.kafka.connection import open_connection
from twinshore.kafka.protocol import apis
from twinshore.kafka.protocol.framing import Dialogue, InFlightRequests, Result, negotiate_versions
from twinshore.kafka.protocol.handshake import ClientSoftware, parse_sasl_authenticate, parse_sasl_handshake
from twinshore.kafka.protocol.sasl import Credentials, authenticate, negotiate_mechanism

SALT, ROUNDS = b"salt of the sea", 4096


def scram_broker(password: str, final: bytes = b"") -> PeerTalk:
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
    _, _, correlation_id, body = read_message(connection)
    return correlation_id, body[4:]


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
def test_a_broker_that_does_not_know_the_password_gets_no_connection(security: Security, talk: PeerTalk) -> None:
    with peer(talk) as address, pytest.raises(KafkaError, match="password") as caught:
        open_connection(address, security)
    assert "impostor" in caught.value.hint
    assert f":{address[1]}: " in str(caught.value)


# -- the talks by themselves


def refused(code: int, reason: bytes | None = None) -> bytes:
    text = struct.pack(">h", -1) if reason is None else struct.pack(">h", len(reason)) + reason
    return struct.pack(">h", code) + text + struct.pack(">iq", 0, 0)


def agreed(message: bytes = b"", lifetime_ms: int = 0) -> bytes:
    return struct.pack(">hhi", 0, -1, len(message)) + message + struct.pack(">q", lifetime_ms)


def transcript(talk: Dialogue[float], *answers: bytes) -> tuple[list[bytes], float | None]:
    """Our messages, and what the talk returned where it came to its end."""
    ours: list[bytes] = []
    question = next(talk)
    for said in answers:
        assert (question.key, question.version) == (apis.SASL_AUTHENTICATE, 1)
        ours.append(question.body[4:])
        assert question.body[:4] == struct.pack(">i", len(ours[-1]))
        try:
            question = talk.send(memoryview(said))
        except StopIteration as end:
            return ours, end.value
    return [*ours, question.body[4:]], None


def test_plain_is_one_message_and_a_session_may_end() -> None:
    talk = authenticate(Credentials(SaslMechanism.PLAIN, "user", "pencil"), "here")
    assert transcript(talk, agreed(lifetime_ms=90_500)) == ([b"\0user\0pencil"], 90.5)


def test_scram_is_the_conversation_of_the_rfc() -> None:
    """RFC 7677, with its nonce and salt."""
    credentials = Credentials(SaslMechanism.SCRAM_SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    )
    ours, lifetime_s = transcript(authenticate(credentials, "here"), *map(agreed, server))
    assert ours == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]
    assert lifetime_s == 0


def test_a_token_that_is_refused_is_acknowledged_before_it_is_told() -> None:
    talk = authenticate(Credentials(SaslMechanism.OAUTHBEARER, "", "token"), "here")
    refusal = agreed(b'{"status":"invalid_token"}')
    assert transcript(talk, refusal) == ([b"n,,\x01auth=Bearer token\x01\x01", b"\x01"], None)
    with pytest.raises(KafkaError, match=r"^here: .* OAUTHBEARER .*: invalid_token"):
        talk.send(memoryview(refused(58, b"something else")))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (refused(58, b"wrong password"), "here: the SASL PLAIN credentials of user user are refused: wrong password"),
        (refused(58), "are refused: "),
    ],
)
def test_a_refusal_names_the_place_and_the_user(answer: bytes, complaint: str) -> None:
    talk = authenticate(Credentials(SaslMechanism.PLAIN, "user", "pencil"), "here")
    with pytest.raises(KafkaError, match=complaint) as caught:
        transcript(talk, answer)
    assert caught.value.code == 58
    assert "pencil" not in repr(Credentials(SaslMechanism.PLAIN, "user", "pencil"))


def test_no_answer_about_sasl_is_read_beyond_its_end() -> None:
    whole = agreed(b"message", 7)
    for end in range(len(whole)):
        with pytest.raises(WireError):
            parse_sasl_authenticate(whole[:end])
    offer = struct.pack(">hi", 33, 2) + b"\0\5PLAIN\0\3ABC"
    assert parse_sasl_handshake(offer) == (33, ["PLAIN", "ABC"])
    for end in range(len(offer)):
        with pytest.raises(WireError):
            parse_sasl_handshake(offer[:end])


async def within(work: Awaitable[float]) -> float:
    return await asyncio.wait_for(work, 20)


def test_an_event_loop_holds_the_same_talks() -> None:
    async def log_in_at(host: str, port: int) -> float:
        reader, writer = await asyncio.open_connection(host, port)
        exchange = InFlightRequests("loop")

        async def hold(talk: Dialogue[Result]) -> Result:
            try:
                question = next(talk)
                while True:
                    writer.writelines(exchange.ask(question.key, question.version, [question.body], 0.0))
                    while (found := exchange.answer()) is None:
                        came = await reader.read(len(exchange.frame_reader.room()))
                        exchange.frame_reader.room()[: len(came)] = came
                        exchange.frame_reader.took(len(came))
                    question = talk.send(found.view[found.position :])
            except StopIteration as end:
                learnt: Result = end.value
                return learnt

        mechanism = SaslMechanism.SCRAM_SHA_256
        try:
            offers = (await hold(negotiate_versions(ClientSoftware("test", "1")))).offers
            assert [offer.key for offer in offers] == [apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE]
            await hold(negotiate_mechanism(mechanism, "here"))
            return await hold(authenticate(Credentials(mechanism, "user", "pencil", "nonce"), "here"))
        finally:
            writer.close()
            await writer.wait_closed()

    with peer(scram_broker("pencil")) as (host, port):
        assert asyncio.run(within(log_in_at(host, port))) == 0
    with peer(scram_broker("rubber")) as (host, port), pytest.raises(KafkaError, match="password"):
        asyncio.run(within(log_in_at(host, port)))
