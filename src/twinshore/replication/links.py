"""The links as they are now, from settings, the store, and operators' overrides.

`LinkRegistry` follows them for one process, which sees a change within a second.

Twins of a removed reverse link, which a new link would replicate back, are in a link's way: no mirror replicates them
(`topic_lineage`), so adding the link says so at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import overload

from twinshore.config.errors import ConfigError, StoreError
from twinshore.config.model import Link, TwinNaming, is_heartbeats_topic
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.schema import Complaints, RawSection
from twinshore.config.sections.links import read_links
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core import ownership
from twinshore.replication.core.filters import admits, check_links, find_conflicts
from twinshore.replication.core.link_config import (
    EffectiveLink,
    LinkRemark,
    ReconciledLinks,
    Section,
    effective_link,
    parse_section,
    reconcile,
    resolve_filter_conflicts,
    select_sections,
)
from twinshore.state.core.values import AuditRow, LinkPresence, LinkRow, twin_naming_of
from twinshore.state.log import LINKS_SUBJECT
from twinshore.state.store import Store

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ReverseLinkCheck:
    """`in_the_way`: sentences on twins that the link could not replicate. `at_home`: topics that the link leaves alone,
    since their home is the target.
    """

    in_the_way: tuple[str, ...] = ()
    at_home: tuple[str, ...] = ()


def check_reverse_link(
    link: Link, before: Link | None, carried: Collection[str], rows: Iterable[LinkRow], store: Store
) -> ReverseLinkCheck:
    """`before`: the link as it was, if any. `carried`: present links; `rows`: also removed ones."""
    known = {row.link: row for row in rows}
    back = f"{link.target}->{link.source}"
    home = store.homes.of(ownership.pair_name(link)) if link.naming is TwinNaming.SAME else {}
    away, came = ownership.homes_elsewhere(link, home), ownership.topics_moved_here(link, home)
    ids = _ids(store)
    in_the_way, at_home = list[str](), set[str]()
    # In a pair, homes decide which link replicates a topic, and the twins of both are known.
    for name in sorted(known.keys() - set(carried)):
        twins = _twins(known[name], store) if name == back or _goes_back(name, link, ids, store) else set()
        fresh = {twin for twin in twins if admits(link, twin) and not (before and admits(before, twin))}
        at_home |= fresh & away.keys()
        if found := sorted(fresh - away.keys() - came):
            in_the_way.append(
                f"{name}, which is there no more, has twins on {link.source} ({join_names(found, NAMED_MAX)})"
            )
    return ReverseLinkCheck(tuple(in_the_way), tuple(sorted(at_home)))


def _goes_back(name: str, link: Link, ids: Mapping[str, set[str]], store: Store) -> bool:
    """Whether that link ran the other way between the same clusters, under any names."""
    identity = store.links.identity(name)
    return (
        identity is not None
        and identity.target_cluster_id in ids.get(link.source, ())
        and identity.source_cluster_id in ids.get(link.target, ())
    )


def _ids(store: Store) -> Mapping[str, set[str]]:
    """Known cluster ids by cluster name."""
    found: dict[str, set[str]] = {}
    for identity in store.links.identities():
        source, _, target = identity.link.partition("->")
        found.setdefault(source, set()).add(identity.source_cluster_id)
        found.setdefault(target, set()).add(identity.target_cluster_id)
    return found


def _twins(row: LinkRow, store: Store) -> set[str]:
    """The twins' names on the target. Without heartbeats, whose twins are named by source and never go back."""
    source, _, target = row.link.partition("->")
    link = Link(source, target, naming=TwinNaming(parse_section(row).get("naming", TwinNaming.SAME)))
    return {
        link.twin_of(twin_row.topic) for twin_row in store.twins.of(row.link) if not is_heartbeats_topic(twin_row.topic)
    }


log = logging.getLogger(__name__)


def read_operator_links(links: Iterable[Link], store: Store) -> dict[str, EffectiveLink]:
    """Returns each link with overrides, even conflicting ones."""
    links = tuple(links)
    said = store.controls.of_each([link.name for link in links])
    return {link.name: effective_link(link, said[link.name]) for link in links}


def effective_links(links: Sequence[Link], store: Store) -> dict[str, EffectiveLink]:
    """Returns each link as in effect."""
    links = tuple(links)  # a running mirror's links may change at any moment
    return resolve_filter_conflicts(links, read_operator_links(links, store))


def links_with_candidate(links: Iterable[Link], store: Store | None, now: EffectiveLink) -> list[Link]:
    """Returns all links with overrides, this one as `now`."""
    others = {link.name: link for link in links}
    if store:
        others = {name: effective.link for name, effective in read_operator_links(others.values(), store).items()}
    return [now.link if name == now.link.name else link for name, link in others.items()]


