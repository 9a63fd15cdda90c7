"""SQL of switches: homes, switches, topics in a switch, write blocks, and replicated prefixes.

A home change deletes the old link's positions with their producers. A forced switch keeps them apart for a day: a
producer without an answer from the old home resends what may be replicated.

Switches and write blocks are written under a lease: a process paused for longer undoes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, func, insert, literal, select, true

from twinshore.config.model import FIRST_TERM, twin_epoch
from twinshore.state import incident_log, leases, log, mirrors, sql
from twinshore.state.core.progress_rules import PRODUCERS_PER_PARTITION_MAX
from twinshore.state.core.values import (
    AuditRow,
    HomeChange,
    HomeRow,
    LeaseRow,
    MirrorRequest,
    ReplicatedPrefix,
    SourceProducer,
    SwitchRow,
    TopicInSwitch,
    TwinRow,
    WriteBlockRow,
)
from twinshore.state.database import Database, SharedRead, StorePart, T, reads, writes
from twinshore.state.progress import parse_producer
from twinshore.state.tables import (
    homes,
    positions,
    replicated_prefixes,
    replicated_producers,
    source_producers,
    switches,
    topics_in_switch,
    write_blocks,
)

PREFIX_RETENTION_MS = 86_400_000
# A producer idle for so long before the last replicated record resends nothing.
PRODUCER_LOOKBACK_MS = 3_600_000

_Place = tuple[str, int]


def save_prefixes(connection: Connection, change: HomeChange) -> None:
    """Keeps a forced switch's replicated prefix, before the old link's twin is deleted, and deletes earlier ones.
    Repeating keeps what is stored.
    """
    if change.torn and _kept(connection, change.link, {change.topic: change.term}):
        return
    for link in filter(None, (change.link, change.back)):
        _forget(connection, link, change.topic)
    _forget_aged(connection, change.since_ms - PREFIX_RETENTION_MS)
    if not change.torn:
        return
    ours = _is(positions, change.link, [change.topic])
    columns = positions.c.link, positions.c.topic, positions.c.partition
    kept = select(*columns, literal(change.term), positions.c.to_offset, literal(change.since_ms))
    _copy(connection, replicated_prefixes, kept.where(*ours))
    _copy(connection, replicated_producers, _writers(change.link, [change.topic]))


def _copy(connection: Connection, to: Table, rows: Select[Any]) -> None:
    connection.execute(insert(to).from_select([column.name for column in to.columns], rows))


def _writers(link: str, topics: Sequence[str]) -> Select[Any]:
    """Selects the topics' producers, in the columns of `replicated_producers`."""
    producer = source_producers.c
    columns = positions.c.link, positions.c.topic, positions.c.partition
    query = select(*columns, producer.producer_id, producer.epoch, producer.batches)
    query = query.join_from(positions, source_producers, producer.position_id == positions.c.id)
    return query.where(*_is(positions, link, topics), producer.last_ms >= positions.c.last_ms - PRODUCER_LOOKBACK_MS)


def _forget(connection: Connection, link: str, topic: str) -> None:
    for table in (replicated_prefixes, replicated_producers):
        connection.execute(delete(table).where(*_is(table, link, [topic])))


def _forget_aged(connection: Connection, before_ms: int) -> None:
    prefix = replicated_prefixes.c
    for link, topic in connection.execute(
        select(prefix.link, prefix.topic).where(prefix.since_ms < before_ms).distinct()
    ).all():
        _forget(connection, link, topic)


def _kept(connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, ReplicatedPrefix]:
    def producers(topics: Sequence[str]) -> Select[Any]:
        return select(replicated_producers).where(*_is(replicated_producers, link, topics))

    return _prefixes(connection, replicated_prefixes, link, terms, producers)


def _unchanged(connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, ReplicatedPrefix]:
    return _prefixes(connection, positions, link, terms, lambda topics: _writers(link, topics))


