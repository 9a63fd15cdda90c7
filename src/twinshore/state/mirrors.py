"""What was proven of each partition, and when the keys of compacted twins were compared, in SQL: one row each. Only a
proof that has read the row of a proof may change it; of key looks the last word stands.

The twins of a link in SQL: a row for each partition, which is also the lock of what is told of it.

Where the records of mapped twins lie, in SQL: neighbours become one row, and either side finds a row by an index.

What comes next follows from the last extent. So whatever writes reads that first, behind the lock of the twin's row: a
stale one would be written over what another transaction has added to it meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    RowMapping,
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
    SourceOffset,
    TargetOffset,
    TwinNaming,
    append_runs,
    source_end,
    target_end,
)
from twinshore.state.core.values import (
    KeyCheckRow,
    LinkPresence,
    PartitionState,
    ProgressRecord,
    ProofRow,
    ProofState,
    TwinRow,
    twin_naming_of,
)
from twinshore.state.database import (
    StorePart,
    chunks,
    insert_absent,
    insert_or_find,
    reads,
    sanitize_text,
    upsert,
    writes,
)
from twinshore.state.tables import incidents, key_checks, link_rows, offset_runs, positions, proofs, twins

PARTITION_KEY = ("link", "topic", "partition")


class Proofs(StorePart):
    """What was proven."""

    @writes
    def save(self, connection: Connection, rows: Sequence[ProofRow]) -> tuple[ProofRow, ...]:
        """Saves each row, as its next revision, if the stored one is as it was read: of the same revision, 0 where
        there was none. Returns the rows that were not saved, as another process has changed what they rest on."""
        told = [{**asdict(row), "sentence": sanitize_text(row.sentence)} for row in rows]
        told.sort(key=lambda one: tuple(one[name] for name in PARTITION_KEY))  # Two processes lock them in one order.
        insert_absent(connection, proofs, [one for one in told if not one["revision"]])
        refused = set()
        for one in told:
            as_read = [proofs.c[name] == one[name] for name in (*PARTITION_KEY, "revision")]
            values = {**one, "revision": one["revision"] + 1}
            if connection.execute(proofs.update().where(*as_read).values(values)).rowcount != 1:
                refused.add(tuple(one[name] for name in PARTITION_KEY))
        return tuple(row for row in rows if (row.link, row.topic, row.partition) in refused)

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[ProofRow, ...]:
        """What was proven of one link's partitions, or of all."""
        rows = _rows(connection, proofs, link)
        return tuple(ProofRow(**{**row, "state": ProofState(row["state"])}) for row in rows)


class KeyCheckStore(StorePart):
    """When keys were compared."""

    @writes
    def save(self, connection: Connection, rows: Sequence[KeyCheckRow]) -> None:
        """When the keys of these partitions were compared; the last word stands."""
        upsert(connection, key_checks, [asdict(row) for row in rows])

    @reads
    def of(self, connection: Connection, link: str | None = None) -> tuple[KeyCheckRow, ...]:
        """When the keys of one link's compacted twins were compared, or of all."""
        return tuple(KeyCheckRow(**row) for row in _rows(connection, key_checks, link))


def _rows(connection: Connection, table: Table, link: str | None) -> Sequence[RowMapping]:
    """Those of one link or of all, by link, topic and partition."""
    query = select(table).order_by(*(table.c[name] for name in PARTITION_KEY))
    return connection.execute(query if link is None else query.where(table.c.link == link)).mappings().all()


_SOME: BindParameter[Any] = bindparam("some", expanding=True)
_LOCK = select(twins.c.partition).where(twins.c.link == bindparam("of"), twins.c.topic.in_(_SOME))
_LOCK = _LOCK.order_by(*twins.primary_key).with_for_update()


