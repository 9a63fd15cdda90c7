"""Several tasks of a broadcast have a connection each to a target: a line that bounds each connection carries more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import forget_links
from testkit.cluster import RigCluster
from tests.scenarios.mirror_rig import Rig, read_all, same_ends, settings_text, until
from twinshore.lab.clients import client_settings
from twinshore.lab.jars import ONE_COMPILER_FLAG

PARTITIONS = TASKS = 4
LINE_BYTES_S = 2_000_000.0
RECORDS, KEYS, VALUE = 24_000, 100, bytes(1_000)
WITHIN_S = 120.0
BROADCAST = """
[broadcasts.prices]
source = "london"
targets = ["tokyo", "paris"]
topics = ["TOPIC"]
"""
Three = tuple[RigCluster, RigCluster, RigCluster]


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    """Paris is behind a line that bounds each connection."""
    with (
        RigCluster("london", jvm_flags=(ONE_COMPILER_FLAG,)) as london,
        RigCluster("tokyo", jvm_flags=(ONE_COMPILER_FLAG,)) as tokyo,
        RigCluster("paris", jvm_flags=(ONE_COMPILER_FLAG,), via_proxy=True) as paris,
    ):
        paris.proxy(0).set_bandwidth(LINE_BYTES_S, for_each=True)
        yield london, tokyo, paris


def produce(london: RigCluster, topic: str, first: int, count: int) -> None:
    producer = Producer({**client_settings(london.cluster), "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, b"%8d" % number + VALUE, b"key %d" % (number % KEYS))
        producer.poll(0)
    assert producer.flush(60) == 0


def carried_s(folder: Path, three: Three, tasks: int) -> float:
    """How long the records take to Paris by so many tasks; each key's are there in order, at the source's offsets."""
    london, tokyo, paris = three
    for lab in three:
        forget_links(lab.cluster)
    topic = f"prices-{tasks}"
    london.create_topic(topic, partitions=PARTITIONS)
    clusters = [london.cluster, tokyo.cluster, paris.wan_cluster]
    text = settings_text(folder, clusters, {}, mirror={"tasks_per_link": tasks, "refresh_s": 1, "heartbeat_s": 0})
    rig = Rig(folder, text + BROADCAST.replace("TOPIC", topic))

    def same() -> bool:
        return same_ends(london.cluster, paris.cluster, topic, PARTITIONS)

    rig.process.start()
    try:
        for name in ("tokyo", "paris"):
            rig.until_said(f"london->{name}: flowing: {PARTITIONS} partitions", WITHIN_S)
        produce(london, topic, 0, KEYS)
        until(same, WITHIN_S, "the first", rig)
        begun_s = time.monotonic()
        produce(london, topic, KEYS, RECORDS)
        until(same, WITHIN_S, "all", rig)
        took_s = time.monotonic() - begun_s
    finally:
        rig.process.end()
    numbers: dict[bytes, int] = {}
    for partition in range(PARTITIONS):
        twin = read_all(paris.cluster, topic, partition)
        assert twin == read_all(london.cluster, topic, partition), partition
        for record in twin:
            key, value = record[1], record[2]
            assert isinstance(key, bytes) and isinstance(value, bytes)
            number = int(value[:8])
            assert number == numbers.get(key, number - KEYS) + KEYS, (key, number)
            numbers[key] = number
    assert len(numbers) == KEYS
    return took_s


@pytest.mark.long
def test_several_tasks_carry_more_where_a_line_bounds_each_connection(three: Three, tmp_path: Path) -> None:
    one_s, several_s = (carried_s(tmp_path / str(tasks), three, tasks) for tasks in (1, TASKS))
    print(f"told: {one_s:.1f} s by one task, {several_s:.1f} s by {TASKS}")
    # One connection cannot be faster, however fast the machine; that four take a third of it a quiet one shows.
    assert one_s >= RECORDS * len(VALUE) / LINE_BYTES_S * 0.9
    assert several_s < one_s / 2
