"""What belongs to a link, in SQL: whom it writes as, its twins, what the mirror last said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, select

from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.tables import link_identities, link_status, store_identity, twins
from twinshore.store.values import LinkIdentity, LinkStatus, TwinRow


def own_id(connection: Connection, fresh: str) -> str:
    """The store's own id from now on: `fresh`, or the one that it has."""
    insert_absent(connection, store_identity, [{"row": 1, "store_id": fresh}])
    return str(connection.scalar(select(store_identity.c.store_id)))


def read_identity(connection: Connection, link: str) -> LinkIdentity | None:
    """Whom the link writes as."""
    query = select(link_identities).where(link_identities.c.link == link)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else LinkIdentity(**row)


def save_identity(connection: Connection, identity: LinkIdentity) -> LinkIdentity:
    """The identity that stands afterwards: the one given, or the one that was there first."""
    insert_absent(connection, link_identities, [asdict(identity)])
    return read_identity(connection, identity.link) or identity


def replace_identity(connection: Connection, seen: LinkIdentity, new: LinkIdentity) -> bool:
    """Whether it still was as seen, and so was replaced."""
    as_seen = [link_identities.c[name] == value for name, value in asdict(seen).items()]
    return connection.execute(link_identities.update().where(*as_seen).values(asdict(new))).rowcount == 1


def read_twins(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Every twin partition of the link, by topic and partition."""
    query = select(twins).where(twins.c.link == link).order_by(twins.c.topic, twins.c.partition)
    return tuple(_twin(row) for row in connection.execute(query).mappings())


def count_twins(connection: Connection, link: str) -> int:
    """How many twin partitions the link has: quick, where many are asked for often."""
    return int(connection.execute(select(func.count()).select_from(twins).where(twins.c.link == link)).scalar_one())


def save_twins(connection: Connection, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...]:
    """The rows that stand afterwards, in the order given: each its own, or the one that was there first."""
    insert_absent(connection, twins, [asdict(row) for row in rows])
    standing: dict[tuple[str, str, int], TwinRow] = {}
    for link in {row.link for row in rows}:
        standing |= {(row.link, row.topic, row.partition): row for row in read_twins(connection, link)}
    return tuple(standing[row.link, row.topic, row.partition] for row in rows)


def forget_twins(connection: Connection, link: str, topic: str) -> int:
    """Drops the topic's twin rows; returns how many there were."""
    return connection.execute(twins.delete().where(twins.c.link == link, twins.c.topic == topic)).rowcount


def replace_twin(connection: Connection, seen: TwinRow, new: TwinRow) -> bool:
    """Whether it still was as seen, and so was replaced."""
    as_seen = and_(*(twins.c[name] == value for name, value in asdict(seen).items()))
    return connection.execute(twins.update().where(as_seen).values(asdict(new))).rowcount == 1


def save_status(connection: Connection, status: LinkStatus) -> None:
    """Replaces what was said of the link before."""
    put(connection, link_status, [{**asdict(status), "sentence": storable(status.sentence)}])


def read_statuses(connection: Connection) -> tuple[LinkStatus, ...]:
    """What was last said of each link, by name."""
    rows = connection.execute(select(link_status).order_by(link_status.c.link)).mappings()
    return tuple(LinkStatus(**row) for row in rows)


def _twin(row: RowMapping) -> TwinRow:
    values: dict[str, Any] = dict(row)
    return TwinRow(**values)
