"""A rebuild is killed at each step, in each of its moments, and goes on: nothing is deleted that was not saved."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from tests.switch.world import KilledError
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    TopicMove,
    apply_outcome,
    begin_rollback,
    begin_switch,
)
from twinshore.switch.core.unreplicated import UnreplicatedRange, ranges_from_json, ranges_to_json

NOW_MS = 1_000_000
CARRIED = 5
STEPS_OF = STEPS[SwitchKind.REBUILD]
TURNS = STEPS_OF[: STEPS_OF.index(SwitchStep.COMMIT) + 1]


def record() -> SwitchState:
    moved = TopicMove(topic="orders", old_id="a" * 32, new_id="b" * 32, term=0, partitions=1, points=(0,))
    made = SwitchState(
        id="f" * 32,
        kind=SwitchKind.REBUILD,
        old="west",
        new="east",
        link="west->east",
        back="east->west",
        topics=(moved,),
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=0.0,
        step=STEPS_OF[0],
    )
    return begin_switch(made, NOW_MS)


@dataclass
class World:
    """The home grows all the while; the twin holds a foreign tail, and grows only if the mirror carries it."""

    rng: random.Random
    home: list[str] = field(default_factory=lambda: [f"record {number}" for number in range(CARRIED)])
    twin: list[str] = field(default_factory=list)
    saved: list[str] | None = None
    claimed: bool = False
    let_go: bool = False
    spoilt: bool = True
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.twin = [*self.home, "foreign 1", "foreign 2"]

    def breathe(self) -> None:
        self.home += [f"record {len(self.home)}"] * self.rng.randint(0, 1)
        if not self.spoilt and not self.let_go:
            self.twin += self.home[len(self.twin) : len(self.twin) + self.rng.randint(0, 3)]


@dataclass
class Hands:
    world: World
    kill: tuple[int, int]
    trouble: SwitchStep | None = None
    calls: int = 0

    def once(self, now: SwitchState) -> StepOutcome:
        self.calls += 1
        self._moment(0)
        self.world.breathe()
        outcome = self._undo(now) if now.state is SwitchStatus.ROLLING_BACK else self._do(now)
        self._moment(2)
        return outcome

    def _moment(self, which: int) -> None:
        if self.kill == (self.calls, which):
            raise KilledError

    def _undo(self, now: SwitchState) -> StepOutcome:
        if now.step is SwitchStep.CLAIM:
            self.world.claimed = self.world.let_go = False
        return StepDone(now)

    def _do(self, now: SwitchState) -> StepOutcome:
        world, found = self.world, ranges_from_json(now.tails)
        if now.step is self.trouble:
            return StepFailed("the test wants it so")
        match now.step:
            case SwitchStep.CLAIM:
                world.claimed = True
            case SwitchStep.STOP_REPLICATION:
                world.let_go = True
            case SwitchStep.INSPECT:
                return StepDone(
                    replace(
                        now,
                        tails=ranges_to_json([UnreplicatedRange("orders", 0, CARRIED, len(world.twin), beside=True)]),
                    )
                )
            case SwitchStep.RESCUE:
                self._moment(1)
                world.saved = world.twin[CARRIED:]
                return StepDone(replace(now, tails=ranges_to_json([replace(one, records=2) for one in found])))
            case SwitchStep.COMMIT:
                topics = tuple(replace(one, points=(len(world.home),)) for one in now.topics)
                return StepDone(replace(now, topics=topics))
            case SwitchStep.REBUILD if world.spoilt:
                if world.saved != world.twin[CARRIED:]:
                    world.wrong.append("deleted before it was saved")
                world.twin, world.spoilt = [], False
                self._moment(1)
                world.let_go = False
                return StepPending("the mirror makes it anew")
            case SwitchStep.REBUILD:
                world.let_go = False
            case SwitchStep.REFILL if len(world.twin) < now.topics[0].points[0]:
                return StepPending("still to be filled")
            case SwitchStep.RELEASE:
                world.claimed = False
        return StepDone(now)


def play(hands: Hands) -> SwitchState:
    kept, now_ms = record().to_json(), NOW_MS
    for _ in range(300):
        current, now_ms = SwitchState.from_json(kept), now_ms + 10
        if current.ended:
            return current
        try:
            kept = apply_outcome(current, hands.once(current), now_ms).to_json()
        except KilledError:
            continue
    raise AssertionError(f"no end: {SwitchState.from_json(kept).step}")


@pytest.mark.claim(
    "switch", "killed-at-each-deed", "killed at each step and gone on with: nothing lost, nobody left held"
)
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("trouble", [None, *TURNS])
def test_a_rebuild_that_is_killed_at_any_step_ends_whole(trouble: SwitchStep | None, moment: int) -> None:
    for kill in range(60):
        world = World(random.Random(kill))
        before = list(world.twin)
        hands = Hands(world, (kill, moment), trouble)
        ended = play(hands)
        assert (world.wrong, world.claimed, world.let_go) == ([], False, False)
        assert (ended.state is SwitchStatus.DONE) is (trouble is None)
        if trouble is not None:
            assert world.twin == before, "nothing was deleted"
        else:
            assert world.saved == ["foreign 1", "foreign 2"]
            assert world.twin == world.home[: len(world.twin)]
            assert len(world.twin) >= ended.topics[0].points[0]
        if hands.calls < kill:
            break
    else:
        pytest.fail("more than 60 calls: the kills did not reach the end")


def test_once_it_deletes_it_goes_on_and_no_writer_waits() -> None:
    for step in STEPS_OF[STEPS_OF.index(SwitchStep.COMMIT) + 1 :]:
        going = replace(record(), step=step, step_ms=NOW_MS)
        later = apply_outcome(going, StepFailed("no"), NOW_MS + 10**9)
        assert (later.state, later.step) == (SwitchStatus.RUNNING, step)
        assert begin_rollback(going, "an operator says so", NOW_MS) == going
    one = record()
    while not one.ended:
        one = apply_outcome(one, StepDone(one), NOW_MS)
    assert (one.state, one.held_ms) == (SwitchStatus.DONE, 0)
