"""Sets or removes the push for an application's clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from twinshore.client.core.pushes import digest_of
from twinshore.client.sites import Site
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Plan
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.values import AuditRow
from twinshore.state.proxies import PushRow
from twinshore.state.store import Store
from twinshore.switch.core.config_offer import check_app, check_offer

AUDIT_KIND = "push"


@dataclass(frozen=True, slots=True)
class SetPush:
    """`expected`: digest of the push to replace; empty for any."""

    app: str
    text: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class PushStep:
    """`before`: the revision to replace; 0 for none. `text`: empty to remove the push."""

    app: str
    before: int
    text: str
    home: str = ""
    clusters: tuple[str, ...] = ()

    def sentence(self, *, done: bool) -> str:
        told = "is" if done else "would be"
        if not self.text:
            return f"{self.app}: its push, revision {self.before}, {told} taken away; clients stay as they are"
        clusters = f" {', '.join(self.clusters)}"
        return f"{self.app}: revision {self.before + 1} {told} told to its clients: home {self.home};{clusters}"


def plan_set(push: SetPush, store: Store) -> Plan[PushStep]:
    """Raises ConfigError if clients would refuse the push, RefusedError if the current push is not the expected one."""
    app = check_app(push.app)
    found = check_offer(push.text)
    for site in found.values():
        _must_make(site)
    row = store.pushes.of([app]).get(app)
    if push.expected and push.expected != (row.digest if row else ""):
        raise RefusedError("switch.push-changed", app=app)
    if row is not None and row.digest == digest_of(push.text):
        return Plan(remarks=(f"{app}: revision {row.revision} says just this already",))
    clusters = tuple(f"{name} at {','.join(site.cluster.bootstrap)}" for name, site in sorted(found.items()))
    home, before = _home(push.text), _home(row.text) if row else ""
    remarks = (
        (
            f"{app}: its home moves from {before} to {home}: topics of which no cluster says where they are at home are"
            " written there at once, without a switch",
        )
        if before not in ("", home)
        else ()
    )
    return Plan((PushStep(app, row.revision if row else 0, push.text, home, clusters),), remarks=remarks)


def _home(text: str) -> str:
    return str(json.loads(text).get("home", "")) if text else ""


def _must_make(site: Site) -> None:
    """Raises ConfigError if librdkafka refuses the settings, as every client would."""
    try:
        Producer({**site.clients, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ConfigError("switch.push-unusable", cluster=site.name, cause=str(why)) from error


def plan_remove(app: str, store: Store) -> Plan[PushStep]:
    """Raises ConfigError if the application has no push."""
    row = store.pushes.of([check_app(app)]).get(app)
    if row is None or not row.text:
        raise ConfigError("switch.no-push", app=app)
    return Plan((PushStep(app, row.revision, ""),))


def apply_push(plan: Plan[PushStep], store: Store, *, by: str) -> Iterator[PushStep]:
    """Raises RefusedError if the push has changed since the plan."""
    for step in plan.steps:
        now_ms, revision = wall_ms(), step.before + 1
        before, after = f"revision {step.before}" if step.before else "", f"revision {revision}" if step.text else ""
        row = AuditRow(now_ms, "", AUDIT_KIND, step.app, before, after, "done", by)
        if not store.pushes.save(PushRow(step.app, revision, digest_of(step.text), step.text, by, now_ms), row):
            raise RefusedError("switch.push-changed", app=step.app)
        yield step


def read_pushes(store: Store, app: str = "") -> list[dict[str, Any]]:
    rows = [row for row in store.pushes.of([check_app(app)] if app else None).values() if row.text]
    if app and not rows:
        raise ConfigError("switch.no-push", app=app)
    return [
        {
            "app": push_row.app,
            "revision": push_row.revision,
            "set_by": push_row.set_by,
            "changed_ms": push_row.changed_ms,
            "push": push_row.text,
        }
        for push_row in rows
    ]
