"""What a target may do to its mirror while it serves everybody else: take back a right, run out of disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from tests.scenarios.incident_stage import LINK, QUICK, IncidentStage
from tests.scenarios.mirror_rig import read_all
from twinshore.config.model import TopicPartition
from twinshore.kafka.admin import create_acls, delete_acls, read_acls
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType
from twinshore.replication.controller import LOG_START_INTERVAL_S
from twinshore.state.store import open_store

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
RECORDS = [[b"one", b"two"], [b"three"]]
FORGETFUL = {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}
STEP_BYTES_MAX = 2 << 30
FOLLOW_S = 6.0  # as the stage's settings say


def deny(topic: str, operation: AclOperation) -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, "User:mirror", "*", operation, AclPermission.DENY)


@pytest.fixture(scope="module")
def step_bytes() -> int:
    """What the ballast takes per bound: enough to stand out, little of what is free."""
    return min(STEP_BYTES_MAX, shutil.disk_usage(tempfile.gettempdir()).free // 20)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, step_bytes: int) -> Iterator[IncidentStage]:
    scram = LabSecurity.SASL_SCRAM_256
    west = RigCluster("west", security=scram, authorizer=True, users=("mirror",), jvm_flags=QUICK, settings=FORGETFUL)
    disk = shutil.disk_usage(tempfile.gettempdir())
    step = 100.0 * step_bytes / disk.total
    free = 100.0 * disk.free / disk.total
    mirror = {
        "tasks_per_link": 1,
        "task_run_s": 5,
        "disk_check_s": 1,
        "disk_warn_percent": round(free - step, 4),
        "disk_pause_percent": round(free - 2 * step, 4),
    }
    made = IncidentStage(tmp_path_factory.mktemp("targets"), mirror, west=west)
    try:
        made.up()
        for kind, name in (("broker", "kafka-cluster"), ("topic", "*")):
            add_acl(west.cluster, "mirror", "all", kind, name)
        for topic in ("orders", "riddle"):
            made.east.create_topic(topic, partitions=2)
            made.put(made.east, topic, 0, RECORDS)
        made.east.create_topic("uncut")
        made.put(made.east, "uncut", 0, [[b"value %d" % number for number in range(100)]])
        made.delete_records("uncut", 0, 60)
        with closing(KafkaCluster(west.cluster)) as client:
            create_acls(client, [deny("uncut", AclOperation.DELETE)])
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.claim(
    "topics",
    "rights",
    "a right taken back is told apart from a target that is away; given back, it goes on by itself",
)
def test_a_right_that_is_taken_back_and_given_again(stage: IncidentStage) -> None:
    stage.crossed("orders", 0)
    with closing(KafkaCluster(stage.west.cluster)) as west:
        create_acls(west, [deny("orders", AclOperation.WRITE)])
        # The controller has it first, the broker a moment later.
        stage.until(lambda: deny("orders", AclOperation.WRITE) in (read_acls(west) or ()), 10, "it is in force")
        stage.put(stage.east, "orders", 0, RECORDS)
        row = stage.row("orders", "rights lost")
        assert (row.incident.partition, row.incident.from_offset, row.closed_ms) == (0, 3, None)
        assert "the twin refuses offsets 3" in row.incident.sentence
        assert "at the target Describe, Create, Write" in row.incident.sentence
        print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
        assert not stage.rows("", "target away"), "it is there, it only refuses"
        delete_acls(west, [deny("orders", AclOperation.WRITE)])
    print(f"told: went on by itself after {stage.crossed('orders', 0):.1f} s")
    stage.row("orders", "rights lost", closed=True)


@pytest.mark.claim(
    "topics",
    "no-filler",
    "without the right to cut a twin its readers see no record that its source has not, from the first offset on",
)
def test_a_twin_that_may_not_be_cut_shows_nothing_but_its_sources_records(stage: IncidentStage) -> None:
    """The topic begins at offset 60."""
    stage.crossed("uncut", 0, within_s=60)
    assert stage.spans(stage.west, "uncut", 0) == (0, 100)
    ours, theirs = (read_all(side.cluster, "uncut", 0) for side in (stage.west, stage.east))
    assert len(ours) == 40
    assert ours == theirs, "filler would be seen"
    stage.put(stage.east, "uncut", 0, [[b"one more"]])
    stage.crossed("uncut", 0, within_s=60)


@pytest.mark.claim(
    "topics",
    "uncut-told",
    "a cut that the target refuses has a row until the right is given, and takes no partition off its task",
)
def test_a_cut_that_is_refused_has_its_row_until_it_is_done_and_nothing_leaves_its_task(stage: IncidentStage) -> None:
    row = stage.row("uncut", "rights lost", within_s=3 * LOG_START_INTERVAL_S)
    assert mentions(row.incident.sentence, "Delete", "uncut")
    assert (row.incident.partition, row.incident.to_offset) == (-1, 60)
    before = len(stage.rig.process.said)
    time.sleep(2 * FOLLOW_S)
    on_tasks = [int(found) for found in re.findall(r"(?:flowing|waiting): (\d+) partitions", stage.rig.process.said)]
    after = [int(found) for found in re.findall(r": (\d+) partitions on", stage.rig.process.said[before:])]
    assert all(count >= max(on_tasks) for count in after), f"a partition left its task: {on_tasks}"
    with closing(KafkaCluster(stage.west.cluster)) as west:
        delete_acls(west, [deny("uncut", AclOperation.DELETE)])
    stage.until(lambda: stage.spans(stage.west, "uncut", 0)[0] == 60, 3 * LOG_START_INTERVAL_S, "it is cut")
    stage.row("uncut", "rights lost", closed=True)


@pytest.mark.claim(
    "topics",
    "position-disagreement",
    "position disagreement: a write in the link's own name is found out, resuming is refused",
)
def test_who_writes_in_the_links_own_name_is_found_out(stage: IncidentStage) -> None:
    stage.crossed("riddle", 0)
    with open_store(f"sqlite:///{stage.rig.folder / 'store.db'}") as store:
        identity = store.links.identity(LINK)
    assert identity is not None
    with closing(KafkaCluster(stage.west.cluster)) as west:
        named = TopicPartition("riddle", 0)
        stage.until(lambda: not west.describe_producers([named])[named], 30, "the broker has forgotten the link")
        # A look between the two writes would find a source that ends before its twin: another incident, and as true.
        stage.rig.verb("link", "pause", LINK)
        stage.rig.until_said("paused: nothing is replicated")
        writer = RawWriter(west, "riddle")
        writer.producer_id, writer.epoch = identity.producer_id, identity.producer_epoch
        answer = writer.write(1, 1_000_000)
    assert (answer.error, answer.base_offset) == (0, 3)
    for partition in (0, 1):
        stage.put(stage.east, "riddle", partition, [[b"four"]])
    stage.rig.verb("link", "resume", LINK)
    row = stage.row("riddle", "position disagreement")
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 3, 4)
    stage.crossed("riddle", 1)
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    code, said = stage.resume("riddle")
    assert code != 0
    assert mentions(said, "riddle-0", "offset 3")


def fill(path: Path, size: int) -> None:
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


@pytest.mark.claim("topics", "disk", "a disk that fills up: told, then spared; goes on by itself when there is room")
def test_a_disk_that_fills_up_is_told_then_spared(stage: IncidentStage, step_bytes: int) -> None:
    ballast = stage.west.folder / "ballast"
    stage.crossed("orders", 0)
    try:
        fill(ballast, step_bytes * 3 // 2)
        little = stage.row("", "disk near full")
        assert "broker 1 of west has" in little.incident.sentence
        assert "%) free in" in little.incident.sentence
        print(f"told: with little room a record took {stage.calm_s():.2f} s")
        fill(ballast, step_bytes * 5 // 2)
        stage.until(lambda: len(stage.rows("", "disk near full")) == 2, 30, "a second row")
        full = stage.rows("", "disk near full")[-1]
        assert "partitions are paused" in full.incident.sentence
        stage.rig.until_said("partitions are paused")
        stage.until(lambda: "0 partitions on 1 task" in stage.rig.process.said, 20, "all have left their task")
        before = stage.ends(stage.west, "orders", 1)
        stage.put(stage.east, "orders", 1, RECORDS)
        assert stage.ends(stage.west, "orders", 1) == before == 0
    finally:
        ballast.unlink(missing_ok=True)
    print(f"told: went on by itself after {stage.crossed('orders', 1):.1f} s")
    stage.until(lambda: all(row.closed_ms for row in stage.rows("", "disk near full")), 20, "rows are closed")
    assert "there is room again" in stage.rows("", "disk near full")[-1].incident.sentence
    assert not stage.rows("orders", "retention gap")
