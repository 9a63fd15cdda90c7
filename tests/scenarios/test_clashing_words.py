"""Links whose filters clash after the settings changed: what operators paused stays paused, over a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.fleet import Cluster
from twinshore.lab import LabCluster

pytestmark = pytest.mark.claim(
    "topics",
    "clashing-words",
    "a paused link stays paused, over a restart, when a new link of the settings clashes with what operators said",
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
    return settings_text(folder, clusters, links, mirror={"refresh_s": 1, "lanes": 1})


@pytest.mark.long
def test_a_paused_link_stays_paused_when_a_new_link_clashes_with_it(
    rig: Rig, east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    rig.verb("link", "pause", LINK)
    rig.process.start()
    rig.until_said("paused: nothing is carried", within_s=90)
    rig.verb("link", "filter", LINK, "--topics", "clash-b")
    rig.until_said('now holds: topics ["clash-b"]', within_s=30)
    rig.process.end()

    # Both links are right as the settings say them; what the operator said of the first clashes with the new one.
    rig.process.settings.write_text(text_of(tmp_path, east, west, {LINK: "clash-a", OTHER: "clash-b"}))
    rig.process.start()
    rig.until_said("what operators said of its filters does not count", within_s=90)
    until(lambda: rig.process.said.count("paused: nothing is carried") > 1, 60, "paused again", rig)
    time.sleep(3)  # three surveys
    for topic in ("clash-a", "clash-b"):
        assert spans(west.cluster, topic, 2) == [(-1, -1)] * 2, f"{topic} crossed a paused link"
    (shown, _) = json.loads(rig.verb("link", "list", "--json"))
    assert shown["paused"] == {"value": True, "from": "store"}
    assert shown["topics"] == {"value": ["clash-a"], "from": "settings"}
    assert "would both write" in shown["troubles"][0]
    assert [row.incident.kind for row in rig.ledger(LINK) if not row.closed_ms] == ["clashing filters"]

    # While they clash a link can be paused and resumed all the same.
    rig.verb("link", "pause", OTHER)
    rig.verb("link", "resume", LINK)
    until(lambda: same_ends(east.cluster, west.cluster, "clash-a", 2), 60, "it goes on by its settings", rig)
    assert spans(west.cluster, "clash-b", 2) == [(-1, -1)] * 2
    rig.verb("link", "reset", LINK, "--name", "topics")
    until(lambda: not [row for row in rig.ledger(LINK) if not row.closed_ms], 60, "the clash is over", rig)
