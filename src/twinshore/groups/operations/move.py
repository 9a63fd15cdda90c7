"""Groups moved at an operator's word, whatever a running mirror waits for; with or without steps backwards."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from twinshore.fleet import ConfigError, KafkaError, Link
from twinshore.fleet.operations import Plan
from twinshore.fleet.sentences import counted
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.fleet.settings.shapes import why_not_pattern
from twinshore.groups.goals import Goal, goals_of
from twinshore.groups.look import GroupView, look
from twinshore.groups.offset_move import MEMBERLESS, NOT_DONE, Step, set_places, steps_of, wishes_of
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class Left:
    """A group that is not moved, or not with all its places: why, and what would move it."""

    link: str
    group: str
    why: str

    @property
    def refused(self) -> bool:
        """Asked for, and not done."""
        return True

    def sentence(self, *, done: bool) -> str:
        del done  # It is left alone either way.
        return f"{self.link}: group {self.group}: {self.why}"


@dataclass(frozen=True, slots=True)
class Move:
    """Groups whose whole name matches: from the source's side to the target's, or `back`. `lower`: also where the place
    there is further on."""

    group: str
    links: Sequence[str] = ()
    back: bool = False
    lower: bool = False


@dataclass(frozen=True, slots=True)
class GroupMove:
    """What would become of one group: places to commit, and why it is left alone with others."""

    link: Link
    group: str
    left: tuple[Left, ...]
    goals: Sequence[Goal] = ()

    def steps(self) -> tuple[Step | Left, ...]:
        """With nothing done yet."""
        cluster = self.link.source if any(one.back for one in self.goals) else self.link.target
        wishes = wishes_of(self.goals)
        return (*self.left, *steps_of(self.link.name, cluster, self.group, wishes, dict.fromkeys(wishes, NOT_DONE)))


@dataclass(frozen=True, slots=True)
class Moving(Plan[Step | Left]):
    """The steps by group."""

    asked: Move | None = None
    groups: tuple[GroupMove, ...] = ()


def plan(asked: Move, settings: Settings, store: Store) -> Moving:
    """Asks both clusters of each link; ConfigError where no group is meant."""
    reason = why_not_pattern(asked.group)
    if reason:
        raise ConfigError(f"GROUP: {reason}")
    links = settings.chosen(asked.links)
    groups = tuple(one for link in links for one in _of_link(asked, link, settings, store))
    steps = tuple(step for one in groups for step in one.steps())
    if steps:
        return Moving(steps, asked=asked, groups=groups)
    known = {view.group for link in links for view in look(link, settings, store)}
    return Moving(shown=(nothing_moved(asked.group, known),), asked=asked)


def act(planned: Moving, settings: Settings, store: Store, *, by: str) -> Iterator[Step | Left]:
    """Each step is in the audit by the time it is given out. A group that has gone on meanwhile is not set back."""
    asked = planned.asked
    if asked is None:
        return
    for link, groups in groupby(planned.groups, lambda one: one.link):
        ours = list(groups)
        goals = {one.group: one.goals for one in ours}
        done = set_places([link], settings, store, goals, by, mark=True, notes=False, lower=asked.lower)
        for one in ours:
            yield from one.left
            yield from done.get(one.group, ())


def _of_link(asked: Move, link: Link, settings: Settings, store: Store) -> Iterator[GroupMove]:
    for view in look(link, settings, store, asked.group, stable=True, back=asked.back):
        if view.said_s_ago is not None:
            raise KafkaError(f"{link.source} does not answer", retriable=True)
        if view.why:
            yield GroupMove(link, view.group, (Left(link.name, view.group, view.why),))
            continue
        goals = [one for one in goals_of(link, view, back=asked.back)[0] if one.moves]
        whys = whys_left(link, view, goals, back=asked.back, lower=asked.lower, named=is_name(asked.group))
        left = tuple(Left(link.name, view.group, why) for why in whys)
        live = (view.source_state if asked.back else view.target_state) not in MEMBERLESS
        meant = () if live else [one for one in goals if asked.lower or not one.ahead]
        yield GroupMove(link, view.group, left, meant)


def whys_left(
    link: Link, view: GroupView, goals: Sequence[Goal], *, back: bool, lower: bool, named: bool
) -> tuple[str, ...]:
    """Why the group is not moved, or not with all its places. `named`: it was asked for by its name, so that it is told
    too if it has nothing that could be moved this way."""
    reads, writes = (link.target, link.source) if back else (link.source, link.target)
    state = view.source_state if back else view.target_state
    if goals and state not in MEMBERLESS:
        return (f"has members on {writes} ({state}) and is left alone there: stop them, then move it",)
    whys = []
    ahead = [one.ahead for one in goals if one.ahead]
    if ahead and not lower:
        by = f"{sum(ahead)} offsets ({counted(len(ahead), 'place')})"
        whys.append(f"is further on on {writes} than on {reads}, by {by}, and is left alone: `--backwards` moves it")
    stands = [(part.target if back else part.source) is not None for part in view.parts]
    unknown = [part for part, there in zip(view.parts, stands, strict=True) if there and part.expected is None]
    if unknown:
        many = f"{counted(len(unknown), 'place')}, as in {unknown[0].topic}-{unknown[0].partition}"
        whys.append(f"stands where the link carried nothing ({many}): set it by hand")
    endless = [part for part in view.parts if part.end is None]
    if endless:
        many = f"{counted(len(endless), 'place')}, as in {endless[0].twin}-{endless[0].partition}"
        whys.append(f"is not moved where {writes} does not say how far its log reaches ({many}): try again later")
    if named and not all(stands) and not goals:
        way = "without `--back` it moves" if back else "`--back` moves it"
        whys.append(f"stands on {writes} alone ({counted(stands.count(False), 'place')}): {way} to {reads}")
    return tuple(whys)


def is_name(pattern: str) -> bool:
    """Whether it names one group, as far as can be seen."""
    return not set(pattern) & set("*+?[](){}|^$\\")


def nothing_moved(pattern: str, known: Collection[str]) -> str:
    """What is said where no place was moved or left alone; raises where no group is meant. `known`: every group that
    has a place in the links' topics."""
    if any(re.fullmatch(pattern, name) for name in known):
        return "nothing to move: each such group stands where it should, or as far on as the log there reaches"
    if not known and not is_name(pattern):
        return "nothing to move: no group has a place in a topic that these links carry"
    near = did_you_mean(pattern, sorted(known)).removeprefix("; ")
    hint = near if near.startswith("did") else "`twinshore groups` lists those that have"
    raise ConfigError(f"no group called {pattern} has a place in a topic that these links carry", hint=hint)
