"""Groups moved at an operator's word, whatever a running mirror waits for; with or without steps backwards."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from twinshore.fleet import ConfigError, Link, NamedPartition
from twinshore.fleet.operations import Plan
from twinshore.fleet.sentences import counted
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.fleet.settings.shapes import why_not_pattern
from twinshore.groups.look import GroupView, PartView, look
from twinshore.groups.offset_move import MEMBERLESS, NOT_DONE, Step, Wishes, commit_offsets, steps_of
from twinshore.groups.place import MARK, State
from twinshore.groups.rounds import Rounds
from twinshore.groups.scope import Scope
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.store import Store
from twinshore.wire.group_places import Place, Where


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
    """What would become of one group on `cluster`: places to commit, and why it is left alone with others."""

    link: str
    cluster: str
    group: str
    left: tuple[Left, ...]
    wishes: Wishes

    def steps(self) -> tuple[Step | Left, ...]:
        """With nothing done yet."""
        if not self.wishes:
            return self.left
        outcomes = dict.fromkeys(self.wishes, NOT_DONE)
        return (*self.left, *steps_of(self.link, self.cluster, self.group, self.wishes, outcomes))


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
    for name, groups in groupby(planned.groups, lambda one: one.link):
        rounds = Rounds(settings.link(name), settings, store, retention_s=1.0)
        try:
            rounds.begin(time.monotonic())
            writer = rounds.at_source if asked.back else rounds.at_target
            ours = list(groups)
            wished = {one.group: one.wishes for one in ours if one.wishes}
            done = commit_offsets(store, writer, name, wished, by=by, lower=asked.lower)
            for one in ours:
                yield from one.left
                yield from done.get(one.group, ())
        finally:
            rounds.close()


def _of_link(asked: Move, link: Link, settings: Settings, store: Store) -> Iterator[GroupMove]:
    rounds, back, lower = Rounds(link, settings, store, retention_s=1.0), asked.back, asked.lower
    try:
        cluster = (rounds.at_source if back else rounds.at_target).name
        rounds.begin(time.monotonic())
        for view in look(link, settings, store, asked.group, stable=True):
            if view.why:
                yield GroupMove(link.name, cluster, view.group, (Left(link.name, view.group, view.why),), {})
                continue
            forward = wishes_forward(view, MARK if link.groups.marks else "")
            wishes = wishes_back(view, rounds.scope, _ends(rounds.source, view)) if back else forward
            whys = whys_left(link, view, wishes, rounds.scope, back=back, lower=lower, named=is_name(asked.group))
            left = tuple(Left(link.name, view.group, why) for why in whys)
            state = view.source_state if back else view.target_state
            wishes = {w: wish for w, wish in wishes.items() if state in MEMBERLESS and (lower or _is_onwards(*wish))}
            yield GroupMove(link.name, cluster, view.group, left, wishes)
    finally:
        rounds.close()


def wishes_forward(view: GroupView, note: str) -> Wishes:
    """What the target's places would become: the source's, within the twins. `note`: what tells the mirror that they
    are to follow again."""
    found: Wishes = {}
    for part in view.parts:
        goal = None if part.source is None or part.state == State.UNKNOWN else part.within
        if goal is not None and goal != part.target:
            found[(part.twin, part.partition)] = (part.target, Place(goal, note))
    return found


def wishes_back(view: GroupView, scope: Scope, ends: Mapping[Where, int]) -> Wishes:
    """What the source's places would become: the target's, within the source's logs. A group that has read records on
    the target which others wrote behind the twin's end goes on at the source's end, not beyond it."""
    found: Wishes = {}
    for part in view.parts:
        where = (part.topic, part.partition)
        spot = scope.parts[where][1].back(part.target) if part.target is not None and where in scope.parts else None
        if spot is None or where not in ends:
            continue
        goal = min(spot.offset, ends[where])
        if goal != part.source:
            found[where] = (part.source, Place(goal))
    return found


def whys_left(
    link: Link, view: GroupView, wishes: Wishes, scope: Scope, *, back: bool, lower: bool, named: bool
) -> tuple[str, ...]:
    """Why the group is not moved, or not with all its places. `named`: it was asked for by its name, so that it is told
    too if it has nothing that could be moved this way."""
    reads, writes = (link.target, link.source) if back else (link.source, link.target)
    state = view.source_state if back else view.target_state
    if wishes and state not in MEMBERLESS:
        return (f"has members on {writes} ({state}) and is left alone there: stop them, then move it",)
    whys = []
    ahead = [has - to.offset for has, to in wishes.values() if has is not None and not _is_onwards(has, to)]
    if ahead and not lower:
        by = f"{sum(ahead)} offsets ({counted(len(ahead), 'place')})"
        whys.append(f"is further on on {writes} than on {reads}, by {by}, and is left alone: `--backwards` moves it")
    unknown = [part for part in view.parts if _is_unknown(part, scope, back=back)]
    if unknown:
        many = f"{counted(len(unknown), 'place')}, as in {unknown[0].topic}-{unknown[0].partition}"
        whys.append(f"stands where the link carried nothing ({many}): set it by hand")
    endless = [part for part in view.parts if part.end is None]
    if endless and not back:
        many = f"{counted(len(endless), 'place')}, as in {endless[0].twin}-{endless[0].partition}"
        whys.append(f"is not moved where {writes} does not say how far its log reaches ({many}): try again later")
    lone = [part for part in view.parts if (part.target if back else part.source) is None]
    if named and lone and not wishes:
        way = "without `--back` it moves" if back else "`--back` moves it"
        whys.append(f"stands on {writes} alone ({counted(len(lone), 'place')}): {way} to {reads}")
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


def _is_onwards(has: int | None, to: Place) -> bool:
    return has is None or to.offset > has


def _is_unknown(part: PartView, scope: Scope, *, back: bool) -> bool:
    has = part.target if back else part.source
    where = (part.topic, part.partition)
    if has is None or where not in scope.parts:
        return False
    translation = scope.parts[where][1]
    return (translation.back if back else translation.forward)(has) is None


def _ends(source: KafkaCluster, view: GroupView) -> dict[Where, int]:
    named = [NamedPartition(part.topic, part.partition) for part in view.parts]
    found = source.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    return {(one.topic, one.partition): end for one, end in found.items()}
