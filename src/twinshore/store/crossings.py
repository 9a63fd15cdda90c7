"""What had crossed of topics that moved by force, and who had written it, in SQL.

The flip takes away the old link's positions and the producers that hang on them. Of a switch by force they are kept
apart, for a day: a producer that had no answer from the old home sends again what may have crossed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, insert, literal, select

from twinshore.store.dialects import chunks
from twinshore.store.engine import StorePart, reads
from twinshore.store.receipt_rules import PRODUCERS_MAX
from twinshore.store.receipts import producer_of
from twinshore.store.switch_tables import crossed_producers, crossings
from twinshore.store.switch_values import Crossing, Flip
from twinshore.store.tables import positions, source_producers
from twinshore.store.values import SourceProducer

KEPT_MS = 86_400_000
# Who wrote nothing for so long before the last that crossed sends nothing again.
LOOKS_BACK_MS = 3_600_000

_Place = tuple[str, int]


def keep(connection: Connection, one: Flip) -> None:
    """Before what hangs on the old link's twin is taken away. What was kept of earlier moves is over; a flip that is
    done again has kept what there was."""
    if one.torn and _kept(connection, one.link, {one.topic: one.term}):
        return
    for link in filter(None, (one.link, one.back)):
        _forget(connection, _is(crossings, link, [one.topic]), _is(crossed_producers, link, [one.topic]))
    _forget_aged(connection, one.since_ms - KEPT_MS)
    if not one.torn:
        return
    ours = _is(positions, one.link, [one.topic])
    columns = positions.c.link, positions.c.topic, positions.c.partition
    kept = select(*columns, literal(one.term), positions.c.to_offset, literal(one.since_ms))
    _copy(connection, crossings, kept.where(*ours))
    _copy(connection, crossed_producers, _writers(one.link, [one.topic]))


def _copy(connection: Connection, to: Table, rows: Select[Any]) -> None:
    connection.execute(insert(to).from_select([column.name for column in to.columns], rows))


def _writers(link: str, topics: Sequence[str]) -> Select[Any]:
    """The producers of the link's topics, in the columns of those that are kept."""
    theirs = source_producers.c
    columns = positions.c.link, positions.c.topic, positions.c.partition
    query = select(*columns, theirs.producer_id, theirs.epoch, theirs.batches)
    query = query.join_from(positions, source_producers, theirs.position_id == positions.c.id)
    return query.where(*_is(positions, link, topics), theirs.last_ms >= positions.c.last_ms - LOOKS_BACK_MS)


def _forget(
    connection: Connection, of_crossings: Sequence[ColumnElement[bool]], of_producers: Sequence[ColumnElement[bool]]
) -> None:
    connection.execute(delete(crossings).where(*of_crossings))
    connection.execute(delete(crossed_producers).where(*of_producers))


def _forget_aged(connection: Connection, before_ms: int) -> None:
    aged = select(crossings.c.link, crossings.c.topic).where(crossings.c.since_ms < before_ms).distinct()
    for link, topic in connection.execute(aged).all():
        _forget(connection, _is(crossings, link, [topic]), _is(crossed_producers, link, [topic]))


def _kept(connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, Crossing]:
    rows: list[Any] = []
    wrote: dict[_Place, list[SourceProducer]] = {}
    for some in chunks(sorted(terms)):
        rows += connection.execute(select(crossings).where(*_is(crossings, link, some))).all()
        _gather(wrote, connection.execute(select(crossed_producers).where(*_is(crossed_producers, link, some))))
    return {(row.topic, row.partition): _crossing(row, row.term, wrote) for row in rows if row.term == terms[row.topic]}


def _unflipped(connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, Crossing]:
    rows: list[Any] = []
    wrote: dict[_Place, list[SourceProducer]] = {}
    for some in chunks(sorted(terms)):
        rows += connection.execute(select(positions).where(*_is(positions, link, some))).all()
        _gather(wrote, connection.execute(_writers(link, some)))
    return {(row.topic, row.partition): _crossing(row, terms[row.topic], wrote) for row in rows}


def _gather(wrote: dict[_Place, list[SourceProducer]], rows: Iterable[Any]) -> None:
    for row in rows:
        wrote.setdefault((row.topic, row.partition), []).append(
            producer_of(row, f"crossed_producers, {row.topic}-{row.partition}")
        )


def _crossing(row: Any, term: int, wrote: Mapping[_Place, list[SourceProducer]]) -> Crossing:
    theirs = wrote.get((row.topic, row.partition), ())
    return Crossing(term, row.to_offset, len(theirs) < PRODUCERS_MAX, tuple(theirs))


def _is(table: Table, link: str, topics: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return table.c.link == link, table.c.topic.in_(topics)


class Crossings(StorePart):
    """What had crossed of topics that moved by force."""

    @reads
    def of(self, connection: Connection, link: str, terms: Mapping[str, int]) -> dict[_Place, Crossing]:
        """By topic and partition: of these topics, which came by force from where the link carried them, each in the
        term that it came with. Of one that nobody knows nothing."""
        found = _kept(connection, link, terms)
        # Clients hear of a move a moment before the store does: until then the positions are there.
        lacking = terms.keys() - {topic for topic, _ in found}
        found |= _unflipped(connection, link, {topic: terms[topic] for topic in lacking})
        lacking = terms.keys() - {topic for topic, _ in found}
        return found | (_kept(connection, link, {topic: terms[topic] for topic in lacking}) if lacking else {})
