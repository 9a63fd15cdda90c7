"""Faults while records flow, and the corners where order is easily lost: afterwards every offset is the same."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.cluster import RigCluster
from testkit.faults import FaultReport, run_faults
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import ONE_COMPILER_FLAG
from twinshore.lab.mirror_process import MirrorProcess
from twinshore.lab.topic_comparison import compare_topic

WEEK_MS = 7 * 86_400_000
LINK = "east->west"
FORGETFUL = {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}


def seed() -> int:
    """Another one each time; TWINSHORE_SEED has one again."""
    return int(os.environ.get("TWINSHORE_SEED", str(random.SystemRandom().randrange(1_000_000))))


def judged(report: FaultReport) -> None:
    print(report.line())
    told = f"TWINSHORE_SEED={report.seed}: {report.line()}"
    assert report.identical, told
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), told
    assert report.incidents == 0, told


@pytest.mark.timeout(900)
def test_three_faults_change_nothing() -> None:
    kinds = ("worker killed", "target broker killed", "source network half open")
    judged(run_faults(faults=3, seed=seed(), rate=2_000, kinds=kinds, jvm_flags=(ONE_COMPILER_FLAG,)))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_twenty_faults_change_nothing() -> None:
    judged(run_faults(faults=20, seed=seed(), rate=10_000))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_twenty_faults_change_nothing_with_two_mirrors_on_one_link() -> None:
    judged(run_faults(faults=20, seed=seed(), rate=10_000, mirrors=2))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_twenty_faults_change_nothing_while_leaders_move() -> None:
    judged(run_faults(faults=20, seed=seed(), rate=5_000, brokers=3, leaders_move=True))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_faults_change_nothing_on_any_target_of_a_broadcast() -> None:
    judged(run_faults(faults=8, seed=seed(), rate=2_000, targets=2, jvm_flags=(ONE_COMPILER_FLAG,)))


def old_records(producer: Producer, topic: str, first: int, count: int, *, mixed: bool) -> None:
    """Records a week old; with `mixed` every other stretch is of today."""
    now_ms = int(time.time() * 1000)
    for number in range(first, first + count):
        fresh = mixed and (number // 40) % 2
        stamp = now_ms if fresh else now_ms - WEEK_MS
        producer.produce(topic, b"value %d" % number, b"%d" % number, timestamp=stamp)
        if number % 10 == 9:
            producer.poll(0)
            time.sleep(0.02)
    assert producer.flush(30) == 0


@pytest.mark.claim(
    "crossing",
    "paused-pump",
    "producer ids forgotten after 5 s, week-old records: a task paused beyond its lease writes nothing wrong",
)
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_task_paused_beyond_its_lease_writes_nothing_wrong_though_the_broker_forgets(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    east = cluster_factory("east")
    west = cluster_factory("west", settings=FORGETFUL)
    for topic in ("aged", "aged-mixed"):
        # A source that keeps a week would drop these as they come.
        east.create_topic(topic, partitions=2, settings={"retention.ms": "-1"})
    mirror = {"task_run_s": 5, "lease_s": 2}
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "aged.*"}, mirror=mirror)
    ports = [int(address.rpartition(":")[2]) for address in west.bootstrap]
    process = MirrorProcess(tmp_path, text, target_ports=ports)
    process.start()
    producer = Producer({**client_settings(east.cluster), "linger.ms": 5, "enable.idempotence": True})
    try:
        written = 0
        for paused_s in (0.0, 4.0, 7.0):
            old_records(producer, "aged", written, 400, mixed=False)
            old_records(producer, "aged-mixed", written, 400, mixed=True)
            written += 400
            until(lambda: bool(process.task_processes()), 240, "somebody tasks")
            tasks = process.task_processes() if paused_s else []
            for task in tasks:
                task.suspend()
            old_records(producer, "aged", written, 100, mixed=False)
            time.sleep(paused_s)
            for task in tasks:
                if task.is_running():
                    task.resume()
            written += 100
        for topic in ("aged", "aged-mixed"):
            until(partial(same_ends, east.cluster, west.cluster, topic, 2), 90, f"{topic} crossed")
            found = compare_topic(east.cluster, west.cluster, topic)
            assert found.identical, f"{found}\n{process.said[-3000:]}"
    finally:
        process.end()
    assert not Rig(tmp_path, text).ledger(LINK), "nothing happened that the ledger should know"


@pytest.mark.long
def test_a_line_on_which_an_answer_takes_longer_than_any_patience_is_not_given_up(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """A fetch of 1 MB at 50 KB/s: of so few bytes nobody is woken, but they are a sign of life."""
    east = cluster_factory("east", via_proxy=True)
    west = cluster_factory("west")
    east.create_topic("slow")
    producer = Producer({**client_settings(east.cluster), "batch.size": 16_384, "linger.ms": 5})
    mirror = Rig(tmp_path, settings_text(tmp_path, [east.wan_cluster, west.cluster], {LINK: "slow"}), spark=True)
    mirror.process.start()
    try:
        mirror.until_said("partitions on", within_s=90)
        (proxy,) = east.proxies
        proxy.set_bandwidth(50_000)
        before = sum(proxy.counters()[:2])
        for _ in range(1_600):
            producer.produce("slow", random.randbytes(1_000))
        assert producer.flush(30) == 0
        until(partial(same_ends, east.cluster, west.cluster, "slow", 1), 120, "all crossed")
        assert sum(proxy.counters()[:2]) - before < 2 * 1_700_000, "nothing was asked for again and again"
        assert compare_topic(east.cluster, west.cluster, "slow").identical
    finally:
        mirror.process.end()


FAR = 2_147_483_000


def begin_far_away(cluster: RigCluster, topic: str) -> None:
    """The empty topic's only segment gets another first offset while its broker is down."""
    (broker,) = cluster.brokers
    broker.stop()
    files = list((broker.log_dir / f"{topic}-0").glob("00000000000000000000.*"))
    assert any(path.suffix == ".log" and path.stat().st_size == 0 for path in files), files
    for path in files:
        path.rename(path.with_name(f"{FAR:020d}{path.suffix}"))
    broker.restart()
    assert spans(cluster.cluster, topic, 1) == [(FAR, FAR)]


@pytest.mark.claim("crossing", "beyond-2-31", "offsets and sequences cross 2^31")
@pytest.mark.long
def test_offsets_and_sequences_cross_two_to_the_thirty_first(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    east, west = cluster_factory("east"), cluster_factory("west")
    for side in (east, west):
        side.create_topic("far")
        begin_far_away(side, "far")
    rig = Rig(
        tmp_path,
        settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "far"}, mirror={"task_run_s": 2}),
        spark=True,
    )
    rig.process.start()
    try:
        chance = random.Random(1)
        for codec in ("none", "lz4", "zstd"):
            producer = Producer({**client_settings(east.cluster), "compression.type": codec, "linger.ms": 2})
            for number in range(1_000):
                producer.produce("far", b"value" * chance.randrange(60), b"%d" % number)
                if chance.random() < 0.2:
                    producer.flush(30)
            assert producer.flush(30) == 0
        assert spans(east.cluster, "far", 1) == [(FAR, FAR + 3_000)], "2^31 lies in the midst of it"
        until(lambda: same_ends(east.cluster, west.cluster, "far", 1), 90, "all crossed", rig)
        found = compare_topic(east.cluster, west.cluster, "far")
        assert found.identical, str(found)
        assert found.records == 3_000
        until(lambda: rig.told(LINK).get(("far", 0)) == FAR + 3_000, 20, "the receipts follow", rig)
    finally:
        rig.process.end()
    assert not rig.ledger(LINK)
