"""SQL of the incident log: each incident once while open, and kept afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, RowMapping, delete, func, select

from twinshore.config.incident_policy import IncidentEffect, IncidentKind, IncidentSide
from twinshore.state import mirrors, sql
from twinshore.state.core.values import Incident, IncidentCount, IncidentRow, encode_ranges, merge_ranges, parse_ranges
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import incidents, twins

DROPS_PER_JOINED_ROW = 1_000  # rows of dropped stale records that become one
DROPS_KEPT_SINGLE = 500  # the newest rows of a partition, which stay as they are


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Selects rows by links, kind, topic, effect and side, where given, and older than the id `before`."""

    links: tuple[str, ...] = ()
    kind: IncidentKind | None = None
    topic: str = ""
    effect: IncidentEffect | None = None
    side: IncidentSide | None = None
    open_only: bool = False
    before: int = 0


def add_incident(connection: Connection, incident: Incident, now_ms: int) -> IncidentRow:
    """Adds the incident unless one of this kind and position is open; returns the open row."""
    key = _open_key(incident)
    row = {**sql.values_of(incident), "open_key": key, "opened_ms": now_ms, "joined_rows": 1}
    is_open = select(incidents).where(incidents.c.open_key == key)
    found = sql.insert_or_find(
        lambda: sql.insert_absent(connection, incidents, [row]),
        lambda: connection.execute(is_open).mappings().one_or_none(),
        f"the open row of {incident.topic}-{incident.partition}: {incident.kind}",
    )
    return _incident_row(found)


def close_incident(connection: Connection, row_id: int, now_ms: int, came_to: str = "") -> bool:
    """Closes the row, and appends `came_to` to its sentence; returns whether the row was open."""
    values: dict[str, Any] = {"closed_ms": now_ms, "open_key": None}
    if came_to:
        said = connection.scalar(select(incidents.c.sentence).where(incidents.c.id == row_id))
        values["sentence"] = sql.sanitize_text(f"{said}; {came_to}")
    return sql.swap_row(connection, incidents, {"id": row_id, "closed_ms": None}, values)


def close_topic_incidents(connection: Connection, link: str, topic: str, now_ms: int, came_to: str) -> int:
    """Closes a topic's open rows; returns how many."""
    still_open = (incidents.c.link == link, incidents.c.topic == topic, incidents.c.closed_ms.is_(None))
    ids = list(connection.scalars(select(incidents.c.id).where(*still_open).order_by(incidents.c.id)))
    return sum(close_incident(connection, row_id, now_ms, came_to) for row_id in ids)


def _join(connection: Connection, rows: Sequence[Row[Any]]) -> int:
    """Joins rows into the newest, so that readers of all rows after any of these see it. Returns the number of deleted
    rows.
    """
    first, last = rows[0], rows[-1]
    ranges = merge_ranges((row.from_offset, row.to_offset) for row in rows)
    many = sum(end - begin for begin, end in ranges)
    values = {
        "from_offset": ranges[0][0],
        "to_offset": ranges[-1][1],
        "opened_ms": min(row.opened_ms for row in rows),
        "closed_ms": max(row.closed_ms for row in rows),
        "joined_rows": sum(row.joined_rows for row in rows),
        "joined_ranges": encode_ranges(ranges),
        "sentence": f"{many} offsets were dropped in {len(ranges)} parts between these; first: {first.sentence}; last:"
        f" {last.sentence}",
    }
    connection.execute(incidents.update().where(incidents.c.id == last.id).values(values))
    ids = [row.id for row in rows[:-1]]
    for some in sql.chunks(ids):
        connection.execute(delete(incidents).where(incidents.c.id.in_(some)))
    return len(ids)


def _open_key(incident: Incident) -> str:
    place: tuple[object, ...] = (incident.link, incident.topic, incident.partition, incident.kind.value)
    if incident.kind is not IncidentKind.RETENTION_GAP:
        place = (*place, incident.from_offset)  # A task that takes over amid a gap reports the rest.
    if incident.kind in (IncidentKind.STALE_DROPPED, IncidentKind.RETENTION_GAP):
        # A task that died may have reported a part; and a passed gap may grow, or stop the next task.
        place = (*place, incident.to_offset, incident.policy.effect.value)
    if incident.proof_mode:
        place = (*place, incident.proof_mode)
    if incident.kind is IncidentKind.RIGHTS_LOST and not incident.topic:
        place = (*place, incident.side.value)  # Both clusters of a link may deny rights, each for itself.
    return hashlib.sha256(repr(place).encode()).hexdigest()


