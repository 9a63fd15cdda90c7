"""SQL of twins: their partitions, proofs, key checks, and the offset runs of mapped twins.

A twin's row is also the lock for its progress. A proof's row changes only if unchanged since it was read.

Adjacent offset runs become one row, indexed by source and by target. The next run follows from the last, so writers
read the last one behind the lock of the twin's row: a stale one would overwrite another transaction's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    union_all,
)

from twinshore.config.errors import ConfigError
from twinshore.config.model import (
    SEQUENCE_SPAN,
    OffsetRun,
    TargetOffset,
    TwinNaming,
    append_runs,
    source_end,
    target_end,
)
from twinshore.state import sql
from twinshore.state.core.values import (
    KeyCheckRow,
    LinkPresence,
    PartitionKey,
    PartitionState,
    ProgressRecord,
    ProofRow,
    TwinRow,
    key_of,
    twin_naming_of,
)
from twinshore.state.database import StorePart, reads, writes
from twinshore.state.tables import PARTITION, incidents, key_checks, link_rows, offset_runs, positions, proofs, twins


class Proofs(StorePart):
    @writes
    def save(self, connection: Connection, rows: Sequence[ProofRow]) -> tuple[ProofRow, ...]:
        """Saves each row as the next revision, if the stored revision is the row's (0: none). Returns the rows not
        saved, which another process has changed.
        """
        ordered = sorted(rows, key=key_of)  # Two processes lock them in one order.
        sql.insert_absent(connection, proofs, [sql.values_of(row) for row in ordered if not row.revision])
        refused = set()
        for row in ordered:
            seen = {**dict(zip(PARTITION, key_of(row), strict=True)), "revision": row.revision}
            if not sql.swap_row(connection, proofs, seen, sql.values_of(replace(row, revision=row.revision + 1))):
                refused.add(key_of(row))
        return tuple(row for row in rows if key_of(row) in refused)

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[ProofRow, ...]:
        return _rows(connection, ProofRow, proofs, link)


class KeyCheckStore(StorePart):
    @writes
    def save(self, connection: Connection, rows: Sequence[KeyCheckRow]) -> None:
        sql.upsert(connection, key_checks, [sql.values_of(row) for row in rows])

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[KeyCheckRow, ...]:
        return _rows(connection, KeyCheckRow, key_checks, link)


def _rows(connection: Connection, kind: type[sql.R], table: Table, link: str | None) -> tuple[sql.R, ...]:
    query = select(table).order_by(*table.primary_key)
    return sql.read_rows(connection, kind, query if link is None else query.where(table.c.link == link))


_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_LOCK = select(twins.c.partition).where(twins.c.link == bindparam("of"), twins.c.topic.in_(_SOME))
_LOCK = _LOCK.order_by(*twins.primary_key).with_for_update()


def read_twins(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    return _rows(connection, TwinRow, twins, link)


def read_active_twins(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Returns the link's twin partitions without archived ones."""
    archived = _archived(connection, link)
    return tuple(row for row in read_twins(connection, link) if row.topic not in archived)


def topics_with_twin(connection: Connection, link: str, topics: Iterable[str]) -> frozenset[str]:
    """Returns the topics that have a twin. Fast for few topics."""
    found: set[str] = set()
    for some in sql.chunks(sorted(set(topics))):
        query = select(twins.c.topic).where(twins.c.link == link, twins.c.topic.in_(some))
        found.update(connection.scalars(query.distinct()))
    return frozenset(found)


def save_twins(
    connection: Connection, rows: Sequence[TwinRow], naming: TwinNaming | None = None
) -> tuple[TwinRow, ...]:
    """Saves rows that are missing, and returns the stored ones in the given order. Raises ConfigError where a link was
    removed, reversed or has another `naming`, which its mirror may not know yet.
    """
    _hold_links(connection, {row.link for row in rows}, naming)
    newest = connection.scalar(select(func.max(incidents.c.id))) or 0
    values = [sql.values_of(replace(row, last_incident_id=newest)) for row in rows]
    return sql.insert_or_find(
        lambda: sql.insert_absent(connection, twins, values), lambda: _locked(connection, rows), "the row of a twin"
    )


