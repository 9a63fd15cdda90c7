"""What pages show of links, topics and groups: values made from what is read, the worst ranked highest."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from twinshore.config.incident_policy import IncidentKind
from twinshore.monitoring.link_status import LinkView, TopicView, as_values, find_silent_clusters
from twinshore.replication.core.model import FLOWING
from twinshore.state.core.platform_values import SnapshotKind, SnapshotRow
from twinshore.state.core.values import IncidentRow, ProofRow, ProofState, ReplicatedPosition

# Ranks, and the state that each one stands for.
FINE, PAUSED, BEHIND, UNKNOWN, TROUBLE, DIFFERS = range(6)
LEVEL_S: Final = 10.0
PARTITIONS_SHOWN: Final = 200
WORST_SHOWN: Final = 20
LINKS_SHOWN: Final = 200
GROUP_PARTITIONS_SHOWN: Final = 100
# Incidents after which the two sides hold different records.
DIFFERENCES: Final = frozenset(
    {
        IncidentKind.CONTENT_DIFFERS,
        IncidentKind.FOREIGN_WRITE,
        IncidentKind.LOST_BY_TARGET,
        IncidentKind.POSITION_DISAGREEMENT,
        IncidentKind.TRUNCATION,
    }
)


def topic_subject(link: str, topic: str) -> str:
    return f"{link}/{topic}"


def link_row(view: LinkView, now_ms: int) -> SnapshotRow:
    """What a page shows of a link."""
    values = as_values(view, topics=False)
    differs, state = any(row.incident.kind in DIFFERENCES for row in view.incidents), view.state
    lag = view.lag.records if view.lag and view.lag.known and not view.lag.unseen else -1
    if differs:
        rank, state = DIFFERS, "differs"
    elif view.runs and (state != FLOWING or view.incidents):
        rank, state = TROUBLE, "incident" if state == FLOWING else state
    elif not view.runs or view.lag is None or lag < 0:
        rank = UNKNOWN
    else:
        rank = PAUSED if view.paused else _rank_by_age(view.lag.oldest_s)
    return _row(SnapshotKind.LINK, view.link, view.link, state, rank, lag, values, now_ms)


def _rank_by_age(oldest_s: float | None) -> int:
    """A recovery point that is not known is not level."""
    return FINE if oldest_s is not None and oldest_s <= LEVEL_S else BEHIND


def topic_rows(
    view: LinkView, positions: Iterable[ReplicatedPosition], proofs: Iterable[ProofRow], now_ms: int
) -> Iterable[SnapshotRow]:
    """What pages show of a link's topics."""
    by_topic: dict[str, list[ReplicatedPosition]] = defaultdict(list)
    for position in positions:
        by_topic[position.topic].append(position)
    proven = {(proof.topic, proof.partition): proof for proof in proofs}
    incidents: dict[str, list[IncidentRow]] = defaultdict(list)
    for row in view.incidents:
        incidents[row.incident.topic].append(row)
    for topic in view.topics:
        yield _topic_row(view, topic, by_topic[topic.topic], proven, incidents[topic.topic], now_ms)


def _topic_row(
    view: LinkView,
    topic: TopicView,
    positions: Sequence[ReplicatedPosition],
    proven: Mapping[tuple[str, int], ProofRow],
    incidents: Sequence[IncidentRow],
    now_ms: int,
) -> SnapshotRow:
    partitions = [_partition(position, proven.get((position.topic, position.partition))) for position in positions]
    differs = any(row.incident.kind in DIFFERENCES for row in incidents) or any(
        one["proof"] == ProofState.DIFFERS for one in partitions
    )
    ages = [one["proven_ms"] for one in partitions]
    values = {
        **asdict(topic),
        "partitions_shown": partitions[:PARTITIONS_SHOWN],
        "proven_ms": min(ages) if ages and all(ages) else 0,
        "proven_partitions": sum(1 for age in ages if age),
        "incidents": [incident_values(row) for row in incidents],
    }
    if differs:
        rank, state = DIFFERS, "differs"
    elif topic.refused or topic.stopped or incidents:
        rank, state = TROUBLE, "refused" if topic.refused else "stopped" if topic.stopped else "incident"
    elif not view.runs:
        rank, state = UNKNOWN, "unknown"
    elif topic.paused or topic.excluded:
        rank, state = PAUSED, "paused" if topic.paused else "excluded"
    elif topic.lag_records is None:
        rank, state = UNKNOWN, "unknown"
    else:
        rank = _rank_by_age(topic.recovery_point_s)
        state = "behind" if rank == BEHIND else "flowing"
    lag = -1 if topic.lag_records is None else topic.lag_records
    subject = topic_subject(view.link, topic.topic)
    return _row(SnapshotKind.TOPIC, subject, view.link, state, rank, lag, values, now_ms)


