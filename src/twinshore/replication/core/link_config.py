"""A link's configuration: settings, the store's rows, and operators' overrides (None in one: as in the settings).

Filters that conflict are refused when set. If they are in the store all the same, as after two changes at once, the
newest do not count, and the settings' filters apply. Pauses, throttles and priorities always apply.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from twinshore.config.errors import ConfigError
from twinshore.config.model import Link
from twinshore.config.schema import SUGGESTION_CUTOFF, Complaints, RawSection, did_you_mean
from twinshore.config.sections.links import read_control, read_filters
from twinshore.replication.core.filters import Conflict, admits, find_conflicts
from twinshore.state.core.values import ControlRow, LinkPresence, LinkRow

FROM_SETTINGS, FROM_STORE = "settings", "store"
NEVER_CHANGED = -1
Value = Any
FILTER_NAMES = ("topics", "exclude")
PAIR_LIST_NAMES = ("topic_throttles", "priorities")
# Every name that the store may have.
OVERRIDE_NAMES = (
    *FILTER_NAMES,
    "groups",
    "exclude_groups",
    "paused",
    "paused_topics",
    "throttle_bytes_s",
    *PAIR_LIST_NAMES,
)


class BadValueError(ValueError):
    """An invalid value; the message says why."""


def parse_value(name: str, raw: Value) -> Any:
    """Parses the value as in settings; BadValueError when invalid."""
    if name in PAIR_LIST_NAMES:
        if not isinstance(raw, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in raw):
            raise BadValueError("must be a list of pairs, expression and number")
        raw = {str(pattern): number for pattern, number in raw}
    complaints = Complaints()
    parsed = (read_filters if name in FILTER_NAMES else read_control)(RawSection({name: raw}, ""), complaints)
    if complaints.lines:
        raise BadValueError(complaints.lines[0].removeprefix(f"{name}: "))
    return getattr(parsed, name)


@dataclass(frozen=True, slots=True)
class EffectiveLink:
    """`origins`: where each value comes from. `troubles`: rows that do not count, and why. `filtered_ms`: when
    operators last changed the filters.
    """

    link: Link
    origins: tuple[tuple[str, str], ...]
    troubles: tuple[str, ...] = ()
    filtered_ms: int = NEVER_CHANGED

    def value(self, name: str) -> Any:
        return getattr(self.link if name in FILTER_NAMES else self.link.control, name)


def effective_link(link: Link, rows: Iterable[ControlRow]) -> EffectiveLink:
    values: dict[str, Any] = {}
    troubles = []
    filtered_ms = NEVER_CHANGED
    for row in rows:
        if row.name not in OVERRIDE_NAMES:
            troubles.append(f"the store says {row.name} of link {link.name}, which this version does not know")
            continue
        try:
            values[row.name] = parse_value(row.name, json.loads(row.value))
            filtered_ms = max(filtered_ms, row.changed_ms) if row.name in FILTER_NAMES else filtered_ms
        except ValueError as error:
            troubles.append(f"the store's {row.name} of link {link.name} does not count: {error}")
    own = {name: value for name, value in values.items() if name in FILTER_NAMES}
    rest = {name: value for name, value in values.items() if name not in FILTER_NAMES}
    whole = replace(link, **own, control=replace(link.control, **rest))
    origins = tuple((name, FROM_STORE if name in values else FROM_SETTINGS) for name in OVERRIDE_NAMES)
    return EffectiveLink(whole, origins, tuple(troubles), filtered_ms)


def as_json(value: Any) -> str:
    """Returns the value as in the store and the audit."""
    return json.dumps(value)


def resolve_filter_conflicts(links: Sequence[Link], effective: Mapping[str, EffectiveLink]) -> dict[str, EffectiveLink]:
    """Adds a trouble to each link whose overridden filters do not count."""
    begun, resolved = {link.name: link for link in links}, dict(effective)
    while clashes := find_conflicts([row.link for row in resolved.values()]):
        newest = max(
            (name for conflict in clashes for name in conflict.links if resolved[name].filtered_ms > NEVER_CHANGED),
            key=lambda name: (resolved[name].filtered_ms, name),
            default="",
        )
        if not newest:
            break  # the settings themselves conflict: a mirror does not start with these
        resolved[newest] = _refused(resolved[newest], begun[newest], clashes)
    return resolved


def _refused(now: EffectiveLink, begun: Link, clashes: Sequence[Conflict]) -> EffectiveLink:
    why = next(conflict.error().message for conflict in clashes if begun.name in conflict.links)
    trouble = f"what operators said of its filters does not count: {why}; the filters of the settings apply instead"
    origins = tuple((name, FROM_SETTINGS if name in FILTER_NAMES else origin) for name, origin in now.origins)
    link = replace(now.link, topics=begun.topics, exclude=begun.exclude)
    return EffectiveLink(link, origins, (*now.troubles, trouble))


Section = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LinkRemark:
    """A note on a link, such as that settings and store differ; then the store's values apply."""

    link: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.link}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class ReconciledLinks:
    """`rows` are to be written; `links`: all, as sections of settings."""

    rows: tuple[LinkRow, ...]
    links: Mapping[str, Section]
    differences: tuple[LinkRemark, ...]


