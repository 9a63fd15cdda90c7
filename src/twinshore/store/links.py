"""What belongs to a link, in SQL: whom it writes as, its twins, what the mirror last said of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import BindParameter, Connection, RowMapping, and_, bindparam, func, select

from twinshore.store.dialects import insert_absent, put, standing, storable
from twinshore.store.tables import link_identities, link_status, store_identity, twins
from twinshore.store.values import LinkIdentity, LinkStatus, TwinRow

_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_LOCK = select(twins.c.partition).where(twins.c.link == bindparam("of"), twins.c.topic.in_(_SOME))
_LOCK = _LOCK.order_by(*twins.primary_key).with_for_update()
TOPICS_LOCKED = 500  # Values in one IN list.


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
    values = [asdict(row) for row in rows]
    return standing(
        lambda: insert_absent(connection, twins, values), lambda: _locked(connection, rows), "the row of a twin"
    )


def lock_twins(connection: Connection, topics: Iterable[tuple[str, str]]) -> None:
    """Until this transaction ends no other one passes here for the same (link, topic): whoever reads extents to write
    them comes this way first. A twin's row is there before its first extent."""
    by_link: dict[str, set[str]] = {}
    for link, topic in topics:
        by_link.setdefault(link, set()).add(topic)
    for link, names in sorted(by_link.items()):
        some = sorted(names)
        for start in range(0, len(some), TOPICS_LOCKED):
            connection.execute(_LOCK, {"of": link, "some": some[start : start + TOPICS_LOCKED]}).all()


def forget_twins(connection: Connection, link: str, topic: str) -> int:
    """Drops the topic's twin rows; returns how many there were."""
    # A delete sees what stood when it began: behind the lock, that is all of what others have done.
    lock_twins(connection, [(link, topic)])
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


def _locked(connection: Connection, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...] | None:
    """What stands for each of the rows, and stays so until the transaction ends; None where one of them is gone."""
    lock_twins(connection, {(row.link, row.topic) for row in rows})
    known: dict[tuple[str, str, int], TwinRow] = {}
    for link in {row.link for row in rows}:
        known |= {(row.link, row.topic, row.partition): row for row in read_twins(connection, link)}
    places = [(row.link, row.topic, row.partition) for row in rows]
    return tuple(known[place] for place in places) if all(place in known for place in places) else None


def _twin(row: RowMapping) -> TwinRow:
    values: dict[str, Any] = dict(row)
    return TwinRow(**values)
