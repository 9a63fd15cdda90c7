"""What was proven of each partition, in SQL: one row each, the last word, and beside it the parts it consists of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, and_, select

from twinshore.store.dialects import put, storable
from twinshore.store.engine import Database
from twinshore.store.proof_values import ProofPiece, ProofRow, ProofState
from twinshore.store.tables import proof_books, proofs


def save(connection: Connection, rows: Sequence[ProofRow]) -> None:
    """Each row stands from now on as given."""
    told, books = [], []
    for row in rows:
        values = {**asdict(row), "sentence": storable(row.sentence)}
        pieces, ledger_id = values.pop("pieces"), values.pop("ledger_id")
        told.append(values)
        place = {name: values[name] for name in ("link", "topic", "partition")}
        books.append({**place, "ledger_id": ledger_id, "pieces": json.dumps(pieces, separators=(",", ":"))})
    put(connection, proofs, told)
    put(connection, proof_books, books)


def read(connection: Connection, link: str | None) -> tuple[ProofRow, ...]:
    """The rows of one link or of all, by link, topic and partition."""
    query = select(proofs, proof_books.c.ledger_id, proof_books.c.pieces)
    same = (getattr(proofs.c, name) == getattr(proof_books.c, name) for name in ("link", "topic", "partition"))
    # A proof of an older version has no book.
    query = query.select_from(proofs.outerjoin(proof_books, and_(*same)))
    query = query.order_by(proofs.c.link, proofs.c.topic, proofs.c.partition)
    if link is not None:
        query = query.where(proofs.c.link == link)
    found = []
    for row in connection.execute(query).mappings():
        pieces = tuple(ProofPiece(*piece) for piece in json.loads(row["pieces"] or "[]"))
        state, ledger_id = ProofState(row["state"]), row["ledger_id"] or 0
        found.append(ProofRow(**{**row, "state": state, "pieces": pieces, "ledger_id": ledger_id}))
    return tuple(found)


def forget(connection: Connection, link: str, topic: str) -> None:
    """Drops what was proven of a topic."""
    for table in (proofs, proof_books):
        connection.execute(table.delete().where(table.c.link == link, table.c.topic == topic))


class Proofs:
    """What was proven."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, rows: Sequence[ProofRow]) -> None:
        """What was proven of these partitions; the last word stands."""
        self._database.write(lambda connection: save(connection, rows))

    def of(self, link: str | None = None) -> tuple[ProofRow, ...]:
        """What was proven of one link's partitions, or of all."""
        return self._database.read(lambda connection: read(connection, link))
