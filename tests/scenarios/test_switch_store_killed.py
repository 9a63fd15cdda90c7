"""The old home and the store are killed together under load: its topics move without the store, which takes it all up
when it is back, and the loss that it lists then is what a comparison of both logs finds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.databases import PostgresServer
from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import SwitchRig, ended
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switch_forced import Load
from tests.scenarios.test_switch_storeless import home_line, kept
from tests.scenarios.test_switched_home import read
from twinshore.switch.operations.rescued import list_rescued_files

TOPIC = "killed-orders"
PARTITIONS = 3
CLAIM = "store-killed", "east and the store killed: west takes writes; the loss listed later is what both logs show"


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """Of this test alone: it dies."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def stage(cluster_factory: ClusterFactory, database: PostgresServer, tmp_path: Path) -> Iterator[SwitchRig]:
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    east.create_topic(TOPIC, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        fill(east, TOPIC, 20, partition=number)
    store, links = database.new_database(), {"east->west": "killed-.*", "west->east": "killed-.*"}
    text = settings_text(tmp_path, [east.cluster, west.cluster], links, mirror={"tasks_per_link": 1}, store=store)
    rig = Rig(tmp_path, text, store=store)
    rig.process.start()
    until(lambda: spans(west.cluster, TOPIC, PARTITIONS) == [(0, 20)] * PARTITIONS, 120, "carried", rig)
    yield SwitchRig(rig, TOPIC, east, west)
    rig.process.end()


def lost_by_comparison(stage: SwitchRig) -> set[tuple[int, int]]:
    """Partition and offset of each record of east that west has not."""
    found: set[tuple[int, int]] = set()
    for number in range(PARTITIONS):
        ours, theirs = (read(lab, TOPIC, number, "read_uncommitted") for lab in (stage.east, stage.west))
        found |= {(number, offset) for offset, *rest in ours if (offset, *rest) not in theirs}
    return found


@pytest.mark.long
@pytest.mark.claim("switch", *CLAIM)
def test_the_old_home_and_the_store_are_killed_together(stage: SwitchRig, database: PostgresServer) -> None:
    load = Load(stage.east.cluster, TOPIC)
    until(lambda: min(stage.ends(stage.west)[:2]) > 200, 60, "it crosses under load", stage.rig)
    # What is taken while the mirror stands still cannot have crossed.
    stage.rig.process.child.send(signal.SIGSTOP)
    seen = sum(load.taken)
    until(lambda: sum(load.taken) > seen + 50, 30, "more is taken")
    for broker in stage.east.brokers:
        broker.kill()
    os.kill(database.pid, signal.SIGKILL)
    stage.rig.process.child.send(signal.SIGCONT)
    load.end()

    began = time.monotonic()
    child, log = stage.begin("run", TOPIC, "--to", "west", "--force", "--yes")
    code = ended(child, log)
    done_s = time.monotonic() - began
    said = log.read_text(encoding="utf-8")
    assert code == 0, said
    fill(stage.west, TOPIC, 1, partition=0)
    writable_s = time.monotonic() - began
    assert home_line(stage.west, TOPIC) == ("west", 2, "settled")
    assert mentions(said, "from the settings", "west"), said
    assert mentions(said, "east", "not known"), said
    print(f"told: store and old home dead: done after {done_s:.1f} s, written to after {writable_s:.1f} s")
    (switch,) = kept(stage.west)
    for number in range(PARTITIONS):
        fill(stage.west, TOPIC, 5, partition=number)

    database.revive()
    until(lambda: switch[:8] in stage.switch("history").text, 120, "the store takes the switch up", stage.rig)
    resumed = stage.switch("resume")
    assert resumed.code == 0, resumed.text
    assert kept(stage.west) == []
    record = stage.record()
    points = record["topics"][0]["points"]
    assert (record["id"], record["state"], stage.home()) == (switch, "done", ("west", 2))

    for broker in stage.east.brokers:
        broker.restart()
    lost = lost_by_comparison(stage)
    assert lost and min(offset - points[number] for number, offset in lost) == 0
    diverged = len({number for number, _ in lost})
    until(lambda: len(open_rows(stage)) == diverged, 120, "each is told", stage.rig)
    back = stage.switch("failback", TOPIC, "--old", "east", "--yes")
    assert back.code == 0, back.text
    found, odd = list_rescued_files(stage.settings.parent / "rescued")
    listed = {(one.origin.partition, offset) for one in found for offset in range(one.origin.first, one.origin.end)}
    assert (listed, odd) == (lost, []), "the loss that is listed is what both logs show"
    print(f"told: {len(lost)} records had not crossed, all listed and saved")
    stage.same()


def open_rows(stage: SwitchRig) -> set[int]:
    return {row.incident.partition for row in stage.rig.ledger("west->east") if row.closed_ms is None}
