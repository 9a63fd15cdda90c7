"""Groups behind two proxies that are set to other places: the stage, the readers, and what they must have read."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException

from testkit.cluster import RigCluster
from testkit.jars import fetch_tools_classpath
from tests.proxy.served import ProxyProcess
from tests.scenarios.plain_clients import Place
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.jars import KAFKA_NEWEST, ONE_COMPILER_FLAG, find_java
from twinshore.proxy.operations.reset_offsets import ResetOffsets, act, parse_reset_request, plan
from twinshore.state.store import open_store

EACH = 50
PARTITIONS = 6
COOPERATIVE_IN_JAVA = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@dataclass
class Stage:
    """`proxies` share a store."""

    proxies: list[ProxyProcess]
    settings: Settings

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.proxies)

    def does(self, asked: ResetOffsets) -> list[str]:
        """The steps that were done; raises why it is refused."""
        with open_store(self.settings.store.url) as store:
            meant = plan(asked, self.settings, store)
            if meant.refusal:
                raise meant.refusal
            return [step.sentence(done=True) for step in act(asked, meant, self.settings, store, "test")]

    def shows(self, asked: ResetOffsets) -> list[str]:
        with open_store(self.settings.store.url) as store:
            return list(plan(asked, self.settings, store).shown)

    def said(self) -> str:
        return "".join(one.said() for one in self.proxies)


@contextmanager
def staged(folder: Path, *labs: RigCluster, count: int = 2) -> Iterator[Stage]:
    url = f"sqlite:///{folder}/store.db"
    open_store(url).close()
    with ExitStack() as stack:
        some = []
        for number in range(count):
            (folder / f"proxy-{number}").mkdir()
            one = ProxyProcess(folder / f"proxy-{number}", [lab.cluster for lab in labs], store=url)
            stack.callback(one.close)
            one.start()
            some.append(one)
        yield Stage(some, load_settings(some[0].settings, {}))


def filled(lab: RigCluster, topic: str, partitions: int = PARTITIONS, each: int = EACH) -> None:
    lab.create_topic(topic, partitions=partitions)
    for number in range(partitions):
        fill(lab, topic, each, partition=number)


@dataclass
class Member:
    """A consumer of librdkafka in a thread, which commits by itself, or behind each lot that it works on. `errors`:
    what its application is told; it ends at none."""

    bootstrap: str
    group: str
    topics: Sequence[str]
    more: dict[str, Any] = field(default_factory=dict)
    by_hand: bool = False
    works_s: float = 0.0
    read: list[tuple[float, str, Place]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    assigned: int = 0

    def __post_init__(self) -> None:
        usual: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
        }
        usual |= {"log_level": 2, "auto.commit.interval.ms": 500, "enable.auto.commit": not self.by_hand}
        self._consumer = Consumer({**usual, **self.more})
        self._consumer.subscribe(list(self.topics), on_assign=self._assigned)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, *_: object) -> None:
        self.assigned += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            found = self._consumer.consume(20, 0.1)
            for one in found:
                if (error := one.error()) is not None:
                    self.errors.append(error.str())
                else:
                    place = one.partition() or 0, int(one.offset() or 0)
                    self.read.append((time.monotonic(), str(one.topic()), place))
            if found and self.by_hand:
                time.sleep(self.works_s)
                try:
                    self._consumer.commit(asynchronous=False)
                except KafkaException as error:
                    self.errors.append(str(error))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "it cannot end"


@contextmanager
def members(
    count: int,
    bootstrap: str,
    group: str,
    topics: Sequence[str],
    more: dict[str, Any] | None = None,
    *,
    static: bool = False,
    **own: Any,
) -> Iterator[list[Member]]:
    """`static`: each has a name that lasts."""
    names: list[dict[str, Any]] = [{"group.instance.id": f"m{number}"} if static else {} for number in range(count)]
    made = [Member(bootstrap, group, topics, {**(more or {}), **name}, **own) for name in names]
    try:
        yield made
    finally:
        for one in made:
            one._stopping.set()
        for one in made:
            one.stop()


def have_read(some: Sequence[Member], count: int, within_s: float = 90) -> None:
    until(lambda: sum(len(one.read) for one in some) >= count, within_s, "all is read")


def times_read(some: Sequence[Member], topic: str) -> Counter[Place]:
    return Counter(place for one in some for _, named, place in one.read if named == topic)


def read_from(some: Sequence[Member], topic: str, since_s: float) -> dict[int, list[int]]:
    """By partition: what was read since then, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for _, named, (partition, offset) in sorted(entry for one in some for entry in one.read if entry[0] > since_s):
        if named == topic:
            found[partition].append(offset)
    return found


class JavaMember:
    """Kafka's verifiable consumer, which tells of each record."""

    def __init__(
        self,
        folder: Path,
        name: str,
        bootstrap: str,
        group: str,
        topic: str,
        strategy: str = "",
        version: str = KAFKA_NEWEST,
    ) -> None:
        self._said, self._log = folder / f"{name}.said", folder / f"{name}.log"
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose"]
        words += ["--reset-policy", "earliest", "--enable-autocommit"]
        words += ["--assignment-strategy", strategy] if strategy else []
        command = [
            find_java(),
            ONE_COMPILER_FLAG,
            "-cp",
            fetch_tools_classpath(version),
            "org.apache.kafka.tools.VerifiableConsumer",
            *words,
        ]
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=said, stderr=log)

    def lines(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self._said.read_text().split("\n")[:-1] if line.startswith("{")]
        return [one for one in found if one["name"] == name]

    def read(self) -> list[Place]:
        return [(one["partition"], one["offset"]) for one in self.lines("record_data")]

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def said(self) -> str:
        return self._log.read_text()[-3000:]


def to_offset(group: str, offset: int, *topics: str, gather_s: float = 10.0) -> ResetOffsets:
    return parse_reset_request(group, topics, offset=offset, gather_s=gather_s)
