"""The ledger: what made twins differ from their sources, with its offsets, also what is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from twinshore.fleet import ConfigError
from twinshore.fleet.incidents import IncidentKind
from twinshore.fleet.sentences import listed, moment
from twinshore.fleet.settings import Settings
from twinshore.store import LedgerRow, Store
from twinshore.store.ledger import Wanted


@dataclass(frozen=True, slots=True)
class Incidents:
    """Of these links together, or of all links of the settings; of one kind, about one topic, where one is named; only
    open ones; only those older than the row with the id `before`."""

    links: Sequence[str] = ()
    kind: str = ""
    topic: str = ""
    open_only: bool = False
    before: int = 0


def incidents(asked: Incidents, settings: Settings, store: Store, *, last: int) -> tuple[LedgerRow, ...]:
    """The newest, newest first; the page that follows is what is `before` the id of the last."""
    kinds = [one.value for one in IncidentKind]
    if asked.kind and asked.kind not in kinds:
        raise ConfigError(f"--kind: no such incident {asked.kind!r}", hint=f"one of: {listed(kinds, len(kinds))}")
    links = tuple(one.name for one in settings.chosen(asked.links))
    kind = IncidentKind(asked.kind) if asked.kind else None
    wanted = Wanted(links, kind, asked.topic, open_only=asked.open_only, before=asked.before)
    return store.ledger.page(wanted, limit=last)


def in_words(row: LedgerRow) -> str:
    """One row, for people; the last offset is the last that it is about."""
    one = row.incident
    place = f"{one.topic}-{one.partition}" if one.partition >= 0 else one.topic
    where = f" {place}:" if place else ""
    offsets = f", offsets {one.from_offset} to {one.to_offset - 1}" if one.to_offset > one.from_offset >= 0 else ""
    ended = f"closed {moment(row.closed_ms)}" if row.closed_ms is not None else "open"
    return f"{row.id} {moment(row.opened_ms)} {one.link}:{where} {one.kind}{offsets}: {one.sentence} ({ended})"


def values_of(row: LedgerRow) -> dict[str, object]:
    """One row, for programs; `to_offset` is the one behind the last. `parts`: of a row that many were joined to."""
    times = {"id": row.id, "opened_ms": row.opened_ms, "closed_ms": row.closed_ms}
    return {**times, **asdict(row.incident), "parts": row.parts}
