"""Resets of groups' places, in SQL: a row for each group that was reset, and what proxies say of those that hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, select

from twinshore.store import audit
from twinshore.store.dialects import put, storable
from twinshore.store.engine import Database
from twinshore.store.proxy_tables import proxy_reset_words, proxy_resets
from twinshore.store.proxy_values import ResetRow, ResetState, ResetWord, goals_of, goals_text
from twinshore.store.revisions import advance, revision_of
from twinshore.store.tables import ACTOR_LENGTH
from twinshore.store.values import AuditRow

RESETS = "proxy resets"
# What a member that was sent away may still commit is long over then.
FORGOTTEN_MS = 24 * 3600 * 1000


class ProxyResets:
    """Those that there are, by one number that grows with each change."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def revision(self) -> int:
        """How often resets were changed."""
        return self._database.read(lambda connection: revision_of(connection, RESETS))

    def all(self) -> tuple[int, tuple[ResetRow, ...]]:
        """Each, with the number of changes that they are as of."""

        def ask(connection: Connection) -> tuple[int, tuple[ResetRow, ...]]:
            # First the number: who reads a change that comes between the two reads it again.
            seen = revision_of(connection, RESETS)
            query = select(proxy_resets).order_by(proxy_resets.c.group_id)
            return seen, tuple(_row(row) for row in connection.execute(query).mappings())

        return self._database.read(ask)

    def change(self, row: ResetRow, *, seen: int, told: Sequence[AuditRow] = ()) -> bool:
        """Puts the row, with `told` in the audit; False, and nothing done, where resets were changed since `seen`."""

        def write(connection: Connection) -> bool:
            if not advance(connection, RESETS, seen):
                return False
            old = (proxy_resets.c.state != ResetState.SETTING, proxy_resets.c.until_ms < row.since_ms - FORGOTTEN_MS)
            connection.execute(delete(proxy_resets).where(*old))
            put(connection, proxy_resets, [_values(row)])
            audit.add(connection, told)
            return True

        return self._database.write(write)

    def words(self, run: str) -> tuple[ResetWord, ...]:
        """What proxies say of this one."""
        query = select(proxy_reset_words).where(proxy_reset_words.c.run == run)

        def ask(connection: Connection) -> tuple[ResetWord, ...]:
            return tuple(ResetWord(**row) for row in connection.execute(query).mappings())

        return self._database.read(ask)

    def tell(self, words: Sequence[ResetWord]) -> None:
        """What a proxy says, instead of what it said before; what was said long ago goes."""

        def write(connection: Connection) -> None:
            past_ms = max(one.at_ms for one in words) - FORGOTTEN_MS
            connection.execute(delete(proxy_reset_words).where(proxy_reset_words.c.at_ms < past_ms))
            put(connection, proxy_reset_words, [asdict(one) for one in words])

        if words:
            self._database.write(write)


def _values(row: ResetRow) -> dict[str, Any]:
    return {
        "group_id": row.group,
        "run": row.run,
        "state": row.state,
        "set_by": storable(row.set_by)[:ACTOR_LENGTH],
        "since_ms": row.since_ms,
        "until_ms": row.until_ms,
        "goals": goals_text(row.goals),
        "members": json.dumps(sorted(row.members)),
    }


def _row(row: RowMapping) -> ResetRow:
    values: dict[str, Any] = dict(row)
    told = {"group": values.pop("group_id"), "state": ResetState(row["state"])}
    kept = {"goals": goals_of(row["goals"]), "members": frozenset(json.loads(row["members"]))}
    return ResetRow(**{**values, **told, **kept})
