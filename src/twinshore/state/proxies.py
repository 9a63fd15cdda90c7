"""SQL of proxies and clients: circuit breakers, proxy instances, offset resets, pushes and their tokens, traffic."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    RowMapping,
    Table,
    delete,
    insert,
    select,
)
from sqlalchemy.exc import DataError, IntegrityError

from twinshore.state import log
from twinshore.state.core.proxy_values import (
    MAX_FIELDS,
    SUM_FIELDS,
    BreakerCountRow,
    BreakerKind,
    BreakerLimits,
    BreakerPolicy,
    BreakerRow,
    BreakerState,
    DroppedRecordsRow,
    ProxyInstanceRow,
    ResetRow,
    ResetState,
    ResetStatusRow,
    TrafficCounter,
    TrafficKey,
    TrafficKind,
    TrafficRow,
    encode_goals,
    parse_goals,
)
from twinshore.state.core.values import AuditRow
from twinshore.state.database import StorePart, insert_absent, reads, sanitize_text, upsert, writes
from twinshore.state.log import advance_revision, read_revision
from twinshore.state.tables import (
    ACTOR_LENGTH,
    CLIENT_LENGTH,
    INSTANCE_LENGTH,
    NAME_LENGTH,
    TOPIC_LENGTH,
    exact_name,
    long_text,
    metadata,
    number,
    proxy_breaker_counts,
    proxy_breakers,
    proxy_drops,
    proxy_instances,
    proxy_reset_statuses,
    proxy_resets,
)

BREAKERS_SUBJECT = "proxy breakers"
# Reports of a proxy not seen for so long are obsolete.
INSTANCE_RETENTION_MS = 7 * 24 * 3600 * 1000
RESETS_SUBJECT = "proxy resets"
# Members sent away can no longer commit by then.
RESET_RETENTION_MS = 24 * 3600 * 1000


class ProxyStore(StorePart):
    """Circuit breakers, and the proxies that apply them."""

    @reads
    def revision(self, connection: Connection) -> int:
        return read_revision(connection, BREAKERS_SUBJECT)

    @reads
    def breakers(self, connection: Connection) -> tuple[int, tuple[BreakerRow, ...]]:
        """Returns the revision and all breakers. The breakers may be newer, never older."""
        # First the revision: a change between the two reads is then read again.
        seen = read_revision(connection, BREAKERS_SUBJECT)
        query = select(proxy_breakers).order_by(proxy_breakers.c.topic, proxy_breakers.c.client, proxy_breakers.c.kind)
        return seen, tuple(_breaker(row) for row in connection.execute(query).mappings())

    @writes
    def change(
        self, connection: Connection, rows: Sequence[BreakerRow], *, seen: int, told: Sequence[AuditRow]
    ) -> bool:
        """Saves the rows, with `told` in the audit. False, and nothing done, if breakers were changed since `seen`."""
        if not advance_revision(connection, BREAKERS_SUBJECT, seen):
            return False
        upsert(connection, proxy_breakers, [_breaker_values(row) for row in rows])
        log.add_audit_rows(connection, told)
        return True

    @reads
    def instances(self, connection: Connection) -> tuple[ProxyInstanceRow, ...]:
        query = select(proxy_instances).order_by(proxy_instances.c.name, proxy_instances.c.started_ms)
        return tuple(ProxyInstanceRow(**row) for row in connection.execute(query).mappings())

    @reads
    def counts(self, connection: Connection) -> tuple[BreakerCountRow, ...]:
        rows = connection.execute(select(proxy_breaker_counts)).mappings()
        return tuple(BreakerCountRow(**{**row, "kind": BreakerKind(row["kind"])}) for row in rows)

    @reads
    def drops(self, connection: Connection, limit: int = 100) -> tuple[DroppedRecordsRow, ...]:
        query = select(proxy_drops).order_by(proxy_drops.c.since_ms.desc()).limit(limit)
        return tuple(DroppedRecordsRow(**row) for row in connection.execute(query).mappings())

    @writes
    def tell(
        self,
        connection: Connection,
        row: ProxyInstanceRow,
        counts: Sequence[BreakerCountRow],
        drops: Sequence[DroppedRecordsRow],
    ) -> None:
        """Saves a proxy's report, replacing its last one."""
        upsert(connection, proxy_instances, [_shortened(asdict(row))])
        upsert(
            connection, proxy_breaker_counts, [_shortened(asdict(breaker_count_row)) for breaker_count_row in counts]
        )
        upsert(connection, proxy_drops, [_shortened(asdict(one)) for one in drops])

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


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Cuts names to column lengths: clients choose any name."""
    longest = {"client": CLIENT_LENGTH, "name": NAME_LENGTH, "host": NAME_LENGTH}
    return values | {name: sanitize_text(values[name])[:size] for name, size in longest.items() if name in values}


def _breaker_values(row: BreakerRow) -> dict[str, Any]:
    kept = replace(row, reason=sanitize_text(row.reason), set_by=sanitize_text(row.set_by)[:ACTOR_LENGTH])
    values = _shortened(asdict(kept))
    limits: dict[str, Any] = values.pop("limits")
    return values | limits


def _breaker(row: RowMapping) -> BreakerRow:
    values: dict[str, Any] = dict(row)
    limits = BreakerLimits(**{name: values.pop(name) for name in BreakerLimits.__dataclass_fields__})
    kinds = {
        "kind": BreakerKind(row["kind"]),
        "state": BreakerState(row["state"]),
        "policy": BreakerPolicy(row["policy"]),
    }
    return BreakerRow(**{**values, **kinds}, limits=limits)


class ProxyResets(StorePart):
    """Offset resets: a row for each group, and reports of proxies that hold the group. One revision for all."""

    @reads
    def revision(self, connection: Connection) -> int:
        return read_revision(connection, RESETS_SUBJECT)

    @reads
    def all(self, connection: Connection) -> tuple[int, tuple[ResetRow, ...]]:
        """Returns the revision and all resets. The resets may be newer, never older."""
        # First the revision: a change between the two reads is then read again.
        seen = read_revision(connection, RESETS_SUBJECT)
        query = select(proxy_resets).order_by(proxy_resets.c.group_id)
        return seen, tuple(_reset_row(row) for row in connection.execute(query).mappings())

    @writes
    def change(self, connection: Connection, row: ResetRow, *, seen: int, rows: Sequence[AuditRow] = ()) -> bool:
        """Saves the row, with `rows` in the audit; False, and nothing done, where resets were changed since `seen`."""
        if not advance_revision(connection, RESETS_SUBJECT, seen):
            return False
        old = proxy_resets.c.state != ResetState.SETTING, proxy_resets.c.until_ms < row.since_ms - RESET_RETENTION_MS
        connection.execute(delete(proxy_resets).where(*old))
        upsert(connection, proxy_resets, [_reset_values(row)])
        log.add_audit_rows(connection, rows)
        return True

    @reads
    def statuses(self, connection: Connection, run: str) -> tuple[ResetStatusRow, ...]:
        query = select(proxy_reset_statuses).where(proxy_reset_statuses.c.run == run)
        return tuple(ResetStatusRow(**row) for row in connection.execute(query).mappings())

    @writes
    def tell(self, connection: Connection, words: Sequence[ResetStatusRow]) -> None:
        """Saves reports, replacing those proxies' last ones; deletes old ones."""
        if words:
            past_ms = max(row.at_ms for row in words) - RESET_RETENTION_MS
            connection.execute(delete(proxy_reset_statuses).where(proxy_reset_statuses.c.at_ms < past_ms))
            upsert(connection, proxy_reset_statuses, [asdict(row) for row in words])