def read_twins(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Every twin partition of the link, by topic and partition."""
    query = select(twins).where(twins.c.link == link).order_by(twins.c.topic, twins.c.partition)
    return tuple(TwinRow(**row) for row in connection.execute(query).mappings())


def read_active_twins(connection: Connection, link: str) -> tuple[TwinRow, ...]:
    """Those whose topics are not archived."""
    archived = _archived(connection, link)
    return tuple(row for row in read_twins(connection, link) if row.topic not in archived)


def topics_with_twin(connection: Connection, link: str, topics: Iterable[str]) -> frozenset[str]:
    """Those of the topics that the link has a twin of: quick, where few are asked for often."""
    found: set[str] = set()
    for some in chunks(sorted(set(topics))):
        ours = (twins.c.link == link, twins.c.topic.in_(some))
        found.update(connection.scalars(select(twins.c.topic).where(*ours).distinct()))
    return frozenset(found)


def save_twins(
    connection: Connection, rows: Sequence[TwinRow], naming: TwinNaming | None = None
) -> tuple[TwinRow, ...]:
    """The rows that stand afterwards, in the order given: each its own, or the one that was there first. ConfigError
    where a link of theirs was removed or turned, or has another `naming`: its mirror may not know it yet."""
    _hold_links(connection, {row.link for row in rows}, naming)
    newest = connection.scalar(select(func.max(incidents.c.id))) or 0
    values = [{**asdict(row), "ledger_before": newest} for row in rows]
    return insert_or_find(
        lambda: insert_absent(connection, twins, values), lambda: _locked(connection, rows), "the row of a twin"
    )


def lock_twins(connection: Connection, topics: Iterable[tuple[str, str]]) -> None:
    """Until this transaction ends no other one passes here for the same (link, topic): whoever reads extents to write
    them comes this way first. A twin's row is there before its first extent."""
    by_link: dict[str, set[str]] = {}
    for link, topic in topics:
        by_link.setdefault(link, set()).add(topic)
    for link, names in sorted(by_link.items()):
        for some in chunks(sorted(names)):
            connection.execute(_LOCK, {"of": link, "some": some}).all()


def forget_twins(connection: Connection, link: str, topic: str) -> int:
    """Drops the topic's twin and what hangs on it; the ledger and the audit stay. How many partitions were known."""
    # A delete sees what stood when it began: behind the lock, that is all of what others have done.
    lock_twins(connection, [(link, topic)])
    tables = (twins, positions, offset_runs, proofs, key_checks)
    gone = [connection.execute(one.delete().where(one.c.link == link, one.c.topic == topic)) for one in tables]
    return gone[0].rowcount


class TwinExistsError(Exception):
    """Ends a transaction that a twin is in the way of, so that all stays as it was."""


def _hold_links(connection: Connection, links: Iterable[str], naming: TwinNaming | None) -> None:
    """Nobody removes, turns or renames these links before this transaction ends; ConfigError where somebody has."""
    ours = link_rows.c.link.in_(sorted(links))
    held = connection.execute(select(link_rows).where(ours).order_by(link_rows.c.link).with_for_update()).all()
    if gone := [row.link for row in held if row.state == LinkPresence.REMOVED]:
        why = f"{', '.join(gone)} was removed or turned: it makes no twin any more"
        raise ConfigError(why, hint="its mirror ends it by itself, within seconds")
    if other := [row.link for row in held if naming not in (None, twin_naming_of(row.section))]:
        why = f"{', '.join(other)} has another naming by now: it makes no twin under the old one"
        raise ConfigError(why, hint="its mirror takes that up by itself, within seconds")


def _locked(connection: Connection, rows: Sequence[TwinRow]) -> tuple[TwinRow, ...] | None:
    """What stands for each of the rows, and stays so until the transaction ends; None where one of them is gone."""
    lock_twins(connection, {(row.link, row.topic) for row in rows})
    known: dict[tuple[str, str, int], TwinRow] = {}
    for link in {row.link for row in rows}:
        known |= {(row.link, row.topic, row.partition): row for row in read_twins(connection, link)}
    places = [(row.link, row.topic, row.partition) for row in rows]
    return tuple(known[place] for place in places) if all(place in known for place in places) else None


def _archived(connection: Connection, link: str) -> set[str]:
    """Topics of the link whose twins are kept and carried no more."""
    is_archived = (positions.c.link == link, positions.c.state == PartitionState.ARCHIVED.value)
    return set(connection.scalars(select(positions.c.topic).where(*is_archived)))


class Twins(StorePart):
    """The twin partitions of each link."""

    def of(self, link: str) -> tuple[TwinRow, ...]:
        """The link's twin partitions, by topic and partition."""
        return self._database.read(lambda connection: read_twins(connection, link))

    @reads
    def count(self, connection: Connection, link: str) -> int:
        """How many twin partitions the link has: quick, where many are asked for often."""
        return int(connection.execute(select(func.count()).select_from(twins).where(twins.c.link == link)).scalar_one())

    def begun(self, link: str, topics: Iterable[str]) -> frozenset[str]:
        """Those of the topics that the link has a twin of."""
        return self._database.read(lambda connection: topics_with_twin(connection, link, topics))

    @reads
    def flowing(self, connection: Connection, link: str, topics: Iterable[str]) -> tuple[TwinRow, ...]:
        """Those of these topics that the link carries on as they are, partition by partition: it has not stopped them,
        and has written behind what was there before, which may have been more than that; and they have their sources'
        offsets. Quick, where few are asked for often."""
        found: list[TwinRow] = []
        same = [positions.c[name] == twins.c[name] for name in ("link", "topic", "partition")]
        written = or_(twins.c.inherited == 0, positions.c.to_offset > twins.c.inherited)
        mapped = exists().where(offset_runs.c.link == twins.c.link, offset_runs.c.topic == twins.c.topic)
        on = (twins.c.link == link, positions.c.state == PartitionState.FLOWING.value, written, ~mapped)
        for some in chunks(sorted(set(topics))):
            query = select(twins).join(positions, and_(*same)).where(twins.c.topic.in_(some), *on)
            rows = connection.execute(query.order_by(twins.c.topic, twins.c.partition)).mappings()
            found += [TwinRow(**row) for row in rows]
        return tuple(found)

    def carried(self, link: str) -> tuple[TwinRow, ...]:
        """Those of them that the link still carries: an archived twin is carried no more."""
        return self._database.read(lambda connection: read_active_twins(connection, link))

    @reads
    def of_target_topics(self, connection: Connection, target_topic_ids: Iterable[str]) -> tuple[TwinRow, ...]:
        """Whose twins these topics of targets are, partition by partition, whatever the link; without archived ones."""
        found: list[TwinRow] = []
        for some in chunks(sorted(set(target_topic_ids))):
            query = select(twins).where(twins.c.target_topic_id.in_(some)).order_by(*twins.primary_key)
            found += [TwinRow(**row) for row in connection.execute(query).mappings()]
        archived = {(link, topic) for link in {row.link for row in found} for topic in _archived(connection, link)}
        return tuple(row for row in found if (row.link, row.topic) not in archived)

    def save(self, rows: Sequence[TwinRow], naming: TwinNaming | None = None) -> tuple[TwinRow, ...]:
        """What stands now for each of the rows: itself, or the one that was there first. `naming`: by which they are
        called; None where their names are not new."""
        return self._database.write(lambda connection: save_twins(connection, rows, naming))


Key = tuple[str, str, int]
KEYS_PER_LOOKUP = 100


def record_runs(connection: Connection, given: Iterable[ProgressRecord]) -> None:
    """Adds what the receipts say was gained, behind the lock of their twins. What is known already changes nothing."""
    gained: dict[Key, list[OffsetRun]] = {}
    for receipt in given:
        if receipt.extents:
            gained.setdefault((receipt.link, receipt.topic, receipt.partition), []).extend(receipt.extents)
    rows = []
    for key, fresh in gained.items():
        rows += [_row(key, one) for one in append_runs(last_run(connection, key), sorted(fresh))]
    upsert(connection, offset_runs, rows)


def _begin(connection: Connection, rows: Iterable[tuple[TwinRow, Sequence[OffsetRun]]]) -> None:
    for row, some in rows:
        key = (row.link, row.topic, row.partition)
        if last_run(connection, key) is None:
            upsert(connection, offset_runs, [_row(key, extent) for extent in some])


def last_run(connection: Connection, key: Key) -> OffsetRun | None:
    """The extent that reaches furthest."""
    row = connection.execute(_last(key)).mappings().one_or_none()
    return None if row is None else _extent(row)


def _raise_ground(connection: Connection, key: Key, start: int) -> None:
    """Where the twin begins behind the furthest extent by now, what comes next goes to `start` or behind it."""
    known = last_run(connection, key)
    if known is not None and target_end(known) < start:
        following = (known.sequence + known.length) % SEQUENCE_SPAN
        upsert(connection, offset_runs, [_row(key, OffsetRun(source_end(known), TargetOffset(start), 0, following))])


def _around(
    connection: Connection, key: Key, column: ColumnElement[int], offset: int
) -> tuple[OffsetRun | None, OffsetRun | None]:
    before = select(offset_runs).where(_is(key), column <= offset).order_by(column.desc(), offset_runs.c.source.desc())
    behind = select(offset_runs).where(_is(key), column > offset).order_by(column, offset_runs.c.source)
    # What lies behind is asked first: extents only grow and follow one another, so a newer "before" belongs to an
    # older "behind", whereas an older one would end too early where a receipt comes in between.
    later, earlier = (connection.execute(query.limit(1)).mappings().one_or_none() for query in (behind, before))
    return (None if earlier is None else _extent(earlier), None if later is None else _extent(later))


def _last(key: Key) -> Select[Any]:
    return select(offset_runs).where(_is(key)).order_by(offset_runs.c.source.desc()).limit(1)


def _is(key: Key) -> ColumnElement[bool]:
    link, topic, partition = key
    return and_(offset_runs.c.link == link, offset_runs.c.topic == topic, offset_runs.c.partition == partition)


def _row(key: Key, extent: OffsetRun) -> dict[str, str | int]:
    link, topic, partition = key
    return {"link": link, "topic": topic, "partition": partition, **extent._asdict()}


def _extent(row: RowMapping) -> OffsetRun:
    return OffsetRun(SourceOffset(row["source"]), TargetOffset(row["target"]), row["length"], row["sequence"])


class OffsetRuns(StorePart):
    """Where the records of mapped twins lie."""

    @writes
    def adopt(
        self, connection: Connection, rows: Sequence[tuple[TwinRow, OffsetRun]], naming: TwinNaming | None = None
    ) -> None:
        """Twins that go on behind data of others: each with the extent, still empty, that says from where on. One that
        has extents keeps them. `naming`: as twins are saved."""
        save_twins(connection, [row for row, _ in rows], naming)
        _begin(connection, [(row, [first]) for row, first in rows])

    @writes
    def continue_exact(self, connection: Connection, rows: Sequence[tuple[TwinRow, Sequence[OffsetRun]]]) -> None:
        """Exact twins that are mapped from now on: each with what it holds already, and, still empty, the extent that
        says from where on it goes on. One that has extents keeps them."""
        lock_twins(connection, {(row.link, row.topic) for row, _ in rows})
        _begin(connection, rows)

    @reads
    def reached(self, connection: Connection, link: str) -> dict[tuple[str, int], OffsetRun]:
        """The furthest extent of each mapped partition of the link, by topic and partition: each is looked up, as there
        may be millions of extents and this is asked every second."""
        of_twin = and_(*(offset_runs.c[name] == twins.c[name] for name in ("link", "topic", "partition")))
        there = select(offset_runs.c.source).where(of_twin).correlate(twins).exists()
        mapped = connection.execute(select(twins.c.topic, twins.c.partition).where(twins.c.link == link, there)).all()
        found: dict[tuple[str, int], OffsetRun] = {}
        for some in chunks(mapped, KEYS_PER_LOOKUP):
            # MariaDB looks a last row up only where the key is given, not where it is another table's.
            each = [_last((link, topic, partition)).subquery().select() for topic, partition in some]
            for row in connection.execute(union_all(*each)).mappings():
                found[row["topic"], row["partition"]] = _extent(row)
        return found

    @reads
    def of(
        self, connection: Connection, link: str, topic: str, partition: int, *, limit: int = 1000
    ) -> tuple[OffsetRun, ...]:
        """The partition's furthest extents, in order."""
        query = (
            select(offset_runs).where(_is((link, topic, partition))).order_by(offset_runs.c.source.desc()).limit(limit)
        )
        return tuple(_extent(row) for row in connection.execute(query).mappings())[::-1]

    @reads
    def between(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[OffsetRun, ...]:
        """The extent that begins at `start` of the source or before it, and all behind it that begin below `end`."""
        key = (link, topic, partition)
        before, _ = _around(connection, key, offset_runs.c.source, start)
        first = before.source if before else start
        query = select(offset_runs).where(_is(key), offset_runs.c.source >= first, offset_runs.c.source < end)
        return tuple(_extent(row) for row in connection.execute(query.order_by(offset_runs.c.source)).mappings())

    @reads
    def borders(
        self, connection: Connection, link: str, topic: str, partition: int, start: int, end: int
    ) -> tuple[OffsetRun, ...]:
        """The partition's first and last extent, and those around these two offsets of the twin, in order: all that
        says from where to where a twin with these borders holds anything."""
        key = (link, topic, partition)
        first = connection.execute(
            select(offset_runs).where(_is(key)).order_by(offset_runs.c.source).limit(1)
        ).mappings()
        found = [*map(_extent, first)]
        for offset in (start, end):
            found += filter(None, _around(connection, key, offset_runs.c.target, offset))
        found += filter(None, [last_run(connection, key)])
        # One that grew meanwhile is taken as it was read last.
        return tuple(sorted({one.source: one for one in found}.values()))

    @reads
    def around(
        self, connection: Connection, link: str, topic: str, partition: int, offset: int, *, on_target: bool = False
    ) -> tuple[OffsetRun | None, OffsetRun | None]:
        """The extent that begins at this offset of the source (of the twin) or before it, and the next behind it: two
        look-ups in an index, however many extents there are."""
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
        """Drops extents wholly below these offsets of the twins, where nothing lies any more, but never the last; how
        many. Of partitions in `told` all that landed is told: their next extent is known to lie there or behind."""
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
