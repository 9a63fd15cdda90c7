"""What databases say when they fail, turned once into a sentence with place and remedy."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from twinshore.fleet import StoreError

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


def is_passing(error: DBAPIError) -> bool:
    """Whether the same transaction may well succeed when run again, and surely did nothing this time."""
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorname", "").startswith("SQLITE_BUSY")
    return getattr(origin, "sqlstate", None) in _PASSING_SQLSTATES or _number(origin) in _PASSING_NUMBERS


def told(error: SQLAlchemyError, place: str) -> StoreError:
    """The StoreError an operator reads. Neither statement nor values nor password are in it."""
    origin = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(origin, sqlite3.Error):
        return _told_sqlite(origin, place)
    code = str(_number(origin) or getattr(origin, "sqlstate", None) or "")
    if code == _FULL_SQLSTATE or _number(origin) in _FULL_NUMBERS:
        return StoreError(
            f"the store {place} has no space left; nothing was recorded half-way",
            hint="free space on the database server's disk; the mirror goes on by itself",
        )
    if code in _REFUSED:
        return StoreError(
            f"the store {place}: {_REFUSED[code]}", hint="see [store] url and password_env or password_file"
        )
    if isinstance(error, IntegrityError):
        return StoreError(f"the store {place} refused a row: {_first_line(origin)}")
    detail = _first_line(origin) or type(error).__name__
    return StoreError(f"the store {place} cannot be used: {detail}", hint="is the database up, and [store] url right?")


def no_room_for(place: str) -> StoreError:
    """An SQLite file that can neither be opened nor made."""
    folder = Path(place).parent
    there = "its folder does not exist" if not folder.is_dir() else "it cannot be opened"
    return StoreError(f"the store {place}: {there}", hint=f"make {folder} a folder this user can write")


def _told_sqlite(origin: sqlite3.Error, place: str) -> StoreError:
    name = getattr(origin, "sqlite_errorname", "")
    folder = Path(place).parent
    if name.startswith("SQLITE_FULL"):
        return StoreError(
            f"the store {place} has no space left{_free(folder)}; nothing was recorded half-way",
            hint=f"free space under {folder}, or point [store] url elsewhere; the mirror goes on by itself",
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"the store {place} cannot be written{_free(folder)}; nothing was recorded half-way",
            hint=f"see to the disk under {folder}: space, quota, health",
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return no_room_for(place)
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(f"the store {place} is read-only", hint="give this user the right to write it and its folder")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return StoreError(
            f"the store {place} is not a whole SQLite database: {origin}",
            hint="put a copy of it back, or name another file in [store] url",
        )
    if name.startswith("SQLITE_BUSY"):
        return StoreError(f"the store {place} is held by another process", hint="see which one holds that file")
    return StoreError(f"the store {place} cannot be used: {origin}")


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
