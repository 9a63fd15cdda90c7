"""Quotas of real brokers: what they let through crosses steadily, nothing rests for long, and status says why."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from twinshore.kafka.admin import alter_quotas
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import QuotaEntity
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

LINK = "east->west"
TASKS = QuotaEntity((("client-id", "twinshore-pump"),))
BYTES_S = 1_000_000
VALUE, RECORDS = os.urandom(1000), 30_000
BURST_S, MEASURED_S = 16.0, 25.0
FROZEN_S_MAX = 5.0
# What crossed at once before anybody knew of the quota counts for ten seconds, and until then fetches give nothing.
BURST_REST_S_MAX = 13.0
# A fetch that does not fit whole into what is left of a quota brings nothing.
SHARES = {"target": 0.9, "source": 0.8}
KEYS = {"target": "producer_byte_rate", "source": "consumer_byte_rate"}
# So little time for requests that each answer is throttled for a second, which is the most.
REQUEST_PERCENT = 0.01
# Older than what brokers remember a producer by, younger than what retention takes.
OLD_MS = 2 * 86_400_000
ROUNDS, ROUND_S = 6, 3.0
CAUGHT_UP_S = 150


def put(cluster: LabCluster, topic: str, records: int) -> None:
    # One batch is the least that moves: batches of 1 MB would each be a second of the quota.
    sizes = {"batch.size": 100_000, "linger.ms": 50, "queue.buffering.max.messages": 200_000}
    producer = Producer({**client_settings(cluster.cluster), **sizes})
    for partition in (0, 1):
        for _ in range(records):
            producer.produce(topic, VALUE, partition=partition)
        assert producer.flush(60) == 0


def watched(cluster: LabCluster, topic: str, seconds: float) -> tuple[float, float]:
    """Bytes a second that came, and the longest rest of a partition."""
    began_s = time.monotonic()
    first = ends = [end for _, end in spans(cluster.cluster, topic, 2)]
    moved_s = [began_s, began_s]
    rest_s = 0.0
    while (now_s := time.monotonic()) < began_s + seconds:
        time.sleep(0.2)
        seen = [end for _, end in spans(cluster.cluster, topic, 2)]
        for number in (0, 1):
            rest_s = max(rest_s, now_s - moved_s[number])
            if seen[number] > ends[number]:
                moved_s[number] = now_s
        ends = seen
    return (sum(ends) - sum(first)) * len(VALUE) / (time.monotonic() - began_s), rest_s


@pytest.mark.claim(
    "topics",
    "quotas",
    "of a byte quota of the target's brokers nine tenths cross, of one of the source's eight tenths "
    "and more; partitions rest for less than 5 s once the first burst is over, and status names the "
    "quota",
)
@pytest.mark.long
@pytest.mark.parametrize("side", ["target", "source"])
def test_what_a_quota_lets_through_crosses_steadily(
    east: LabCluster, west: LabCluster, tmp_path: Path, side: str
) -> None:
    topic, bounded = f"quota-{side}", west if side == "target" else east
    east.create_topic(topic, partitions=2)
    put(east, topic, 1)
    mirror = {"tasks_per_link": 1, "task_run_s": 30 if side == "target" else 120}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {LINK: topic}, mirror=mirror))
    with closing(KafkaCluster(bounded.cluster)) as kafka:
        rig.process.start()
        try:
            until(lambda: same_ends(east.cluster, west.cluster, topic, 2), 150, "it runs", rig)
            alter_quotas(kafka, TASKS, {KEYS[side]: float(BYTES_S)})
            time.sleep(2.0)
            put(east, topic, RECORDS)
            _, first_rest_s = watched(west, topic, BURST_S)
            rate, rest_s = watched(west, topic, MEASURED_S)
            said = rig.verb("status")
            print(f"{rate / 1e6:.2f} of {BYTES_S / 1e6} MB/s, longest rest {first_rest_s:.1f} s, then {rest_s:.1f} s")
            assert SHARES[side] * BYTES_S <= rate <= 1.1 * BYTES_S
            assert rest_s < FROZEN_S_MAX
            assert first_rest_s < BURST_REST_S_MAX
            assert f"held back by the {side}'s quota" in " ".join(said.split())
            alter_quotas(kafka, TASKS, {KEYS[side]: None})
            until(lambda: same_ends(east.cluster, west.cluster, topic, 2), 60, "all has crossed", rig)
            assert not rig.ledger(LINK)
        finally:
            alter_quotas(kafka, TASKS, {KEYS[side]: None})
            rig.process.end()


def put_some(cluster: LabCluster, backfill: str, transactional: str, number: int) -> None:
    old_ms = int(time.time() * 1000) - OLD_MS
    plain = Producer(client_settings(cluster.cluster))
    grouped = Producer({**client_settings(cluster.cluster), "transactional.id": f"writer-{number}"})
    grouped.init_transactions(60)
    grouped.begin_transaction()
    for partition in (0, 1):
        for _ in range(5):
            plain.produce(backfill, VALUE, partition=partition, timestamp=old_ms)
            grouped.produce(transactional, VALUE, partition=partition)
    assert plain.flush(60) == 0
    grouped.commit_transaction(60)


@pytest.mark.claim(
    "topics",
    "request-quotas",
    "under a quota for requests that throttles each answer for a second a backfill, transactions and "
    "each tide's first batch cross, and status names the quota",
)
@pytest.mark.long
def test_what_no_sequence_guards_crosses_under_a_quota_for_requests_too(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    """A backfill and markers, over several task runs: each asks first where the twin ends, and the answer is
    throttled for longer than it counts."""
    topics = "quota-backfill", "quota-transactional"
    for topic in topics:
        east.create_topic(topic, partitions=2)
    put_some(east, *topics, 0)

    def crossed() -> bool:
        return all(same_ends(east.cluster, west.cluster, topic, 2) for topic in topics)

    def ends() -> list[object]:
        return [spans(one.cluster, topic, 2) for one in (east, west) for topic in topics]

    mirror = {"tasks_per_link": 1, "task_run_s": 15}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "|".join(topics)}, mirror=mirror))
    with closing(KafkaCluster(west.cluster)) as kafka:
        rig.process.start()
        try:
            until(crossed, 150, "it runs", rig)
            alter_quotas(kafka, TASKS, {"request_percentage": REQUEST_PERCENT})
            time.sleep(2.0)
            held = False
            for number in range(ROUNDS):
                put_some(east, *topics, number + 1)
                time.sleep(ROUND_S)
                held |= "held back by the target's quota" in " ".join(rig.verb("status").split())
            began_s = time.monotonic()
            try:
                until(crossed, CAUGHT_UP_S, "it crosses in spite of the quota", rig)
            except AssertionError as error:
                error.add_note(f"ends of {topics} on both sides: {ends()}; {rig.verb('status')}")
                raise
            print(f"all had crossed {time.monotonic() - began_s:.1f} s after the last was written")
            assert held
            assert not rig.ledger(LINK)
        finally:
            alter_quotas(kafka, TASKS, {"request_percentage": None})
            rig.process.end()
