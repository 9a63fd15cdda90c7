"""`python -m bench.measure.links [LINKS]`: 20 links flow, or so many, while one more is added, turned, removed.

How long each change takes until the mirror has taken it up, and how late the records of all the other links arrive
before, during and after; and while as many verbs only look, since each is a process that starts on the same machine.
One pair of clusters has a name for each link in the settings.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.kit.playing import ROOT
from testkit.figures import StageError, percentile
from testkit.watermarks import TopicEndReader
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess

LINKS = 20
RATE = 10  # records a second in each topic
WINDOW_S = 30.0
ROUNDS = 3
START_S = 240.0
CHANGE_S = 60.0
_SENT = struct.Struct(">q")
_FILLER = bytes(200)


@dataclass(frozen=True, slots=True)
class Delays:
    """How late records of all links arrived in one stretch of time."""

    records: int
    p50_ms: float
    p99_ms: float
    most_ms: float

    def __str__(self) -> str:
        return (
            f"{self.records:6,} records: p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, most {self.most_ms:.0f} ms"
        )


class Flow:
    """A slow stream through every topic, and when each record came out on the other side."""

    def __init__(self, source: Cluster, target: Cluster, topics: Iterable[str]) -> None:
        self._topics = list(topics)
        self._producer = Producer({**client_settings(source), "linger.ms": 0, "acks": "all", "log_level": 0})
        quick = {"group.id": "links", "fetch.min.bytes": 1, "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**client_settings(target), **quick})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in self._topics])
        self._ended = threading.Event()
        self._late_ms: list[float] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def __enter__(self) -> Flow:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._consumer.close()

    def _send(self) -> None:
        begun_s, number = time.monotonic(), 0
        while not self._ended.wait(max(0.0, begun_s + number / RATE / len(self._topics) - time.monotonic())):
            topic = self._topics[number % len(self._topics)]
            self._producer.produce(topic, _SENT.pack(time.monotonic_ns()) + _FILLER, partition=0)
            self._producer.poll(0)
            number += 1
        self._producer.flush(10)

    def _receive(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error():
                    raise KafkaException(message.error())
                sent_ns = _SENT.unpack_from(message.value() or b"")[0]
                self._late_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    def delays(self, during: Callable[[], None]) -> Delays:
        """Of what arrives while `during` works."""
        begins = len(self._late_ms)
        during()
        late = sorted(self._late_ms[begins:])
        if not late:
            raise StageError("nothing arrives")
        return Delays(len(late), percentile(late, 0.5), percentile(late, 0.99), late[-1])


class Links:
    """A mirror of so many links, and `twinshore link` beside it."""

    def __init__(self, folder: Path, source: LabCluster, target: LabCluster, count: int) -> None:
        self.source, self.target, self.count = source, target, count
        lines = ["[store]", f'url = "sqlite:///{folder / "store.db"}"']
        for number in range(count + ROUNDS + 1):
            for one in (source, target):
                lines += [f"[clusters.{one.name}-{number}]", f"bootstrap = {list(one.cluster.bootstrap)}"]
        for number in range(count):
            lines += [f'[links."{self.name(number)}"]', f'topics = ["{self.topic(number)}"]']
        lines += ["[mirror]", "tasks_per_link = 1", "heartbeat_s = 0", "disk_warn_percent = 0"]
        self.process = MirrorProcess(folder, "\n".join(lines) + "\n")

    def name(self, number: int) -> str:
        return f"{self.source.name}-{number}->{self.target.name}-{number}"

    def turned(self, number: int) -> str:
        return f"{self.target.name}-{number}->{self.source.name}-{number}"

    def topic(self, number: int) -> str:
        return f"steady-{number}"

    def say(self, *words: str) -> None:
        command = [sys.executable, "-m", "twinshore.cli", "link", *words, "--settings", str(self.process.settings)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise StageError(f"{' '.join(words)}: {done.stdout}{done.stderr}")

    def until_said(self, words: str, times: int, within_s: float) -> float:
        """How long it took until the mirror's log had these words so often."""
        begun_s = time.monotonic()
        while self.process.said.count(words) < times:
            self.process.check()
            if time.monotonic() - begun_s > within_s:
                raise StageError(f"not within {within_s:g} s: {words!r}\n{self.process.said[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - begun_s

    def look(self) -> None:
        """As many verbs as a change takes, that change nothing: what they cost the machine, links pay as well."""
        for _ in range(3 * ROUNDS):
            self.say("list")

    def change(self, took_s: dict[str, list[float]]) -> None:
        """A link that carries nothing yet is added, turned and removed; each time another one."""
        for number in range(self.count, self.count + ROUNDS):
            name, turned = self.name(number), self.turned(number)
            self.say("add", name, f'topics=["extra-{number}"]')
            took_s["added"].append(self.until_said(f"{name}: replicated by this process", 1, CHANGE_S))
            self.say("reverse", name)
            took_s["turned"].append(self.until_said(f"{turned}: replicated by this process", 1, CHANGE_S))
            self.say("remove", turned)
            took_s["removed"].append(self.until_said(f"{turned}: the link was removed by", 1, CHANGE_S))


@contextmanager
def stage(count: int) -> Iterator[Links]:
    """Both clusters with their topics, and the mirror once all links are carried."""
    with tempfile.TemporaryDirectory() as folder, LabCluster("east") as east, LabCluster("west") as west:
        links = Links(Path(folder), east, west, count)
        for number in range(count):
            east.create_topic(links.topic(number))
        links.process.start()
        try:
            links.until_said("replicated by this process", count, START_S)
            for number in range(count):
                TopicEndReader(west.cluster, links.topic(number), 1).wait_ready(START_S)
            yield links
        finally:
            links.process.end()


def main() -> int:
    """Prints what was measured; 1 where a link that nobody changed began again."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LINKS
    took_s: dict[str, list[float]] = {"added": [], "turned": [], "removed": []}
    with stage(count) as links:
        topics = [links.topic(number) for number in range(count)]
        with Flow(links.source.cluster, links.target.cluster, topics) as flow:
            flow.delays(lambda: time.sleep(WINDOW_S))  # the first of them wait for their twins
            before = flow.delays(lambda: time.sleep(WINDOW_S))
            looking = flow.delays(links.look)
            begins = len(links.process.said)
            during = flow.delays(lambda: links.change(took_s))
            told = links.process.said[begins:]
            after = flow.delays(lambda: time.sleep(WINDOW_S))
    again = [number for number in range(count) if f"{links.name(number)}: carried by" in told]
    print(f"{count} links, {RATE} records/s each")
    for when, delays in (("before", before), ("looking", looking), ("during", during), ("after", after)):
        print(f"  {when:7} {delays}")
    for what, times in took_s.items():
        print(f"  {what}: taken up within {', '.join(f'{one:.1f}' for one in times)} s of the verb's end")
    print(f"  links that began again meanwhile though nobody changed them: {len(again)}")
    names = tuple(f"{links.name(number)}:" for number in again)
    for line in told.splitlines():
        if names and any(name in line for name in names):
            print(f"    {line}")
    return 1 if again else 0


if __name__ == "__main__":
    sys.exit(main())
