"""The section `groups` of a link: how places of consumer groups follow, and which topics their readers write to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from twinshore.fleet.nouns import GroupRules
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import NEAR, Complaints, read_section
from twinshore.fleet.settings.section import Section, Written
from twinshore.fleet.settings.shapes import why_not_pattern

# What stands for the group's own name in an expression for topics.
GROUP = "{group}"
_PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
EXAMPLE = '{ "billing" = ["invoices"], ".*-app" = ["{group}-.*"] }'


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSection:
    """How places of consumer groups follow a link. Which groups: `groups` and `exclude_groups` of its control. Besides:
    `outputs`, a table from an expression for groups to a list of expressions for topics that their readers write to,
    in which `{group}` stands for the group's name: their places wait for what was written there to cross.
    """

    enabled: bool = setting(True, "places of consumer groups follow")
    every_s: float = setting(1.0, "how often both clusters are asked where groups stand", low=0.1, high=3600)
    resets: bool = setting(
        True, "a group that is set back on the source is set back on the target; false: never backwards"
    )
    back: bool | None = setting(
        None,
        "a group that reads on at the target finds its place on the source too; for groups without members there. "
        "Unset: where a link leads the other way",
    )
    verify_s: float = setting(
        60.0, "how long until a group on which nothing changes is compared again all the same", low=1, high=86400
    )
    marks: bool = setting(
        True,
        "places that the link commits are marked, where the group's consumers leave no text of their own; "
        "false: readers at the target without membership are moved too; see docs/groups.md",
    )


def read_groups(written: Written, complaints: Complaints) -> GroupRules:
    """How groups follow the link; complaints are added, and the defaults returned, where it is wrong."""
    rest, inner = written.parted("outputs")
    outputs = read_outputs(inner["outputs"], written.place, complaints)
    section = read_section(GroupsSection, rest, written.place, complaints, beside=["outputs"])
    if section is None:
        return GroupRules()
    return GroupRules(
        enabled=section.enabled,
        every_s=section.every_s,
        resets=section.resets,
        back=section.back,
        verify_s=section.verify_s,
        marks=section.marks,
        outputs=outputs,
    )


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


SECTION = Section("groups", 33, (('[links."SOURCE->TARGET".groups]', GroupsSection),), read_groups, inside="links")
