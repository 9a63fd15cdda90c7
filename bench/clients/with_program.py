"""Clients that are no Python's: a program takes a command and its words, and answers by lines of JSON. `own` has the
command line that starts it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from bench.clients.client import Job, Lacks, Part, WentWrong
from bench.clients.trying import run


class RefusedError(Exception):
    """The client was answered so."""


class Program:
    def __init__(self, job: Job, own: dict[str, Any]) -> None:
        self._command, self._where = own["command"], job.bootstrap

    def begun(self, command: str, *words: object) -> subprocess.Popen[str]:
        asked = [*self._command, command, self._where, *map(str, words)]
        return subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _asked(self, command: str, *words: object) -> Any:
        with self.begun(command, *words) as process:
            return answer(process)

    def look(self) -> tuple[set[str], int]:
        topics, brokers = self._asked("look")
        return set(topics), brokers

    def produce(self, topic: str, values: Sequence[str], acks: str, *, idempotent: bool) -> None:
        self._asked("produce", topic, acks, str(idempotent).lower(), *values)

    def read(self, topic: str, wanted: Iterable[str], seconds: float) -> set[str]:
        return set(self._asked("read", topic, seconds, *wanted))

    def transact(self, topic: str, values: Sequence[str], group: str, place: int, *, commit: bool) -> None:
        self._asked("transact", topic, group, place, str(commit).lower(), *values)

    def place(self, group: str, topic: str) -> int:
        return int(self._asked("place", group, topic))

    def member(self, group: str, topics: Sequence[str], way: str, instance: str) -> Member:
        return Member(self, "member", group, way, instance, *topics)

    def writer(self, topic: str, transactional: str) -> Writer:
        return Writer(self, "writer", topic, transactional)

    def describe(self) -> tuple[str, int]:
        cluster_id, brokers = self._asked("describe")
        return cluster_id, brokers

    def create(self, topic: str) -> None:
        self._asked("create", topic)

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        return dict(self._asked("ends", *topics))

    def groups(self) -> set[str]:
        return set(self._asked("groups"))


def answer(process: subprocess.Popen[str]) -> Any:
    """What it found; its error, as ours."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise WentWrong(f"its process ended with code {process.wait()}")
    said = json.loads(line)
    for word, kind in (("lacks", Lacks), ("refused", RefusedError), ("wrong", WentWrong)):
        if word in said:
            raise kind(said[word])
    return said["found"]


class _Living:
    """A process that goes on, and is asked line by line, until it is closed."""

    def __init__(self, program: Program, *words: str) -> None:
        self._process = program.begun(*words)
        answer(self._process)

    def _asked(self, *words: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return answer(self._process)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()


class Member(_Living):
    def __init__(self, program: Program, *words: str) -> None:
        super().__init__(program, *words)
        self._held = set[Part]()

    def poll(self, seconds: float) -> list[str]:
        values, parts = self._asked("poll", int(seconds * 1000))
        self._held = {(topic, number) for topic, number in parts}
        return list(values)

    def parts(self) -> set[Part]:
        """As they were when it was polled last."""
        return self._held

    def commit(self) -> None:
        self._asked("commit")


class Writer(_Living):
    def write(self, values: Sequence[str]) -> None:
        self._asked(*values)


def in_words(error: Exception) -> str | None:
    return str(error) if isinstance(error, RefusedError) else None


if __name__ == "__main__":
    run(Program, in_words)