TRIES_MAX = 20
AUDIT_KIND = "link"  # the kind of audit rows written here


@dataclass(frozen=True, slots=True)
class LinkSet:
    """The links as of `revision`. `differences`: remarks on settings that differ from the store, and on links that
    cannot be with these settings or with other links. `rows`: all links that the store knows.
    """

    links: tuple[Link, ...]
    revision: int
    differences: tuple[LinkRemark, ...] = ()
    rows: tuple[LinkRow, ...] = ()

    @property
    def removed(self) -> tuple[LinkRow, ...]:
        return tuple(row for row in self.rows if row.state is LinkPresence.REMOVED)


def load_links(settings: Settings, store: Store) -> LinkSet:
    """Returns the links; new settings count, and are not written."""
    revision, rows = store.link_rows.read()
    sown = reconcile(settings.link_sections, rows, 0, "")
    return _together(_known(settings, revision, rows, sown.links, sown.differences), sown)


def load_all_links(settings: Settings, store: Store) -> tuple[Link, ...]:
    """As `load_links`, with links from other settings, for a caller that must know all twins."""
    revision, rows = store.link_rows.read()
    return _of_all(settings, revision, rows, reconcile(settings.link_sections, rows, 0, ""))


def _of_all(settings: Settings, revision: int, rows: Sequence[LinkRow], sown: ReconciledLinks) -> tuple[Link, ...]:
    kept = {row.link: parse_section(row) for row in rows if row.state is LinkPresence.KEPT}
    return _known(settings, revision, rows, {**kept, **sown.links}, ()).links


def follow_links(settings: Settings, store: Store) -> LinkSet:
    """As `load_links`, after `adopt_settings`: from then on the rows alone count."""
    revision, rows = store.link_rows.read()
    return _together(_known(settings, revision, rows, select_sections(rows, settings.link_sections.keys()), ()))


def adopt_settings(settings: Settings, store: Store, *, by: str) -> LinkSet:
    """Writes what is new in the settings to the store, and returns the links. `by`: the name in the audit. ConfigError,
    with nothing written, on a conflict.
    """
    for _ in range(TRIES_MAX):
        revision, rows = store.link_rows.read()
        sown = reconcile(settings.link_sections, rows, wall_ms(), by)
        found = _together(_known(settings, revision, rows, sown.links, sown.differences), sown)
        if sown.rows:
            every, changed = _of_all(settings, revision, rows, sown), {row.link for row in sown.rows}
            check_links(every, changed)
            check_links([effective.link for effective in read_operator_links(every, store).values()], changed)
        check_naming(rows, sown.rows, store)
        _check_ways_back(settings, rows, sown, store)
        if not sown.rows or store.link_rows.change(sown.rows, seen=revision, told=link_audit_rows(rows, sown.rows)):
            return replace(found, revision=revision + bool(sown.rows))
    raise ConfigError("replication.links-changing")


def _check_ways_back(settings: Settings, rows: Sequence[LinkRow], sown: ReconciledLinks, store: Store) -> None:
    """Refuses reversed links in settings, as `link reverse` and `link add` do."""
    before = {row.link: parse_section(row) for row in rows if row.state is LinkPresence.KEPT}
    for row in sown.rows:
        was = parse_valid_link({row.link: before[row.link]}, settings) if row.link in before else None
        link = parse_valid_link({row.link: parse_section(row)}, settings)
        if link and (twins := check_reverse_link(link, was, sown.links.keys(), rows, store).in_the_way):
            raise ConfigError("replication.twins-carried-back", link=link.name, twins="; ".join(twins))


def check_naming(before: Iterable[LinkRow], after: Iterable[LinkRow], store: Store) -> None:
    """Raises ConfigError when a link with twins changes their naming: the new name may be another topic's."""
    was = {row.link: twin_naming_of(row.section) for row in before}
    for row in after:
        name, naming = row.link, twin_naming_of(row.section)
        if naming != was.get(name, naming) and (topics := own_twin_topics(name, store)):
            twins = join_names(topics, NAMED_MAX)
            raise ConfigError("replication.naming-fixed", link=name, twins=twins, naming=str(was[name]))


def own_twin_topics(link: str, store: Store) -> list[str]:
    """Topics with twins, without heartbeats, whose twins are named by source and never go back."""
    return sorted({row.topic for row in store.twins.of(link) if not is_heartbeats_topic(row.topic)})


