"""Brokers that stop answering while a real task carries: told of the partition, one row each, closed when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.raw_writer import RawWriter
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.stopped_partitions import StoppedPartitions
from twinshore.replication.task.core import partition, silence
from twinshore.replication.task.core.messages import PartitionConfig, TaskConfig, TaskLimits
from twinshore.replication.task.runner import TaskRunner
from twinshore.state.core.values import IncidentRow
from twinshore.state.store import Store, open_store

pytestmark = pytest.mark.timeout(600)
LINK, TOPIC, KEY = "east->west", "orders", ("east->west", 0)
QUICK = ("-XX:TieredStopAtLevel=1",)
LASTS_S = 4.0  # instead of half a minute
DAY_MS = 86_400_000


class Carrying:
    """One task, its coordinator, and the ledger. `turn` is what the link's driver does every second."""

    def __init__(self, east: LabCluster, west: LabCluster, store: Store) -> None:
        self.store = store
        sides = [KafkaCluster(side.cluster) for side in (east, west)]
        self.writer = RawWriter(sides[0], TOPIC)
        source_id, target_id = (side.metadata([TOPIC]).topics[TOPIC].topic_id.hex() for side in sides)
        producer_id, _ = sides[1].init_producer_id()
        self._sides = sides
        self.recorder = ProgressRecorder(store, "a test", 0.2)
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 600.0, take=self.recorder.take)
        self.coordinator.open_task(KEY, 60.0)
        self.coordinator.assign(KEY, [PartitionConfig(TOPIC, 0, source_id, target_id)])
        self.standing = StoppedPartitions(LINK, store, self.coordinator, self.recorder)
        order = TaskConfig(
            *(LINK, 0, 1, east.cluster, west.cluster, producer_id, 0, DAY_MS),
            *(self.coordinator.host, self.coordinator.port, self.coordinator.token_of(KEY), TaskLimits()),
        )
        self.task = threading.Thread(target=TaskRunner(order).run, daemon=True)
        self.task.start()

    def close(self) -> None:
        self.coordinator.finish_all(LINK)
        self.task.join(60)
        self.coordinator.close()
        self.recorder.close()
        for side in self._sides:
            side.close()

    def crossed(self) -> int:
        return max((at.to_offset for at in self.store.progress.positions(LINK)), default=0)

    def rows(self) -> list[IncidentRow]:
        return list(self.store.incidents.rows(LINK))

    def until(self, holds: Callable[[], object], what: str) -> None:
        until_s = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < until_s, f"{what}: {self.crossed()} crossed, {self.rows()}"
            self.standing.turn()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def carrying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabCluster, LabCluster, Carrying]]:
    path = tmp_path_factory.mktemp("silent") / "store.db"
    with (
        pytest.MonkeyPatch.context() as patch,
        LabCluster("east", jvm_flags=QUICK) as east,
        LabCluster("west", jvm_flags=QUICK) as west,
        open_store(f"sqlite:///{Path(path)}") as store,
    ):
        for module in (partition, silence):
            patch.setattr(module, "TROUBLE_REPORT_S", LASTS_S)
        for side in (east, west):
            side.create_topic(TOPIC)
        one = Carrying(east, west, store)
        try:
            yield east, west, one
        finally:
            for side in (east, west):
                side.brokers[0].resume()
            one.close()


@pytest.mark.claim(
    "topics",
    "silent",
    "a leader that hangs, of the target or of the source: told of its partition, one row, closed when it answers",
)
@pytest.mark.long
def test_a_leader_that_hangs_is_told_of_its_partition_until_it_answers(
    carrying: tuple[LabCluster, LabCluster, Carrying],
) -> None:
    east, west, one = carrying
    assert one.writer.write(10, 0).error == 0
    one.until(lambda: one.crossed() == 10, "it runs")
    assert one.rows() == []
    for side, kind, says in (
        (west, "target away", "has not answered the requests for offsets 10 to 14"),
        (east, "source away", "(broker 1) gives nothing at offset 15"),
    ):
        before = len(one.rows())
        if side is west:
            side.brokers[0].pause()
            assert one.writer.write(5, 10).error == 0
        else:
            side.brokers[0].pause()
        one.until(lambda: len(one.rows()) > before, f"{kind} is told")  # noqa: B023
        (row,) = one.rows()[before:]
        assert (row.incident.kind, row.incident.topic, row.incident.partition) == (kind, TOPIC, 0)
        assert says in row.incident.sentence
        time.sleep(1.5 * LASTS_S)
        assert len(one.rows()) == before + 1, "it is told again and stays one row"
        assert not one.rows()[-1].closed_ms
        side.brokers[0].resume()
        one.until(lambda: all(row.closed_ms for row in one.rows()), f"{kind} is over")
    one.until(lambda: one.crossed() == 15, "all crossed")
    assert one.task.is_alive()
