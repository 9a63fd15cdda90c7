"""The hands that save proofs: each one folded into what stands in the store, and the ledger is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from twinshore.proof.borders import incident_of, mended
from twinshore.service.clock import wall_ms
from twinshore.store import ProofRow, Store

Place = tuple[str, str, int]
Refold = Callable[[Place, ProofRow | None], ProofRow | None]


def place_of(row: ProofRow) -> Place:
    """Which partition of which link it is about."""
    return row.link, row.topic, row.partition


class Keeping:
    """`store` None: nothing is remembered."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def save(self, rows: Mapping[Place, ProofRow], refold: Refold) -> dict[Place, ProofRow]:
        """Saves each row if what stands is as it was read. Else it saves what `refold` makes of the row that stands,
        None: that one is left. Returns what was saved."""
        if self._store is None:
            return dict(rows)
        kept: dict[Place, ProofRow] = {}
        turn = dict(rows)
        while turn:
            refused = {place_of(row) for row in self._store.proofs.save(list(turn.values()))}
            kept |= {
                place: replace(row, revision=row.revision + 1) for place, row in turn.items() if place not in refused
            }
            turn = self._refolded(self._store, refused, refold)
        self.tell([*rows.values(), *kept.values()])
        for link in {row.link for row in kept.values()}:
            for number in mended(self._store.ledger.rows(link, open_only=True), kept.values()):
                self._store.ledger.close(number, now_ms=wall_ms())
        return kept

    def tell(self, rows: Collection[ProofRow]) -> None:
        """The ledger of the differences in these; a difference is an open row until a proof goes past it."""
        for incident in dict.fromkeys(filter(None, map(incident_of, rows))):
            if self._store is not None:
                self._store.ledger.add(incident, now_ms=wall_ms())

    @staticmethod
    def _refolded(store: Store, refused: Collection[Place], refold: Refold) -> dict[Place, ProofRow]:
        links = sorted({link for link, *_ in refused})
        stands = {place_of(row): row for link in links for row in store.proofs.of(link)}
        found = {place: refold(place, stands.get(place)) for place in refused}
        return {place: row for place, row in found.items() if row is not None}
