"""A server of pushes as a process of its own, by the command, and requests to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import twinshore


class PushProcess:
    """`twinshore push`, with settings in a folder of its own."""

    def __init__(self, folder: Path, store: str, *, port: int = 0, more: str = "") -> None:
        self.settings = folder / "push.toml"
        self._text = f'[store]\nurl = "{store}"\n[push]\n{more}'
        self._log = folder / "serve.log"
        self._child: subprocess.Popen[bytes] | None = None
        self.port = port

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a verb says."""
        self._write()
        command = [*self._words(words[0]), *words[1:], "--settings", str(self.settings)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self._env())

    def start(self) -> None:
        self._write()
        with self._log.open("wb") as log:
            command = [*self._words("serve"), "--settings", str(self.settings)]
            self._child = subprocess.Popen(command, stdout=log, stderr=log, env=self._env())
        until_s = time.monotonic() + 60
        while not (found := re.search(r"at (https?)://[^ ]*:(\d+)", self.said())):
            assert time.monotonic() < until_s, self.said()
            assert self._child.poll() is None, self.said()
            time.sleep(0.05)
        self.scheme, self.port = found[1], int(found[2])

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def said(self) -> str:
        return self._log.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self._child is not None
        self._child.send_signal(number)
        code = self._child.wait(30)
        self._child = None
        return code

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(30)

    def _write(self) -> None:
        self.settings.write_text(f"{self._text}port = {self.port}\n")

    def _words(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "twinshore.cli", "push", verb]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(twinshore.__path__[0]).parent)}


def request(
    url: str, token: str = "", *, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Code, body and tag."""
    given = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
    asked = urllib.request.Request(url, data=body, method=method, headers=given)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read().decode(), answer.headers.get("ETag", "")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("ETag", "")
