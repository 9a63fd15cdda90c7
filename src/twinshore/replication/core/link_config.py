"""What holds for a link now: its settings, and what operators have said since, also where filters of several links
clash, as two operators said them at once, or processes have other settings. Pure.

A word that clashes is refused when it is said. Where it stands in the store all the same, the newest that clashes does
not count: the filters of the link's settings hold. Pauses, throttles and priorities hold in any case.

What becomes of links that settings name, beside what the store holds of them, and words of an operator such as
`topics=["orders.*"]` put into a link's section. Pure: rows and sections, no SQL.

An operator's words as values: what each verb would make of what holds now, and whether a word meets any topic.
Pure; None means: as the settings say.
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
from twinshore.config.schema import NEAR, Complaints, Written, did_you_mean
from twinshore.config.sections.links import read_control, read_filters
from twinshore.replication.core.filters import Conflict, admits, conflicts
from twinshore.state.core.values import ControlRow, LinkRow, LinkState

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


Section = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AboutLink:
    """Something worth knowing of a link beside how it stands, as where settings and the store say different things: the
    store's word stands then."""

    link: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.link}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Sown:
    """`rows` are those that are to be written; `links` what each link is then, as a section of settings."""

    rows: tuple[LinkRow, ...]
    links: Mapping[str, Section]
    differences: tuple[AboutLink, ...]


def text_of(section: Section) -> str:
    """A section as the store keeps it: two that say the same are the same text."""
    return json.dumps(section, sort_keys=True, separators=(",", ":"))


def sow(settings: Mapping[str, Section], rows: Iterable[LinkRow], now_ms: int, by: str) -> Sown:
    """What the links are, where these settings name those of `settings` and the store knows `rows`."""
    known = {row.link: row for row in rows}
    written, differences = [], []
    for name, section in settings.items():
        row = known.get(name)
        said = text_of(section)
        if row is None or (row.seed != said and row.section == row.seed and row.state is LinkState.KEPT):
            known[name] = as_settings(name, section, now_ms, by)
            written.append(known[name])
        elif row.state is LinkState.REMOVED:
            differences.append(AboutLink(name, f"was removed by {row.changed_by}; the settings still name it"))
        elif row.section != said:
            differences.append(AboutLink(name, _parts(row, section)))
    links = sections_of(known.values(), settings.keys())
    strange = [row.link for row in known.values() if row.state is LinkState.KEPT and row.link not in links]
    differences += [
        AboutLink(name, "stands in the store, from settings that name it; these do not") for name in strange
    ]
    return Sown(tuple(written), links, tuple(sorted(differences, key=lambda one: one.link)))


def section_of(row: LinkRow) -> dict[str, Any]:
    """What the row says of the link, as settings would."""
    found: dict[str, Any] = json.loads(row.section)
    return found


def sections_of(rows: Iterable[LinkRow], named: Collection[str]) -> dict[str, Section]:
    """The links that there are by these rows, for settings that name those of `named`, these first. A link that came
    from settings goes with them: where they do not name it any more, it is not carried."""
    kept = {row.link: row for row in rows if row.state is LinkState.KEPT}
    rest = sorted(name for name, row in kept.items() if name not in named and not row.seed)
    return {name: section_of(kept[name]) for name in [*(name for name in named if name in kept), *rest]}


def added(link: str, section: Section, now_ms: int, by: str) -> LinkRow:
    """The row of a link that an operator adds: no settings need to name it."""
    return LinkRow(link, LinkState.KEPT, text_of(section), "", 0, now_ms, by)


def changed(row: LinkRow, section: Section, now_ms: int, by: str) -> LinkRow:
    """The row of a link of which an operator says what it is."""
    return replace(row, section=text_of(section), changed_ms=now_ms, changed_by=by)


def removed(row: LinkRow, now_ms: int, by: str) -> LinkRow:
    """The row of a link that is to be carried no more."""
    return replace(row, state=LinkState.REMOVED, changed_ms=now_ms, changed_by=by)


def as_settings(link: str, section: Section, now_ms: int, by: str) -> LinkRow:
    """The row of a link that is what settings say."""
    said = text_of(section)
    return LinkRow(link, LinkState.KEPT, said, said, 0, now_ms, by)


def differing(one: Section, other: Section) -> list[tuple[str, str, str]]:
    """Name, and what both say, of each value that is not the same in both."""
    names = sorted({*one, *other}, key=str)
    return [(name, _said(one, name), _said(other, name)) for name in names if one.get(name) != other.get(name)]


def _parts(row: LinkRow, section: Section) -> str:
    found = differing(section_of(row), section)
    parts = [f"{name} is {mine}, and {theirs} in the settings" for name, mine, theirs in found]
    return f"{'; '.join(parts)} (by {row.changed_by})"


