"""SQL of proxies and clients: circuit breakers, proxy instances, offset resets, pushes and their tokens, traffic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, RowMapping, Table, delete, func, insert, select
from sqlalchemy.exc import DataError, IntegrityError

from twinshore.state import log, sql, tables
from twinshore.state.core.proxy_values import (
    MAX_FIELDS,
    SUM_FIELDS,
    BreakerCountRow,
    BreakerRow,
    DroppedRecordsRow,
    ProxyInstanceRow,
    ResetRow,
    ResetState,
    ResetStatusRow,
    TrafficCounter,
    TrafficKey,
    TrafficKind,
    TrafficRow,
)
from twinshore.state.core.values import AuditRow
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.log import SETTINGS_SUBJECT, RevisedRows, advance_revision
from twinshore.state.tables import (
    ID_LENGTH,
    NAME_LENGTH,
    exact_name,
    number,
    proxy_breaker_counts,
    proxy_breakers,
    proxy_drops,
    proxy_instances,
    proxy_reset_statuses,
    proxy_resets,
    revisions,
    row_table,
)

BREAKERS_SUBJECT = "proxy breakers"
# Reports of a proxy not seen for so long are obsolete.
INSTANCE_RETENTION_MS = 7 * 24 * 3600 * 1000
RESETS_SUBJECT = "proxy resets"
# Members sent away can no longer commit by then.
RESET_RETENTION_MS = 24 * 3600 * 1000


class Breakers(RevisedRows[BreakerRow]):
    """Circuit breakers."""

    subject, kind, table = BREAKERS_SUBJECT, BreakerRow, proxy_breakers

    @writes
    def change(
        self, connection: Connection, rows: Sequence[BreakerRow], *, seen: int, told: Sequence[AuditRow]
    ) -> bool:
        """Saves the rows, with `told` in the audit. False, and nothing done, if breakers were changed since `seen`."""
        if not advance_revision(connection, BREAKERS_SUBJECT, seen):
            return False
        sql.upsert(connection, proxy_breakers, [sql.values_of(row) for row in rows])
        log.add_audit_rows(connection, told)
        return True


class ProxyStore(StorePart):
    """The proxies, and what their breakers answered."""

    @reads
    def changes(self, connection: Connection) -> int:
        """Returns how often breakers or settings were changed."""
        subjects = revisions.c.subject.in_([BREAKERS_SUBJECT, SETTINGS_SUBJECT])
        return int(connection.scalar(select(func.sum(revisions.c.revision)).where(subjects)) or 0)

    @reads
    def instances(self, connection: Connection) -> tuple[ProxyInstanceRow, ...]:
        query = select(proxy_instances).order_by(proxy_instances.c.name, proxy_instances.c.started_ms)
        return sql.read_rows(connection, ProxyInstanceRow, query)

    @reads
    def counts(self, connection: Connection) -> tuple[BreakerCountRow, ...]:
        return sql.read_rows(connection, BreakerCountRow, select(proxy_breaker_counts))

    @reads
    def drops(self, connection: Connection, limit: int = 100) -> tuple[DroppedRecordsRow, ...]:
        query = select(proxy_drops).order_by(proxy_drops.c.since_ms.desc()).limit(limit)
        return sql.read_rows(connection, DroppedRecordsRow, query)

    @writes
    def tell(
        self,
        connection: Connection,
        row: ProxyInstanceRow,
        counts: Sequence[BreakerCountRow],
        drops: Sequence[DroppedRecordsRow],
    ) -> None:
        """Saves a proxy's report, replacing its last one."""
        sql.upsert(connection, proxy_instances, [sql.values_of(row)])
        sql.upsert(connection, proxy_breaker_counts, [sql.values_of(count) for count in counts])
        sql.upsert(connection, proxy_drops, [sql.values_of(drop) for drop in drops])

    @writes
    def forget_before(self, connection: Connection, now_ms: int) -> None:
        """Deletes proxies not seen for a week, and their counts; keeps the dropped records."""
        past_ms = now_ms - INSTANCE_RETENTION_MS
        connection.execute(delete(proxy_instances).where(proxy_instances.c.seen_ms < past_ms))
        connection.execute(delete(proxy_breaker_counts).where(proxy_breaker_counts.c.changed_ms < past_ms))

    @writes
    def leave(self, connection: Connection, instance: str) -> None:
        """Removes a proxy that ended in good order; keeps its counts."""
        connection.execute(delete(proxy_instances).where(proxy_instances.c.id == instance))


