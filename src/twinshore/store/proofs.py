"""What was proven of each partition, in SQL: one row each, the last word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import put, storable
from twinshore.store.tables import proofs
from twinshore.store.values import ProofRow, ProofState


def save(connection: Connection, rows: Sequence[ProofRow]) -> None:
    """Each row stands from now on as given."""
    put(connection, proofs, [{**asdict(row), "sentence": storable(row.sentence)} for row in rows])


def read(connection: Connection, link: str | None) -> tuple[ProofRow, ...]:
    """The rows of one link or of all, by link, topic and partition."""
    query = select(proofs).order_by(proofs.c.link, proofs.c.topic, proofs.c.partition)
    if link is not None:
        query = query.where(proofs.c.link == link)
    rows = connection.execute(query).mappings()
    return tuple(ProofRow(**{**row, "state": ProofState(row["state"])}) for row in rows)


def forget(connection: Connection, link: str, topic: str) -> None:
    """Drops what was proven of a topic."""
    connection.execute(proofs.delete().where(proofs.c.link == link, proofs.c.topic == topic))
