"""Statements that stores share, in the words of three databases, and rows as dataclasses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import ColumnElement, Connection, Executable, Insert, RowMapping, Select, Table, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from twinshore.config.errors import StoreError

Row = Mapping[str, Any]
R = TypeVar("R")
T = TypeVar("T")
INSERT_ATTEMPTS_MAX = 5
# Dialects with "on conflict".
_CONFLICTS: dict[str, Any] = {"postgresql": postgresql, "sqlite": sqlite}
CHUNK_SIZE = 500  # Values in one IN list.


def chunks(values: Iterable[T], size: int = CHUNK_SIZE) -> Iterator[Sequence[T]]:
    """Slices of at most `size`, since databases limit a statement's length."""
    ordered = list(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def sanitize_text(sentence: str) -> str:
    """Replaces what some database refuses: NUL, and halves of surrogate pairs, as in broken names."""
    return sentence.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


TABLE_NAMES: dict[type, str] = {}
# Names that people and clients choose, cut to the length of their columns.
CUT_NAMES = dict.fromkeys(("actor", "client", "group", "host", "made_by", "name", "set_by"), 255)


def values_of(row: Any) -> dict[str, Any]:
    """The row's columns, as every database takes them. Nested rows have columns of their own, lists are JSON. The
    database gives numbers as ids.
    """
    found: dict[str, Any] = {}
    for name in row.__dataclass_fields__:
        value = getattr(row, name)
        if isinstance(value, str):
            found[name] = sanitize_text(value)[: CUT_NAMES.get(name)]
        elif isinstance(value, tuple | frozenset):
            found[name] = json.dumps(sorted(value) if isinstance(value, frozenset) else value)
        elif is_dataclass(value):
            found |= values_of(value)
        elif name != "id":
            found[name] = value
    return found


def row_of(kind: type[R], columns: RowMapping) -> R:
    """The opposite of `values_of`; ignores other columns. Raises StoreError for a word that this version lacks."""
    try:
        readers = _readers(kind)  # type: ignore[arg-type]  # a class is hashable
        return kind(**{name: read(columns) for name, read in readers})
    except ValueError as error:
        table = TABLE_NAMES.get(kind, kind.__name__)
        place = f"{table}, row {columns['id']}" if "id" in columns else table
        raise StoreError("state.invalid-row", place=place, cause=str(error)) from error


@cache
def _readers(kind: type) -> tuple[tuple[str, Callable[[RowMapping], Any]], ...]:
    hints = get_type_hints(kind)
    return tuple((name, _reader(name, hints[name])) for name in kind.__dataclass_fields__)  # type: ignore[attr-defined]


def _reader(name: str, kind: Any) -> Callable[[RowMapping], Any]:
    make: Any = kind
    if is_dataclass(kind):
        readers = _readers(kind)  # type: ignore[arg-type]
        return lambda columns: make(**{name: read(columns) for name, read in readers})
    if get_origin(kind) in (tuple, frozenset):
        make = getattr(get_args(kind)[0], "_make", get_args(kind)[0])
        return lambda columns: get_origin(kind)(map(make, json.loads(columns[name])))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return lambda columns: kind(columns[name])
    return itemgetter(name)


def read_rows(connection: Connection, kind: type[R], query: Executable) -> tuple[R, ...]:
    return tuple(row_of(kind, columns) for columns in connection.execute(query).mappings())


def read_row(connection: Connection, kind: type[R], query: Executable) -> R | None:
    """The only row of the query; None without one."""
    return next(iter(read_rows(connection, kind, query)), None)


def read_among(
    connection: Connection, kind: type[R], query: Select[Any], column: ColumnElement[str], values: Iterable[str]
) -> tuple[R, ...]:
    """The query's rows whose column has one of these values; of very many some after the others, in order."""
    queries = [query.where(column.in_(some)) for some in chunks(sorted(set(values)))]
    return tuple(row for one in queries for row in read_rows(connection, kind, one))


def narrowed(query: Select[Any], table: Table, wanted: Any, *names: str) -> Select[Any]:
    """The query for rows whose columns are as `wanted` has them, where that is not empty."""
    values = values_of(wanted)  # names are cut as stored ones
    for name in filter(values.get, names):
        query = query.where(table.c[name] == values[name])
    return query


def newest(table: Table, wanted: Any, *names: str, limit: int) -> Select[Any]:
    """Selects the newest rows, as `narrowed`, and by the `links` and older than the id `before` of `wanted`."""
    query = narrowed(select(table).order_by(table.c.id.desc()).limit(limit), table, wanted, *names)
    if wanted.links:
        query = query.where(table.c.link.in_(wanted.links))
    return query.where(table.c.id < wanted.before) if wanted.before else query


def swap_row(connection: Connection, table: Table, seen: Row, values: Row) -> bool:
    """Gives the row with the columns `seen` these values; returns whether there was one."""
    as_seen = (table.c[name] == value for name, value in seen.items())
    return connection.execute(table.update().where(*as_seen).values(**values)).rowcount == 1


def insert_absent(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows with new keys, and leaves existing ones alone."""
    if not rows:
        return
    if dialect := _CONFLICTS.get(connection.dialect.name):
        connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)
    else:
        first = next(iter(rows[0]))
        statement = mysql.insert(table)
        connection.execute(statement.on_duplicate_key_update({first: table.c[first]}), rows)


def insert_or_find(make: Callable[[], None], find: Callable[[], T | None], what: str) -> T:
    """Calls `make`, which leaves an existing row alone, then `find`. Repeats where another transaction deletes the row
    in between.
    """
    for _ in range(INSERT_ATTEMPTS_MAX):
        make()
        found = find()
        if found is not None:
            return found
    raise StoreError("state.row-deleted-again", row=what)


def upsert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts the rows, or replaces those with the same primary key."""
    if rows:
        connection.execute(_put(connection.dialect.name, table, tuple(rows[0])), rows)


@cache
def _put(kind: str, table: Table, names: tuple[str, ...]) -> Insert:
    # Cached, since building a statement costs more than running it; there are a handful.
    keys = [column.name for column in table.primary_key]
    values = [name for name in names if name not in keys]
    if dialect := _CONFLICTS.get(kind):
        inserted = dialect.insert(table)
        excluded = {name: inserted.excluded[name] for name in values}
        made: Insert = inserted.on_conflict_do_update(index_elements=keys, set_=excluded)
        return made
    on_mysql = mysql.insert(table)
    return on_mysql.on_duplicate_key_update({name: on_mysql.inserted[name] for name in values})
