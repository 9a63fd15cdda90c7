"""Identity providers: real ones as processes, and one in this process that lies as it is told."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from testkit.console import Answer, Browser
from twinshore.config.sections.serve import OidcSettings
from twinshore.lab.ports import free_port

CLIENT, SECRET = "twinshore", "the secret of the client"
START_S_MAX = 30.0
DEX = """
issuer: {issuer}
storage: {{type: memory}}
web: {{http: "127.0.0.1:{port}"}}
oauth2: {{skipApprovalScreen: true}}
connectors: [{{type: mockCallback, id: mock, name: Mock}}]
staticClients: [{{id: {client}, name: Twinshore, secret: "{secret}", redirectURIs: ["{callback}"]}}]
"""


@dataclass(frozen=True, slots=True)
class RealProvider:
    """`log_in` is what a person does there. `group`: of that person."""

    issuer: str
    group: str
    scopes: tuple[str, ...]
    log_in: Callable[[Browser, Answer], Answer]


def settings_for(issuer: str, port: int, secret_file: Path, **more: Any) -> OidcSettings:
    secret_file.write_text(SECRET, encoding="utf-8")
    given = {"issuer": issuer, "client_id": CLIENT, "client_secret_file": str(secret_file), "name": "the company"}
    return OidcSettings(**{**given, "public_url": f"http://127.0.0.1:{port}", **more})


@contextmanager
def mock_provider(_folder: Path, _callback: str) -> Iterator[RealProvider]:
    port = free_port()
    claims = {"sub": "1234", "preferred_username": "grace", "groups": ["platform-team"]}
    words = ["-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
    issuer = f"http://127.0.0.1:{port}"

    def log_in(browser: Browser, page: Answer) -> Answer:
        place = Browser(page.url, browser.jar)
        return place.send("POST", "", b"sub=1234")

    with _running([sys.executable, "-W", "ignore", *words, "--user-claims", json.dumps(claims)], issuer):
        yield RealProvider(issuer, "platform-team", ("openid", "profile"), log_in)


@contextmanager
def dex_provider(folder: Path, callback: str) -> Iterator[RealProvider]:
    port = free_port()
    issuer, file = f"http://127.0.0.1:{port}/dex", folder / "dex.yaml"
    text = DEX.format(issuer=issuer, port=port, client=CLIENT, secret=SECRET, callback=callback)
    file.write_text(text, encoding="utf-8")
    with _running(["dex", "serve", str(file)], issuer):
        scopes = ("openid", "profile", "email", "groups")
        yield RealProvider(issuer, "authors", scopes, lambda _browser, page: page)


# Dex is a program of its own: tests use it where it is installed.
REAL_PROVIDERS = {"mock": mock_provider} | ({"dex": dex_provider} if shutil.which("dex") else {})


@contextmanager
def _running(command: list[str], issuer: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + START_S_MAX
        while True:
            try:
                urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < until_s and process.poll() is None
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def part(value: object) -> str:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


@dataclass(slots=True)
class SmallProvider:
    """Logs its person in at once. `claims` replace what it says; `token` makes the whole token of the claims."""

    issuer: str
    groups: list[str] = field(default_factory=list)
    subject: str = "1234"
    claims: Mapping[str, Any] = field(default_factory=dict)
    token: Callable[[dict[str, Any]], str] | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    key: RSAKey | ECKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    asked: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def sign(self, claims: dict[str, Any]) -> str:
        algorithm = "RS256" if isinstance(self.key, RSAKey) else "ES256"
        return jwt.encode({"alg": algorithm, "kid": self.key.kid}, claims, self.key, [algorithm])

    def authorize(self, query: Mapping[str, str]) -> str:
        """Returns where the browser is sent back."""
        assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
        code = secrets.token_hex(8)
        self.asked[code] = query
        return f"{query['redirect_uri']}?{urllib.parse.urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: Mapping[str, str], login: str) -> Mapping[str, Any]:
        """Takes a code as often as it comes: that a login is used once is not left to it."""
        query = self.asked[form["code"]]
        assert part(hashlib.sha256(form["code_verifier"].encode()).digest()) == query["code_challenge"]
        assert form["redirect_uri"] == query["redirect_uri"]
        name, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        assert (name, urllib.parse.unquote(secret)) == (CLIENT, SECRET)
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": CLIENT,
            "exp": now_s + 300,
            "iat": now_s,
            "nonce": query["nonce"],
            "preferred_username": "grace",
            "groups": self.groups,
        }
        said = {name: value for name, value in {**claims, **self.claims}.items() if value is not None}
        return {"access_token": "a", "token_type": "Bearer", "id_token": (self.token or self.sign)(said)}

    def answer(self, path: str) -> Mapping[str, Any]:
        if path.endswith("/.well-known/openid-configuration"):
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            return {
                "issuer": self.issuer,
                **{name: f"{self.issuer}/{end}" for name, end in ends.items()},
                **self.document,
            }
        assert path == "/keys"
        return {"keys": [{**self.key.as_dict(private=False), "use": "sig"}]}


@contextmanager
def small_provider() -> Iterator[SmallProvider]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(dict(urllib.parse.parse_qsl(query))))
                self.end_headers()
                return
            self.reply(provider.answer(path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply(provider.exchange(dict(urllib.parse.parse_qsl(body)), self.headers["Authorization"]))

        def reply(self, value: Mapping[str, Any]) -> None:
            self.send_response(provider.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = SmallProvider(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
