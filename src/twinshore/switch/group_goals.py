"""Where one group would stand on the side it moves to, and what keeps it from there. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from twinshore.fleet import WireError
from twinshore.fleet.sentences import counted, listed
from twinshore.switch.deeds import MAKES_TWINS, MOVES_HOMES, Kind
from twinshore.switch.record import Record, State

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Goal:
    """A partition. `left_topic`, `left`: its name and the group's place on the side that the group leaves; `topic`,
    `to`: the same on the other side, where the group has `has` now. `link` carries the partition, `back`: the group
    goes from its twin to its home. `short`: how many offsets the log there lacks until the group can stand there."""

    link: str
    back: bool
    left_topic: str
    left: int
    topic: str
    partition: int
    has: int | None
    to: int
    short: int = 0


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group on both sides. `old_live`, `new_live`: whether it has members there; `lost`: partitions of which nobody
    knows where it would stand; `unheard`: why a side says nothing, empty where both do."""

    goals: tuple[Goal, ...] = ()
    old_live: bool = False
    new_live: bool = False
    lost: tuple[str, ...] = ()
    unheard: str = ""

    def topics(self) -> tuple[str, ...]:
        """The names of the topics where they are at home."""
        return tuple(sorted({one.topic if one.back else one.left_topic for one in self.goals}))


def short_of(goals: Iterable[Goal]) -> str:
    """Which logs do not reach as far as the group has read; empty where all do."""
    short = [one for one in goals if one.short]
    if not short:
        return ""
    where = listed([f"{one.topic}-{one.partition}" for one in short], NAMED_MAX)
    return f"{counted(sum(one.short for one in short), 'offset')} that it has read are not there yet, in {where}"


def further_on(goals: Iterable[Goal], old: str, new: str) -> str:
    """Where it has read further on the side to which it would move; empty where it has not. It is not set back."""
    ahead = [one for one in goals if one.has is not None and one.has > one.to]
    if not ahead:
        return ""
    where = listed([f"{one.topic}-{one.partition}" for one in ahead], NAMED_MAX)
    by = counted(sum((one.has or 0) - one.to for one in ahead), "offset")
    return f"is further on on {new} than on {old}, by {by}, in {where}"


def read_again(seen: Iterable[GroupSeen], old: str, new: str) -> str:
    """How many records groups would read again if either cluster died now, and they went on at the other one."""
    pairs = [(one.to, one.has) for group in seen for one in group.goals]
    lone = sum(has is None for _, has in pairs)
    behind = sum(max(0, to - has) for to, has in pairs if has is not None)
    ahead = sum(max(0, has - to) for to, has in pairs if has is not None)
    counts = counted(behind, "record"), counted(ahead, "record")
    said = f"groups would read {counts[0]} again if {old} died now, and {counts[1]} if {new} did"
    begin = f"; in {counted(lone, 'partition')} they have no place on {new}, and would begin by auto.offset.reset"
    return said + (begin if lone else "")


def moved_on(planned: Sequence[Goal], now: Sequence[Goal], old: str, new: str) -> str:
    """What is not any more as it was when the places were set; empty where all is."""
    before = {(one.link, one.left_topic, one.partition): one for one in planned}
    after = {(one.link, one.left_topic, one.partition): one for one in now}
    for where, one in before.items():
        seen = after.get(where)
        name = f"{one.left_topic}-{one.partition}"
        if seen is None or seen.left != one.left:
            return f"somebody moved the group on {old} meanwhile, in {name}"
        if seen.has != one.to:
            return f"somebody moved the group on {new} meanwhile, in {one.topic}-{one.partition}"
    if new_ones := sorted(f"{one.left_topic}-{one.partition}" for where, one in after.items() if where not in before):
        return f"the group has places on {old} that it had not before: {listed(new_ones, NAMED_MAX)}"
    return ""


def alone_at(records: Iterable[Record], group: str, topics: Iterable[str], cluster: str) -> frozenset[str]:
    """Those of the topics that the group was moved to this cluster alone for, and that have not moved since. `records`:
    of all switches, the newest first."""
    rest, found = set(topics), set[str]()
    for one in records:
        if not rest:
            break
        if one.state is not State.DONE:
            continue
        ours = rest.intersection(one.names())
        if one.kind is Kind.GROUP and one.group == group:
            found |= ours if one.new == cluster else set()
            rest -= ours
        elif one.kind in MOVES_HOMES:
            rest -= ours
    return frozenset(found)


def left_by_force(records: Iterable[Record], topics: Iterable[str], old: str, new: str) -> frozenset[str]:
    """Those of the topics that a forced switch, or one whose old home died before groups were copied, moved from `old`
    to `new`, and that no switch has moved, or made twins on `old`, since. Where they are twins already somebody may
    read them there on his own, unless no group could be looked at then. `records`: of all switches, the newest
    first."""
    rest, found = set(topics), set()
    for one in records:
        ours = rest.intersection(one.names())
        moves = one.kind in MOVES_HOMES and one.committed
        leaves = one.kind is Kind.FORCED or one.unfollowed
        if moves and leaves and (one.old, one.new) == (old, new):
            found |= ours
        if moves or (one.kind in MAKES_TWINS and one.state is State.DONE and not one.unfollowed):
            rest -= ours
    return frozenset(found)


def to_json(goals: Sequence[Goal]) -> str:
    return json.dumps([asdict(one) for one in goals], separators=(",", ":"))


def from_json(text: str) -> tuple[Goal, ...]:
    """WireError where it is none."""
    try:
        return tuple(Goal(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("places of a group that cannot be read") from error
