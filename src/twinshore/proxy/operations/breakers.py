"""Operations on circuit breakers, and which proxies apply them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.model import Plan
from twinshore.config.schema import parse_member
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.core.breakers import describe_unknown_name
from twinshore.state.core.proxy_values import (
    BreakerKind,
    BreakerLimits,
    BreakerPolicy,
    BreakerRow,
    BreakerState,
    DroppedRecordsRow,
    ProxyInstanceRow,
    TrafficRow,
)
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store

# Proxies report every two seconds.
PROXY_GONE_MS: Final = 10_000


def list_serving_proxies(store: Store) -> list[ProxyInstanceRow]:
    """Returns proxies that reported lately."""
    now_ms = wall_ms()
    return [row for row in store.proxies.instances() if now_ms - row.seen_ms < PROXY_GONE_MS]


def list_proxy_instances(store: Store) -> list[dict[str, Any]]:
    """Returns proxies that reported within a week and have not ended in good order."""
    changes, now_ms = store.proxies.changes(), wall_ms()
    rows = store.proxies.instances()
    behind = {row.id: changes - row.revision - row.settings_revision for row in rows}
    return [asdict(row) | {"status": _stands(now_ms - row.seen_ms, behind[row.id])} for row in rows]


def _stands(silent_ms: int, behind: int) -> str:
    if silent_ms >= PROXY_GONE_MS:
        return "gone"
    return "serves" if behind <= 0 else f"{behind} change{'s' if behind > 1 else ''} behind"


AUDIT_KIND: Final = "proxy breaker"
IN_FORCE_TIMEOUT_S: Final = 3.0
_LOOK_S: Final = 0.1
RECENT_TRAFFIC_S: Final = 900
RECENT_TRAFFIC_PHRASE: Final = "in the last quarter of an hour"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class BreakerSelection:
    """Breakers of a topic and client id, each a name or a prefix with `*`."""

    topic: str
    client: str = "*"
    kinds: tuple[BreakerKind, ...] = (BreakerKind.PRODUCE, BreakerKind.FETCH)


@dataclass(frozen=True, slots=True)
class OpenBreakers:
    """Open breakers for `for_s` seconds; 0: until closed."""

    selection: BreakerSelection
    reason: str
    policy: BreakerPolicy = BreakerPolicy.REFUSE
    for_s: int = 0


@dataclass(frozen=True, slots=True)
class SetBreakerLimits:
    """Have breakers open by themselves at these limits."""

    selection: BreakerSelection
    limits: BreakerLimits
    reason: str
    policy: BreakerPolicy = BreakerPolicy.REFUSE


@dataclass(frozen=True, slots=True)
class BreakerStep:
    """A change. `row`: the new breaker; `before`: a description of the earlier one, or empty; `seen`: the revision
    planned on.
    """

    row: BreakerRow
    before: str
    seen: int

    def sentence(self, *, done: bool) -> str:
        told = "is" if done else "would be"
        was = f"; it was {self.before}" if self.before else ""
        return f"the {self.row.kind} breaker of {describe_scope(self.row)} {told} {describe_breaker(self.row)}{was}"


def describe_scope(row: BreakerRow) -> str:
    return row.topic if row.client == "*" else f"{row.topic} for clients {row.client}"


def describe_breaker(row: BreakerRow) -> str:
    policy = "" if row.kind is BreakerKind.FETCH else f", {row.policy}"
    until = f" for {max(0, row.until_ms - row.since_ms) // 1000} s" if row.until_ms else ""
    numbers = {"records/s": row.limits.records_s, "bytes/s": row.limits.bytes_s, "ms": row.limits.latency_ms}
    limits = [f"{number} {unit}" for unit, number in numbers.items() if number]
    trips = f", trips at {' or '.join(limits)}" if limits else ""
    return f"{row.state}{until}{policy if row.state is BreakerState.OPEN or limits else ''}{trips}"


def select_breakers(topic: str, client: str, *, produce: bool, fetch: bool) -> BreakerSelection:
    """Select both kinds if neither or both are asked for."""
    if produce == fetch:
        return BreakerSelection(topic, client)
    return BreakerSelection(topic, client, (BreakerKind.PRODUCE if produce else BreakerKind.FETCH,))


def build_limits(records_s: int, bytes_s: int, latency_ms: int, above_s: int, quiet_s: int) -> BreakerLimits:
    """Build the limits; planning refuses invalid ones."""
    return BreakerLimits(records_s, bytes_s, latency_ms, above_s, quiet_s)


def parse_policy(text: str) -> BreakerPolicy:
    """Parse a policy. ConfigError if unknown."""
    return parse_member(BreakerPolicy, "policy", text)


def parse_seconds(text: str, option: str = "--for") -> int:
    """Parse 90s, 10m, 2h or 1d. ConfigError if invalid."""
    found = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text.strip())
    if found is None:
        raise ConfigError("proxy.duration-invalid", option=option, text=text)
    return int(found[1]) * _UNITS[found[2]]


def plan_open(breakers: OpenBreakers, store: Store, *, by: str) -> Plan[BreakerStep]:
    """Plan to open. ConfigError for an invalid selection or an empty reason."""

    def becomes(old: BreakerRow | None, now_ms: int) -> tuple[BreakerState, int, BreakerLimits]:
        until_ms = now_ms + breakers.for_s * 1000 if breakers.for_s else 0
        return BreakerState.OPEN, until_ms, old.limits if old else BreakerLimits()

    return _planned(breakers, store, by, becomes)


def plan_limits(set_breaker_limits: SetBreakerLimits, store: Store, *, by: str) -> Plan[BreakerStep]:
    """Plan limits. ConfigError for an invalid selection or limits, or an empty reason."""
    limits = set_breaker_limits.limits
    if not limits.any or min(limits.records_s, limits.bytes_s, limits.latency_ms) < 0:
        raise ConfigError("proxy.no-limit")
    if limits.above_s < 1 or limits.quiet_s < 1:
        raise ConfigError("proxy.limit-seconds-low")
    if BreakerKind.FETCH in set_breaker_limits.selection.kinds and (limits.records_s or limits.latency_ms):
        raise ConfigError("proxy.limit-not-for-fetch")

    def becomes(old: BreakerRow | None, _: int) -> tuple[BreakerState, int, BreakerLimits]:
        return (old.state, old.until_ms, limits) if old else (BreakerState.CLOSED, 0, limits)

    return _planned(set_breaker_limits, store, by, becomes)


def _planned(
    asked: OpenBreakers | SetBreakerLimits,
    store: Store,
    by: str,
    becomes: Callable[[BreakerRow | None, int], tuple[BreakerState, int, BreakerLimits]],
) -> Plan[BreakerStep]:
    """Plan one step for each kind. `becomes` returns state, end and limits, from the old breaker and the time."""
    _check(asked.selection, asked.reason)
    seen, rows = _known(store)
    steps, now_ms = [], wall_ms()
    for kind in asked.selection.kinds:
        old = rows.get((asked.selection.topic, asked.selection.client, kind))
        state, until_ms, limits = becomes(old, now_ms)
        named = (asked.selection.topic, asked.selection.client, kind, state, asked.policy)
        row = BreakerRow(*named, asked.reason, by, now_ms, until_ms, limits)
        steps.append(BreakerStep(row, describe_breaker(old) if old else "", seen))
    return Plan(tuple(steps), shown=_warning(asked.policy, asked.selection), remarks=_unseen(asked.selection, store))


def plan_close(selection: BreakerSelection, store: Store, *, by: str) -> Plan[BreakerStep]:
    """Plan to close breakers and remove limits. ConfigError if there is none."""
    seen, rows = _known(store)
    ours = [row for kind in selection.kinds if (row := rows.get((selection.topic, selection.client, kind))) is not None]
    if not ours:
        raise ConfigError("proxy.no-such-breaker", topic=selection.topic)
    steps = [
        BreakerStep(_closed(row, by), describe_breaker(row), seen)
        for row in ours
        if row.state is BreakerState.OPEN or row.limits.any
    ]
    return Plan(tuple(steps), remarks=() if steps else (f"the breaker of {selection.topic} is closed already",))


def _closed(row: BreakerRow, by: str) -> BreakerRow:
    return replace(row, state=BreakerState.CLOSED, set_by=by, since_ms=wall_ms(), until_ms=0, limits=BreakerLimits())


def _check(selection: BreakerSelection, reason: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}\*?|\*", selection.topic):
        raise ConfigError("proxy.breaker-topic-invalid", topic=selection.topic)
    if not selection.client:
        raise ConfigError("proxy.breaker-client-empty")
    if not reason.strip():
        raise ConfigError("proxy.breaker-reason-empty")


def _unseen(selection: BreakerSelection, store: Store) -> tuple[str, ...]:
    """Returns names without recent traffic: such a breaker cuts nothing, though operators would rely on it."""
    now_ms = wall_ms()
    rows = store.traffic.rows(now_ms - RECENT_TRAFFIC_S * 1000, now_ms)
    return list_unknown_names(selection.topic, selection.client, rows, RECENT_TRAFFIC_PHRASE)


def list_unknown_names(topic: str, client: str, rows: Iterable[TrafficRow], lately: str) -> tuple[str, ...]:
    """Returns a sentence for each of topic and client without traffic in `rows`."""
    keys = [row.key for row in rows]
    unknown_topic = describe_unknown_name("topic", topic, {key.topic for key in keys} - {""}, lately)
    unknown_client = describe_unknown_name("client", client, {key.client for key in keys}, lately)
    return tuple(filter(None, (unknown_topic, unknown_client)))


def _warning(policy: BreakerPolicy, selection: BreakerSelection) -> tuple[str, ...]:
    if policy is not BreakerPolicy.DROP or BreakerKind.PRODUCE not in selection.kinds:
        return ()
    return (
        f"records for {selection.topic} are lost while the breaker is open: producers are told that they are written",
    )


def _known(store: Store) -> tuple[int, dict[tuple[str, str, BreakerKind], BreakerRow]]:
    seen, rows = store.breakers.all()
    return seen, {(row.topic, row.client, row.kind): row for row in rows}


def act(plan: Plan[BreakerStep], store: Store, *, by: str) -> Iterator[BreakerStep]:
    """Change all at once. RefusedError if breakers have changed since the plan."""
    rows = [step.row for step in plan.steps]
    if not rows:
        return
    told = [_told(step, by) for step in plan.steps]
    if not store.breakers.change(rows, seen=plan.steps[0].seen, told=told):
        raise RefusedError("proxy.breakers-changed")
    yield from plan.steps


def _told(step: BreakerStep, by: str) -> AuditRow:
    row, subject = step.row, f"{step.row.kind} {describe_scope(step.row)}"
    after = f"{describe_breaker(row)}: {row.reason}"
    return AuditRow(wall_ms(), "", AUDIT_KIND, subject, step.before, after, "done", by, topic=row.topic)


def wait_until_in_force(store: Store, within_s: float = IN_FORCE_TIMEOUT_S) -> str:
    """Wait until all proxies apply the current breakers and settings, or time is over. Describes how many do."""
    until_s = time.monotonic() + within_s
    wanted, settings = store.breakers.revision(), store.settings.revision()
    while True:
        live = list_serving_proxies(store)
        behind = [row.name for row in live if row.revision < wanted or row.settings_revision < settings]
        if not live:
            return "no proxy is known to serve: one that begins takes it up"
        if not behind:
            return f"in force at {len(live)} of {len(live)} proxies"
        if time.monotonic() > until_s:
            return f"in force at {len(live) - len(behind)} of {len(live)} proxies; not yet at {', '.join(behind)}"
        time.sleep(_LOOK_S)


def list_breakers(store: Store, serving: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Returns all breakers, with sums over all proxies. `serving`: ids of proxies that serve, where they are known."""
    counts = store.proxies.counts()
    now_ms = wall_ms()
    live = {row.id for row in list_serving_proxies(store)} if serving is None else serving
    found = []
    for row in store.breakers.all()[1]:
        ours = [count for count in counts if count.key == row.key]
        is_open = row.state is BreakerState.OPEN and (not row.until_ms or now_ms < row.until_ms)
        ended = row.state is not BreakerState.CLOSED and not is_open
        values = asdict(row) | {
            "open": is_open,
            "tripped_at": sum(one.tripped and one.instance in live for one in ours),
        }
        values["status"] = "closed: its time is over" if ended else describe_breaker(row)
        found.append(
            values | {name: sum(getattr(one, name) for one in ours) for name in ("requests", "records", "bytes")}
        )
    return found


def list_dropped_records(store: Store, limit: int = 100) -> tuple[DroppedRecordsRow, ...]:
    """Returns dropped records, newest first."""
    return store.proxies.drops(limit)
