"""Moves groups on an operator's request, shows groups on both sides, and translates offsets (a single offset from the
store alone).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.grouping import grouped
from twinshore.config.model import Link, Plan
from twinshore.config.schema import did_you_mean, pattern_error
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.groups import offset_move
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.core.goals import OffsetGoal, build_goals
from twinshore.groups.view import AWAY_STATE, GroupView, open_translator, stored_log_ends, view_groups
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class GroupNotMoved:
    link: str
    group: str
    why: str

    @property
    def refused(self) -> bool:
        return True

    def sentence(self, *, done: bool) -> str:
        del done  # It is left alone either way.
        return f"{self.link}: group {self.group}: {self.why}"


@dataclass(frozen=True, slots=True)
class MoveGroupOffsets:
    """Move groups whose whole name matches from source to target, or `back`. `lower`: even if the offset there is
    ahead.
    """

    group: str
    links: Sequence[str] = ()
    back: bool = False
    lower: bool = False


@dataclass(frozen=True, slots=True)
class GroupMove:
    link: Link
    group: str
    left: tuple[GroupNotMoved, ...]
    goals: Sequence[OffsetGoal] = ()

    def steps(self) -> tuple[offset_move.OffsetStep | GroupNotMoved, ...]:
        cluster = self.link.source if any(goal.back for goal in self.goals) else self.link.target
        wanted = offset_move.build_wanted_offsets(self.goals)
        outcomes = dict.fromkeys(wanted, offset_move.NOT_DONE)
        return *self.left, *offset_move.build_offset_steps(self.link.name, cluster, self.group, wanted, outcomes)


@dataclass(frozen=True, slots=True)
class GroupMovePlan(Plan[offset_move.OffsetStep | GroupNotMoved]):
    request: MoveGroupOffsets | None = None
    groups: tuple[GroupMove, ...] = ()


def plan_move(request: MoveGroupOffsets, settings: Settings, store: Store) -> GroupMovePlan:
    """Reads both clusters of each link. Raises ConfigError if no group matches."""
    check_pattern(request.group, "GROUP")
    links = settings.chosen(request.links)
    groups = tuple(move for link in links for move in _moves_of_link(request, link, settings, store))
    steps = tuple(step for move in groups for step in move.steps())
    if steps:
        return GroupMovePlan(steps, request=request, groups=groups)
    known = {view.group for link in links for view in view_groups(link, settings, store)}
    return GroupMovePlan(shown=(describe_nothing_moved(request.group, known),), request=request)


def move_groups(
    planned: GroupMovePlan, settings: Settings, store: Store, *, by: str
) -> Iterator[offset_move.OffsetStep | GroupNotMoved]:
    """Yields each step once audited. A group that has moved on since is not set back."""
    request = planned.request
    if request is None:
        return
    for link, groups in groupby(planned.groups, lambda move: move.link):
        ours = list(groups)
        goals = {move.group: move.goals for move in ours}
        done = offset_move.set_offsets([link], settings, store, goals, by, mark=True, notes=False, lower=request.lower)
        for move in ours:
            yield from move.left
            yield from done.get(move.group, ())


def _moves_of_link(request: MoveGroupOffsets, link: Link, settings: Settings, store: Store) -> Iterator[GroupMove]:
    for view in view_groups(link, settings, store, request.group, stable=True, back=request.back):
        if view.said_s_ago is not None:
            raise KafkaError(f"{link.source} does not answer", retriable=True)
        if view.why:
            yield GroupMove(link, view.group, (GroupNotMoved(link.name, view.group, view.why),))
            continue
        goals = [goal for goal in build_goals(link, view, back=request.back)[0] if goal.moves]
        whys = reasons_not_moved(
            link, view, goals, back=request.back, lower=request.lower, named=is_literal_name(request.group)
        )
        left = tuple(GroupNotMoved(link.name, view.group, why) for why in whys)
        live = (view.source_state if request.back else view.target_state) not in offset_move.STATES_WITHOUT_MEMBERS
        meant = () if live else [goal for goal in goals if request.lower or not goal.ahead]
        yield GroupMove(link, view.group, left, meant)


def reasons_not_moved(
    link: Link, view: GroupView, goals: Sequence[OffsetGoal], *, back: bool, lower: bool, named: bool
) -> tuple[str, ...]:
    """Explains why the group is not moved, or only in part. `named`: requested by exact name, so also explain if
    nothing can move this way.
    """
    reads, writes = (link.target, link.source) if back else (link.source, link.target)
    state = view.source_state if back else view.target_state
    if goals and state not in offset_move.STATES_WITHOUT_MEMBERS:
        return (f"has members on {writes} ({state}) and is left alone there: stop them, then move it",)
    whys = []
    ahead = [goal.ahead for goal in goals if goal.ahead]
    if ahead and not lower:
        by = f"{sum(ahead)} offsets ({count_phrase(len(ahead), 'place')})"
        whys.append(f"is further on on {writes} than on {reads}, by {by}, and is left alone: `--backwards` moves it")
    stands = [(tp.target if back else tp.source) is not None for tp in view.parts]
    unknown = [tp for tp, there in zip(view.parts, stands, strict=True) if there and tp.expected is None]
    if unknown:
        many = f"{count_phrase(len(unknown), 'place')}, as in {unknown[0].topic}-{unknown[0].partition}"
        whys.append(f"stands where the link carried nothing ({many}): set it by hand")
    endless = [tp for tp in view.parts if tp.end is None]
    if endless:
        many = f"{count_phrase(len(endless), 'place')}, as in {endless[0].twin}-{endless[0].partition}"
        whys.append(f"is not moved where {writes} does not say how far its log reaches ({many}): try again later")
    if named and not all(stands) and not goals:
        way = "without `--back` it moves" if back else "`--back` moves it"
        whys.append(f"stands on {writes} alone ({count_phrase(stands.count(False), 'place')}): {way} to {reads}")
    return tuple(whys)


def is_literal_name(pattern: str) -> bool:
    return not set(pattern) & set("*+?[](){}|^$\\")


def describe_nothing_moved(pattern: str, known: Collection[str]) -> str:
    """Raises ConfigError if no group matches. `known`: every group with an offset in the links' topics."""
    if any(re.fullmatch(pattern, name) for name in known):
        return "nothing to move: each such group stands where it should, or as far on as the log there reaches"
    if not known and not is_literal_name(pattern):
        return "nothing to move: no group has a place in a topic that these links carry"
    near = did_you_mean(pattern, sorted(known)).removeprefix("; ")
    hint = near if near.startswith("did") else "`twinshore groups` lists those that have"
    raise ConfigError("groups.no-offsets", group=pattern, hint=hint)


