"""One consumer group goes to read at the other cluster and comes back, while its topic is written to all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.scenarios.group_stage import Reading, more, written
from tests.scenarios.mirror_rig import until
from tests.scenarios.switch_rig import SwitchRig, carried, ended
from twinshore.lab.clients import read_group_offsets
from twinshore.lab.cluster import LabCluster

TOPIC = "alone-orders"
GROUP = "alone-billing"


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with carried(east, west, TOPIC, tmp_path_factory.mktemp("alone")) as made:
        yield made


@pytest.mark.long
@pytest.mark.claim(
    "switch", "one-group", "one group alone moved and back on a same-name link: 0 read again, 0 left out"
)
def test_a_group_alone_goes_and_comes_back(rig: SwitchRig) -> None:
    read: list[tuple[int, int]] = []
    with written(rig.east, TOPIC):
        with Reading(rig.east, TOPIC, GROUP, read):
            more(read, rig)
            child, log = rig.begin("run", "--group", GROUP, "--to", "west", "--yes")
            until(lambda: "has members there" in log.read_text(encoding="utf-8"), 60, "it waits for members", rig.rig)
            assert f"group {GROUP}" in rig.switch("status").text
        code, said = ended(child, log), log.read_text(encoding="utf-8")
        assert code == 0, said
        assert said.splitlines()[-1] == f"done: group {GROUP} continues on west: start its consumers there"
        with Reading(rig.west, TOPIC, GROUP, read):
            more(read, rig)
        back = rig.switch("run", "--group", GROUP, "--to", "east", "--yes")
        assert (back.code, back.last) == (0, f"done: group {GROUP} continues on east: start its consumers there")
        with Reading(rig.east, TOPIC, GROUP, read):
            more(read, rig)
    ends = rig.level()
    with Reading(rig.east, TOPIC, GROUP, read):
        wanted = [(number, offset) for number in range(3) for offset in range(ends[number])]
        until(lambda: set(read) >= set(wanted), 120, "it has read everything", rig.rig)
    assert sorted(read) == wanted, "each record once"
    assert rig.home() == ("east", 1), "its topic stayed"
    # At home again it is followed again, though it was on its own meanwhile.
    until(lambda: read_group_offsets(rig.west.cluster, GROUP, TOPIC, range(3)) == ends, 120, "it is followed", rig.rig)
    told = json.loads(rig.switch("history", "--json").text)
    assert [(one["kind"], one["group"], one["new"], one["state"]) for one in told] == [
        ("group", GROUP, "east", "done"),
        ("group", GROUP, "west", "done"),
    ]
    assert f"{GROUP} alone" in rig.rig.verb("audit", "--json")
    rig.settled("east", 1)
