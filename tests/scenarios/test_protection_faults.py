"""Faults around protected topics: elections that lose records, a twin that is away, a stranger's open transaction."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testkit.clients import delete_topic
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from tests.scenarios.plain_clients import PlainWriter
from tests.scenarios.protection_stage import (
    PLAIN,
    DelayedWriter,
    ProtectionStage,
    doubled,
    missing,
    protection_stage,
)
from tests.scenarios.switch_rig import transactional
from tests.scenarios.test_following_writers import until
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.metadata import PartitionMetadata
from twinshore.lab.cluster import LabBroker
from twinshore.protection.core.model import ProtectionIncidentKind

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# Of brokers, since a twin has its own setting for unclean elections.
UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
}
AFTERWARDS_S = 15.0
# Gates refuse by then what they cannot confirm.
SETTLED_S = 10.0
# Of a producer without idempotence.
IN_FLIGHT, BATCH = 5, 10

elections = pytest.mark.claim(
    "protection",
    "elections",
    "an unclean election at home, one of the twin, a topic deleted and made again under its writers: nothing is"
    " acknowledged that the twin lacks, and an incident or a count tells of each",
)


def go_on(writers: list[PlainWriter], more: int = 100, within_s: float = 120.0) -> None:
    wanted = [len(one.acked) + more for one in writers]
    until(
        lambda: all(len(one.acked) >= n for one, n in zip(writers, wanted, strict=True)), within_s, "acknowledgements"
    )


def two_writers(stage: ProtectionStage, topic: str) -> list[PlainWriter]:
    """One is idempotent. They give up soon, as what they wait for may never come."""
    pair = [stage.writer(topic, name, 50.0, **{**own, "message.timeout.ms": 20_000}) for name, own in KINDS.items()]
    go_on(pair, 200)
    return pair


KINDS: dict[str, dict[str, Any]] = {"once": {}, "plain": PLAIN}


def total(writers: list[PlainWriter]) -> int:
    return sum(len(one.acked) for one in writers)


def led(lab: RigCluster, topic: str) -> PartitionMetadata:
    with closing(KafkaCluster(lab.cluster, patience_s=30.0)) as kafka:
        return kafka.partition_of(TopicPartition(topic, 0), refresh=True)


def lose_the_end(lab: RigCluster, topic: str, writers: list[PlainWriter]) -> LabBroker:
    """One of two replicas dies, and falls behind; the other one dies, and the first leads. Returns the one that is
    dead."""
    brokers = {one.node_id: one for one in lab.brokers}
    first = led(lab, topic).leader
    (second,) = [node for node in led(lab, topic).replicas if node != first]
    brokers[second].kill()
    until(lambda: led(lab, topic).isr == (first,), 60, "one is in sync")
    go_on(writers)
    brokers[first].kill()
    brokers[second].restart()
    until(lambda: led(lab, topic).leader == second, 90, "an unclean election")
    return brokers[first]


def judge(stage: ProtectionStage, topic: str, writers: list[PlainWriter], before: int) -> None:
    """Nothing acknowledged is missing on west, and what happened is told."""
    reported = stage.counted(topic, *ProtectionIncidentKind)
    acked = [one for writer in writers for one in writer.stop()]
    incidents = stage.incidents(topic)
    gone = missing(stage.log(stage.west, topic), acked)
    assert gone == [], f"{len(gone)} of {len(acked)}, {before} of them before: {gone[:5]}; {incidents}"
    assert reported or incidents
    told = f"{len(acked)} records acknowledged, {len(acked) - before} of them afterwards, 0 lacked by the twin"
    print(f"told: {topic}: {told}; incidents {', '.join(incidents) or 'none'}, {reported} reports of proxies")


@elections
@pytest.mark.parametrize("side", ["home", "twin"])
def test_an_unclean_election(cluster_factory: ClusterFactory, tmp_path: Path, side: str) -> None:
    """What a twin lost of what it had confirmed, the mirror brings again from the home."""
    topic, more = f"unclean-{side}", {"copies": 2, "settings": {"min.insync.replicas": "1"}}
    east, west = (cluster_factory(name, brokers=3, heap_mb=256, settings=UNCLEAN) for name in ("east", "west"))
    with protection_stage(tmp_path, east, west, {topic: "strict"}, topic=more) as stage:
        writers = two_writers(stage, topic)
        dead = lose_the_end(east if side == "home" else west, topic, writers)
        before = total(writers)
        time.sleep(AFTERWARDS_S)
        dead.restart()
        if side == "twin":
            go_on(writers)
        time.sleep(AFTERWARDS_S)
        judge(stage, topic, writers, before)


@elections
def test_a_topic_is_deleted_and_made_again_under_its_writers(
    east: RigCluster, west: RigCluster, tmp_path: Path
) -> None:
    topic = "made-again"
    with protection_stage(tmp_path, east, west, {topic: "strict"}) as stage:
        writers = two_writers(stage, topic)
        delete_topic(east.cluster, topic)
        east.create_topic(topic)
        before = total(writers)
        until(lambda: stage.ends(east, topic) > [50], 60, "the new topic is written to")
        time.sleep(AFTERWARDS_S)
        judge(stage, topic, writers, before)


def sizes(key: str, says: str, short_s: float, full_s: float) -> pytest.MarkDecorator:
    """A claim that is shown at two sizes."""
    short = pytest.param(short_s, marks=pytest.mark.claim("protection", key, says))
    full = pytest.param(full_s, marks=pytest.mark.claim("protection", key, says, full_size=True))
    return pytest.mark.parametrize("seconds", [short, full])


@sizes(
    "away",
    "the mirror cannot reach the target, or the target is away: strict writes are refused before the home has them,"
    " sync goes on alone where it can be written down, all is protected again by itself, applications are told of no"
    " error, and a producer without idempotence repeats at most what it had in flight",
    40.0,
    300.0,
)
@pytest.mark.parametrize("what", ["link", "target"])
def test_the_target_is_away(
    east: RigCluster, cluster_factory: ClusterFactory, tmp_path: Path, unique_topic: str, what: str, seconds: float
) -> None:
    """What the home alone acknowledges is written down on the target, so not while that is away."""
    strict, sync = f"{unique_topic}-strict", f"{unique_topic}-sync"
    west = cluster_factory("west", via_proxy=True)
    levels = {strict: "strict", sync: "sync"}
    with protection_stage(tmp_path, east, west, levels, mirrored=west.wan_cluster) as stage:
        bounded = {**PLAIN, "max.in.flight": IN_FLIGHT, "batch.num.messages": BATCH}
        writers = [stage.writer(strict, "once"), stage.writer(strict, "plain", **bounded), stage.writer(sync, "once")]
        java = stage.java(strict)
        go_on(writers, 200)
        java.writes(200)
        if what == "link":
            west.proxy(0).cut()
        else:
            west.brokers[0].kill()
        time.sleep(SETTLED_S)
        ends, acked = stage.ends(east, strict), len(writers[-1].acked)
        time.sleep(seconds - SETTLED_S)
        assert stage.ends(east, strict) == ends, "strict writes are refused before the home has them"
        alone = len(writers[-1].acked) - acked
        assert (alone > 100) is (what == "link"), alone
        if what == "link":
            assert stage.is_alone(sync)
            west.proxy(0).heal()
        else:
            west.brokers[0].restart()
        go_on(writers)
        java.writes(100)
        until(lambda: not stage.is_alone(sync), 120, "both sides acknowledge again")
        told = {strict: [*writers[0].stop(), *writers[1].stop(), *java.stop()], sync: writers[2].stop()}
        assert [one.failed for one in writers] == [[], [], []]
        assert java.failed() == []
        for topic, some in told.items():
            stage.level(topic)
            assert missing(stage.log(west, topic), some) == []
        twice = doubled(stage.log(east, strict), "plain.*")
        assert twice <= IN_FLIGHT * BATCH
        print(f"told: {what} away for {seconds:g} s: {twice} records twice; sync: {alone} acknowledged alone")
        paused_s = writers[0].longest_pause_s(), writers[2].longest_pause_s()
        print("told: longest without acknowledgement: strict {:.1f} s, sync {:.1f} s".format(*paused_s))


@sizes(
    "stranger",
    "a stranger's open transaction stops what stands behind it: `protection explain` names it, strict writes are"
    " refused and sync goes on alone, and all is protected again by itself behind it",
    20.0,
    60.0,
)
def test_a_strangers_open_transaction(
    east: RigCluster, west: RigCluster, tmp_path: Path, unique_topic: str, seconds: float
) -> None:
    strict, sync, free = (f"{unique_topic}-{one}" for one in ("strict", "sync", "async"))
    with protection_stage(tmp_path, east, west, {strict: "strict", sync: "sync", free: "async"}) as stage:
        writers = [stage.writer(strict, "once"), stage.writer(sync, "once")]
        go_on(writers, 200)
        mixed, apart = DelayedWriter(stage.bootstrap, strict, free), DelayedWriter(stage.bootstrap, free)
        stage.stack.callback(mixed.stop)
        stage.stack.callback(apart.stop)
        stranger = transactional(east, "stranger", **{"transaction.timeout.ms": 120_000})
        stranger.begin_transaction()
        for topic in (strict, sync):
            stranger.produce(topic, b"stranger", partition=0)
        stranger.flush(30)
        began_s = time.monotonic()
        (at,) = re.findall(r"open transaction begins at offset (\d+)", stage.made.verb("protection", "explain", strict))
        assert stage.log(east, strict)[0, int(at)][1] == "stranger"
        time.sleep(SETTLED_S - (time.monotonic() - began_s))
        ends, acked = stage.ends(east, strict), [len(one.acked) for one in writers]
        time.sleep(began_s + seconds - time.monotonic())
        assert stage.ends(east, strict) == ends, "strict writes are refused before the home has them"
        assert len(writers[0].acked) == acked[0]
        assert len(writers[1].acked) > acked[1] + 100, "the home alone acknowledges"
        assert stage.counted(strict, "refused") > 0
        stranger.commit_transaction(30)
        ended_s = time.monotonic()
        go_on(writers)
        until(lambda: not stage.is_alone(sync), 120, "both sides acknowledge again")
        back_s = time.monotonic() - ended_s
        for one in (mixed, apart):
            one.stop()
            assert one.failed == []
        told = {strict: writers[0].stop(), sync: writers[1].stop()}
        assert [one.failed for one in writers] == [[], []]
        for topic, some in told.items():
            stage.level(topic)
            assert missing(stage.log(west, topic), some) == []
        waits = f"{mixed.longest_s[free]:.1f} s where their producer mixes topics, else {apart.longest_s[free]:.1f} s"
        print(f"told: open for {seconds:g} s, protected again {back_s:.1f} s later; async records wait up to {waits}")


CLIENTS: dict[str, dict[str, Any]] = {
    "librdkafka, idempotent": {},
    "librdkafka, 1 in flight": {**PLAIN, "max.in.flight": 1},
    "librdkafka, 5 in flight": {**PLAIN, "max.in.flight": 5},
}
JAVA = {"Java, idempotent": 5, "Java, 1 in flight": 1}


def per_s(acked: Callable[[], int], seconds: float = 6.0) -> float:
    """Once it has begun."""
    until(lambda: acked() > 0, 60, "acknowledgements")
    time.sleep(2.0)
    before, began_s = acked(), time.monotonic()
    time.sleep(seconds)
    return (acked() - before) / (time.monotonic() - began_s)


def of_librdkafka(stage: ProtectionStage, topic: str, settings: dict[str, Any]) -> float:
    own = {"batch.num.messages": 100, "queue.buffering.max.messages": 5_000, **settings}
    writer = stage.writer(topic, f"w{time.monotonic_ns()}", 1e6, **own)
    found = per_s(lambda: len(writer.acked))
    writer.stop()
    assert writer.failed == []
    return found


def of_java(stage: ProtectionStage, topic: str, in_flight: int) -> float:
    # What waits is written until the end: a buffer of the default size would take minutes.
    own = {"max.in.flight.requests.per.connection": in_flight, "batch.size": 2_048, "buffer.memory": 524_288}
    writer = stage.java(topic, -1, **own)
    found = per_s(lambda: len(writer.acked()))
    writer.stop()
    assert writer.failed() == []
    return found


@pytest.mark.claim(
    "protection",
    "in-flight",
    "a sync topic of one partition, as fast as a producer can, in batches of some 100 records",
)
def test_the_throughput_of_one_producer(east: RigCluster, cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Nothing is asked of the figures: they are the clients' and this machine's."""
    west = cluster_factory("west", via_proxy=True)
    topic, far = "in-flight", west.wan_cluster
    with protection_stage(tmp_path, east, west, {topic: "sync"}, mirrored=far, served=far) as stage:
        for delay_ms in (0.0, 20.0):
            west.proxy(0).set_delay_ms(delay_ms / 2)
            found = {name: of_librdkafka(stage, topic, settings) for name, settings in CLIENTS.items()}
            found |= {name: of_java(stage, topic, in_flight) for name, in_flight in JAVA.items()}
            assert min(found.values()) > 0
            figures = "; ".join(f"{name} {rate:,.0f}/s" for name, rate in found.items())
            print(f"told: a round trip of {delay_ms:g} ms more to the twin: {figures}")
        stage.level(topic)
