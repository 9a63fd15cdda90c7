"""One topic's trouble delays no other: a partition that nobody leads, settings that may not be read; real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from twinshore.config.model import Cluster
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.state.core.values import IncidentRow

pytestmark = pytest.mark.claim(
    "topics",
    "topics-apart",
    "a source partition without a leader, and a topic whose settings may not be read, hold up no "
    "other topic or partition when a mirror starts; each has its row",
)

LINK = "east->west"
SECURED = {"security": LabSecurity.SASL_PLAIN, "authorizer": True, "users": ("mirror",), "heap_mb": 256}
LEFT, LOST = [1], [3]  # brokers of the source: the third one dies


def create(cluster: Cluster, topic: str, *places: list[int]) -> None:
    """A topic whose partitions are on these brokers. A broker that has just died may be named as the controller."""
    new = NewTopic(topic, len(places), replica_assignment=list(places))
    admin = create_admin_client(cluster)
    admin.create_topics([new], request_timeout=110)[topic].result(timeout=120)


def put(cluster: Cluster, topic: str, partition: int = 0) -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for number in range(50):
        producer.produce(topic, f"value {number}".encode(), partition=partition)
    assert producer.flush(60) == 0


class Apart:
    """A mirror whose source has three brokers and asks who one is."""

    def __init__(self, folder: Path, east: RigCluster, west: RigCluster) -> None:
        self.east, self.west = east, west
        text = settings_text(
            folder, [east.cluster_as("mirror"), west.cluster], {LINK: "t-.*"}, mirror={"tasks_per_link": 1}
        )
        # What is missing for ACLs and heartbeats is nobody's affair here.
        follow = f'[links."{LINK}".follow]\nacls = false\n[mirror]\nheartbeat_s = 0'
        self.rig = Rig(folder, text.replace("[mirror]", follow))

    def carries(self, topic: str, partition: int = 0) -> None:
        """Records more of it cross."""
        put(self.east.cluster, topic, partition)
        self.crossed(topic, partition)

    def crossed(self, topic: str, partition: int = 0) -> None:
        def same() -> bool:
            here, there = (self._end(side, topic, partition) for side in (self.east, self.west))
            return here == there >= 0

        until(same, 240, f"{topic}-{partition} crossed", self.rig)

    def _end(self, side: RigCluster, topic: str, partition: int) -> int:
        return spans(side.cluster, topic, partition + 1)[partition][1]

    def until_told(self, topic: str, kind: str, *, closed: bool = False) -> IncidentRow:
        """The topic's row of this kind, once it is there, and closed where that is asked."""

        def rows() -> list[IncidentRow]:
            told = [row for row in self.rig.ledger(LINK) if row.incident.topic == topic]
            return [row for row in told if (row.incident.kind, row.incident.partition) == (kind, -1)]

        def so() -> bool:
            return bool(rows()) and (not closed or all(row.closed_ms for row in rows()))

        until(so, 240, f"{kind} of {topic}, closed: {closed}: {self.rig.ledger(LINK)}", self.rig)
        return rows()[0]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_one_topics_trouble_delays_no_other(tmp_path: Path, cluster_factory: ClusterFactory) -> None:
    east, west = cluster_factory("east", brokers=3, **SECURED), cluster_factory("west", heap_mb=256)
    for topic, *places in (("t-good", LEFT), ("t-mixed", LEFT, LOST), ("t-closed", LEFT)):
        create(east.cluster, topic, *places)
        for number in range(len(places)):
            put(east.cluster, topic, number)
    for operation in ("describe", "read"):
        add_acl(east.cluster, "mirror", operation, "topic", "t-", prefixed=True)
    for topic in ("t-good", "t-mixed", "t-new", "t-late"):
        add_acl(east.cluster, "mirror", "describe_configs", "topic", topic)
    apart = Apart(tmp_path, east, west)
    try:
        apart.rig.process.start()
        for place in (("t-good", 0), ("t-mixed", 0), ("t-mixed", 1)):
            apart.crossed(*place)
        told = apart.until_told("t-closed", "rights lost").incident
        assert "DescribeConfigs on topic t-closed" in told.sentence, told
        apart.rig.process.end()

        # The mirror starts again while one broker is gone, with a partition of a twin and one of a topic to come.
        create(east.cluster, "t-new", LOST)
        put(east.cluster, "t-new")
        east.brokers[2].kill()
        apart.rig.process.start()
        for place in (("t-good", 0), ("t-mixed", 0)):
            apart.carries(*place)
        assert "t-new" in apart.until_told("t-new", "source away").incident.sentence
        create(east.cluster, "t-late", LEFT)
        apart.carries("t-late")

        # Each goes on by itself once its trouble is over.
        east.brokers[2].restart()
        apart.crossed("t-new")
        apart.carries("t-mixed", 1)
        add_acl(east.cluster, "mirror", "describe_configs", "topic", "t-closed")
        apart.crossed("t-closed")
        for topic, kind in (("t-new", "source away"), ("t-closed", "rights lost")):
            apart.until_told(topic, kind, closed=True)
    finally:
        apart.rig.process.end()
