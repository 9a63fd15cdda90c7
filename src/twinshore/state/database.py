"""One database behind SQLAlchemy: driver, tuning, transactions, dialects, and errors with a remedy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from twinshore.config.errors import ConfigError, StoreError
from twinshore.config.model import Secret

T = TypeVar("T")
_PASSING_SQLSTATES = ("40001", "40P01", "55P03")  # serialization, deadlock, lock not available
_PASSING_NUMBERS = (1205, 1213, 1020)  # lock wait timeout, deadlock, record has changed
_FULL_SQLSTATE = "53100"
_FULL_NUMBERS = (1021, 1114, 3, 28)  # disk full, table full, error writing file, no space left

_REFUSED = {
    "28P01": "the database refused the user or password",
    "28000": "the database refused the user or password",
    "3D000": "there is no such database",
    "42501": "the user lacks a right there",
    "1045": "the database refused the user or password",
    "1044": "the user lacks a right there",
    "1142": "the user lacks a right there",
    "1049": "there is no such database",
}


def is_retriable(error: DBAPIError) -> bool:
    """Whether the transaction surely did nothing, and may succeed when run again."""
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorname", "").startswith("SQLITE_BUSY")
    return getattr(origin, "sqlstate", None) in _PASSING_SQLSTATES or _number(origin) in _PASSING_NUMBERS


def store_error(error: SQLAlchemyError, place: str) -> StoreError:
    """Returns an error for operators, without statement, values and password."""
    origin = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(origin, sqlite3.Error):
        return _told_sqlite(origin, place)
    code = str(_number(origin) or getattr(origin, "sqlstate", None) or "")
    if code == _FULL_SQLSTATE or _number(origin) in _FULL_NUMBERS:
        return StoreError("state.full", place=place, free="", disk="the database server's disk")
    if code in _REFUSED:
        return StoreError("state.access-denied", place=place, cause=_REFUSED[code])
    if isinstance(error, IntegrityError):
        return StoreError("state.row-refused", place=place, cause=_first_line(origin))
    detail = _first_line(origin) or type(error).__name__
    return StoreError("state.unusable", place=place, cause=detail)


def unwritable_file_error(place: str) -> StoreError:
    """Returns the error of an SQLite file that can neither be opened nor created."""
    folder = Path(place).parent
    there = "its folder does not exist" if not folder.is_dir() else "it cannot be opened"
    return StoreError("state.cannot-open", place=place, cause=there, folder=str(folder))


def _told_sqlite(origin: sqlite3.Error, place: str) -> StoreError:
    name = getattr(origin, "sqlite_errorname", "")
    folder = Path(place).parent
    if name.startswith("SQLITE_FULL"):
        return StoreError("state.full", place=place, free=_free(folder), disk=f"the disk of {folder}")
    if name.startswith("SQLITE_IOERR"):
        return StoreError("state.cannot-write", place=place, free=_free(folder), folder=str(folder))
    if name.startswith("SQLITE_CANTOPEN"):
        return unwritable_file_error(place)
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError("state.read-only", place=place)
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return StoreError("state.corrupt", place=place, cause=str(origin))
    if name.startswith("SQLITE_BUSY"):
        return StoreError("state.locked", place=place)
    return StoreError("state.unusable", place=place, cause=str(origin))


def _free(folder: Path) -> str:
    try:
        return f" ({shutil.disk_usage(folder).free // 1024:,} KiB free on its disk)"
    except OSError:
        return ""


def _number(origin: object) -> int | None:
    first = origin.args[0] if isinstance(origin, BaseException) and origin.args else None
    return first if isinstance(first, int) else None


def _first_line(origin: object) -> str:
    lines = str(origin if origin is not None else "").strip().splitlines()
    return lines[0] if lines else ""


P = ParamSpec("P")
W = TypeVar("W")
S = TypeVar("S", bound="StorePart")

DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
TRANSACTION_WAIT_S = 10  # How long a transaction waits for others, and is tried again when they made it fail.
ANSWER_TIMEOUT_S = 30
FIRST_PAUSE_S = 0.02
SHARED_READ_MAX_AGE_S = 0.1
# Connections of one process, for any number of links: transactions are short, and callers wait for a free
# one. More would only wait in the database, whose own limit (100 in PostgreSQL) all processes share.
CONNECTIONS_KEPT = 8
CONNECTIONS_MAX = 16
_POOL: dict[str, Any] = {
    "pool_size": CONNECTIONS_KEPT,
    "max_overflow": CONNECTIONS_MAX - CONNECTIONS_KEPT,
    "pool_timeout": 2 * ANSWER_TIMEOUT_S,
}
# The server's limits do not reach a client that the network has cut off.
_POSTGRES_NETWORK = {
    "tcp_user_timeout": ANSWER_TIMEOUT_S * 1000,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
}


class Database:
    """Transactions on one database, from any thread. Database exceptions become StoreError."""

    def __init__(self, url: str, password: Secret, place: str = "") -> None:
        """`place`: the database's name in sentences, if not its URL."""
        self._url = _driver_url(url)
        self.place = place or _place(self._url)
        self.kind = self._url.get_backend_name()
        self._engine = _engine(self._url, password, _place(self._url))

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in one transaction that may write; again from the start after a conflict with another
        transaction.

        So `work` must have no effect outside the database.
        """
        return self._run(work, writes=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, writes=False)

    def close(self) -> None:
        self._engine.dispose()

    def _run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        pause_s = FIRST_PAUSE_S
        patient_until_s = time.monotonic() + TRANSACTION_WAIT_S
        while True:
            try:
                with self._engine.connect() as connection:
                    connection.execution_options(twinshore_writes=writes)
                    with connection.begin():
                        return work(connection)
            except DBAPIError as error:
                if not is_retriable(error) or time.monotonic() > patient_until_s:
                    raise store_error(error, self.place) from error
            except SQLAlchemyError as error:
                raise store_error(error, self.place) from error
            time.sleep(pause_s)
            pause_s *= 2


class StorePart:
    """One subject of the store. Each method marked `reads` or `writes` is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._database.write(work)


