"""What holds for a link now: its settings, and what operators have said since, also where filters of several links
clash, as two operators said them at once, or processes have other settings. Pure.

A word that clashes is refused when it is said. Where it stands in the store all the same, the newest that clashes does
not count: the filters of the link's settings hold. Pauses, throttles and priorities hold in any case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twinshore.fleet import Link
from twinshore.fleet.settings.edge import Complaints, Written
from twinshore.fleet.settings.sections.links import read_control, read_filters
from twinshore.links.rules import Conflict, conflicts
from twinshore.store.values import ControlRow

SETTINGS, STORE = "settings", "store"
UNSAID = -1
Value = Any
OF_LINK = ("topics", "exclude")
PAIRS = ("topic_throttles", "priorities")
# Every name that may stand in the store.
NAMES = (*OF_LINK, "groups", "exclude_groups", "paused", "paused_topics", "throttle_bytes_s", *PAIRS)


class BadValueError(ValueError):
    """A value that its name cannot have; the sentence says why."""


def read(name: str, raw: Value) -> Any:
    """What settings make of this value under this name; BadValueError where they make nothing of it."""
    if name in PAIRS:
        if not isinstance(raw, list) or not all(isinstance(one, list) and len(one) == 2 for one in raw):
            raise BadValueError("must be a list of pairs, expression and number")
        raw = {str(pattern): number for pattern, number in raw}
    complaints = Complaints()
    found = (read_filters if name in OF_LINK else read_control)(Written({name: raw}, ""), complaints)
    if complaints.lines:
        raise BadValueError(complaints.lines[0].removeprefix(f"{name}: "))
    return getattr(found, name)


@dataclass(frozen=True, slots=True)
class InForce:
    """`origins`: where each value comes from. `troubles`: rows of the store that make no sense and do not count.
    `filtered_ms`: when operators last said something of its filters."""

    link: Link
    origins: tuple[tuple[str, str], ...]
    troubles: tuple[str, ...] = ()
    filtered_ms: int = UNSAID

    def value(self, name: str) -> Any:
        return getattr(self.link if name in OF_LINK else self.link.control, name)


def in_force(link: Link, rows: Iterable[ControlRow]) -> InForce:
    """The link as it holds now."""
    found: dict[str, Any] = {}
    troubles = []
    filtered_ms = UNSAID
    for row in rows:
        if row.name not in NAMES:
            troubles.append(f"the store says {row.name} of link {link.name}, which this version does not know")
            continue
        try:
            found[row.name] = read(row.name, json.loads(row.value))
            filtered_ms = max(filtered_ms, row.changed_ms) if row.name in OF_LINK else filtered_ms
        except ValueError as error:
            troubles.append(f"the store's {row.name} of link {link.name} does not count: {error}")
    own = {name: value for name, value in found.items() if name in OF_LINK}
    rest = {name: value for name, value in found.items() if name not in OF_LINK}
    whole = replace(link, **own, control=replace(link.control, **rest))
    origins = tuple((name, STORE if name in found else SETTINGS) for name in NAMES)
    return InForce(whole, origins, tuple(troubles), filtered_ms)


def as_json(value: Any) -> str:
    """As it stands in the store, and in the audit."""
    return json.dumps([list(one) if isinstance(one, tuple) else one for one in value] if _is_list(value) else value)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple | list)


def settled(links: Sequence[Link], said: Mapping[str, InForce]) -> dict[str, InForce]:
    """What holds for each link, with a trouble for each whose filters are not those that operators said."""
    begun, found = {link.name: link for link in links}, dict(said)
    while clashes := conflicts([one.link for one in found.values()]):
        newest = max(
            (name for one in clashes for name in one.links if found[name].filtered_ms > UNSAID),
            key=lambda name: (found[name].filtered_ms, name),
            default="",
        )
        if not newest:
            break  # the settings themselves: a mirror does not start with such
        found[newest] = _refused(found[newest], begun[newest], clashes)
    return found


def _refused(now: InForce, begun: Link, clashes: Sequence[Conflict]) -> InForce:
    why = next(one.sentence for one in clashes if begun.name in one.links)
    trouble = f"what operators said of its filters does not count: {why}; instead hold those from the settings"
    origins = tuple((name, SETTINGS if name in OF_LINK else origin) for name, origin in now.origins)
    link = replace(now.link, topics=begun.topics, exclude=begun.exclude)
    return InForce(link, origins, (*now.troubles, trouble))
