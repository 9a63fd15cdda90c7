"""Where groups stand on an old home in topics that are made anew: saved before, put back afterwards.

A coordinator forgets the places of a topic that is deleted, a while after brokers show the new one. So a place counts
only once it has been seen to stand for a while.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import NamedTuple

from twinshore.fleet import KafkaError, WireError
from twinshore.groups.place import MARK
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.groups import Groups
from twinshore.switch.returned import Where
from twinshore.wire.group_places import GroupPlaces, Place

# What a coordinator answers where a group has members: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
# STALE_MEMBER_EPOCH.
BUSY = frozenset({22, 25, 27, 113})

Places = Mapping[str, Mapping[Where, Place]]


def places_in(cluster: KafkaCluster, topics: Collection[str]) -> tuple[dict[str, dict[Where, Place]], tuple[str, ...]]:
    """Each group's places in these topics, with the mark of those that are a link's, and which of these groups have
    members now. KafkaError where a coordinator
    does not answer: a place that nobody saw would be lost."""
    with closing(Groups(cluster)) as groups:
        known = groups.listed()
        for error in known.away.values():
            raise error
        ours = {name: one for name, one in known.groups.items() if one.reads_by_offsets}
        wanted: dict[int, dict[str, None]] = {}
        for name, one in ours.items():
            wanted.setdefault(one.coordinator, {})[name] = None
        told, away = groups.places(wanted, {})
    for error in away.values():
        raise error
    found = {name: _of(cluster, one, topics) for name, one in told.items()}
    found = {name: places for name, places in found.items() if places}
    return found, tuple(sorted(name for name in found if ours[name].live))


class Wanted(NamedTuple):
    """`was`: the place on the topic that is no more; `to`: the same on the new one, within its records."""

    was: Place
    to: Place


def put_back(cluster: KafkaCluster, places: Mapping[str, Mapping[Where, Wanted]]) -> tuple[str, ...]:
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


def is_lacking(saved: Wanted, there: Place | None) -> bool:
    """Whether the saved place is to be put back. One that stands by now is another's word, and newer; but not the
    link's: while the topic was filled anew it gave each group that had no place there its home's, also one that had
    stood there on its own, and would pass records over. Nor the old topic's, in records that are no more."""
    if there is None or (there.metadata == MARK and saved.to.metadata != MARK):
        return True
    return there.offset == saved.was.offset > saved.to.offset


def to_json(places: Places) -> str:
    """A place that is a link's has one value more."""
    rows = {
        name: [[*where, one.offset, *([1] if one.metadata == MARK else [])] for where, one in sorted(some.items())]
        for name, some in sorted(places.items())
    }
    return json.dumps(rows, separators=(",", ":"))


def from_json(text: str) -> dict[str, dict[Where, Place]]:
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
