"""Clients at ports that speak TLS, or not, and that must log in, or not: what each hears, and what the log says."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from testkit.certificates import CertificateAuthority
from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.proxy.stage import Client, Stage, about_topics, nothing, on_stage
from tests.proxy.talks import by_kio, said_part
from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret
from twinshore.config.sections.proxy import ClusterCredentials, ProxySettings
from twinshore.kafka.protocol.apis import API_VERSIONS, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.handshake import ClientSoftware, encode_api_versions_request
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy import auth, listeners
from twinshore.proxy.auth import Authenticator, format_subject
from twinshore.proxy.client_connection import ClientConnection
from twinshore.proxy.core.login import LOGIN_REQUEST_BYTES_MAX, ClientPrincipal
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_request,
    encode_message,
    get_request_type,
    get_response_type,
)
from twinshore.proxy.core.model import BrokerId
from twinshore.state.core.proxy_values import TrafficKey, TrafficKind

ANNA = "sesame"
NAMES = "node-*.kafka.example"


@dataclass
class Rig:
    """Certificates of an authority, and what the proxy is told of them."""

    authority: CertificateAuthority
    asked: ProxySettings

    def gate(self) -> Authenticator:
        return Authenticator(self.asked)

    def client(self, *, trusts: bool = True, shows: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file) if trusts else None)
        if shows:
            pair = self.authority.issue(shows)
            context.load_cert_chain(pair.cert_file, pair.key_file)
        return context


def rig(folder: Path, **more: Any) -> Rig:
    authority = CertificateAuthority(folder, "proxy")
    pair = authority.issue("proxy")
    return Rig(authority, ProxySettings(certificate_file=str(pair.cert_file), key_file=str(pair.key_file), **more))


def with_users(folder: Path, **more: Any) -> ProxySettings:
    (folder / "anna").write_text(ANNA)
    (folder / "users.toml").write_text(f'[anna]\npassword_file = "{folder}/anna"\n')
    return ProxySettings(sasl=("PLAIN",), users_file=str(folder / "users.toml"), **more)


async def is_told(stage: Stage, sentence: str) -> None:
    until_s = asyncio.get_running_loop().time() + 10
    while not any(sentence in line for line in stage.said):
        assert asyncio.get_running_loop().time() < until_s, stage.said
        await asyncio.sleep(0.01)


async def is_served(client: Client) -> None:
    client.ask(METADATA, 9, 5, about_topics("orders"))
    number, body = await client.hears()
    assert number == 5
    assert [topic.name for topic in by_kio(METADATA, 9, body[1:]).topics] == ["orders"]


async def at_name(stage: Stage, own: Rig, name: str | None) -> Client:
    """A client that takes any certificate, as it comes by an address of its own."""
    context = own.client()
    context.check_hostname = False
    made = Client(*await asyncio.open_connection("127.0.0.1", stage.port, ssl=context, server_hostname=name or ""))
    stage.talks.append(made.writer)
    return made


async def metadata(request: Request) -> Any:
    assert request.key == METADATA
    asked = [topic.name for topic in decode_request(request).topics]
    kind = get_response_type(METADATA, request.version)
    part = said_part(METADATA, request.version, "topics")
    return encode_message(build_message(kind, topics=tuple(build_message(part, name=topic) for topic in asked)))


def test_a_client_by_tls_is_served_and_answered_before_the_end(tmp_path: Path) -> None:
    own = rig(tmp_path)

    async def play(stage: Stage) -> None:
        client = await stage.client(own.client())
        await is_served(client)
        (guest,) = stage.house.guests
        assert isinstance(guest, ClientConnection)
        guest.drain()
        assert await client.is_hung_up_on()
        await client.leaves()
        while stage.house.guests:
            await asyncio.sleep(0.01)
        assert stage.said == []

    on_stage(play, metadata, gate=own.gate)


@pytest.mark.parametrize("words", [b"\0\0\0\x1f\0\3\0\x09\0\0\0\7\0\3app", b"GET / HTTP/1.1\r\n\r\n"])
def test_plain_text_at_a_port_of_tls_is_told_in_one_sentence(tmp_path: Path, words: bytes) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.write(words)
        assert await client.is_hung_up_on()
        await is_told(stage, "a client at 127.0.0.1 was disconnected: it speaks no TLS, and this port does")
        assert len(stage.said) == stage.house.counts.hung_up == 1
        assert not stage.house.guests

    on_stage(play, nothing, gate=rig(tmp_path).gate)


def test_tls_at_a_plain_port_is_told_in_one_sentence(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await stage.client(rig(tmp_path).client())
        assert [mentions(one, "127.0.0.1", "TLS") for one in stage.said] == [True]

    on_stage(play, nothing)


def test_a_client_that_does_not_trust_the_certificate_is_told(tmp_path: Path) -> None:
    own = rig(tmp_path)

    def meet(port: int) -> None:
        stranger = own.client(trusts=False)
        line = socket.create_connection(("127.0.0.1", port), timeout=10)
        with line, pytest.raises(ssl.SSLCertVerificationError):
            stranger.wrap_socket(line, server_hostname="127.0.0.1")

    async def play(stage: Stage) -> None:
        await asyncio.to_thread(meet, stage.port)
        await is_told(stage, "it does not accept the proxy's certificate, or its TLS: tlsv1 alert unknown ca")

    on_stage(play, nothing, gate=own.gate)


def test_who_only_looks_whether_the_port_is_open_is_not_told(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        for _ in range(3):
            await (await stage.client()).leaves()
        await is_served(await stage.client(own.client()))
        assert stage.said == []

    own = rig(tmp_path)
    on_stage(play, metadata, gate=own.gate)


def test_a_handshake_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "TLS_HANDSHAKE_TIMEOUT_S", 0.2)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.write(b"\x16\x03\x01\x02")
        assert await client.is_hung_up_on()
        await is_told(stage, "its TLS handshake took too long")

    on_stage(play, nothing, gate=rig(tmp_path).gate)


def test_clients_must_show_a_certificate_where_that_is_asked_for(tmp_path: Path) -> None:
    own = rig(tmp_path, client_ca_file=str(tmp_path / "ca.pem"))
    (tmp_path / "others").mkdir()
    stranger = CertificateAuthority(tmp_path / "others", "others").issue("app")

    async def play(stage: Stage) -> None:
        client = await stage.client(own.client(shows="app"))
        await is_served(client)
        (guest,) = stage.house.guests
        assert isinstance(guest, ClientConnection)
        assert guest._brokers.principal == ClientPrincipal("CN=app")
        bare = await stage.client(own.client())
        assert await bare.is_hung_up_on()
        await is_told(stage, "it shows no certificate, and [proxy] client_ca_file asks for one")
        context = own.client()
        context.load_cert_chain(stranger.cert_file, stranger.key_file)
        assert await (await stage.client(context)).is_hung_up_on()
        await is_told(stage, "its certificate is not accepted: unable to get local issuer certificate")

    on_stage(play, metadata, gate=own.gate)


def test_a_new_certificate_is_shown_to_who_comes_next_and_a_bad_one_is_told(tmp_path: Path) -> None:
    own = rig(tmp_path)

    async def play(stage: Stage) -> None:
        early = await stage.client(own.client())
        shown = await serial(stage, own)
        own.authority.issue("proxy")
        stage.house.look()
        renewed = await serial(stage, own)
        assert renewed != shown
        Path(own.asked.key_file).write_text("no key")
        for _ in range(3):
            stage.house.look()
        assert await serial(stage, own) == renewed
        assert len([line for line in stage.said if "stays in force" in line]) == 1
        await is_served(early)

    on_stage(play, metadata, gate=own.gate)


async def serial(stage: Stage, own: Rig) -> str:
    client = await stage.client(own.client())
    found: str = client.writer.get_extra_info("peercert")["serialNumber"]
    return found


def test_files_that_cannot_be_used_are_said_at_the_start(tmp_path: Path) -> None:
    own = rig(tmp_path)
    other = own.authority.issue("other")
    for asked, complaint in (
        (
            ProxySettings(certificate_file=own.asked.certificate_file, key_file=str(other.key_file)),
            "KEY_VALUES_MISMATCH",
        ),
        (ProxySettings(certificate_file="nowhere.pem", key_file="nowhere.pem"), "nowhere.pem cannot be used"),
        (
            ProxySettings(
                certificate_file=own.asked.certificate_file, key_file=own.asked.key_file, client_ca_file="no"
            ),
            "client_ca_file no",
        ),
    ):
        with pytest.raises(ConfigError, match=complaint):
            Authenticator(asked)


def test_a_login_that_is_right_is_served_and_a_wrong_one_waits_and_hears_so(tmp_path: Path) -> None:
    own = with_users(tmp_path)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(API_VERSIONS, 3, 9, [encode_api_versions_request(3, ClientSoftware("kept", "1.2"))])
        await client.hears()
        assert await log_in(client, "anna", ANNA) == 0
        await is_served(client)
        counted = dict(stage.house.traffic.window())[TrafficKey("app", "", "", TrafficKind.CLIENT)]
        assert (counted.software, counted.connections) == ("kept 1.2", 1)
        began_s = asyncio.get_running_loop().time()
        liar = await stage.client()
        assert await log_in(liar, "anna", "wrong") == Code.sasl_authentication_failed
        assert asyncio.get_running_loop().time() - began_s >= auth.LOGIN_FAILURE_DELAY_S * 0.9
        assert await liar.is_hung_up_on()
        await is_told(stage, "a client at 127.0.0.1 was disconnected: its login is refused: there is no user 'anna'")
        assert (stage.house.counts.refused, len(stage.house.guests)) == (1, 1)

    on_stage(play, metadata, gate=lambda: Authenticator(own))


@pytest.mark.claim("proxy", "principals", "a principal without credentials comes in at no cluster as the proxy itself")
def test_a_principal_without_a_table_is_refused_once_there_is_one(tmp_path: Path) -> None:
    logins = {("carol", "east"): ClusterCredentials("carol", Secret())}
    own = with_users(tmp_path, logins=logins)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await log_in(client, "anna", ANNA) == Code.sasl_authentication_failed
        assert await client.is_hung_up_on()
        await is_told(stage, "principal 'anna' has no table in [proxy.credentials]")

    on_stage(play, nothing, gate=lambda: Authenticator(own))
    for other in (replace(own, credentials_else="own"), replace(own, logins={}), with_users(tmp_path)):
        assert not Authenticator(other).refuses(ClientPrincipal("anna"))
    assert not Authenticator(own).refuses(ClientPrincipal("carol"))


@pytest.mark.claim("proxy", "principals", "a principal without credentials comes in at no cluster as the proxy itself")
def test_a_certificate_without_a_table_is_hung_up_on_once_there_is_one(tmp_path: Path) -> None:
    own = rig(
        tmp_path,
        client_ca_file=str(tmp_path / "ca.pem"),
        logins={("CN=carol", "east"): ClusterCredentials("c", Secret())},
    )
    own = replace(own, asked=replace(own.asked, client_ca_file=str(own.authority.ca_file)))

    async def play(stage: Stage) -> None:
        client = await stage.client(own.client(shows="anna"))
        assert await client.is_hung_up_on()
        await is_told(stage, "principal 'CN=anna' has no table in [proxy.credentials]")

    on_stage(play, nothing, gate=own.gate)


async def log_in(client: Client, user: str, password: str) -> int:
    """The error that it hears; 0 for none."""
    client.ask(
        SASL_HANDSHAKE, 1, 1, encode_message(build_message(get_request_type(SASL_HANDSHAKE, 1), mechanism="PLAIN"))
    )
    assert (await client.hears())[0] == 1
    told = f"\0{user}\0{password}".encode()
    client.ask(
        SASL_AUTHENTICATE, 1, 2, encode_message(build_message(get_request_type(SASL_AUTHENTICATE, 1), auth_bytes=told))
    )
    found: int = by_kio(SASL_AUTHENTICATE, 1, (await client.hears())[1]).error_code
    return found


def test_who_does_not_log_in_is_not_served(tmp_path: Path) -> None:
    own = with_users(tmp_path)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(METADATA, 9, 5, about_topics("orders"))
        assert await client.is_hung_up_on()
        await is_told(stage, "it asked Metadata v9 before it had logged in")
        large = await stage.client()
        large.ask(PRODUCE, 9, 1, [b"x" * LOGIN_REQUEST_BYTES_MAX])
        assert await large.is_hung_up_on()
        await is_told(stage, "it does not keep to the protocol: a frame claims 524")
        quiet = await stage.client()
        while len(stage.house.guests) != 1:
            await asyncio.sleep(0.01)
        for guest in list(stage.house.guests):
            guest.look(stage.house.now_s + auth.LOGIN_TIMEOUT_S + 1)
        assert await quiet.is_hung_up_on()
        await is_told(stage, "it has not logged in within 30 s")

    on_stage(play, nothing, gate=lambda: Authenticator(own))


def test_who_leaves_during_the_pause_leaves_nothing_behind(tmp_path: Path) -> None:
    own = with_users(tmp_path)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(
            SASL_HANDSHAKE,
            1,
            1,
            encode_message(build_message(get_request_type(SASL_HANDSHAKE, 1), mechanism="SCRAM-SHA-512")),
        )
        gone = await stage.client()
        gone.ask(
            SASL_HANDSHAKE,
            1,
            1,
            encode_message(build_message(get_request_type(SASL_HANDSHAKE, 1), mechanism="SCRAM-SHA-512")),
        )
        await asyncio.sleep(0.05)
        gone.writer.transport.abort()
        client.writer.transport.abort()
        (first, _) = stage.house.guests
        first.hang_up("the test says so")
        while stage.house.guests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(auth.LOGIN_FAILURE_DELAY_S)
        assert (stage.house.counts.refused, stage.house.counts.hung_up) == (1, 2)

    on_stage(play, nothing, gate=lambda: Authenticator(own))


def test_logins_without_tls_are_warned_of_where_others_may_listen(tmp_path: Path, log_lines: LogLines) -> None:
    Authenticator(with_users(tmp_path))
    assert log_lines == []
    Authenticator(with_users(tmp_path, address="0.0.0.0"))
    assert len(log_lines) == 1


def test_a_subject_is_written_as_kafka_writes_a_principal() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "Corp, Inc."),), (("commonName", "app+1"),))
    assert format_subject({"subject": subject}) == "CN=app\\+1,O=Corp\\, Inc.,C=DE"
    assert format_subject(None) == format_subject({}) == ""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("node-1.kafka.example", BrokerId("east", 1)),
        ("NODE-6.kafka.example", BrokerId("west", 2)),
        ("kafka.example", None),
        (None, None),
    ],
)
def test_the_name_that_a_client_asks_for_says_which_broker_it_means(
    tmp_path: Path, name: str | None, place: BrokerId | None
) -> None:
    own = rig(tmp_path, node_hosts=NAMES)

    async def play(stage: Stage) -> None:
        stage.house.addressing = replace(stage.house.addressing, node_hosts=NAMES)
        client = await at_name(stage, own, name)
        await is_served(client)
        (guest,) = stage.house.guests
        assert isinstance(guest, ClientConnection)
        assert guest._session.place == place

    on_stage(play, metadata, gate=own.gate, place=None)


def test_a_name_of_no_broker_is_told_in_one_sentence(tmp_path: Path) -> None:
    own = rig(tmp_path, node_hosts=NAMES)

    async def play(stage: Stage) -> None:
        stage.house.addressing = replace(stage.house.addressing, node_hosts=NAMES)
        client = await at_name(stage, own, "node-8.kafka.example")
        assert await client.is_hung_up_on()
        await is_told(stage, "'node-8.kafka.example'")
        assert not stage.house.guests and stage.house.crowd.comes("127.0.0.1") == ""

    on_stage(play, nothing, gate=own.gate, place=None)
