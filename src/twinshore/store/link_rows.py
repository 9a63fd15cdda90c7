"""What each link is, in SQL: a row for each, and one revision for all: whoever follows sees by it that any changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, select

from twinshore.fleet import is_heartbeats
from twinshore.store import audit, controls, twins
from twinshore.store.dialects import put
from twinshore.store.engine import Database
from twinshore.store.revisions import LINKS, advance, revision_of
from twinshore.store.tables import link_rows
from twinshore.store.values import AuditRow, LinkRow, LinkState


def read(connection: Connection) -> tuple[LinkRow, ...]:
    """All of them, by name."""
    rows = connection.execute(select(link_rows).order_by(link_rows.c.link)).mappings()
    return tuple(LinkRow(**{**row, "state": LinkState(row["state"])}) for row in rows)


def change(
    connection: Connection,
    rows: Sequence[LinkRow],
    seen: int,
    told: Sequence[AuditRow],
    turned: tuple[str, str] | None = None,
) -> bool:
    """Puts the rows at the next revision, hands on what operators said of a link that is `turned` into the other, and
    tells the audit; False, and nothing done, when any link was changed since `seen`, or when one of those `turned` has
    a twin, but for those of heartbeats."""
    if not advance(connection, LINKS, seen):
        return False
    put(connection, link_rows, [{**asdict(row), "state": row.state.value, "revision": seen + 1} for row in rows])
    if turned:
        # The rows are locked by now: whoever saves a twin holds its link's row first, and finds the link turned.
        if any(not is_heartbeats(row.topic) for link in turned for row in twins.read(connection, link)):
            raise _HasTwinError
        controls.hand_on(connection, *turned)
    audit.add(connection, told)
    return True


class _HasTwinError(Exception):
    """Ends the transaction, so that the links stay as they were."""


class LinkRows:
    """What each link is: those that were removed too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> tuple[int, tuple[LinkRow, ...]]:
        """The revision and the rows by name, as of one moment or the rows newer: so no change is missed."""
        return self._database.read(lambda connection: (revision_of(connection, LINKS), read(connection)))

    def change(
        self,
        rows: Sequence[LinkRow],
        *,
        seen: int,
        told: Sequence[AuditRow] = (),
        turned: tuple[str, str] | None = None,
    ) -> bool:
        """Whether the revision was still `seen`, no twin is in the way of those `turned`, and the rows stand now. The
        audit is told with it; what operators said of the first of `turned` is said of the second from now on."""
        try:
            return self._database.write(lambda connection: change(connection, rows, seen, told, turned))
        except _HasTwinError:
            return False
