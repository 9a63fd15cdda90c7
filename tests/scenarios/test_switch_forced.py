"""The old home is killed under load: its topics move by force, and it comes back with more than had crossed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import SwitchRig, ended
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.routing.homes_topic import HomesTopic

TOPIC = "forced-orders"
# Most of it is the start of a process, which a machine busy with other tests makes slow.
WRITABLE_S = 60.0


class Load:
    """Writes to two partitions without pause until its cluster is gone."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer({**client_settings(cluster), "linger.ms": 1, "log_level": 0})
        self._topic, self._over = topic, threading.Event()
        self.taken = [0, 0]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for number in range(2):
                self._producer.produce(self._topic, b"load", partition=number, on_delivery=self._told)
            self._producer.poll(0.002)

    def _told(self, error: object, message: Message) -> None:
        self.taken[message.partition() or 0] += error is None

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(5)


@pytest.fixture
def stage(cluster_factory: ClusterFactory, tmp_path: Path) -> Iterator[SwitchRig]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(TOPIC, partitions=3)
    for number in range(3):
        fill(east, TOPIC, 20, partition=number)
    # The link back is not there: the switch makes it, with one of its clusters gone.
    rig = Rig(
        tmp_path,
        settings_text(
            tmp_path, [east.cluster, west.cluster], {"east->west": "forced-.*"}, mirror={"tasks_per_link": 1}
        ),
    )
    rig.process.start()
    until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 20)] * 3, 120, "carried", rig)
    yield SwitchRig(rig, TOPIC, east, west)
    rig.process.end()


def home_line(lab: LabCluster) -> tuple[str, int, str]:
    with closing(KafkaCluster(lab.cluster)) as kafka:
        line = HomesTopic(kafka).read()[TOPIC]
        return line.home, line.term, line.state


@pytest.mark.claim(
    "switch",
    "forced-under-load",
    "all brokers of the old home killed: west takes writes within a minute on a busy machine",
)
def test_a_home_that_is_killed_under_load_and_comes_back(stage: SwitchRig) -> None:
    load = Load(stage.east.cluster, TOPIC)
    until(lambda: min(stage.ends(stage.west)[:2]) > 200, 60, "it crosses under load", stage.rig)
    # What is taken while the mirror stands still cannot have crossed.
    stage.rig.process.child.send(signal.SIGSTOP)
    seen = sum(load.taken)
    until(lambda: sum(load.taken) > seen + 50, 30, "more is taken")
    for broker in stage.east.brokers:
        broker.kill()
    stage.rig.process.child.send(signal.SIGCONT)
    load.end()
    planned = stage.switch("plan", TOPIC, "--to", "west")
    assert "east does not answer" in planned.text and "--force" in planned.text, planned.text

    began = time.monotonic()
    child, log = stage.begin("run", TOPIC, "--to", "west", "--force", "--yes")
    code = ended(child, log)
    done_s = time.monotonic() - began
    said = log.read_text(encoding="utf-8")
    assert code == 0 and mentions(said, "west->east would be added", TOPIC), said
    fill(stage.west, TOPIC, 1, partition=0)
    writable_s = time.monotonic() - began
    assert home_line(stage.west) == ("west", 2, "settled")
    # How much, if the mirror still saw it; it stood still when this was written.
    assert "were not replicated" in said or "the unreplicated offsets of east are not known" in said, said
    assert mentions(said, "east", "authorizer"), said
    assert f"`twinshore switch failback {TOPIC} --old east` saves unreplicated records" in said, said
    print(f"told: done after {done_s:.1f} s, written to after {writable_s:.1f} s")
    assert writable_s < WRITABLE_S
    points = stage.record()["topics"][0]["points"]
    for number in range(3):
        fill(stage.west, TOPIC, 5, partition=number)

    until(lambda: "nothing keeps writers from east" in open_home(stage), 60, "an open old home is told", stage.rig)
    for broker in stage.east.brokers:
        broker.restart()
    was = [end for _, end in spans(stage.east.cluster, TOPIC, 3)]
    longer = [number for number in range(3) if was[number] > points[number]]
    print(f"told: points {points}, east came back with {was}")
    assert longer, "it took records that never crossed"
    assert 2 not in longer
    before = {number: read(stage.east, TOPIC, number, "read_uncommitted") for number in longer}

    until(lambda: open_home(stage) == "", 60, "it is over once the old home has heard it", stage.rig)
    assert home_line(stage.east) == ("west", 2, "settled"), "though nobody asked for a fail-back"
    status = stage.rig.verb("status", "--json")
    open_to_all = {one["link"]: one["open_home"] for one in json.loads(status)["links"]}
    assert mentions(open_to_all["west->east"], "east has no authorizer")
    assert not open_to_all["east->west"]
    until(lambda: stage.ends(stage.east)[2] == stage.ends(stage.west)[2] == points[2] + 6, 90, "it goes on", stage.rig)
    ours, theirs = (read(lab, TOPIC, 2, "read_uncommitted") for lab in (stage.east, stage.west))
    assert ours == theirs
    until(lambda: len(open_rows(stage)) == len(longer), 60, "each is told", stage.rig)
    for number, sentence in open_rows(stage).items():
        last = was[number] - 1
        assert sentence.startswith(f"offsets {points[number]} to {last} were written here"), sentence
        assert read(stage.east, TOPIC, number, "read_uncommitted") == before[number], "nothing is overwritten"
    again = stage.switch("run", TOPIC, "--to", "east", "--yes")
    assert (again.code, home_line(stage.west)) == (1, ("west", 2, "settled")), again.text
    assert all(f"{TOPIC}-{number}" in again.text for number in longer), "what differs is named"


def open_rows(stage: SwitchRig) -> dict[int, str]:
    rows = [row for row in stage.rig.ledger("west->east") if row.closed_ms is None]
    return {row.incident.partition: row.incident.sentence for row in rows if row.incident.partition >= 0}


def open_home(stage: SwitchRig) -> str:
    rows = [row.incident for row in stage.rig.ledger("west->east") if row.closed_ms is None]
    return "; ".join(row.sentence for row in rows if row.kind is IncidentKind.OLD_HOME_OPEN)
