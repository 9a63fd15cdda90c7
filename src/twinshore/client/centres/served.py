"""Twinshore's own centre, as `twinshore push serve` serves it: a request is answered once the push has changed."""

from __future__ import annotations

import re
import ssl
import threading
from pathlib import Path

from twinshore.client.centres.asking import address, ask, is_in_clear
from twinshore.client.centres.pushed import Tag, digest_of, read_tag
from twinshore.fleet import ConfigError
from twinshore.kafka.clock import steady_s

WAIT_S = 25
SLACK_S = 10.0
PAUSE_S = 1.0
BELIEVED_S = 60.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,1024}")


class PushServer:
    """`server`: its address; `app`: the name that the application has there. `token`, or the file that holds it, which
    is read anew for each request; `ca_file`: which authorities are trusted, the system's where none is given.
    `insecure_http`: what an http:// address beyond this machine answers is believed in whole."""

    def __init__(
        self,
        server: str,
        app: str,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        insecure_http: bool = False,
    ) -> None:
        if bool(token) == bool(token_file):
            raise ConfigError("a push server is asked with either token or token_file")
        self._server = address(server, "the push server's")
        self._url = f"{self._server}/v1/apps/{app}/push?wait_s={WAIT_S}"
        self._given, self._token_file = token, Path(token_file) if token_file else None
        self._trust = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
        self.in_clear = is_in_clear(server) and not insecure_http
        self.name = f"push server {self._server}, {app}"
        if token:
            _checked(token)
        self._seen: Tag | None = None
        self._seen_s = 0.0  # when a server last knew of it

    def news(self, stop: threading.Event) -> str | None:
        token = self._given if self._token_file is None else self._token_file.read_text(encoding="utf-8")
        headers = {"Authorization": f"Bearer {_checked(token)}"}
        if self._seen:
            headers["If-None-Match"] = str(self._seen)
        found = ask(self._url, headers, WAIT_S + SLACK_S, self._trust)
        if found is None or stop.is_set():
            self._seen_s = steady_s()
            return None
        text, tag = _whole(*found)
        if tag == self._seen or self._is_behind(tag):
            stop.wait(PAUSE_S)
            return None
        self._seen, self._seen_s = tag, steady_s()
        return text

    def _is_behind(self, tag: Tag) -> bool:
        """One of several servers may be, for a while. A store that was put back to an older state stays so."""
        older = self._seen is not None and tag.revision < self._seen.revision
        return older and steady_s() < self._seen_s + BELIEVED_S


def _whole(body: bytes, header: str) -> tuple[str, Tag]:
    tag = read_tag(header)
    if tag is None:
        raise ConfigError("it answers without a tag, as no push server does")
    text = body.decode("utf-8", "replace")
    if digest_of(text) != tag.digest:
        raise ConfigError("its answer is cut off")
    return text, tag


def _checked(token: str) -> str:
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError("the token is none: one line of letters, digits and . _ ~ + / = -")
    return token
