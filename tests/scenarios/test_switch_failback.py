"""The old home of a forced switch comes back: what never crossed is saved, and it becomes a twin again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import KafkaException
from typer.testing import CliRunner

from testkit.clients import add_partitions, delete_topic
from testkit.errors import mentions
from tests.scenarios.killed_at import GRACE_S, LEASE_S
from tests.scenarios.mirror_rig import Rig, read_all, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switch import switch
from tests.scenarios.test_switched_home import Stage, read
from twinshore.cli.app import app
from twinshore.config.errors import RefusedError
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.runtime import lease_keeper
from twinshore.state.store import open_store
from twinshore.switch.core.steps import SwitchStep

DIVERGED, QUIET = TOPICS = ("back-orders", "back-quiet")
GROUP = "back-readers"
PARTITIONS = 2
QUICK = {"tasks_per_link": 1, "refresh_s": 0.5}


@pytest.fixture
def stage(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Stage]:
    """A forced switch has moved both topics to west by hand; east took more of one of them meanwhile."""
    for topic in TOPICS:
        east.create_topic(topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            fill(east, topic, 10, partition=partition)
    links = {"east->west": "back-.*", "west->east": "back-.*"}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    with open_store(url_in(tmp_path)) as store:
        made = Stage(rig, store, east, west)
        rig.process.start()
        until(lambda: made.level(TOPICS), 120, "the first crossing", rig)
        yield made
        rig.process.end()
    for lab, topic in product((east, west), TOPICS):
        with suppress(KafkaException):
            delete_topic(lab.cluster, topic)


def written_at_last(lab: LabCluster, topic: str, records: int) -> None:
    """What the old home took and never sent: plain records, an aborted and a committed transaction."""
    producer = Producer(client_settings(lab.cluster))
    for number in range(records):
        stamped = {"partition": 0, "timestamp": 1_700_000_000_000 + number, "headers": [("kind", b"late")]}
        producer.produce(topic, b"late %d" % number, b"key %d" % number, **stamped)  # type: ignore[arg-type]
    assert producer.flush(30) == 0
    bound = Producer({**client_settings(lab.cluster), "transactional.id": "late"})
    bound.init_transactions(60)
    for ends in (bound.abort_transaction, bound.commit_transaction):
        bound.begin_transaction()
        for number in range(3):
            bound.produce(topic, b"bound %d %s" % (number, ends.__name__.encode()), b"bound", partition=0)
        assert bound.flush(30) == 0, "what is aborted is in the log, too"
        ends(60)


def commit(lab: LabCluster, topic: str, places: dict[int, int]) -> None:
    consumer = Consumer({**client_settings(lab.cluster), "group.id": GROUP})
    offsets = [TopicPartition(topic, partition, place) for partition, place in places.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def group_at(lab: LabCluster) -> list[int]:
    return read_group_offsets(lab.cluster, GROUP, DIVERGED, [0, 1])


def moved_by_force(stage: Stage, late: int) -> tuple[LabCluster, LabCluster]:
    """The old home and the new one. The old one took `late` records that never crossed."""
    held = stage.let_go(TOPICS)
    if late:
        written_at_last(stage.home, DIVERGED, late)
    stage.flip(TOPICS)
    stage.store.topics_in_switch.end(held)
    for topic in TOPICS:
        fill(stage.twin, topic, 5, partition=1)
    return stage.home, stage.twin


def exported_again(stage: Stage, path: Path) -> None:
    """The new home keeps what was rescued: another host, which lacks the file, gets the same one."""
    _, said = switch(stage.rig, "rescue", "list")
    assert f"{path}: {DIVERGED}-0 of east, offsets 10 to 37: 26 records, 23 of them committed" in said
    exported = path.read_bytes()
    path.unlink()
    _, said = switch(stage.rig, "rescue", "list")
    assert f"twinshore.rescued on west: {DIVERGED}-0 of east, offsets 10 to 37: 26 records" in said
    code, said = switch(stage.rig, "rescue", "export")
    assert (code, path.read_bytes()) == (0, exported), said


def test_what_never_crossed_is_saved_and_the_old_home_is_a_twin_again(stage: Stage) -> None:
    commit(stage.home, DIVERGED, {0: 4, 1: 7})
    until(lambda: group_at(stage.twin) == [4, 7], 60, "the group has crossed", stage.rig)
    east, west = moved_by_force(stage, 20)
    fill(west, DIVERGED, 7, partition=0)
    # Somebody reads on in what never crossed: on west other records have these offsets.
    commit(east, DIVERGED, {0: 25, 1: 7})
    late = [one for one in read(east, DIVERGED, 0, "read_committed") if one[0] >= 10]
    before = read(east, DIVERGED, 0, "read_uncommitted")
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    # Nothing guards east here, and the link has nothing to write to this partition that would meet them.
    until(lambda: spans(east.cluster, DIVERGED, PARTITIONS)[1] == (0, 16), 60, "it goes on", stage.rig)
    fill(east, DIVERGED, 3, partition=1)

    code, said = switch(stage.rig, "failback", "back-.*", "--old", "east", "--dry-run")
    assert f"to be rescued: {DIVERGED}-0 offsets 10 to 37 of east, 26 records, 23 of them committed" in said
    assert f"to be rescued: {DIVERGED}-1 offsets 16 to 18 of east, 3 records, 3 of them committed" in said
    assert mentions(said, "to be deleted", "from west", f"topic {DIVERGED} on east")
    assert not any(QUIET in line for line in said.splitlines() if line.startswith("to be"))
    assert mentions(said, "east has no authorizer", f"{DIVERGED}, {QUIET}")
    assert read(east, DIVERGED, 0, "read_uncommitted") == before, "it only looked"

    code, said = switch(stage.rig, "failback", "back-.*", "--old", "east", "--yes")
    assert code == 0, said
    assert "done: 29 records rescued to" in said
    path, strays = sorted((stage.rig.folder / "rescued").iterdir())
    assert [json.loads(line)["offset"] for line in strays.read_text().splitlines()[1:-1]] == [16, 17, 18]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["first"], lines[0]["end"], lines[-1]) == (10, 38, {"v": 1, "records": 26, "committed": 23})
    assert [one["offset"] for one in lines[1:-1]] == [offset for offset, _, _ in before if offset >= 10]
    until(lambda: stage.level(TOPICS), 60, "filled again", stage.rig)
    for topic, partition in product(TOPICS, range(PARTITIONS)):
        assert read(east, topic, partition, "read_committed") == read(west, topic, partition, "read_committed")
    assert group_at(east) == [10, 7], "never in the tail that is no more"
    assert group_at(west) in ([4, 7], [10, 7]), "what was written there since is not passed over"
    assert stage.open_rows() == {}
    in_west = read(west, DIVERGED, 0, "read_committed")
    exported_again(stage, path)
    assert "late 0" in CliRunner().invoke(app, ["switch", "rescue", "show", str(path)], catch_exceptions=False).output
    code, said = switch(stage.rig, "rescue", "reinject", str(path), "--to", DIVERGED, "--dry-run")
    assert mentions(said, "23 committed records", f"{DIVERGED}-0 on west")
    assert mentions(said, "east", f"group {GROUP}")
    for _ in range(2):
        code, said = switch(stage.rig, "rescue", "reinject", str(path), "--to", DIVERGED, "--yes")
        assert code == 0, said
        more = [(key, value) for _, key, value in read(west, DIVERGED, 0, "read_committed")][len(in_west) :]
        assert more == [(key, value) for _, key, value in late], "each once, and none that was aborted"
    assert mentions(said, "written before")
    until(lambda: stage.level(TOPICS), 60, "they cross as any other", stage.rig)
    (first, *_) = read_all(west.cluster, DIVERGED, 0)[len(in_west) :]
    assert first[3:] == (
        [("kind", b"late"), ("twinshore-rescued", f"east {DIVERGED}-0 10".encode())],
        1_700_000_000_000,
    )
    told = [row.incident for row in stage.store.incidents.rows("west->east") if row.incident.kind == "tail rescued"]
    assert [(one.topic, one.partition, one.from_offset, one.to_offset) for one in told] == [
        (DIVERGED, 0, 10, 38),
        (DIVERGED, 1, 16, 19),
    ]


@pytest.mark.long
def test_a_topic_that_got_another_partition_there_stays(stage: Stage) -> None:
    east, _ = moved_by_force(stage, 3)
    add_partitions(east.cluster, DIVERGED, PARTITIONS + 1)
    fill(east, DIVERGED, 3, partition=PARTITIONS)
    _, said = switch(stage.rig, "failback", DIVERGED, "--old", "east", "--yes", expected=RefusedError)
    assert f"topic {DIVERGED} has 3 partitions on east" in said
    assert len(read(east, DIVERGED, PARTITIONS, "read_committed")) == 3


@pytest.mark.long
def test_where_nothing_diverged_nothing_is_deleted(stage: Stage) -> None:
    east, west = moved_by_force(stage, 0)
    until(lambda: stage.level(TOPICS), 60, "on from the new home", stage.rig)
    ids = [row.target_topic_id for row in stage.store.twins.of("west->east")]
    code, said = switch(stage.rig, "failback", "back-.*", "--old", "east", "--yes")
    assert code == 0, said
    assert mentions(said, "nothing diverged", "east", "west")
    assert "done: nothing diverged, and nothing was rescued" in said
    assert [row.target_topic_id for row in stage.store.twins.of("west->east")] == ids
    assert not (stage.rig.folder / "rescued").exists()
    for topic, partition in product(TOPICS, range(PARTITIONS)):
        assert read(east, topic, partition, "read_uncommitted") == read(west, topic, partition, "read_uncommitted")


@pytest.mark.long
def test_markers_right_below_the_point_hide_nothing_and_are_no_other_history(stage: Stage) -> None:
    """What ended there was a transaction, or the switch before: both leave markers, which cross as fillers."""
    bound = Producer({**client_settings(stage.home.cluster), "transactional.id": "ended"})
    bound.init_transactions(60)
    for ends in (bound.commit_transaction, bound.abort_transaction):
        bound.begin_transaction()
        bound.produce(DIVERGED, ends.__name__.encode(), b"bound", partition=0)
        assert bound.flush(30) == 0
        ends(60)
    until(lambda: stage.level(TOPICS), 60, "they have crossed", stage.rig)
    moved_by_force(stage, 20)
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    code, said = switch(stage.rig, "failback", DIVERGED, "--old", "east", "--dry-run")
    assert (code, f"to be rescued: {DIVERGED}-0 offsets 14 to 41 of east, 26 records" in said) == (0, True), said
    code, said = switch(stage.rig, "failback", DIVERGED, "--old", "east", "--mapped", "--dry-run")
    assert (code, f"continues after that, mapped, and nothing is deleted: topic {DIVERGED}" in said) == (0, True), said


@pytest.mark.long
def test_whoever_reads_there_stops_it_and_so_does_a_mirror_that_is_not_there(stage: Stage) -> None:
    east, _ = moved_by_force(stage, 3)
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    asked = ("failback", "back-.*", "--old", "east", "--yes")
    reader = Consumer({**client_settings(east.cluster), "group.id": GROUP, "auto.offset.reset": "earliest"})
    reader.subscribe([DIVERGED])
    until(lambda: bool(reader.consume(1, timeout=0.5)), 60, "it reads", stage.rig)
    reader.commit(asynchronous=False)
    before = read(east, DIVERGED, 0, "read_uncommitted")
    _, said = switch(stage.rig, *asked, expected=RefusedError)
    assert mentions(said, "members on east", GROUP)
    reader.close()
    assert read(east, DIVERGED, 0, "read_uncommitted") == before
    stage.rig.process.end()
    _, said = switch(stage.rig, *asked, expected=RefusedError)
    assert "no mirror runs west->east now" in said, "nobody would fill again what it deletes"
    assert read(east, DIVERGED, 0, "read_uncommitted") == before


@pytest.mark.claim(
    "switch",
    "killed-failback",
    "a fail-back killed at three steps on brokers, gone on with: each tail saved once",
)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(SwitchStep.RESCUE, marks=pytest.mark.long),
        pytest.param(SwitchStep.REBUILD, marks=pytest.mark.long),
        pytest.param(SwitchStep.RESTORE_OFFSETS, marks=pytest.mark.long),
    ],
)
def test_killed_at_a_step_it_is_gone_on_with(stage: Stage, step: SwitchStep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right behind what was done of the step at once, before anybody wrote that down."""
    monkeypatch.setattr(lease_keeper, "LEASE_S", LEASE_S)
    monkeypatch.setattr(lease_keeper, "GRACE_S", GRACE_S)
    east, west = moved_by_force(stage, 3)
    commit(east, DIVERGED, {0: 12, 1: 3})
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    asked = ("switch", "failback", DIVERGED, "--old", "east", "--yes", "--settings", str(stage.rig.process.settings))
    command = [sys.executable, "-m", "tests.scenarios.killed_at", step, "first", *asked]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -9, killed.stdout + killed.stderr
    code, said = switch(stage.rig, "resume")
    assert code == 0, said
    assert "done: 9 records rescued to" in said
    (path,) = (stage.rig.folder / "rescued").iterdir()
    assert json.loads(path.read_text().splitlines()[-1]) == {"v": 1, "records": 9, "committed": 6}
    until(lambda: stage.level(TOPICS), 60, "filled again", stage.rig)
    for partition in range(PARTITIONS):
        assert read(east, DIVERGED, partition, "read_committed") == read(west, DIVERGED, partition, "read_committed")
    assert group_at(east) == [10, 3]
    told = [row for row in stage.store.incidents.rows("west->east") if row.incident.kind == "tail rescued"]
    assert len(told) == 1, "one row, however often it was saved"


