"""What the ledger is to say of offsets that a fresh queue dropped: rows that are joined. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import POLICY_DROP, IncidentKind
from twinshore.mirror.lane.orders import Stoppage


def is_old(stamp_ms: int, since_ms: int) -> bool:
    """Whether records whose latest time stamp this is are too old. A record without a time stamp counts as new."""
    return 0 <= stamp_ms < since_ms


def row_of(named: NamedPartition, begin: int, end: int, why: str) -> Stoppage:
    """Offsets [begin, end) were dropped."""
    many = f"{end - begin} offsets were" if end - begin > 1 else "1 offset was"
    place = (named.topic, named.partition, IncidentKind.STALE_DROPPED, begin, end)
    return Stoppage(*place, f"{many} dropped, {why}", POLICY_DROP, why=why)


def but_for(rows: Iterable[Stoppage], landed: Iterable[tuple[int, int]]) -> list[Stoppage]:
    """What of these is true where a look has found these offsets on the twin: what was on its way has landed late."""
    left = list(rows)
    for begin, end in landed:
        parts: list[Stoppage] = []
        for row in left:
            kept = ((row.from_offset, min(row.to_offset, begin)), (max(row.from_offset, end), row.to_offset))
            parts += [row_of(_of(row), *part, row.why) for part in kept if part[0] < part[1]]
        left = parts
    return left


def add(told: list[Stoppage], one: Stoppage) -> None:
    """Tells of it; what follows on what was told last, for the same reason, is told as one."""
    last = told[-1] if told else None
    place = (one.topic, one.partition, one.kind, one.from_offset, one.why)
    if last and (last.topic, last.partition, last.kind, last.to_offset, last.why) == place:
        told.pop()
        one = row_of(_of(one), last.from_offset, one.to_offset, one.why)
    told.append(one)


def _of(row: Stoppage) -> NamedPartition:
    return NamedPartition(row.topic, row.partition)
