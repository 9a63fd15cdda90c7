"""Topics move to another home on real clusters, under load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import forced, verdict_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import RefusedError
from twinshore.lab.cluster import LabCluster

TOPIC = "switch-orders"
PATIENT = ("--hold-s", "60")  # on a machine that is busy with other tests


@pytest.fixture
def rig(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Rig]:
    east.create_topic(TOPIC, partitions=3)
    for number in range(3):
        fill(east, TOPIC, 50, partition=number)
    clusters = [east.cluster, west.cluster]
    made = Rig(tmp_path, settings_text(tmp_path, clusters, {"east->west": "switch-.*"}, mirror={"tasks_per_link": 1}))
    made.process.start()
    until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 50)] * 3, 120, "carried", made)
    yield made
    made.process.end()


def switch(rig: Rig, *words: str, expected: type[Exception] | None = None) -> tuple[int, str]:
    """The exit code of `twinshore switch`, and what it said."""
    register_verbs()
    asked = ["switch", *forced(words), "--settings", str(rig.process.settings)]
    result = CliRunner().invoke(app, asked, catch_exceptions=True)
    if expected is None and result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output + (str(result.exception) if expected else "")


def alike(rig: Rig, labs: tuple[LabCluster, LabCluster], ends: list[int]) -> None:
    """Both homes hold the same records at the same offsets, up to these ends."""
    wanted = [(0, end) for end in ends]
    for lab in labs:
        until(lambda lab=lab: spans(lab.cluster, TOPIC, 3) == wanted, 60, f"{lab.name} ends at {ends}", rig)  # type: ignore[misc]
    one, other = ([read(lab, TOPIC, number, "read_committed") for number in range(3)] for lab in labs)
    assert one == other


@pytest.mark.claim("switch", "there-and-back", "a topic moves and comes home again: equal on both, no offset moved")
def test_a_topic_moves_and_comes_home_again(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    code, said = switch(rig, "drill", "switch-.*", "--to", "west")
    assert code == 0, said
    assert not json.loads(rig.verb("link", "homes", "--json"))["topics"], "a drill changes nothing, no link either"

    code, said = switch(rig, "run", "switch-.*", "--to", "west", "--yes", *PATIENT)
    assert code == 0, said
    assert verdict_in(said).startswith("done: ") and mentions(verdict_in(said), TOPIC, "west"), said
    fill(west, TOPIC, 7, partition=1)
    alike(rig, (east, west), [51, 58, 51])  # the fence takes one offset of each partition
    code, said = switch(rig, "run", "switch-.*", "--to", "west", "--yes", expected=RefusedError)
    assert code != 0 and mentions(said, "at home on west")

    code, said = switch(rig, "run", "switch-.*", "--to", "east", "--yes", *PATIENT)
    assert code == 0
    fill(east, TOPIC, 5, partition=2)
    alike(rig, (east, west), [52, 59, 57])
    homes = json.loads(rig.verb("link", "homes", "--json"))["topics"]
    assert [(one["topic"], one["home"], one["term"]) for one in homes] == [(TOPIC, "east", 3)]
    told = json.loads(switch(rig, "history", "--json")[1])
    assert [(one["kind"], one["new"], one["state"]) for one in told] == [
        ("planned", "east", "done"),
        ("planned", "west", "done"),
        ("drill", "west", "done"),
    ]
    rig.verb("prove", "--here")
