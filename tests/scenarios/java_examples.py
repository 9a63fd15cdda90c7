"""The examples of the client for Java, each a process whose words are read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from testkit.jars import compile_java
from tests.scenarios.test_following_writers import until
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import fetch_kafka_classpath, find_java

SOURCES = Path(__file__).resolve().parents[2] / "clients" / "java" / "src" / "main" / "java"
RECORDS_S = 500


class Acked(NamedTuple):
    partition: int
    offset: int
    key: str
    value: str


class ReadThere(NamedTuple):
    """`text`: the key and the number."""

    cluster: str
    partition: int
    offset: int
    text: str


class Example:
    """It says its last word when its input has a line."""

    def __init__(self, folder: Path, name: str, classpath: str, *words: str) -> None:
        self._said = folder / f"{name}.said"
        command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", classpath, f"io.twinshore.client.{name}", *words]
        with self._said.open("wb") as said, (folder / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=log)

    def lines(self) -> list[str]:
        """Those that it has written to their end."""
        return self._said.read_text().split("\n")[:-1]

    def count(self, word: str) -> int:
        return sum(line.startswith(word + " ") for line in self.lines())

    def end(self, word: str) -> str:
        """Its last line, which begins so."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        until(lambda: self.lines()[-1].startswith(word), 90, "it ends")
        assert self._process.wait(60) == 0
        return self.lines()[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


class Load(Example):
    """Writes numbers, each under one of seven keys."""

    def acked(self) -> list[Acked]:
        words = [line.split(" ", 4)[1:] for line in self.lines() if line.startswith("acked ")]
        return [Acked(int(partition), int(offset), key, value) for partition, offset, key, value in words]


class Read(Example):
    """A member of the group that is called as its first topic."""

    def read(self) -> list[ReadThere]:
        words = [line.split(" ", 4)[1:] for line in self.lines() if line.startswith("read ")]
        return [ReadThere(cluster, int(partition), int(offset), text) for cluster, partition, offset, text in words]

    def moves(self) -> list[str]:
        return [line.removeprefix("moved ") for line in self.lines() if line.startswith("moved ")]


class Examples:
    def __init__(self, folder: Path, classpath: str, east: LabCluster, west: LabCluster) -> None:
        self._folder, self._classpath, self._stack = folder, classpath, ExitStack()
        self._servers = [",".join(lab.cluster.bootstrap) for lab in (east, west)]

    def __enter__(self) -> Examples:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load(self, topic: str, *words: str) -> Load:
        made = Load(self._folder, "Load", self._classpath, topic, *self._servers, str(RECORDS_S), *words)
        self._stack.callback(made.kill)
        return made

    def read(self, *topics: str) -> Read:
        made = Read(self._folder, "Read", self._classpath, ",".join(topics), topics[0], *self._servers)
        self._stack.callback(made.kill)
        return made


@pytest.fixture(scope="module")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_java(SOURCES, fetch_kafka_classpath(), tmp_path_factory.mktemp("classes"))


@pytest.fixture
def examples(java_classes: str, tmp_path: Path, east: LabCluster, west: LabCluster) -> Iterator[Examples]:
    with Examples(tmp_path, java_classes, east, west) as found:
        yield found
