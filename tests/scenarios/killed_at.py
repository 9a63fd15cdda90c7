"""`python -m tests.scenarios.killed_at Step WHEN ...` is the `twinshore` command that is killed at a step of a switch.

WHEN: `before` anything of the step is done; `first`, behind what was done of it at once, whatever that is; `behind`
all of it, and before anybody wrote that down. With `undo ` before Step it is the deed's undoing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from twinshore.cli.__main__ import main
from twinshore.runtime import lease_keeper
from twinshore.switch.core.steps import StepDone, StepOutcome, SwitchState, SwitchStatus
from twinshore.switch.drain import CommandSteps
from twinshore.switch.failback import FailbackSteps, RebuildSteps
from twinshore.switch.operations.one_client import GroupSwitchSteps
from twinshore.switch.step_runner import SwitchSteps

# A lease of ten seconds would have each test wait for twelve.
LEASE_S, GRACE_S = 3.0, 0.2
UNDO = "undo "


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(step: str, when: str) -> None:
    """From now on switches of this process get no further."""
    for kind in (SwitchSteps, FailbackSteps, RebuildSteps, GroupSwitchSteps, CommandSteps):
        _kill_at(kind, step, when)


def _kill_at(kind: Any, step: str, when: str) -> None:
    once: Callable[[Any, SwitchState], StepOutcome] = kind.once

    def until_then(work: Any, record: SwitchState) -> StepOutcome:
        undoing = record.state is SwitchStatus.ROLLING_BACK
        due = record.step == step.removeprefix(UNDO) and undoing == step.startswith(UNDO)
        if due and when == "before":
            die()
        outcome = once(work, record)
        if due and (when == "first" or isinstance(outcome, StepDone)):
            die()
        return outcome

    kind.once = until_then


if __name__ == "__main__":
    lease_keeper.LEASE_S, lease_keeper.GRACE_S = LEASE_S, GRACE_S
    kill_at(sys.argv[1], sys.argv[2])
    del sys.argv[1:3]
    main()
