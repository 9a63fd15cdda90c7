"""What went through, as an operator looks at it: by topic, client, cluster or way, sorted, a page at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from twinshore.store.traffic_values import LATENCY_MS, Flow, FlowKind, FlowRow

TAIL: Final = 0.99


class By(StrEnum):
    """WAY: from a proxy to a cluster, so between sites. FLOW: all apart."""

    TOPIC = "topic"
    CLIENT = "client"
    CLUSTER = "cluster"
    WAY = "way"
    FLOW = "flow"


class Sort(StrEnum):
    """By what the largest comes first."""

    BYTES = "bytes"
    REQUESTS = "requests"
    RECORDS = "records"
    ERRORS = "errors"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Line:
    """One subject and what is done with it, over `lasted_s` seconds."""

    subject: str
    kind: FlowKind
    flow: Flow
    lasted_s: float
    clients: int
    topics: int

    def as_values(self) -> dict[str, Any]:
        """For programs; rates are per second."""
        flow, per_s = self.flow, 1 / self.lasted_s
        return {
            "subject": self.subject,
            "kind": self.kind.value,
            "bytes_s": round(flow.bytes * per_s, 1),
            "requests_s": round(flow.requests * per_s, 3),
            "records_s": round(flow.records * per_s, 3),
            "bytes": flow.bytes,
            "requests": flow.requests,
            "records": flow.records,
            "batches": flow.batches,
            "errors": flow.errors,
            "empty": flow.empty,
            "connections": flow.connections,
            "connected_max": flow.connected_max,
            "latency_ms": round(flow.mean_ms, 1) if flow.answered else None,
            "latency_99_ms": tail_ms(flow.latency),
            "clients": self.clients,
            "topics": self.topics,
            "software": flow.software,
        }


def tail_ms(counts: Sequence[int]) -> int | None:
    """By when all but one in a hundred were answered: the end of a bucket. None where nothing was, or where it took
    longer than the last bucket tells."""
    total, so_far = sum(counts), 0
    for end, count in zip(LATENCY_MS, counts, strict=False):
        so_far += count
        if total and so_far >= TAIL * total:
            return end
    return None


def lines_of(rows: Iterable[FlowRow], by: By, sort: Sort) -> list[Line]:
    """All of them, the largest first. Whatever lasted is from the first window's begin to the last one's end."""
    sums: dict[tuple[str, FlowKind], Flow] = {}
    names: dict[tuple[str, FlowKind], tuple[set[str], set[str]]] = {}
    since_ms, until_ms = 0, 0
    for row in rows:
        since_ms = min(since_ms or row.since_ms, row.since_ms)
        until_ms = max(until_ms, row.until_ms)
        subject = _subject(row, by)
        if subject is None:
            continue
        place = (subject, row.key.kind)
        sums.setdefault(place, Flow()).add(row.flow)
        clients, topics = names.setdefault(place, (set(), set()))
        clients.add(row.key.client)
        topics.add(row.key.topic)
    lasted_s = max(0.001, (until_ms - since_ms) / 1000)
    found = [
        Line(subject, kind, flow, lasted_s, len(names[subject, kind][0]), len(names[subject, kind][1]))
        for (subject, kind), flow in sums.items()
    ]
    return sorted(found, key=lambda one: (-_size(one.flow, sort), one.subject, one.kind))


def _subject(row: FlowRow, by: By) -> str | None:
    """None where the row is about nothing of that sort."""
    key = row.key
    if by is By.CLIENT:
        return key.client
    if key.kind is FlowKind.CLIENT:
        return None
    if by is By.TOPIC:
        return key.topic or None
    if by is By.FLOW:
        return f"{key.client}, {key.topic or 'no topic'} on {key.cluster or 'no cluster'}"
    if not key.cluster:
        return None
    return key.cluster if by is By.CLUSTER else f"{row.proxy} to {key.cluster}"


def _size(flow: Flow, sort: Sort) -> float:
    if sort is Sort.LATENCY:
        return flow.mean_ms
    return float(getattr(flow, sort.value))


def sentence(line: Line) -> str:
    """For people."""
    one = line.as_values()
    parts = [f"{one['bytes_s']:,.0f} bytes/s", f"{one['requests_s']:,.1f} requests/s"]
    if line.kind in (FlowKind.PRODUCE, FlowKind.COMMIT):
        parts.append(f"{one['records_s']:,.1f} records/s")
    if line.kind is FlowKind.FETCH:
        parts.append(f"{one['empty']:,} of {one['requests']:,} answers empty")
    if one["latency_ms"] is not None:
        tail = f"below {one['latency_99_ms']:,} ms" if one["latency_99_ms"] is not None else "above all that is told"
        parts.append(f"answered in {one['latency_ms']:,.1f} ms, 99 of 100 {tail}")
    if line.kind is FlowKind.CLIENT:
        parts.append(f"{one['connected_max']:,} connections at once, {one['connections']:,} new")
    if one["errors"]:
        parts.append(f"{one['errors']:,} errors")
    return f"{line.subject}, {line.kind}: {', '.join(parts)}"
