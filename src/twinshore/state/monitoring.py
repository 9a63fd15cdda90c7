"""SQL of lag monitoring: alarms and their history, last lags, and monitors."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, func, select

from twinshore.state import log, sql
from twinshore.state.core.values import NO_MARKS, AlarmRow, AuditRow, PartitionDelayRow, WatcherRow
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import alarms, partition_delays, watchers

ALARM_ROWS_MAX = 10_000


class DelayStore(StorePart):
    @writes
    def raise_alarm(self, connection: Connection, alarm: AlarmRow) -> AlarmRow:
        """Opens the alarm unless one is open on its subject; returns the open row."""
        about = (alarm.link, alarm.kind, alarm.topic, alarm.group)
        key = hashlib.sha256(repr(about).encode()).hexdigest()
        values = sql.values_of(alarm) | {"open_key": key}
        is_open = select(alarms).where(alarms.c.open_key == key)
        return sql.insert_or_find(
            lambda: sql.insert_absent(connection, alarms, [values]),
            lambda: sql.read_row(connection, AlarmRow, is_open),
            f"the open alarm {alarm.kind} of {alarm.link}",
        )

    @writes
    def mark_alarm_reported(self, connection: Connection, alarm: AlarmRow) -> None:
        """Saves what was last reported of the alarm, and when."""
        values = {
            "reported_ms": alarm.reported_ms,
            "reports": alarm.reports,
            "sentence": sql.sanitize_text(alarm.sentence),
        }
        sql.swap_row(connection, alarms, {"id": alarm.id}, values)

    @writes
    def clear_alarm(self, connection: Connection, alarm_id: int, now_ms: int) -> bool:
        """Closes the alarm; returns whether it was open. Deletes the oldest history."""
        is_open = {"id": alarm_id, "cleared_ms": None}
        done = sql.swap_row(connection, alarms, is_open, {"cleared_ms": now_ms, "open_key": None, **NO_MARKS})
        newest = connection.scalar(select(func.max(alarms.c.id))) or 0
        old = (alarms.c.id <= newest - ALARM_ROWS_MAX, alarms.c.cleared_ms.is_not(None))
        connection.execute(alarms.delete().where(*old))
        return done

    @writes
    def mark_alarm(self, connection: Connection, alarm_id: int, marks: sql.Row, told: AuditRow) -> bool:
        """Saves what a person says of the open alarm; returns whether it is open."""
        done = sql.swap_row(connection, alarms, {"id": alarm_id, "cleared_ms": None}, marks)
        log.add_audit_rows(connection, [told] if done else [])
        return done

    @reads
    def alarms(
        self, connection: Connection, *links: str, open_only: bool = False, limit: int | None = 1000
    ) -> tuple[AlarmRow, ...]:
        """Returns the newest alarms of these links together, or of all, newest first; `limit` None: no limit."""
        query = select(alarms).order_by(alarms.c.id.desc()).limit(limit)
        if links:
            query = query.where(alarms.c.link.in_(links))
        if open_only:
            query = query.where(alarms.c.cleared_ms.is_(None))
        return sql.read_rows(connection, AlarmRow, query)

    @writes
    def save_partitions(self, connection: Connection, rows: Sequence[PartitionDelayRow]) -> None:
        for some in sql.chunks(rows):
            sql.upsert(connection, partition_delays, [sql.values_of(row) for row in some])

    @reads
    def partitions(self, connection: Connection, link: str) -> tuple[PartitionDelayRow, ...]:
        """Returns the link's last rows, by topic, partition and group."""
        c = partition_delays.c
        query = select(partition_delays).where(c.link == link).order_by(c.topic, c.partition, c.group)
        return sql.read_rows(connection, PartitionDelayRow, query)

    @writes
    def forget_partitions(self, connection: Connection, link: str, before_ms: int) -> int:
        """Deletes rows last seen before then; returns how many."""
        old = partition_delays.delete().where(partition_delays.c.link == link, partition_delays.c.at_ms < before_ms)
        return connection.execute(old).rowcount

    @writes
    def forget_topics(self, connection: Connection, link: str, topics: Collection[str]) -> None:
        c = partition_delays.c
        for some in sql.chunks(sorted(topics)):
            connection.execute(partition_delays.delete().where(c.link == link, c.topic.in_(some)))

    @writes
    def save_heartbeat(self, connection: Connection, row: WatcherRow) -> None:
        """Saves the sign of life of a monitor, or of a watcher of monitors."""
        sql.upsert(connection, watchers, [sql.values_of(row)])

    @writes
    def remove_watcher(self, connection: Connection, name: str, rows: Sequence[AuditRow] = ()) -> None:
        """Removes a watcher that ended in good order. `rows`: audit rows where another process removes the watcher."""
        connection.execute(watchers.delete().where(watchers.c.name == name))
        log.add_audit_rows(connection, rows)

    @reads
    def watchers(self, connection: Connection) -> tuple[WatcherRow, ...]:
        return sql.read_rows(connection, WatcherRow, select(watchers).order_by(watchers.c.name))
