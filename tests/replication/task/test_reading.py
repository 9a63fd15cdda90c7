"""A reading that several tasks share: every twin stays a prefix of the source, and the source is read once.

A failure names its seed; TWINSHORE_SEED="mixed 17" runs that one alone.
"""

from __future__ import annotations

from tests.replication.task.model_world import LIMITS
from tests.replication.task.shared_world import HIGH_BYTES, SharedWorld
from tests.replication.task.test_lane_model import seeds
from twinshore.replication.task.core.shared_read import SLICE_OVERHEAD_BYTES

SEEDS = 25
STEPS = 600


def run(kind: str, seed: int, *, trouble: bool, members: int = 3) -> SharedWorld:
    """One run; in calm all are there before anything is written, and the window holds all."""
    world = SharedWorld(seed, kind, members, HIGH_BYTES if trouble else 10 * HIGH_BYTES)
    try:
        world.run(STEPS, trouble=trouble, settled_first=not trouble)
    except Exception as error:
        raise AssertionError(f'TWINSHORE_SEED="{kind} {seed}": {error}') from error
    return world


def test_whatever_befalls_a_member_each_twin_is_a_prefix_and_all_arrives_at_each() -> None:
    for kind, seed in seeds(SEEDS):
        world = run(kind, seed, trouble=True)
        for one in world.members:
            assert not one.stopped(), f'TWINSHORE_SEED="{kind} {seed}": {one.standing()}'
            for named, twin in one.targets.items():
                accounts = one.told[named]
                assert sum(entry.records for entry in accounts) == twin.end
                told = [batch for entry in accounts for batch in entry.producers]
                for producer_id in (7, 8):
                    wrote = [batch for batch in twin.source.producers if batch[0] == producer_id]
                    assert [batch for batch in told if batch[0] == producer_id][-5:] == wrote[-5:]
        one_slice = LIMITS.partition_bytes_max + SLICE_OVERHEAD_BYTES + 2000
        assert world.held_max <= HIGH_BYTES + one_slice, "the window is bounded"


def test_in_calm_three_members_read_no_more_than_one_would() -> None:
    """What one reads is more than was written: an answer may end in the middle of a batch."""
    copies = {}
    for members in (1, 3):
        worlds = [run(kind, seed, trouble=False, members=members) for kind, seed in seeds(SEEDS)]
        copies[members] = sum(world.brought for world in worlds) / sum(world.written for world in worlds)
    assert copies[3] <= 1.1 * copies[1], copies
