"""One suite, three databases: every test that asks for `store` runs on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from twinshore.store import Store, open_store
from twinshore.store.engine import DRIVERS
from twinshore.store.tables import metadata

KINDS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database whose tables, if it has any, are empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server = request.getfixturevalue({"postgresql": "postgres", "mariadb": "mariadb"}[request.param])
    url: str = server.url
    open_store(url).close()
    engine = create_engine(url.replace(f"{request.param}://", f"{DRIVERS[request.param]}://"))
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
