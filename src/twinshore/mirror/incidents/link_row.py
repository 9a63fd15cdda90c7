"""One row of the ledger for a link and a kind: what is so now, in one sentence."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.mirror.incidents.kinds import known
from twinshore.service.clock import wall_ms
from twinshore.store import Incident, IncidentKind, Store


def tell(store: Store, link: str, kind: IncidentKind, sentence: str, log: Callable[[str], None]) -> None:
    """The open row of the whole link says this from now on; it is over where there is nothing to say. `log` gets a new
    sentence too."""
    now_ms = wall_ms()
    rows = [row for row in store.ledger.rows(link, open_only=True) if row.incident.kind is kind]
    for row in [row for row in rows if row.incident.sentence != sentence]:
        store.ledger.close(row.id, now_ms=now_ms)
    if sentence and all(row.incident.sentence != sentence for row in rows):
        store.ledger.add(Incident(link, "", -1, kind, -1, -1, known(kind).policy, sentence, kind.side), now_ms=now_ms)
        log(f"{link}: {sentence}")
