"""A spoilt twin is filled anew under its own name, while its home is under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import KafkaException
from typer.testing import CliRunner

from testkit.clients import delete_topic
from testkit.errors import mentions
from tests.scenarios.killed_at import GRACE_S, LEASE_S
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import RefusedError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime import lease_keeper
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import SwitchStep

TOPIC, PARTITIONS = "anew-orders", 2
LINK, GROUP, LOCAL = "east->west", "anew-readers", "anew-local"
FOREIGN = 7


class Stage:
    """A topic at home on east, its twin on west, and a mirror of one way."""

    def __init__(self, rig: Rig, store: Store, east: LabCluster, west: LabCluster) -> None:
        self.rig, self.store, self.east, self.west = rig, store, east, west

    def ends(self, lab: LabCluster) -> list[int]:
        return [end for _, end in spans(lab.cluster, TOPIC, PARTITIONS)]

    def level(self) -> None:
        until(lambda: self.ends(self.east) == self.ends(self.west), 90, "the twin is level", self.rig)

    def same(self) -> None:
        self.level()
        for partition in range(PARTITIONS):
            for isolation in ("read_committed", "read_uncommitted"):
                theirs = read(self.east, TOPIC, partition, isolation)
                assert read(self.west, TOPIC, partition, isolation) == theirs

    def stopped(self) -> bool:
        rows = self.store.incidents.rows(LINK, open_only=True)
        return any(row.incident.topic == TOPIC and row.incident.policy.stops for row in rows)

    def rebuild(self, *words: str, expected: type[Exception] | None = None) -> tuple[int, str]:
        register_verbs()
        asked = ["mirror", "rebuild", "east..west", TOPIC, *words, "--settings", str(self.rig.process.settings)]
        result = CliRunner().invoke(app, asked)
        if expected is not None:
            assert isinstance(result.exception, expected), result.output
            return 1, result.output + str(result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result.exit_code, result.output

    def saved(self) -> list[bytes]:
        """The values of what was rescued, by partition and offset."""
        found = []
        for path in sorted((self.rig.folder / "rescued").glob("*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found += [one["value"] for one in lines[1:-1]]
        return found


@pytest.fixture
def stage(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Stage]:
    east.create_topic(TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        fill(east, TOPIC, 50, partition=partition)
    quick = {"tasks_per_link": 1, "refresh_s": 0.5, "lease_s": 4}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "anew-.*"}, mirror=quick))
    with open_store(url_in(tmp_path)) as store:
        made = Stage(rig, store, east, west)
        rig.process.start()
        until(lambda: made.ends(west) == [50, 50], 120, "the first crossing", rig)
        yield made
        rig.process.end()
    for lab in (east, west):
        with suppress(KafkaException):
            delete_topic(lab.cluster, TOPIC)


@contextmanager
def under_load(lab: LabCluster) -> Iterator[None]:
    """Somebody writes to the topic at its home all the while, and aborts some of it."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({**client_settings(lab.cluster), "transactional.id": "anew-load"})
        producer.init_transactions(60)
        number = 0
        while not over.wait(0.02):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"load %d" % number, b"key", partition=partition)
            number += 1
            (producer.abort_transaction if number % 5 == 0 else producer.commit_transaction)(60)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(90)
    assert not thread.is_alive()


def spoil(stage: Stage, name: str = "foreign") -> list[tuple[bytes, bytes]]:
    """Somebody writes to the twin of partition 0, and the mirror finds it."""
    producer = Producer(client_settings(stage.west.cluster))
    his = [(b"his %d" % number, b"%s %d" % (name.encode(), number)) for number in range(FOREIGN)]
    for key, value in his:
        producer.produce(TOPIC, value, key, partition=0, headers=[("kind", b"foreign")])
    assert producer.flush(30) == 0
    return his