# Limits the reasons shown for a silent side, and the groups for each.
UNAVAILABLE_SHOWN_MAX = 5


def check_pattern(pattern: str, option: str = "--group") -> None:
    """Raises ConfigError if the pattern is invalid."""
    if reason := pattern_error(pattern):
        raise ConfigError("config.invalid-pattern", option=option, cause=reason)


def read_group_views(
    pattern: str, links: Sequence[str], settings: Settings, store: Store
) -> tuple[list[GroupView], list[str]]:
    """Returns the matching groups, and a sentence for each link whose target does not answer. Raises KafkaError if no
    link can be read.
    """
    check_pattern(pattern)
    views: list[GroupView] = []
    silent: list[str] = []
    chosen = settings.chosen(links)
    for link in chosen:
        try:
            views += view_groups(link, settings, store, pattern)
        except KafkaError as error:
            if not error.retriable or len(silent) + 1 == len(chosen):
                raise
            silent.append(f"{link.name} is not shown, as its target does not answer: {error.message}")
    return views, silent


def view_as_values(view: GroupView, *, partitions: bool) -> dict[str, Any]:
    """`partitions`: include the offsets of every partition."""
    values = asdict(view)
    parts = values.pop("parts")
    if view.behind_s is not None:
        values["behind_s"] = round(view.behind_s, 3)
    values["partitions"] = len(parts)
    if partitions:
        values["offsets"] = [part | {"behind": tp.behind} for part, tp in zip(parts, view.parts, strict=True)]
    return values


def view_remarks(views: Sequence[GroupView]) -> list[str]:
    found = []
    for name in sorted({view.link for view in views if view.source_state == AWAY_STATE and not view.why}):
        ago_s = next(view.said_s_ago for view in views if view.link == name)
        when = "the mirror never compared them" if ago_s is None else f"these offsets are {ago_s:,.0f} s old"
        found.append(f"{name}: the source does not answer; {when}")
    silent = grouped(((view.link, view.why), view.group) for view in views if view.why)
    for (name, why), groups in list(silent.items())[:UNAVAILABLE_SHOWN_MAX]:
        found.append(f"{name}: {join_names(groups, UNAVAILABLE_SHOWN_MAX)}: {why}")
    if len(silent) > UNAVAILABLE_SHOWN_MAX:
        found.append(f"and {len(silent) - UNAVAILABLE_SHOWN_MAX} groups more, of which one side says nothing either")
    return [*found, *filter(None, (_left_alone(view) for view in views)), *_read_again(views)]


