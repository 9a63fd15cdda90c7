"""A fail-back is killed at each step, in each of its moments, and goes on: nothing goes that was not saved before."""

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
    first_undo_step,
)
from twinshore.switch.core.unreplicated import UnreplicatedRange, clamp_offsets, ranges_from_json, ranges_to_json

NOW_MS = 1_000_000
POINT = 5
OF_FAILBACK = STEPS[SwitchKind.FAILBACK]


def record() -> SwitchState:
    moved = TopicMove(topic="orders", old_id="a" * 32, new_id="b" * 32, term=2, partitions=1, points=(POINT,))
    made = SwitchState(
        id="f" * 32,
        kind=SwitchKind.FAILBACK,
        old="east",
        new="west",
        link="east->west",
        back="west->east",
        topics=(moved,),
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=0.0,
        step=OF_FAILBACK[0],
    )
    return begin_switch(made, NOW_MS)


@dataclass
class Returned:
    """East's log below and behind the point, what is saved of it, and where a group stands there. `anew`: the topic
    has been deleted, and the mirror makes it again."""

    rng: random.Random
    late: int
    east: list[str] = field(default_factory=list)
    west: list[str] = field(default_factory=list)
    saved: list[str] | None = None
    place: int | None = 0
    anew: bool = False
    claimed: bool = False
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        below = [f"record {number}" for number in range(POINT)]
        self.east = below + [f"late {number}" for number in range(self.late)]
        self.west = [*below, "fence", "new"]
        self.place = POINT + self.late - 1

    def breathe(self) -> None:
        """The mirror fills what it made, and nothing else where the old home has diverged."""
        if self.anew or not self.late:
            upto = self.rng.randint(len(self.east), len(self.west)) if len(self.east) < len(self.west) else 0
            self.east += self.west[len(self.east) : upto]


@dataclass
class Hands:
    world: Returned
    kill: tuple[int, int]
    trouble: SwitchStep | None = None
    calls: int = 0

    def once(self, now: SwitchState) -> StepOutcome:
        self.calls += 1
        self._moment(0)
        self.world.breathe()
        if now.state is SwitchStatus.ROLLING_BACK:
            self.world.claimed = False
            outcome: StepOutcome = StepDone(now)
        else:
            outcome = self._do(now)
        self._moment(2)
        return outcome

    def _moment(self, which: int) -> None:
        if self.kill == (self.calls, which):
            raise KilledError

    def _do(self, now: SwitchState) -> StepOutcome:
        world, step, found = self.world, now.step, ranges_from_json(now.tails)
        if step is self.trouble:
            return StepFailed("the test wants it so")
        if step is SwitchStep.CLAIM:
            world.claimed = True
        elif step is SwitchStep.INSPECT and world.late:
            return StepDone(
                replace(now, tails=ranges_to_json([UnreplicatedRange("orders", 0, POINT, len(world.east))]))
            )
        elif step is SwitchStep.RESCUE and found:
            self._moment(1)  # a file that was written in part has another name
            world.saved = world.east[POINT:]
            done = [replace(one, records=len(world.saved), file="a file") for one in found]
            assert world.place is not None
            return StepDone(replace(now, tails=ranges_to_json(done), places=str(world.place)))
        elif step is SwitchStep.REBUILD and found and not world.anew:
            if world.saved != world.east[POINT:]:
                world.wrong.append("deleted before it was saved")
            world.east, world.place, world.anew = [], None, True
            self._moment(1)
            return StepPending("the mirror makes it anew")
        elif step is SwitchStep.REFILL and len(world.east) < POINT:
            return StepPending("still to be filled")
        elif step is SwitchStep.RESTORE_OFFSETS and found:
            at = clamp_offsets({("orders", 0): int(now.places)}, {("orders", 0): found[0].first})["orders", 0]
            world.place = at if world.place is None else world.place
        elif step is SwitchStep.RELEASE:
            world.claimed = False
        return StepDone(now)


def play(hands: Hands) -> SwitchState:
    kept, now_ms = record().to_json(), NOW_MS
    for _ in range(200):
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
@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("trouble", [None, *OF_FAILBACK[: OF_FAILBACK.index(SwitchStep.COMMIT) + 1]])
def test_a_failback_that_is_killed_at_any_step_ends_whole(trouble: SwitchStep | None, moment: int, late: int) -> None:
    for kill in range(40):
        world = Returned(random.Random(kill), late)
        before = list(world.east)
        hands = Hands(world, (kill, moment), trouble)
        ended = play(hands)
        assert not world.wrong
        assert not world.claimed
        assert (ended.state is SwitchStatus.DONE) is (trouble is None)
        if trouble is not None:
            assert (world.anew, world.east[: len(before)]) == (False, before), "nothing was deleted"
        elif late:
            assert world.saved == [f"late {number}" for number in range(late)]
            assert world.east == world.west[: len(world.east)]
            assert world.place == POINT, "never in the tail that is no more"
        else:
            assert (world.saved, world.anew) == (None, False)
        if hands.calls < kill:
            break
    else:
        pytest.fail("more than 40 calls: the kills did not reach the end")


def test_once_it_deletes_it_goes_on() -> None:
    behind = OF_FAILBACK[OF_FAILBACK.index(SwitchStep.COMMIT) + 1 :]
    for step in behind:
        going = replace(record(), step=step, step_ms=NOW_MS)
        for outcome in (StepFailed("no"), StepPending("later")):
            later = apply_outcome(going, outcome, NOW_MS + 10**9)
            assert (later.state, later.step) == (SwitchStatus.RUNNING, step)
        assert begin_rollback(going, "an operator says so", NOW_MS) == going


def test_no_writer_waits_for_it() -> None:
    one = record()
    while not one.ended:
        one = apply_outcome(one, StepDone(one), NOW_MS)
    assert (one.state, one.held_ms) == (SwitchStatus.DONE, 0)


def test_mapped_it_deletes_nothing_and_the_mirror_carries_again_where_it_turns_back() -> None:
    steps = STEPS[SwitchKind.MAPPED_FAILBACK]
    assert SwitchStep.REBUILD not in steps
    assert (
        steps.index(SwitchStep.RESCUE)
        < steps.index(SwitchStep.STOP_REPLICATION)
        < steps.index(SwitchStep.COMMIT)
        < steps.index(SwitchStep.CONTINUE_MAPPED)
    )
    assert first_undo_step(SwitchKind.MAPPED_FAILBACK, SwitchStep.COMMIT) is SwitchStep.CLAIM, (
        "the mirror carries what is in no switch"
    )
    going = replace(record(), kind=SwitchKind.MAPPED_FAILBACK, step=SwitchStep.CONTINUE_MAPPED, step_ms=NOW_MS)
    assert apply_outcome(going, StepFailed("no"), NOW_MS + 10**9).state is SwitchStatus.RUNNING
    one = begin_switch(replace(record(), kind=SwitchKind.MAPPED_FAILBACK), NOW_MS)
    while not one.ended:
        one = apply_outcome(one, StepDone(one), NOW_MS)
    assert (one.state, one.held_ms) == (SwitchStatus.DONE, 0)
