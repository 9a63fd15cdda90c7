"""Twinshore's own centre, as `twinshore push serve` serves it: a request is answered once the push has changed."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from twinshore.client.centres.asking import address, ask
from twinshore.fleet import ConfigError

WAIT_S = 25
SLACK_S = 10.0


class PushServer:
    """`server`: its address; `app`: the name that the application has there. `token`, or the file that holds it, which
    is read anew for each request; `ca_file`: which authorities are trusted, the system's where none is given."""

    def __init__(
        self,
        server: str,
        app: str,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
    ) -> None:
        if bool(token) == bool(token_file):
            raise ConfigError("a push server is asked with either token or token_file")
        self._server = address(server, "the push server's")
        self._url = f"{self._server}/v1/apps/{app}/push?wait_s={WAIT_S}"
        self._token = _read(Path(token_file)) if token_file else lambda: token
        self._trust = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
        self.name = f"push server {self._server}, {app}"
        self._tag = ""

    def news(self, stop: threading.Event) -> str | None:
        headers = {"Authorization": f"Bearer {self._token()}"}
        if self._tag:
            headers["If-None-Match"] = self._tag
        found = ask(self._url, headers, WAIT_S + SLACK_S, self._trust)
        if found is None or stop.is_set():
            return None
        body, self._tag = found
        return body.decode()


def _read(file: Path) -> Callable[[], str]:
    return lambda: file.read_text(encoding="utf-8").strip()