def link_audit_rows(before: Iterable[LinkRow], after: Iterable[LinkRow]) -> list[AuditRow]:
    was, rows = {row.link: _in_words(row) for row in before}, []
    for row in after:
        values = (row.link, was.get(row.link, ""), _in_words(row), f"by {row.changed_by}", row.changed_by)
        rows.append(AuditRow(row.changed_ms, row.link, AUDIT_KIND, *values))
    return rows


def parse_links(sections: Mapping[str, Section], settings: Settings) -> tuple[Link, ...]:
    """Parses sections; ConfigError when one is no valid link between the settings' clusters."""
    complaints = Complaints()
    links = read_links(RawSection(sections, "[links]", {"clusters": settings.clusters}), complaints)
    if complaints.lines:
        raise ConfigError("replication.bad-link", complaints="; ".join(complaints.lines))
    return links


def parse_valid_link(sections: Mapping[str, Section], settings: Settings) -> Link | None:
    """Returns the link; None if invalid with these settings, which `_known` reports."""
    with suppress(ConfigError):
        return parse_links(sections, settings)[0]
    return None


def _known(
    settings: Settings,
    revision: int,
    rows: Iterable[LinkRow],
    sections: Mapping[str, Section],
    differences: tuple[LinkRemark, ...],
) -> LinkSet:
    links: list[Link] = []
    strange: list[LinkRemark] = []
    for name, section in sections.items():
        try:
            links += parse_links({name: section}, settings)
        except ConfigError as error:
            strange.append(LinkRemark(name, f"is in the store, and cannot be with these settings: {error.message}"))
    return LinkSet(tuple(links), revision, (*differences, *strange), tuple(rows))


def _together(found: LinkSet, sown: ReconciledLinks | None = None) -> LinkSet:
    """Sets aside the link that changed last of those that conflict; the others run."""
    changed = {row.link: float(row.revision) for row in found.rows}
    changed |= {row.link: inf for row in sown.rows} if sown else {}
    links, about = found.links, list[LinkRemark]()
    while clashes := find_conflicts(links):
        last = max((name for conflict in clashes for name in conflict.links), key=lambda name: (changed[name], name))
        why = next(conflict.error().message for conflict in clashes if last in conflict.links)
        about.append(LinkRemark(last, f"is set aside, as it was changed last and cannot be with the others: {why}"))
        links = tuple(link for link in links if link.name != last)
    return replace(found, links=links, differences=(*found.differences, *about))


def _in_words(row: LinkRow) -> str:
    return row.section if row.state is LinkPresence.KEPT else "removed"


POLL_INTERVAL_S = 1.0


class LinkRegistry:
    """The links of a running process. `begins`: those at the start; `names`: run only these, or all if empty. One
    thread calls `turn`; any may read.
    """

    def __init__(self, settings: Settings, store: Store, begins: LinkSet, names: Sequence[str]) -> None:
        self._settings, self._store, self._names = settings, store, tuple(names)
        self._repeat_filter = RepeatFilter(log)
        self._revision = begins.revision
        self.now = begins

    def follow(self, stop: threading.Event) -> None:
        while not stop.wait(POLL_INTERVAL_S):
            self.turn()

    def turn(self) -> None:
        """Reads the rows only if the revision has changed."""
        try:
            if self._store.revisions.of(LINKS_SUBJECT) == self._revision:
                return
            found = follow_links(self._settings, self._store)
        except StoreError as error:
            self._repeat_filter.say(f"links stay as they were: {error.message}")
            return
        self._repeat_filter.well()
        for remark in found.differences:
            if remark not in self.now.differences:
                log.warning(str(remark), extra={"link": remark.link})
        self._revision, self.now = found.revision, found

    def wanted(self) -> Mapping[str, Link]:
        return {link.name: link for link in self.now.links if not self._names or link.name in self._names}

    def why_gone(self, link: str) -> str:
        by = [f"was removed by {row.changed_by}" for row in self.now.removed if row.link == link]
        about = [remark.sentence for remark in self.now.differences if remark.link == link]
        return f"the link {next(iter((*by, *about)), 'is not there any more')}"

    def settings_around(self, link: Link) -> Settings:
        """Returns settings with `LiveLinks`."""
        return self._settings.with_links(LiveLinks(self, link))


class LiveLinks(Sequence[Link]):
    """All links as they are at each access; the own link stays as it began."""

    def __init__(self, registry: LinkRegistry, own: Link) -> None:
        self._registry, self._own = registry, own

    def _now(self) -> tuple[Link, ...]:
        links = self._registry.now.links
        found = tuple(self._own if link.name == self._own.name else link for link in links)
        return found if self._own in found else (*found, self._own)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, at: int) -> Link: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Link]: ...

    def __getitem__(self, at: int | slice) -> Link | Sequence[Link]:
        return self._now()[at]
