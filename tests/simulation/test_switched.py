"""Topics whose home has just moved: each twin is the old home's log, level with the point, shorter or longer.

What is longer stops its partition, and nothing of it is overwritten; else all arrives behind what is inherited,
whatever goes wrong meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulation.plans import Plan
from tests.simulation.pump_model import TASK_ID
from tests.simulation.world import EPOCH_TURNED, World
from twinshore.replication.task.core import partition as track_module
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.messages import PartitionProgress
from twinshore.replication.task.core.position import PositionVerdict, TargetState, judge_position

SEEDS = range(40)
LEVEL, SHORTER, LONGER = "level", "shorter", "longer"
OLD_LINK = 990


def quieter(plan: Plan) -> Plan:
    """No topic is made again, and no operator changes the link: these have seeds of their own. No second task: the
    old home's log has a marker, and brokers do not tell markers of two tasks apart (plan_of)."""
    kept = {name: rate for name, rate in plan.faults.items() if "recreate" not in name and name != "second_task"}
    return replace(plan, faults=kept)


def switched(seed: int, kind: str) -> World:
    """A world in which west was made the home a moment ago."""
    return World(f"{seed} and a switch", changed=quieter, prepare=lambda world: move_homes(world, seed, kind))


def move_homes(world: World, seed: int, kind: str) -> None:
    chance = random.Random(f"{seed} {kind}")
    for named, pair in world.clusters.pairs.items():
        source, twin = pair.source, pair.twin
        style, source.style = source.style, source.style._replace(transactions=False, keys=0, append_time=False)
        for _ in range(chance.randint(3, 8)):
            source.write(world.schedule.now_ms)
        source.style = style
        point = source.end
        kept = source.entries[: chance.randint(1, len(source.entries) - 1)] if kind == SHORTER else source.entries
        twin.inherit(kept, (TASK_ID, EPOCH_TURNED - 1))
        source.fence(OLD_LINK, world.schedule.now_ms)
        if kind == LONGER:
            twin.write_foreign(world.schedule.now_ms)
            pair.excuses.add("foreign write")
        for log in (source, twin):
            for node in log.nodes:
                log.replicate(node, whole=True)
        world.inherited[named] = point
        at = min(point, twin.end)
        world.store.receipts[named] = [
            PartitionProgress(named.topic, named.partition, at, at, 0, 0, 0, source.end, 0, 0, 0)
        ]


@pytest.mark.parametrize("kind", [LEVEL, SHORTER])
def test_all_arrives_behind_what_is_inherited(kind: str) -> None:
    for seed in SEEDS:
        switched(seed, kind).run()


def test_what_is_longer_stops_and_is_left_as_it_was() -> None:
    for seed in SEEDS:
        world = switched(seed, LONGER)
        held = {named: list(pair.twin.entries) for named, pair in world.clusters.pairs.items()}
        world.run()
        for named, pair in world.clusters.pairs.items():
            if pair.twin.spoiled_at is None:
                continue  # an election took away what was too much
            told = [one for one in world.store.ledger.get(named, []) if not one.policy]
            assert told, f"seed {seed}: {named} did not stop"
            assert all(entry in held[named] for entry in pair.twin.entries), f"seed {seed}: {named} was written to"


def deaf_to_what_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(seen: TargetState, stamp: SequenceMap, _inherited: int, *, carried: bool) -> PositionVerdict:
        return judge_position(seen, stamp, carried=carried)

    monkeypatch.setattr(track_module, "judge_position", deaf)


def believing_that_all_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(seen: TargetState, stamp: SequenceMap, inherited: int, *, carried: bool) -> PositionVerdict:
        return judge_position(seen, stamp, seen.log_end if inherited else 0, carried=carried)

    monkeypatch.setattr(track_module, "judge_position", anything)


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [(LEVEL, deaf_to_what_is_inherited), (LONGER, believing_that_all_is_inherited)],
)
def test_a_mistake_about_what_is_inherited_is_caught(
    kind: str, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            world = switched(seed, kind)
            world.run()
            for named in world.clusters.pairs:
                assert kind != LONGER or world.store.ledger.get(named)
