"""All that is known of a topic that a link carries, in SQL, as one thing."""

from __future__ import annotations

from sqlalchemy import Connection

from twinshore.store import extents, key_looks, proofs, receipts, twins


def forget(connection: Connection, link: str, topic: str) -> int:
    """Drops the topic's twin and what hangs on it; the ledger and the audit stay. How many partitions were known."""
    partitions = twins.forget(connection, link, topic)
    receipts.forget(connection, link, topic)
    extents.forget(connection, link, topic)
    proofs.forget(connection, link, topic)
    key_looks.forget(connection, link, topic)
    return partitions
