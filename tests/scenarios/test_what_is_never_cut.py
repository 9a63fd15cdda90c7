"""What the mirror may cut on a target: its own twins, and nothing that took a twin's name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.incident_stage import CALM, IncidentStage
from twinshore.fleet import NamedPartition
from twinshore.lab.clients import delete_records, delete_topic
from twinshore.mirror.link_driver import SETTLE_LOG_START_S

LOOKS_S = 10.0  # a survey, a look of the follower and a tide's end, and more


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[IncidentStage]:
    stage = IncidentStage(tmp_path, {"lanes": 1})
    stage.up()
    stage.east.create_topic("orders")
    stage.put(stage.east, "orders", 0, [[b"value %d" % number for number in range(100)]])
    stage.start()
    yield stage
    stage.close()


@pytest.mark.long
def test_a_topic_that_took_a_twins_name_keeps_its_records(stage: IncidentStage) -> None:
    """The source deletes 60 records; before the twin is cut, somebody puts a topic of their own in its place."""
    stage.crossed("orders", 0)
    delete_records(stage.east.cluster, {NamedPartition("orders", 0): 60})
    time.sleep(1.5)  # The pump has told of it by then, and the cut is pending.
    delete_topic(stage.west.cluster, "orders")
    time.sleep(1.5)
    stage.west.create_topic("orders")
    stage.put(stage.west, "orders", 0, [[b"their own %d" % number for number in range(500)]])
    row = stage.row("orders", "recreated topic")
    assert "made again by someone else" in row.incident.sentence
    deadline = time.monotonic() + SETTLE_LOG_START_S + LOOKS_S
    while time.monotonic() < deadline:
        assert stage.spans(stage.west, "orders", 0) == (0, 500), stage.rig.process.said[-2000:]
        time.sleep(1)
    assert stage.ends(stage.west, CALM, 0) == stage.ends(stage.east, CALM, 0)
