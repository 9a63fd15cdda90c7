"""What belongs to a link, in SQL: whom it writes as, and what the mirror last said of it."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.engine import Database
from twinshore.store.tables import link_identities, link_status, store_identity
from twinshore.store.values import LinkIdentity, LinkStatus


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


def save_status(connection: Connection, status: LinkStatus) -> None:
    """Replaces what was said of the link before."""
    put(connection, link_status, [{**asdict(status), "sentence": storable(status.sentence)}])


def read_statuses(connection: Connection) -> tuple[LinkStatus, ...]:
    """What was last said of each link, by name."""
    rows = connection.execute(select(link_status).order_by(link_status.c.link)).mappings()
    return tuple(LinkStatus(**row) for row in rows)


class Links:
    """Each link, and which store this is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def own_id(self, fresh: str) -> str:
        """Which store this is: `fresh` where nobody has asked yet. It goes wherever the store is moved or restored."""
        return self._database.write(lambda connection: own_id(connection, fresh))

    def identity(self, link: str) -> LinkIdentity | None:
        """Whom the link writes as; None before its first start."""
        return self._database.read(lambda connection: read_identity(connection, link))

    def save_identity(self, identity: LinkIdentity) -> LinkIdentity:
        """The link's identity from now on: this one, or the one another process saved first."""
        return self._database.write(lambda connection: save_identity(connection, identity))

    def replace_identity(self, seen: LinkIdentity, new: LinkIdentity) -> bool:
        """Whether the identity was still as `seen` and is `new` now."""
        return self._database.write(lambda connection: replace_identity(connection, seen, new))

    def save_status(self, status: LinkStatus) -> None:
        """What the mirror says of a link; the last word stands."""
        self._database.write(lambda connection: save_status(connection, status))

    def statuses(self) -> tuple[LinkStatus, ...]:
        """The last word on each link, by name."""
        return self._database.read(read_statuses)