def lock_twins(connection: Connection, topics: Iterable[tuple[str, str]]) -> None:
    """Locks these (link, topic) until the transaction ends. Call before reading offset runs in order to write. A twin's
    row exists before its first run.
    """
    by_link: dict[str, set[str]] = {}
    for link, topic in topics:
        by_link.setdefault(link, set()).add(topic)
    for link, names in sorted(by_link.items()):
        for some in sql.chunks(sorted(names)):
            connection.execute(_LOCK, {"of": link, "some": some}).all()


def forget_twins(connection: Connection, link: str, topic: str) -> int:
    """Deletes the topic's twin with its rows, except incidents and audit. Returns the number of partitions."""
    # A delete sees the rows of its start: behind the lock these include all finished transactions.
    lock_twins(connection, [(link, topic)])
    tables = (twins, positions, offset_runs, proofs, key_checks)
    gone = [connection.execute(one.delete().where(one.c.link == link, one.c.topic == topic)) for one in tables]
    return gone[0].rowcount


class TwinExistsError(Exception):
    """Rolls back a transaction that an existing twin rules out."""


def _hold_links(connection: Connection, links: Iterable[str], naming: TwinNaming | None) -> None:
    """Locks these links until the transaction ends. Raises ConfigError where one was removed, reversed or has another
    naming.
    """
    query = select(link_rows).where(link_rows.c.link.in_(sorted(links))).order_by(link_rows.c.link)
    held = connection.execute(query.with_for_update()).all()
    if gone := [row.link for row in held if row.state == LinkPresence.REMOVED]:
        raise ConfigError("state.link-removed", links=", ".join(gone))
    if other := [row.link for row in held if naming not in (None, twin_naming_of(row.section))]:
        raise ConfigError("state.naming-changed", links=", ".join(other))


def _locked(connection: Connection, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...] | None:
    """Returns the stored rows, locked until the transaction ends; None where one is missing."""
    lock_twins(connection, {(row.link, row.topic) for row in rows})
    known = {key_of(row): row for link in {row.link for row in rows} for row in read_twins(connection, link)}
    keys = [key_of(row) for row in rows]
    return tuple(known[key] for key in keys) if all(key in known for key in keys) else None


def _archived(connection: Connection, link: str) -> set[str]:
    """Returns topics whose twins are kept and no longer replicated."""
    is_archived = (positions.c.link == link, positions.c.state == PartitionState.ARCHIVED.value)
    return set(connection.scalars(select(positions.c.topic).where(*is_archived)))


class Twins(StorePart):
    def of(self, link: str) -> tuple[TwinRow, ...]:
        return self._database.read(lambda connection: read_twins(connection, link))

    @reads
    def count(self, connection: Connection, link: str) -> int:
        return int(connection.execute(select(func.count()).select_from(twins).where(twins.c.link == link)).scalar_one())

    def begun(self, link: str, topics: Iterable[str]) -> frozenset[str]:
        """Returns the topics that have a twin."""
        return self._database.read(lambda connection: topics_with_twin(connection, link, topics))

    @reads
    def flowing(self, connection: Connection, link: str, topics: Iterable[str]) -> tuple[TwinRow, ...]:
        """Returns these topics' exact twin partitions that are not stopped, and are written beyond the log that was
        there before. Fast for few topics.
        """
        same = [positions.c[name] == twins.c[name] for name in PARTITION]
        written = or_(twins.c.inherited_end == 0, positions.c.to_offset > twins.c.inherited_end)
        mapped = exists().where(offset_runs.c.link == twins.c.link, offset_runs.c.topic == twins.c.topic)
        on = (twins.c.link == link, positions.c.state == PartitionState.FLOWING.value, written, ~mapped)
        query = select(twins).join(positions, and_(*same)).where(*on).order_by(twins.c.topic, twins.c.partition)
        return sql.read_among(connection, TwinRow, query, twins.c.topic, topics)

    def active(self, link: str) -> tuple[TwinRow, ...]:
        """Returns the link's twin partitions without archived ones."""
        return self._database.read(lambda connection: read_active_twins(connection, link))

    @reads
    def of_target_topics(self, connection: Connection, target_topic_ids: Iterable[str]) -> tuple[TwinRow, ...]:
        """Returns twin partitions with these target topic ids, of any link, without archived ones."""
        query = select(twins).order_by(*twins.primary_key)
        found = sql.read_among(connection, TwinRow, query, twins.c.target_topic_id, target_topic_ids)
        archived = {(link, topic) for link in {row.link for row in found} for topic in _archived(connection, link)}
        return tuple(row for row in found if (row.link, row.topic) not in archived)

    def save(self, rows: Sequence[TwinRow], naming: TwinNaming | None = None) -> tuple[TwinRow, ...]:
        """Saves rows that are missing, and returns the stored ones in the given order. `naming`: how the twins are
        named; None where names are not new.
        """
        return self._database.write(lambda connection: save_twins(connection, rows, naming))


