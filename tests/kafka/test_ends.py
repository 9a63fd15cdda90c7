"""Ends of a real source of which one topic has been deleted: the others' are there at once."""

from __future__ import annotations

import time
from contextlib import closing

from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import find_existing_partitions, read_log_ends
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster


def test_a_deleted_topic_holds_up_no_other(east: LabCluster, unique_topic: str) -> None:
    stays, goes = f"{unique_topic[-40:]}.stays", f"{unique_topic[-40:]}.goes"
    for topic in (stays, goes):
        east.create_topic(topic, partitions=2)
    fill(east, stays, 5)
    parts = [TopicPartition(topic, number) for topic in (stays, goes) for number in (0, 1)]
    with closing(KafkaCluster(east.cluster, patience_s=3.0, call_s=3.0)) as source:
        both = read_log_ends(source, find_existing_partitions(source, parts))
        assert (sum(both.of.values()), len(both.of)) == (5, 4)
        admin = create_admin_client(east.cluster)
        admin.delete_topics([goes], operation_timeout=30)[goes].result(timeout=40)
        deadline_s = time.monotonic() + 30
        while len(find_existing_partitions(source, parts)) == 4:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        found = read_log_ends(source, parts)
        assert (set(found.gone), set(found.mute), sum(found.of.values())) == ({goes}, set(), 5)
        began_s = time.monotonic()
        assert sum(read_log_ends(source, find_existing_partitions(source, parts)).of.values()) == 5
        assert time.monotonic() - began_s < 2.0, "nobody waits for a topic that is not there"
