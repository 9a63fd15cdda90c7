"""A platform's web process in this process's threads, and a browser without scripts: cookies, forms, redirects."""

from __future__ import annotations

import http.cookiejar
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import uvicorn

from twinshore.config.sections.serve import ServeSettings
from twinshore.server.accounts import Accounts
from twinshore.server.serve import listen
from twinshore.server.web import Console
from twinshore.state.store import Store
from twinshore.switch.pushes import SignalFreeServer

PASSWORD = "correct horse 9 staple"
START_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str
    url: str
    headers: Mapping[str, str]

    @property
    def lead(self) -> str:
        found = re.search(r'class="lead[^"]*">(.*?)</p>', self.body, re.S)
        return unescape(re.sub(r"<[^>]+>", "", found[1])) if found else ""

    @property
    def text(self) -> str:
        return unescape(re.sub(r"<[^>]+>", " ", self.body))

    @property
    def fault(self) -> str:
        found = re.search(r'class="error"[^>]*>(.*?)</p>', self.body, re.S)
        return unescape(found[1]) if found else ""

    def field(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.body)
        assert found, f"no field {name} at {self.url}: {self.text[:500]}"
        return unescape(found[1])

    def json(self) -> Any:
        return json.loads(self.body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class Browser:
    """`base`: the platform's address."""

    base: str
    jar: http.cookiejar.CookieJar = field(default_factory=http.cookiejar.CookieJar)
    token: str = ""

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
    ) -> Answer:
        handlers: list[Any] = [urllib.request.HTTPCookieProcessor(self.jar)]
        opener = urllib.request.build_opener(*handlers, *([] if follow else [_NoRedirects()]))
        request = urllib.request.Request(self.base + path, body, dict(headers or {}), method=method)
        try:
            with opener.open(request, timeout=30) as answer:
                return Answer(answer.status, answer.read().decode(), answer.url, dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), path, dict(error.headers))

    def get(self, path: str, headers: Mapping[str, str] | None = None, *, follow: bool = True) -> Answer:
        return self.send("GET", path, None, headers, follow=follow)

    def post(self, path: str, headers: Mapping[str, str] | None = None, **fields: str | list[str]) -> Answer:
        return self.send("POST", path, urllib.parse.urlencode(fields, doseq=True).encode(), headers)

    def submit(self, page: str, path: str, **fields: str | list[str]) -> Answer:
        """Sends a form of a page, with the page's token."""
        return self.post(path, None, csrf=self.get(page).field("csrf"), **fields)

    def log_in(self, name: str, password: str = PASSWORD) -> Answer:
        return self.post("/login", name=name, password=password)

    def api(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token}", **headers} if self.token else headers
        return self.send(method, f"/api/v1{path}", data, sent)

    def job(self, path: str, *states: str, within_s: float = 60.0) -> Answer:
        """The page of a job once it is in one of these states."""
        until_s = time.monotonic() + within_s
        while True:
            found = self.get(path)
            if any(found.lead.startswith(f"{state} ") for state in states):
                return found
            assert time.monotonic() < until_s, f"never {states}: {found.text[-2000:]}"
            time.sleep(0.1)


@contextmanager
def web_process(store: Store, **settings: Any) -> Iterator[str]:
    """Serves the console of a store. Yields its address."""
    serving = ServeSettings(**{"port": 0, **settings})
    with listen(serving) as door:
        app = Console(store, serving).app
        config = uvicorn.Config(app, lifespan="off", log_level="error", proxy_headers=False, server_header=False)
        server = SignalFreeServer(config)
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        until_s = time.monotonic() + START_S_MAX
        while not server.started:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(START_S_MAX)


def first_admin(store: Store, base: str, name: str = "ada") -> Browser:
    """A browser in which the first admin is logged in."""
    browser, secret = Browser(base), Accounts(store).first_admin_secret()
    assert secret
    answer = browser.post("/first-admin", secret=secret, name=name, password=PASSWORD)
    assert answer.status == 200, answer.text
    return browser


def person(admin: Browser, name: str, role: str) -> Browser:
    """A browser of a new person, with a token of the person's own."""
    answer = admin.submit("/people", "/people/add", name=name, password=PASSWORD, role=role)
    assert answer.status == 200, answer.fault
    browser = Browser(admin.base)
    assert browser.log_in(name).status == 200
    made = browser.submit("/account", "/account/add-token", name="test", role=role, days="1")
    found = re.search(r'class="fresh"[^>]*>.*?<code[^>]*>([^<]+)</code>', made.body)
    assert found, made.text
    browser.token = found[1]
    return browser
