"""The monitor on real brokers: a mirror that stands still is found and its recovery too, and so is a killed monitor."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.java_gateway import launch_gateway
from typer.testing import CliRunner

from bench.copiers import CopyJob, MirrorMaker
from bench.fault_stage import MirrorProcess
from tests.scenarios.delay_rig import PERIOD_S, History, Verb, addresses, delay_text, until
from tests.scenarios.mirror_rig import spans
from twinshore.cli.entry import app, gather
from twinshore.delay.alarms import AlarmKind
from twinshore.fleet import Cluster
from twinshore.lab import LabCluster, Workload
from twinshore.lab.clients import client_settings
from twinshore.lab.ports import free_port

LINK = "east->west"
WITHIN_S = 4 * PERIOD_S
START_S = 90.0


def processes(mirror: MirrorProcess) -> list[psutil.Process]:
    """Driver, JVM and workers."""
    return [psutil.Process(mirror.child.pid), *mirror.look()]


def start_all(folder: Path, source: Cluster, target: Cluster, seen: Cluster) -> tuple[MirrorProcess, Verb]:
    """A mirror that reaches its target as `target`, and a monitor that reaches it as `seen`; both at work."""
    section = "topics = ['late-.*']"
    mirror = MirrorProcess(folder, addresses([source, target], {LINK: section}, folder))
    mirror.start()
    monitor = Verb(folder, "watch", addresses([source, seen], {LINK: section}, folder) + delay_text(folder))
    until(lambda: (folder / "store.db").exists(), START_S, "the mirror made its store", lambda: mirror.said)
    monitor.start()
    return mirror, monitor


def at_work(folder: Path, mirror: MirrorProcess, monitor: Verb) -> None:
    until(
        lambda: f"the windows judge {LINK}" in monitor.said,
        START_S,
        "the windows judge",
        lambda: monitor.said + mirror.said,
    )
    until(Calm(History(folder)).lasts, START_S, "nothing is wrong", lambda: monitor.said + mirror.said)


class Calm:
    """No alarm for two periods: what the mirror's start caused is over."""

    def __init__(self, history: History) -> None:
        self._history, self._since_s = history, time.monotonic()

    def lasts(self) -> bool:
        if any(self._history.stands(kind) for kind in (AlarmKind.END_OFFSET, AlarmKind.RECOVERY_POINT)):
            self._since_s = time.monotonic()
        return time.monotonic() - self._since_s > 2 * PERIOD_S


@contextmanager
def committing(cluster: Cluster, topic: str) -> Iterator[None]:
    """A group that reads on, slower than records come."""
    ended = threading.Event()
    consumer = Consumer({**client_settings(cluster), "group.id": "billing", "enable.auto.commit": False})

    def commit() -> None:
        place = 0
        while not ended.wait(0.2):
            place += 20
            consumer.commit(offsets=[TopicPartition(topic, 0, place)], asynchronous=False)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        consumer.close()


def backfill_is_as_old_as_its_arrival(cluster: Cluster, history: History) -> None:
    """Records of a year ago, written now: what the monitor says of them is right within a second."""
    producer = Producer({**client_settings(cluster), "acks": "all"})
    year_ms = 365 * 86_400_000
    sent_ms = time.time_ns() // 1_000_000
    for number in range(1_000):
        producer.produce("late-backfill", b"old", timestamp=sent_ms - year_ms + number)
    assert producer.flush(30) == 0
    seen = 0
    deadline = time.monotonic() + 4 * PERIOD_S
    while seen < 2:
        assert time.monotonic() < deadline, "the monitor does not say how old they are"
        time.sleep(PERIOD_S)
        (row,) = [row for row in history.places(LINK) if row.topic == "late-backfill"]
        if row.lag_records == 1_000:
            seen += 1
            wrong_by_ms = row.recovery_point_ms - (row.at_ms - sent_ms)
            print(f"recovery point {row.recovery_point_ms} ms, off by {wrong_by_ms} ms; by timestamps: {year_ms} ms")
            assert abs(wrong_by_ms) <= 1_000