def dump_section(section: Section) -> str:
    """Returns the section's text; equal sections have equal texts."""
    return json.dumps(section, sort_keys=True, separators=(",", ":"))


def reconcile(settings: Mapping[str, Section], rows: Iterable[LinkRow], now_ms: int, by: str) -> ReconciledLinks:
    known = {row.link: row for row in rows}
    written, differences = [], []
    for name, section in settings.items():
        row = known.get(name)
        text = dump_section(section)
        if row is None or (row.seed != text and row.section == row.seed and row.state is LinkPresence.KEPT):
            known[name] = settings_link_row(name, section, now_ms, by)
            written.append(known[name])
        elif row.state is LinkPresence.REMOVED:
            differences.append(LinkRemark(name, f"was removed by {row.changed_by}; the settings still name it"))
        elif row.section != text:
            differences.append(LinkRemark(name, _parts(row, section)))
    links = select_sections(known.values(), settings.keys())
    strange = [row.link for row in known.values() if row.state is LinkPresence.KEPT and row.link not in links]
    left = "is in the store, from settings that named it; the present ones do not"
    differences += [LinkRemark(name, left) for name in strange]
    return ReconciledLinks(tuple(written), links, tuple(sorted(differences, key=lambda remark: remark.link)))


def parse_section(row: LinkRow) -> dict[str, Any]:
    section: dict[str, Any] = json.loads(row.section)
    return section


def select_sections(rows: Iterable[LinkRow], named: Collection[str]) -> dict[str, Section]:
    """Returns the present links, those of `named` (the settings) first. A link from settings that no longer name it is
    left out.
    """
    kept = {row.link: row for row in rows if row.state is LinkPresence.KEPT}
    rest = sorted(name for name, row in kept.items() if name not in named and not row.seed)
    return {name: parse_section(kept[name]) for name in [*(name for name in named if name in kept), *rest]}


def new_link_row(link: str, section: Section, now_ms: int, by: str) -> LinkRow:
    """Returns the row of a link that an operator adds; no settings need name it."""
    return LinkRow(link, LinkPresence.KEPT, dump_section(section), "", 0, now_ms, by)


def changed_link_row(row: LinkRow, section: Section, now_ms: int, by: str) -> LinkRow:
    return replace(row, section=dump_section(section), changed_ms=now_ms, changed_by=by)


def removed_link_row(row: LinkRow, now_ms: int, by: str) -> LinkRow:
    return replace(row, state=LinkPresence.REMOVED, changed_ms=now_ms, changed_by=by)


def settings_link_row(link: str, section: Section, now_ms: int, by: str) -> LinkRow:
    text = dump_section(section)
    return LinkRow(link, LinkPresence.KEPT, text, text, 0, now_ms, by)


def diff_sections(section: Section, other: Section) -> list[tuple[str, str, str]]:
    """Returns name and both values of each difference."""
    names = sorted({*section, *other}, key=str)
    return [(name, _said(section, name), _said(other, name)) for name in names if section.get(name) != other.get(name)]


def _parts(row: LinkRow, section: Section) -> str:
    differences = diff_sections(parse_section(row), section)
    parts = [f"{name} is {stored}, and {other} in the settings" for name, stored, other in differences]
    return f"{'; '.join(parts)} (by {row.changed_by})"


def _said(section: Section, name: str) -> str:
    return json.dumps(section[name], sort_keys=True) if name in section else "not set"


VALUES_EXAMPLE = 'topics=["orders.*"], naming="prefix", groups.enabled=false'


def with_values(section: Section, words: Iterable[str]) -> dict[str, Any]:
    """Replaces values of the section; a table within keeps what is not named."""
    merged = dict(section)
    for text in words:
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                "replication.value-unreadable", value=text, cause=str(error), example=VALUES_EXAMPLE
            ) from error
        merged = _merged(merged, given)
    return merged


def without_values(section: Section, names: Iterable[str]) -> dict[str, Any]:
    """Removes values, so that defaults apply again."""
    left = dict(section)
    for name in names:
        head, _, rest = name.partition(".")
        within = left.get(head)
        if name in left:
            del left[name]
        elif rest and isinstance(within, Mapping):
            left[head] = without_values(within, [rest])
        else:
            raise ConfigError("replication.value-not-set", name=name, known=", ".join(left) or "none")
    return left


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _one(old.get(name), value) for name, value in new.items()}
    return {**old, **both}


