"""Groups whose readers write to topics of the link: to which, and which of their places may be known. Pure.

A reader writes what it made of records, and then commits its place behind them. So what it had made was written by the
time its place was read; and once all that its topics held after that has crossed, so has what it made.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from twinshore.fleet.settings.sections.links import GROUP
from twinshore.wire.group_places import GroupPlaces, Place, Where

Rules = tuple[tuple[str, tuple[str, ...]], ...]


class Moment(NamedTuple):
    """Places of a group as they were read, and each log that it writes to which has not crossed yet up to where it
    ended after that; `asked_s`: when those ends were asked for."""

    said: GroupPlaces
    ends: Mapping[Where, int]
    asked_s: float


def waits_for(rules: Rules, group: str) -> tuple[str, ...]:
    """The expressions for topics that the group's readers write to; none: its places wait for nothing."""
    found = [topics for pattern, topics in rules if re.fullmatch(pattern, group)]
    return tuple(topic.replace(GROUP, re.escape(group)) for topics in found for topic in topics)


def outputs_of(rules: Rules, group: str, topics: Iterable[str]) -> frozenset[str]:
    """Those of the topics that the group's readers write to."""
    patterns = [re.compile(one) for one in waits_for(rules, group)]
    return frozenset(topic for topic in topics if any(one.fullmatch(topic) for one in patterns))


def left_of(moment: Moment, crossed: Mapping[Where, int]) -> Moment:
    """What has still to cross. `crossed`: how far each log stands on the target, as offsets of the source."""
    return moment._replace(ends={where: end for where, end in moment.ends.items() if crossed.get(where, -1) < end})


def shortened(moment: Moment, ends: Mapping[Where, int], there: Container[Where], now_s: float) -> Moment:
    """The same moment by ends that were asked for anew. Records that the source has lost cannot cross any more, so
    an end may come down; it never rises, as nothing that came since is waited for. A log that is not `there` drops
    out."""
    return Moment(moment.said, {w: min(end, ends[w]) for w, end in moment.ends.items() if w in there}, now_s)


def within(released: GroupPlaces, now: GroupPlaces) -> dict[Where, Place]:
    """The group's places that may be shown to the target: those of the moment whose outputs have crossed, or the
    group's present ones where these are lower. A place that the group has no more is left out."""
    return {
        where: now.places[where] if now.places[where].offset < place.offset else place
        for where, place in released.places.items()
        if where in now.places
    }
