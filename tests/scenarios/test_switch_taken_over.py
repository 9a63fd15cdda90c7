"""The old home dies while a planned switch holds its writers, and the process of that switch with it: one command moves
the topics or leaves them where they are, and what stood on the old home is undone when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.cluster import rigged
from testkit.errors import mentions
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.rights_stage import acl, guarded, may_write
from tests.scenarios.switch_rig import SwitchRig, short_leases
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switch_rights import opened, rules
from twinshore.kafka.protocol.access_control import ANY_USER, AclOperation, AclPermission
from twinshore.state.store import open_store
from twinshore.switch.core.acl_rules import DEFERRED_CLEANUP_KIND
from twinshore.switch.core.steps import SwitchStep

__all__ = ["short_leases"]
TOPIC = "rights-taken"
DENIAL = acl(TOPIC, AclOperation.WRITE, ANY_USER, permission=AclPermission.DENY)


def turned_back(rig: SwitchRig) -> None:
    rig.killed(SwitchStep.CATCH_UP, "before", "run", TOPIC, "--to", "west", "--yes")
    assert DENIAL in rules(rig.east), "its writers are held"
    for broker in rig.east.brokers:
        broker.kill()
    said = rig.switch("rollback")
    print("told:", said.text)
    assert mentions(said.text, "the mirror"), said.text
    assert debts(rig) == 1

    for broker in rig.east.brokers:
        broker.restart()
    until(lambda: DENIAL not in rules(rig.east), 120, "writers are let in where the topic stays", rig.rig)
    until(lambda: not debts(rig), 60, "nothing is owed any more", rig.rig)
    assert may_write(rigged(rig.east).cluster_as("anna"), TOPIC)
    rig.settled("east", 1)
    again = rig.move("west")
    assert again.code == 0, again.text


@pytest.mark.long
@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("then", ["taken over", "turned back"])
def test_one_command_takes_over_or_turns_back_what_a_dead_process_left(then: str, tmp_path: Path) -> None:
    with guarded("east", "anna") as east, guarded("west", "anna") as west:
        for lab in (east, west):
            opened(lab)
        east.create_topic(TOPIC, partitions=3)
        for number in range(3):
            fill(east, TOPIC, 10, partition=number)
        links = {"east->west": "rights-.*", "west->east": "rights-.*"}
        clusters = [lab.cluster_as("mirror") for lab in (east, west)]
        made = Rig(tmp_path, settings_text(tmp_path, clusters, links, mirror={"tasks_per_link": 1, "lease_s": 4}))
        made.process.start()
        try:
            until(lambda: spans(west.cluster, TOPIC, 3) == [(0, 10)] * 3, 120, "carried", made)
            (taken_over if then == "taken over" else turned_back)(SwitchRig(made, TOPIC, east, west))
        finally:
            made.process.end()


def debts(rig: SwitchRig) -> int:
    with open_store(url_in(rig.rig.folder)) as store:
        return len(store.link_states.of("east<>west", DEFERRED_CLEANUP_KIND))


def taken_over(rig: SwitchRig) -> None:
    rig.killed(SwitchStep.CATCH_UP, "before", "run", TOPIC, "--to", "west", "--yes")
    assert DENIAL in rules(rig.east), "its writers are held"
    first = rig.record()["id"]
    for broker in rig.east.brokers:
        broker.kill()
    preview = rig.switch("plan", TOPIC, "--to", "west", "--force")
    assert mentions(preview.text, "takes over", first[:8], TOPIC), preview.text
    said = rig.move("west", "--force")
    print("told:", said.text)
    assert said.code == 0, said.text
    assert mentions(said.last, TOPIC, "at home on west")
    told = rig.switch("history").text
    assert "by force" in next(line for line in told.splitlines() if line.startswith(first[:8])), told
    assert debts(rig) == 1
    fill(rig.west, TOPIC, 5, partition=1)
    assert may_write(rigged(rig.west).cluster_as("anna"), TOPIC)

    for broker in rig.east.brokers:
        broker.restart()
    until(lambda: DENIAL not in rules(rig.east), 120, "the denial for everybody goes: it shuts us out as well", rig.rig)
    assert not may_write(rigged(rig.east).cluster_as("anna"), TOPIC), "the guard stood before"
    until(lambda: rig.ends(rig.east) == rig.ends(rig.west), 120, "the link back carries", rig.rig)
    until(lambda: not debts(rig), 60, "nothing is owed any more", rig.rig)
    rig.settled("west", 2)
    rig.same()
