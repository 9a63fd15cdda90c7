"""What a switch does, deed by deed, as a table. Pure. The drawing in docs/switch.md is made from it.

Each deed may be done twice, and each that has an undo may be undone though it was done in part or not at all: whoever
goes on after a process was killed begins with the deed that was under way. `COMMIT` is the point of no return: before
it a switch can turn back, past it it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinshore.fleet.settings.sections.switch import COMMAND_S_MAX


class Kind(StrEnum):
    """PLANNED: both clusters answer, and nothing is lost. FORCED: the old home does not answer. DRILL: a planned switch
    that looks, measures, and changes nothing. BARE: writers move to an empty log, which goes on where the old one ends;
    what is in that one stays there. FAILBACK: the old home of a forced switch is back; what it never sent is
    saved, and it becomes a twin. MAPPED: the same, but nothing is deleted, and twins go on behind it. REBUILD: a twin
    that is spoilt is filled anew, and the topic stays where it is at home. GROUP: one consumer
    group alone reads on at the other cluster; its topics stay."""

    PLANNED = "planned"
    FORCED = "forced"
    DRILL = "drill"
    BARE = "dataless"
    FAILBACK = "fail-back"
    MAPPED = "mapped fail-back"
    REBUILD = "rebuild"
    GROUP = "group"


class Deed(StrEnum):
    CLAIM = "claim"
    PREPARE = "prepare"
    MAKE = "make"
    FILL = "fill"
    ANNOUNCE = "announce"
    HOLD = "hold"
    DRAIN = "drain"
    LEVEL = "level"
    PROVE = "prove"
    LET_GO = "let go"
    COMMIT = "commit"
    FENCE = "fence"
    GIVE = "give"
    PLACES = "places"
    FLIP = "flip"
    TAKE_UP = "take up"
    TELL = "tell"
    GUARD = "guard"
    LOOK = "look"
    RESCUE = "rescue"
    REBUILD = "rebuild"
    REFILL = "refill"
    GO_ON = "go on"
    PUT_BACK = "put back"
    BEFORE = "before"
    AFTER = "after"
    LEAVE = "leave"
    REACH = "reach"
    SET = "set"
    FOLLOW = "follow"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Duty:
    """A deed as people read it: `does`, and what turning back `undoes`, empty where there is nothing to undo.
    `held`: whether writers wait meanwhile. `patience_s`: how long it may take before the switch turns back; of deeds
    that writers wait for, the bound of the hold counts besides."""

    does: str
    undoes: str = ""
    held: bool = False
    patience_s: float = 60.0


DUTIES: Mapping[Deed, Duty] = {
    Deed.CLAIM: Duty(
        "claim what moves, so that no other switch moves it", "give it back; the mirror carries it again", patience_s=10
    ),
    Deed.PREPARE: Duty("see that the twins follow closely, and prove all but their tails", patience_s=600),
    Deed.MAKE: Duty(
        "make what is lacking on the new home, empty, and let it end nearly where the old one does", patience_s=600
    ),
    Deed.FILL: Duty("let the new logs end where the old ones do", held=True),
    Deed.BEFORE: Duty(
        "run the command `before` of the settings", "run `after`: it stays where it is", patience_s=COMMAND_S_MAX + 60
    ),
    Deed.AFTER: Duty("run the command `after` of the settings"),
    Deed.ANNOUNCE: Duty("announce the switch to those who follow homes", "say that the topics stay", patience_s=15),
    Deed.HOLD: Duty("hold all writers", "let the writers go on where they were", held=True),
    Deed.DRAIN: Duty("wait until open transactions have ended and the logs stand still", held=True),
    Deed.LEVEL: Duty("wait until the twins are level", held=True),
    Deed.PROVE: Duty("prove the tails", held=True),
    Deed.LET_GO: Duty("have the mirror let the topics go", held=True),
    Deed.COMMIT: Duty("decide: from here on the switch goes on", held=True),
    Deed.FENCE: Duty("shut out late requests of the old link", held=True),
    Deed.GIVE: Duty("give the new home its settings and rights", held=True),
    Deed.PLACES: Duty("copy the places of groups", held=True),
    Deed.FLIP: Duty("say where the topics are at home now; writers go on there", held=True),
    Deed.TAKE_UP: Duty("see that the link back carries the topics"),
    Deed.TELL: Duty("say on the old home where the topics are at home now"),
    Deed.GUARD: Duty("keep all but the link back from writing on the old home"),
    Deed.LOOK: Duty("see what never crossed, once nothing more is written there", patience_s=600),
    Deed.RESCUE: Duty("save what never crossed on the new home", patience_s=86_400),
    Deed.REBUILD: Duty("delete what is to be filled again, and have the mirror make it anew"),
    Deed.REFILL: Duty("wait until it is filled again"),
    Deed.PUT_BACK: Duty("put groups back where they stood there"),
    Deed.LEAVE: Duty("wait until the group has no members where it is", patience_s=600),
    Deed.REACH: Duty("wait until all that the group has read is on the other side too"),
    Deed.SET: Duty("set the group's places there", "set them back", patience_s=15),
    Deed.FOLLOW: Duty("have places that stay on twins follow the group again"),
    Deed.GO_ON: Duty("have twins go on behind what never crossed, at offsets of their own"),
    Deed.RELEASE: Duty("end the switch"),
}

DEEDS: Mapping[Kind, tuple[Deed, ...]] = {
    Kind.PLANNED: (
        *(Deed.CLAIM, Deed.PREPARE, Deed.BEFORE, Deed.ANNOUNCE, Deed.HOLD, Deed.DRAIN, Deed.LEVEL, Deed.PROVE),
        *(Deed.LET_GO, Deed.COMMIT),
        *(Deed.FENCE, Deed.GIVE, Deed.PLACES, Deed.FLIP, Deed.AFTER, Deed.TAKE_UP, Deed.RELEASE),
    ),
    Kind.FORCED: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.LET_GO, Deed.LEVEL, Deed.COMMIT),
        *(Deed.FENCE, Deed.GIVE, Deed.PLACES, Deed.FLIP, Deed.AFTER, Deed.RELEASE),
    ),
    Kind.BARE: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.ANNOUNCE, Deed.MAKE, Deed.HOLD, Deed.DRAIN, Deed.FILL, Deed.COMMIT),
        *(Deed.GIVE, Deed.FLIP, Deed.AFTER, Deed.GUARD, Deed.RELEASE),
    ),
    Kind.DRILL: (Deed.PREPARE, Deed.DRAIN, Deed.LEVEL, Deed.PROVE),
    Kind.FAILBACK: (
        *(Deed.CLAIM, Deed.TELL, Deed.GUARD, Deed.LOOK, Deed.RESCUE, Deed.COMMIT),
        *(Deed.REBUILD, Deed.REFILL, Deed.PUT_BACK, Deed.RELEASE),
    ),
    Kind.MAPPED: (
        *(Deed.CLAIM, Deed.TELL, Deed.GUARD, Deed.LOOK, Deed.RESCUE, Deed.LET_GO, Deed.COMMIT),
        *(Deed.GO_ON, Deed.FOLLOW, Deed.RELEASE),
    ),
    Kind.REBUILD: (
        *(Deed.CLAIM, Deed.LET_GO, Deed.LOOK, Deed.RESCUE, Deed.COMMIT),
        *(Deed.REBUILD, Deed.REFILL, Deed.PUT_BACK, Deed.RELEASE),
    ),
    Kind.GROUP: (
        *(Deed.CLAIM, Deed.BEFORE, Deed.LEAVE, Deed.REACH, Deed.SET, Deed.COMMIT),
        *(Deed.FOLLOW, Deed.AFTER, Deed.RELEASE),
    ),
}
# Of these the topics are at home on `new` in the end, and on `old` before.
MOVES_HOMES = frozenset({Kind.PLANNED, Kind.FORCED, Kind.BARE})
# Of these all writers are held on `old` meanwhile, so that nothing is lost of what they write.
HOLDS = frozenset({Kind.PLANNED, Kind.BARE})
# Of these the topics stay at home on `new`, and `old` is the cluster of their twins.
MAKES_TWINS = frozenset({Kind.FAILBACK, Kind.MAPPED, Kind.REBUILD})
# Nobody who writes waits for these.
UNHELD = MAKES_TWINS | {Kind.GROUP}


def is_past(kind: Kind, deed: Deed, other: Deed) -> bool:
    """Whether this deed comes after the other one."""
    deeds = DEEDS[kind]
    return other in deeds and deeds.index(deed) > deeds.index(other)


def following(kind: Kind, deed: Deed) -> Deed | None:
    """The next deed; None after the last."""
    deeds = DEEDS[kind]
    at = deeds.index(deed) + 1
    return deeds[at] if at < len(deeds) else None


def to_undo(kind: Kind, deed: Deed) -> Deed | None:
    """The deed to be undone next where this one was the last to be begun; None where nothing is left to undo."""
    deeds = DEEDS[kind]
    return next((one for one in reversed(deeds[: deeds.index(deed) + 1]) if DUTIES[one].undoes), None)


def next_undo(kind: Kind, deed: Deed) -> Deed | None:
    """The deed to be undone after this one; None where it was the last."""
    at = DEEDS[kind].index(deed)
    return to_undo(kind, DEEDS[kind][at - 1]) if at else None
