"""Delay in SQL: alarms with their history, how each place stood last, and who is watching."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from twinshore.store import audit
from twinshore.store.delay_values import AlarmRow, DelayPlace, WatchRow
from twinshore.store.dialects import insert_absent, put, standing, storable
from twinshore.store.engine import Database
from twinshore.store.tables import alarms, delay_places, delay_watches
from twinshore.store.values import AuditRow

ALARMS_KEPT = 10_000
PER_STATEMENT = 500


class DelayStore:
    """What the delay monitors remember; a part of the store, under the same rules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def raise_alarm(self, alarm: AlarmRow) -> AlarmRow:
        """The open row of what the alarm is about: this one, with its id, or the one that is open already."""
        return self._database.write(lambda connection: _raise(connection, alarm))

    def tell_alarm(self, alarm: AlarmRow) -> None:
        """What was told last of it, and when."""
        values = {"told_ms": alarm.told_ms, "times_told": alarm.times_told, "sentence": storable(alarm.sentence)}
        change = alarms.update().where(alarms.c.id == alarm.id).values(**values)
        self._database.write(lambda connection: connection.execute(change))

    def clear_alarm(self, alarm_id: int, now_ms: int) -> bool:
        """Whether it was open until now. The oldest of the history give way."""

        def clear(connection: Connection) -> bool:
            is_open = (alarms.c.id == alarm_id, alarms.c.cleared_ms.is_(None))
            done = connection.execute(alarms.update().where(*is_open).values(cleared_ms=now_ms, open_key=None))
            newest = connection.scalar(select(func.max(alarms.c.id))) or 0
            old = (alarms.c.id <= newest - ALARMS_KEPT, alarms.c.cleared_ms.is_not(None))
            connection.execute(alarms.delete().where(*old))
            return done.rowcount == 1

        return self._database.write(clear)

    def alarms(self, *links: str, open_only: bool = False, limit: int | None = 1000) -> tuple[AlarmRow, ...]:
        """The newest alarms of these links together, or of all where none is named, newest first; None is no limit."""
        query = select(alarms).order_by(alarms.c.id.desc()).limit(limit)
        if links:
            query = query.where(alarms.c.link.in_(links))
        if open_only:
            query = query.where(alarms.c.cleared_ms.is_(None))
        return self._database.read(lambda connection: tuple(map(_alarm, connection.execute(query).mappings())))

    def save_places(self, rows: Sequence[DelayPlace]) -> None:
        """Each place stands as given from now on."""

        def save(connection: Connection) -> None:
            for begin in range(0, len(rows), PER_STATEMENT):
                put(connection, delay_places, [_place_values(row) for row in rows[begin : begin + PER_STATEMENT]])

        if rows:
            self._database.write(save)

    def places(self, link: str) -> tuple[DelayPlace, ...]:
        """The link's places as they were said to stand, by topic, partition and group."""
        c = delay_places.c
        query = select(delay_places).where(c.link == link).order_by(c.topic, c.partition, c.group_id)
        return self._database.read(lambda connection: tuple(map(_place, connection.execute(query).mappings())))

    def forget_places(self, link: str, before_ms: int) -> int:
        """Drops places that nobody has seen since; how many."""
        old = delay_places.delete().where(delay_places.c.link == link, delay_places.c.at_ms < before_ms)
        return self._database.write(lambda connection: connection.execute(old).rowcount)

    def forget_topics(self, link: str, topics: Collection[str]) -> None:
        """Drops all places of topics that the link does not carry any more."""
        c, names = delay_places.c, sorted(topics)

        def forget(connection: Connection) -> None:
            for begin in range(0, len(names), PER_STATEMENT):
                some = c.topic.in_(names[begin : begin + PER_STATEMENT])
                connection.execute(delay_places.delete().where(c.link == link, some))

        if names:
            self._database.write(forget)

    def beat_watch(self, row: WatchRow) -> None:
        """Says that a monitor, or whoever watches monitors, is at work."""
        self._database.write(lambda connection: put(connection, delay_watches, [_watch_values(row)]))

    def end_watch(self, name: str, told: Sequence[AuditRow] = ()) -> None:
        """One that ends in good order is not missed; `told` in the audit with it, where somebody else ends it."""

        def end(connection: Connection) -> None:
            connection.execute(delay_watches.delete().where(delay_watches.c.name == name))
            audit.add(connection, told)

        self._database.write(end)

    def watches(self) -> tuple[WatchRow, ...]:
        """Everybody who watches, or should, by name."""
        query = select(delay_watches).order_by(delay_watches.c.name)
        return self._database.read(lambda connection: tuple(map(_watch, connection.execute(query).mappings())))


def _raise(connection: Connection, alarm: AlarmRow) -> AlarmRow:
    about = (alarm.link, alarm.kind, alarm.topic, alarm.group)
    key = hashlib.sha256(repr(about).encode()).hexdigest()
    values = asdict(alarm) | {"group_id": alarm.group, "open_key": key, "sentence": storable(alarm.sentence)}
    row = {name: value for name, value in values.items() if name not in ("id", "group")}
    is_open = select(alarms).where(alarms.c.open_key == key)
    found = standing(
        lambda: insert_absent(connection, alarms, [row]),
        lambda: connection.execute(is_open).mappings().one_or_none(),
        f"the open alarm {alarm.kind} of {alarm.link}",
    )
    return _alarm(found)


def _alarm(row: RowMapping) -> AlarmRow:
    values = {name: row[name] for name in row if name not in ("group_id", "open_key")}
    return AlarmRow(**values, group=row["group_id"])


def _place_values(row: DelayPlace) -> dict[str, Any]:
    values = asdict(row)
    return {"group_id" if name == "group" else name: value for name, value in values.items()}


def _place(row: RowMapping) -> DelayPlace:
    return DelayPlace(**{"group" if name == "group_id" else name: row[name] for name in row})


def _watch_values(row: WatchRow) -> dict[str, Any]:
    return asdict(row) | {"sentence": storable(row.sentence), "links": json.dumps(row.links)}


def _watch(row: RowMapping) -> WatchRow:
    return WatchRow(**{**row, "links": tuple(json.loads(row["links"] or "[]"))})
