"""Each group on both sides, and what an operator should know besides the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from twinshore.fleet import ConfigError, KafkaError
from twinshore.fleet.sentences import counted, listed
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.shapes import why_not_pattern
from twinshore.groups.look import AWAY, GroupView, look
from twinshore.groups.place import State
from twinshore.store import Store

# So many reasons why a side says nothing are shown, and so many groups for each.
SILENT_MAX = 5


def check_pattern(pattern: str) -> None:
    """ConfigError where it is no expression for groups."""
    reason = why_not_pattern(pattern)
    if reason:
        raise ConfigError(f"--group: {reason}")


def group_views(
    pattern: str, links: Sequence[str], settings: Settings, store: Store
) -> tuple[list[GroupView], list[str]]:
    """Groups whose whole name matches, and a sentence for each link whose target does not answer; asks both clusters of
    each link. KafkaError where no link can be looked at."""
    check_pattern(pattern)
    views: list[GroupView] = []
    silent: dict[str, KafkaError] = {}
    chosen = settings.chosen(links)
    for link in chosen:
        try:
            views += look(link, settings, store, pattern)
        except KafkaError as error:
            if not error.retriable:
                raise
            silent[link.name] = error
    if silent and len(silent) == len(chosen):
        raise next(iter(silent.values()))
    return views, [f"{name} is not shown, as its target does not answer: {one.message}" for name, one in silent.items()]


def as_values(view: GroupView, *, partitions: bool) -> dict[str, Any]:
    """For programs; `partitions`: every partition's places too."""
    values = asdict(view)
    parts = values.pop("parts")
    if view.behind_s is not None:
        values["behind_s"] = round(view.behind_s, 3)
    values["partitions"] = len(parts)
    if partitions:
        values["places"] = [part | {"behind": seen.behind} for part, seen in zip(parts, view.parts, strict=True)]
    return values


def remarks(views: Sequence[GroupView]) -> list[str]:
    """Which sides say nothing, and which groups read on the target on their own."""
    found = []
    for name in sorted({view.link for view in views if view.source_state == AWAY and not view.why}):
        ago_s = next(view.said_s_ago for view in views if view.link == name)
        when = "the mirror never compared them" if ago_s is None else f"what stands here was so {ago_s:,.0f} s ago"
        found.append(f"{name}: the source does not answer; {when}")
    silent: dict[tuple[str, str], list[str]] = {}
    for view in views:
        if view.why:
            silent.setdefault((view.link, view.why), []).append(view.group)
    for (name, why), groups in list(silent.items())[:SILENT_MAX]:
        found.append(f"{name}: {listed(groups, SILENT_MAX)}: {why}")
    if len(silent) > SILENT_MAX:
        found.append(f"and {len(silent) - SILENT_MAX} groups more, of which one side says nothing either")
    return [*found, *filter(None, (_left_alone(view) for view in views)), *_read_again(views)]


def _read_again(views: Sequence[GroupView]) -> Iterator[str]:
    """How many records groups would read again, if a cluster died now and they went on at the other one."""
    again: Counter[str] = Counter()
    for view in views:
        source, _, target = view.link.partition("->")
        for part in view.parts if view.source_state != AWAY and not view.why else ():
            again[source] += max(0, part.behind or 0)
            # On a twin a place counts where its group reads there.
            again[target] += max(0, -(part.behind or 0))
    if counts := [f"{counted(many, 'record')} if {name} died now" for name, many in sorted(again.items()) if many]:
        yield f"groups would read again {listed(counts, SILENT_MAX)}, and they went on at the other cluster"


def _left_alone(view: GroupView) -> str:
    """Who reads on the target without following, since when, and the remedy; empty where nobody does."""
    parts = [part for part in view.parts if part.state == State.OWN]
    if not parts or view.source_state == AWAY:
        return ""
    target = view.link.partition("->")[2]
    since = "" if view.behind_s is None else f", for {view.behind_s:,.0f} s by now"
    count = f"{len(parts)} of {len(view.parts)} partitions{since}"
    remedy = f"`twinshore groups move {view.group}` makes it follow again"
    return f"{view.link}: {view.group} reads on {target} on its own, and is left alone there ({count}); {remedy}"
