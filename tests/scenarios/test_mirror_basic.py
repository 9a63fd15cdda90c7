"""A mirror as its user starts it, between two real clusters: what crosses, what is refused, how it stops."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions

from tests.scenarios.mirror_rig import Rig, foreign_lines, read_all, same_ends, settings_text, spans, until
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.lab.produce import Workload
from twinshore.lab.topic_comparison import compare_topic

pytestmark = pytest.mark.timeout(600)  # Spark starts first, beside whatever else this machine does
LINK = "east->west"
CODECS = ("none", "gzip", "lz4", "zstd", "snappy")
NEW_TOPIC_S = 5.0
HEADERS: list[list[tuple[str, str | bytes | None]]] = [[], [("h", b"1"), ("h", None)], [("", b"")]]


def fill(cluster: LabCluster, topic: str, records: int = 20, partition: int = 0, codec: str = "none") -> None:
    producer = Producer({**client_settings(cluster.cluster), "compression.type": codec, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, partition=partition)
    assert producer.flush(30) == 0


def cut_before(cluster: LabCluster, topic: str, offset: int) -> None:
    admin = create_admin_client(cluster.cluster)
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(timeout=30)


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One mirror for most of this module, with topics that were there before it."""
    west.create_topic("basic-foreign")
    fill(west, "basic-foreign", 3)
    west.create_topic("basic-few")
    east.create_topic("basic-foreign")
    east.create_topic("basic-few", partitions=2)
    east.create_topic("basic-steady", partitions=2)
    fill(east, "basic-steady", 500)
    folder = tmp_path_factory.mktemp("basic")
    # A new partition takes two surveys: at the default of 2 s between them it flows after 4.3 s.
    runs = {"task_run_s": 2, "refresh_s": 1}
    made = Rig(folder, settings_text(folder, [east.cluster, west.cluster], {LINK: "basic-.*"}, mirror=runs), spark=True)
    made.process.start()
    try:
        made.until_said("partitions on", within_s=90)
        yield made
    finally:
        made.process.end()


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("basic-foreign", "holds data that this link did not write"),
        ("basic-few", "has 1 partitions on the target, 2 on the source"),
    ],
)
def test_a_topic_that_cannot_be_carried_is_refused_and_left_alone(
    rig: Rig, west: LabCluster, topic: str, words: str
) -> None:
    line = rig.until_said(words)
    assert topic in line
    assert "(try: " in line, "what to do about it"
    (row,) = [row for row in rig.ledger(LINK) if row.incident.topic == topic]
    assert words in row.incident.sentence
    topics = create_admin_client(west.cluster).list_topics(timeout=10).topics
    assert len(topics[topic].partitions) == 1, "nothing was grown"
    assert [end for _, end in spans(west.cluster, topic, 1)] == [3 if topic == "basic-foreign" else 0]


