"""Where SQL's dialects differ: insert what is not there, insert or replace, and which text they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from twinshore.fleet import StoreError

Row = Mapping[str, Any]
T = TypeVar("T")
MADE_MOST = 5
# Those that say "on conflict".
_CONFLICTS: dict[str, Any] = {"postgresql": postgresql, "sqlite": sqlite}
CHUNK = 500  # Values in one IN list.


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Slices of at most `size`: databases bound the length of a statement."""
    ordered = list(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def storable(sentence: str) -> str:
    """The sentence without what some database refuses: NUL, and halves of surrogate pairs, as in broken names."""
    return sentence.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def insert_absent(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts the rows whose key is not there yet; the others stay as they are, whoever wrote them."""
    if not rows:
        return
    if dialect := _CONFLICTS.get(connection.dialect.name):
        connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)
    else:
        first = next(iter(rows[0]))
        statement = mysql.insert(table)
        connection.execute(statement.on_duplicate_key_update({first: table.c[first]}), rows)


def standing(make: Callable[[], None], find: Callable[[], T | None], what: str) -> T:
    """What stands after `make`, which leaves alone what is there. Another transaction may take that away before it is
    found; then it is made anew."""
    for _ in range(MADE_MOST):
        make()
        found = find()
        if found is not None:
            return found
    raise StoreError(f"{what} is taken away as often as it is made", hint="which other process uses this store?")


def put(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts the rows, or replaces the values of those whose primary key is there."""
    if rows:
        connection.execute(_put(connection.dialect.name, table, tuple(rows[0])), rows)


@cache
def _put(kind: str, table: Table, names: tuple[str, ...]) -> Insert:
    # Kept, as building it costs more than doing it; there are a handful.
    keys = [column.name for column in table.primary_key]
    values = [name for name in names if name not in keys]
    if dialect := _CONFLICTS.get(kind):
        inserted = dialect.insert(table)
        excluded = {name: inserted.excluded[name] for name in values}
        made: Insert = inserted.on_conflict_do_update(index_elements=keys, set_=excluded)
        return made
    on_mysql = mysql.insert(table)
    return on_mysql.on_duplicate_key_update({name: on_mysql.inserted[name] for name in values})
