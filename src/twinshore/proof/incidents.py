"""Differences in the ledger: opened when found, closed when a proof goes past them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.incidents.kinds import known
from twinshore.proof.values import difference_from
from twinshore.store.proof_values import ProofRow, ProofState
from twinshore.store.values import Incident, LedgerRow

KIND = IncidentKind.CONTENT_DIFFERS
GONE = "gone with retention, no proof went past it"


def incident_of(row: ProofRow) -> Incident | None:
    """What the ledger is told of a partition that differs. No record's content: the ledger is kept for ever."""
    found = difference_from(json.loads(row.sentence)) if row.state is ProofState.DIFFERS else None
    if found is None:
        return None
    sentence = f"both sides part at offset {found.offset}: {found.kind}: {found.sentence}"
    return Incident(
        row.link, row.topic, row.partition, KIND, found.offset, -1, known(KIND).policy, sentence, KIND.side, row.way
    )


def mended(opened: Iterable[LedgerRow], rows: Iterable[ProofRow]) -> list[int]:
    """Open rows of differences that these proofs have gone past. A proof by another way says nothing of one, nor does
    one that may have read that offset before the row was opened."""
    proven = {(row.link, row.topic, row.partition): row for row in rows}
    found = []
    for one in opened:
        incident = one.incident
        row = proven.get((incident.link, incident.topic, incident.partition))
        if incident.kind is not KIND or row is None or one.id > row.ledger_id:
            continue
        if incident.way == row.way and row.to_offset > incident.from_offset >= row.from_offset:
            found.append(one.id)
    return found


def gone(opened: Iterable[LedgerRow], below: Mapping[tuple[str, str, int], int]) -> list[int]:
    """Open rows of differences in records that no side holds any more; those are below these offsets of each link's
    topics and partitions."""
    found = []
    for one in opened:
        incident = one.incident
        start = below.get((incident.link, incident.topic, incident.partition), 0)
        if incident.kind is KIND and incident.from_offset < start:
            found.append(one.id)
    return found
