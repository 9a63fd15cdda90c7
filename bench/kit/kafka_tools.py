"""Kafka's own command-line tools before clients' address: what each is tried for, and what came of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from bench.clients.client import NO, RECORDS, YES, Job
from bench.kit.makes import Outcome
from testkit.jars import fetch_tools_classpath
from twinshore.lab.jars import ONE_COMPILER_FLAG, find_java

_TOOLS = "org.apache.kafka.tools"
_CLASSES = {
    "kafka-topics.sh": f"{_TOOLS}.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-console-producer.sh": f"{_TOOLS}.ConsoleProducer",
    "kafka-console-consumer.sh": f"{_TOOLS}.consumer.ConsoleConsumer",
}
_WITHIN_S = 120.0
_WORDS_MAX = 200


class _Wrong(Exception):
    """It did not do what it was to do."""


@dataclass(frozen=True, slots=True)
class Tools:
    """All of them, before one address."""

    job: Job

    def run(self, tool: str, *words: str, told: str = "") -> str:
        """What it prints; `told` is what it reads."""
        command = [
            find_java(),
            ONE_COMPILER_FLAG,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            fetch_tools_classpath(),
        ]
        command += [_CLASSES[tool], "--bootstrap-server", self.job.bootstrap, *words]
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
        if done.returncode:
            raise _Wrong((done.stderr or done.stdout).strip())
        return done.stdout

    def topics(self) -> None:
        self.run("kafka-topics.sh", "--create", "--topic", self.job.made, "--partitions", "1")
        listed = self.run("kafka-topics.sh", "--list").split()
        _needs({*self.job.topics, self.job.made} <= set(listed), "topics are missing from the list")
        for topic in self.job.topics:
            told = self.run("kafka-topics.sh", "--describe", "--topic", topic)
            _needs("PartitionCount: 2" in told and "Leader: none" not in told, f"it tells otherwise of a topic: {told}")

    def produce(self) -> None:
        lines = "".join(f"tool-{number}\n" for number in range(RECORDS))
        for topic in self.job.topics:
            self.run("kafka-console-producer.sh", "--topic", topic, told=lines)

    def consume(self) -> None:
        words = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
        for topic in self.job.topics:
            found = self.run("kafka-console-consumer.sh", "--topic", topic, "--group", self.job.name, *words)
            _needs(found.count("tool-") == RECORDS, f"it reads {found.count('tool-')} records")

    def groups(self) -> None:
        named = ("--group", self.job.name)
        _needs(self.job.name in self.run("kafka-consumer-groups.sh", "--list").split(), "the group is not listed")
        told = self.run("kafka-consumer-groups.sh", "--describe", *named)
        _needs(sum(self._places(told)) == RECORDS * len(self.job.topics), "the group's places are not all told")
        for topic in self.job.topics:
            self.run(
                "kafka-consumer-groups.sh", *named, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute"
            )
        _needs(not any(self._places(self.run("kafka-consumer-groups.sh", "--describe", *named))), "it is not set back")

    def _places(self, told: str) -> list[int]:
        """Where the group stands in each partition."""
        lines = [line.split() for line in told.splitlines() if line.startswith(self.job.name)]
        return [int(line[3]) for line in lines if line[3].isdigit()]

    def configs(self) -> None:
        for topic in self.job.topics:
            named = ("--entity-type", "topics", "--entity-name", topic)
            self.run("kafka-configs.sh", *named, "--alter", "--add-config", "retention.ms=7654321")
            told = self.run("kafka-configs.sh", *named, "--describe")
            _needs("retention.ms=7654321" in told, "a topic's setting is not changed")

    def all(self) -> tuple[Outcome, ...]:
        """Each in turn: later ones use what earlier ones did."""
        ways: tuple[tuple[str, Callable[[], None]], ...] = (
            ("kafka-topics.sh: create, list, describe", self.topics),
            ("kafka-console-producer.sh", self.produce),
            ("kafka-console-consumer.sh, in a group", self.consume),
            ("kafka-consumer-groups.sh: list, describe, set back", self.groups),
            ("kafka-configs.sh: alter, describe", self.configs),
        )
        return tuple(Outcome(name, *_came_of(way)) for name, way in ways)


def _needs(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Wrong(otherwise)


def _came_of(way: Callable[[], None]) -> tuple[str, str]:
    try:
        way()
    except (_Wrong, subprocess.TimeoutExpired) as error:
        return NO, " ".join(str(error).split())[:_WORDS_MAX]
    return YES, ""
