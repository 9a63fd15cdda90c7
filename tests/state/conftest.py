"""One suite, three databases: every test that asks for `store` runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import twinshore
from testkit.databases import MariaDbServer, PostgresServer
from twinshore.state.store import Store, open_store
from twinshore.state.tables import metadata


@pytest.fixture(autouse=True)
def children_find_this_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that tests start import the Twinshore that is tested, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(Path(twinshore.__path__[0]).parent))


@pytest.fixture(scope="session")
def own_postgres(postgres: PostgresServer) -> str:
    """A database on PostgreSQL for this folder's tests."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def own_mariadb(mariadb: MariaDbServer) -> str:
    """A database on MariaDB for this folder's tests."""
    return mariadb.new_database()


@pytest.fixture(params=["sqlite", "own_postgres", "own_mariadb"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database whose tables, if it has any, are empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    url: str = request.getfixturevalue(request.param)
    open_store(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    engine.dispose()
    return url


@pytest.fixture
def open_another(store_url: str) -> Iterator[Callable[[], Store]]:
    """Opens the same store once more, as another process would."""
    opened: list[Store] = []

    def another() -> Store:
        opened.append(open_store(store_url))
        return opened[-1]

    yield another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], Store]) -> Store:
    return open_another()
