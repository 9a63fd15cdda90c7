"""The way to a broker, played by one of the test's own: TLS, a login, and a login that ends while requests go on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from testkit.certificates import CertificateAuthority
from testkit.errors import mentions
from tests.proxy.stage import Stage, about_topics, nothing, on_stage, records
from tests.proxy.test_gate import is_served, is_told, metadata
from twinshore.config.model import Cluster, SaslMechanism, Secret, Security
from twinshore.config.sections.proxy import ClusterCredentials, ProxySettings
from twinshore.kafka.protocol.apis import METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.auth import Authenticator
from twinshore.proxy.core.login import ClientPrincipal
from twinshore.proxy.core.message_codec import (
    build_message,
    decode_request,
    encode_message,
    get_response_type,
    to_error_code,
)
from twinshore.proxy.core.model import Parts

LIFE_S = 0.4


def east(folder: Path, **more: Any) -> Cluster:
    (folder / "password").write_text("sesame")
    own = {"sasl": SaslMechanism.PLAIN, "username": "own", "password": Secret(file=str(folder / "password"))}
    return Cluster("east", ("127.0.0.1:1",), Security(**{**own, **more}))


def server(folder: Path) -> ssl.SSLContext:
    pair = CertificateAuthority(folder, "brokers").issue("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


def before(*clusters: Cluster, **asked: Any) -> Callable[[], Authenticator]:
    return lambda: Authenticator(ProxySettings(**asked), clusters)


class Broker:
    """Lets in whoever says `sesame`, for a while; it is slow to answer about topics."""

    def __init__(self, *, slow_s: float = 0.0) -> None:
        self.slow_s, self.password, self.logins = slow_s, "sesame", list[str]()

    async def answers(self, request: Request) -> Parts | None:
        kind = get_response_type(request.key, request.version)
        if request.key == SASL_HANDSHAKE:
            return encode_message(build_message(kind, mechanisms=("PLAIN",)))
        if request.key == SASL_AUTHENTICATE:
            _, user, password = bytes(decode_request(request).auth_bytes).decode().split("\0")
            self.logins.append(user)
            code = Code.none if password == self.password else Code.sasl_authentication_failed
            return encode_message(
                build_message(kind, error_code=to_error_code(code), session_lifetime=timedelta(seconds=LIFE_S))
            )
        await asyncio.sleep(self.slow_s)
        found: Parts = await metadata(request)
        return found


def test_before_the_first_request_is_tls_and_a_login(tmp_path: Path) -> None:
    broker = Broker()

    async def play(stage: Stage) -> None:
        await is_served(await stage.client())
        assert [request.key for request in stage.heard] == [SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]
        assert broker.logins == ["own"]

    context = server(tmp_path)
    cluster = east(tmp_path, tls=True, ca_file=str(tmp_path / "ca.pem"))
    on_stage(play, broker.answers, gate=before(cluster), tls=context)


def test_a_login_that_ends_is_made_anew_between_requests(tmp_path: Path) -> None:
    broker = Broker(slow_s=0.03)

    async def play(stage: Stage) -> None:
        client = await stage.client()
        until_s = asyncio.get_running_loop().time() + 4 * LIFE_S
        number = 0
        while asyncio.get_running_loop().time() < until_s:
            for _ in range(3):  # one of them is always under way
                number += 1
                client.ask(METADATA, 9, number, about_topics("orders"))
            for told in range(number - 2, number + 1):
                assert (await client.hears())[0] == told
        assert len(stage.lines) == 1, "one connection did all"
        assert len(broker.logins) >= 4
        keys = [request.key for request in stage.heard]
        after = {keys[index + 1] for index, key in enumerate(keys) if key == SASL_HANDSHAKE}
        assert after == {SASL_AUTHENTICATE}, "nothing is asked in the middle of a login"

    on_stage(play, broker.answers, gate=before(east(tmp_path)))


def test_a_login_that_is_refused_the_next_time_ends_the_connection_to_the_broker_alone(tmp_path: Path) -> None:
    broker = Broker()

    async def play(stage: Stage) -> None:
        client = await stage.client()
        await is_served(client)
        broker.password = "changed"
        while not stage.house.counts.brokers_lost:
            await asyncio.sleep(0.01)
        broker.password = "sesame"
        await is_served(client)
        broker.password = "changed"
        while stage.house.counts.brokers_lost == 1:
            await asyncio.sleep(0.01)
        told = "a client is not let in by its broker: it could not log in again: east 127.0.0.1:"
        assert all(line.startswith(told) for line in stage.said)
        assert mentions(stage.said[0], "PLAIN", "own")
        client.ask(PRODUCE, 9, 6, records("orders"))
        assert await client.is_hung_up_on()
        await is_told(stage, "a client at 127.0.0.1 was disconnected: its broker 1 of east is gone: east 127.0.0.1:")

    on_stage(play, broker.answers, gate=before(east(tmp_path)))


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ({"tls": True}, "its certificate is not accepted: "),
        ({"sasl": None, "username": "", "password": Secret()}, "the broker closed the connection"),
    ],
)
def test_why_a_broker_of_tls_is_not_reached_is_said(tmp_path: Path, cluster: dict[str, Any], says: str) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(PRODUCE, 9, 6, records("orders"))
        assert await client.is_hung_up_on()
        await is_told(stage, "its broker 1 of east is gone: ")
        await is_told(stage, says)

    on_stage(play, nothing, gate=before(east(tmp_path, **cluster)), tls=server(tmp_path))


def test_a_broker_that_speaks_no_tls_is_said(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.ask(METADATA, 9, 6, about_topics("orders"))
        while not stage.lines:
            await asyncio.sleep(0.01)
        stage.lines[0].transport.abort()
        await is_told(stage, "a client is not let in by its broker: east 127.0.0.1:")
        assert "it closed the connection" in stage.said[0]

    on_stage(play, nothing, gate=before(east(tmp_path, tls=True)))


def test_as_whom_a_client_is_led_on(tmp_path: Path) -> None:
    clusters = east(tmp_path), Cluster("west", ("127.0.0.1:1",)), Cluster("south", (), east(tmp_path).security)
    theirs = ClusterCredentials("app", Secret(file="elsewhere"))
    gate = Authenticator(ProxySettings(logins={("CN=app", "east"): theirs}), clusters)
    access = gate.access("east", ClientPrincipal("CN=app"))
    assert (access.cluster.security.username, access.cluster.security.password) == ("app", Secret(file="elsewhere"))
    for cluster, who in (
        ("east", ClientPrincipal("eve")),
        ("east", ClientPrincipal()),
        ("south", ClientPrincipal("CN=app")),
    ):
        assert gate.access(cluster, who).cluster.security == clusters[0].security
    assert gate.access("west", ClientPrincipal("CN=app")).cluster == clusters[1]
    same = Authenticator(ProxySettings(sasl=("PLAIN",), credentials="same"), clusters).access(
        "east", ClientPrincipal("anna", "hers")
    )
    assert (same.cluster.security.username, same.given) == ("anna", "hers")
    assert "hers" not in repr(same)
