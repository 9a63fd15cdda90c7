"""Which topics a switch moves just now, and the flip that gives them their other home, in SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Connection, RowMapping, select, true

from twinshore.fleet.terms import twin_epoch
from twinshore.store import audit, crossings, homes, ledger, revisions, twins
from twinshore.store.dialects import chunks, insert_absent, put, standing
from twinshore.store.engine import Database, Glance, StorePart, T, reads, writes
from twinshore.store.switch_tables import switching
from twinshore.store.switch_values import Asked, Flip, TopicInSwitch
from twinshore.store.tables import homes as home_table
from twinshore.store.values import AuditRow, HomeRow, TwinRow

_SUBJECTS = "switching "


def read(connection: Connection, which: ColumnElement[bool]) -> tuple[TopicInSwitch, ...]:
    """The rows that are wanted, by pair and topic."""
    query = select(switching).where(which).order_by(switching.c.pair, switching.c.topic)
    return tuple(_row(row) for row in connection.execute(query).mappings())


def _apply(connection: Connection, one: Flip) -> None:
    home = HomeRow(one.pair, one.topic, one.home, one.term, one.since_ms, one.set_by)
    put(connection, home_table, [asdict(homes.as_stored(home))])
    came_to = f"a switch made {one.home} the home of topic {one.topic}, and this link carries it no more"
    ledger.close_topic(connection, one.link, one.topic, one.since_ms, came_to)
    crossings.keep(connection, one)
    twins.forget(connection, one.link, one.topic)
    if one.back:
        twins.forget(connection, one.back, one.topic)
        twins.save(connection, [_inherits(one, number, point) for number, point in enumerate(one.points)])


def _inherits(one: Flip, partition: int, point: int) -> TwinRow:
    ids = one.source_topic_id, one.target_topic_id
    return TwinRow(one.back, one.topic, partition, *ids, point, 0, one.since_ms, point, twin_epoch(one.term))


def _nowhere(one: Flip) -> HomeRow:
    """What a store that knew no home of the topic has while the flip is made: any term is higher."""
    return HomeRow(one.pair, one.topic, "", 0, one.since_ms, "")


def _held(connection: Connection, places: Sequence[tuple[str, str]]) -> Iterable[TopicInSwitch]:
    """The rows of these topics, which no other transaction changes until this one ends."""
    for pair in sorted({pair for pair, _ in places}):
        for some in chunks(sorted({topic for of, topic in places if of == pair})):
            ours = (switching.c.pair == pair, switching.c.topic.in_(some))
            query = select(switching).where(*ours).order_by(switching.c.topic)
            yield from (_row(row) for row in connection.execute(query.with_for_update()).mappings())


def _pairs(connection: Connection, switch_id: str) -> set[str]:
    return set(connection.scalars(select(switching.c.pair).where(switching.c.switch_id == switch_id).distinct()))


def _advance(connection: Connection, pairs: Iterable[str]) -> None:
    for pair in sorted(pairs):
        revisions.grow(connection, _subject(pair))


def _subject(pair: str) -> str:
    """A key of bounded length."""
    return f"{_SUBJECTS}{hashlib.sha256(pair.encode()).hexdigest()[:48]}"


def _row(row: RowMapping) -> TopicInSwitch:
    values = dict(row)
    return TopicInSwitch(asked=Asked(values.pop("asked")), **values)


class Switching(StorePart):
    """The topics that switches move just now."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._glance = Glance(database, lambda connection: revisions.each_of(connection, _SUBJECTS))

    @writes
    def begin(self, connection: Connection, rows: Sequence[TopicInSwitch]) -> tuple[TopicInSwitch, ...]:
        """What stands for each row afterwards, in the order given: its own, or that of another switch, which was
        first."""
        # In one order, so that two that want the same topics wait for each other only one way.
        made = [asdict(row) for row in sorted(rows, key=lambda row: (row.pair, row.topic))]
        places = [(row.pair, row.topic) for row in rows]

        def found() -> dict[tuple[str, str], TopicInSwitch] | None:
            known = {(row.pair, row.topic): row for row in _held(connection, places)}
            return known if all(place in known for place in places) else None

        known = standing(lambda: insert_absent(connection, switching, made), found, "a topic in a switch")
        _advance(connection, {row.pair for row in rows})
        return tuple(known[place] for place in places)

    def of(self, pair: str) -> tuple[TopicInSwitch, ...]:
        """The topics of this pair that are in a switch, by name."""
        return self._database.read(lambda connection: read(connection, switching.c.pair == pair))

    @reads
    def everywhere(self, connection: Connection, topics: Collection[str]) -> tuple[TopicInSwitch, ...]:
        """Topics of these names in any pair."""
        names = chunks(sorted(set(topics)))
        return tuple(row for some in names for row in read(connection, switching.c.topic.in_(some)))

    def of_link(self, link: str) -> tuple[TopicInSwitch, ...]:
        """Those that this link carries, or carried until it let them go."""
        return self._database.read(lambda connection: read(connection, switching.c.link == link))

    @reads
    def version(self, connection: Connection, pair: str) -> int:
        """Grows with each change of this pair's rows, and with each flip: one row is read, so it may be asked often."""
        return revisions.revision_of(connection, _subject(pair))

    def version_lately(self, pair: str) -> int:
        """The same, read once for all who ask within a tenth of a second."""
        return self._glance.now().get(_subject(pair), 0)

    @writes
    def ask(self, connection: Connection, switch_id: str, asked: Asked, now_ms: int) -> int:
        """Asks the mirror this of the switch's topics; of how many it was not asked before. What was let go is no
        longer once something else is asked."""
        others = (switching.c.switch_id == switch_id, switching.c.asked != asked.value)
        values = {"asked": asked.value, "asked_ms": now_ms, "let_go_ms": 0}
        done = connection.execute(switching.update().where(*others).values(values)).rowcount
        _advance(connection, _pairs(connection, switch_id))
        return done

    @writes
    def let_go(self, connection: Connection, link: str, names: Collection[str], now_ms: int) -> int:
        """The mirror's word that no pump of the link writes these topics any more, where that was asked; of how many
        it is news."""
        done, pairs = 0, set[str]()
        asked = (switching.c.link == link, switching.c.asked == Asked.LET_GO.value, switching.c.let_go_ms == 0)
        for some in chunks(sorted(set(names))):
            ours = (*asked, switching.c.topic.in_(some))
            pairs.update(connection.scalars(select(switching.c.pair).where(*ours).distinct()))
            done += connection.execute(switching.update().where(*ours).values(let_go_ms=now_ms)).rowcount
        _advance(connection, pairs)
        return done

    @writes
    def end(self, connection: Connection, switch_id: str, names: Collection[str] | None = None) -> int:
        """No topic is in this switch any more, or none of these; how many were."""
        pairs, ours, done = _pairs(connection, switch_id), switching.c.switch_id == switch_id, 0
        for which in (true(),) if names is None else [switching.c.topic.in_(some) for some in chunks(sorted(names))]:
            done += connection.execute(switching.delete().where(ours, which)).rowcount
        _advance(connection, pairs)
        return done

    @writes
    def flip(self, connection: Connection, flips: Sequence[Flip], told: Sequence[AuditRow] = ()) -> tuple[Flip, ...]:
        """Gives each topic its other home, takes the twin of `link` away with what hangs on it, and gives `back` its
        twin; of one that is torn it keeps what had crossed. Open rows of `link` in the ledger are closed. Those in
        force afterwards, whoever made them: done twice it changes nothing, and where a later term stands, or another
        home in this one, nothing is touched. `told` is kept in the audit where its topic, or where it names none any
        topic, was flipped now."""
        ordered, done = sorted(flips, key=lambda one: (one.pair, one.topic)), dict[tuple[str, str], Flip]()
        flipped = set[str]()
        for pair in sorted({one.pair for one in ordered}):
            ours = {one.topic: one for one in ordered if one.pair == pair}
            # Whoever saves a twin asks for its home afterwards, and so waits here.
            insert_absent(connection, home_table, [asdict(_nowhere(one)) for one in ours.values()])
            for topic, stands in homes.hold(connection, pair, ours).items():
                one = ours[topic]
                if stands.term > one.term or (stands.term == one.term and stands.home != one.home):
                    continue
                done[pair, topic] = one
                if stands.term < one.term or twins.begun(connection, one.link, [topic]):
                    _apply(connection, one)
                    flipped.add(topic)
        _advance(connection, {one.pair for one in ordered})
        audit.add(connection, [row for row in told if not row.topic or row.topic in flipped] if flipped else [])
        return tuple(one for one in flips if (one.pair, one.topic) in done)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._glance.write(work)
