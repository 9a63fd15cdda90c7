"""The table `outputs` of a link's section `groups`: which topics the readers of which groups write to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from twinshore.fleet.settings_control import why_not_pattern
from twinshore.fleet.settings_edge import NEAR, Complaints

# What stands for the group's own name in an expression for topics.
GROUP = "{group}"
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
EXAMPLE = '{ "billing" = ["invoices"], ".*-app" = ["{group}-.*"] }'


def read_outputs(table: object, place: str, complaints: Complaints) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Pairs of an expression for groups and expressions for topics; complaints are added where they are wrong."""
    if not isinstance(table, Mapping):
        complaints.add(place, f"outputs: must be a table like {EXAMPLE}, not {table!r}")
        return ()
    found = []
    for groups, topics in table.items():
        texts = topics if isinstance(topics, list) and all(isinstance(one, str) for one in topics) else None
        if not texts:
            complaints.add(place, f"outputs: {groups!r}: must be a list of expressions like {EXAMPLE}, not {topics!r}")
            continue
        wrong = [why for why in (_wrong(groups), *map(_wrong_topics, texts)) if why]
        for why in wrong:
            complaints.add(place, f"outputs: {why}")
        if not wrong:
            found.append((groups, tuple(texts)))
    return tuple(found)


def unmet(outputs: tuple[tuple[str, tuple[str, ...]], ...], topics: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each expression for topics that meets none of these, whatever its groups are called, with a sentence."""
    for expression in dict.fromkeys(text for _, texts in outputs for text in texts):
        pattern = re.compile(expression.replace(GROUP, ".*"))
        if not any(pattern.fullmatch(topic) for topic in topics):
            near = get_close_matches(expression, topics, n=1, cutoff=NEAR)
            mean = f"; did you mean {near[0]}?" if near else ""
            yield expression, f"meets no topic that the link carries now, so no group waits for what it says{mean}"


def _wrong_topics(text: str) -> str:
    """A group's name stands for itself there, whatever it consists of."""
    return _wrong(text.replace(GROUP, "g"))


def _wrong(text: str) -> str:
    unknown = _PLACEHOLDER.search(text)
    if unknown:
        return f"{text!r}: {unknown.group()} stands for nothing; only {GROUP} does, in an expression for topics"
    return why_not_pattern(text)