class ProxyResets(RevisedRows[ResetRow]):
    """Offset resets: a row for each group, and reports of proxies that hold the group."""

    subject, kind, table = RESETS_SUBJECT, ResetRow, proxy_resets

    @writes
    def change(self, connection: Connection, row: ResetRow, *, seen: int, rows: Sequence[AuditRow] = ()) -> bool:
        """Saves the row, with `rows` in the audit; False, and nothing done, where resets were changed since `seen`."""
        if not advance_revision(connection, RESETS_SUBJECT, seen):
            return False
        old = proxy_resets.c.state != ResetState.SETTING, proxy_resets.c.until_ms < row.since_ms - RESET_RETENTION_MS
        connection.execute(delete(proxy_resets).where(*old))
        sql.upsert(connection, proxy_resets, [sql.values_of(row)])
        log.add_audit_rows(connection, rows)
        return True

    @reads
    def statuses(self, connection: Connection, run: str) -> tuple[ResetStatusRow, ...]:
        query = select(proxy_reset_statuses).where(proxy_reset_statuses.c.run == run)
        return sql.read_rows(connection, ResetStatusRow, query)

    @writes
    def tell(self, connection: Connection, rows: Sequence[ResetStatusRow]) -> None:
        """Saves reports, replacing those proxies' last ones; deletes old ones."""
        if rows:
            past_ms = max(row.at_ms for row in rows) - RESET_RETENTION_MS
            connection.execute(delete(proxy_reset_statuses).where(proxy_reset_statuses.c.at_ms < past_ms))
            sql.upsert(connection, proxy_reset_statuses, [sql.values_of(row) for row in rows])


@dataclass(frozen=True, slots=True)
class PushRow:
    """An application's push. `revision`: counts pushes; never falls. `digest`: of `text`, empty once removed."""

    app: str
    revision: int
    digest: str
    text: str
    set_by: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class PushTokenRow:
    """The token with this digest may read the application's push, and with `may_push` change it."""

    digest: str
    app: str
    may_push: bool
    made_by: str
    made_ms: int


# `revision` never falls: a row stays, with an empty text, where its push was taken away. `digest` is of `text`.
pushes = row_table("pushes", PushRow, ("app",))
# Only a token's digest is stored: a reader of the store cannot use that.
push_tokens = row_table("push_tokens", PushTokenRow, ("digest",))


class PushStore(StorePart):
    @reads
    def revisions(self, connection: Connection) -> dict[str, int]:
        return {row.app: row.revision for row in connection.execute(select(pushes.c.app, pushes.c.revision))}

    @reads
    def of(self, connection: Connection, apps: Collection[str] | None = None) -> dict[str, PushRow]:
        query = select(pushes).order_by(pushes.c.app)
        if apps is not None:
            query = query.where(pushes.c.app.in_(list(apps)))
        return {row.app: row for row in sql.read_rows(connection, PushRow, query)}

    @writes
    def save(self, connection: Connection, row: PushRow, audit_row: AuditRow) -> bool:
        """Saves the row if its revision is the next one. False, and nothing done, after a concurrent push."""
        values = sql.values_of(row)
        if row.revision == 1:
            sql.insert_absent(connection, pushes, [values])
            stored = sql.read_row(connection, PushRow, select(pushes).where(pushes.c.app == row.app))
            taken = stored == PushRow(**values)
        else:
            taken = sql.swap_row(connection, pushes, {"app": row.app, "revision": row.revision - 1}, values)
        log.add_audit_rows(connection, [audit_row] if taken else [])
        return taken

    @reads
    def tokens(self, connection: Connection) -> tuple[PushTokenRow, ...]:
        query = select(push_tokens).order_by(push_tokens.c.app, push_tokens.c.made_ms, push_tokens.c.digest)
        return sql.read_rows(connection, PushTokenRow, query)

    @writes
    def add_token(self, connection: Connection, row: PushTokenRow, audit_row: AuditRow) -> None:
        sql.insert_absent(connection, push_tokens, [sql.values_of(row)])
        log.add_audit_rows(connection, [audit_row])

    @writes
    def revoke(self, connection: Connection, digest: str, row: AuditRow) -> bool:
        """Deletes the token; False where there is none."""
        taken = connection.execute(push_tokens.delete().where(push_tokens.c.digest == digest)).rowcount == 1
        log.add_audit_rows(connection, [row] if taken else [])
        return taken


