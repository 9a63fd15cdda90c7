"""The home of a fail-back's topics dies while it is under way: what is whole on the cluster that had returned moves
there by one command, and what is being filled anew there is left out by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.switch_rig import QUICK, SwitchRig, short_leases
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import open_store
from twinshore.switch.core.acl_rules import DEFERRED_CLEANUP_KIND
from twinshore.switch.core.steps import SwitchStep

__all__ = ["short_leases"]
WHOLE, PARTED = "again-bills", "again-orders"
BACK = ("failback", "again-.*", "--old", "east", "--yes")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SwitchRig]:
    """Both topics were moved to west by force, and east holds records of one of them that never crossed."""
    with LabCluster("east") as east, LabCluster("west") as west:
        for topic in (WHOLE, PARTED):
            east.create_topic(topic, partitions=3)
            fill(east, topic, 10, partition=1)
        links = {"east->west": "again-.*", "west->east": "again-.*"}
        made = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
        made.process.start()
        try:
            for topic in (WHOLE, PARTED):
                until(lambda one=topic: spans(west.cluster, one, 3)[1] == (0, 10), 120, "carried", made)  # type: ignore[misc]
            made.process.end()
            fill(east, PARTED, 5, partition=1)
            rig = SwitchRig(made, PARTED, east, west)
            said = rig.switch("run", "again-.*", "--to", "west", "--force", "--yes")
            assert said.code == 0, said.text
            made.process.start()
            for topic in (WHOLE, PARTED):
                fill(west, topic, 3, partition=1)
            # The marker that shuts out the old link lies at 10.
            until(lambda: spans(east.cluster, WHOLE, 3)[1] == (0, 14), 120, "the link back carries", made)
            yield rig
        finally:
            made.process.end()


def homes(rig: SwitchRig) -> dict[str, str]:
    with open_store(url_in(rig.rig.folder)) as store:
        return {topic: row.home for topic, row in store.homes.of("east<>west").items() if topic.startswith("again-")}


def debts(rig: SwitchRig) -> int:
    with open_store(url_in(rig.rig.folder)) as store:
        return len(store.link_states.of("east<>west", DEFERRED_CLEANUP_KIND))


def die(lab: LabCluster) -> None:
    for broker in lab.brokers:
        broker.kill()


def come_back(rig: SwitchRig, lab: LabCluster) -> None:
    for broker in lab.brokers:
        broker.restart()
    until(lambda: not debts(rig), 120, "nothing is owed any more", rig.rig)


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
def test_before_its_point_of_no_return_it_is_turned_back_or_taken_over(rig: SwitchRig) -> None:
    for ends_it in ("rollback", "force"):
        rig.killed(SwitchStep.RESCUE, "before", *BACK)
        first = rig.record()["id"]
        die(rig.west)
        if ends_it == "rollback":
            said = rig.switch("rollback")
            assert mentions(said.text, "the mirror", "free"), said.text
            assert homes(rig) == {WHOLE: "west", PARTED: "west"}
            come_back(rig, rig.west)
    preview = rig.switch("plan", "again-.*", "--to", "east", "--force")
    assert f"takes over the fail-back switch {first[:8]} of" in preview.text, preview.text
    assert f"had stopped with {PARTED}-1" in preview.text, preview.text
    said = rig.switch("run", "again-.*", "--to", "east", "--force", "--yes")
    assert said.code == 0, said.text
    assert homes(rig) == {WHOLE: "east", PARTED: "east"}
    assert spans(rig.east.cluster, PARTED, 3)[1] == (0, 16), "with what had never crossed, and a marker behind it"
    come_back(rig, rig.west)
    rig.settled("east", 3)


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
def test_behind_it_what_is_filled_anew_is_left_out_and_waits_for_its_home(rig: SwitchRig) -> None:
    rig.killed(SwitchStep.REBUILD, "before", *BACK)
    first = rig.record()["id"]
    die(rig.west)
    alone = rig.switch("plan", PARTED, "--to", "east", "--force")
    assert f"{PARTED}, which the fail-back switch {first[:8]} of" in alone.text, alone.text
    assert mentions(alone.text, "at home on west"), alone.text
    preview = rig.switch("plan", "again-.*", "--to", "east", "--force")
    assert f"takes {WHOLE} out of the fail-back switch {first[:8]}" in preview.text, preview.text
    assert f"left out: {PARTED}, which" in preview.text, preview.text
    said = rig.switch("run", "again-.*", "--to", "east", "--force", "--yes")
    assert said.code == 0, said.text
    assert homes(rig) == {WHOLE: "east", PARTED: "west"}

    come_back(rig, rig.west)
    said = rig.switch("resume", first[:8])
    assert said.code == 0, said.text
    assert "5 records rescued to" in said.text, said.text
    rig.settled("west", 2)
    rig.same()
    fill(rig.east, WHOLE, 4, partition=1)
    until(
        lambda: spans(rig.west.cluster, WHOLE, 3)[1] == spans(rig.east.cluster, WHOLE, 3)[1],
        120,
        "each topic crosses from its own home",
        rig.rig,
    )
