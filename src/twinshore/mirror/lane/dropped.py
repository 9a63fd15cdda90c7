"""What the ledger is to say of offsets that a fresh queue dropped: rows that are joined, and cut off. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import POLICY_DROP, IncidentKind
from twinshore.mirror.lane.orders import Stoppage


def row_of(named: NamedPartition, begin: int, end: int, why: str) -> Stoppage:
    """Offsets [begin, end) were dropped."""
    many = f"{end - begin} offsets were" if end - begin > 1 else "1 offset was"
    place = (named.topic, named.partition, IncidentKind.STALE_DROPPED, begin, end)
    return Stoppage(*place, f"{many} dropped, {why}", POLICY_DROP, why=why)


def cut_at(rows: Iterable[Stoppage], end: int) -> list[Stoppage]:
    """What of these is true where nothing from `end` on was dropped after all: a marker takes each offset of an exact
    twin, so a part of a run may stand there."""
    whole = [row for row in rows if row.from_offset < end]
    return [row if row.to_offset <= end else row_of(_of(row), row.from_offset, end, row.why) for row in whole]


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
