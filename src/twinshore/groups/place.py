"""What becomes of one group's place on one partition: the rules, as a function over values. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twinshore.groups.translation import Spot
from twinshore.wire.group_places import Place

# One look might see a consumer that commits late; after two of them the source's group has been set back on purpose.
LOOKS_FOR_A_RESET = 2
# What the link leaves beside a place whose consumer left nothing there, so that its own places are known on the target
# itself, whatever store or process is gone. It is base64 of a version that Kafka Streams takes for none of its own.
MARK = "twinshore+++"


class State(StrEnum):
    """How a group stands on the target beside the source."""

    SAME = "same"
    MOVES = "moves"
    WAITS = "waits"  # until what its readers wrote has crossed
    BEHIND = "behind"  # as far as the twin reaches, which is not as far as the group has read
    SET_BACK = "set back"
    SETTING_BACK = "setting back"  # lower than it was, seen once
    AHEAD = "ahead"  # further on than the source's; left alone
    OWN = "on its own"  # not further on, and set by somebody who is not this link; left alone
    LIVE = "has members"  # left alone
    UNKNOWN = "unknown"  # before the first record that the link carried
    REFUSED = "refused"
    AWAY = "away"  # nobody answers for it there


class Memory(NamedTuple):
    """What earlier looks saw: the furthest place on the source, how often it was lower since, and the offset at which
    the target's place was ours or the same as ours; -1: never. `own`: somebody else has set it since. `marked`: it
    carried the mark there. `tried`: what was sent there, and no answer is known."""

    high: int = -1
    lower_looks: int = 0
    agreed: int = -1
    own: bool = False
    marked: bool = False
    tried: Place | None = None


NOTHING = Memory()


class Decision(NamedTuple):
    """`to` is what to commit; None: nothing. `memory` holds once that is done. `whole`: no need to look again until
    something changes."""

    state: State
    to: Place | None
    memory: Memory
    whole: bool


class Rules(NamedTuple):
    """`resets`: a group that is set back on the source is set back on the target. `trusts`: a place that is found
    without a mark may be of when the link left none. `returns`: what is read at the target comes to the source,
    so that a place that both sides share is nobody's own. `marks`: places can carry a mark. `notes`: the group's
    consumers leave notes, and may fail at a mark; so none is left, and the link's places are known by memory. `makes`:
    a group that has no place at all on the side that is written gets one there."""

    resets: bool = True
    trusts: bool = False
    returns: bool = False
    marks: bool = True
    notes: bool = False
    makes: bool = True


PLAIN = Rules()


def decide(
    place: Place, spot: Spot, end: int, there: Place | None, memory: Memory = NOTHING, rules: Rules = PLAIN
) -> Decision:
    """`place` is the source's, `spot` the same on the target, `end` the target's high watermark, `there` what the group
    has there. No place lies beyond the end: a consumer would be thrown to an end of the log by its reset policy."""
    goal = min(spot.offset, end)
    whole = spot.reached and goal == spot.offset
    memory = _answered(memory, there)
    lower = place.offset < memory.high or _is_below_mark(spot, there, memory)
    looks = memory.lower_looks + 1 if lower else 0
    wanted = Place(goal, _note(place, rules, whole=whole))
    moved = Memory(place.offset, 0, goal, marked=wanted.metadata == MARK)
    met = whole and there is not None and there.offset == goal
    if there is not None and rules.marks and _is_anothers(there, memory, rules, met=met):
        state = State.SAME if met else State.OWN if goal >= there.offset else State.AHEAD
        left = memory._replace(high=max(memory.high, place.offset), own=True, tried=None)
        return Decision(state, None, left, whole=True)
    if there is None or goal > there.offset:
        return Decision(State.MOVES if whole else State.BEHIND, wanted, moved, whole)
    if goal == there.offset:
        to = wanted if whole and _may_note(there, wanted, memory, rules) else None
        seen = moved if to is not None else moved._replace(marked=there.metadata == MARK)
        return Decision(State.SAME if whole else State.BEHIND, to, seen, whole)
    if rules.resets and lower and (memory.agreed == there.offset or there.metadata == MARK):
        if looks >= LOOKS_FOR_A_RESET:
            return Decision(State.SET_BACK, wanted, moved, whole)
        return Decision(State.SETTING_BACK, None, memory._replace(lower_looks=looks), whole=False)
    return Decision(State.AHEAD, None, memory._replace(high=max(memory.high, place.offset)), whole=True)


def _answered(memory: Memory, there: Place | None) -> Memory:
    """What the target's place says of a commit whose answer was lost: where it stands there, the commit arrived."""
    sent = memory.tried
    if sent is None or there is None or (there.offset, there.metadata or "") != (sent.offset, sent.metadata or ""):
        return memory
    return memory._replace(agreed=sent.offset, marked=sent.metadata == MARK, tried=None)


def _may_note(there: Place, wanted: Place, memory: Memory, rules: Rules) -> bool:
    """Whether the note beside a place is to become another. Over a place that its reader came to by itself nothing is
    written at once: it may be about to commit the next one."""
    if (wanted.metadata or "") == (there.metadata or ""):
        return False
    rested = rules.returns and memory.agreed == there.offset and not memory.own
    return there.metadata == MARK or has_note(there) or _is_first(memory) or rested or not rules.marks


def _note(place: Place, rules: Rules, *, whole: bool) -> str:
    """What is written beside a place: its consumer's note, which is about that place alone, or else the mark."""
    note = place.metadata if whole and has_note(place) else ""
    return note or (MARK if rules.marks and not rules.notes else "")


def has_note(place: Place) -> bool:
    """Whether a consumer left a text there. Some clients send a byte 0 for none."""
    return bool((place.metadata or "").rstrip("\0")) and place.metadata != MARK


def _is_anothers(there: Place, memory: Memory, rules: Rules, *, met: bool) -> bool:
    """Whether the target's place is not the link's: it lacks the mark, and is not as the link left it. Once so, it
    stays so. Where a consumer's note is in the mark's place, one that was never seen before may be the link's; and one
    that was never seen before and is where it should be (`met`) is taken for the link's too."""
    if there.metadata == MARK or (met and rules.returns):
        return False
    if memory.own:
        return True
    if there.offset == memory.agreed:
        return memory.marked
    first_is_ours = met or rules.trusts or rules.notes or has_note(there)
    return not (_is_first(memory) and first_is_ours)


def _is_below_mark(spot: Spot, there: Place | None, memory: Memory) -> bool:
    """Whether the target's place is the link's own and lies further on than the source's, though nothing is
    remembered. Then the group was set back on the source meanwhile, or was deleted and began again. The mark says
    that nobody has read on from that place."""
    if there is None or there.metadata != MARK:
        return False
    return _is_first(memory) and spot.reached and spot.offset < there.offset


def _is_first(memory: Memory) -> bool:
    return memory.agreed < 0 and not memory.own


def decide_back(
    place: Place, spot: Spot, end: int, there: Place | None, memory: Memory = NOTHING, rules: Rules = PLAIN
) -> Decision:
    """The other way: `place` is what a group has on the target. The source's place only ever goes forward, and only
    after the target's has been seen to move: one that was found as it is may be older than what the source has, or than
    the group's deletion there."""
    found = place.offset <= memory.high or memory.high < 0
    decision = decide(place, spot, end, there, memory, rules._replace(resets=False, marks=False))
    to = decision.to
    onwards = to is not None and (there is None or to.offset > there.offset)
    if onwards and (found or (there is None and not rules.makes)):
        return Decision(State.AHEAD, None, Memory(place.offset, 0, memory.agreed), whole=True)
    return decision
