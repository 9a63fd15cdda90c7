"""Changes operators' overrides of a running link: pauses, throttles, priorities, filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twinshore.config.errors import ConfigError, TwinshoreError
from twinshore.config.frozen import LINK_CLIENT_ID
from twinshore.config.model import Link, Plan, QueueRules
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core import link_config
from twinshore.replication.core.filters import check_links
from twinshore.replication.core.lag import (
    SHARED_FETCH_KIND,
    SharedFetchStatus,
    broadcast_values,
    describe_broadcast,
    parse_shared_fetch,
    status_ttl_s,
)
from twinshore.replication.core.link_config import (
    FILTER_NAMES,
    FROM_STORE,
    EffectiveLink,
    LinkRemark,
    Override,
    as_json,
    effective_link,
    explain_no_effect,
    matches_replicated_topic,
)
from twinshore.replication.links import effective_links, links_with_candidate, load_links
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import AuditRow, ControlRow
from twinshore.state.store import Store

TRIES_MAX = 5
ASK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """`override` decides from the link as in effect. `patterns`: topics that it names; `resumes`: it ends a pause."""

    link: str
    override: Callable[[EffectiveLink], Override]
    patterns: Sequence[str] = ()
    resumes: bool = False


def pause(link: str, topics: Sequence[str] = ()) -> ControlRequest:
    """Replicate nothing of the link, or of topics that match one of these patterns, until resumed."""
    return ControlRequest(link, lambda now: link_config.pause_override(now, topics), topics)


def resume(link: str, topics: Sequence[str] = (), *, every: bool = False) -> ControlRequest:
    """End the link's own pause, or that of these topics; `every`: both."""
    if every and topics:
        raise ConfigError("replication.one-of-two", one="--all", other="--topic")
    return ControlRequest(link, lambda now: link_config.resume_override(now, topics, every=every), resumes=True)


def throttle(link: str, bytes_s: int, topic: str | None = None) -> ControlRequest:
    """Limit the link, or each topic that matches `topic`; 0: no limit."""
    patterns = [topic] if topic and bytes_s else []
    return ControlRequest(link, lambda now: link_config.throttle_override(now, bytes_s, topic), patterns)


def prioritize(link: str, topic: str, weight: int) -> ControlRequest:
    """Replicate matching topics before those of a lower weight; 0: the default weight."""
    patterns = [topic] if weight else []
    return ControlRequest(link, lambda now: link_config.priority_override(now, topic, weight), patterns)


def set_filters(
    link: str,
    topics: Sequence[str] = (),
    exclude: Sequence[str] = (),
    groups: Sequence[str] = (),
    exclude_groups: Sequence[str] = (),
) -> ControlRequest:
    """Replace the link's filters; empty ones stay."""
    return ControlRequest(link, lambda _: link_config.filters_override(topics, exclude, groups, exclude_groups))


def reset(link: str, names: Sequence[str] = ()) -> ControlRequest:
    """Drop the overrides of these values, or all: the settings apply again."""
    return ControlRequest(link, lambda _: link_config.reset_override(names))


@dataclass(frozen=True, slots=True)
class ValueStep:
    """A changed value; before and after as JSON."""

    link: str
    name: str
    before: str
    after: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {self.name} {'changes' if done else 'would change'} from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange(Plan[ValueStep]):
    """`version`: of the link's overrides, on which this was planned."""

    request: ControlRequest
    override: Override
    version: int


def plan(request: ControlRequest, settings: Settings, store: Store) -> ControlChange:
    """Plans the change; ConfigError when it is invalid, or when filters could loop or collide."""
    link = settings.link(request.link)
    version, before = store.controls.version(link.name), store.controls.of(link.name)
    now = effective_link(link, before)
    override = link_config.check_override(request.override(now), link.name)
    changes = link_config.diff_override(now, override, effective_link(link, ()))
    steps = tuple(ValueStep(link.name, *change) for change in changes)
    names = {step.name for step in steps}
    if names & set(FILTER_NAMES):
        # Only filters can conflict: a link is paused even if they do.
        rows = _rows(link.name, override, names, 0, "")
        kept = [row for row in before if row.name not in rows]
        then = effective_link(link, [*kept, *(row for row in rows.values() if row)])
        check_links(links_with_candidate(settings.links, store, then))
    shown = () if steps else (f"{link.name}: nothing to change",)
    return ControlChange(steps, shown, request=request, override=override, version=version)


