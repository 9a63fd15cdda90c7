"""Settings that clash with what operators said are refused at start; what operators paused stays paused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import Cluster
from twinshore.lab.cluster import LabCluster

pytestmark = pytest.mark.claim(
    "topics",
    "clashing-words",
    "settings with a new link that clashes with what operators said are refused at start; a paused link stays paused",
)

LINK, OTHER = "east->west", "north->west"


@pytest.fixture
def rig(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Rig]:
    for topic in ("clash-a", "clash-b"):
        east.create_topic(topic, partitions=2)
        fill(east, topic, 10)
    made = Rig(tmp_path, text_of(tmp_path, east, west, {LINK: "clash-a"}))
    yield made
    made.process.end()


def text_of(folder: Path, east: LabCluster, west: LabCluster, links: dict[str, str]) -> str:
    # Nothing answers at north: what is said of a link's filters is judged without its clusters.
    clusters = [east.cluster, west.cluster, Cluster("north", ("127.0.0.1:1",))]
    return settings_text(folder, clusters, links, mirror={"refresh_s": 1, "tasks_per_link": 1})


@pytest.mark.long
def test_settings_that_clash_with_a_word_are_refused_and_a_paused_link_stays_paused(
    rig: Rig, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    rig.verb("link", "pause", LINK)
    rig.process.start()
    rig.until_said("paused: nothing is replicated", within_s=90)
    rig.verb("link", "filter", LINK, "--topics", "clash-b")
    rig.until_said('in effect now: topics ["clash-b"]', within_s=30)
    rig.process.end()

    # Both links are right as the settings say them; what the operator said of the first clashes with the new one.
    rig.process.settings.write_text(text_of(tmp_path, east, west, {LINK: "clash-a", OTHER: "clash-b"}))
    rig.process.start()
    deadline_s = time.monotonic() + 90
    while rig.process.child.alive():
        assert time.monotonic() < deadline_s, "it has ended"
        time.sleep(0.2)
    assert mentions(rig.process.said, "both", "clash-b", "west")

    rig.verb("link", "reset", LINK, "--name", "topics")
    rig.process.start()
    until(lambda: rig.process.said.count("paused: nothing is replicated") > 1, 60, "paused again", rig)
    time.sleep(3)  # three surveys
    for topic in ("clash-a", "clash-b"):
        assert spans(west.cluster, topic, 2) == [(-1, -1)] * 2, f"{topic} crossed a paused link"
    (shown, _) = json.loads(rig.verb("link", "list", "--json"))
    assert shown["paused"] == {"value": True, "from": "store"}
    assert shown["topics"] == {"value": ["clash-a"], "from": "settings"}
    rig.verb("link", "resume", LINK)
    until(lambda: same_ends(east.cluster, west.cluster, "clash-a", 2), 60, "it goes on by its settings", rig)
    assert spans(west.cluster, "clash-b", 2) == [(-1, -1)] * 2
