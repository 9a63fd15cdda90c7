"""The oldest brokers that the pages name: a source and a target at the very bounds, with transactions and a group."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read, written_by_transactions
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_OLDEST_SOURCE, KAFKA_OLDEST_TARGET

TOPIC, GROUP, PARTITIONS, WITHIN_S = "bounds", "bounds-readers", 2, 90.0


@pytest.mark.long
def test_a_mirror_between_the_oldest_brokers_is_exact_and_proven(tmp_path: Path) -> None:
    with (
        LabCluster("east", version=KAFKA_OLDEST_SOURCE) as east,
        LabCluster("west", version=KAFKA_OLDEST_TARGET) as west,
    ):
        east.create_topic(TOPIC, partitions=PARTITIONS)
        text = settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": TOPIC})
        rig = Rig(tmp_path, text)
        rig.process.start()
        try:
            fill(east, TOPIC, 50, partition=0)
            written_by_transactions(east, TOPIC, "bounds", ends_aborted=True)
            consumer = Consumer({**client_settings(east.cluster), "group.id": GROUP})
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 40)], asynchronous=False)
            consumer.close()
            until(lambda: same_ends(east.cluster, west.cluster, TOPIC, PARTITIONS), WITHIN_S, "it crosses", rig)
            for partition in range(PARTITIONS):
                theirs = read(east, TOPIC, partition, "read_committed")
                assert theirs
                assert read(west, TOPIC, partition, "read_committed") == theirs
            until(
                lambda: read_group_offsets(west.cluster, GROUP, TOPIC, [0]) == [40], WITHIN_S, "the group follows", rig
            )
            proved = rig.verb("prove", "--here", "--link", "east->west", "--topic", TOPIC)
            assert proved.startswith("identical"), proved
            west.brokers[0].restart()
            written_by_transactions(east, TOPIC, "bounds again", ends_aborted=False)
            until(lambda: same_ends(east.cluster, west.cluster, TOPIC, PARTITIONS), WITHIN_S, "it goes on", rig)
            proved = rig.verb("prove", "--here", "--link", "east->west", "--topic", TOPIC)
            assert proved.startswith("identical"), proved
        finally:
            rig.process.end()
