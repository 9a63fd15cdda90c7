"""How a link stands, for programs: what `twinshore status --json` prints of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from twinshore.mirror.metrics.words import broadcast_values
from twinshore.status.links import LinkView
from twinshore.store.values import LedgerRow

NOT_NOW = ("records_per_s", "bytes_per_s", "p50_ms", "p99_ms")


def as_values(view: LinkView, *, topics: bool) -> dict[str, Any]:
    """The view for programs: null is what is not known now."""
    values: dict[str, Any] = {} if view.word is None else asdict(view.word)
    if not view.runs:
        values |= dict.fromkeys(NOT_NOW) | {"last_state": view.word.state if view.word else None}
    lag = view.lag
    values |= {
        "link": view.link,
        "state": view.state,
        "age_s": round(view.age_s, 3),
        "stale": view.stale,
        "says": view.says,
        "lag_records": lag.records if lag and lag.known else None,
        "last_lag_records": lag.records if lag else None,
        "lag_age_s": round(lag.age_s, 3) if lag else None,
        "lag_seen_by": lag.seen_by if lag else None,
        "unseen_partitions": lag.unseen if lag else None,
        "paused_topics": {pattern: list(topics) for pattern, topics in view.paused},
        "never_delete": view.never_delete,
        "open_home": view.open_home,
        "broadcast": broadcast_values(view.broadcast, view.reading),
        "standby": asdict(view.standby) if view.standby else None,
        "keeps_all": "" in view.kept,
        "kept_topics": [topic for topic in view.kept if topic],
    }
    if topics:
        values["topics"] = [asdict(topic) for topic in view.topics]
    values["proof_pass"] = view.proof_pass._asdict() if view.proof_pass else None
    values["not_compared"] = [asdict(lack) for lack in view.not_compared]
    values["incidents"] = [_as_values(row) for row in view.incidents]
    return values


def _as_values(row: LedgerRow) -> dict[str, Any]:
    policy = row.incident.policy
    told = {**asdict(row.incident), "policy": policy.words, "effect": policy.effect}
    return {"id": row.id, "opened_ms": row.opened_ms, **told}
