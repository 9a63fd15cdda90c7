"""A process that holds acknowledgements, between two clusters and a running mirror."""

from __future__ import annotations

import asyncio
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, until
from twinshore.config.frozen import PROXY_CLIENT_ID
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import librdkafka_settings
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.cluster import LabCluster
from twinshore.protection.core.model import GateState, ProtectionLevel
from twinshore.protection.core.records import TopicProtection, level_line
from twinshore.protection.keeper import TICK_S, GateKeeper
from twinshore.protection.topic import GatesTopic, ProtectionTopic

TOPIC = "guard-orders"
ORDERS = TopicPartition(TOPIC, 0)
WITHIN_S = 60.0


class Guard:
    """A keeper with a thread of its own, and a producer whose reports it holds."""

    def __init__(self, east: LabCluster, west: LabCluster) -> None:
        self._loop = asyncio.new_event_loop()
        clusters = [east.cluster, west.cluster]
        self.keeper = GateKeeper("test", clusters, PROXY_CLIENT_ID, lambda _: "east", self._loop)
        self._producer = Producer(librdkafka_settings(east.cluster) | {"acks": "all", "linger.ms": 0})
        self.decided: list[tuple[Code, float]] = []
        self.keeper.start()
        self._loop.call_soon(self._tick)
        self._loop.call_soon(self._report)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _tick(self) -> None:
        self.keeper.tick()
        self._loop.call_later(TICK_S, self._tick)

    def _report(self) -> None:
        self._producer.poll(0)
        self._loop.call_later(0.001, self._report)

    def call(self, act: Callable[[], object]) -> object:
        """In the keeper's thread."""
        found: queue.Queue[object] = queue.Queue()
        self._loop.call_soon_threadsafe(lambda: found.put(act()))
        return found.get(timeout=WITHIN_S)

    def write(self) -> None:
        def send() -> None:
            began_s = time.monotonic()
            write = self.keeper.sent(
                ORDERS, 15.0, lambda code: self.decided.append((code, time.monotonic() - began_s)), has_producer=False
            )

            def reported(error: object, message: object) -> None:
                assert error is None, error
                self.keeper.appended(ORDERS, write, message.offset())  # type: ignore[attr-defined]

            self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=reported)

        self._loop.call_soon_threadsafe(send)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self.keeper.stop()
        self._loop.close()


@pytest.fixture
def guard(cluster_factory: ClusterFactory, tmp_path: Path) -> Iterator[tuple[Guard, Rig]]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(TOPIC)
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": TOPIC}))
    for lab in (east, west):
        kafka = KafkaCluster(lab.cluster)
        topic = ProtectionTopic(kafka)
        topic.make()
        GatesTopic(kafka).make()
        topic.say([level_line(TOPIC, TopicProtection(ProtectionLevel.SYNC, 1, alone_after_s=4.0))])
        kafka.close()
    rig.process.start()
    made = Guard(east, west)
    yield made, rig
    made.close()
    rig.process.end()


@pytest.mark.long
def test_a_report_comes_once_the_twin_has_the_record_and_alone_while_the_mirror_is_away(
    guard: tuple[Guard, Rig], caplog: pytest.LogCaptureFixture
) -> None:
    made, rig = guard
    keeper = made.keeper
    until(lambda: bool(made.call(lambda: TOPIC in keeper.levels)), WITHIN_S, "the level is read")
    until(lambda: made.call(lambda: keeper.refusal(TOPIC, [0])) is None, WITHIN_S, "the twin is known", rig)
    made.write()
    until(lambda: len(made.decided) == 1, WITHIN_S, "the first write is decided", rig)
    until(lambda: made.call(keeper.states) == {ORDERS: GateState.PROTECTED}, WITHIN_S, "both sides have it", rig)
    for _ in range(200):
        made.write()
        time.sleep(0.01)
    until(lambda: len(made.decided) == 201, WITHIN_S, "all are confirmed", rig)
    assert {code for code, _ in made.decided} == {Code.none}
    median_ms = 1000 * statistics.median(took_s for _, took_s in made.decided[1:])
    print(f"confirmed after {median_ms:.1f} ms at the median")
    assert made.call(keeper.states) == {ORDERS: GateState.PROTECTED}
    rig.process.end()
    made.write()
    until(lambda: made.call(keeper.states) == {ORDERS: GateState.ALONE}, WITHIN_S, "it goes on alone")
    until(lambda: len(made.decided) == 202, WITHIN_S, "the write is acknowledged by the home alone")
    code, took_s = made.decided[-1]
    assert code is Code.none
    assert 3.5 < took_s < 10, "after `alone_after_s`"
    until(lambda: f"{TOPIC}: {GateState.ALONE}" in caplog.text, WITHIN_S, "each change of state is logged")
    stalled, alone = [one.getMessage() for one in caplog.records if TOPIC in one.getMessage()][-2:]
    assert GateState.STALLED in stalled
    assert "from offset 201" in alone