def stand(lab: LabCluster, group: str, places: list[int]) -> None:
    consumer = Consumer({**client_settings(lab.cluster), "group.id": group})
    offsets = [TopicPartition(TOPIC, partition, place) for partition, place in enumerate(places)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def claims(lab: LabCluster) -> list[str]:
    """The topic, where the cluster itself says that a switch or a rebuild has it."""
    with closing(KafkaCluster(lab.cluster)) as kafka:
        notes = HomesTopic(kafka)
        notes.read()
        return [TOPIC] if notes.log.holder(TOPIC) else []


def at(lab: LabCluster, group: str) -> list[int]:
    return read_group_offsets(lab.cluster, group, TOPIC, list(range(PARTITIONS)))


@pytest.mark.long
@pytest.mark.claim("switch", "rebuild", "a spoilt twin is rebuilt while its home is under load, and ends identical")
def test_a_spoilt_twin_is_rebuilt_while_its_home_is_under_load(stage: Stage) -> None:
    stand(stage.east, GROUP, [20, 30])
    until(lambda: at(stage.west, GROUP) == [20, 30], 60, "the group has crossed", stage.rig)
    stand(stage.west, LOCAL, [45, 5])
    with under_load(stage.east):
        his = spoil(stage)
        until(stage.stopped, 60, "it is told", stage.rig)
        before = [row.target_topic_id for row in stage.store.twins.of(LINK)]
        code, said = stage.rebuild("--dry-run")
        assert code == 0, said
        assert mentions(said, "deleted on west", "east", f"topic {TOPIC}", "2 partitions")
        assert f"to be rescued: {FOREIGN} records that east lacks, {FOREIGN} of them committed, of {TOPIC}-0" in said
        assert mentions(said, "west", f"{LOCAL}, {GROUP}")
        assert [row.target_topic_id for row in stage.store.twins.of(LINK)] == before
        code, said = stage.rebuild("--yes")
        assert code == 0, said
        assert f"done: {FOREIGN} records rescued to" in said
        assert mentions(said, f"{TOPIC} on west", "filled", "from east")
    assert [row.target_topic_id for row in stage.store.twins.of(LINK)] != before
    stage.same()
    assert at(stage.east, GROUP) == [20, 30], "nothing changes at the home"
    until(lambda: at(stage.west, GROUP) == [20, 30], 60, "its groups stand there again", stage.rig)
    assert at(stage.west, LOCAL) == [45, 5], "also those that the home does not know"
    assert stage.store.topics_in_switch.of_link(LINK) == ()
    assert not stage.stopped()
    told = [row.incident for row in stage.store.incidents.rows(LINK) if row.incident.kind == "tail rescued"]
    assert [(one.topic, one.partition) for one in told] == [(TOPIC, 0)]
    (deleted,) = [row for row in stage.store.audit.rows(LINK) if row.kind == "twin"]
    assert (deleted.subject, deleted.before) == (TOPIC, f"id {before[0]}"), "what was deleted is in the audit, once"
    assert mentions(deleted.after, "deleted on west", "from east")

    (path,) = (stage.rig.folder / "rescued").iterdir()
    listed = CliRunner().invoke(app, ["switch", "rescue", "list", "--settings", str(stage.rig.process.settings)])
    assert f"{FOREIGN} records, {FOREIGN} of them committed" in listed.output
    asked = ["switch", "rescue", "reinject", str(path), "--to", TOPIC, "--yes"]
    before_it = stage.ends(stage.east)
    for _ in range(2):
        result = CliRunner().invoke(app, [*asked, "--settings", str(stage.rig.process.settings)])
        assert result.exit_code == 0, result.output
    more = [(key, value) for place, key, value in read(stage.east, TOPIC, 0, "read_committed") if place >= before_it[0]]
    assert more == his, "once, at the home"
    stage.same()


@pytest.mark.long
def test_whoever_reads_there_stops_it(stage: Stage) -> None:
    spoil(stage)
    fill(stage.east, TOPIC, 1)
    until(stage.stopped, 60, "it is told", stage.rig)
    reader = Consumer({**client_settings(stage.west.cluster), "group.id": GROUP, "auto.offset.reset": "earliest"})
    reader.subscribe([TOPIC])
    until(lambda: bool(reader.consume(1, timeout=0.5)), 60, "it reads", stage.rig)
    reader.commit(asynchronous=False)
    before = stage.ends(stage.west)
    _, said = stage.rebuild("--yes", expected=RefusedError)
    assert mentions(said, "members on west", GROUP)
    assert stage.ends(stage.west) == before
    code, said = stage.rebuild("--yes", "--anyway")
    assert code == 0, said
    reader.close()
    stage.same()


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "first", "behind"])
@pytest.mark.parametrize(
    "step",
    [
        SwitchStep.STOP_REPLICATION,
        SwitchStep.INSPECT,
        SwitchStep.RESCUE,
        SwitchStep.COMMIT,
        SwitchStep.REBUILD,
        SwitchStep.REFILL,
        SwitchStep.RESTORE_OFFSETS,
    ],
)
def test_killed_at_a_step_it_is_gone_on_with(
    stage: Stage, step: SwitchStep, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "LEASE_S", LEASE_S)
    monkeypatch.setattr(lease_keeper, "GRACE_S", GRACE_S)
    stand(stage.west, LOCAL, [45, 5])
    with under_load(stage.east):
        spoil(stage)
        until(stage.stopped, 60, "it is told", stage.rig)
        asked = ("mirror", "rebuild", LINK, TOPIC, "--yes", "--settings", str(stage.rig.process.settings))
        command = [sys.executable, "-m", "tests.scenarios.killed_at", step, when, *asked]
        killed = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert killed.returncode == -9, killed.stdout + killed.stderr
        assert claims(stage.west) == [TOPIC], "whoever switches without the store must not move it to a part of it"
        register_verbs()
        result = CliRunner().invoke(app, ["switch", "resume", "--settings", str(stage.rig.process.settings)])
        assert result.exit_code == 0, result.output + repr(result.exception)
        assert f"done: {FOREIGN} records rescued to" in result.output
    stage.same()
    assert len(stage.saved()) == FOREIGN
    assert at(stage.west, LOCAL) == [45, 5]
    assert stage.store.topics_in_switch.of_link(LINK) == ()
    assert claims(stage.west) == []
    told = [row for row in stage.store.incidents.rows(LINK) if row.incident.kind == "tail rescued"]
    assert len(told) == 1, "one row, however often it was saved"