def reads(work: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """Gives the method a connection, in a read-only transaction."""

    @wraps(work)
    def method(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return self._database.read(lambda connection: work(self, connection, *args, **named))

    return method


def writes(work: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """Gives the method a connection, in a transaction that may write. After a conflict the method runs again."""

    @wraps(work)
    def method(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return self._write(lambda connection: work(self, connection, *args, **named))

    return method


class SharedRead(Generic[T]):
    """A reading shared by callers that poll. It began at most a tenth of a second before the call, however long it
    took, so all that wait for one get its result or error. Decisions need a read of their own.
    """

    def __init__(self, database: Database, work: Callable[[Connection], T]) -> None:
        self._database, self._work = database, work
        self._lock = threading.Lock()
        self._found: list[T] = []
        self._error: Exception | None = None
        self._begun_s = -SHARED_READ_MAX_AGE_S
        self._void = True

    def write(self, work: Callable[[Connection], W]) -> W:
        """Runs a transaction that changes what is read here: later calls see that."""
        try:
            return self._database.write(work)
        finally:
            self._void = True

    def now(self) -> T:
        """Returns the reading; raises its StoreError."""
        asked_s = time.monotonic()
        with self._lock:
            if self._void or self._begun_s < asked_s - SHARED_READ_MAX_AGE_S:
                self._read()
            if self._error is not None:
                raise self._error
            return self._found[0]

    def _read(self) -> None:
        self._void, self._begun_s = False, time.monotonic()
        try:
            self._found, self._error = [self._database.read(self._work)], None
        except Exception as error:
            self._found, self._error = [], error


def describe_url(url: str) -> str:
    """Names the store's database without user and password, for sentences."""
    return _place(_driver_url(url))


def check_store_file(url: str) -> None:
    """Raises StoreError where a store's file is missing and could not be created."""
    parsed = _driver_url(url)
    place = _place(parsed)
    if parsed.get_backend_name() != "sqlite" or Path(place).exists():
        return
    try:
        tempfile.TemporaryFile(dir=Path(place).parent).close()
    except OSError as error:
        raise unwritable_file_error(place) from error


def _driver_url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("state.invalid-url") from error
    kind, _, driver = url.drivername.partition("+")
    if kind not in DRIVERS or (driver and url.drivername != DRIVERS[kind]):
        raise ConfigError("state.unknown-database", database=url.drivername, known=", ".join(DRIVERS))
    if kind == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError("state.in-memory")
    if kind != "sqlite" and not url.database:
        raise ConfigError("state.no-database-name", url=url.render_as_string())
    return url.set(drivername=DRIVERS[kind])


def _place(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").absolute())
    host = url.host or "localhost"
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{host}{port}/{url.database}"


def _engine(url: URL, password: Secret, place: str) -> Engine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        _keep_private(Path(place))
        engine = create_engine(url, connect_args={"timeout": TRANSACTION_WAIT_S, "isolation_level": None}, **_POOL)
        here = _still_there(Path(place))
        event.listen(engine, "do_connect", here)
        event.listen(engine, "connect", _tune_sqlite)
        event.listen(engine, "begin", here)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    arguments: dict[str, Any] = {"connect_timeout": TRANSACTION_WAIT_S}
    if kind == "postgresql":
        limits = f"-c lock_timeout={TRANSACTION_WAIT_S}s -c statement_timeout={ANSWER_TIMEOUT_S}s"
        arguments["options"] = f"{limits} -c idle_in_transaction_session_timeout={ANSWER_TIMEOUT_S}s"
        arguments |= _POSTGRES_NETWORK
    else:
        arguments |= {"read_timeout": ANSWER_TIMEOUT_S, "write_timeout": ANSWER_TIMEOUT_S, "charset": "utf8mb4"}
        arguments["init_command"] = f"SET SESSION sql_mode='TRADITIONAL', innodb_lock_wait_timeout={TRANSACTION_WAIT_S}"
    engine = create_engine(
        url, connect_args=arguments, isolation_level="READ COMMITTED", pool_pre_ping=True, pool_recycle=1800, **_POOL
    )
    if password:
        event.listen(engine, "do_connect", _with_password(password, place))
    return engine


def _keep_private(file: Path) -> None:
    """Creates the file with private rights, since incidents hold excerpts of records. SQLite's other files copy the
    rights.
    """
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        # It exists, as nearly always; or cannot be created, which SQLite then reports.
        return


def _still_there(file: Path) -> Callable[..., None]:
    """Returns a check that raises where the file was replaced: writes there are lost, and SQLite would create a file
    that others may read.
    """
    opened = _file_id(file)

    def check(*_: Any) -> None:
        if opened is not None and _file_id(file) != opened:
            raise StoreError("state.file-replaced", path=str(file))

    return check


def _file_id(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def readable_by_others(url: str) -> str:
    """Returns a warning about a store's file that others on this machine may read, or nothing."""
    found = _driver_url(url)
    place = Path(_place(found))
    try:
        mode = place.stat().st_mode if found.get_backend_name() == "sqlite" else 0
    except OSError:
        return ""
    if not mode & (stat.S_IROTH | stat.S_IRGRP):
        return ""
    return f"others on this machine may read the store {place}, which holds excerpts of records: chmod 600 {place}*"


def _with_password(password: Secret, place: str) -> Callable[[Any, Any, Any, dict[str, Any]], None]:
    # Read at each new connection, so that a password is changed without a restart.
    def give(_dialect: Any, _record: Any, _positional: Any, named: dict[str, Any]) -> None:
        try:
            named["password"] = password.read()
        except ConfigError as error:
            raise StoreError("state.no-password", place=place, cause=error.message) from error

    return give


def _tune_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={TRANSACTION_WAIT_S * 1000}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "journal_size_limit=67108864",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that will write takes its lock at once: one that only begins to write later can only fail.
    writes = connection.get_execution_options().get("twinshore_writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
