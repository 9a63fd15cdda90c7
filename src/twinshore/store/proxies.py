"""What proxies are told and what they say, in SQL: fuses with one number that grows, and a row for each that serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, select

from twinshore.store import audit
from twinshore.store.dialects import put, storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.proxy_tables import (
    CLIENT_LENGTH,
    NAME_LENGTH,
    proxy_drops,
    proxy_fuse_counts,
    proxy_fuses,
    proxy_instances,
    proxy_reset_words,
    proxy_resets,
)
from twinshore.store.proxy_values import (
    DropRow,
    FuseCountRow,
    FuseKind,
    FusePolicy,
    FuseRow,
    FuseState,
    InstanceRow,
    Limits,
    ResetRow,
    ResetState,
    ResetWord,
    goals_of,
    goals_text,
)
from twinshore.store.revisions import advance, revision_of
from twinshore.store.tables import ACTOR_LENGTH
from twinshore.store.values import AuditRow

FUSES = "proxy fuses"
# What a proxy said of itself that was not heard of for so long says nothing any more.
FORGOTTEN_MS = 7 * 24 * 3600 * 1000
RESETS = "proxy resets"
# What a member that was sent away may still commit is long over then.
RESET_FORGOTTEN_MS = 24 * 3600 * 1000


class Proxies(StorePart):
    """Fuses, and the processes that go by them."""

    @reads
    def revision(self, connection: Connection) -> int:
        """How often fuses were changed."""
        return revision_of(connection, FUSES)

    @reads
    def fuses(self, connection: Connection) -> tuple[int, tuple[FuseRow, ...]]:
        """All of them, with the number of changes that they are as of."""
        # First the number: who reads a change that comes between the two reads it again.
        seen = revision_of(connection, FUSES)
        query = select(proxy_fuses).order_by(proxy_fuses.c.topic, proxy_fuses.c.client, proxy_fuses.c.kind)
        return seen, tuple(_fuse(row) for row in connection.execute(query).mappings())

    @writes
    def change(self, connection: Connection, rows: Sequence[FuseRow], *, seen: int, told: Sequence[AuditRow]) -> bool:
        """Puts the rows, with `told` in the audit; False, and nothing done, where fuses were changed since `seen`."""
        if not advance(connection, FUSES, seen):
            return False
        put(connection, proxy_fuses, [_fuse_values(row) for row in rows])
        audit.add(connection, told)
        return True

    @reads
    def instances(self, connection: Connection) -> tuple[InstanceRow, ...]:
        """Who serves, as each said last."""
        query = select(proxy_instances).order_by(proxy_instances.c.name, proxy_instances.c.started_ms)
        return tuple(InstanceRow(**row) for row in connection.execute(query).mappings())

    @reads
    def counts(self, connection: Connection) -> tuple[FuseCountRow, ...]:
        """What fuses answered."""
        rows = connection.execute(select(proxy_fuse_counts)).mappings()
        return tuple(FuseCountRow(**{**row, "kind": FuseKind(row["kind"])}) for row in rows)

    @reads
    def drops(self, connection: Connection, limit: int = 100) -> tuple[DropRow, ...]:
        """The newest of the ledger of dropped records, newest first."""
        query = select(proxy_drops).order_by(proxy_drops.c.since_ms.desc()).limit(limit)
        return tuple(DropRow(**row) for row in connection.execute(query).mappings())

    @writes
    def tell(
        self, connection: Connection, row: InstanceRow, counts: Sequence[FuseCountRow], drops: Sequence[DropRow]
    ) -> None:
        """What a proxy says of itself, instead of what it said before."""
        put(connection, proxy_instances, [_shortened(asdict(row))])
        put(connection, proxy_fuse_counts, [_shortened(asdict(one)) for one in counts])
        put(connection, proxy_drops, [_shortened(asdict(one)) for one in drops])

    @writes
    def forget_before(self, connection: Connection, now_ms: int) -> None:
        """Of proxies that have not been heard of for a week only the ledger is kept."""
        past_ms = now_ms - FORGOTTEN_MS
        connection.execute(delete(proxy_instances).where(proxy_instances.c.seen_ms < past_ms))
        connection.execute(delete(proxy_fuse_counts).where(proxy_fuse_counts.c.changed_ms < past_ms))

    @writes
    def leave(self, connection: Connection, instance: str) -> None:
        """The process ends in good order; what its fuses answered is kept."""
        connection.execute(delete(proxy_instances).where(proxy_instances.c.id == instance))


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """As every database takes it: clients may call themselves anything."""
    longest = {"client": CLIENT_LENGTH, "name": NAME_LENGTH, "host": NAME_LENGTH}
    return values | {name: storable(values[name])[:size] for name, size in longest.items() if name in values}


def _fuse_values(row: FuseRow) -> dict[str, Any]:
    kept = replace(row, reason=storable(row.reason), set_by=storable(row.set_by)[:ACTOR_LENGTH])
    values = _shortened(asdict(kept))
    limits: dict[str, Any] = values.pop("limits")
    return values | limits


def _fuse(row: RowMapping) -> FuseRow:
    values: dict[str, Any] = dict(row)
    limits = Limits(**{name: values.pop(name) for name in Limits.__dataclass_fields__})
    kinds = {"kind": FuseKind(row["kind"]), "state": FuseState(row["state"]), "policy": FusePolicy(row["policy"])}
    return FuseRow(**{**values, **kinds}, limits=limits)


class ProxyResets(StorePart):
    """Resets of groups' places: a row for each group that was reset, and what proxies say of those that hold. One
    number grows with each change."""

    @reads
    def revision(self, connection: Connection) -> int:
        """How often resets were changed."""
        return revision_of(connection, RESETS)

    @reads
    def all(self, connection: Connection) -> tuple[int, tuple[ResetRow, ...]]:
        """Each, with the number of changes that they are as of."""
        # First the number: who reads a change that comes between the two reads it again.
        seen = revision_of(connection, RESETS)
        query = select(proxy_resets).order_by(proxy_resets.c.group_id)
        return seen, tuple(_reset_row(row) for row in connection.execute(query).mappings())

    @writes
    def change(self, connection: Connection, row: ResetRow, *, seen: int, told: Sequence[AuditRow] = ()) -> bool:
        """Puts the row, with `told` in the audit; False, and nothing done, where resets were changed since `seen`."""
        if not advance(connection, RESETS, seen):
            return False
        old = proxy_resets.c.state != ResetState.SETTING, proxy_resets.c.until_ms < row.since_ms - RESET_FORGOTTEN_MS
        connection.execute(delete(proxy_resets).where(*old))
        put(connection, proxy_resets, [_reset_values(row)])
        audit.add(connection, told)
        return True

    @reads
    def words(self, connection: Connection, run: str) -> tuple[ResetWord, ...]:
        """What proxies say of this one."""
        query = select(proxy_reset_words).where(proxy_reset_words.c.run == run)
        return tuple(ResetWord(**row) for row in connection.execute(query).mappings())

    @writes
    def tell(self, connection: Connection, words: Sequence[ResetWord]) -> None:
        """What a proxy says, instead of what it said before; what was said long ago goes."""
        if words:
            past_ms = max(one.at_ms for one in words) - RESET_FORGOTTEN_MS
            connection.execute(delete(proxy_reset_words).where(proxy_reset_words.c.at_ms < past_ms))
            put(connection, proxy_reset_words, [asdict(one) for one in words])


def _reset_values(row: ResetRow) -> dict[str, Any]:
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


def _reset_row(row: RowMapping) -> ResetRow:
    values: dict[str, Any] = dict(row)
    told = {"group": values.pop("group_id"), "state": ResetState(row["state"])}
    kept = {"goals": goals_of(row["goals"]), "members": frozenset(json.loads(row["members"]))}
    return ResetRow(**{**values, **told, **kept})
