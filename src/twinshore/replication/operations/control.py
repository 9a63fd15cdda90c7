"""Changes operators' overrides of a running link: pauses, throttles, priorities, filters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinshore.config.errors import ConfigError, TwinshoreError
from twinshore.config.frozen import LINK_CLIENT_ID
from twinshore.config.model import Link, Plan, QueueRules
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
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
    EffectiveLink,
    LinkRemark,
    Override,
    as_json,
    effective_link,
    explain_no_effect,
    matches_replicated_topic,
)
from twinshore.replication.links import effective_links, links_with_candidate, load_links
from twinshore.state.core.values import AuditRow, ControlRow
from twinshore.state.store import Store

TRIES_MAX = 5
ASK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """Replicate nothing of the link, or of topics that match one of these patterns, until resumed."""

    link: str
    topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """End the link's own pause, or that of these topics; `every`: both."""

    link: str
    topics: Sequence[str] = ()
    every: bool = False


@dataclass(frozen=True, slots=True)
class ThrottleRequest:
    """Limit the link, or each topic that matches `topic`; 0: no limit."""

    link: str
    bytes_s: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class PriorityRequest:
    """Replicate matching topics before those of a lower weight; 0: the default weight."""

    link: str
    topic: str
    weight: int


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """Replace the link's filters; empty ones stay."""

    link: str
    topics: Sequence[str] = ()
    exclude: Sequence[str] = ()
    groups: Sequence[str] = ()
    exclude_groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Drop the overrides of these values, or all: the settings apply again."""

    link: str
    names: Sequence[str] = ()


ControlRequest = PauseRequest | ResumeRequest | ThrottleRequest | PriorityRequest | FilterRequest | ResetRequest


@dataclass(frozen=True, slots=True)
class ValueStep:
    """A changed value; before and after as JSON."""

    link: str
    name: str
    before: str
    after: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {self.name} {'changes' if done else 'would change'} from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class ControlChange(Plan[ValueStep]):
    """`seen`: the version that was planned on."""

    asked: ControlRequest = ResetRequest("")
    wish: Override | None = None
    seen: int = 0


def plan(asked: ControlRequest, settings: Settings, store: Store) -> ControlChange:
    """Plans the change; ConfigError when it is invalid, or when filters could loop or collide."""
    link = settings.link(asked.link)
    if isinstance(asked, ResumeRequest) and asked.every and asked.topics:
        raise ConfigError("replication.one-of-two", one="--all", other="--topic")
    seen, standing = store.controls.version(link.name), store.controls.of(link.name)
    now = effective_link(link, standing)
    wish = link_config.check_override(build_override(asked, now), link.name)
    steps = tuple(
        ValueStep(link.name, *found) for found in link_config.diff_override(now, wish, effective_link(link, ()))
    )
    names = {step.name for step in steps}
    rows = _rows(link.name, wish, names, 0, "")
    kept = [row for row in standing if row.name not in rows]
    then = effective_link(link, [*kept, *(row for row in rows.values() if row)])
    if names & set(FILTER_NAMES):
        # Only filters can conflict: a link is paused even if they do.
        check_links(links_with_candidate(settings.links, store, then))
    shown = () if steps else (f"{link.name}: nothing to change",)
    return ControlChange(steps, shown, asked=asked, wish=wish, seen=seen)


def act(planned: ControlChange, settings: Settings, store: Store, *, by: str) -> Iterator[ValueStep]:
    """Executes all in one transaction. Plans again when another change came first; ConfigError after `TRIES_MAX`."""
    for _ in range(TRIES_MAX):
        link, now_ms = planned.asked.link, wall_ms()
        rows = _rows(link, planned.wish or {}, {step.name for step in planned.steps}, now_ms, by)
        told = [
            AuditRow(now_ms, link, "control", value_step.name, value_step.before, value_step.after, f"by {by}", by)
            for value_step in planned.steps
        ]
        if not planned.steps or store.controls.change(link, rows, seen=planned.seen, told=told):
            yield from planned.steps
            return
        planned = plan(planned.asked, settings, store)
    raise ConfigError("replication.links-changing")


def remarks(asked: ControlRequest, settings: Settings, store: Store, *, done: bool) -> list[str]:
    """Returns patterns that match no topic of the source now, and pauses that remain."""
    now = effective_link(settings.link(asked.link), store.controls.of(asked.link)).link
    return [*_unmet(asked, settings, now, store), *(_still_paused(asked, now) if done else [])]


def build_override(asked: ControlRequest, now: EffectiveLink) -> Override:
    match asked:
        case PauseRequest():
            return link_config.pause_override(now, asked.topics)
        case ResumeRequest():
            return link_config.resume_override(now, asked.topics, every=asked.every)
        case ThrottleRequest():
            return link_config.throttle_override(now, asked.bytes_s, asked.topic)
        case PriorityRequest():
            return link_config.priority_override(now, asked.topic, asked.weight)
        case FilterRequest():
            return link_config.filters_override(asked.topics, asked.exclude, asked.groups, asked.exclude_groups)
        case ResetRequest():
            return link_config.reset_override(asked.names)


def _named(asked: ControlRequest) -> Sequence[str]:
    match asked:
        case PauseRequest():
            return asked.topics
        case ThrottleRequest():
            return [asked.topic] if asked.topic and asked.bytes_s else []
        case PriorityRequest():
            return [asked.topic] if asked.weight else []
        case _:
            return []


def _unmet(asked: ControlRequest, settings: Settings, now: Link, store: Store) -> list[str]:
    twins = {row.topic for row in store.twins.of(now.name)}
    unmet = [pattern for pattern in _named(asked) if not matches_replicated_topic(pattern, now, twins)]
    topics = _source_topics(settings, now) if unmet else None
    said = [explain_no_effect(pattern, now, topics) for pattern in unmet]
    return [f"{now.name}: {one}" for one in said if one]


def _still_paused(asked: ControlRequest, now: Link) -> list[str]:
    if not isinstance(asked, ResumeRequest):
        return []
    return [
        f"{asked.link}: still paused: topics {paused!r}; end it with --topic {paused!r}, or --all"
        for paused in now.control.paused_topics
    ]


def _source_topics(settings: Settings, link: Link) -> set[str] | None:
    """Returns the source's topics; None: no answer."""
    try:
        source = KafkaCluster(
            settings.cluster(link.source), client_id=LINK_CLIENT_ID, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S
        )
        try:
            return set(source.metadata(None, refresh=True).topics)
        finally:
            source.close()
    except TwinshoreError:
        return None


