"""A mirror between two clusters of its own whose logs are damaged, cut and written to by others while it runs."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Producer

from testkit.clients import delete_records
from testkit.cluster import RigCluster
from tests.scenarios.mirror_rig import Rig, settings_text, spans_of, until
from tests.scenarios.warm_mirrors import said_by
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.record_batch import split_batches
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabBroker
from twinshore.state.core.values import IncidentRow

LINK = "east->west"
CALM = "calm"
QUICK = ("-XX:TieredStopAtLevel=1",)
CALM_S_MAX = 3.0


class IncidentStage:
    """Topic `calm` is the neighbour of all that is provoked: `calm_s` says how long a record of it takes."""

    def __init__(
        self,
        folder: Path,
        mirror: Mapping[str, object],
        *,
        east: RigCluster | None = None,
        west: RigCluster | None = None,
        store: str = "",
    ) -> None:
        """`west`: one that asks who one is; the mirror then comes as user `mirror`. `east`: one with proxies, by which
        the mirror then comes."""
        self._far = east is not None
        self.east = east or RigCluster("east", jvm_flags=QUICK)
        self.west = west or RigCluster("west", jvm_flags=QUICK)
        self._user = "mirror" if west else ""
        self._folder, self._mirror, self._store = folder, dict(mirror or {}), store
        self._rig: Rig | None = None
        self.whole: dict[Path, bytes] = {}  # logs before they were damaged
        self.more = ""  # sections of the settings

    @property
    def rig(self) -> Rig:
        assert self._rig is not None
        return self._rig

    def up(self) -> None:
        for side in (self.east, self.west):
            side.start()
        self.east.create_topic(CALM)

    def start(self) -> None:
        target = self.west.cluster_as(self._user) if self._user else self.west.cluster
        source = self.east.wan_cluster if self._far else self.east.cluster
        text = settings_text(self._folder, [source, target], {LINK: "[^_].*"}, mirror=self._mirror, store=self._store)
        text += f'[links."{LINK}".follow]\nevery_s = 6\n{self.more}'
        self._rig = Rig(self._folder, text, store=self._store)
        self._rig.process.start()
        self.until(lambda: self.ends(self.west, CALM, 0) == self.ends(self.east, CALM, 0), 90, "it runs")

    def close(self) -> None:
        if self._rig:
            self._rig.process.end()
        self.east.stop()
        self.west.stop()

    # -- what is asked

    def until(self, holds: Callable[[], bool], within_s: float, what: str) -> float:
        return until(holds, within_s, what, self._rig)

    def spans(self, side: RigCluster, topic: str, partition: int) -> tuple[int, int]:
        return spans_of(side.cluster, topic, partition)[0]

    def ends(self, side: RigCluster, topic: str, partition: int) -> int:
        return self.spans(side, topic, partition)[1]

    def crossed(self, topic: str, partition: int, within_s: float = 30.0) -> float:
        """Waits until the twin ends where the source does."""
        return self.until(
            lambda: self.ends(self.east, topic, partition) == self.ends(self.west, topic, partition),
            within_s,
            f"{topic}-{partition} crossed",
        )

    def rows(self, topic: str, kind: str) -> list[IncidentRow]:
        return [r for r in self.rig.ledger(LINK) if (r.incident.topic, r.incident.kind) == (topic, kind)]

    def row(self, topic: str, kind: str, *, closed: bool = False, within_s: float = 30.0) -> IncidentRow:
        """The one row of this kind, once it is there, and closed where that is asked."""

        def there() -> bool:
            found = self.rows(topic, kind)
            return bool(found) and (not closed or all(row.closed_ms for row in found))

        self.until(there, within_s, f"{'closed ' if closed else ''}row {kind} of {topic}: {self.rig.ledger(LINK)}")
        found = self.rows(topic, kind)
        assert len(found) == 1, found
        return found[0]

    def calm_s(self) -> float:
        """How long a record of the neighbour takes to cross now."""
        self.put(self.east, CALM, 0, [[b"calm"]])
        took_s = self.crossed(CALM, 0)
        assert took_s < CALM_S_MAX, f"the neighbour waited {took_s:.1f} s"
        return took_s

    def twinshore(self, *words: str) -> tuple[int, str]:
        """Exit code and what the command said."""
        return said_by([*words, "--settings", str(self.rig.process.settings)], folder=self._folder)

    def resume(self, topic: str) -> tuple[int, str]:
        return self.twinshore("mirror", "resume", topic)

    # -- what is done

    def put(self, side: RigCluster, topic: str, partition: int, batches: Sequence[Sequence[bytes]]) -> None:
        """Each inner list becomes one batch."""
        producer = Producer({**client_settings(side.cluster), "linger.ms": 50, "enable.idempotence": True})
        for batch in batches:
            for value in batch:
                producer.produce(topic, value, b"key", partition=partition)
            assert producer.flush(30) == 0

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        delete_records(self.east.cluster, {TopicPartition(topic, partition): before})


def down_and_up(broker: LabBroker, change: Callable[[], None], away_s: float = 0.0) -> None:
    """What an operator's accident does to a broker's files while it is down in good order."""
    broker.stop()
    change()
    time.sleep(away_s)
    broker.restart()


def log_file(side: RigCluster, topic: str, partition: int) -> Path:
    (broker,) = side.brokers
    (found,) = (broker.log_dir / f"{topic}-{partition}").glob("*.log")
    return found


def span_of(data: bytes | bytearray, batch: int) -> tuple[int, int]:
    """Where the log's n-th batch begins and ends; it stays readable whatever the batch's other bytes say."""
    begin = end = 0
    for _ in range(batch + 1):
        begin, end = end, end + 12 + int.from_bytes(data[end + 8 : end + 12], "big")
    return begin, end


def flip(path: Path, batch: int, at: int) -> None:
    """Turns the bits of one byte of the log's n-th batch; done twice it is mended."""
    data = bytearray(path.read_bytes())
    data[span_of(data, batch)[0] + at] ^= 0xFF
    path.write_bytes(bytes(data))


def age(path: Path, batch: int) -> None:
    """The log's n-th batch becomes one message in format v1, as clients wrote it before Kafka 0.11."""
    data = path.read_bytes()
    begin, end = span_of(data, batch)
    message = struct.pack(">bbqi3si3s", 1, 0, int(time.time() * 1000), 3, b"key", 3, b"old")
    message = struct.pack(">I", zlib.crc32(message)) + message
    entry = data[begin : begin + 8] + struct.pack(">i", len(message)) + message
    path.write_bytes(data[:begin] + entry + data[end:])


def cut_to(path: Path, offset: int) -> None:
    """The log loses the batches from `offset` on."""
    data = path.read_bytes()
    kept = sum(len(view) for view, header in split_batches(memoryview(data)) if header.last_offset < offset)
    path.write_bytes(data[:kept])
