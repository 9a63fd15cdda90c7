"""One consumer asks again and again, and believes nothing that it heard before."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from testkit.clients import delete_topic
from testkit.watermarks import NO_WATERMARKS, read_watermarks
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import until
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster


def put(lab: LabCluster, topic: str, records: int) -> None:
    producer = Producer(client_settings(lab.cluster))
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=1)
    assert producer.flush(30) == 0


def test_a_topic_that_comes_goes_and_comes_again_is_seen_as_it_is(east: LabCluster, unique_topic: str) -> None:
    assert read_watermarks(east.cluster, unique_topic, 2) == [NO_WATERMARKS] * 2
    for records in (3, 5):
        east.create_topic(unique_topic, partitions=2)
        put(east, unique_topic, records)
        until(lambda n=records: read_watermarks(east.cluster, unique_topic, 2) == [(0, 0), (0, n)], 10, "seen")  # type: ignore[misc]
        delete_topic(east.cluster, unique_topic)
        until(lambda: read_watermarks(east.cluster, unique_topic, 2) == [NO_WATERMARKS] * 2, 10, "it is gone")


@pytest.mark.long
def test_a_broker_that_was_killed_is_asked_again(cluster_factory: ClusterFactory) -> None:
    lab = cluster_factory("killed")
    lab.create_topic("kept", partitions=2)
    put(lab, "kept", 3)
    until(lambda: read_watermarks(lab.cluster, "kept", 2)[1] == (0, 3), 10, "it is seen")
    (broker,) = lab.brokers
    broker.kill()
    assert read_watermarks(lab.cluster, "kept", 1) == [NO_WATERMARKS]
    broker.restart()
    until(lambda: read_watermarks(lab.cluster, "kept", 2)[1] == (0, 3), 20, "it is seen again")
