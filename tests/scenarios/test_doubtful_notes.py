"""What strangers write to `twinshore.twins` of a source stops no topic and no process, on real brokers."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.log_lines import LogLines
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import Cluster, Link, TwinNaming
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.claim_records import LinkClaimState
from twinshore.replication.core.lineage import Hop, Lineage
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "topics",
    "forged-notes",
    "lines that strangers write to a source's `twinshore.twins` stop no carried topic and no process,"
    " and a new topic for a minute at most; the ledger says of which they speak",
)

LINK = "east->west"
NOWHERE = Hop("x", "nowhere")


def write(cluster: Cluster, *lines: tuple[bytes, bytes | None]) -> None:
    producer = Producer({**client_settings(cluster), "acks": "all"})
    for key, value in lines:
        producer.produce("twinshore.twins", value, key, partition=0)
    assert producer.flush(30) == 0


def id_of(cluster: Cluster, topic: str) -> str:
    with closing(KafkaCluster(cluster)) as kafka:
        return kafka.metadata([topic]).topics[topic].topic_id.hex()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_forged_lines_stop_no_topic_and_no_process(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    stem = unique_topic[-30:]
    orders, other, fresh = (f"{stem}.{name}" for name in ("orders", "other", "fresh"))
    stray = f"zz-{stem}.twinshore.heartbeats"
    for topic in (orders, other, stray):
        east.create_topic(topic)
        fill(east, topic, 50)
    if "twinshore.twins" not in create_admin_client(east.cluster).list_topics(timeout=10).topics:
        east.create_topic("twinshore.twins", settings={"cleanup.policy": "compact"})
    rig = Rig(
        tmp_path,
        settings_text(tmp_path, [east.cluster, west.cluster], {LINK: f"{stem}.*"}, mirror={"tasks_per_link": 1}),
    )

    def crosses(*topics: str) -> None:
        for topic in topics:
            fill(east, topic, 50)
        for topic in topics:
            until(lambda topic=topic: same_ends(east.cluster, west.cluster, topic, 1), 240, topic, rig)  # type: ignore[misc]

    ours = TwinRow("x", other, 0, "aa" * 16, id_of(east.cluster, other), 0, 0, 1)
    forged = LinkClaimState("nowhere->east", "x").twin_lines([ours], ())
    try:
        rig.process.start()
        crosses(orders, other)
        whole = Lineage(id_of(east.cluster, other), (NOWHERE,)).to_json("x")
        announced = Lineage("", (NOWHERE,)).to_json("x")
        write(east.cluster, (orders.encode(), announced), (other.encode(), whole), *forged, (fresh.encode(), announced))
        write(east.cluster, (stem.encode(), b"[" * 100_000), (b"[" * 1_000, b"[" * 60_000))
        write(east.cluster, (f"{stem}.x".encode(), json.dumps({"topic_id": "", "path": [[[[]] * 9, 1]]}).encode()))
        crosses(orders, other)
        rig.process.end()
        rig.process.start()
        east.create_topic(fresh)
        crosses(orders, other)
        # Nobody bears out what was said of it before it was there.
        crosses(fresh)
        assert rig.process.child.alive()
        told = [row.incident for row in rig.ledger(LINK) if row.closed_ms is None]
        assert [one.kind for one in told] == ["doubtful note"], told
        assert all(topic in told[0].sentence for topic in (orders, other, fresh)), told
        names = create_admin_client(west.cluster).list_topics(timeout=10).topics
        assert not [name for name in names if name.endswith(stray)], "a name alone passes no filter"
    finally:
        rig.process.end()
        # The cluster is shared: these lines were of this test.
        write(east.cluster, *((topic.encode(), None) for topic in (orders, other, fresh, stem, f"{stem}.x")))
        write(east.cluster, *((key, None) for key, _ in forged))


def test_a_topic_of_heartbeats_is_judged_by_the_filters_that_hold_now(
    tmp_path: Path, east: LabCluster, west: LabCluster, log_lines: LogLines
) -> None:
    beats, link = (
        "far.twinshore.heartbeats",
        Link("east", "west", topics=("orders",), naming=TwinNaming.PREFIX, chain=True),
    )
    with (
        open_store(f"sqlite:///{tmp_path}/store.db") as store,
        closing(KafkaCluster(east.cluster)) as source,
        closing(KafkaCluster(west.cluster)) as target,
    ):
        descents = TopicLineage(lambda: link, store, source, target)
        assert descents.admitted({beats: ("aa", 1)}) == {}
        link = replace(link, topics=("orders", "far[.].*"))
        assert descents.admitted({beats: ("aa", 1)}) == {beats: ("aa", 1)}
        link = replace(link, exclude=("far[.].*",))
        assert descents.admitted({beats: ("aa", 1)}) == {}
    told = log_lines.of("twinshore.replication.topic_lineage")
    assert all("is no twin" in sentence for sentence in told), told
