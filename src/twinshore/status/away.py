"""A cluster that does not answer is told once, though each of its links has a row of it in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinshore.fleet.sentences import counted, listed, moment
from twinshore.status.links import LinkView
from twinshore.store import IncidentKind, LedgerRow

SILENT = " does not answer"
BETWEEN = f"{SILENT}: "  # behind the side and its cluster, before the cause, as the mirror's watch says it
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class SilentCluster:
    """`rows`: the open rows of its links that say it."""

    name: str
    rows: tuple[LedgerRow, ...]

    def __str__(self) -> str:
        links = sorted({row.incident.link for row in self.rows})
        ids = listed([str(row.id) for row in self.rows], NAMED_MAX)
        since = moment(min(row.opened_ms for row in self.rows))
        cause = self.rows[-1].incident.sentence.partition(BETWEEN)[2]
        return (
            f"{self.name}{BETWEEN}{cause}; since {since}, {counted(len(links), 'link')}"
            f" ({listed(links, NAMED_MAX)}), open incident{'' if len(self.rows) == 1 else 's'} {ids}"
        )


def silent_clusters(views: Iterable[LinkView]) -> list[SilentCluster]:
    """Those that links wait for, by their open incidents."""
    rows: dict[str, list[LedgerRow]] = {}
    for view in views:
        source, _, target = view.link.partition("->")
        of = {IncidentKind.SOURCE_AWAY: source, IncidentKind.TARGET_AWAY: target}
        for row in view.incidents:
            if row.incident.kind in of and BETWEEN in row.incident.sentence:
                rows.setdefault(of[row.incident.kind], []).append(row)
    return [SilentCluster(name, tuple(found)) for name, found in rows.items()]


def says_of_link(view: LinkView, silent: Iterable[SilentCluster]) -> str:
    """The link's sentence, but for causes that are told of a whole cluster."""
    said = view.says
    for sentence in {row.incident.sentence for one in silent for row in one.rows if row.incident.link == view.link}:
        said = said.replace(sentence, sentence.partition(BETWEEN)[0] + SILENT)
    return said


def says_of_incidents(view: LinkView, silent: Iterable[SilentCluster]) -> list[str]:
    """Its open rows, but for those that are told of a whole cluster."""
    told = {row.id for one in silent for row in one.rows}
    return [said for row, said in zip(view.incidents, view.says_of_incidents, strict=True) if row.id not in told]
