"""What was proven of each partition, in SQL: one row each, which only a proof that has read it may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import insert_absent, storable
from twinshore.store.engine import Database
from twinshore.store.proof_values import ProofRow, ProofState
from twinshore.store.tables import proofs

PLACE = ("link", "topic", "partition")


def save(connection: Connection, rows: Sequence[ProofRow]) -> tuple[ProofRow, ...]:
    """Saves each row whose revision is the stored one; returns the others."""
    told = [{**asdict(row), "sentence": storable(row.sentence)} for row in rows]
    told.sort(key=lambda one: tuple(one[name] for name in PLACE))  # Two processes lock them in one order.
    insert_absent(connection, proofs, [one for one in told if not one["revision"]])
    refused = set()
    for one in told:
        as_read = [proofs.c[name] == one[name] for name in (*PLACE, "revision")]
        values = {**one, "revision": one["revision"] + 1}
        if connection.execute(proofs.update().where(*as_read).values(values)).rowcount != 1:
            refused.add(tuple(one[name] for name in PLACE))
    return tuple(row for row in rows if (row.link, row.topic, row.partition) in refused)


def read(connection: Connection, link: str | None) -> tuple[ProofRow, ...]:
    """The rows of one link or of all, by link, topic and partition."""
    query = select(proofs).order_by(*(proofs.c[name] for name in PLACE))
    if link is not None:
        query = query.where(proofs.c.link == link)
    rows = connection.execute(query).mappings()
    return tuple(ProofRow(**{**row, "state": ProofState(row["state"])}) for row in rows)


def forget(connection: Connection, link: str, topic: str) -> None:
    """Drops what was proven of a topic."""
    connection.execute(proofs.delete().where(proofs.c.link == link, proofs.c.topic == topic))


class Proofs:
    """What was proven."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, rows: Sequence[ProofRow]) -> tuple[ProofRow, ...]:
        """Saves each row, as its next revision, if the stored one is as it was read: of the same revision, 0 where
        there was none. Returns the rows that were not saved, as another process has changed what they rest on."""
        return self._database.write(lambda connection: save(connection, rows)) if rows else ()

    def of(self, link: str | None = None) -> tuple[ProofRow, ...]:
        """What was proven of one link's partitions, or of all."""
        return self._database.read(lambda connection: read(connection, link))
