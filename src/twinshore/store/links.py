"""What each link is, whom it writes as, and what the mirror last said of it, in SQL. All links have one revision:
whoever follows sees by it that any changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.fleet import is_heartbeats
from twinshore.store import audit, controls, twins
from twinshore.store.dialects import insert_absent, put, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.revisions import LINKS, advance, revision_of
from twinshore.store.tables import link_identities, link_rows, link_status, store_identity
from twinshore.store.values import AuditRow, LinkIdentity, LinkRow, LinkState, LinkStatus, naming_of


class Links(StorePart):
    """Each link, and which store this is."""

    @writes
    def own_id(self, connection: Connection, fresh: str) -> str:
        """Which store this is: `fresh` where nobody has asked yet. It goes wherever the store is moved or restored."""
        insert_absent(connection, store_identity, [{"row": 1, "store_id": fresh}])
        return str(connection.scalar(select(store_identity.c.store_id)))

    def identity(self, link: str) -> LinkIdentity | None:
        """Whom the link writes as; None before its first start."""
        return self._database.read(lambda connection: _identity(connection, link))

    @reads
    def identities(self, connection: Connection) -> tuple[LinkIdentity, ...]:
        """Of every link that ever began."""
        return tuple(LinkIdentity(**row) for row in connection.execute(select(link_identities)).mappings())

    @writes
    def save_identity(self, connection: Connection, identity: LinkIdentity) -> LinkIdentity:
        """The link's identity from now on: this one, or the one another process saved first."""
        insert_absent(connection, link_identities, [asdict(identity)])
        return _identity(connection, identity.link) or identity

    @writes
    def replace_identity(self, connection: Connection, seen: LinkIdentity, new: LinkIdentity) -> bool:
        """Whether the identity was still as `seen` and is `new` now."""
        as_seen = [link_identities.c[name] == value for name, value in asdict(seen).items()]
        return connection.execute(link_identities.update().where(*as_seen).values(asdict(new))).rowcount == 1

    @writes
    def save_status(self, connection: Connection, status: LinkStatus) -> None:
        """What the mirror says of a link; the last word stands."""
        put(connection, link_status, [{**asdict(status), "sentence": storable(status.sentence)}])

    @reads
    def statuses(self, connection: Connection) -> tuple[LinkStatus, ...]:
        """The last word on each link, by name."""
        rows = connection.execute(select(link_status).order_by(link_status.c.link)).mappings()
        return tuple(LinkStatus(**row) for row in rows)


def _identity(connection: Connection, link: str) -> LinkIdentity | None:
    query = select(link_identities).where(link_identities.c.link == link)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else LinkIdentity(**row)


class LinkRows(StorePart):
    """What each link is: those that were removed too."""

    @reads
    def read(self, connection: Connection) -> tuple[int, tuple[LinkRow, ...]]:
        """The revision and the rows by name, as of one moment or the rows newer: so no change is missed."""
        revision = revision_of(connection, LINKS)
        rows = connection.execute(select(link_rows).order_by(link_rows.c.link)).mappings()
        return revision, tuple(LinkRow(**{**row, "state": LinkState(row["state"])}) for row in rows)

    def change(
        self,
        rows: Sequence[LinkRow],
        *,
        seen: int,
        told: Sequence[AuditRow] = (),
        turned: tuple[str, str] | None = None,
    ) -> bool:
        """Whether the revision was still `seen`, no twin, but for those of heartbeats, is in the way of those `turned`
        or named otherwise, and the rows stand now at the next revision; else nothing is done. The audit is told with
        it; what operators said of the first of `turned` is said of the second from now on."""
        try:
            return self._change(rows, seen, told, turned)
        except twins.HasTwinError:
            return False

    @writes
    def _change(
        self,
        connection: Connection,
        rows: Sequence[LinkRow],
        seen: int,
        told: Sequence[AuditRow],
        turned: tuple[str, str] | None,
    ) -> bool:
        if not advance(connection, LINKS, seen):
            return False
        now = {row.link: naming_of(row.section) for row in rows}
        ours = select(link_rows).where(link_rows.c.link.in_(sorted(now))).order_by(link_rows.c.link)
        known = connection.execute(ours.with_for_update()).all()
        bare = [row.link for row in known if naming_of(row.section) != now[row.link]] + list(turned or ())
        put(connection, link_rows, [{**asdict(row), "state": row.state.value, "revision": seen + 1} for row in rows])
        # The rows are locked by now: whoever saves a twin holds its link's row first, and finds the link changed.
        if any(not is_heartbeats(row.topic) for link in bare for row in twins.read(connection, link)):
            raise twins.HasTwinError
        if turned:
            controls.hand_on(connection, *turned)
        audit.add(connection, told)
        return True
