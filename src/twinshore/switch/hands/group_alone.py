"""One group on both sides, whichever links carry what it reads: seen, set, and marked so that it follows again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from twinshore.fleet import Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.groups.look import GroupView, look
from twinshore.groups.offset_move import MEMBERLESS, Step, commit_offsets
from twinshore.groups.place import MARK
from twinshore.groups.rounds import Rounds
from twinshore.kafka.cluster import OffsetKind
from twinshore.links.known import of_all_settings
from twinshore.links.standing import standing
from twinshore.store import Store
from twinshore.switch.group_goals import Goal, GroupSeen
from twinshore.wire.group_places import Place, Where

# Groups by name, with the goals of each.
Moves = Mapping[str, Sequence[Goal]]
_Wanted = tuple[Goal, Where, int | None, Place]


def links_between(settings: Settings, store: Store, one: str, other: str) -> list[Link]:
    """The links between two clusters, whichever way they lead: those too that a switch has added a moment ago."""
    known = [at.link for at in standing(of_all_settings(settings, store), store).values()]
    return [link for link in known if {link.source, link.target} == {one, other}]


def see(links: Iterable[Link], settings: Settings, store: Store, group: str, new: str) -> GroupSeen:
    """How the group stands, and where it would stand on `new`; changes nothing."""
    return see_all(links, settings, store, re.escape(group), new, stable=True).get(group, GroupSeen())


def see_all(
    links: Iterable[Link], settings: Settings, store: Store, pattern: str, new: str, *, stable: bool
) -> dict[str, GroupSeen]:
    """The same of all whose whole name matches. `stable`: as `look` has it."""
    found: dict[str, GroupSeen] = {}
    for link in links:
        back = link.source == new
        with _rounds(link, settings, store) if back else nullcontext() as rounds:
            for view in look(link, settings, store, pattern, stable=stable):
                before = found.get(view.group, GroupSeen())
                if view.why or view.said_s_ago is not None:
                    found[view.group] = replace(before, unheard=view.why or f"{link.source} does not answer")
                    continue
                states = (view.target_state, view.source_state) if back else (view.source_state, view.target_state)
                goals, lost = _homeward(link, view, rounds) if rounds else _away(link, view)
                found[view.group] = replace(
                    before,
                    goals=(*before.goals, *goals),
                    old_live=before.old_live or states[0] not in MEMBERLESS,
                    new_live=before.new_live or states[1] not in MEMBERLESS,
                    lost=(*before.lost, *lost),
                )
    return found


def _away(link: Link, view: GroupView) -> tuple[list[Goal], list[str]]:
    """From the home to the twin."""
    goals, lost = [], []
    for part in view.parts:
        if part.source is None:
            continue
        if part.expected is None or part.end is None:
            lost.append(f"{part.topic}-{part.partition}")
            continue
        short = max(0, part.expected - part.end)
        twin = (part.twin, part.partition, part.target, part.expected)
        goals.append(Goal(link.name, False, part.topic, part.source, *twin, short))
    return goals, lost


def _homeward(link: Link, view: GroupView, rounds: Rounds) -> tuple[list[Goal], list[str]]:
    """From the twin to the home."""
    named = [NamedPartition(part.topic, part.partition) for part in view.parts]
    ends = rounds.source.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    goals, lost = [], []
    for part, one in zip(view.parts, named, strict=True):
        if part.target is None:
            continue
        at = rounds.scope.parts.get((part.topic, part.partition))
        spot = at[1].back(part.target) if at else None
        if spot is None:
            lost.append(f"{part.twin}-{part.partition}")
            continue
        short = max(0, spot.offset - ends.get(one, 0))
        home = (part.topic, part.partition, part.source, spot.offset)
        goals.append(Goal(link.name, True, part.twin, part.target, *home, short))
    return goals, lost


def set_places(links: Iterable[Link], settings: Settings, store: Store, moves: Moves, by: str) -> dict[str, list[Step]]:
    """On the side that the groups move to; what became of each place is in the audit, and is told by group."""
    wanted = {
        name: [(one, (one.topic, one.partition), one.has, Place(one.to)) for one in goals if one.has != one.to]
        for name, goals in moves.items()
    }
    return _done(links, settings, store, wanted, by, on_old=False)


def set_back(links: Iterable[Link], settings: Settings, store: Store, moves: Moves, by: str) -> dict[str, list[Step]]:
    """As they were before; a twin's follow the home again. Where it had none it keeps what it has: none is deleted."""
    wanted = {
        name: [
            (one, (one.topic, one.partition), one.to, Place(one.to if one.has is None else one.has, _mark(one)))
            for one in goals
            if one.has != one.to
        ]
        for name, goals in moves.items()
    }
    return _done(links, settings, store, wanted, by, on_old=False)


def follow_again(
    links: Iterable[Link], settings: Settings, store: Store, moves: Moves, by: str
) -> dict[str, list[Step]]:
    """The places on twins that groups leave for their home: from now on the mirror moves them as the groups read on."""
    wanted = {
        name: [(one, (one.left_topic, one.partition), one.left, Place(one.left, MARK)) for one in goals if one.back]
        for name, goals in moves.items()
    }
    return _done(links, settings, store, wanted, by, on_old=True)


def _mark(goal: Goal) -> str:
    return "" if goal.back else MARK


def _done(
    links: Iterable[Link],
    settings: Settings,
    store: Store,
    wanted: Mapping[str, Sequence[_Wanted]],
    by: str,
    *,
    on_old: bool,
) -> dict[str, list[Step]]:
    """Of all groups in one go for each link."""
    steps: dict[str, list[Step]] = {}
    for link in links:
        ours = {name: [one for one in some if one[0].link == link.name] for name, some in wanted.items()}
        if not any(ours.values()):
            continue
        back = next(one[0].back for some in ours.values() for one in some)
        at_source = back is not on_old
        with _rounds(link, settings, store) as rounds:
            writer = rounds.at_source if at_source else rounds.at_target
            marks = {name: link.groups.marks and not rounds.rules_for(name).notes and not at_source for name in ours}
            wishes = {
                name: {where: (has, to if marks[name] else Place(to.offset)) for _, where, has, to in some}
                for name, some in ours.items()
            }
            for name, done in commit_offsets(store, writer, link.name, wishes, by=by, lower=on_old).items():
                steps.setdefault(name, []).extend(done)
    return steps


@contextmanager
def _rounds(link: Link, settings: Settings, store: Store) -> Iterator[Rounds]:
    rounds = Rounds(link, settings, store, retention_s=1.0)
    try:
        rounds.begin(time.monotonic())
        yield rounds
    finally:
        rounds.close()
