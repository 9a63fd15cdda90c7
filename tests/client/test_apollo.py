"""Apollo's long poll, judged by Apollo's own server for tests."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.jars import compile_java
from twinshore.client.discovery.http import Apollo
from twinshore.config.errors import ConfigError
from twinshore.lab.jars import MavenModule, fetch_jars, find_java

SOURCE = Path(__file__).with_name("apollo") / "Pushing.java"
MODULE = MavenModule("com.ctrip.framework.apollo", "apollo-mockserver", "2.4.0")
NAMESPACE, KEY = "application", "twinshore.clients"


class Server:
    """The process; it ends when its standard input does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._told().removeprefix("at ")

    def push(self, text: str, key: str = KEY) -> None:
        assert self._process.stdin is not None
        coded = base64.b64encode(text.encode()).decode()
        self._process.stdin.write(f"{NAMESPACE} {key} {coded}\n")
        self._process.stdin.flush()
        assert self._told() == "set"

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def apollo(folder: Path) -> Iterator[Server]:
    (folder / f"mockdata-{NAMESPACE}.properties").write_text("someone.elses=value\n")
    jars = fetch_jars("Apollo's server for tests", MODULE)
    classpath = compile_java(SOURCE, ":".join(map(str, sorted(jars.glob("*.jar")))), folder)
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", classpath, "Pushing"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:  # which closes its standard input, and waits for its end
        yield Server(process)


def heard(source: Apollo, wanted: str) -> bool:
    """Whether the source hands it out; it may hand out the text before once more."""
    return any(source.news(threading.Event()) == wanted for _ in range(5))


@pytest.mark.claim(
    "client", "apollo", "a push is heard of by Apollo's long poll, judged by Apollo's own server for tests"
)
@pytest.mark.long
def test_a_push_is_heard_of_by_the_long_poll(tmp_path: Path) -> None:
    with apollo(tmp_path) as server:
        source = Apollo(server.address, "someAppId", cluster="someCluster")
        with raises(ConfigError, "client.apollo-key-missing", key=KEY):
            source.news(threading.Event())
        for text in ('{"home": "east"}', '{"home": "west", "of": "caf\N{LATIN SMALL LETTER E WITH ACUTE}"}'):
            server.push(text)
            assert heard(source, text)
        server.push("another's", key="another")
        assert heard(source, text), "the namespace has changed, this key has not"
        signed = Apollo(server.address, "someAppId", cluster="someCluster", access_key="hidden")
        assert signed.news(threading.Event()) == text
        assert "hidden" not in f"{signed.name} {signed._signed('/x')}"
    with pytest.raises(OSError, match="refused"):
        source.news(threading.Event())


def test_an_address_that_is_none_is_told() -> None:
    with raises(ConfigError, "client.url-invalid"):
        Apollo("file:///etc/passwd", "app")