def _said(section: Section, name: str) -> str:
    return json.dumps(section[name], sort_keys=True) if name in section else "not set"


EXAMPLE = 'topics=["orders.*"], naming="prefix", groups.enabled=false'


def with_values(section: Section, words: Iterable[str]) -> dict[str, Any]:
    """The section with these values in place of its own; a table within it keeps what is not named."""
    found = dict(section)
    for word in words:
        try:
            given = tomllib.loads(word)
        except tomllib.TOMLDecodeError as error:
            hint = f"write name=value as in the settings, like {EXAMPLE}; a shell needs '...' around it"
            raise ConfigError(f"{word!r} is not a value: {error}", hint=hint) from error
        found = _merged(found, given)
    return found


def without(section: Section, names: Iterable[str]) -> dict[str, Any]:
    """The section without these values: what is usual holds for them again."""
    found = dict(section)
    for name in names:
        head, _, rest = name.partition(".")
        within = found.get(head)
        if name in found:
            del found[name]
        elif rest and isinstance(within, Mapping):
            found[head] = without(within, [rest])
        else:
            raise ConfigError(f"{name!r} is not set", hint=f"set are: {', '.join(found) or 'none'}")
    return found


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _one(old.get(name), value) for name, value in new.items()}
    return {**old, **both}


def _one(old: object, new: object) -> object:
    return _merged(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new


Wish = dict[str, Any]


def pause(now: InForce, topics: Sequence[str]) -> Wish:
    """The topics, or the whole link where none is named."""
    if not topics:
        return {"paused": True}
    held = now.link.control.paused_topics
    return {"paused_topics": (*held, *(one for one in topics if one not in held))}


def resume(now: InForce, topics: Sequence[str], *, every: bool = False) -> Wish:
    """The topics as they were paused; the link's own pause where none is named. `every`: that and all its topics'."""
    held = now.link.control.paused_topics
    if every:
        return {"paused": False, "paused_topics": ()}
    if not topics:
        return {"paused": False}
    for one in topics:
        if one not in held:
            raise ConfigError(f"{one!r} is not paused on link {now.link.name}{did_you_mean(one, held)}")
    return {"paused_topics": tuple(one for one in held if one not in topics)}


def throttle(now: InForce, bytes_s: int, topic: str | None) -> Wish:
    """The link, or the topics that match; 0: no bound any more."""
    if topic is None:
        return {"throttle_bytes_s": bytes_s}
    return {"topic_throttles": _with_pair(now.link.control.topic_throttles, topic, bytes_s)}


def priority(now: InForce, topic: str, weight: int) -> Wish:
    """Of the topics that match; 0: as all others."""
    return {"priorities": _with_pair(now.link.control.priorities, topic, weight)}


def filters(
    topics: Sequence[str], exclude: Sequence[str], groups: Sequence[str], exclude_groups: Sequence[str]
) -> Wish:
    """Those that are named; the others stay as they are."""
    given = {"topics": topics, "exclude": exclude, "groups": groups, "exclude_groups": exclude_groups}
    found = {name: tuple(value) for name, value in given.items() if value}
    if not found:
        raise ConfigError("no filter is named", hint="give --topics, --exclude, --groups or --exclude-groups")
    return found


def reset(names: Sequence[str]) -> Wish:
    """These, or all, as the settings say."""
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"nothing is called {name!r}{did_you_mean(name, NAMES)}")
    return dict.fromkeys(names or NAMES)


def _with_pair(pairs: tuple[tuple[str, int], ...], pattern: str, number: int) -> tuple[tuple[str, int], ...]:
    """The newest goes first: it shall count though an older one matches too."""
    rest = tuple(pair for pair in pairs if pair[0] != pattern)
    return ((pattern, number), *rest) if number else rest


def check(wish: Wish, link: str) -> Wish:
    """The wish without what it cannot mean; ConfigError that names the value otherwise."""
    for name, value in wish.items():
        if value is None:
            continue
        try:
            read(name, json.loads(as_json(value)))
        except BadValueError as error:
            raise ConfigError(f"link {link}: {name}: {error}") from error
    return wish


def steps(now: InForce, wish: Wish, begins: InForce) -> list[tuple[str, str, str]]:
    """Name, before and after, as JSON, of each value that would change; `begins`: the link as its settings have it."""
    found = []
    stored = dict(now.origins)
    for name, value in wish.items():
        after = begins.value(name) if value is None else value
        if value is None and stored[name] != "store":
            continue
        if value is None or as_json(now.value(name)) != as_json(after):
            found.append((name, as_json(now.value(name)), as_json(after)))
    return found


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
