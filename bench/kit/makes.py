"""Clients of several makes and versions: where each comes from, and one step after another of `bench.clients` in a
process of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.clients.client import NO, Job
from bench.kit.programs import program
from testkit.jars import fetch_python_packages
from twinshore.lab.jars import ONE_COMPILER_FLAG, MavenModule, fetch_jars, find_ivy_jar, find_java

ROOT = Path(__file__).resolve().parents[2]
STEP_S = 150.0
_LOGGING = MavenModule("org.slf4j", "slf4j-simple", "1.7.36")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step, and what was said of it."""

    step: str
    outcome: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Make:
    """A client in one version. `wheel` is its package; `tool` builds its program; without either it is Java's.
    `newer_groups`: the library knows groups that brokers deal out partitions to. `moved`: it is tried where topics and
    groups move, as the newest versions are."""

    name: str
    module: str
    version: str
    wheel: str = ""
    newer_groups: bool = True
    tool: str = ""
    moved: bool = True

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


MAKES = (
    *(Make("Java", "with_java", one, moved=False) for one in ("2.1.1", "2.4.1", "2.8.2", "3.3.2", "3.7.2")),
    Make("Java", "with_java", "4.3.1"),
    Make("confluent-kafka", "with_confluent", "2.0.2", "confluent-kafka", newer_groups=False, moved=False),
    Make("confluent-kafka", "with_confluent", "2.6.1", "confluent-kafka", moved=False),
    Make("confluent-kafka", "with_confluent", "2.16.1", "confluent-kafka"),
    Make("aiokafka", "with_aiokafka", "0.14.0", "aiokafka"),
    *(Make("kafka-python", "with_kafka_python", one, "kafka-python") for one in ("2.0.6", "2.3.3", "3.0.12")),
    Make("franz-go", "with_program", "1.22.3", tool="go"),
    Make("sarama", "with_program", "1.61.1", tool="go"),
    Make("kafka-go", "with_program", "0.4.51", tool="go"),
    Make("kafkajs", "with_program", "2.2.4", tool="node"),
    Make("rskafka", "with_program", "0.6.0", tool="cargo"),
)


def tried(make: Make, job: Job) -> Iterator[Outcome]:
    """Each step of the job as it is over. One that takes too long has failed, and its process is ended."""
    left = list(job.steps)
    with _ready(make) as (command, path, own):
        while left:
            last_words: list[str] = []
            for found in _until_silent(command, path, own, replace(job, steps=tuple(left)), last_words):
                left.remove(found.step)
                yield found
            if left:
                yield Outcome(left.pop(0), NO, last_words[-1] if last_words else "it does not end")


@contextmanager
def _ready(make: Make) -> Iterator[tuple[list[str], list[str], dict[str, Any]]]:
    """The command that drives it, what its Python finds, and what it is told of itself."""
    module = f"bench.clients.{make.module}"
    own: dict[str, Any] = {"version": make.version, "newer_groups": make.newer_groups}
    if make.tool:
        yield [sys.executable, "-m", module], [str(ROOT)], {**own, "command": program(make.tool, make.name)}
        return
    if make.wheel:
        # Without the site's packages: of a make that the product uses too it is the wheel that counts.
        path = [str(ROOT), str(fetch_python_packages(f"{make.wheel}=={make.version}"))]
        yield [sys.executable, "-s", "-S", "-m", module], path, own
        return
    with java_bridge(make.version) as port:
        yield [sys.executable, "-m", module], [str(ROOT)], {**own, "port": port}


@contextmanager
def java_bridge(version: str) -> Iterator[int]:
    """The port of a virtual machine that has Java's clients of this version and does as it is told."""
    clients = fetch_jars(f"Java's clients {version}", MavenModule("org.apache.kafka", "kafka-clients", version))
    (bridge,) = find_ivy_jar().parent.glob("py4j-*.jar")
    jars = [bridge, *clients.glob("*.jar"), *fetch_jars("a logger", _LOGGING).glob("slf4j-simple-*.jar")]
    command = [find_java(), ONE_COMPILER_FLAG, "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command += ["-cp", os.pathsep.join(map(str, jars)), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _until_silent(
    command: Sequence[str], path: Sequence[str], own: dict[str, Any], job: Job, last_words: list[str]
) -> Iterator[Outcome]:
    """Until its process ends or is silent for too long: longer where something moves. `last_words` get what one that
    ended said of an error."""
    step_s = STEP_S * (1 + 2 * len(job.moves))
    told = json.dumps({"job": asdict(job), "own": own})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen([*command, told], stdout=subprocess.PIPE, stderr=log, env=environment) as child,
    ):
        assert child.stdout is not None
        try:
            text = b""
            until_s = time.monotonic() + step_s
            while select.select([child.stdout], [], [], max(0.0, until_s - time.monotonic()))[0]:
                if not (got := os.read(child.stdout.fileno(), 65_536)):
                    log.seek(0)
                    last_words += log.read().decode(errors="replace").splitlines()[-1:]
                    break
                *lines, text = (text + got).split(b"\n")
                for line in lines:
                    yield Outcome(**json.loads(line))
                    until_s = time.monotonic() + step_s
        finally:
            child.kill()