def _reset_values(row: ResetRow) -> dict[str, Any]:
    return {
        "group_id": row.group,
        "run": row.run,
        "state": row.state,
        "set_by": sanitize_text(row.set_by)[:ACTOR_LENGTH],
        "since_ms": row.since_ms,
        "until_ms": row.until_ms,
        "goals": encode_goals(row.goals),
        "members": json.dumps(sorted(row.members)),
    }


def _reset_row(row: RowMapping) -> ResetRow:
    values: dict[str, Any] = dict(row)
    told = {"group": values.pop("group_id"), "state": ResetState(row["state"])}
    kept = {"goals": parse_goals(row["goals"]), "members": frozenset(json.loads(row["members"]))}
    return ResetRow(**{**values, **told, **kept})


APP_LENGTH = 64
DIGEST_LENGTH = 64

# `revision` never falls: a row stays, with an empty text, where its push was taken away. `digest` is of `text`.
pushes = Table(
    "pushes",
    metadata,
    Column("app", exact_name(APP_LENGTH), primary_key=True),
    number("revision"),
    Column("digest", exact_name(DIGEST_LENGTH), nullable=False),
    Column("text", long_text(), nullable=False),
    Column("set_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("changed_ms"),
)

# Only a token's digest is stored: a reader of the store cannot use that.
push_tokens = Table(
    "push_tokens",
    metadata,
    Column("digest", exact_name(DIGEST_LENGTH), primary_key=True),
    Column("app", exact_name(APP_LENGTH), nullable=False),
    Column("may_push", Boolean(), nullable=False),
    Column("made_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("made_ms"),
)


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


class PushStore(StorePart):
    @reads
    def revisions(self, connection: Connection) -> dict[str, int]:
        return {row.app: row.revision for row in connection.execute(select(pushes.c.app, pushes.c.revision))}

    @reads
    def of(self, connection: Connection, apps: Collection[str] | None = None) -> dict[str, PushRow]:
        query = select(pushes).order_by(pushes.c.app)
        if apps is not None:
            query = query.where(pushes.c.app.in_(list(apps)))
        return {row["app"]: PushRow(**row) for row in connection.execute(query).mappings()}

    @writes
    def save(self, connection: Connection, row: PushRow, audit_row: AuditRow) -> bool:
        """Saves the row if its revision is the next one. False, and nothing done, after a concurrent push."""
        kept = replace(row, text=sanitize_text(row.text), set_by=sanitize_text(row.set_by)[:ACTOR_LENGTH])
        if row.revision == 1:
            insert_absent(connection, pushes, [asdict(kept)])
            found = connection.execute(select(pushes).where(pushes.c.app == row.app)).mappings().one_or_none()
            taken = found is not None and PushRow(**found) == kept
        else:
            before = (pushes.c.app == row.app, pushes.c.revision == row.revision - 1)
            taken = connection.execute(pushes.update().where(*before).values(asdict(kept))).rowcount == 1
        log.add_audit_rows(connection, [audit_row] if taken else [])
        return taken

    @reads
    def tokens(self, connection: Connection) -> tuple[PushTokenRow, ...]:
        query = select(push_tokens).order_by(push_tokens.c.app, push_tokens.c.made_ms, push_tokens.c.digest)
        return tuple(PushTokenRow(**row) for row in connection.execute(query).mappings())

    @writes
    def add_token(self, connection: Connection, row: PushTokenRow, audit_row: AuditRow) -> None:
        values = asdict(replace(row, made_by=sanitize_text(row.made_by)[:ACTOR_LENGTH]))
        insert_absent(connection, push_tokens, [values])
        log.add_audit_rows(connection, [audit_row])

    @writes
    def revoke(self, connection: Connection, digest: str, row: AuditRow) -> bool:
        """Deletes the token; False where there is none."""
        taken = connection.execute(push_tokens.delete().where(push_tokens.c.digest == digest)).rowcount == 1
        log.add_audit_rows(connection, [row] if taken else [])
        return taken


SOFTWARE_LENGTH = 128
HISTOGRAM_LENGTH = 255
_CLUSTER_LENGTH = 64
_WORD_LENGTH = 32

# `row_index` counts the rows of a window: names of clients are too long for a key.
proxy_traffic = Table(
    "proxy_traffic",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("row_index", Integer, primary_key=True, autoincrement=False),
    Column("proxy", exact_name(NAME_LENGTH), nullable=False),
    number("until_ms"),
    Column("client", exact_name(CLIENT_LENGTH), nullable=False),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("cluster", exact_name(_CLUSTER_LENGTH), nullable=False),
    Column("kind", exact_name(_WORD_LENGTH), nullable=False),
    *(number(name) for name in (*SUM_FIELDS, *MAX_FIELDS)),
    Column("software", exact_name(SOFTWARE_LENGTH), nullable=False),
    Column("latency", exact_name(HISTOGRAM_LENGTH), nullable=False),
    Column("sizes", exact_name(HISTOGRAM_LENGTH), nullable=False),
)
Index("ix_proxy_traffic_until_ms", proxy_traffic.c.until_ms)

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
        query = (
            select(proxy_traffic)
            .where(proxy_traffic.c.until_ms > from_ms, proxy_traffic.c.until_ms <= to_ms)
            .order_by(proxy_traffic.c.until_ms, proxy_traffic.c.instance, proxy_traffic.c.row_index)
        )
        return tuple(_row(row) for row in connection.execute(query).mappings())

    @writes
    def forget_before(self, connection: Connection, until_ms: int) -> int:
        """Deletes windows that ended before, and leaves some of very many; returns the number of rows."""
        old = (
            select(proxy_traffic.c.until_ms)
            .where(proxy_traffic.c.until_ms < until_ms)
            .order_by(proxy_traffic.c.until_ms)
            .offset(_FORGOTTEN_AT_ONCE)
            .limit(1)
        )
        border = connection.scalar(old)
        ended = proxy_traffic.c.until_ms < (until_ms if border is None else border + 1)
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
    counter = row.flow
    return {
        "instance": row.instance,
        "since_ms": row.since_ms,
        "row_index": row_index,
        "proxy": sanitize_text(row.proxy)[:NAME_LENGTH],
        "until_ms": row.until_ms,
        "client": sanitize_text(row.key.client)[:CLIENT_LENGTH],
        "topic": sanitize_text(row.key.topic)[:TOPIC_LENGTH],
        "cluster": row.key.cluster,
        "kind": row.key.kind.value,
        **{name: min(_COUNT_MAX, getattr(counter, name)) for name in (*SUM_FIELDS, *MAX_FIELDS)},
        "software": sanitize_text(counter.software)[:SOFTWARE_LENGTH],
        "latency": _text(counter.latency),
        "sizes": _text(counter.sizes),
    }


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
