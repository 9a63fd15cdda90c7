"""What the mirror may cut on a target: its own twins, and nothing that took a twin's name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import add_acl, delete_records, delete_topic, topic_id
from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.scenarios.incident_stage import CALM, LINK, IncidentStage
from tests.scenarios.mirror_rig import read_all, spans_of
from tests.scenarios.rights_stage import guarded
from twinshore.config.model import Link, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.replication.controller import LOG_START_INTERVAL_S
from twinshore.replication.recovery import LogStartSync
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "topics",
    "never-cut",
    "with `never_delete` no record is cut off a twin, neither by the driver nor by a task that "
    "begins; what a link filled a new twin with goes all the same",
)

CUT_S = 3.0  # what a task cuts it has cut by then, right behind its look
LOOKS_S = 10.0  # a survey, a look of the follower and a tide's end, and more


HUNDRED = [[b"value %d" % number for number in range(100)]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[IncidentStage]:
    stage = IncidentStage(tmp_path, {"tasks_per_link": 1})
    try:
        stage.up()
        stage.east.create_topic("orders")
        stage.put(stage.east, "orders", 0, HUNDRED)
        yield stage
    finally:
        stage.close()


@pytest.mark.long
def test_a_topic_that_took_a_twins_name_keeps_its_records(stage: IncidentStage) -> None:
    """The source deletes 60 records; before the twin is cut, somebody puts a topic of their own in its place."""
    stage.start()
    stage.crossed("orders", 0)
    delete_records(stage.east.cluster, {TopicPartition("orders", 0): 60})
    time.sleep(1.5)  # The task has told of it by then, and the cut is pending.
    delete_topic(stage.west.cluster, "orders")
    time.sleep(1.5)
    stage.west.create_topic("orders")
    stage.put(stage.west, "orders", 0, [[b"their own %d" % number for number in range(500)]])
    row = stage.row("orders", "recreated topic")
    assert mentions(row.incident.sentence, "someone else")
    deadline = time.monotonic() + LOG_START_INTERVAL_S + LOOKS_S
    while time.monotonic() < deadline:
        assert stage.spans(stage.west, "orders", 0) == (0, 500), stage.rig.process.said[-2000:]
        time.sleep(1)
    assert stage.ends(stage.west, CALM, 0) == stage.ends(stage.east, CALM, 0)


@pytest.mark.long
def test_where_nothing_may_be_deleted_no_task_cuts_a_record_either(stage: IncidentStage) -> None:
    """Each task that begins looks where source and twin begin. What it filled itself is no record, and goes."""
    stage.more = "[safety]\nnever_delete = true\n"
    stage.east.create_topic("late")
    stage.put(stage.east, "late", 0, HUNDRED)
    stage.delete_records("late", 0, 60)
    stage.start()
    stage.crossed("orders", 0, within_s=60)
    stage.until(lambda: stage.spans(stage.west, "late", 0) == (60, 100), 60, "the filler is cut off")
    for topic, before in (("orders", 60), ("late", 80)):
        stage.delete_records(topic, 0, before)
    stage.rig.process.kill()
    stage.rig.process.start()
    for topic in ("orders", "late"):
        stage.put(stage.east, topic, 0, [[b"one more"]])
        stage.crossed(topic, 0, within_s=90)
    time.sleep(CUT_S)
    assert stage.spans(stage.east, "orders", 0) == (60, 101)
    assert stage.spans(stage.west, "orders", 0) == (0, 101)
    assert stage.spans(stage.west, "late", 0) == (60, 101)
    assert [seen[2] for seen in read_all(stage.west.cluster, "orders", 0)] == [*HUNDRED[0], b"one more"]


@pytest.mark.long
def test_a_refused_cut_is_told_where_filler_is_left_and_not_where_nothing_is_seen(
    tmp_path: Path, log_lines: LogLines
) -> None:
    """Both forbid it: the settings, and the target. What lies below a twin's anchor is filler, if it is a record."""
    bare, filled = TopicPartition("bare", 0), TopicPartition("filled", 0)
    doubted: list[str] = []
    with guarded("west") as west, open_store(f"sqlite:///{tmp_path}/store.db") as store:
        for named in (bare, filled):
            west.create_topic(named.topic)
            for operation in ("describe", "read"):
                add_acl(west.cluster, "mirror", operation, "topic", named.topic)
            row = TwinRow(LINK, named.topic, 0, "aa" * 16, topic_id(west.cluster, named.topic).hex(), 3, 3, 1)
            store.twins.save([row])
        producer = Producer(client_settings(west.cluster))
        for number in range(4):
            producer.produce("filled", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        with closing(KafkaCluster(west.cluster_as("mirror"))) as target:
            link, done = Link("east", "west"), dict[TopicPartition, int]()
            starts = LogStartSync(link, target, store, never=lambda: True, doubt=doubted.extend)
            starts.cut({bare: 9, filled: 9}, done)
            starts.cut({bare: 9, filled: 9}, done)
            (told,) = store.incidents.rows(LINK, open_only=True)
            assert (told.incident.topic, told.incident.kind, told.incident.to_offset) == ("filled", "rights lost", 3)
            assert (done, doubted, len(log_lines)) == ({bare: 3}, [], 1), log_lines
            add_acl(west.cluster, "mirror", "delete", "topic", "filled")
            starts.cut({bare: 9, filled: 9}, done)
        assert not store.incidents.rows(LINK, open_only=True), log_lines
        assert spans_of(west.cluster, "filled", 0) == [(3, 4)], "its one record stays"
