"""Lists topic homes, and sets the home of a topic that has none. Moving the home of a replicated topic is a switch, and
refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link, Plan
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core import ownership
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import HomeEvidence
from twinshore.replication.links import effective_links
from twinshore.replication.ownership_sync import find_written_topics
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.state.core.values import AuditRow, HomeRow
from twinshore.state.store import Store

ASK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TopicHomeEntry:
    """A topic that both links of a pair admit. `home`: empty: undecided; `sentence` says why; `term`: 0: no row in the
    store.
    """

    pair: str
    topic: str
    home: str
    term: int
    sentence: str


@dataclass(frozen=True, slots=True)
class HomeOverview:
    """`away`: pairs whose topics without a home are unknown now, with reasons."""

    topics: tuple[TopicHomeEntry, ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> dict[str, Any]:
        away = [{"pair": pair, "error": why} for pair, why in self.away]
        return {"topics": [asdict(entry) for entry in self.topics], "unreachable": away}


@dataclass(frozen=True, slots=True)
class SetHomeStep:
    """`seen`: the term that was planned on, 0: none."""

    pair: str
    topic: str
    before: str
    home: str
    seen: int
    links: tuple[str, str]

    def sentence(self, *, done: bool) -> str:
        was = f", before {self.before}" if self.before else ""
        return f"{self.pair}: topic {self.topic} {'is' if done else 'would be'} at home on {self.home}{was}"


def list_link_pairs(settings: Settings, store: Store | None, links: Sequence[str] = ()) -> list[tuple[Link, Link]]:
    """Returns each pair with one of these links, as in effect; all if none is named."""
    now = [one.link for one in effective_links(settings.links, store).values()] if store else list(settings.links)
    chosen = {link.name for link in settings.chosen(links)}
    found: dict[str, tuple[Link, Link]] = {}
    for link in now:
        back = ownership.find_reverse_link(link, now)
        if back is not None and chosen & {link.name, back.name}:
            found.setdefault(ownership.pair_name(link), (link, back))
    return list(found.values())


def list_homes(links: Sequence[str], settings: Settings, store: Store) -> HomeOverview:
    """Returns all homes of pairs. Asks both clusters about topics without a row."""
    topics: list[TopicHomeEntry] = []
    away: list[tuple[str, str]] = []
    for link, back in list_link_pairs(settings, store, links):
        pair = ownership.pair_name(link)
        rows = store.homes.of(pair)
        topics += [TopicHomeEntry(pair, row.topic, row.home, row.term, f"set by {row.set_by}") for row in rows.values()]
        try:
            topics += _without_row(link, back, settings, store, rows)
        except KafkaError as error:
            away.append((pair, str(error)))
    return HomeOverview(tuple(sorted(topics, key=lambda entry: (entry.pair, entry.topic))), tuple(away))


def plan(topic: str, home: str, links: Sequence[str], settings: Settings, store: Store) -> Plan[SetHomeStep]:
    """Plans to make cluster `home` the topic's home. `links`: one of the pair, when the cluster is in several.
    RefusedError when a link replicates the topic already, or when records contradict the home.
    """
    link, back = _pair_with(home, links, settings, store)
    pair, names = ownership.pair_name(link), (link.name, back.name)
    if not (admits(link, topic) and ownership.is_shared_topic(topic, back)):
        raise ConfigError("replication.topic-not-in-pair", topic=topic, link=link.name, back=back.name)
    row = store.homes.of(pair).get(topic)
    if row is not None and row.home == home:
        return Plan(shown=(f"{pair}: topic {topic} is at home on {row.home} already",))
    for name in names:
        if any(twin.topic == topic for twin in store.twins.active(name)):
            raise RefusedError("replication.home-needs-switch", topic=topic, link=name, home=home)
    evidence = _evidence(link, [topic], settings, store)[topic]
    if evidence.target and evidence.source is False:
        raise RefusedError("replication.home-elsewhere", topic=topic, cluster=link.target)
    step = SetHomeStep(pair, topic, row.home if row else "", home, row.term if row else 0, names)
    return Plan((step,), tuple(_remarks(topic, link, evidence)))


def act(plan: Plan[SetHomeStep], store: Store, *, by: str) -> Iterator[SetHomeStep]:
    """Executes the step. RefusedError when another home was set since, or a link has begun to replicate the topic."""
    for step in plan.steps:
        now_ms = wall_ms()
        outcome, topic = f"by {by}", step.topic
        rows = [
            AuditRow(now_ms, link, "home", topic, step.before, step.home, outcome, by, topic) for link in step.links
        ]
        row = HomeRow(step.pair, step.topic, step.home, step.seen + 1, now_ms, by)
        if store.homes.move(row, seen=step.seen, links=step.links, rows=rows) is None:
            raise RefusedError("replication.home-changed", topic=step.topic)
        yield step


def _pair_with(home: str, links: Sequence[str], settings: Settings, store: Store) -> tuple[Link, Link]:
    """The link from the home, and the reverse link."""
    settings.cluster(home)  # ConfigError: unknown cluster
    pairs = list_link_pairs(settings, store, links)
    found = [(link, back) for pair in pairs for link, back in (pair, pair[::-1]) if link.source == home]
    if not found:
        raise ConfigError("replication.no-pair", home=home)
    if len(found) > 1:
        several = ", ".join(ownership.pair_name(link) for link, _ in found)
        raise ConfigError("replication.several-pairs", home=home, pairs=several)
    return found[0]


def _without_row(
    link: Link, back: Link, settings: Settings, store: Store, rows: dict[str, HomeRow]
) -> Iterator[TopicHomeEntry]:
    with LinkClients(link, settings, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S) as clients:
        names = sorted({name for cluster in (clients.source, clients.target) for name in _names(cluster)})
    shared = [
        name for name in names if name not in rows and admits(link, name) and ownership.is_shared_topic(name, back)
    ]
    for name, evidence in _evidence(link, shared, settings, store).items():
        first = ownership.decide_first_home(link, evidence)
        why = f"once a mirror runs: {first.why.value}" if first.home else ownership.explain_no_home(link, name, first)
        yield TopicHomeEntry(ownership.pair_name(link), name, first.home, 0, why)


def _names(cluster: KafkaCluster) -> list[str]:
    topics = cluster.metadata(None, refresh=True).topics
    return [name for name, topic in topics.items() if not topic.error and not topic.internal]


def _evidence(link: Link, topics: Sequence[str], settings: Settings, store: Store) -> dict[str, HomeEvidence]:
    ours, theirs = (
        {row.topic for row in store.twins.active(name)} for name in (link.name, f"{link.target}->{link.source}")
    )
    with LinkClients(link, settings, patience_s=ASK_TIMEOUT_S, call_s=ASK_TIMEOUT_S) as clients:
        verify_cluster_ids(link, store, clients.source, clients.target)
        source, target = (find_written_topics(cluster, topics) for cluster in (clients.source, clients.target))
    return {name: HomeEvidence(source[name], target[name], name in ours, name in theirs) for name in topics}


def _remarks(topic: str, link: Link, evidence: HomeEvidence) -> Iterator[str]:
    if evidence.target:
        yield (
            f"{link.target} holds records of {topic}, so no exact twin can be made: {link.name} refuses the topic until"
            f' it is deleted there, or until the link replicates it behind them (mode = "mapped")'
        )
    if evidence.source is None or evidence.target is None:
        yield f"whether both clusters hold records of {topic} is unknown now"
