"""Whether a name in an operator's word meets any topic now. It may come before its topic, but not unnoticed. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from twinshore.fleet import Link
from twinshore.fleet.settings.edge import NEAR
from twinshore.links.filters import admits


def carries(pattern: str, link: Link, topics: Collection[str]) -> bool:
    """Whether the link carries one of these topics that the expression matches."""
    return any(re.fullmatch(pattern, topic) and admits(link, topic) for topic in topics)


def remark(pattern: str, link: Link, topics: Collection[str] | None) -> str:
    """Why the word changes nothing now, by the source's topics; None where it cannot be asked. Empty where it does."""
    later = "it holds for one that appears"
    if topics is None:
        return f"whether a topic matches {pattern!r} is not known: {link.source} does not answer; {later}"
    if carries(pattern, link, topics):
        return ""
    left_out = sorted(topic for topic in topics if re.fullmatch(pattern, topic))
    if left_out:
        return f"the link does not admit {left_out[0]}, which {pattern!r} matches: nothing of it is carried"
    near = get_close_matches(pattern, [topic for topic in topics if admits(link, topic)], n=1, cutoff=NEAR)
    mean = f"; did you mean {near[0]}?" if near else ""
    return f"no topic of {link.source} matches {pattern!r} now{mean}; {later}"
