"""Forgets a topic's twin, so that a new one may begin. No mirror may run the link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from twinshore.config.errors import ConfigError
from twinshore.config.model import Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.sentences import Tell
from twinshore.config.settings import Settings, parse_link_name
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.incident_kinds import KNOWN_TOPIC_KINDS
from twinshore.replication.recovery import hold_mirror_lease, refuse_while_mirror_runs
from twinshore.replication.sync.core.decisions import FORGOTTEN_OUTCOME
from twinshore.replication.sync.core.lifecycle import rows_to_forget
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class ForgetTopicStep:
    """`partitions`: 0: the topic is in the incident log alone."""

    link: str
    topic: str
    partitions: int

    def sentence(self, *, done: bool) -> str:
        forgotten = "forgotten" if done else "would be forgotten"
        return f"{self.link}: {self.partitions} partitions of {self.topic} {forgotten}"


def plan(topic: str, links: Sequence[str], settings: Settings, store: Store) -> Plan[ForgetTopicStep]:
    """Plans the change; without `links`, for the only link that knows the topic. ConfigError when no link knows it, or
    several do.
    """
    known = {name: _topics(store, name) for name in _links(links, settings, store)}
    knowing = [name for name in known if topic in known[name]]
    if not knowing:
        known_topics = sorted(set().union(*known.values()))
        raise ConfigError("replication.topic-unknown", topic=topic, near=did_you_mean(topic, known_topics))
    if len(knowing) > 1 and not links:
        raise ConfigError("replication.topic-on-several-links", topic=topic, links=", ".join(knowing))
    return Plan(tuple(ForgetTopicStep(name, topic, known[name][topic]) for name in knowing))


def act(
    plan: Plan[ForgetTopicStep], settings: Settings, store: Store, *, by: str, tell: Tell
) -> Iterator[ForgetTopicStep]:
    """Executes the steps. RefusedError, before any change, while a mirror runs one of the links; none can begin until
    this ends. `tell` gets what is waited for.
    """
    seen = {step.link: refuse_while_mirror_runs(store, step.link, settings.mirror.lease_s, tell) for step in plan.steps}
    with ExitStack() as held:
        for link, lease in seen.items():
            held.enter_context(hold_mirror_lease(store, link, lease, by))
        for step in plan.steps:
            _forget(store, step.link, step.topic, by)
    yield from plan.steps


def _forget(store: Store, link: str, topic: str, by: str) -> None:
    now_ms = wall_ms()
    told = AuditRow(now_ms, link, "topic", topic, "", FORGOTTEN_OUTCOME, f"by {by}", by, topic)
    store.forget_topic(link, topic, rows_to_forget(link, topic), [told])
    # Incidents of the old twin do not stop the new one.
    for row in store.incidents.rows(link, open_only=True):
        incident = row.incident
        stops = incident.policy.stops if incident.partition >= 0 else incident.kind in KNOWN_TOPIC_KINDS
        if incident.topic == topic and stops:
            store.incidents.close(row.id, now_ms=now_ms)


def _links(names: Sequence[str], settings: Settings, store: Store) -> list[str]:
    """Returns the chosen links, also ones that only the store knows."""
    parsed = [parse_link_name(name) for name in names]
    gone = [name for name in parsed if all(link.name != name for link in settings.links) and store.twins.count(name)]
    chosen = [name for name in parsed if name not in gone]
    return gone + [link.name for link in (settings.chosen(chosen) if chosen or not names else [])]


def _topics(store: Store, link: str) -> dict[str, int]:
    """Returns the number of known partitions of each topic; 0: only an incident of the whole topic."""
    incidents = [row.incident for row in store.incidents.rows(link, open_only=True)]
    known = {incident.topic: 0 for incident in incidents if incident.partition < 0 and incident.topic}
    for row in store.twins.of(link):
        known[row.topic] = known.get(row.topic, 0) + 1
    return known
