"""Writers of the client library to a protected topic, without a proxy."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from tests.scenarios.plain_clients import records_there
from tests.scenarios.switch_rig import SwitchRig, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_protected_writes import protect
from twinshore.client import FailoverProducer
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

AWAY_S = 4.0
PER_S = 200.0


class LibraryWriter:
    """Each record is a number under its own key; `acked` are those that the application was told of."""

    def __init__(self, rig: SwitchRig) -> None:
        clusters = {one.name: dict(client_settings(one.cluster)) for one in (rig.east, rig.west)}
        self._producer = FailoverProducer({"linger.ms": 5}, clusters=clusters, topics=[rig.topic], name="library")
        self._topic = rig.topic
        self.acked: list[tuple[int, int, int]] = []
        self.failed: list[str] = []
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stopping.is_set():
            while self.sent < (time.monotonic() - began_s) * PER_S:
                self._producer.produce(self._topic, b"%d" % self.sent, b"k-%d" % self.sent, on_delivery=self._told)
                self.sent += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _told(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None or message is None:
            self.failed.append(str(error))
            return
        self.acked.append((message.partition() or 0, message.offset() or 0, int(message.value() or b"-1")))

    def outstanding(self) -> int:
        return len(self._producer)

    def where(self) -> str:
        return self._producer.where(self._topic)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "it cannot end"
        self._producer.close()


@pytest.mark.claim(
    "protection",
    "library",
    "the Python library: what a strict topic's writer was told is on the twin when the mirror dies",
)
def test_what_the_library_told_is_on_the_twin_when_the_mirror_dies(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "protected-library", tmp_path) as rig:
        protect(rig, "strict")
        writer = LibraryWriter(rig)
        try:
            until(lambda: len(writer.acked) >= 400, 60, "writes are confirmed")
            rig.rig.process.kill()
            time.sleep(AWAY_S)
            told = len(writer.acked)
            time.sleep(AWAY_S)
            assert len(writer.acked) == told, "no more than was on its way to the twin"
            assert writer.outstanding() > PER_S, "the others are outstanding"
            assert writer.where() != "east", "later calls wait"
            acked = list(writer.acked)
            there = {(*place, number) for place, _, number in records_there(west, rig.topic, 3)}
            assert not (lost := [one for one in acked if one not in there]), f"{len(lost)} of {len(acked)}: {lost[:3]}"
            rig.rig.process.start()
            until(lambda: len(writer.acked) >= told + 1_500, 120, "writes go on by themselves")
        finally:
            writer.stop()
        assert writer.failed == [], "the application is told of no error"
        assert len(writer.acked) == writer.sent
        numbers = [number for _, _, number in records_there(east, rig.topic, 3)]
        assert sorted(numbers) == list(range(writer.sent)), "once each"