@pytest.mark.long
def test_mapped_nothing_is_deleted_and_the_twin_goes_on_behind_what_never_crossed(stage: Stage) -> None:
    east, west = moved_by_force(stage, 20)
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    before = read(east, DIVERGED, 0, "read_committed")
    end = spans(east.cluster, DIVERGED, 2)[0][1]
    ids = [row.target_topic_id for row in stage.store.twins.of("west->east")]
    reader = Consumer({**client_settings(east.cluster), "group.id": "back-live", "auto.offset.reset": "earliest"})
    reader.subscribe([DIVERGED])
    until(lambda: bool(reader.consume(1, timeout=0.5)), 60, "it reads", stage.rig)
    code, said = switch(stage.rig, "failback", "back-.*", "--old", "east", "--mapped", "--dry-run")
    continues = f"continues after that, mapped, and nothing is deleted: topic {DIVERGED} on east"
    assert (code, continues in said) == (0, True)
    code, said = switch(stage.rig, "failback", "back-.*", "--old", "east", "--mapped", "--yes")
    assert code == 0, said
    assert "done: 26 records rescued to" in said
    reader.close()
    assert [row.target_topic_id for row in stage.store.twins.of("west->east")] == ids, "nothing was deleted"
    for number in range(3):
        fill(west, DIVERGED, 30, partition=0)
        written_by(west, number)
        fill(west, DIVERGED, 3, partition=1)
    news = [(key, value) for offset, key, value in read(west, DIVERGED, 0, "read_committed") if offset >= 10]
    assert len(news) == 90 + 3 * 5

    def there() -> list[tuple[int, bytes | None, bytes | None]]:
        return read(east, DIVERGED, 0, "read_committed")

    until(lambda: len(there()) == len(before) + len(news), 60, "all has crossed", stage.rig)
    assert there()[: len(before)] == before, "what never crossed stays where it was"
    assert [(key, value) for _, key, value in there()[len(before) :]] == news
    assert there()[len(before)][0] >= end
    _, said = switch(stage.rig, "failback", DIVERGED, "--old", "east", "--yes", expected=RefusedError)
    assert "go on as mapped" in said
    wanted = read(west, DIVERGED, 1, "read_committed")
    until(lambda: len(read(east, DIVERGED, 1, "read_committed")) == len(wanted), 60, "its neighbour, too", stage.rig)
    assert [one[1:] for one in read(east, DIVERGED, 1, "read_committed")] == [one[1:] for one in wanted]
    assert stage.open_rows() == {}

    places = {offset: number for number, (offset, _, _) in enumerate(there()[len(before) :])}
    fifth = [offset for offset, _, _ in read(west, DIVERGED, 0, "read_committed") if offset >= 10][5]
    commit(west, DIVERGED, {0: fifth, 1: 7})
    until(lambda: places.get(group_at(east)[0]) == 5, 60, "a group by offset runs", stage.rig)
    assert group_at(east)[1] == 7

    stage.rig.process.end()
    fill(west, DIVERGED, 5, partition=0)
    stage.rig.process.start()
    until(lambda: len(there()) == len(before) + len(news) + 5, 90, "on after a restart", stage.rig)
    assert stage.open_rows() == {}
    proved = stage.rig.verb("prove", "--here", "--link", "west->east", "--topic", DIVERGED)
    assert "identical: 2 of 2 partitions identical" in proved