def act(planned: ControlChange, settings: Settings, store: Store, *, by: str) -> Iterator[ValueStep]:
    """Executes all in one transaction. Plans again when another change came first; ConfigError after `TRIES_MAX`."""
    for _ in range(TRIES_MAX):
        link, now_ms, steps = planned.request.link, wall_ms(), planned.steps
        rows = _rows(link, planned.override, {step.name for step in steps}, now_ms, by)
        told = [AuditRow(now_ms, link, "control", step.name, step.before, step.after, f"by {by}", by) for step in steps]
        if not steps or store.controls.change(link, rows, seen=planned.version, told=told):
            yield from steps
            return
        planned = plan(planned.request, settings, store)
    raise ConfigError("replication.links-changing")


def remarks(request: ControlRequest, settings: Settings, store: Store, *, done: bool) -> list[str]:
    """Returns patterns that match no topic of the source now, and pauses that remain."""
    link = effective_link(settings.link(request.link), store.controls.of(request.link)).link
    twins = {row.topic for row in store.twins.of(link.name)}
    unmet = [pattern for pattern in request.patterns if not matches_replicated_topic(pattern, link, twins)]
    topics = _source_topics(settings, link) if unmet else None
    sentences = [explain_no_effect(pattern, link, topics) for pattern in unmet]
    paused = link.control.paused_topics if done and request.resumes else ()
    sentences += [f"still paused: topics {topic!r}; end it with --topic {topic!r}, or --all" for topic in paused]
    return [f"{link.name}: {sentence}" for sentence in sentences if sentence]


def _source_topics(settings: Settings, link: Link) -> set[str] | None:
    """Returns the source's topics; None: no answer."""
    try:
        with LinkClients(
            link, settings, client_id=LINK_CLIENT_ID, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S
        ) as clients:
            return set(clients.source.metadata(None, refresh=True).topics)
    except TwinshoreError:
        return None


def _rows(link: str, override: Override, names: set[str], now_ms: int, by: str) -> dict[str, ControlRow | None]:
    return {
        name: None if value is None else ControlRow(link, name, as_json(value), now_ms, by)
        for name, value in override.items()
        if name in names
    }


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """`text`: the value as JSON; `origin`: settings or store."""

    name: str
    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class LinkOverview:
    """A link as in effect. `troubles`: overrides that do not count."""

    link: str
    naming: str
    chain: bool
    values: tuple[EffectiveValue, ...]
    troubles: tuple[str, ...]
    # Where the settings differ: the store's values apply.
    differs: tuple[str, ...] = ()
    # The link's broadcast, and how reads are shared by the mirror's last status, while that is fresh.
    broadcast: str = ""
    reading: SharedFetchStatus | None = None
    queue: QueueRules = field(default_factory=QueueRules)

    @property
    def says_of_broadcast(self) -> str:
        """Describes the broadcast; empty: none."""
        return describe_broadcast(self.broadcast, self.reading)

    def as_values(self) -> dict[str, Any]:
        about: dict[str, Any] = {"link": self.link, "naming": self.naming, "chain": self.chain}
        about["broadcast"] = broadcast_values(self.broadcast, self.reading)
        about["queue"] = self.queue.policy.value
        values = {value.name: {"value": json.loads(value.text), "from": value.origin} for value in self.values}
        return {**about, **values, "troubles": list(self.troubles), "differs": list(self.differs)}


def list_effective_links(names: Sequence[str], settings: Settings, store: Store | None) -> list[LinkOverview]:
    """Returns these links, or all; by settings alone when there is no store yet."""
    if store is None:
        return [_overview(effective_link(link, ()), ()) for link in settings.chosen(names)]
    found = load_links(settings, store)
    settings = settings.with_links(found.links)
    effective, overviews = effective_links(settings.links, store), []
    for link in settings.chosen(names):
        now = effective[link.name]
        if link.name not in settings.link_sections:
            now = replace(now, origins=tuple((name, FROM_STORE) for name, _ in now.origins))
        rows = store.link_states.of(link.name, SHARED_FETCH_KIND) if now.link.broadcast else ()
        reading = parse_shared_fetch(rows, wall_ms(), status_ttl_s(settings.mirror.progress_s))
        overviews.append(_overview(now, found.differences, reading))
    return overviews


def _overview(
    now: EffectiveLink, differences: Sequence[LinkRemark], reading: SharedFetchStatus | None = None
) -> LinkOverview:
    link = now.link
    values = tuple(EffectiveValue(name, as_json(now.value(name)), origin) for name, origin in now.origins)
    differs = tuple(remark.sentence for remark in differences if remark.link == link.name)
    return LinkOverview(
        link.name, link.naming.value, link.chain, values, now.troubles, differs, link.broadcast, reading, link.queue
    )
