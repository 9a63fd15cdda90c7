"""What was proven of each partition, and when the keys of compacted twins were compared, in SQL: one row each. Only a
proof that has read the row of a proof may change it; of key looks the last word stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, RowMapping, Table, select

from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.proof_values import KeyLookRow, ProofRow, ProofState
from twinshore.store.tables import key_looks, proofs

PLACE = ("link", "topic", "partition")


class Proofs(StorePart):
    """What was proven."""

    @writes
    def save(self, connection: Connection, rows: Sequence[ProofRow]) -> tuple[ProofRow, ...]:
        """Saves each row, as its next revision, if the stored one is as it was read: of the same revision, 0 where
        there was none. Returns the rows that were not saved, as another process has changed what they rest on."""
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

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[ProofRow, ...]:
        """What was proven of one link's partitions, or of all."""
        rows = _rows(connection, proofs, link)
        return tuple(ProofRow(**{**row, "state": ProofState(row["state"])}) for row in rows)


class KeyLooks(StorePart):
    """When keys were compared."""

    @writes
    def save(self, connection: Connection, rows: Sequence[KeyLookRow]) -> None:
        """When the keys of these partitions were compared; the last word stands."""
        put(connection, key_looks, [asdict(row) for row in rows])

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[KeyLookRow, ...]:
        """When the keys of one link's compacted twins were compared, or of all."""
        return tuple(KeyLookRow(**row) for row in _rows(connection, key_looks, link))


def _rows(connection: Connection, table: Table, link: str | None) -> Sequence[RowMapping]:
    """Those of one link or of all, by link, topic and partition."""
    query = select(table).order_by(*(table.c[name] for name in PLACE))
    return connection.execute(query if link is None else query.where(table.c.link == link)).mappings().all()
