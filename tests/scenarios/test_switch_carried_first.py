"""A topic that no link carries is switched all the same: a link and a twin come first, with all its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import verdict_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switch import PATIENT, switch
from tests.scenarios.test_switched_home import read
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.lab.cluster import LabCluster

CARRIED, FRESH = "first-orders", "first.invoices"


@pytest.fixture
def rig(no_topics_before: None, east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Rig]:
    del no_topics_before
    for topic in (CARRIED, FRESH):
        east.create_topic(topic)
        fill(east, topic, 50)
    made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], {"east->west": CARRIED}))
    made.process.start()
    until(lambda: spans(west.cluster, CARRIED, 1) == [(0, 50)], 120, "carried", made)
    yield made
    made.process.end()


@pytest.mark.long
def test_a_topic_that_no_link_carries_gets_a_twin_first(rig: Rig, east: LabCluster, west: LabCluster) -> None:
    code, said = switch(rig, "plan", FRESH, "--to", "west")
    assert code == 0, said
    assert mentions(said, FRESH, "no link", "east->west", "50 offsets")
    assert CARRIED in rig.verb("link", "list")
    assert "invoices" not in rig.verb("link", "list"), "a plan changes nothing"

    code, said = switch(rig, "run", CARRIED, "first-odrers", "--to", "west", "--yes", expected=ConfigError)
    assert mentions(said, "west", "first-odrers"), "a slip of the pen moves nothing"
    assert "did you mean" in said

    code, said = switch(rig, "run", FRESH, "--to", "west", "--yes", *PATIENT)
    assert code == 0, said
    assert verdict_in(said).startswith("done: ") and mentions(verdict_in(said), FRESH, "west"), said
    fill(west, FRESH, 7)
    for lab in (east, west):
        until(lambda lab=lab: spans(lab.cluster, FRESH, 1) == [(0, 58)], 60, "equal on both", rig)  # type: ignore[misc]
    assert read(east, FRESH, 0, "read_committed") == read(west, FRESH, 0, "read_committed")

    code, said = switch(rig, "run", FRESH, "--to", "west", "--yes", expected=RefusedError)
    assert code != 0 and mentions(said, "at home on west")

    for lab in (east, west):
        lab.create_topic("first.own")
    fill(west, "first.own", 3)
    _, said = switch(rig, "run", "first.own", "--to", "west", "--yes", expected=RefusedError)
    assert mentions(said, "west", "3 offsets", "first.own")


@pytest.mark.long
@pytest.mark.claim(
    "switch",
    "whole-business",
    "A switch of topics by a pattern carries first what fits it and has no twin yet, and then moves all",
)
def test_a_topic_that_has_no_twin_yet_goes_along_by_its_pattern(rig: Rig, east: LabCluster) -> None:
    """Its link admits it, and has made no twin: the mirror has not seen it."""
    rig.verb("link", "set", "east->west", 'topics=["first-.*"]')
    east.create_topic("first-new")
    fill(east, "first-new", 20)
    code, said = switch(rig, "plan", "first-.*", "--to", "west")
    assert code == 0, said
    code, said = switch(rig, "run", "first-.*", "--to", "west", "--yes", *PATIENT)
    assert code == 0, said
    assert verdict_in(said).startswith("done: ") and mentions(verdict_in(said), f"first-new, {CARRIED}", "west"), said
