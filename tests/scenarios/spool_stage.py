"""An application of its own process with a spool, which a test kills. It says on its output what it has done so far."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from twinshore.client import FailoverProducer

ROOT = Path(__file__).resolve().parents[2]
KEYS = 5


def key_of(number: int) -> bytes:
    return b"key %d" % (number % KEYS)


class SpoolingProcess:
    """`step`: writes, or only sends what is there."""

    def __init__(self, step: str, clusters: dict[str, Any], topic: str, folder: Path, said: Path) -> None:
        self._said = said
        words = [sys.executable, "-m", "tests.scenarios.spool_stage", step, json.dumps(clusters), topic, str(folder)]
        with said.open("wb") as out:
            self._child = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)

    def said(self, word: str) -> list[int]:
        """Numbers that it has said with this word."""
        assert self._child.poll() is None, self._said.read_text()
        lines = self._said.read_text().rpartition("\n")[0].splitlines()
        return [int(line.split()[1]) for line in lines if line.split()[0] == word]

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


def say(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())


def write(producer: FailoverProducer, topic: str) -> None:
    """100 while all is well, and the rest once the topic has no home that can be reached."""
    number = 0
    while True:
        producer.produce(topic, b"%d" % number, key_of(number))
        say("kept" if number >= 100 else "made", number)
        number += 1
        if number == 100:
            producer.flush(60)
            say("acked", number)
            while producer.where(topic) == "east":
                time.sleep(0.01)


def send(producer: FailoverProducer) -> None:
    while True:
        say("left", len(producer))
        time.sleep(0.001)


def main(step: str, clusters: str, topic: str, folder: str) -> None:
    producer = FailoverProducer({}, clusters=json.loads(clusters), topics=[topic], spool=folder)
    write(producer, topic) if step == "write" else send(producer)


if __name__ == "__main__":
    main(*sys.argv[1:])
