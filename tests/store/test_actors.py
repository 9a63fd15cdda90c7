"""Who did it and what it was about are columns of the audit: rows of versions before get what their texts say."""

from __future__ import annotations

from alembic import command
from sqlalchemy import Connection, column, insert, table, text

from tests.store.older import open_upgraded
from twinshore.fleet import Secret
from twinshore.store.engine import Database
from twinshore.store.migrate import scripts
from twinshore.store.schema import VERSION_TABLE, schema_of
from twinshore.store.tables import metadata

# Kind, subject and outcome as versions before wrote them, then the actor and the topic.
WRITTEN = (
    ("control", "paused", "by anna", "anna", ""),
    ("topic", "orders", "agreed by bert of ops", "bert of ops", "orders"),
    ("topic", "all topics", "by anna", "anna", ""),
    ("topic", "orders", "keep the twin", "the mirror", "orders"),
    ("resume", "orders-0", "by anna", "anna", ""),
    ("twin", "orders", "done", "the mirror", "orders"),
    ("topic setting", "segment.ms of orders", "refused: no right", "the mirror", ""),
    ("group", "billing orders-0 on west", "done", "", ""),
)


def as_before(connection: Connection) -> None:
    metadata.drop_all(connection)
    connection.execute(text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))
    config = scripts()
    config.attributes["connection"] = connection
    command.upgrade(config, "0014")
    names = ("at_ms", "link", "kind", "subject", "before", "after", "outcome")
    audit = table("audit", *(column(name) for name in names))
    for at_ms, (kind, subject, outcome, *_) in enumerate(WRITTEN):
        row = (at_ms, "east->west", kind, subject, "", "", outcome)
        connection.execute(insert(audit).values(**dict(zip(names, row, strict=True))))


def test_rows_of_a_store_before_say_who_did_it_as_far_as_they_did(store_url: str) -> None:
    database = Database(store_url, Secret())
    database.write(as_before)
    assert database.read(schema_of) == "0014"
    database.close()
    with open_upgraded(store_url) as store:
        rows = reversed(store.audit.rows())
        found = [(one.kind, one.subject, one.outcome, one.actor, one.topic) for one in rows]
    assert found == list(WRITTEN)