def test_a_stall_and_a_killed_monitor_are_found_and_clear(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    east.create_topic("late-orders", partitions=2)
    # A source that keeps a week would drop the backfill as it comes.
    east.create_topic("late-backfill", settings={"retention.ms": "-1"})
    history = History(tmp_path)
    mirror, monitor = start_all(tmp_path, east.cluster, west.cluster, west.cluster)
    watcher = Verb(tmp_path, "watch-watchers", monitor.settings.read_text())
    said = lambda: f"{monitor.said}\n{watcher.said}\n{mirror.said[-1500:]}"  # noqa: E731
    try:
        with Workload(east.cluster, "late-orders", records_per_s=300), committing(east.cluster, "late-orders"):
            at_work(tmp_path, mirror, monitor)
            watcher.start()
            paused = processes(mirror)
            for process in paused:
                process.suspend()
            try:
                took_s = until(lambda: history.stands(AlarmKind.END_OFFSET), WITHIN_S, "the windows saw it", said)
                print(f"windows: {took_s:.1f} s")
                until(lambda: history.stands(AlarmKind.RECOVERY_POINT), WITHIN_S, "so did the recovery point", said)
                backfill_is_as_old_as_its_arrival(east.cluster, history)
                until(lambda: history.stands(AlarmKind.MIRROR), 20, "and the watcher", said)
                until(lambda: history.stands(AlarmKind.GROUP), WITHIN_S, "the group stands still too", said)
            finally:
                for process in paused:
                    process.resume()
            for kind in (AlarmKind.END_OFFSET, AlarmKind.GROUP, AlarmKind.RECOVERY_POINT, AlarmKind.MIRROR):
                until(lambda kind=kind: not history.stands(kind), 60, f"{kind} clears", said)  # type: ignore[misc]
            monitor.kill()
            until(lambda: history.stands(AlarmKind.MONITOR), 15, "the killed monitor is missed", said)
            gather()
            checked = CliRunner().invoke(app, ["delay", "check", "--settings", str(monitor.settings)])
            assert checked.exit_code == 2, checked.output
            assert "has said nothing" in checked.output
            monitor.start()
            until(lambda: not history.stands(AlarmKind.MONITOR), 30, "it is back", said)
    finally:
        watcher.end()
        monitor.end()
        mirror.end()
    sentence = history.alarms(AlarmKind.RECOVERY_POINT)[-1].sentence
    assert "late-orders" in sentence
    assert "are on east alone" in sentence


def test_a_cut_line_is_found_and_clears(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """The mirror's line to the target is cut; the monitor's own, from elsewhere, is not."""
    east.create_topic("late-bills", partitions=2)
    history = History(tmp_path)
    mirror, monitor = start_all(tmp_path, east.cluster, west.wan_cluster, west.cluster)
    said = lambda: f"{monitor.said}\n{mirror.said[-1500:]}"  # noqa: E731
    try:
        with Workload(east.cluster, "late-bills", records_per_s=300):
            at_work(tmp_path, mirror, monitor)
            for proxy in west.proxies:
                proxy.cut()
            try:
                until(lambda: history.stands(AlarmKind.END_OFFSET), WITHIN_S, "the windows saw it", said)
                until(lambda: history.stands(AlarmKind.RECOVERY_POINT), WITHIN_S, "so did the recovery point", said)
            finally:
                for proxy in west.proxies:
                    proxy.heal()
            for kind in (AlarmKind.END_OFFSET, AlarmKind.RECOVERY_POINT):
                until(lambda kind=kind: not history.stands(kind), 60, f"{kind} clears", said)  # type: ignore[misc]
    finally:
        monitor.end()
        mirror.end()


@pytest.mark.long
def test_the_stall_of_a_pair_that_mirrormaker_mirrors_is_found(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    east.create_topic("theirs", partitions=2)
    history = History(tmp_path)
    copier = MirrorMaker()
    job = CopyJob(east.cluster, west.cluster, "theirs", run=1)
    name = copier.target_topic(job).removesuffix(".theirs")
    (tmp_path / "mm2").mkdir()
    child = copier.start(job, tmp_path / "mm2")
    source = Cluster(name, east.cluster.bootstrap)
    text = addresses([source, west.cluster], {f"{name}->west": "topics = ['theirs']\nnaming = 'prefix'"}, tmp_path)
    monitor = Verb(tmp_path, "watch", text + delay_text(tmp_path))
    monitor.start()
    try:
        with Workload(east.cluster, "theirs", records_per_s=300):
            judges = f"the windows judge {name}->west"
            until(lambda: judges in monitor.said, START_S, "its copy is watched", lambda: monitor.said)
            until(Calm(history).lasts, START_S, "nothing is wrong", lambda: monitor.said)
            psutil.Process(child.pid).suspend()
            try:
                until(
                    lambda: history.stands(AlarmKind.END_OFFSET), WITHIN_S, "the windows saw it", lambda: monitor.said
                )
            finally:
                psutil.Process(child.pid).resume()
            until(lambda: not history.stands(AlarmKind.END_OFFSET), 60, "it clears", lambda: monitor.said)
    finally:
        monitor.end()
        child.end(patience_s=10)
    assert "theirs moved by" in history.alarms(AlarmKind.END_OFFSET)[0].sentence
    assert not history.alarms(AlarmKind.RECOVERY_POINT), "no alarm rests on a guess"


def latency_by_mirrormaker(port: int) -> float:
    """Its own metric, the largest value it has seen, in milliseconds; read by the Java that Spark starts."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        java: Any = gateway.jvm
        url = java.javax.management.remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi")
        line = java.javax.management.remote.JMXConnectorFactory.connect(url)
        pattern = "kafka.connect.mirror:type=MirrorSourceConnector,*"
        beans = line.getMBeanServerConnection()
        names = beans.queryNames(java.javax.management.ObjectName(pattern), None)
        found = [float(beans.getAttribute(name, "replication-latency-ms-max")) for name in names]
        line.close()
        return max(found, default=0.0)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=20)


@pytest.mark.long
def test_mirrormakers_own_latency_is_fooled_by_old_timestamps(
    east: LabCluster, west: LabCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of the same backfill by the metric that users have now; ours is held to a second in the stall."""
    east.create_topic("aged", settings={"retention.ms": "-1"})
    copier = MirrorMaker()
    job = CopyJob(east.cluster, west.cluster, "aged", run=2)
    port = free_port()
    flags = {"port": port, "rmi.port": port, "authenticate": "false", "ssl": "false", "host": "127.0.0.1"}
    options = " ".join(f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in flags.items())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{options} -Djava.rmi.server.hostname=127.0.0.1")
    child = copier.start(job, tmp_path)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    log = tmp_path / "copier.log"
    try:
        year_ms = 365 * 86_400_000
        producer = Producer({**client_settings(east.cluster), "acks": "all"})
        for _ in range(100):
            producer.produce("aged", b"old", timestamp=time.time_ns() // 1_000_000 - year_ms)
        assert producer.flush(30) == 0
        twin = copier.target_topic(job)
        until(lambda: spans(west.cluster, twin, 1) == [(0, 100)], START_S, "it copied them", log.read_text)
        time.sleep(1.0)
        said_ms = latency_by_mirrormaker(port)
    finally:
        child.end(patience_s=10)
    print(f"MirrorMaker's replication-latency-ms-max: {said_ms:.0f}")
    assert said_ms >= year_ms
