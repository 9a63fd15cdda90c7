"""Who wrote last to a twin, as brokers tell: the link that the notes name, somebody else, or both."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Producer

from tests.scenarios.mirror_rig import spans
from twinshore.config.model import Link, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.switch.operations.storeless import LastWriters, RecoveredLink, find_last_writers

TOPIC = "last-written"
NOBODY = 1 << 40


def wrote(lab: LabCluster, known: set[int], partition: int) -> int:
    """A new idempotent producer's id, which has written there."""
    producer = Producer({**client_settings(lab.cluster), "enable.idempotence": True})
    producer.produce(TOPIC, b"value", partition=partition)
    assert producer.flush(30) == 0
    with closing(KafkaCluster(lab.cluster)) as kafka:
        (states,) = kafka.describe_producers([TopicPartition(TOPIC, partition)]).values()
    (mine,) = {one.producer_id for one in states} - known
    return mine


def found(lab: LabCluster, pid: int, inherited: int = 0) -> LastWriters:
    rows = tuple(TwinRow("east->west", TOPIC, number, "a" * 32, "b" * 32, 0, 0, 0, inherited) for number in range(3))
    left = RecoveredLink(Link("east", "west"), LinkIdentity("east->west", pid, 0, "east", "west"), rows, (), ())
    with closing(KafkaCluster(lab.cluster)) as kafka:
        return find_last_writers(kafka, left, {TOPIC})


def test_notes_that_are_older_than_the_last_records_are_noticed(west: LabCluster) -> None:
    west.create_topic(TOPIC, partitions=3)
    link = wrote(west, set(), 0)
    assert found(west, link) == LastWriters((), ours=True)
    assert found(west, NOBODY) == LastWriters((f"{TOPIC}-0",), ours=False)
    assert found(west, NOBODY, inherited=1) == LastWriters((), ours=False), "of when it was at home there"
    wrote(west, {link}, 0)
    assert spans(west.cluster, TOPIC, 3)[0] == (0, 2)
    both = found(west, link)
    assert both == LastWriters((f"{TOPIC}-0",), ours=True)
    assert not both.refused
