"""Committed offsets at a switch: copied to the new home, as a twin has its source's offsets; set on twins so that they
follow their home; saved and put back; and which groups a forced switch may tear.

A coordinator forgets the offsets of a topic that is deleted, a while after brokers show the new one. So an offset
counts only once it has been seen to stand for a while.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from twinshore.fleet import KafkaError, Link, NamedPartition, WireError
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.groups.goals import Goal, goals_of
from twinshore.groups.look import GroupView, PartView, look
from twinshore.groups.offset_move import DONE, MEMBERLESS, set_places
from twinshore.groups.outputs import waits_for
from twinshore.groups.place import MARK, State
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.groups import Groups
from twinshore.store import Store
from twinshore.switch.record import Record, alone_at, left_by_force, readable
from twinshore.switch.torn import Writing, reads_of, writing
from twinshore.wire.group_places import GroupPlaces, Place, Where

NAMED_MAX = 5
# What a coordinator answers where a group has members: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
# STALE_MEMBER_EPOCH.
BUSY = frozenset({22, 25, 27, 113})


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


Places = Mapping[str, Mapping[Where, Place]]


def places_in(cluster: KafkaCluster, topics: Collection[str]) -> tuple[dict[str, dict[Where, Place]], tuple[str, ...]]:
    """Each group's places in these topics, with the mark of those that are a link's, and which of these groups have
    members now. KafkaError where a coordinator does not answer: a place that nobody saw would be lost."""
    with closing(Groups(cluster)) as groups:
        ours, told, away = groups.all_places()
    for error in away:
        raise error
    found = {name: _of(cluster, one, topics) for name, one in told.items()}
    found = {name: places for name, places in found.items() if places}
    return found, tuple(sorted(name for name in found if ours[name].live))


class SavedPlace(NamedTuple):
    """`was`: the place on the topic that is no more; `to`: the same on the new one, within its records."""

    was: Place
    to: Place


def put_back(cluster: KafkaCluster, places: Mapping[str, Mapping[Where, SavedPlace]]) -> tuple[str, ...]:
    """Commits each place that is not there; which groups have some that are not there yet. A group that has members by
    now says itself where it stands."""
    lacking: list[str] = []
    with closing(Groups(cluster)) as groups:
        located = groups.located(sorted(places))
        for error in located.refused.values():
            raise error
        for name, wanted in places.items():
            node = located.nodes.get(name)
            told = groups.places({node: {name: list(wanted)}}, {})[0].get(name) if node is not None else None
            if node is None or told is None or told.error:
                lacking.append(name)
                continue
            there = told.places
            absent = {where: one.to for where, one in wanted.items() if is_lacking(one, there.get(where))}
            answers = groups.commit({node: {name: absent}}).get(name, {}) if absent else {}
            if absent and not BUSY.issuperset(answers.values() or (0,)):
                lacking.append(name)
    return tuple(lacking)


def is_lacking(saved: SavedPlace, there: Place | None) -> bool:
    """Whether the saved place is to be put back. One that stands by now is another's word, and newer; but not the
    link's: while the topic was filled anew it gave each group that had no place there its home's, also one that had
    stood there on its own, and would pass records over. Nor the old topic's, in records that are no more."""
    if there is None or (there.metadata == MARK and saved.to.metadata != MARK):
        return True
    return there.offset == saved.was.offset > saved.to.offset


def places_json(places: Places) -> str:
    """A place that is a link's has one value more."""
    rows = {
        name: [[*where, one.offset, *([1] if one.metadata == MARK else [])] for where, one in sorted(some.items())]
        for name, some in sorted(places.items())
    }
    return json.dumps(rows, separators=(",", ":"))


def places_from(text: str) -> dict[str, dict[Where, Place]]:
    """WireError where it is none."""
    try:
        raw = json.loads(text or "{}")
        return {
            str(name): {
                (str(topic), int(number)): Place(int(at), MARK if any(rest) else "")
                for topic, number, at, *rest in some
            }
            for name, some in raw.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise WireError("the places of groups cannot be read from the switch's record") from error


def _of(cluster: KafkaCluster, one: GroupPlaces, topics: Collection[str]) -> dict[Where, Place]:
    failed = [f"{topic}-{number}" for topic, number in one.failed if topic in topics]
    if one.error or failed:
        raise KafkaError(f"{cluster.name}: where group {one.group} stands cannot be read", retriable=True)
    return {
        # A consumer's text is about the place at which it was left.
        where: Place(place.offset, MARK if place.metadata == MARK else "")
        for where, place in one.places.items()
        if where[0] in topics
    }


def may_be_torn(new: KafkaCluster, link: Link, topics: Collection[str]) -> Iterator[str]:
    """A sentence for each; or why nobody knows, which keeps no switch from being made."""
    try:
        for one in _writing(new, link, topics):
            yield one.sentence()
    except KafkaError as error:
        yield f"which groups may be torn is not known: {error.message}"


def _writing(new: KafkaCluster, link: Link, topics: Collection[str]) -> list[Writing]:
    with closing(Groups(new)) as groups:
        _, found, _ = groups.all_places()
    places = {name: {where: place.offset for where, place in one.places.items()} for name, one in found.items()}
    rules = link.groups.outputs
    read = frozenset[str]().union(*(reads_of(name, rules, topics, some) for name, some in places.items()))
    shown = new.metadata(sorted(read)).topics if read else {}
    every = [NamedPartition(topic, one.partition) for topic in read & shown.keys() for one in shown[topic].partitions]
    begins, ends = (new.list_offsets(every, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    spans = {(named.topic, named.partition): (begins[named], ends[named]) for named in every}
    known = (writing(name, rules, topics, places[name], spans) for name in sorted(places))
    return [one for one in known if one is not None]
