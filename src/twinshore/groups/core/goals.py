"""Where groups continue on the cluster they move to, and what prevents that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from twinshore.config.errors import WireError
from twinshore.config.model import Link
from twinshore.config.sentences import count_phrase, join_names
from twinshore.groups.view import GroupView

NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class OffsetGoal:
    """One partition. `left_topic`, `left`: topic and offset on the side to leave. `topic`, `to`: the same on the other
    side, where the group now has `has`. `back`: from twin to home. `short`: how many offsets the log there still lacks.
    """

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
        """The goal within the log end."""
        return self.to - self.short

    def undone(self) -> OffsetGoal:
        """Returns the goal that restores the earlier offset; without one, the current offset stays."""
        return replace(self, has=self.to, to=self.to if self.has is None else self.has)

    def left_behind(self) -> OffsetGoal:
        """Returns the goal that commits the offset on the side to leave once more."""
        return replace(self, back=False, topic=self.left_topic, has=self.left, to=self.left, short=0)

    @property
    def moves(self) -> bool:
        return self.within != self.has

    @property
    def ahead(self) -> int:
        return max(0, self.has - self.within) if self.has is not None else 0


@dataclass(frozen=True, slots=True)
class GroupOnBothSides:
    """`old_live`, `new_live`: has members there. `lost`: partitions with an unknown goal. `unheard`: why a side does
    not answer; empty if both do.
    """

    goals: tuple[OffsetGoal, ...] = ()
    old_live: bool = False
    new_live: bool = False
    lost: tuple[str, ...] = ()
    unheard: str = ""

    def topics(self) -> tuple[str, ...]:
        """Returns the topic names at home."""
        return tuple(sorted({goal.topic if goal.back else goal.left_topic for goal in self.goals}))


def build_goals(link: Link, view: GroupView, *, back: bool) -> tuple[list[OffsetGoal], list[str]]:
    """Returns a goal for each offset, and partitions with an unknown goal. `back`: from twins to home; `view_groups`
    needs the same flag.
    """
    goals, lost = [], []
    for tp in view.parts:
        left, there = (tp.topic, tp.source), (tp.twin, tp.target)
        (topic, at), (new_topic, has) = (there, left) if back else (left, there)
        to, end = tp.expected, tp.end
        if at is not None and to is not None and end is not None:
            goals.append(OffsetGoal(link.name, back, topic, at, new_topic, tp.partition, has, to, max(0, to - end)))
        elif at is not None:
            lost.append(f"{topic}-{tp.partition}")
    return goals, lost


def describe_short_logs(goals: Iterable[OffsetGoal]) -> str:
    """Describes logs that end before what the group has read; empty if none."""
    short = [goal for goal in goals if goal.short]
    count = count_phrase(sum(goal.short for goal in short), "offset")
    return f"{count} that it has read are not there yet, in {_names(short)}" if short else ""


def describe_ahead(goals: Iterable[OffsetGoal], old: str, new: str) -> str:
    """Describes where the group is ahead on the new side, which is not reset; empty if nowhere."""
    ahead = [goal for goal in goals if goal.has is not None and goal.has > goal.to]
    by = count_phrase(sum((goal.has or 0) - goal.to for goal in ahead), "offset")
    return f"is further on on {new} than on {old}, by {by}, in {_names(ahead)}" if ahead else ""


def _names(goals: Iterable[OffsetGoal]) -> str:
    return join_names([f"{goal.topic}-{goal.partition}" for goal in goals], NAMES_SHOWN_MAX)


def describe_rereads(groups: Iterable[GroupOnBothSides], old: str, new: str) -> str:
    pairs = [(goal.to, goal.has) for group in groups for goal in group.goals]
    lone = sum(has is None for _, has in pairs)
    behind = sum(max(0, to - has) for to, has in pairs if has is not None)
    ahead = sum(max(0, has - to) for to, has in pairs if has is not None)
    counts = count_phrase(behind, "record"), count_phrase(ahead, "record")
    said = f"groups would read {counts[0]} again if {old} died now, and {counts[1]} if {new} did"
    if not lone:
        return said
    return f"{said}; in {count_phrase(lone, 'partition')} they have no offset on {new}, and follow auto.offset.reset"


def describe_changes(planned: Sequence[OffsetGoal], now: Sequence[OffsetGoal], old: str, new: str) -> str:
    """Describes what has changed since the offsets were set; empty if nothing."""
    before = {(goal.link, goal.left_topic, goal.partition): goal for goal in planned}
    after = {(goal.link, goal.left_topic, goal.partition): goal for goal in now}
    for where, goal in before.items():
        goal_now = after.get(where)
        if goal_now is None or goal_now.left != goal.left:
            return f"another client moved the group on {old}, in {goal.left_topic}-{goal.partition}"
        if goal_now.has != goal.to:
            return f"another client moved the group on {new}, in {goal.topic}-{goal.partition}"
    added = sorted(f"{topic}-{partition}" for _, topic, partition in after.keys() - before.keys())
    return f"the group has new offsets on {old}: {join_names(added, NAMES_SHOWN_MAX)}" if added else ""


def goals_to_json(goals: Sequence[OffsetGoal]) -> str:
    return json.dumps([asdict(goal) for goal in goals], separators=(",", ":"))


def goals_from_json(text: str) -> tuple[OffsetGoal, ...]:
    """Raises WireError if the text is invalid."""
    try:
        return tuple(OffsetGoal(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("places of a group that cannot be read") from error