KEYS_PER_LOOKUP = 100


def record_runs(connection: Connection, records: Iterable[ProgressRecord]) -> None:
    """Adds progress records' offset runs; known ones change nothing. The caller has locked the twins."""
    gained: dict[PartitionKey, list[OffsetRun]] = {}
    for record in records:
        if record.offset_runs:
            gained.setdefault(key_of(record), []).extend(record.offset_runs)
    for key, fresh in gained.items():
        _upsert(connection, key, append_runs(last_run(connection, key), sorted(fresh)))


def _begin(connection: Connection, rows: Iterable[tuple[TwinRow, Sequence[OffsetRun]]]) -> None:
    for row, runs in rows:
        if last_run(connection, key_of(row)) is None:
            _upsert(connection, key_of(row), runs)


def last_run(connection: Connection, key: PartitionKey) -> OffsetRun | None:
    return _first(connection, _last(key))


def _raise_ground(connection: Connection, key: PartitionKey, start: int) -> None:
    """Adds an empty run at `start` where the last one ends before: next records go there or behind."""
    known = last_run(connection, key)
    if known is not None and target_end(known) < start:
        following = (known.sequence + known.length) % SEQUENCE_SPAN
        _upsert(connection, key, [OffsetRun(source_end(known), TargetOffset(start), 0, following)])


def _around(
    connection: Connection, key: PartitionKey, column: ColumnElement[int], offset: int
) -> tuple[OffsetRun | None, OffsetRun | None]:
    before = select(offset_runs).where(_is(key), column <= offset).order_by(column.desc(), offset_runs.c.source.desc())
    behind = select(offset_runs).where(_is(key), column > offset).order_by(column, offset_runs.c.source)
    # Read the next run first: runs only grow and follow one another, so a newer "before" belongs to an
    # older "behind", whereas an older one would end too early if progress is recorded in between.
    later = _first(connection, behind)
    return _first(connection, before), later


def _last(key: PartitionKey) -> Select[Any]:
    return select(offset_runs).where(_is(key)).order_by(offset_runs.c.source.desc()).limit(1)


def _is(key: PartitionKey) -> ColumnElement[bool]:
    return and_(*(offset_runs.c[name] == value for name, value in zip(PARTITION, key, strict=True)))


def _upsert(connection: Connection, key: PartitionKey, runs: Iterable[OffsetRun]) -> None:
    place = dict(zip(PARTITION, key, strict=True))
    sql.upsert(connection, offset_runs, [{**place, **run._asdict()} for run in runs])


def _runs(connection: Connection, query: Executable) -> tuple[OffsetRun, ...]:
    rows = connection.execute(query)
    return tuple(OffsetRun(row.source, row.target, row.length, row.sequence) for row in rows)


def _first(connection: Connection, query: Select[Any]) -> OffsetRun | None:
    return next(iter(_runs(connection, query.limit(1))), None)