def test_five_codecs_and_every_shape_of_record_cross(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    # A record of another age begins a segment, and a source that keeps a week drops old ones 30 s after its start.
    east.create_topic("basic-shapes", partitions=3, settings={"retention.ms": "-1"})
    chance = random.Random(3)
    producers = [
        Producer({**client_settings(east.cluster), "compression.type": codec, "linger.ms": 5}) for codec in CODECS
    ]
    for number in range(3_000):
        key = chance.choice((None, b"", b"k%d" % number))
        value = chance.choice((None, b"", b"v" * chance.randrange(2_000)))
        headers = chance.choice(HEADERS)
        stamp = chance.choice((0, 1, 1_600_000_000_000, int(time.time() * 1000)))
        chance.choice(producers).produce(
            "basic-shapes", value, key, partition=number % 3, timestamp=stamp, headers=headers
        )
        if number % 50 == 0:
            for producer in producers:
                producer.flush(30)
    assert all(producer.flush(30) == 0 for producer in producers)
    until(lambda: same_ends(east.cluster, west.cluster, "basic-shapes", 3), 60, "all crossed", rig)
    found = compare_topic(east.cluster, west.cluster, "basic-shapes")
    assert found.identical, str(found)
    assert found.records == 3_000


def test_append_times_cross_as_consumers_of_the_source_see_them(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    east.create_topic("basic-stamped", settings={"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        fill(east, "basic-stamped", 50, codec=codec)
    until(lambda: same_ends(east.cluster, west.cluster, "basic-stamped", 1), 60, "all crossed", rig)
    ours, theirs = (read_all(side.cluster, "basic-stamped", 0) for side in (east, west))
    assert len(ours) == 250
    assert ours == theirs


@pytest.mark.claim("topics", "empty-topics", "an empty topic has an empty twin")
def test_an_empty_topic_has_an_empty_twin(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    east.create_topic("basic-empty", partitions=5)
    until(lambda: len(topics_of(west).get("basic-empty", ())) == 5, 15, "the twin is there", rig)
    # Metadata names a partition that was just made some moments before its leader answers for it.
    until(lambda: spans(west.cluster, "basic-empty", 5) == [(0, 0)] * 5, 30, "it is empty", rig)


def topics_of(cluster: LabCluster) -> dict[str, list[int]]:
    listed = create_admin_client(cluster.cluster).list_topics(timeout=10).topics
    return {name: sorted(topic.partitions) for name, topic in listed.items()}


@pytest.mark.claim(
    "topics",
    "new-topics",
    "topics and partitions that are added while it runs flow within 5 s, surveyed every second",
)
def test_new_topics_and_partitions_flow_within_five_seconds(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    until(lambda: same_ends(east.cluster, west.cluster, "basic-steady", 2), 60, "its tasks are at work", rig)
    # What else the machine does at that moment counts too: the quickest of three is the mirror's own time.
    took_s, grew_s = (
        min(tries) for tries in zip(*(_grows(rig, east, west, f"basic-new-{n}") for n in range(3)), strict=True)
    )
    print(f"told: a new topic took {took_s:.1f} s, a new partition {grew_s:.1f} s, the quickest of three each")
    assert max(took_s, grew_s) <= NEW_TOPIC_S


def _grows(rig: Rig, east: LabCluster, west: LabCluster, topic: str) -> tuple[float, float]:
    """How long a new topic took to flow, and then a partition that was added to it."""
    east.create_topic(topic)
    fill(east, topic)
    took_s = until(lambda: spans(west.cluster, topic, 1) == [(0, 20)], 30, "the topic flows", rig)
    admin = create_admin_client(east.cluster)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(timeout=30)
    until(lambda: len(topics_of(east)[topic]) == 4, 10, "the source has grown")
    fill(east, topic, partition=3)
    return took_s, until(lambda: spans(west.cluster, topic, 4)[3] == (0, 20), 30, "the partition flows", rig)


def test_a_twin_has_settings_of_its_own(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    theirs = {"retention.ms": "600000", "max.message.bytes": "3000000", "compression.type": "zstd"}
    east.create_topic("basic-settings", settings={**theirs, "segment.bytes": "1048576"})
    until(lambda: "basic-settings" in topics_of(west), 15, "the twin is there", rig)
    found = settings_on(create_admin_client(west.cluster), "basic-settings")
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": "3000000",
        "message.timestamp.type": "CreateTime",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "1048576",
    }
    assert {name: found[name] for name in expected} == expected


def settings_on(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in answer.result(timeout=30).items()}


def test_nothing_waits_at_the_border_of_two_runs(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    """Four borders of task runs of two seconds while records come steadily."""
    east.create_topic("basic-tides", partitions=2)
    waits, last_s, last = [], 0.0, 0
    with Workload(east.cluster, "basic-tides", records_per_s=500) as load:
        until(lambda: sum(end for _, end in spans(west.cluster, "basic-tides", 2)) > 0, 30, "it flows", rig)
        last_s = deadline = time.monotonic()
        while time.monotonic() < deadline + 9:
            now = sum(end for _, end in spans(west.cluster, "basic-tides", 2))
            if now > last:
                waits.append(time.monotonic() - last_s)
                last_s, last = time.monotonic(), now
            time.sleep(0.02)
        acked = load.stop()
    until(lambda: same_ends(east.cluster, west.cluster, "basic-tides", 2), 30, "all crossed", rig)
    found = compare_topic(east.cluster, west.cluster, "basic-tides")
    assert found.identical, str(found)
    assert found.records == acked
    print(f"told: the longest wait was {max(waits):.2f} s")
    assert max(waits) < 3.0
    assert "starts again" not in rig.process.said, "a task run has died"


def test_a_remedied_topic_flows_without_a_restart(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    rig.until_said("did not write")
    fill(east, "basic-foreign", 7)
    admin = create_admin_client(west.cluster)
    admin.delete_topics(["basic-foreign"], operation_timeout=30)["basic-foreign"].result(timeout=40)
    until(lambda: spans(west.cluster, "basic-foreign", 1) == [(0, 7)], 30, "it flows", rig)
    # A slow machine may have told of the moment without a topic as well.
    rows = [row for row in rig.ledger(LINK) if row.incident.topic == "basic-foreign"]
    assert rows and all(row.closed_ms is not None for row in rows), f"the ledger knows that it is over: {rows}"


@pytest.mark.claim("topics", "restart", "a stop and a start go on where they stood")
def test_an_orderly_stop_and_a_start_go_on_where_they_stood(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    until(lambda: spans(west.cluster, "basic-steady", 2)[0] == (0, 500), 60, "some have crossed", rig)
    began_s = time.monotonic()
    assert rig.process.end() == 0
    assert time.monotonic() - began_s < 20
    assert "stopped in good order" in rig.process.said
    told = rig.told(LINK)
    assert told["basic-steady", 0] == 500, "what crossed is receipted when it stops"
    fill(east, "basic-steady", 300)
    fill(east, "basic-steady", 100, partition=1)
    rig.process.start()
    until(lambda: same_ends(east.cluster, west.cluster, "basic-steady", 2), 90, "all crossed", rig)
    found = compare_topic(east.cluster, west.cluster, "basic-steady")
    assert found.identical, str(found)
    until(lambda: rig.told(LINK).get(("basic-steady", 0)) == 800, 10, "receipts follow", rig)
    rows = [row for row in rig.ledger(LINK) if row.incident.partition >= 0]
    assert not rows, f"a partition stopped: {rows}"


@pytest.mark.long
def test_an_idle_twin_follows_its_sources_log_start(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    fill(east, "basic-steady", 400)
    ((_, end),) = spans(east.cluster, "basic-steady", 1)
    until(lambda: spans(west.cluster, "basic-steady", 1) == [(0, end)], 60, "it has crossed", rig)
    cut_before(east, "basic-steady", 321)
    took_s = until(lambda: spans(west.cluster, "basic-steady", 1) == [(321, end)], 65, "the start followed", rig)
    print(f"told: the log start followed within {took_s:.0f} s")
    found = compare_topic(east.cluster, west.cluster, "basic-steady")
    assert found.identical, str(found)


def test_a_folder_of_settings_is_left_as_it_was(rig: Rig) -> None:
    names = {path.name for path in Path(rig.folder).iterdir() if path.name != ".hypothesis"}
    assert names <= {"twinshore.toml", "mirror.log", "store.db", "store.db-wal", "store.db-shm"}, "it litters"


def test_nothing_of_spark_or_its_jvm_stands_in_the_log(rig: Rig) -> None:
    """By now it has started, was killed and has started again, on Spark."""
    assert "starting Spark" in rig.process.said
    assert foreign_lines(rig.process.said) == []