def _rows(link: str, wish: Override, names: set[str], now_ms: int, by: str) -> dict[str, ControlRow | None]:
    return {
        name: None if value is None else ControlRow(link, name, as_json(value), now_ms, by)
        for name, value in wish.items()
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
        return [_held(effective_link(one, ()), ()) for one in settings.chosen(names)]
    found = load_links(settings, store)
    settings = settings.with_links(found.links)
    holds = effective_links(settings.links, store)
    chosen, told = settings.chosen(names), {}
    for one in chosen:
        rows = store.link_states.of(one.name, SHARED_FETCH_KIND) if holds[one.name].link.broadcast else ()
        told[one.name] = parse_shared_fetch(rows, wall_ms(), status_ttl_s(settings.mirror.progress_s))
    return [_held(holds[one.name], found.differences, told[one.name]) for one in chosen]


def _held(
    now: EffectiveLink, differences: Sequence[LinkRemark], reading: SharedFetchStatus | None = None
) -> LinkOverview:
    link = now.link
    values = tuple(EffectiveValue(name, as_json(now.value(name)), origin) for name, origin in now.origins)
    differs = tuple(remark.sentence for remark in differences if remark.link == link.name)
    return LinkOverview(
        link.name, link.naming.value, link.chain, values, now.troubles, differs, link.broadcast, reading, link.queue
    )
