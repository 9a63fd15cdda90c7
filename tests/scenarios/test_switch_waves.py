"""All topics of a link in waves on real clusters: killed and gone on with, stopped where one turns back, taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.group_stage import written
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import QUICK, SwitchRig, short_leases
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab.cluster import LabCluster

TOPICS = tuple(f"waves-{name}" for name in "abcd")
PATIENT = ("--hold-s", "60")
__all__ = ["short_leases"]


@pytest.fixture
def rig(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[SwitchRig]:
    for topic in TOPICS:
        east.create_topic(topic)
        fill(east, topic, 10)
    links = {"east->west": "waves-.*", "west->east": "waves-.*"}
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    made.process.start()
    try:
        for topic in TOPICS:
            until(lambda topic=topic: spans(west.cluster, topic, 1) == [(0, 10)], 120, "carried", made)  # type: ignore[misc]
        yield SwitchRig(made, TOPICS[0], east, west, 1)
    finally:
        made.process.end()


def homes(rig: SwitchRig) -> list[str]:
    found = json.loads(rig.rig.verb("link", "homes", "--json"))["topics"]
    at = {one["topic"]: one["home"] for one in found}
    return [at.get(topic, "east") for topic in TOPICS]


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
@pytest.mark.claim(
    "switch", "waves", "a cluster in waves: killed between and gone on with, stopped where one turns back"
)
def test_a_cluster_moves_in_waves_and_back(rig: SwitchRig) -> None:
    planned = rig.switch("plan", "--all", "--to", "west", "--wave", "1")
    assert "in 4 waves, one after the other" in planned.text, planned.text
    child, log = rig.begin("run", "--all", "--to", "west", "--wave", "1", "--yes", *PATIENT)
    until(lambda: "wave 2 of 4" in log.read_text(encoding="utf-8"), 120, "the second wave", rig.rig)
    child.end()
    assert not child.alive()
    assert "of 4 waves done" in rig.switch("status").text
    said = rig.switch("resume")
    assert said.code == 0, said.text
    assert homes(rig) == ["west"] * 4
    told = json.loads(rig.switch("history", "--json").text)
    assert len({one["plan"] for one in told if one["state"] == "done"}) == 1
    plan = told[0]["plan"][:8]
    # Back with whatever the plan moved: the second wave turns back, as somebody writes there who follows nobody.
    with written(rig.west, TOPICS[1], 1):
        said = rig.switch("run", "--all", "--to", "east", "--wave", "1", "--yes", "--hold-s", "15")
    assert said.code == 1, said.text
    assert mentions(said.text, "wave 2", "2 waves")
    assert homes(rig) == ["east", "west", "west", "west"]
    assert mentions(rig.switch("status").text, "1 of 4 waves done", "at home on east", "wave 2", "on west")
    said = rig.switch("run", *TOPICS[:1], "--to", "west", "--yes", *PATIENT)
    assert said.code == 0, said.text
    said = rig.switch("run", "--of", plan, "--to", "east", "--yes", *PATIENT)
    assert said.code == 0, said.text
    assert homes(rig) == ["east"] * 4