def _one(old: object, new: object) -> object:
    return _merged(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new


Override = dict[str, Any]


def pause_override(now: EffectiveLink, topics: Sequence[str]) -> Override:
    """Pauses the topics, or the whole link if none is named."""
    if not topics:
        return {"paused": True}
    held = now.link.control.paused_topics
    return {"paused_topics": (*held, *(topic for topic in topics if topic not in held))}


def resume_override(now: EffectiveLink, topics: Sequence[str], *, every: bool = False) -> Override:
    """Resumes topics, named as they were paused, or the link if none is named. `every`: both."""
    held = now.link.control.paused_topics
    if every:
        return {"paused": False, "paused_topics": ()}
    if not topics:
        return {"paused": False}
    for topic in topics:
        if topic not in held:
            raise ConfigError(
                "replication.topic-not-paused", topic=topic, link=now.link.name, near=did_you_mean(topic, held)
            )
    return {"paused_topics": tuple(topic for topic in held if topic not in topics)}


def throttle_override(now: EffectiveLink, bytes_s: int, topic: str | None) -> Override:
    """Limits the link, or matching topics; 0: no limit."""
    if topic is None:
        return {"throttle_bytes_s": bytes_s}
    return {"topic_throttles": _with_pair(now.link.control.topic_throttles, topic, bytes_s)}


def priority_override(now: EffectiveLink, topic: str, weight: int) -> Override:
    """Weighs matching topics; 0: the default weight."""
    return {"priorities": _with_pair(now.link.control.priorities, topic, weight)}


def filters_override(
    topics: Sequence[str], exclude: Sequence[str], groups: Sequence[str], exclude_groups: Sequence[str]
) -> Override:
    """Replaces the given filters; empty ones stay."""
    given = {"topics": topics, "exclude": exclude, "groups": groups, "exclude_groups": exclude_groups}
    override = {name: tuple(value) for name, value in given.items() if value}
    if not override:
        raise ConfigError("replication.no-filter-given")
    return override


def reset_override(names: Sequence[str]) -> Override:
    """Drops these overrides, or all."""
    for name in names:
        if name not in OVERRIDE_NAMES:
            raise ConfigError("replication.no-such-override", name=name, near=did_you_mean(name, OVERRIDE_NAMES))
    return dict.fromkeys(names or OVERRIDE_NAMES)


def _with_pair(pairs: tuple[tuple[str, int], ...], pattern: str, number: int) -> tuple[tuple[str, int], ...]:
    """The newest pair goes first, and wins over older matches."""
    rest = tuple(pair for pair in pairs if pair[0] != pattern)
    return ((pattern, number), *rest) if number else rest


def check_override(wish: Override, link: str) -> Override:
    """Raises ConfigError when a value is invalid."""
    for name, value in wish.items():
        if value is None:
            continue
        try:
            parse_value(name, json.loads(as_json(value)))
        except BadValueError as error:
            raise ConfigError("replication.bad-override", link=link, name=name, cause=str(error)) from error
    return wish


def diff_override(now: EffectiveLink, wish: Override, begins: EffectiveLink) -> list[tuple[str, str, str]]:
    """Returns name, old and new value as JSON. `begins`: the link by settings alone."""
    differences = []
    stored = dict(now.origins)
    for name, value in wish.items():
        after = begins.value(name) if value is None else value
        if value is None and stored[name] != "store":
            continue
        if value is None or as_json(now.value(name)) != as_json(after):
            differences.append((name, as_json(now.value(name)), as_json(after)))
    return differences


def matches_replicated_topic(pattern: str, link: Link, topics: Collection[str]) -> bool:
    """Whether the link admits one of these topics that the pattern matches."""
    return any(re.fullmatch(pattern, topic) and admits(link, topic) for topic in topics)


def explain_no_effect(pattern: str, link: Link, topics: Collection[str] | None) -> str:
    """Returns why the pattern has no effect; empty: it has one. `topics`: the source's, None: unknown."""
    later = "it holds for one that appears"
    if topics is None:
        return f"whether a topic matches {pattern!r} is not known: {link.source} does not answer; {later}"
    if matches_replicated_topic(pattern, link, topics):
        return ""
    left_out = sorted(topic for topic in topics if re.fullmatch(pattern, topic))
    if left_out:
        return f"the link does not admit {left_out[0]}, which {pattern!r} matches: nothing of it is replicated"
    near = get_close_matches(pattern, [topic for topic in topics if admits(link, topic)], n=1, cutoff=SUGGESTION_CUTOFF)
    mean = f"; did you mean {near[0]}?" if near else ""
    return f"no topic of {link.source} matches {pattern!r} now{mean}; {later}"
