"""Bearer tokens from a file, from an endpoint, and from our own hand."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import raises
from tests.kafka.peers import Talk, peer
from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import SaslMechanism, Secret, Security
from twinshore.kafka.oauth import Token, fetch_token

Endpoint = Callable[..., "tuple[str, list[Any]]"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Starts a token endpoint with a fixed answer; gives its address and the list of requests it got."""
    servers: list[tuple[HTTPServer, threading.Thread]] = []

    def start(status: int, answer: bytes, headers: dict[str, str] | None = None) -> tuple[str, list[Any]]:
        seen: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                seen.append((urllib.parse.parse_qs(form), self.headers["Authorization"]))
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests stay quiet."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/token", seen

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def bearer(**fields: Any) -> Security:
    return Security(sasl=SaslMechanism.OAUTHBEARER, **fields)


def jwt(claims: dict[str, object]) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def test_client_credentials_buy_a_token(endpoint: Endpoint, tmp_path: Path) -> None:
    url, seen = endpoint(200, json.dumps({"access_token": jwt({"exp": 12345}), "expires_in": 300}).encode())
    secret = tmp_path / "secret"
    secret.write_text("first secret\n")
    security = bearer(username="app:1", password=Secret(file=str(secret)), token_url=url, token_scope="kafka")
    token = fetch_token(security, timeout_s=5)
    assert (token.text, token.expires_s) == (jwt({"exp": 12345}), 12345.0)
    secret.write_text("second")
    fetch_token(security, timeout_s=5)
    forms = [form for form, _ in seen]
    assert forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}] * 2
    names = [base64.b64decode(header.removeprefix("Basic ")).decode() for _, header in seen]
    assert names == ["app%3A1:first%20secret", "app%3A1:second"]


@pytest.mark.parametrize(
    ("status", "answer", "complaint", "retriable"),
    [
        (401, b"{}", "answered 401", False),
        (503, b"", "answered 503", True),
        (408, b"", "answered 408", True),
        (429, b"", "answered 429", True),
        (200, b"not json", "no token", True),
        (200, b"[1]", "no access_token", False),
        (200, b'{"access_token": 5}', "no access_token", False),
    ],
)
def test_an_endpoint_that_gives_none_is_named(
    endpoint: Endpoint, status: int, answer: bytes, complaint: str, retriable: bool
) -> None:
    url, _ = endpoint(status, answer)
    with pytest.raises(KafkaError, match=complaint) as caught:
        fetch_token(bearer(username="a", token_url=url), timeout_s=5)
    assert url in str(caught.value)
    assert caught.value.retriable == retriable


def test_a_secret_is_never_sent_on_to_where_an_endpoint_points(endpoint: Endpoint) -> None:
    elsewhere, seen_elsewhere = endpoint(200, b'{"access_token": "stolen"}')
    url, seen = endpoint(302, b"", {"Location": elsewhere})
    with pytest.raises(KafkaError, match=f"answered 302 and points to {elsewhere}") as caught:
        fetch_token(bearer(username="a", token_url=url), timeout_s=5)
    assert (len(seen), len(seen_elsewhere)) == (1, 0)
    assert url in str(caught.value)
    assert not caught.value.retriable


def said(*parts: bytes, pause_s: float = 0.0) -> Talk:
    """Answers any request with these bytes, and hangs up."""

    def talk(connection: socket.socket) -> None:
        request = b""
        while b"client_credentials" not in request:
            request += connection.recv(1 << 16)
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)

    return talk


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{", "not whole HTTP"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{"access_token": "cut"}', "not whole HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not whole HTTP"),
        (b"", "no token"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "nested too deep"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "\\ud800"}', "holds no access_token"),
    ],
)
def test_what_is_no_answer_is_told(answer: bytes, complaint: str) -> None:
    with peer(said(answer)) as (host, port), pytest.raises(KafkaError, match=complaint) as caught:
        fetch_token(bearer(username="a", token_url=f"http://{host}:{port}/"), timeout_s=5)
    assert str(caught.value).startswith(f"http://{host}:{port}/: ")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["in-headers", "in-body"])
def test_an_endpoint_that_trickles_does_not_put_the_deadline_off(head: bytes) -> None:
    with peer(said(head, *[b"x"] * 60, pause_s=0.05)) as (host, port):
        started = time.monotonic()
        with pytest.raises(KafkaError, match="in time") as caught:
            fetch_token(bearer(username="a", token_url=f"http://{host}:{port}/"), timeout_s=0.3)
        assert time.monotonic() - started < 1.5
        assert caught.value.retriable


def test_a_token_is_not_shown_by_mistake() -> None:
    assert "secret" not in repr(Token("secret", 5.0))


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"
    security = bearer(token_file=str(path))
    with raises(ConfigError, "kafka.unreadable-token-file"):
        fetch_token(security, timeout_s=1)
    path.write_text("")
    with raises(ConfigError, "kafka.unreadable-token-file", cause="it is empty"):
        fetch_token(security, timeout_s=1)
    for text in ("opaque", jwt({"exp": 99.5}), "a.b.c"):
        path.write_text(text + "\n")
        assert fetch_token(security, timeout_s=1).text == text
    path.write_text(jwt({"exp": 99.5}))
    assert fetch_token(security, timeout_s=1).expires_s == 99.5


def test_only_web_addresses_are_asked(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text('{"access_token": "stolen"}')
    with raises(ConfigError, "kafka.invalid-token-url"):
        fetch_token(bearer(token_url=secret.as_uri()), timeout_s=1)


def test_an_unsecured_token_names_its_user() -> None:
    token = fetch_token(bearer(username="lab"), timeout_s=1)
    header, claims, signature = token.text.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "lab"
    assert signature == ""
    assert token.expires_s > time.time()