@pytest.mark.long
@pytest.mark.parametrize("step", [SwitchStep.STOP_REPLICATION, SwitchStep.CONTINUE_MAPPED])
def test_mapped_it_is_killed_and_gone_on_with(stage: Stage, step: SwitchStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "LEASE_S", LEASE_S)
    monkeypatch.setattr(lease_keeper, "GRACE_S", GRACE_S)
    east, west = moved_by_force(stage, 3)
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    before = read(east, DIVERGED, 0, "read_committed")
    asked = ("switch", "failback", DIVERGED, "--old", "east", "--mapped", "--yes")
    command = [sys.executable, "-m", "tests.scenarios.killed_at", step, "first", *asked]
    command += ["--settings", str(stage.rig.process.settings)]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -9, killed.stdout + killed.stderr
    fill(west, DIVERGED, 4, partition=0)
    code, said = switch(stage.rig, "resume")
    assert (code, "done: 9 records rescued to" in said) == (0, True), said
    wanted = len(before) + 4
    until(lambda: len(read(east, DIVERGED, 0, "read_committed")) == wanted, 60, "all has crossed", stage.rig)
    assert read(east, DIVERGED, 0, "read_committed")[: len(before)] == before
    assert stage.open_rows() == {}


def written_by(lab: LabCluster, number: int) -> None:
    """A transaction that is aborted, and one that is committed."""
    producer = Producer({**client_settings(lab.cluster), "transactional.id": f"since {number}"})
    producer.init_transactions(60)
    for ends in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(DIVERGED, b"since %d" % record, b"since", partition=0)
        assert producer.flush(30) == 0
        ends(60)
