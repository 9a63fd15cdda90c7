"""The phases that a partition on its way is in, and which follow on which. A track makes no move that `MOVES` does not
have, and the drawing in ARCHITECTURE.md is made from it."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    LOOK = "look"
    LOOKING = "looking"
    RUNNING = "running"
    SETTLING = "settling"
    STOPPED = "stopped"


# From which phase to which, and when.
MOVES: tuple[tuple[Phase, Phase, str], ...] = (
    (Phase.LOOK, Phase.LOOKING, "both sides are asked"),
    (Phase.LOOK, Phase.RUNNING, "the pump before said where it stood"),
    (Phase.LOOKING, Phase.RUNNING, "the twin ends where it may"),
    (Phase.LOOKING, Phase.LOOK, "an answer is missing or past"),
    (Phase.RUNNING, Phase.SETTLING, "the twin's end is in doubt, answers are on their way"),
    (Phase.RUNNING, Phase.LOOK, "the twin's end is in doubt, no answer is on its way"),
    (Phase.SETTLING, Phase.LOOK, "the last answer is in"),
    *((phase, Phase.STOPPED, "an incident") for phase in Phase if phase is not Phase.STOPPED),
)
_ALLOWED = frozenset((before, after) for before, after, _ in MOVES)


def may_follow(before: Phase, after: Phase) -> bool:
    """Whether a partition may go from the one phase to the other, or stays in it."""
    return before is after or (before, after) in _ALLOWED
