"""What holds for links whose filters clash, as two operators said them at once, or processes have other settings. Pure.

A word that clashes is refused when it is said. Where it stands in the store all the same, the newest that clashes does
not count: the filters of the link's settings hold. Pauses, throttles and priorities hold in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from twinshore.fleet import Link
from twinshore.links.in_force import OF_LINK, SETTINGS, UNSAID, InForce
from twinshore.links.rules import Conflict, conflicts


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
