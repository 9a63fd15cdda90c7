"""Protected topics behind proxies of two clusters, under load; and what became of all that was acknowledged."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from testkit.cluster import RigCluster
from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import Rig, settings_text, spans, url_in
from tests.scenarios.plain_clients import Acked, JavaWriter, Place, PlainWriter
from tests.scenarios.switch_rig import QUICK
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import create_log_consumer, read_to_end
from twinshore.lab.mirror_process import MirrorProcess
from twinshore.protection.topic import GatesTopic

PLAIN = {"enable.idempotence": False, "acks": 1}
# An application is told of no failure while an outage is shorter than that.
PATIENT_MS = 900_000

Log = dict[Place, tuple[str, str]]


@dataclass
class ProtectionStage:
    """The topics are at home on east, and a mirror feeds their twins on west."""

    made: Rig
    east: RigCluster
    west: RigCluster
    partitions: int
    proxies: list[ProxyProcess] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.proxies)

    def writer(self, topic: str, name: str, per_s: float = 50.0, **settings: Any) -> PlainWriter:
        made = PlainWriter(self.bootstrap, topic, per_s, name, **{"message.timeout.ms": PATIENT_MS, **settings})
        self.stack.callback(made.stop)
        return made

    def java(self, topic: str, per_s: int = 50, **settings: object) -> JavaWriter:
        folder = self.made.folder / f"java-{time.monotonic_ns()}"
        folder.mkdir()
        lines = {"delivery.timeout.ms": PATIENT_MS, **settings}
        made = JavaWriter(folder, self.bootstrap, topic, per_s, lines)
        self.stack.callback(made.kill)
        return made

    def ends(self, lab: RigCluster, topic: str) -> list[int]:
        return [end for _, end in spans(lab.cluster, topic, self.partitions)]

    def level(self, topic: str) -> None:
        until(lambda: self.ends(self.east, topic) == self.ends(self.west, topic), 120, f"{topic} ends alike")

    def log(self, lab: RigCluster, topic: str, *, committed: bool = False) -> Log:
        """Key and value at each offset, as the cluster itself has them."""
        with closing(create_log_consumer(lab.cluster, committed=committed)) as consumer:
            return {
                (number, one.offset() or 0): ((one.key() or b"").decode(), (one.value() or b"").decode())
                for number in range(self.partitions)
                for one in read_to_end(consumer, topic, number)
            }

    def counted(self, topic: str, *outcomes: str) -> int:
        """How many writes, or reports, of these outcomes the proxies count."""
        found = [(name, value) for one in self.proxies for name, value in one.metrics().items()]
        of_topic = [(name, value) for name, value in found if "protected_writes" in name and f'"{topic}"' in name]
        return int(sum(value for name, value in of_topic if any(f'"{one}"' in name for one in outcomes)))

    def is_alone(self, topic: str) -> bool:
        """Whether it is written down that the home alone acknowledges."""
        with closing(KafkaCluster(self.west.cluster)) as kafka:
            return any(record.alone for (name, _), record in GatesTopic(kafka).read().gates.items() if name == topic)

    def incidents(self, topic: str) -> list[str]:
        rows = [row.incident for row in self.made.ledger("east->west") if row.incident.topic == topic]
        return sorted({str(one.kind) for one in rows})


@contextmanager
def protection_stage(
    folder: Path,
    east: RigCluster,
    west: RigCluster,
    levels: Mapping[str, str],
    *,
    partitions: int = 1,
    topic: Mapping[str, Any] | None = None,
    proxies: int = 1,
    spark: bool = False,
    mirrored: Cluster | None = None,
    served: Cluster | None = None,
) -> Iterator[ProtectionStage]:
    """`topic`: more arguments of `create_topic`. `mirrored`, `served`: west as the mirror and as proxies reach it."""
    links = dict.fromkeys(("east->west", "west->east"), "|".join(levels))
    text = settings_text(folder, [east.cluster, mirrored or west.cluster], links, mirror=QUICK)
    made = Rig(folder, text, spark=spark)
    if spark:
        ports = [int(address.rpartition(":")[2]) for address in (mirrored or west.cluster).bootstrap]
        made.process = MirrorProcess(folder, text, target_ports=ports)
    stage = ProtectionStage(made, east, west, partitions)
    for name in levels:
        east.create_topic(name, partitions=partitions, **(topic or {}))
        for number in range(partitions):
            fill(east, name, 10, partition=number)
    with stage.stack as stack:
        made.process.start()
        stack.callback(made.process.end)
        until(lambda: all(stage.ends(west, one) == [10] * partitions for one in levels), 240, "all has crossed")
        for name, level in levels.items():
            if level != "async":
                made.verb("protection", "set", name, "--level", level, "--alone-after", "5", "--even-weak")
        for number in range(proxies):
            own = folder / f"proxy-{number}"
            own.mkdir()
            one = ProxyProcess(own, [east.cluster, served or west.cluster], store=url_in(folder))
            stack.callback(one.close)
            one.start()
            stage.proxies.append(one)
        yield stage


def missing(log: Log, acked: Iterable[Acked]) -> list[Acked]:
    """Those that are not there at their offset. Where the broker told no offset, as it may for a retry: nowhere."""
    anywhere = {(number, *record) for (number, _), record in log.items()}

    def is_there(one: Acked) -> bool:
        record = one.key, str(one.number)
        return log.get(one.place) == record if one.place[1] >= 0 else (one.place[0], *record) in anywhere

    return [one for one in acked if not is_there(one)]


def doubled(log: Log, keys: str) -> int:
    """How many records with such a key, by an expression, are there once more."""
    count = Counter(record for record in log.values() if re.fullmatch(keys, record[0]))
    return sum(one - 1 for one in count.values())


class TransferWriter:
    """Transactions of a record in each partition, in a thread. `committed`: numbers of those that were confirmed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0, "log_level": 2}
        self._topic, self._partitions = topic, partitions
        self.committed: list[int] = []
        self.failed = Counter[str]()
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._write(Producer(self._settings))
            except KafkaException as error:  # a new producer ends what this one left open
                self.failed[error.args[0].name()] += 1

    def _write(self, producer: Producer) -> None:
        producer.init_transactions(20)
        while not self._stopping.wait(0.05):
            self._number += 1
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._topic, b"%d" % self._number, b"transfer", partition=partition)
            producer.commit_transaction(40)
            self.committed.append(self._number)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "it cannot end"

    def missing(self, log: Log) -> list[int]:
        """Confirmed ones that are not whole in this log of committed records."""
        count = self._count(log)
        return [number for number in self.committed if count[number] != self._partitions]

    def torn(self, log: Log) -> list[int]:
        """Those of which a part is there."""
        return sorted(number for number, count in self._count(log).items() if 0 < count < self._partitions)

    def _count(self, log: Log) -> Counter[int]:
        return Counter(int(value) for key, value in log.values() if key == "transfer")


class DelayedWriter:
    """Writes to its topics in turn by one producer, in a thread. `longest_s`: by topic, until an acknowledgement.
    `failed`: errors that the application was told.
    """

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
        self._topics = topics
        self.longest_s = dict.fromkeys(topics, 0.0)
        self.failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for topic in self._topics:
                heard = partial(self._heard, topic, time.monotonic())
                self._producer.produce(topic, b"0", b"delayed", on_delivery=heard)
            self._producer.poll(0.05)
        self._producer.flush(60)

    def _heard(self, topic: str, sent_s: float, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed.append(error.str())
        self.longest_s[topic] = max(self.longest_s[topic], time.monotonic() - sent_s)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "it cannot end"