_TEXTS = ("proxy", "client", "topic", "cluster", "kind", "software", "latency", "sizes")
# `row_index` counts the rows of a window: names of clients are too long for a key.
proxy_traffic = Table(
    "proxy_traffic",
    tables.metadata,
    Column("instance", exact_name(ID_LENGTH), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("row_index", Integer, primary_key=True, autoincrement=False),
    number("until_ms"),
    *map(number, (*SUM_FIELDS, *MAX_FIELDS)),
    *(Column(name, exact_name(NAME_LENGTH), nullable=False) for name in _TEXTS),
    Index("ix_proxy_traffic_until_ms", "until_ms"),
)

# Rows deleted by one statement: a large backlog is deleted in portions.
_FORGOTTEN_AT_ONCE = 20_000
# The largest that all databases keep.
_COUNT_MAX = 2**63 - 1
# Errors of a row with bad values: drivers raise some of them as Python's own.
_REFUSED = (DataError, IntegrityError, OverflowError, ValueError)


class TrafficStore(StorePart):
    @writes
    def tell(self, connection: Connection, rows: Sequence[TrafficRow]) -> int:
        """Saves one proxy's window, replacing the one with the same start. Returns how many rows the database refused
        for their values.
        """
        if not rows:
            return 0
        first = rows[0]
        ours = (proxy_traffic.c.instance == first.instance, proxy_traffic.c.since_ms == first.since_ms)
        values = [_values(row_index, row) for row_index, row in enumerate(rows)]
        connection.execute(delete(proxy_traffic).where(*ours))
        return 0 if _takes(connection, values) else sum(not _takes(connection, [one]) for one in values)

    @reads
    def rows(self, connection: Connection, from_ms: int, to_ms: int) -> tuple[TrafficRow, ...]:
        """Returns windows that ended after `from_ms`, until `to_ms`, by time."""
        c = proxy_traffic.c
        query = select(proxy_traffic).where(c.until_ms > from_ms, c.until_ms <= to_ms)
        rows = connection.execute(query.order_by(c.until_ms, c.instance, c.row_index)).mappings()
        return tuple(map(_row, rows))

    @writes
    def forget_before(self, connection: Connection, until_ms: int) -> int:
        """Deletes windows that ended before, and leaves some of very many; returns the number of rows."""
        end_ms = proxy_traffic.c.until_ms
        old = select(end_ms).where(end_ms < until_ms).order_by(end_ms)
        border = connection.scalar(old.offset(_FORGOTTEN_AT_ONCE).limit(1))
        ended = end_ms < (until_ms if border is None else border + 1)
        return connection.execute(delete(proxy_traffic).where(ended)).rowcount


def _takes(connection: Connection, values: Sequence[dict[str, Any]]) -> bool:
    """Inserts all rows or none; returns whether."""
    try:
        with connection.begin_nested():
            connection.execute(insert(proxy_traffic), values)
    except _REFUSED:
        return False
    return True


def _values(row_index: int, row: TrafficRow) -> dict[str, Any]:
    values = row.as_values() | {"latency": _text(row.flow.latency), "sizes": _text(row.flow.sizes)}
    counts = {name: min(_COUNT_MAX, values[name]) for name in (*SUM_FIELDS, *MAX_FIELDS)}
    texts = {name: sql.sanitize_text(values[name])[: tables.LENGTHS.get(name, NAME_LENGTH)] for name in _TEXTS}
    return {"instance": row.instance, "row_index": row_index, **values, **counts, **texts}


def _row(row: RowMapping) -> TrafficRow:
    counter = TrafficCounter(
        **{name: row[name] for name in (*SUM_FIELDS, *MAX_FIELDS)},
        software=row["software"],
        latency=_numbers(row["latency"]),
        sizes=_numbers(row["sizes"]),
    )
    key = TrafficKey(row["client"], row["topic"], row["cluster"], TrafficKind(row["kind"]))
    return TrafficRow(row["instance"], row["proxy"], row["since_ms"], row["until_ms"], key, counter)


def _text(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]