class OffsetRuns(StorePart):
    """The offset runs of mapped twins."""

    @writes
    def adopt(
        self, connection: Connection, rows: Sequence[tuple[TwinRow, OffsetRun]], naming: TwinNaming | None = None
    ) -> None:
        """Saves twins that continue behind foreign data, each with an empty run at its start. Existing runs stay."""
        save_twins(connection, [row for row, _ in rows], naming)
        _begin(connection, [(row, [first]) for row, first in rows])

    @writes
    def continue_exact(self, connection: Connection, rows: Sequence[tuple[TwinRow, Sequence[OffsetRun]]]) -> None:
        """Makes exact twins mapped: with runs of their present records, and an empty one where they continue. Existing
        runs stay.
        """
        lock_twins(connection, {(row.link, row.topic) for row, _ in rows})
        _begin(connection, rows)

    @reads
    def reached(self, connection: Connection, link: str) -> dict[tuple[str, int], OffsetRun]:
        """Returns each mapped partition's last run, by topic and partition. Looks each up, as this is called every
        second and there may be millions of runs.
        """
        of_twin = and_(*(offset_runs.c[name] == twins.c[name] for name in PARTITION))
        there = select(offset_runs.c.source).where(of_twin).correlate(twins).exists()
        mapped = connection.execute(select(twins.c.topic, twins.c.partition).where(twins.c.link == link, there)).all()
        found: dict[tuple[str, int], OffsetRun] = {}
        for some in sql.chunks(mapped, KEYS_PER_LOOKUP):
            # MariaDB looks a last row up only where the key is given, not where it is another table's.
            each = [_last((link, topic, partition)).subquery().select() for topic, partition in some]
            for row in connection.execute(union_all(*each)):
                found[row.topic, row.partition] = OffsetRun(row.source, row.target, row.length, row.sequence)
        return found

    @reads
    def of(
        self, connection: Connection, link: str, topic: str, partition: int, *, limit: int = 1000
    ) -> tuple[OffsetRun, ...]:
        """Returns the partition's last runs, in order."""
        return _runs(connection, _last((link, topic, partition)).limit(limit))[::-1]

    @reads
    def between(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[OffsetRun, ...]:
        """Returns the run at or before source offset `start`, and later ones that begin below `end`."""
        key = (link, topic, partition)
        before, _ = _around(connection, key, offset_runs.c.source, start)
        first = before.source if before else start
        query = select(offset_runs).where(_is(key), offset_runs.c.source >= first, offset_runs.c.source < end)
        return _runs(connection, query.order_by(offset_runs.c.source))

    @reads
    def borders(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[OffsetRun, ...]:
        """Returns the first and last run, and those around these two target offsets, in order: enough to tell where a
        twin with these borders holds records.
        """
        key = (link, topic, partition)
        first = select(offset_runs).where(_is(key)).order_by(offset_runs.c.source)
        found = [*_runs(connection, first.limit(1))]
        for offset in (start, end):
            found += filter(None, _around(connection, key, offset_runs.c.target, offset))
        found += filter(None, [last_run(connection, key)])
        # A run that grew between the queries counts as read last.
        return tuple(sorted({one.source: one for one in found}.values()))

    @reads
    def around(
        self, connection: Connection, link: str, topic: str, partition: int, offset: int, *, on_target: bool = False
    ) -> tuple[OffsetRun | None, OffsetRun | None]:
        """Returns the run at or before this source offset (`on_target`: target offset), and the next. Two index
        look-ups.
        """
        column = offset_runs.c.target if on_target else offset_runs.c.source
        return _around(connection, (link, topic, partition), column, offset)

    @writes
    def trim(
        self,
        connection: Connection,
        link: str,
        below: Mapping[tuple[str, int], int],
        *,
        told: Collection[tuple[str, int]] = (),
    ) -> int:
        """Deletes runs wholly below these target offsets, never the last run; returns how many.

        For partitions in `told` all written records are known, so the next run starts at that target offset or later.
        """
        lock_twins(connection, ((link, topic) for topic, _ in below))
        dropped = 0
        for place, start in below.items():
            key = (link, *place)
            if place in told:
                _raise_ground(connection, key, start)
            kept = last_run(connection, key)
            if kept is not None:
                gone = offset_runs.c.target + offset_runs.c.length <= start
                old = and_(_is(key), gone, offset_runs.c.source < kept.source)
                dropped += connection.execute(offset_runs.delete().where(old)).rowcount
        return dropped