def _prefixes(
    connection: Connection,
    table: Table,
    link: str,
    terms: Mapping[str, int],
    producers_of: Callable[[Sequence[str]], Select[Any]],
) -> dict[_Place, ReplicatedPrefix]:
    """The prefixes in `table`, of rows in these terms where it has terms."""
    offsets: dict[_Place, int] = {}
    producers: dict[_Place, list[SourceProducer]] = {}
    for topics in sql.chunks(sorted(terms)):
        for row in connection.execute(select(table).where(*_is(table, link, topics))).mappings():
            if row.get("term", terms[row["topic"]]) == terms[row["topic"]]:
                offsets[row["topic"], row["partition"]] = row["to_offset"]
        for one in connection.execute(producers_of(topics)):
            producer = parse_producer(one, f"replicated_producers, {one.topic}-{one.partition}")
            producers.setdefault((one.topic, one.partition), []).append(producer)
    found = {}
    for place, to_offset in offsets.items():
        known = tuple(producers.get(place, ()))
        found[place] = ReplicatedPrefix(terms[place[0]], to_offset, len(known) < PRODUCERS_PER_PARTITION_MAX, known)
    return found


def _is(table: Table, link: str, topics: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return table.c.link == link, table.c.topic.in_(topics)


class ReplicatedPrefixes(StorePart):
    @reads
    def of(self, connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, ReplicatedPrefix]:
        """Returns, by topic and partition, prefixes of topics that a forced switch moved from this link in these terms.
        Leaves out unknown ones.
        """
        found = _kept(connection, link, terms)
        # Clients learn of a move a moment before the store does: until then the positions are there.
        lacking = terms.keys() - {topic for topic, _ in found}
        found |= _unchanged(connection, link, {topic: terms[topic] for topic in lacking})
        lacking = terms.keys() - {topic for topic, _ in found}
        return found | (_kept(connection, link, {topic: terms[topic] for topic in lacking}) if lacking else {})


def lock_homes(connection: Connection, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
    """Returns these topics' homes, locked until the transaction ends."""
    query = select(homes).where(homes.c.pair == pair).order_by(homes.c.topic).with_for_update()
    return {row.topic: row for row in sql.read_among(connection, HomeRow, query, homes.c.topic, topics)}


class HomeStore(StorePart):
    """Homes of topics that two clusters replicate both ways under one name."""

    @reads
    def of(self, connection: Connection, pair: str) -> dict[str, HomeRow]:
        query = select(homes).where(homes.c.pair == pair).order_by(homes.c.topic)
        return {row.topic: row for row in sql.read_rows(connection, HomeRow, query)}

    @reads
    def everywhere(self, connection: Connection, topics: Iterable[str]) -> tuple[HomeRow, ...]:
        """Returns the topics' homes in every pair, by topic and pair."""
        query = select(homes).order_by(homes.c.topic, homes.c.pair)
        return sql.read_among(connection, HomeRow, query, homes.c.topic, topics)

    @reads
    def version(self, connection: Connection, pair: str) -> int:
        """A number that grows with each change of this pair's homes, since rows stay and terms rise; 0 before the
        first.
        """
        return int(connection.scalar(select(func.sum(homes.c.term)).where(homes.c.pair == pair)) or 0)

    @writes
    def settle(self, connection: Connection, rows: Sequence[HomeRow]) -> dict[str, HomeRow]:
        """Saves first homes of one pair where there are none; returns the stored ones by topic."""
        ordered = sorted(rows, key=lambda row: row.topic)
        sql.insert_absent(connection, homes, [sql.values_of(replace(row, term=FIRST_TERM)) for row in ordered])
        return lock_homes(connection, ordered[0].pair, [row.topic for row in ordered]) if ordered else {}

    def now(self, pair: str, topics: Iterable[str]) -> dict[str, HomeRow]:
        """Returns the homes after waiting for transactions that change them."""
        wanted = list(topics)
        return self._database.write(lambda connection: lock_homes(connection, pair, wanted))

    def move(
        self, row: HomeRow, *, seen: int, links: Sequence[str] = (), rows: Sequence[AuditRow] = ()
    ) -> HomeRow | None:
        """Gives the topic this home in the term after `seen` (0: none), with `rows` in the audit.

        None, and nothing done, where the stored term is another, or one of `links` has a twin of the topic.
        """
        try:
            return self._move(HomeRow(**sql.values_of(replace(row, term=seen + 1))), seen, links, rows)
        except mirrors.TwinExistsError:
            return None

    @writes
    def _move(
        self, connection: Connection, wanted: HomeRow, seen: int, links: Sequence[str], rows: Sequence[AuditRow]
    ) -> HomeRow | None:
        if seen:
            as_seen = {"pair": wanted.pair, "topic": wanted.topic, "term": seen}
            if not sql.swap_row(connection, homes, as_seen, asdict(wanted)):
                return None
        else:
            sql.insert_absent(connection, homes, [asdict(wanted)])
        # The row is locked by now: saving a twin locks the row first, and sees this home afterwards.
        if lock_homes(connection, wanted.pair, [wanted.topic]).get(wanted.topic) != wanted:
            return None
        if any(row.topic == wanted.topic for link in links for row in mirrors.read_active_twins(connection, link)):
            raise mirrors.TwinExistsError
        log.add_audit_rows(connection, rows)
        return wanted


def _one(connection: Connection, switch_id: str) -> SwitchRow | None:
    return sql.read_row(connection, SwitchRow, select(switches).where(switches.c.id == switch_id))


class Switches(StorePart):
    @writes
    def save(self, connection: Connection, row: SwitchRow, lease: LeaseRow | None = None) -> bool:
        """Saves the switch. With `lease`, only while that is held, else returns False: a process paused for longer must
        not undo its successor's writes.
        """
        if lease is not None and not leases.lock_lease(connection, lease):
            return False
        sql.upsert(connection, switches, [sql.values_of(row)])
        return True

    @writes
    def take_up(self, connection: Connection, row: SwitchRow, before: SwitchRow | None) -> bool:
        """Saves the switch as read from a cluster. False, and nothing done, where the stored row is not `before`:
        another process here continues the switch.
        """
        values = sql.values_of(row)
        if before is None:
            sql.insert_absent(connection, switches, [values])
            return _one(connection, row.id) == SwitchRow(**values)
        return sql.swap_row(connection, switches, {"id": row.id, "switch_state": before.switch_state}, values)

    def of(self, switch_id: str) -> SwitchRow | None:
        return self._database.read(lambda connection: _one(connection, switch_id))

    @reads
    def all(
        self, connection: Connection, *, open_only: bool = False, limit: int | None = None
    ) -> tuple[SwitchRow, ...]:
        """Returns all switches, or open ones; newest first."""
        query = select(switches).order_by(switches.c.begun_ms.desc(), switches.c.id).limit(limit)
        if open_only:
            query = query.where(switches.c.ended_ms.is_(None))
        return sql.read_rows(connection, SwitchRow, query)


class WriteBlockStore(StorePart):
    """Write blocks, present and past: one row for each cluster."""

    @reads
    def of(self, connection: Connection, cluster: str) -> WriteBlockRow | None:
        return sql.read_row(connection, WriteBlockRow, select(write_blocks).where(write_blocks.c.cluster == cluster))

    @writes
    def save(self, connection: Connection, row: WriteBlockRow, lease: LeaseRow) -> bool:
        """Saves the write block while this lease is held, else returns False."""
        if not leases.lock_lease(connection, lease):
            return False
        sql.upsert(connection, write_blocks, [sql.values_of(row)])
        return True


_SUBJECTS = "switch topics "


def read_topics_in_switch(connection: Connection, which: ColumnElement[bool]) -> tuple[TopicInSwitch, ...]:
    """Returns the matching rows, by pair and topic."""
    query = select(topics_in_switch).where(which).order_by(topics_in_switch.c.pair, topics_in_switch.c.topic)
    return sql.read_rows(connection, TopicInSwitch, query)


def _apply(connection: Connection, change: HomeChange) -> None:
    home = HomeRow(change.pair, change.topic, change.home, change.term, change.since_ms, change.set_by)
    sql.upsert(connection, homes, [sql.values_of(home)])
    came_to = f"a switch made {change.home} the home of topic {change.topic}, and this link no longer replicates it"
    incident_log.close_topic_incidents(connection, change.link, change.topic, change.since_ms, came_to)
    save_prefixes(connection, change)
    mirrors.forget_twins(connection, change.link, change.topic)
    if change.back:
        mirrors.forget_twins(connection, change.back, change.topic)
        ids, epoch = (change.source_topic_id, change.target_topic_id), twin_epoch(change.term)
        rows = [
            TwinRow(change.back, change.topic, partition, *ids, point, 0, change.since_ms, point, epoch)
            for partition, point in enumerate(change.points)
        ]
        mirrors.save_twins(connection, rows)


def _unknown_home(change: HomeChange) -> HomeRow:
    """The row of an unknown home during a change: any term is higher."""
    return HomeRow(change.pair, change.topic, "", 0, change.since_ms, "")


def _held(connection: Connection, places: Sequence[tuple[str, str]]) -> Iterable[TopicInSwitch]:
    """Yields these topics' rows, locked until the transaction ends."""
    for pair in sorted({pair for pair, _ in places}):
        topics = {topic for of, topic in places if of == pair}
        query = select(topics_in_switch).where(topics_in_switch.c.pair == pair).order_by(topics_in_switch.c.topic)
        yield from sql.read_among(connection, TopicInSwitch, query.with_for_update(), topics_in_switch.c.topic, topics)


def _pairs(connection: Connection, switch_id: str) -> set[str]:
    query = select(topics_in_switch.c.pair).where(topics_in_switch.c.switch_id == switch_id)
    return set(connection.scalars(query.distinct()))


def _advance(connection: Connection, pairs: Iterable[str]) -> None:
    for pair in sorted(pairs):
        log.increment_revision(connection, _subject(pair))


def _subject(pair: str) -> str:
    """Returns a key of bounded length."""
    return f"{_SUBJECTS}{hashlib.sha256(pair.encode()).hexdigest()[:48]}"


class TopicsInSwitch(StorePart):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._glance = SharedRead(database, lambda connection: log.read_revisions(connection, _SUBJECTS))

    @writes
    def begin(self, connection: Connection, rows: Sequence[TopicInSwitch]) -> tuple[TopicInSwitch, ...]:
        """Saves rows for topics without one. Returns the stored ones in the given order, perhaps another switch's."""
        # In one order, so that two that want the same topics wait for each other only one way.
        made = [sql.values_of(row) for row in sorted(rows, key=lambda row: (row.pair, row.topic))]
        places = [(row.pair, row.topic) for row in rows]

        def found() -> dict[tuple[str, str], TopicInSwitch] | None:
            known = {(row.pair, row.topic): row for row in _held(connection, places)}
            return known if all(place in known for place in places) else None

        known = sql.insert_or_find(
            lambda: sql.insert_absent(connection, topics_in_switch, made), found, "a topic in a switch"
        )
        _advance(connection, {row.pair for row in rows})
        return tuple(known[place] for place in places)

    def of(self, pair: str) -> tuple[TopicInSwitch, ...]:
        return self._of(topics_in_switch.c.pair == pair)

    @reads
    def everywhere(self, connection: Connection, topics: Collection[str]) -> tuple[TopicInSwitch, ...]:
        queries = [topics_in_switch.c.topic.in_(some) for some in sql.chunks(sorted(set(topics)))]
        return tuple(row for which in queries for row in read_topics_in_switch(connection, which))

    def of_link(self, link: str) -> tuple[TopicInSwitch, ...]:
        """Returns the topics that this link replicates, or did until its switch."""
        return self._of(topics_in_switch.c.link == link)

    @reads
    def _of(self, connection: Connection, which: ColumnElement[bool]) -> tuple[TopicInSwitch, ...]:
        return read_topics_in_switch(connection, which)

    @reads
    def version(self, connection: Connection, pair: str) -> int:
        """A number that grows with each change of this pair's rows, and each home change. Cheap to poll."""
        return log.read_revision(connection, _subject(pair))

    def version_lately(self, pair: str) -> int:
        """Returns the version, read once for all callers within a tenth of a second."""
        return self._glance.now().get(_subject(pair), 0)

    @writes
    def request(self, connection: Connection, switch_id: str, request: MirrorRequest, now_ms: int) -> int:
        """Asks this of the mirror for the switch's topics, and resets `stopped_ms`. Returns how many were not asked
        this before.
        """
        others = (topics_in_switch.c.switch_id == switch_id, topics_in_switch.c.request != request.value)
        values = {"request": request.value, "requested_ms": now_ms, "stopped_ms": 0}
        done = connection.execute(topics_in_switch.update().where(*others).values(values)).rowcount
        _advance(connection, _pairs(connection, switch_id))
        return done

    @writes
    def record_stopped(self, connection: Connection, link: str, names: Collection[str], now_ms: int) -> int:
        """Records that no task of the link writes these topics any more, where a switch asked for that. Returns how
        many rows changed.
        """
        done, pairs = 0, set[str]()
        asked = (
            topics_in_switch.c.link == link,
            topics_in_switch.c.request == MirrorRequest.STOP_REPLICATION.value,
            topics_in_switch.c.stopped_ms == 0,
        )
        for some in sql.chunks(sorted(set(names))):
            ours = (*asked, topics_in_switch.c.topic.in_(some))
            pairs.update(connection.scalars(select(topics_in_switch.c.pair).where(*ours).distinct()))
            done += connection.execute(topics_in_switch.update().where(*ours).values(stopped_ms=now_ms)).rowcount
        _advance(connection, pairs)
        return done

    @writes
    def end(self, connection: Connection, switch_id: str, names: Collection[str] | None = None) -> int:
        """Deletes the switch's rows, or those of these topics; returns how many."""
        pairs, ours, done = _pairs(connection, switch_id), topics_in_switch.c.switch_id == switch_id, 0
        topics = [] if names is None else sql.chunks(sorted(names))
        parts = [true()] if names is None else [topics_in_switch.c.topic.in_(some) for some in topics]
        for part in parts:
            done += connection.execute(topics_in_switch.delete().where(ours, part)).rowcount
        _advance(connection, pairs)
        return done

    @writes
    def change_homes(
        self, connection: Connection, flips: Sequence[HomeChange], rows: Sequence[AuditRow] = ()
    ) -> tuple[HomeChange, ...]:
        """Gives each topic its new home: deletes the twin of `link`, closes its open incidents, and makes the twin of
        `back`. Keeps a forced switch's replicated prefix.

        Returns the changes in force, by any process: repeating changes nothing. A topic with a later term, or another
        home in this term, stays untouched. `rows` enters the audit where its topic (without one: any) changed now.
        """
        ordered = sorted(flips, key=lambda change: (change.pair, change.topic))
        done, flipped = set[tuple[str, str]](), set[str]()
        for pair in sorted({change.pair for change in ordered}):
            ours = {change.topic: change for change in ordered if change.pair == pair}
            # Saving a twin reads the home afterwards, and so waits here.
            sql.insert_absent(connection, homes, [sql.values_of(_unknown_home(change)) for change in ours.values()])
            for topic, stands in lock_homes(connection, pair, ours).items():
                change = ours[topic]
                if stands.term > change.term or (stands.term == change.term and stands.home != change.home):
                    continue
                done.add((pair, topic))
                if stands.term < change.term or mirrors.topics_with_twin(connection, change.link, [topic]):
                    _apply(connection, change)
                    flipped.add(topic)
        _advance(connection, {change.pair for change in ordered})
        log.add_audit_rows(connection, [row for row in rows if flipped and (not row.topic or row.topic in flipped)])
        return tuple(change for change in flips if (change.pair, change.topic) in done)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._glance.write(work)
