"""`python -m tests.scenarios.killed_at DEED WHEN ...` is the `twinshore` command that is killed at a deed of a switch.

WHEN: `before` anything of the deed is done; `first`, behind what was done of it at once, whatever that is; `behind`
all of it, and before anybody wrote that down. With `undo ` before DEED it is the deed's undoing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from twinshore.cli.__main__ import main
from twinshore.runtime import leases
from twinshore.switch.core.steps import Done, Outcome, State, SwitchState
from twinshore.switch.drain import Commands
from twinshore.switch.failback import Failback, Rebuild
from twinshore.switch.group import OneGroup
from twinshore.switch.runner import Work

# A lease of ten seconds would have each test wait for twelve.
LEASE_S, GRACE_S = 3.0, 0.2
UNDO = "undo "


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(deed: str, when: str) -> None:
    """From now on switches of this process get no further."""
    for kind in (Work, Failback, Rebuild, OneGroup, Commands):
        _kill_at(kind, deed, when)


def _kill_at(kind: Any, deed: str, when: str) -> None:
    once: Callable[[Any, SwitchState], Outcome] = kind.once

    def until_then(work: Any, record: SwitchState) -> Outcome:
        undoing = record.state is State.TURNING_BACK
        due = record.deed == deed.removeprefix(UNDO) and undoing == deed.startswith(UNDO)
        if due and when == "before":
            die()
        outcome = once(work, record)
        if due and (when == "first" or isinstance(outcome, Done)):
            die()
        return outcome

    kind.once = until_then


if __name__ == "__main__":
    leases.LEASE_S, leases.GRACE_S = LEASE_S, GRACE_S
    kill_at(sys.argv[1], sys.argv[2])
    del sys.argv[1:3]
    main()
