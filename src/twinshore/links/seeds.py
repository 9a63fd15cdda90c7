"""What becomes of links that settings name, beside what the store holds of them, and words of an operator such as
`topics=["orders.*"]` put into a link's section. Pure: rows and sections, no SQL."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twinshore.fleet import ConfigError
from twinshore.store.values import LinkRow, LinkState

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
