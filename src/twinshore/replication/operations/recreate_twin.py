"""Approves that a topic begins again with a new twin, which deletes the old one; and reads the audit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.operations.twin_deletion import TwinPreview, preview_twin
from twinshore.replication.sync.core.lifecycle import RECREATE_APPROVAL, RECREATED_KIND, Presence, find_unreplicated
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Audit rows of these links, or all, by these filters; only rows older than id `before`."""

    links: Sequence[str] = ()
    kind: str = ""
    actor: str = ""
    topic: str = ""
    group: str = ""
    before: int = 0


def read_audit(request: AuditRequest, settings: Settings, store: Store, *, last: int) -> tuple[AuditRow, ...]:
    """Returns rows, newest first; for the next page, set `before` to the last id."""
    links = tuple(one.name for one in settings.chosen(request.links))
    wanted = AuditFilter(links, request.kind, request.actor, request.topic, request.group, request.before)
    return store.audit.page(wanted, limit=last)


def describe_change(row: AuditRow) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
    change = f"{row.before or '-'} -> {row.after or '-'}"
    return f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})"


@dataclass(frozen=True, slots=True)
class RecreateTwin:
    """`even_unreplicated` approves deleting records that the link did not replicate."""

    topic: str
    links: Sequence[str] = ()
    even_unreplicated: bool = False


@dataclass(frozen=True, slots=True)
class RecreateStep:
    """An approval of exactly what was `seen`."""

    link: str
    topic: str
    preview: TwinPreview

    def sentence(self, *, done: bool) -> str:
        word = "begins" if done else "would begin"
        return f"{self.link}: {self.topic} {word} again; the running mirror does it within seconds"


def plan(again: RecreateTwin, settings: Settings, store: Store) -> Plan[RecreateStep]:
    """Plans an approval, only for a topic stopped as recreated. Asks both clusters what would be deleted."""
    link, topic = settings.only(again.links), again.topic
    _refuse_unstopped(store, link, topic)
    preview = preview_twin(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in preview.lines())
    refused = _refusal(link, topic, preview, even_unreplicated=again.even_unreplicated)
    if refused:
        return Plan(shown=shown, refusal=refused)
    return Plan((RecreateStep(link.name, topic, preview),), shown)


def act(plan: Plan[RecreateStep], store: Store, *, by: str) -> Iterator[RecreateStep]:
    """Stores the approval; the running mirror begins again if the twin is still as approved."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = AuditRow(now_ms, step.link, "topic", step.topic, "", "begins again", f"agreed by {by}", by, step.topic)
        word = step.preview.word(now_ms).to_json()
        store.link_states.remember(
            [LinkStateRow(step.link, RECREATE_APPROVAL, step.topic, word, "agreed", now_ms)], [row]
        )
        yield step


def _refusal(link: Link, topic: str, preview: TwinPreview, *, even_unreplicated: bool) -> RefusedError | None:
    if preview.source.presence is not Presence.THERE:
        return RefusedError("replication.no-source-topic", cluster=link.source, topic=topic)
    if preview.target.presence is Presence.THERE and preview.against:
        return RefusedError("replication.twin-not-deleted", topic=topic, why=preview.against)
    if find_unreplicated(preview.spans) and not even_unreplicated:
        return RefusedError("replication.twin-last-copy", topic=topic)
    return None


def _refuse_unstopped(store: Store, link: Link, topic: str) -> None:
    """Refuses topics not stopped as recreated, and mapped ones."""
    rows = [row for row in store.incidents.rows(link.name, open_only=True) if row.incident.kind == RECREATED_KIND]
    stopped = {row.incident.topic for row in rows}
    if topic not in stopped:
        raise ConfigError("replication.topic-not-recreated", topic=topic, near=did_you_mean(topic, sorted(stopped)))
    if any(name == topic for name, _ in store.offset_runs.reached(link.name)):
        raise RefusedError("replication.mapped-twin-kept", topic=topic, link=link.name)
