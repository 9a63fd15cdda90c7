"""Places of consumer groups: copied to the new home as they are, since a twin has its source's offsets; and set on
twins so that they follow their home."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import KafkaError, Link
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.groups.goals import Goal, goals_of
from twinshore.groups.look import GroupView, PartView, look
from twinshore.groups.offset_move import DONE, MEMBERLESS, set_places
from twinshore.groups.outputs import waits_for
from twinshore.groups.place import State
from twinshore.store import Store
from twinshore.switch.record import Record, alone_at, left_by_force, readable
from twinshore.wire.group_places import Where

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """`groups` stand on the new home where they stood on the old one; `left` have members there, and `refused` are
    places that the new home did not take. `unheard`: a group of which a side does not say where it stands, and why."""

    groups: tuple[str, ...]
    left: tuple[str, ...]
    refused: tuple[str, ...]
    unheard: tuple[str, str] | None = None


def copy_places(
    link: Link, settings: Settings, store: Store, topics: Collection[str], by: str, *, stable: bool = True
) -> Copied:
    """Of every group that the link's filters admit, its places in these topics alone. A group that was moved to the
    new home alone before is there already: where it stood on the old home is of long ago. `stable`: as
    `look` has it."""
    left: list[str] = []
    wanted: dict[str, list[Goal]] = {}
    before = _records(store)
    for view in look(link, settings, store, stable=stable):
        if view.why or view.said_s_ago is not None:
            return Copied((), (), (), (view.group, view.why or "its old home does not answer"))
        meant = set(topics) - alone_at(before, view.group, topics, link.target)
        ours = replace(view, parts=tuple(one for one in view.parts if one.topic in meant))
        goals = [one for one in goals_of(link, ours, back=False)[0] if one.moves]
        if goals and view.target_state not in MEMBERLESS:
            left.append(view.group)
        elif ours.parts:
            wanted[view.group] = goals
    steps = set_places([link], settings, store, wanted, by, notes=False, lower=True)
    refused = [step.sentence(done=True) for some in steps.values() for step in some if step.refused]
    return Copied(tuple(wanted), tuple(left), tuple(refused))


def follow_home(
    link: Link, settings: Settings, store: Store, topics: Collection[str], by: str, ends: Mapping[Where, int]
) -> str:
    """The places on twins that a forced switch left there follow their home from now on; in a sentence which do, and
    which do not. Whoever else has places of his own there may read there, and is left alone; as is a place that is
    further on than the home's, one below `ends`, up to where a twin holds what its home lacks, and a group that has
    members there. The link's own places the mirror moves. Nobody waits for a group of which a side says nothing.
    KafkaError where nothing is known of any."""
    before = _records(store)
    left_there = left_by_force(before, topics, link.target, link.source)
    wanted: dict[str, list[Goal]] = {}
    left: list[str] = []
    alone: list[str] = []
    behind: list[str] = []
    for view in look(link, settings, store):
        meant = set(topics) - alone_at(before, view.group, topics, link.target)
        ours = tuple(part for part in view.parts if part.topic in meant)
        if not ours:
            continue
        if view.said_s_ago is not None:
            raise KafkaError(f"{link.source} does not answer", retriable=True)
        unread = [part for part in ours if (part.target or 0) < ends.get((part.topic, part.partition), 0)]
        if any(_is_left(part, left_there) for part in unread):
            behind.append(view.group)
        goals = goals_again(link, replace(view, parts=tuple(p for p in ours if p not in unread)), left_there)
        if any(part.state == State.OWN and part.topic not in left_there for part in ours):
            alone.append(view.group)
        if view.why or (goals and view.target_state not in MEMBERLESS):
            left.append(view.group)
        elif goals:
            wanted[view.group] = goals
    steps = set_places([link], settings, store, wanted, by, mark=True, notes=False)
    followed = [name for name in wanted if all(step.outcome == DONE for step in steps[name])]
    left += [name for name in wanted if name not in followed]
    return _follow(link, followed, left, alone, behind)


def left_on_twins(link: Link, store: Store, topics: Collection[str]) -> frozenset[str]:
    """Those of the topics on whose twins groups left places of their own when they were moved by force."""
    return left_by_force(_records(store), topics, link.target, link.source)


def _records(store: Store) -> list[Record]:
    """Of all switches that this version can read, the newest first."""
    return [record for row in store.switches.all() if (record := readable(row.record))]


def goals_again(link: Link, view: GroupView, left_there: Collection[str]) -> list[Goal]:
    """Where the group's own places in these topics go, so that the mirror takes them for the link's from now on. A
    group that writes to topics of the link stays where it is: the mirror's own round moves it, once what its readers
    wrote has crossed."""
    parts = tuple(part for part in view.parts if _is_left(part, left_there))
    goals = goals_of(link, replace(view, parts=parts), back=False)[0]
    if waits_for(link.groups.outputs, view.group):
        return [replace(one, to=one.has, short=0) for one in goals if one.has is not None]
    return goals


def _is_left(part: PartView, left_there: Collection[str]) -> bool:
    return part.state == State.OWN and part.topic in left_there


def _follow(
    link: Link, followed: Sequence[str], left: Sequence[str], alone: Sequence[str], behind: Sequence[str]
) -> str:
    says = [f"group {listed(followed, NAMED_MAX)} follows {link.source} again"] if followed else []
    if alone:
        says.append(f"group {listed(alone, NAMED_MAX)} stands on {link.target} on its own and is left alone")
    if behind:
        says.append(
            f"group {listed(behind, NAMED_MAX)} has not read on {link.target} all that never crossed, and stays"
        )
    by_hand = sorted({*left, *alone, *behind})
    if by_hand:
        word = " where it should follow" if alone or behind else ""
        says.append(f"`twinshore groups move` for {listed(by_hand, NAMED_MAX)}{word}")
    return "; ".join(says)
