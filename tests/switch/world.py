"""A switch in a world of two logs, with hands that may be killed before, amid and after each step.

The world is as simple as may be: writers write where the home line says unless they are held, a mirror copies from the
home, and a late request of the old link may arrive whenever nothing has shut it out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from twinshore.switch.core.steps import (
    MustRollBack,
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    apply_outcome,
    repeat_hold,
)

TROUBLE = "the test wants it so"


class KilledError(Exception):
    """The process that switches is no more."""


@dataclass
class World:
    """`logs`: what each home holds; `line`: home, term and word of the topic, as followers read it."""

    rng: random.Random
    logs: dict[str, list[int]] = field(default_factory=lambda: {"east": [], "west": []})
    line: tuple[str, int, str] = ("east", 1, "settled")
    claimed: bool = False
    carrying: str = "east"  # from where the mirror copies; empty: nowhere
    shut: bool = False
    rights_held: bool = False
    acknowledged: int = 0
    late: list[tuple[int, int]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    authorizer: bool = True
    runs_out: float = 0.0  # how likely a hold runs out meanwhile: writers go on by themselves

    def breathe(self) -> None:
        """Some time passes: writers write, the mirror copies, a late request may arrive."""
        for _ in range(self.rng.randrange(4)):
            home, _, word = self.line
            if word != "held" and not (home == "east" and self.rights_held):
                self.logs[home].append(self.acknowledged)
                self.acknowledged += 1
        if self.carrying:
            source, target = self.logs[self.carrying], self.logs[other(self.carrying)]
            upto = self.rng.randint(min(len(target), len(source)), len(source))
            if self.carrying == "east" and self.rng.random() < 0.2 and len(target) < len(source):
                self.late.append((len(target), source[len(target)]))
            target[:] = source[:upto] if upto >= len(target) else target
        if self.line[2] == "held" and self.rng.random() < self.runs_out:
            self.line = (*self.line[:2], "run out")
        if self.late and self.rng.random() < 0.3:
            at, record = self.late.pop()
            west = self.logs["west"]
            if not self.shut and at == len(west):  # in sequence: a broker takes it
                west.append(record)
                if self.line[0] == "west":
                    self.wrong.append(f"a late request landed at {at} behind the flip")


def other(home: str) -> str:
    return "west" if home == "east" else "east"


@dataclass
class Hands:
    """Steps on the world. `kill`: at which call, counted over the whole switch, the process dies, and at which of its
    three moments. `trouble`: which step cannot be done."""

    world: World
    kill: tuple[int, int] = (-1, 0)
    trouble: SwitchStep | None = None
    calls: int = 0
    holds: bool = False  # by the clock of the process

    def once(self, record: SwitchState) -> StepOutcome:
        """The step that is due, or its undoing."""
        self.calls += 1
        self._moment(0)
        self.world.breathe()
        undo = record.state is SwitchStatus.ROLLING_BACK
        outcome = self._undo(record) if undo else self._do(record)
        self._moment(2)
        return outcome

    def _moment(self, which: int) -> None:
        if self.kill == (self.calls, which):
            self.holds = False
            raise KilledError

    def _do(self, record: SwitchState) -> StepOutcome:
        world, step = self.world, record.step
        if step is self.trouble:
            return StepFailed(TROUBLE)
        home, term, word = world.line
        self.holds &= word == "held"
        if step is SwitchStep.CLAIM:
            world.claimed = True
        elif step is SwitchStep.ANNOUNCE:
            world.line = (home, term, "announced")
        elif step is SwitchStep.HOLD:
            world.line = (home, term, "held")
            self._moment(1)
            world.rights_held, self.holds = world.authorizer, True
        elif step is SwitchStep.COMMIT and record.kind is SwitchKind.PLANNED and not self.holds:
            return StepFailed("the hold has run out")
        elif step is SwitchStep.CATCH_UP:
            if len(world.logs["west"]) != len(world.logs["east"]):
                return StepPending("the twin is behind")
            points = (len(world.logs["east"]),)
            return StepDone(replace(record, topics=(replace(record.topics[0], points=points),)))
        elif step is SwitchStep.STOP_REPLICATION:
            world.carrying = ""
        elif (
            step in (SwitchStep.FENCE, SwitchStep.PROMOTE)
            and record.kind is SwitchKind.PLANNED
            and not self.holds
            and home == "east"
        ):
            world.line, self.holds = (home, term, "held"), True
            if record.topics[0].points != (len(world.logs["east"]),):
                return MustRollBack("somebody wrote")
            return StepPending("writers are held again")
        else:
            self._behind_the_decision(record)
        return StepDone(record)

    def _behind_the_decision(self, record: SwitchState) -> None:
        world, step = self.world, record.step
        if step is SwitchStep.FENCE:
            if record.topics[0].points != (len(world.logs["east"]),):
                world.wrong.append("the old home grew behind the points")
            world.shut = True
        elif step is SwitchStep.PROMOTE:
            if not world.shut:
                world.wrong.append("flipped before the fence")
            if world.line[0] == "east" and record.topics[0].points != (len(world.logs["east"]),):
                world.wrong.append("flipped over what was written at the old home")
            world.line = ("west", 2, "settled")
            self._moment(1)
            world.carrying = "west"
        elif step is SwitchStep.RELEASE:
            world.rights_held = world.claimed = False

    def _undo(self, record: SwitchState) -> StepOutcome:
        world, step = self.world, record.step
        home, term, _ = world.line
        if home == "west":
            world.wrong.append("turned back behind the flip")
        if step is SwitchStep.CLAIM:
            world.claimed, world.carrying = False, "east"
        elif step in (SwitchStep.ANNOUNCE, SwitchStep.HOLD):
            world.rights_held = False
            self._moment(1)
            world.line = (home, term, "settled")
        return StepDone(record)


def play(record: SwitchState, hands: Hands, now_ms: int, steps_max: int = 500) -> SwitchState:
    """Until the switch has ended; a killed process is followed by another one, which has the record alone."""
    kept = record.to_json()
    for _ in range(steps_max):
        now_ms += 100
        current = SwitchState.from_json(kept)
        if current.ended:
            return current
        try:
            outcome = hands.once(current)
        except KilledError:
            kept = repeat_hold(current, now_ms).to_json()  # nothing of what it knew is left
            continue
        kept = apply_outcome(current, outcome, now_ms).to_json()
    raise AssertionError(f"no end after {steps_max} steps: {SwitchState.from_json(kept).step}")
