"""The process of a switch dies while it holds the writers: they go on, and the mirror ends the switch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.scenarios.mirror_rig import until
from tests.scenarios.plain_clients import written
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_proxy_switch import loaded, proxies
from twinshore.config.incident_policy import IncidentKind
from twinshore.lab.cluster import LabCluster
from twinshore.switch.core.steps import SwitchStep

HOLD_S = 3


@pytest.mark.long
@pytest.mark.claim(
    "proxy",
    "orphaned-hold",
    "the process of a switch dies in the hold: unmodified producers go on, and the mirror turns it back",
)
def test_writers_go_on_by_themselves_and_the_mirror_turns_the_switch_back(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    with carried(east, west, "orphaned", tmp_path) as rig, proxies(rig, 1) as some, loaded(rig, some) as load:
        rig.killed(SwitchStep.DRAIN, "before", "run", rig.topic, "--to", "west", "--yes", "--hold-s", str(HOLD_S))
        began_s = time.monotonic()
        until(
            lambda: some[0].metrics()["twinshore_proxy_waiting_clients"] > 0,
            10,
            "clients wait, and the proxy says so",
            rig.rig,
        )
        load.reads(500)
        waited_s = time.monotonic() - began_s
        assert waited_s < HOLD_S + 5 + 5, (
            "the hold ends by itself, and before the mirror can know that the switch is dead"
        )
        until(lambda: rig.record()["state"] == "turned back", 60, "the mirror turns the switch back", rig.rig)
        rows = [row for row in rig.rig.ledger("east->west") if row.incident.kind is IncidentKind.WRITERS_HELD]
        assert [rig.topic in row.incident.sentence for row in rows] == [True]
        rig.settled("east", 1)
        until(lambda: all(row.closed_ms for row in rig.rig.ledger("east->west")), 20, "the incident is over", rig.rig)
        load.reads(500)
        acked = load.end()
        assert [writer.failed for writer in load.writers] == [[], []]
        found = written(east, load.topic, acked, rig.partitions)
        assert (found.records, found.wrong) == (len(acked), 0), found
        rig.same()
        print(f"told: {found.records} records, 0 lost or doubled; writers waited {waited_s:.1f} s, --hold-s {HOLD_S}")
