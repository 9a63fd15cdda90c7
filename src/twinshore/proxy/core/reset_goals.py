"""To which offset each place of a group is set, and what its members would read again or skip. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from twinshore.fleet import ConfigError
from twinshore.store.proxy_values import ResetGoal


class GoalKind(StrEnum):
    """How a place is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """`number`: the offset, the time in milliseconds, or by how many offsets a place is shifted."""

    way: GoalKind
    number: int = 0


@dataclass(frozen=True, slots=True)
class Spot:
    """A partition that the group reads: `cluster` keeps its place, and its log reaches from `begins` to below `ends`.
    `since`: the first offset as late as the time that was asked for, -1 where there is none."""

    cluster: str
    topic: str
    partition: int
    was: int | None
    begins: int
    ends: int
    since: int = -1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def target_of(
    *, earliest: bool, latest: bool, offset: int | None, time: str, shift: int | None, undone: bool
) -> Target | None:
    """As it is asked for; None where nothing is. `undone`: a reset that was not finished is taken up, and says by
    itself where places go. ConfigError where more than one thing is asked for."""
    since_ms = time_ms_of(time) if time else None
    numbers = {GoalKind.OFFSET: offset, GoalKind.TIME: since_ms, GoalKind.SHIFT: shift}
    numbers |= {GoalKind.EARLIEST: 0 if earliest else None, GoalKind.LATEST: 0 if latest else None}
    found = [Target(way, number) for way, number in numbers.items() if number is not None]
    if len(found) + undone > 1:
        raise ConfigError(
            "places are set to one thing at a time",
            hint="one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by, --resume and --undo",
        )
    return found[0] if found else None


def time_ms_of(text: str) -> int:
    """Of a time as in 2026-11-26T10:00:00Z; without a zone it is UTC. ConfigError where it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--to-time {text}: that is no time", hint="as in 2026-11-26T10:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def topics_of(words: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """Topics with the partitions that are meant, None for all: of words such as `orders` and `orders:0,2`. ConfigError
    where a word says neither."""
    found: dict[str, frozenset[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        parts = numbers.split(",")
        if not topic or (colon and not all(one.isascii() and one.isdigit() for one in parts)):
            raise ConfigError(f"--topic {word}: that is no topic", hint="as in orders, or orders:0,2")
        some = frozenset(map(int, parts)) if colon else None
        before = found.get(topic, frozenset())
        found[topic] = before | some if some is not None and before is not None else None
    return found


def goals_of(target: Target, spots: Sequence[Spot]) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """Where each place goes, also where it stays; and why some cannot go there."""
    goals, why = [], []
    for spot in spots:
        to = _to(target, spot)
        if to is None:
            why.append(f"{spot.name} has no place that could be shifted")
        elif not spot.begins <= to <= spot.ends:
            why.append(f"{spot.name} has {spot.begins} to {spot.ends}, and {to} lies outside")
        else:
            goals.append(ResetGoal(spot.cluster, spot.topic, spot.partition, spot.was, to))
    return tuple(goals), why


def _to(target: Target, spot: Spot) -> int | None:
    match target.way:
        case GoalKind.EARLIEST:
            return spot.begins
        case GoalKind.LATEST:
            return spot.ends
        case GoalKind.OFFSET:
            return target.number
        case GoalKind.TIME:
            # Of what is not there yet: where it will be.
            return spot.ends if spot.since < 0 else max(spot.since, spot.begins)
        case GoalKind.SHIFT:
            return None if spot.was is None else spot.was + target.number


def backwards(goals: Sequence[ResetGoal]) -> tuple[ResetGoal, ...]:
    """What undoes them. A place that was not there stays where it is."""
    return tuple(one._replace(was=one.to, to=one.was) for one in goals if one.was is not None)


def taken_up(goals: Sequence[ResetGoal], spots: Sequence[Spot]) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """Of a reset that was not finished: each where the place is kept now. What lies outside of its log by now goes as
    near as it can, which is said; of a topic that is gone nothing is left to be set."""
    there = {(one.topic, one.partition): one for one in spots}
    found, told = [], []
    for goal in goals:
        spot = there.get((goal.topic, goal.partition))
        if spot is None:
            told.append(f"{goal.topic}-{goal.partition} is not there any more")
            continue
        to = min(max(goal.to, spot.begins), spot.ends)
        if to != goal.to:
            told.append(f"{spot.name} has {spot.begins} to {spot.ends} by now: it goes to {to} in place of {goal.to}")
        found.append(goal._replace(cluster=spot.cluster, to=to))
    return tuple(found), told


def as_of_now(
    target: Target | None, goals: Sequence[ResetGoal], spots: Sequence[Spot]
) -> tuple[tuple[ResetGoal, ...], list[str]]:
    """The goals with the places as they stand, and a shift from there; and why some cannot go there."""
    meant = {(one.topic, one.partition) for one in goals}
    some = [one for one in spots if (one.topic, one.partition) in meant]
    if target is not None and target.way in (GoalKind.SHIFT, GoalKind.EARLIEST):
        return goals_of(target, some)
    was = {(one.topic, one.partition): one.was for one in some}
    return tuple(one._replace(was=was.get((one.topic, one.partition))) for one in goals), []


def amiss(goals: Sequence[ResetGoal], spots: Sequence[Spot], *, are_set: bool = False) -> list[str]:
    """Why they cannot be set as they were meant, or do not count where they are set."""
    there = {(one.topic, one.partition): one for one in spots}
    why = []
    for goal in goals:
        spot = there.get((goal.topic, goal.partition))
        if spot is None:
            why.append(f"{goal.topic}-{goal.partition} is not there any more")
        elif spot.cluster != goal.cluster:
            why.append(f"the place of {spot.name} is kept on {spot.cluster} by now, and not on {goal.cluster}")
        elif not are_set and not spot.begins <= goal.to <= spot.ends:
            why.append(f"{spot.name} has {spot.begins} to {spot.ends} by now, and {goal.to} lies outside")
    return why


def others(goals: Sequence[ResetGoal], spots: Sequence[Spot], *, but: str = "") -> list[str]:
    """Those that do not stand where they were set; `but` for what is kept on that cluster."""
    stand = {(one.cluster, one.topic, one.partition): one.was for one in spots}
    wrong = [
        one for one in goals if one.cluster != but and stand.get((one.cluster, one.topic, one.partition)) != one.to
    ]
    return [f"{one.topic}-{one.partition}" for one in wrong]


def sentence_of(spot: Spot, to: int | None = None) -> str:
    """How the place stands; with `to`, where it goes, and what that means to readers."""
    was = "no place" if spot.was is None else str(spot.was)
    log = f"{spot.begins} to {spot.ends}"
    if to is None:
        return f"{spot.name}: {was}, of {log}"
    return f"{spot.name}: {was} -> {to}, of {log}{_means(spot, to)}"


def _means(spot: Spot, to: int) -> str:
    if spot.was is None:
        return ""
    if to < spot.was:
        return f": {max(0, min(spot.was, spot.ends) - to)} are read again"
    if to > spot.was:
        return f": {max(0, to - max(spot.was, spot.begins))} are skipped"
    return ": it stays"


def by_topic(goals: Iterable[ResetGoal]) -> Mapping[str, list[ResetGoal]]:
    """For the audit."""
    found: dict[str, list[ResetGoal]] = {}
    for one in goals:
        found.setdefault(one.topic, []).append(one)
    return found
