"""The old home dies while a planned switch holds its writers, and the process of that switch with it: one command moves
the topics, and what was left on the old home is undone when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.rights_stage import acl, guarded, may_write
from tests.scenarios.switch_rig import SwitchRig, short_leases
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switch_rights import opened, rules
from twinshore.kafka.rights import EVERYBODY, Operation, Permission
from twinshore.store import open_store
from twinshore.switch.deeds import Deed
from twinshore.switch.taking_over import DEBT

__all__ = ["short_leases"]
TOPIC = "rights-taken"
DENIAL = acl(TOPIC, Operation.WRITE, EVERYBODY, permission=Permission.DENY)


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
def test_one_command_takes_over_what_a_dead_process_left(tmp_path: Path) -> None:
    with guarded("east", "anna") as east, guarded("west", "anna") as west:
        for lab in (east, west):
            opened(lab)
        east.create_topic(TOPIC, partitions=3)
        for number in range(3):
            fill(east, TOPIC, 10, partition=number)
        links = {"east->west": "rights-.*", "west->east": "rights-.*"}
        clusters = [lab.cluster_as("mirror") for lab in (east, west)]
        made = Rig(tmp_path, settings_text(tmp_path, clusters, links, mirror={"lanes": 1, "lease_s": 4}))
        made.process.start()
        try:
            until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 10)] * 3, 120, "carried", made)
            taken_over(SwitchRig(made, TOPIC, east, west))
        finally:
            made.process.end()


def debts(rig: SwitchRig) -> int:
    with open_store(url_in(rig.rig.folder)) as store:
        return len(store.memories.of("west->east", DEBT))


def taken_over(rig: SwitchRig) -> None:
    rig.killed(Deed.LEVEL, "before", "run", TOPIC, "--to", "west", "--yes")
    assert DENIAL in rules(rig.east), "its writers are held"
    first = rig.record()["id"]
    for broker in rig.east.brokers:
        broker.kill()
    preview = rig.switch("plan", TOPIC, "--to", "west", "--force")
    assert f"takes over the planned switch {first[:8]} of {TOPIC}" in preview.text, preview.text
    said = rig.move("west", "--force")
    print("told:", said.text)
    assert said.code == 0, said.text
    assert f"{TOPIC} is at home on west" in said.last
    told = rig.switch("history").text
    assert "moves the topics by force" in next(line for line in told.splitlines() if line.startswith(first[:8])), told
    assert debts(rig) == 1
    fill(rig.west, TOPIC, 5, partition=1)
    assert may_write(rig.west.cluster_as("anna"), TOPIC)

    for broker in rig.east.brokers:
        broker.restart()
    until(lambda: DENIAL not in rules(rig.east), 120, "the denial for everybody goes: it shuts us out as well", rig.rig)
    assert not may_write(rig.east.cluster_as("anna"), TOPIC), "the guard stood before"
    until(lambda: rig.ends(rig.east) == rig.ends(rig.west), 120, "the link back carries", rig.rig)
    until(lambda: not debts(rig), 60, "nothing is owed any more", rig.rig)
    rig.settled("west", 2)
    rig.same()
