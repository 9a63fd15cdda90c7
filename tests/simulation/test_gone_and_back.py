"""A twin's leadership goes to a broker that lagged, acknowledged records are lost, and it comes back to the first.

The pump's line to that one holds all the while. No leader epoch guards markers, so nothing but the question before them
keeps them from the shorter log.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation import connections
from tests.simulation.plans import Plan
from tests.simulation.source_log import Style
from tests.simulation.twin_log import Violation
from tests.simulation.world import World
from twinshore.mirror.passage.marking import Marked
from twinshore.mirror.passage.runs import Marks
from twinshore.wire.codecs import Codec

SEEDS = range(60)
TRANSACTIONS = Style(0.0, 0, transactions=True, append_time=False, codecs=(Codec.NONE,), records_max=3, large_part=0.0)


def one_partition(plan: Plan) -> Plan:
    """A transactional one with two copies of its twin, and nothing goes wrong by itself."""
    quiet = replace(plan, faults={}, errand_fails=0.0, store_fails=0.0, expiry_ms=600_000, anchor_sequence=0)
    quiet = replace(quiet, lanes=1, tide_s=30.0, chaos_s=20.0, write_every_s=0.5)
    return replace(quiet, styles={"a": (1, TRANSACTIONS)}, copies=(1, 2))


def gone_and_back(seed: int) -> None:
    """Plays it from the tenth second of a seed on. Violation when a marker or a record comes to lie elsewhere."""
    world = World(str(seed), changed=one_partition)
    (pair,) = world.clusters.pairs.values()
    twin, schedule = pair.twin, world.schedule
    first = twin.leader
    (lagging,) = (node for node in twin.nodes if node != first)

    def lag() -> None:
        world.lagging["target", pair.named, lagging] = schedule.now_s + 3.0
        twin.drop_from_sync(lagging)
        schedule.after(2.0, go)

    def go() -> None:
        world.elect(pair, "target", lagging)
        schedule.after(0.2, come_back)

    def come_back() -> None:
        twin.replicate(first, whole=True)
        world.elect(pair, "target", first)

    schedule.after(10.0, lag)
    world.run()


def test_markers_stay_away_from_a_log_that_lost_its_end() -> None:
    for seed in SEEDS:
        gone_and_back(seed)


def test_unasked_they_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(asked: list[Marks], _ends: list[Marked]) -> tuple[list[Marks], list[Marks]]:
        return asked, []

    monkeypatch.setattr(connections, "standing", standing)
    with pytest.raises(Violation, match="at offset"):
        for seed in SEEDS:
            gone_and_back(seed)
