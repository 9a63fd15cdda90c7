"""What holds for links whose filters clash as operators changed them, or as settings did since. Pure.

Only filters can clash: pauses, throttles and priorities hold whatever becomes of them. The filters of links that clash
step back together: to those that were right last, then to the settings', which were judged when they were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import Link
from twinshore.links.in_force import OF_LINK, SETTINGS, STORE, InForce
from twinshore.links.rules import conflicts

BEFORE = "time before"
KIND = "filters that were right"  # as `Remembered` of the store


@dataclass(frozen=True, slots=True)
class Filters:
    """What a link admits. `origin`: who says so."""

    topics: tuple[str, ...]
    exclude: tuple[str, ...]
    origin: str

    def to_json(self) -> str:
        """For the store."""
        return json.dumps([self.topics, self.exclude])


def filters_from_json(text: str) -> Filters:
    """Out of the store."""
    topics, exclude = json.loads(text)
    return Filters(tuple(topics), tuple(exclude), BEFORE)


def said_filters(now: InForce) -> Filters | None:
    """What operators said of the link's filters; None where they said nothing."""
    origins = dict(now.origins)
    said = any(origins[name] == STORE for name in OF_LINK)
    return Filters(now.link.topics, now.link.exclude, STORE) if said else None


def settled(links: Sequence[Link], said: Mapping[str, InForce], right: Mapping[str, Filters]) -> dict[str, InForce]:
    """What holds for each link, with a trouble for each whose filters are not those that operators said. `right`: what
    held of each when it did not clash."""
    steps = {link.name: list(_steps(link, said[link.name], right.get(link.name))) for link in links}
    at = dict.fromkeys(steps, 0)
    why: dict[str, str] = {}
    while found := conflicts([_with(said[name].link, steps[name][at[name]]) for name in steps]):
        back = {name for one in found for name in one.links if at[name] + 1 < len(steps[name])}
        if not back:
            break  # the settings themselves: a mirror does not start with such
        for one in found:
            for name in back & set(one.links):
                why.setdefault(name, one.sentence)
        for name in back:
            at[name] += 1
    return {name: _told(said[name], steps[name][at[name]], why.get(name, "")) for name in steps}


def _steps(link: Link, now: InForce, right: Filters | None) -> Iterable[Filters]:
    """From what was said last to what is right for sure."""
    wished = said_filters(now)
    if wished is not None:
        yield wished
        if right is not None and (right.topics, right.exclude) != (wished.topics, wished.exclude):
            yield right
    yield Filters(link.topics, link.exclude, SETTINGS)


def _with(link: Link, filters: Filters) -> Link:
    return replace(link, topics=filters.topics, exclude=filters.exclude)


def _told(now: InForce, filters: Filters, why: str) -> InForce:
    link = _with(now.link, filters)
    if not why or link == now.link:
        return now
    origins = tuple((name, filters.origin if name in OF_LINK else origin) for name, origin in now.origins)
    trouble = f"what operators said of its filters does not count: {why}; instead hold those from the {filters.origin}"
    return InForce(link, origins, (*now.troubles, trouble))