def _read_again(views: Sequence[GroupView]) -> Iterator[str]:
    again: Counter[str] = Counter()
    for view in views:
        source, _, target = view.link.partition("->")
        for tp in view.parts if view.source_state != AWAY_STATE and not view.why else ():
            again[source] += max(0, tp.behind or 0)
            # An offset on a twin counts if its group reads there.
            again[target] += max(0, -(tp.behind or 0))
    if counts := [f"{count_phrase(many, 'record')} if {name} died now" for name, many in sorted(again.items()) if many]:
        yield (
            f"groups would read again {join_names(counts, UNAVAILABLE_SHOWN_MAX)}, and they went on at the other "
            "cluster"
        )


def _left_alone(view: GroupView) -> str:
    """Describes a group that reads on the target on its own, and the remedy; empty if none."""
    partitions = [tp for tp in view.parts if tp.state == GroupSyncStatus.OWN]
    if not partitions or view.source_state == AWAY_STATE:
        return ""
    target = view.link.partition("->")[2]
    since = "" if view.behind_s is None else f", for {view.behind_s:,.0f} s by now"
    count = f"{len(partitions)} of {len(view.parts)} partitions{since}"
    remedy = f"`twinshore groups move {view.group}` makes it follow again"
    return f"{view.link}: {view.group} reads on {target} on its own, and is left alone there ({count}); {remedy}"


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """A group; or with `topic` an offset of one partition. `back`: from target to source."""

    what: str
    topic: str = ""
    partition: int = 0
    back: bool = False
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TranslationResult:
    """`offset` on one side is `to` on the other; None: unknown. `reached`: replicated. `end`: known log end of the side
    asked about.
    """

    link: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to: int | None
    reached: bool
    end: int | None
    back: bool

    def as_values(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "back"}

    def sentence(self) -> str:
        to = "nowhere known" if self.to is None else f"{self.to_topic}-{self.partition} offset {self.to}"
        yet = "" if self.reached else ", as far as has crossed"
        return f"{self.link}: {self.topic}-{self.partition} offset {self.offset} is {to}{yet}{self._beyond()}"

    def _beyond(self) -> str:
        if self.end is None or self.offset <= self.end:
            return ""
        log = f"{self.topic}-{self.partition}"
        if self.back:
            return f"; the link has carried {log} up to {self.end} only"
        return f"; when last seen, the log of {log} ended at {self.end}"


def translate_offsets(request: TranslationRequest, settings: Settings, store: Store) -> list[TranslationResult]:
    """Translates on each link. Raises ConfigError if no link has the group."""
    found = [result for link in settings.chosen(request.links) for result in _of_link(request, link, settings, store)]
    if not found:
        raise ConfigError("groups.no-offsets", group=request.what, hint="for an offset, name its --topic")
    return found


def _of_link(request: TranslationRequest, link: Link, settings: Settings, store: Store) -> Iterator[TranslationResult]:
    if request.topic and not request.what.isdecimal():
        raise ConfigError("groups.not-an-offset", text=request.what)
    back = request.back
    translator, ends = open_translator(settings, link.name, store), stored_log_ends(store, link, back=back)
    if request.topic:
        asked = [(request.topic, request.partition, int(request.what))]
    else:
        parts = [tp for view in view_groups(link, settings, store, re.escape(request.what)) for tp in view.parts]
        offsets = [(tp.twin, tp.partition, tp.target) if back else (tp.topic, tp.partition, tp.source) for tp in parts]
        asked = [(topic, partition, offset) for topic, partition, offset in offsets if offset is not None]
    for topic, partition, offset in asked:
        spot = (translator.back if back else translator.forward)(topic, partition, offset)
        to_topic = translator.source_topic(topic) if back else link.twin_of(topic)
        to, reached = (spot.offset, spot.reached) if spot else (None, False)
        end = ends.get((topic, partition))
        yield TranslationResult(link.name, topic, partition, offset, to_topic, to, reached, end, back)
