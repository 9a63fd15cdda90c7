"""Adds, changes, reverses, removes and lists links. Running mirrors follow by themselves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, RefusedError, StoreError, StoreVersionError
from twinshore.config.model import Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.sections.links import find_mixed_broadcasts
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings, parse_link_name
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.filters import check_links
from twinshore.replication.core.link_config import (
    LinkRemark,
    Section,
    changed_link_row,
    diff_sections,
    effective_link,
    new_link_row,
    parse_section,
    reconcile,
    removed_link_row,
    select_sections,
    settings_link_row,
    with_values,
    without_values,
)
from twinshore.replication.links import (
    check_naming,
    check_reverse_link,
    link_audit_rows,
    load_links,
    own_twin_topics,
    parse_links,
    parse_valid_link,
)
from twinshore.state.core.values import AuditRow, ControlRow, LinkPresence, LinkRow
from twinshore.state.opening import open_if_exists
from twinshore.state.store import Store

log = logging.getLogger(__name__)

TRIES_MAX = 5
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class AddLink:
    """Add a link. `values` are texts such as `topics=["orders.*"]`."""

    link: str
    values: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChangeLink:
    """Values of `unset` get their defaults; `as_settings`: all as in the settings."""

    link: str
    values: Sequence[str] = ()
    unset: Sequence[str] = ()
    as_settings: bool = False


@dataclass(frozen=True, slots=True)
class ReverseLink:
    link: str


@dataclass(frozen=True, slots=True)
class RemoveLink:
    """Stop replicating the link. Written records stay."""

    link: str


LinkRequest = AddLink | ChangeLink | ReverseLink | RemoveLink


@dataclass(frozen=True, slots=True)
class LinkStep:
    link: str
    what: str
    values: str = ""

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {'is' if done else 'would be'} {self.what}{f': {self.values}' if self.values else ''}"


@dataclass(frozen=True, slots=True)
class LinkChange(Plan[LinkStep]):
    """`rows` replace those of `revision`; `overrides` move along when a link is `turned` into the other."""

    asked: LinkRequest = AddLink("")
    rows: tuple[LinkRow, ...] = ()
    revision: int = 0
    overrides: tuple[ControlRow, ...] = ()
    turned: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Now:
    """`rows` by name, with what is new in the settings; `sections`: of present links."""

    revision: int
    rows: Mapping[str, LinkRow]
    sections: Mapping[str, Section]

    def section(self, link: str) -> Section:
        if link not in self.sections:
            raise ConfigError("replication.no-such-link", link=link, near=did_you_mean(link, self.sections))
        return self.sections[link]


def plan(asked: LinkRequest, settings: Settings, store: Store, *, by: str = "") -> LinkChange:
    """Plans the change; ConfigError when the link would be invalid, or when links could loop or collide."""
    now = _now(settings, store)
    asked = replace(asked, link=parse_link_name(asked.link))
    match asked:
        case AddLink():
            found = _add(asked, now, by)
        case ChangeLink():
            found = _set(asked, now, settings, by)
        case ReverseLink():
            found = _turn(asked.link, now, store, by)
        case RemoveLink():
            found = _remove(asked.link, now, settings, store, by)
    if found.steps:
        _check(found, now, settings, store)
    if isinstance(asked, (AddLink, ChangeLink)) and found.rows:
        about = (*_of_broadcast(found.rows, now), *_of_queue(found.rows, settings, store))
        found = replace(found, remarks=(*found.remarks, *about))
        found = _unless_it_goes_back(asked, found, now, settings, store)
    return replace(found, asked=asked, revision=now.revision)


def act(planned: LinkChange, settings: Settings, store: Store, *, by: str) -> Iterator[LinkStep]:
    """Executes all in one transaction. ConfigError when another plan would result by now; RefusedError when the change
    is refused by now.
    """
    for _ in range(TRIES_MAX):
        found = plan(planned.asked, settings, store, by=by)
        if found.refusal and not planned.refusal:
            raise found.refusal
        if found.steps != planned.steps:
            raise ConfigError("replication.links-changed")
        if not found.steps:
            return
        audit, now_ms = link_audit_rows(store.link_rows.read()[1], found.rows), wall_ms()
        for row in found.overrides:
            audit.append(AuditRow(now_ms, row.link, "control", row.name, "", row.value, f"by {by}", by))
        if store.link_rows.change(found.rows, seen=found.revision, told=audit, turned=found.turned):
            yield from found.steps
            return
    raise ConfigError("replication.links-changing")


def _now(settings: Settings, store: Store) -> _Now:
    revision, rows = store.link_rows.read()
    sown = reconcile(settings.link_sections, rows, wall_ms(), "the settings")
    known = {row.link: row for row in (*rows, *sown.rows)}
    return _Now(revision, known, sown.links)


def _add(add_link: AddLink, now: _Now, by: str) -> LinkChange:
    if add_link.link in now.sections:
        raise ConfigError("replication.link-exists", link=add_link.link)
    section = with_values({}, add_link.values)
    step = LinkStep(add_link.link, "added", _in_words(section))
    return LinkChange((step,), rows=(new_link_row(add_link.link, section, wall_ms(), by),))


def _set(change_link: ChangeLink, now: _Now, settings: Settings, by: str) -> LinkChange:
    section, row = now.section(change_link.link), now.rows[change_link.link]
    if change_link.as_settings:
        if change_link.values or change_link.unset or change_link.link not in settings.link_sections:
            raise ConfigError("replication.as-settings-alone")
        wanted = dict(settings.link_sections[change_link.link])
        after = settings_link_row(change_link.link, wanted, wall_ms(), by)
    else:
        wanted = with_values(without_values(section, change_link.unset), change_link.values)
        after = changed_link_row(row, wanted, wall_ms(), by)
    parts = [f"{name} from {one} to {other}" for name, one, other in diff_sections(section, wanted)]
    if not parts:
        return LinkChange(shown=(f"{change_link.link}: nothing to change",))
    return LinkChange((LinkStep(change_link.link, "changed", ", ".join(parts)),), rows=(after,))


def _turn(link: str, now: _Now, store: Store, by: str) -> LinkChange:
    section = now.section(link)
    source, _, target = link.partition("->")
    other = f"{target}->{source}"
    if other in now.sections:
        return LinkChange(refusal=RefusedError("replication.reverse-link-exists", link=link, reverse=other))
    for name, cluster in ((link, target), (other, source)):
        if topics := own_twin_topics(name, store):
            twins = join_names(topics, NAMED_MAX)
            place = {"link": link, "written_by": name, "cluster": cluster}
            return LinkChange(refusal=RefusedError("replication.link-has-twins", **place, twins=twins))
    overrides = tuple(replace(row, link=other) for row in store.controls.of(link))
    rows = (removed_link_row(now.rows[link], wall_ms(), by), new_link_row(other, section, wall_ms(), by))
    kept = f", with its overrides ({join_names([row.name for row in overrides], NAMED_MAX)})" if overrides else ""
    step = LinkStep(link, f"turned into {other}{kept}")
    return LinkChange((step,), rows=rows, overrides=overrides, turned=(link, other))


def _remove(link: str, now: _Now, settings: Settings, store: Store, by: str) -> LinkChange:
    if link not in now.rows or now.rows[link].state is LinkPresence.REMOVED:
        now.section(link)
    target = link.partition("->")[2]
    topics = sorted({row.topic for row in store.twins.of(link)})
    twins = f"{count_phrase(len(topics), 'twin')} ({join_names(topics, NAMED_MAX)})" if topics else "no twin"
    shown = (
        f"{link}: what it wrote stays on {target} unchanged: {twins}; nothing is deleted on any cluster",
        f"{link}: records on {target}, progress, open incidents and overrides stay as well: `twinshore link add`"
        " continues from there",
    )
    named = link in settings.link_sections
    remarks = (f"{link}: the settings still name it; it stays removed",) if named else ()
    row = removed_link_row(now.rows[link], wall_ms(), by)
    return LinkChange((LinkStep(link, "removed"),), shown, remarks, rows=(row,))


def _unless_it_goes_back(
    asked: AddLink | ChangeLink, found: LinkChange, now: _Now, settings: Settings, store: Store
) -> LinkChange:
    """Refuses a removed link that is added in reverse as `_turn` does."""
    (link,) = parse_links({asked.link: parse_section(found.rows[0])}, settings)
    before = parse_valid_link({asked.link: now.sections[asked.link]}, settings) if asked.link in now.sections else None
    check = check_reverse_link(link, before, now.sections.keys(), now.rows.values(), store)
    if check.in_the_way:
        twins = "; ".join(check.in_the_way)
        return LinkChange(refusal=RefusedError("replication.twins-carried-back", link=asked.link, twins=twins))
    if not check.at_home:
        return found
    about = f"{link.name}: does not replicate what is at home on {link.target}: {join_names(check.at_home, NAMED_MAX)}"
    return replace(found, shown=(*found.shown, about))


def _check(found: LinkChange, now: _Now, settings: Settings, store: Store) -> None:
    """Checks against every link of the store, also those of other settings."""
    rows = {**now.rows, **{row.link: row for row in found.rows}}
    for row in found.rows:
        if row.state is LinkPresence.KEPT:
            parse_links({row.link: parse_section(row)}, settings)  # raises all that is wrong with the section
    changed = {row.link for row in found.rows}
    sections = select_sections(rows.values(), rows.keys())
    # With these settings no process replicates an invalid link.
    parsed = [parse_valid_link({name: sections[name]}, settings) for name in sorted(sections, key=changed.__contains__)]
    links = [link for link in parsed if link]
    for link, sentence in find_mixed_broadcasts(links):
        if link.name in changed:
            raise ConfigError("replication.mixed-broadcast", link=link.name, cause=sentence)
    check_naming(now.rows.values(), found.rows, store)
    check_links(links, changed)
    effective = []
    for link in links:
        moved = found.turned and link.name in changed
        overrides = found.overrides if moved else store.controls.of(link.name)
        effective.append(effective_link(link, overrides).link)
    check_links(effective, changed)


def _of_broadcast(rows: Iterable[LinkRow], now: _Now) -> Iterator[str]:
    """Notes on a broadcast's link: a name that no other link has, and a queue policy unlike the others'."""
    for row in rows:
        section = parse_section(row)
        name = section.get("broadcast")
        others = {link: one for link, one in now.sections.items() if link != row.link and one.get("broadcast") == name}
        known = {str(one["broadcast"]) for one in now.sections.values() if one.get("broadcast")} - {str(name)}
        if name and not others:
            yield f"no other link is of broadcast {name!r}: it reads by itself{did_you_mean(str(name), known)}"
        drops = [link for link, one in others.items() if "fresh" in str(one.get("queue"))] if name else []
        if drops and "queue" not in section:
            yield f"its queue keeps all, while that of {join_names(sorted(drops), NAMED_MAX)} is fresh: `queue` says so"


def _of_queue(rows: Iterable[LinkRow], settings: Settings, store: Store) -> Iterator[str]:
    """Notes on existing twins of a link whose queue becomes fresh."""
    for link in parse_links({row.link: parse_section(row) for row in rows}, settings):
        exact = set(own_twin_topics(link.name, store)) - {topic for topic, _ in store.offset_runs.reached(link.name)}
        if link.queue.fresh and exact:
            yield (
                f"its twins of {join_names(sorted(exact), NAMED_MAX)} are exact, and are stopped from then on: stop "
                f"the mirror, type `twinshore mirror forget`, and delete them on {link.target}; new ones are mapped"
            )


def _in_words(section: Section) -> str:
    return ", ".join(f"{name} {value}" for name, _, value in diff_sections({}, section)) or "all topics"


REMOVED_SHOWN_MS = 24 * 3_600_000  # so long a removed link without twins is listed


def with_stored_links(settings: Settings) -> Settings:
    """Returns settings with the store's links. When the store does not answer, logs that and keeps the settings' links.
    StoreVersionError when the tables are of another version.
    """
    try:
        store = open_if_exists(settings)
        if store is None:
            return settings
        with store:
            return settings.with_links(load_links(settings, store).links)
    except StoreVersionError:
        raise
    except StoreError as error:
        log.warning(f"links are as the settings have them: {error.message}")
        return settings


def list_link_remarks(settings: Settings, store: Store, *, now_ms: int) -> list[LinkRemark]:
    """Returns differences of settings and store, and removed links: for a day, or as long as they have twins."""
    found = load_links(settings, store)
    gone = {row.link: row for row in found.removed}
    others = {(row.link, row.revision) for row in found.rows if row.state is LinkPresence.KEPT}
    remarks = [remark for remark in found.differences if remark.link not in gone]
    for row in gone.values():
        twins, named = len({twin.topic for twin in store.twins.of(row.link)}), row.link in settings.link_sections
        if twins or named or now_ms - row.changed_ms < REMOVED_SHOWN_MS:
            source, _, target = row.link.partition("->")
            turned = (other := f"{target}->{source}", row.revision) in others
            gone_by = f"was {f'turned into {other}' if turned else 'removed'} by {row.changed_by}"
            stays = f"; what it wrote stays on {target}: {count_phrase(twins, 'twin')}" if twins else ""
            still = "; the settings still name it" if named else ""
            remarks.append(LinkRemark(row.link, gone_by + stays + still))
    return sorted(remarks, key=lambda remark: remark.link)
