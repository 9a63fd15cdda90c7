"""Ends of a real source of which one topic has been deleted: the others' are there at once."""

from __future__ import annotations

import time
from contextlib import closing

from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import log_ends, still_there
from twinshore.lab.clients import admin_of
from twinshore.lab.cluster import LabCluster


def test_a_deleted_topic_holds_up_no_other(east: LabCluster, unique_topic: str) -> None:
    stays, goes = f"{unique_topic[-40:]}.stays", f"{unique_topic[-40:]}.goes"
    for topic in (stays, goes):
        east.create_topic(topic, partitions=2)
    fill(east, stays, 5)
    parts = [NamedPartition(topic, number) for topic in (stays, goes) for number in (0, 1)]
    with closing(KafkaCluster(east.cluster, patience_s=3.0, call_s=3.0)) as source:
        both = log_ends(source, still_there(source, parts))
        assert (sum(both.of.values()), len(both.of)) == (5, 4)
        admin = admin_of(east.cluster)
        admin.delete_topics([goes], operation_timeout=30)[goes].result(timeout=40)
        deadline_s = time.monotonic() + 30
        while len(still_there(source, parts)) == 4:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        found = log_ends(source, parts)
        assert (set(found.gone), set(found.mute), sum(found.of.values())) == ({goes}, set(), 5)
        began_s = time.monotonic()
        assert sum(log_ends(source, still_there(source, parts)).of.values()) == 5
        assert time.monotonic() - began_s < 2.0, "nobody waits for a topic that is not there"
