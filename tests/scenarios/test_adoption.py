"""Copies that retention has taken, in part or whole, and transactions that came twice: where nothing proves the place,
the topic is refused.

The search rests on what brokers say of time stamps, which is asked of two versions."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import delete_records
from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, read_all, settings_text, until
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST

pytestmark = pytest.mark.claim(
    "topics",
    "adoption-proven",
    "a copy that retention has taken in part or whole, or that ends in a repeated transaction, is "
    'refused where nothing proves the place; with mapped_from = "end" only what comes from now on '
    "crosses",
)

OLD_MS = int(time.time() * 1000) - 3_600_000
IDLE, COMMANDS, AGAIN = "idle", "commands", "again"


def write(cluster: LabCluster, topic: str, values: list[bytes], at_ms: int = OLD_MS) -> None:
    producer = Producer(client_settings(cluster.cluster))
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k", partition=0, timestamp=at_ms + number)
    assert producer.flush(20) == 0


def transaction(cluster: LabCluster, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer({**client_settings(cluster.cluster), "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k", partition=0, timestamp=OLD_MS + number)
    producer.flush(20)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def test_what_retention_and_aborts_have_made_unclear_is_refused_and_told(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    end = f"-{time.time_ns() % 10**8}"
    idle, commands, again = IDLE + end, COMMANDS + end, AGAIN + end
    for cluster in (east, west):
        for topic in (idle, commands, again):
            cluster.create_topic(topic, partitions=1)
        write(cluster, idle, [b"%d" % number for number in range(50)])
        write(cluster, commands, [b"on"])
        write(cluster, again, [b"a"])
    # As retention does.
    delete_records(west.cluster, {TopicPartition(idle, 0): 50})
    # What was copied is gone from the source, and comes again.
    write(east, commands, [b"off", b"limit", b"on", b"limit"], OLD_MS + 60_000)
    delete_records(east.cluster, {TopicPartition(commands, 0): 1})
    transaction(east, again, [b"b", b"c"], commit=False)
    transaction(east, again, [b"b", b"c"], commit=True)
    write(west, again, [b"b", b"c"])
    link = f"{east.cluster.name}->{west.cluster.name}"
    text = settings_text(tmp_path, (east.cluster, west.cluster), {link: f"{idle}|{commands}|{again}"})
    rig = Rig(tmp_path, text.replace("[mirror]\n", "mode = 'mapped'\n[mirror]\n", 1))
    said = rig.verb("mirror", "plan")
    assert mentions(said, f"{idle}-0", "50 records")
    assert f"where MirrorMaker stopped with {commands}-0 cannot be proven from {commands}-0's records" in said
    assert mentions(said, f"{again}-0", 3, "aborted")
    settings = rig.process.settings
    settings.write_text(settings.read_text().replace("mode = 'mapped'", "mode = 'mapped'\nmapped_from = 'end'"))
    rig.process.start()
    try:
        rig.until_said(f"{idle}-0 is mapped: continues with 50 of the source at 50 of the twin", 120.0)
        write(east, idle, [b"new"])
        until(lambda: values_of(west, idle) == [b"new"], 120.0, "only what comes from now on", rig)
    finally:
        rig.process.end()


def values_of(cluster: LabCluster, topic: str) -> list[bytes | str | None]:
    return [value for _, _, value, _, _ in read_all(cluster.cluster, topic, 0)]


@pytest.mark.parametrize("version", [KAFKA_NEWEST, KAFKA_3])
def test_a_broker_names_no_offset_behind_the_first_record_of_a_time(
    cluster_factory: ClusterFactory, version: str
) -> None:
    """Time stamps go back and forth, many are the same, and the index knows every batch and has many segments."""
    lab = cluster_factory("times", version=version, jvm_flags=("-XX:TieredStopAtLevel=1",))
    lab.create_topic("times", partitions=1, settings={"index.interval.bytes": "1", "segment.bytes": str(1 << 20)})
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    chance, times = random.Random(seed), list[int]()
    producer = Producer({**client_settings(lab.cluster), "compression.type": "none", "linger.ms": 50})
    for _ in range(60):
        for _ in range(chance.randint(1, 4)):
            times.append(OLD_MS + 10 * chance.randint(0, 12))
            producer.produce("times", bytes(40_000), partition=0, timestamp=times[-1])
        assert producer.flush(20) == 0
    kafka = KafkaCluster(lab.cluster)
    try:
        for at_ms in (*sorted(set(times)), OLD_MS - 1, OLD_MS + 1000):
            first = next((at for at, told_ms in enumerate(times) if told_ms >= at_ms), -1)
            said = kafka.first_since(TopicPartition("times", 0), at_ms)
            assert said <= first and (said >= 0 or first < 0), (at_ms - OLD_MS, said, first)
    finally:
        kafka.close()