def _incident_row(row: RowMapping) -> IncidentRow:
    joined = parse_ranges(row["joined_ranges"] or "")
    return IncidentRow(row["id"], sql.row_of(Incident, row), row["opened_ms"], row["closed_ms"], joined)


class IncidentLog(StorePart):
    def add(self, incident: Incident, *, now_ms: int) -> IncidentRow:
        """Adds the incident unless one of this kind and position is open; returns the open row."""
        return self._database.write(lambda connection: add_incident(connection, incident, now_ms))

    @writes
    def add_all(self, connection: Connection, found: Collection[Incident], *, now_ms: int) -> None:
        for incident in found:
            add_incident(connection, incident, now_ms)

    @writes
    def join_drops(self, connection: Connection, link: str, topic: str, partition: int) -> int:
        """Joins old rows of stale records that a fresh queue dropped: a lasting overload adds several a second. Returns
        the number of deleted rows.

        The newest rows stay, and so do open ones and an earlier twin's: a row concerns one twin alone.
        """
        mirrors.lock_twins(connection, [(link, topic)])  # two mirrors may join at once
        key = {"link": link, "topic": topic, "partition": partition}
        last_earlier = connection.scalar(select(twins.c.last_incident_id).filter_by(**key))
        if last_earlier is None:
            return 0
        c = incidents.c
        drops = select(incidents).filter_by(**key, kind=IncidentKind.STALE_DROPPED.value, joined_ranges=None)
        alone = connection.execute(drops.where(c.id > last_earlier, c.closed_ms.is_not(None)).order_by(c.id)).all()
        joined = alone[: max(0, len(alone) - DROPS_KEPT_SINGLE) // DROPS_PER_JOINED_ROW * DROPS_PER_JOINED_ROW]
        return sum(_join(connection, rows) for rows in sql.chunks(joined, DROPS_PER_JOINED_ROW))

    def close(self, row_id: int, *, now_ms: int, came_to: str = "") -> bool:
        """Closes the row, and appends `came_to` to its sentence; returns whether the row was open."""
        return self._database.write(lambda connection: close_incident(connection, row_id, now_ms, came_to))

    @writes
    def close_all(self, connection: Connection, row_ids: Collection[int], *, now_ms: int) -> None:
        """Closes those of the rows that are open, all or none."""
        for some in sql.chunks(sorted(row_ids)):
            still_open = (incidents.c.id.in_(some), incidents.c.closed_ms.is_(None))
            connection.execute(incidents.update().where(*still_open).values(closed_ms=now_ms, open_key=None))

    @reads
    def rows(
        self, connection: Connection, link: str | None = None, *, open_only: bool = False
    ) -> tuple[IncidentRow, ...]:
        """Returns the incidents of one link, or of all, oldest first."""
        query = select(incidents).order_by(incidents.c.id)
        if link is not None:
            query = query.where(incidents.c.link == link)
        if open_only:
            query = query.where(incidents.c.closed_ms.is_(None))
        return tuple(_incident_row(row) for row in connection.execute(query).mappings())

    @reads
    def page(self, connection: Connection, wanted: IncidentFilter, *, limit: int = 100) -> tuple[IncidentRow, ...]:
        """Returns the newest matching rows, newest first. For the next page, set `before` to the last row's id."""
        query = sql.newest(incidents, wanted, "kind", "topic", "effect", "side", limit=limit)
        if wanted.open_only:
            query = query.where(incidents.c.closed_ms.is_(None))
        return tuple(_incident_row(row) for row in connection.execute(query).mappings())

    @reads
    def counts(self, connection: Connection) -> tuple[IncidentCount, ...]:
        """Counts incidents by link and kind: all, and open ones."""
        place = (incidents.c.link, incidents.c.kind)
        counts = func.sum(incidents.c.joined_rows).label("all"), func.count(incidents.c.open_key).label("open")
        rows = sql.read_rows(connection, IncidentCount, select(*place, *counts).group_by(*place).order_by(*place))
        return tuple(replace(row, all=int(row.all)) for row in rows)
