"""What becomes of one group's place on one partition: the rules, as a function over values. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twinshore.groups.translation import Spot
from twinshore.wire.group_places import Place

# One look might see a consumer that commits late; after two of them the source's group has been set back on purpose.
LOOKS_FOR_A_RESET = 2


class State(StrEnum):
    """How a group stands on the target beside the source."""

    SAME = "same"
    MOVES = "moves"
    BEHIND = "behind"  # as far as the twin reaches, which is not as far as the group has read
    SET_BACK = "set back"
    SETTING_BACK = "setting back"  # lower than it was, seen once
    AHEAD = "ahead"  # somebody read on at the target; left alone
    LIVE = "has members"  # left alone
    UNKNOWN = "unknown"  # before the first record that the link carried
    REFUSED = "refused"


class Memory(NamedTuple):
    """What earlier looks saw: the furthest place on the source, how often it was lower since, and the offset at which
    the target's place was ours or the same as ours; -1: never."""

    high: int = -1
    lower_looks: int = 0
    agreed: int = -1


NOTHING = Memory()


class Decision(NamedTuple):
    """`to` is what to commit; None: nothing. `memory` holds once that is done. `whole`: no need to look again until
    something changes."""

    state: State
    to: Place | None
    memory: Memory
    whole: bool


def decide(
    place: Place, spot: Spot, end: int, there: Place | None, memory: Memory = NOTHING, *, resets: bool = True
) -> Decision:
    """`place` is the source's, `spot` the same on the target, `end` the target's high watermark, `there` what the group
    has there. No place lies beyond the end: a consumer would be thrown to an end of the log by its reset policy."""
    goal = min(spot.offset, end)
    whole = spot.reached and goal == spot.offset
    lower = place.offset < memory.high
    looks = memory.lower_looks + 1 if lower else 0
    # Its metadata is about the place it was written for.
    wanted = Place(goal, place.metadata if whole else "")
    moved = Memory(place.offset, 0, goal)
    if there is None or goal > there.offset:
        return Decision(State.MOVES if whole else State.BEHIND, wanted, moved, whole)
    if goal == there.offset:
        to = wanted if whole and (wanted.metadata or "") != (there.metadata or "") else None
        return Decision(State.SAME if whole else State.BEHIND, to, Memory(place.offset, 0, goal), whole)
    if resets and lower and memory.agreed == there.offset:
        if looks >= LOOKS_FOR_A_RESET:
            return Decision(State.SET_BACK, wanted, moved, whole)
        return Decision(State.SETTING_BACK, None, memory._replace(lower_looks=looks), whole=False)
    return Decision(State.AHEAD, None, memory._replace(high=max(memory.high, place.offset)), whole=True)


def decide_back(place: Place, spot: Spot, end: int, there: Place | None, memory: Memory = NOTHING) -> Decision:
    """The other way: `place` is what a group has on the target. The source's place only ever goes forward, and only
    after the target's has been seen to move: one that was found as it is may be older than what the source has."""
    found = memory.high < 0 or place.offset == memory.high
    decision = decide(place, spot, end, there, memory, resets=False)
    if found and there is not None and decision.to is not None and decision.to.offset > there.offset:
        return Decision(State.AHEAD, None, Memory(place.offset, 0, memory.agreed), whole=True)
    return decision
