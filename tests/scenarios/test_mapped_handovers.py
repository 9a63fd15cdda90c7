"""Mapped twins that rest behind a hand-over, or behind offsets that nobody sees, while their leader starts again."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

pytestmark = pytest.mark.claim(
    "topics",
    "mapped-at-rest",
    "mapped partitions at rest stop for no hand-over and no restart of their leader or of the mirror,"
    " also where they end in markers that nobody sees; nothing is called lost that is there",
)

PLAIN, UNSEEN = "plain", "unseen"
PARTITIONS = {PLAIN: 60, UNSEEN: 3}
TASK_RUN_S = 4
WRITING_S = 14.0
# So long at most a mirror may take over an event on a slow machine.
CARRIED_S = 120.0


@pytest.mark.long
def test_a_mapped_partition_at_rest_stops_for_no_handover_and_for_no_restart(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    quick = ("-XX:TieredStopAtLevel=1",)
    east, west = cluster_factory("east", jvm_flags=quick), cluster_factory("west", jvm_flags=quick)
    for cluster in (east, west):
        for topic, count in PARTITIONS.items():
            cluster.create_topic(topic, partitions=count)
    each(west, b"by others")
    each(east, b"the first")
    transactions(east)
    text = settings_text(
        tmp_path,
        (east.cluster, west.cluster),
        {"east->west": f"{PLAIN}|{UNSEEN}"},
        mirror={"task_run_s": TASK_RUN_S, "tasks_per_link": 1},
    )
    text = text.replace("[mirror]\n", "mode = 'mapped'\nmapped_from = 'start'\n[mirror]\n", 1)
    rig = Rig(tmp_path, text)
    rig.process.start()
    try:
        until_told(rig, east, "what was there is told")
        # Some partition's last record crosses while an heir stands by already; then it rests.
        write_for(east, WRITING_S)
        until_told(rig, east, "all is told")
        west.brokers[0].restart()
        looked_at_again(rig, east)
        assert rig.process.end() == 0
        rig.process.start()
        looked_at_again(rig, east)
        transactions(east)
        each(east, b"the last")
        until_told(rig, east, "every partition goes on")
        assert spoilt(rig) == []
    finally:
        rig.process.end()


def looked_at_again(rig: Rig, east: LabCluster) -> None:
    """A record of one partition crosses, and its neighbours on the same broker had their look by then."""
    before = rig.process.said
    producer = Producer(client_settings(east.cluster))
    producer.produce(UNSEEN, b"a sign", partition=0)
    producer.flush(20)
    until_told(rig, east, "a sign crosses")
    time.sleep(2 * TASK_RUN_S)
    assert spoilt(rig) == [], rig.process.said[len(before) :][-2000:]


def until_told(rig: Rig, east: LabCluster, what: str) -> None:
    """All that the source has is told; or what is missing, and what the ledger says."""
    stop = time.monotonic() + CARRIED_S
    while True:
        known = told(rig)
        missing = {where: (end, known.get(where)) for where, end in ends(east).items() if known.get(where) != end}
        if not missing:
            return
        rig.process.check()
        assert not spoilt(rig), f"{what}: {spoilt(rig)}"
        assert time.monotonic() < stop, f"{what}: {missing}\n{rig.process.said[-2000:]}"
        time.sleep(0.5)


def spoilt(rig: Rig) -> list[str]:
    """What the ledger says that is not true here: nothing was lost, on either side."""
    rows = [row.incident for row in rig.ledger("east->west") if row.incident.partition >= 0]
    return [f"{one.topic}-{one.partition}: {one.kind}: {one.sentence}" for one in rows if one.kind != "target away"]


def told(rig: Rig) -> dict[tuple[str, int], int]:
    return {where: end for where, end in rig.told("east->west").items() if where[0] in PARTITIONS}


def ends(cluster: LabCluster) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for topic, count in PARTITIONS.items():
        found |= {(topic, number): end for number, (_, end) in enumerate(spans(cluster.cluster, topic, count))}
    return found


def each(cluster: LabCluster, value: bytes) -> None:
    """One record to every partition."""
    producer = Producer(client_settings(cluster.cluster))
    for topic, count in PARTITIONS.items():
        for number in range(count):
            producer.produce(topic, value, partition=number)
    producer.flush(20)


def transactions(cluster: LabCluster) -> None:
    """Each partition of the topic ends in markers; one of them in a transaction that was aborted."""
    producer = Producer({**client_settings(cluster.cluster), "transactional.id": f"unseen-{time.time_ns()}"})
    producer.init_transactions(60)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(PARTITIONS[UNSEEN]):
            if turn < 3 or number == 0:
                producer.produce(UNSEEN, b"in transaction %d" % turn, partition=number)
        producer.flush(20)
        if turn < 3:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def write_for(cluster: LabCluster, seconds: float) -> None:
    """Single records to partitions by chance, so that each rests behind its own moment."""
    producer = Producer({**client_settings(cluster.cluster), "linger.ms": 0})
    chance, stop = random.Random(), time.monotonic() + seconds
    while time.monotonic() < stop:
        producer.produce(PLAIN, b"%d" % chance.randrange(1 << 30), partition=chance.randrange(PARTITIONS[PLAIN]))
        producer.poll(0)
        time.sleep(0.04)
    producer.flush(20)
