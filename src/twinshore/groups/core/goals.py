"""Where groups would stand on the side they move to, and what keeps them from there. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from twinshore.config.errors import WireError
from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase, join_names
from twinshore.groups.view import GroupView

NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class OffsetGoal:
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

    @property
    def within(self) -> int:
        """Where the group can stand now: no place lies beyond the end of its log."""
        return self.to - self.short

    @property
    def moves(self) -> bool:
        """Whether it does not stand there."""
        return self.within != self.has

    @property
    def ahead(self) -> int:
        """By how many offsets the group is further on there."""
        return max(0, self.has - self.within) if self.has is not None else 0


@dataclass(frozen=True, slots=True)
class GroupOnBothSides:
    """A group on both sides. `old_live`, `new_live`: whether it has members there; `lost`: partitions of which nobody
    knows where it would stand; `unheard`: why a side says nothing, empty where both do."""

    goals: tuple[OffsetGoal, ...] = ()
    old_live: bool = False
    new_live: bool = False
    lost: tuple[str, ...] = ()
    unheard: str = ""

    def topics(self) -> tuple[str, ...]:
        """The names of the topics where they are at home."""
        return tuple(sorted({one.topic if one.back else one.left_topic for one in self.goals}))


def build_goals(link: Link, view: GroupView, *, back: bool) -> tuple[list[OffsetGoal], list[str]]:
    """Each place that the group has on the side it leaves: where it would stand on the other one; and partitions of
    which nobody knows that. `back`: from the twins to their home; `look` must have been told so too."""
    goals, lost = [], []
    for part in view.parts:
        left, there = (part.topic, part.source), (part.twin, part.target)
        (topic, at), (new_topic, has) = (there, left) if back else (left, there)
        to, end = part.expected, part.end
        if at is not None and to is not None and end is not None:
            goals.append(OffsetGoal(link.name, back, topic, at, new_topic, part.partition, has, to, max(0, to - end)))
        elif at is not None:
            lost.append(f"{topic}-{part.partition}")
    return goals, lost


def describe_short_logs(goals: Iterable[OffsetGoal]) -> str:
    """Which logs do not reach as far as the group has read; empty where all do."""
    short = [one for one in goals if one.short]
    if not short:
        return ""
    where = join_names([f"{one.topic}-{one.partition}" for one in short], NAMES_SHOWN_MAX)
    return f"{count_phrase(sum(one.short for one in short), 'offset')} that it has read are not there yet, in {where}"


def describe_ahead(goals: Iterable[OffsetGoal], old: str, new: str) -> str:
    """Where it has read further on the side to which it would move; empty where it has not. It is not set back."""
    ahead = [one for one in goals if one.has is not None and one.has > one.to]
    if not ahead:
        return ""
    where = join_names([f"{one.topic}-{one.partition}" for one in ahead], NAMES_SHOWN_MAX)
    by = count_phrase(sum((one.has or 0) - one.to for one in ahead), "offset")
    return f"is further on on {new} than on {old}, by {by}, in {where}"


def describe_rereads(seen: Iterable[GroupOnBothSides], old: str, new: str) -> str:
    """How many records groups would read again if either cluster died now, and they went on at the other one."""
    pairs = [(one.to, one.has) for group in seen for one in group.goals]
    lone = sum(has is None for _, has in pairs)
    behind = sum(max(0, to - has) for to, has in pairs if has is not None)
    ahead = sum(max(0, has - to) for to, has in pairs if has is not None)
    counts = count_phrase(behind, "record"), count_phrase(ahead, "record")
    said = f"groups would read {counts[0]} again if {old} died now, and {counts[1]} if {new} did"
    begin = f"; in {count_phrase(lone, 'partition')} they have no place on {new}, and would begin by auto.offset.reset"
    return said + (begin if lone else "")


def describe_changes(planned: Sequence[OffsetGoal], now: Sequence[OffsetGoal], old: str, new: str) -> str:
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
        return f"the group has places on {old} that it had not before: {join_names(new_ones, NAMES_SHOWN_MAX)}"
    return ""


def goals_to_json(goals: Sequence[OffsetGoal]) -> str:
    return json.dumps([asdict(one) for one in goals], separators=(",", ":"))


def goals_from_json(text: str) -> tuple[OffsetGoal, ...]:
    """WireError where it is none."""
    try:
        return tuple(OffsetGoal(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("places of a group that cannot be read") from error
