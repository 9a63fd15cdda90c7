"""When the keys of compacted twins were compared, in SQL: one row for each partition, the last word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import put
from twinshore.store.engine import Database
from twinshore.store.proof_values import KeyLookRow
from twinshore.store.tables import key_looks


def save(connection: Connection, rows: Sequence[KeyLookRow]) -> None:
    """Each row stands from now on as given."""
    put(connection, key_looks, [asdict(row) for row in rows])


def read(connection: Connection, link: str | None) -> tuple[KeyLookRow, ...]:
    """The rows of one link or of all, by link, topic and partition."""
    query = select(key_looks).order_by(key_looks.c.link, key_looks.c.topic, key_looks.c.partition)
    if link is not None:
        query = query.where(key_looks.c.link == link)
    return tuple(KeyLookRow(**row) for row in connection.execute(query).mappings())


def forget(connection: Connection, link: str, topic: str) -> None:
    """Drops what is known of a topic."""
    connection.execute(key_looks.delete().where(key_looks.c.link == link, key_looks.c.topic == topic))


class KeyLooks:
    """When keys were compared."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, rows: Sequence[KeyLookRow]) -> None:
        """When the keys of these partitions were compared; the last word stands."""
        self._database.write(lambda connection: save(connection, rows))

    def of(self, link: str | None = None) -> tuple[KeyLookRow, ...]:
        """When the keys of one link's compacted twins were compared, or of all."""
        return self._database.read(lambda connection: read(connection, link))
