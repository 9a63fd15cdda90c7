"""Approves that a topic begins again with a new twin, which deletes the old one; and reads the audit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Link, Plan
from twinshore.config.schema import did_you_mean
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.replication.operations.twin_deletion import TwinPreview, preview_twin
from twinshore.replication.sync.core.lifecycle import RECREATE_APPROVAL, RECREATED_KIND, find_unreplicated
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store


def read_audit(wanted: AuditFilter, settings: Settings, store: Store, *, last: int) -> tuple[AuditRow, ...]:
    """Returns rows, newest first, of all links if none is named; for the next page, set `before` to the last id."""
    links = tuple(link.name for link in settings.chosen(wanted.links))
    return store.audit.page(replace(wanted, links=links), limit=last)


def describe_change(row: AuditRow) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_ms / 1000))
    change = f"{row.before or '-'} -> {row.after or '-'}"
    return f"{when} {row.link}: {row.kind} {row.subject}: {change} ({row.outcome})"


@dataclass(frozen=True, slots=True)
class RecreateStep:
    """An approval of exactly what was `seen`."""

    link: str
    topic: str
    preview: TwinPreview

    def sentence(self, *, done: bool) -> str:
        starts = "starts" if done else "would start"
        return f"{self.link}: {self.topic} {starts} again; the running mirror does it within seconds"


def plan(
    topic: str, link: Link, settings: Settings, store: Store, *, even_unreplicated: bool = False
) -> Plan[RecreateStep]:
    """Plans an approval, only for a topic stopped as recreated. Asks both clusters what would be deleted.
    `even_unreplicated` approves deleting records that the link did not replicate.
    """
    _refuse_unstopped(store, link, topic)
    preview = preview_twin(link, settings, store, topic)
    shown = tuple(f"{link.name}: {line}" for line in preview.lines())
    refused = _refusal(link, topic, preview, even_unreplicated=even_unreplicated)
    steps = () if refused else (RecreateStep(link.name, topic, preview),)
    return Plan(steps, shown, refusal=refused)


def act(plan: Plan[RecreateStep], store: Store, *, by: str) -> Iterator[RecreateStep]:
    """Stores the approval; the running mirror begins again if the twin is still as approved."""
    for step in plan.steps:
        now_ms = wall_ms()
        row = AuditRow(now_ms, step.link, "topic", step.topic, "", "starts again", f"agreed by {by}", by, step.topic)
        approval = step.preview.approval(now_ms).to_json()
        state = LinkStateRow(step.link, RECREATE_APPROVAL, step.topic, approval, "agreed", now_ms)
        store.link_states.remember([state], [row])
        yield step


def _refusal(link: Link, topic: str, preview: TwinPreview, *, even_unreplicated: bool) -> RefusedError | None:
    if not preview.source.is_there:
        return RefusedError("replication.no-source-topic", cluster=link.source, topic=topic)
    if preview.target.is_there and preview.against:
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