def _partition(position: ReplicatedPosition, proof: ProofRow | None) -> dict[str, Any]:
    return {
        "partition": position.partition,
        "start": position.start_offset,
        "twin_end": position.to_offset,
        "source_end": max(position.source_end, position.to_offset),
        "state": str(position.state),
        "last_ms": position.last_ms,
        "proof": str(proof.state) if proof else "",
        "proven_to": proof.to_offset if proof else -1,
        "proven_ms": proof.read_ms if proof else 0,
    }


def incident_values(row: IncidentRow) -> dict[str, Any]:
    one = row.incident
    return {
        "id": row.id,
        "link": one.link,
        "topic": one.topic,
        "partition": one.partition,
        "kind": str(one.kind),
        "sentence": one.sentence,
        "from_offset": one.from_offset,
        "to_offset": one.to_offset,
        "opened_ms": row.opened_ms,
        "differs": one.kind in DIFFERENCES,
    }


def overview_row(
    links: Sequence[SnapshotRow],
    topics: Sequence[SnapshotRow],
    views: Sequence[LinkView],
    now_ms: int,
) -> SnapshotRow:
    """The first page: what is wrong, the worst first, and what would be lost now."""
    ranked = sorted(topics, key=lambda row: (-row.rank, -row.lag, row.subject))
    points = [view.lag.oldest_s for view in views if view.lag and view.lag.known and view.lag.oldest_s is not None]
    proven = [json.loads(row.value)["proven_ms"] for row in topics]
    lag = sum(row.lag for row in links if row.lag > 0)
    values: dict[str, Any] = {
        "links": [
            {
                "link": row.link,
                "state": row.state,
                "rank": row.rank,
                "lag": row.lag,
                "recovery_point_s": json.loads(row.value)["recovery_point_s"],
            }
            for row in sorted(links, key=lambda row: (-row.rank, -row.lag, row.link))[:LINKS_SHOWN]
        ],
        "link_count": len(links),
        "topic_count": len(topics),
        "ranks": [sum(1 for row in topics if row.rank == rank) for rank in range(DIFFERS + 1)],
        "link_ranks": [sum(1 for row in links if row.rank == rank) for rank in range(DIFFERS + 1)],
        "worst": [
            {"subject": row.subject, "link": row.link, "state": row.state, "rank": row.rank, "lag": row.lag}
            for row in ranked[:WORST_SHOWN]
            if row.rank > FINE
        ],
        "incidents": [incident_values(row) for view in views for row in view.incidents][:WORST_SHOWN],
        "recovery_point_s": max(points, default=None),
        "lag": lag,
        "unknown_lags": sum(1 for row in links if row.lag < 0),
        "proven_ms": min(proven) if proven and all(proven) else 0,
        "proven_topics": sum(1 for at_ms in proven if at_ms),
        "silent": [cluster.name for cluster in find_silent_clusters(views)],
    }
    worst = max((row.rank for row in (*links, *topics)), default=FINE)
    return _row(SnapshotKind.OVERVIEW, "all", "", str(worst), worst, lag, values, now_ms)


def group_row(values: dict[str, Any], now_ms: int) -> SnapshotRow:
    """What a page shows of a consumer group on both sides of a link."""
    values["offsets"] = values["offsets"][:GROUP_PARTITIONS_SHOWN]
    behind = values["behind"]
    rank = UNKNOWN if behind is None else BEHIND if behind else FINE
    subject = topic_subject(values["link"], values["group"])
    lag = -1 if behind is None else behind
    return _row(SnapshotKind.GROUP, subject, values["link"], str(values["state"]), rank, lag, values, now_ms)


def _row(
    kind: SnapshotKind, subject: str, link: str, state: str, rank: int, lag: int, values: Any, now_ms: int
) -> SnapshotRow:
    text = json.dumps(values, sort_keys=True)
    return SnapshotRow(
        kind=kind, subject=subject, link=link, state=state[:64], rank=rank, lag=lag, value=text, at_ms=now_ms
    )


def changed_rows(found: Iterable[SnapshotRow], known: Mapping[str, SnapshotRow]) -> tuple[list[SnapshotRow], set[str]]:
    """Returns what must be written, and the subjects that are gone. A row that differs in its age alone is the same."""
    rows = {row.subject: row for row in found}
    changed = [
        row for subject, row in rows.items() if subject not in known or replace(known[subject], at_ms=row.at_ms) != row
    ]
    return changed, known.keys() - rows.keys()
