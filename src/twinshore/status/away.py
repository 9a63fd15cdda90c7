"""A cluster that does not answer is told once, though each of its links has a row of it in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinshore.fleet.sentences import counted, listed, moment
from twinshore.mirror.incidents.watch_rules import cause_of, silence
from twinshore.status.links import LinkView
from twinshore.store import IncidentKind, LedgerRow

NAMED_MAX = 5
AWAY = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)


@dataclass(frozen=True, slots=True)
class SilentCluster:
    """`rows`: the open rows of its links that say it."""

    name: str
    rows: tuple[LedgerRow, ...]

    def __str__(self) -> str:
        links = sorted({row.incident.link for row in self.rows})
        ids = listed([str(row.id) for row in self.rows], NAMED_MAX)
        since = moment(min(row.opened_ms for row in self.rows))
        return (
            f"{self.name} does not answer: {_cause(self.rows[-1])}; since {since}, {counted(len(links), 'link')}"
            f" ({listed(links, NAMED_MAX)}), open incident{'' if len(self.rows) == 1 else 's'} {ids}"
        )


def silent_clusters(views: Iterable[LinkView]) -> list[SilentCluster]:
    """Those that links wait for, by their open incidents."""
    rows: dict[str, list[LedgerRow]] = {}
    for view in views:
        for row in view.incidents:
            if row.incident.kind in AWAY and not row.incident.topic and _cause(row):
                rows.setdefault(_cluster(row), []).append(row)
    return [SilentCluster(name, tuple(found)) for name, found in rows.items()]


def says_of_link(view: LinkView, silent: Iterable[SilentCluster]) -> str:
    """The link's sentence, but for causes that are told of a whole cluster."""
    said = view.says
    for one in silent:
        for row in one.rows:
            if row.incident.link == view.link:
                said = said.replace(row.incident.sentence, silence(row.incident.kind.side, one.name))
    return said


def says_of_incidents(view: LinkView, silent: Iterable[SilentCluster]) -> list[str]:
    """Its open rows, but for those that are told of a whole cluster."""
    told = {row.id for one in silent for row in one.rows}
    return [said for row, said in zip(view.incidents, view.says_of_incidents, strict=True) if row.id not in told]


def _cluster(row: LedgerRow) -> str:
    source, _, target = row.incident.link.partition("->")
    return source if row.incident.kind is IncidentKind.SOURCE_AWAY else target


def _cause(row: LedgerRow) -> str:
    return cause_of(row.incident.sentence, row.incident.kind.side, _cluster(row))
