"""The gate in virtual time: no seed finds a false confirmation. `TWINSHORE_SEEDS` sets how many are played."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.protection.gate_world import World
from twinshore.protection.core.model import ProtectionLevel

SEEDS = int(os.environ.get("TWINSHORE_SEEDS", "60"))


@pytest.mark.claim("protection", "seeds", "seeded histories of faults: nothing is confirmed that the twin lacks")
@pytest.mark.parametrize("reports", [False, True], ids=["proxy", "library"])
@pytest.mark.parametrize("level", [ProtectionLevel.SYNC, ProtectionLevel.STRICT])
def test_nothing_is_confirmed_that_the_twin_lacks(level: ProtectionLevel, reports: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(seed, level, reports=reports)
        violation = world.run()
        assert not violation, f"seed {seed}, {level}: {violation}\n" + "\n".join(world.story[-30:])
        counts.update(world.counts)
    assert counts["confirmed"] > 30 * SEEDS, counts
    assert (counts["alone"] > 0) == (level is ProtectionLevel.SYNC), counts
