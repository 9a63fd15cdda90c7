"""A forced switch is killed at each of its steps and goes on, while late requests of the old link still arrive."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from tests.switch.test_decision import NOW_MS, record
from tests.switch.world import Hands, World, play
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
)


@dataclass
class Dead(World):
    """East is no more from some moment on: nobody writes there, and no mirror reads there."""

    gone: bool = False

    def breathe(self) -> None:
        if not self.gone:
            super().breathe()
            return
        for _ in range(self.rng.randrange(4)):
            if self.line == ("west", 2, "settled"):
                self.logs["west"].append(self.acknowledged)
                self.acknowledged += 1
        if self.late and self.rng.random() < 0.3:
            at, number = self.late.pop()
            if not self.shut and at == len(self.logs["west"]):  # in sequence: a broker takes it
                self.logs["west"].append(number)
                if self.line[0] == "west":
                    self.wrong.append(f"a late request landed at {at} behind the flip")


@dataclass
class Forced(Hands):
    """The steps of a switch whose old home does not answer."""

    def _do(self, record: SwitchState) -> StepOutcome:
        world, step = self.world, record.step
        here = (len(world.logs["west"]),)
        if step is self.trouble:
            return super()._do(record)
        if step is SwitchStep.CATCH_UP:
            return StepDone(_at(record, here))
        if step is SwitchStep.FENCE:
            if world.shut:
                return StepDone(record)
            if record.topics[0].points != here:
                return StepPending("the twin has grown at last", _at(record, here))
            world.shut = True
            self._moment(1)
            return StepDone(record)
        if step is SwitchStep.PROMOTE:
            if not world.shut:
                world.wrong.append("flipped before the fence")
            world.line = ("west", 2, "settled")
            self._moment(1)
            return StepDone(record)
        return super()._do(record)


def _at(record: SwitchState, points: tuple[int, ...]) -> SwitchState:
    return replace(record, topics=(replace(record.topics[0], points=points),))


EARLY = STEPS[SwitchKind.FORCED][: STEPS[SwitchKind.FORCED].index(SwitchStep.COMMIT) + 1]


@pytest.mark.claim(
    "switch", "killed-at-each-deed", "killed at each step and gone on with: nothing lost, nobody left held"
)
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("trouble", [None, *EARLY])
def test_a_forced_switch_that_is_killed_at_any_step_ends_whole(trouble: SwitchStep | None, moment: int) -> None:
    """What had crossed stays, in order, and what the new home takes comes behind it."""
    for kill in range(60):
        world = Dead(random.Random(kill * 11 + moment))
        for _ in range(6):
            world.breathe()
        world.gone, before = True, world.acknowledged
        ended = play(record(SwitchKind.FORCED), Forced(world, (kill, moment), trouble), NOW_MS)
        assert not world.wrong
        assert not world.claimed
        assert (ended.state is SwitchStatus.DONE) is (trouble is None)
        if trouble is not None:
            assert (world.line, world.carrying, world.shut) == (("east", 1, "settled"), "east", False)
            continue
        for _ in range(6):
            world.breathe()
        assert world.line == ("west", 2, "settled")
        (point,) = ended.topics[0].points
        assert world.logs["west"][:point] == world.logs["east"][:point]
        assert world.logs["west"][point:] == list(range(before, world.acknowledged))
        assert not world.wrong
