"""The database servers serve, keep databases apart, and go."""

from __future__ import annotations

import os
import time

import psutil
import pytest
import sqlalchemy as sa

from testkit.databases import DatabaseServer, MariaDbServer, PostgresServer


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


def count_after_insert(url: str) -> int:
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE IF NOT EXISTS kept (word VARCHAR(20) PRIMARY KEY)"))
            connection.execute(sa.text("INSERT INTO kept VALUES ('größe ✓')"))
        with engine.connect() as connection:
            count: int = connection.execute(sa.text("SELECT count(*) FROM kept WHERE word = 'größe ✓'")).scalar_one()
            return count
    finally:
        engine.dispose()


def test_databases_are_apart(server: DatabaseServer) -> None:
    urls = [server.url, server.new_database(), server.new_database()]
    assert len(set(urls)) == 3
    assert [count_after_insert(url) for url in urls] == [1, 1, 1]


@pytest.mark.parametrize("kind", [PostgresServer, MariaDbServer])
def test_a_server_that_died_is_started_anew_on_its_data(kind: type[DatabaseServer]) -> None:
    with kind() as server:
        url = server.new_database()
        assert count_after_insert(url) == 1
        psutil.Process(server.pid).kill()
        deadline = time.monotonic() + 10
        while server.alive():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert server.read_log_tail()
        server.revive()
        assert server.alive()
        assert count_after_insert(server.new_database()) == 1
        # The database is the one of before; whether its last rows are, is not promised.
        engine = sa.create_engine(url)
        try:
            with engine.connect() as connection:
                assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
        finally:
            engine.dispose()


@pytest.mark.parametrize("kind", [PostgresServer, MariaDbServer])
def test_nothing_is_left_of_a_stopped_server(kind: type[DatabaseServer]) -> None:
    with kind() as server:
        running = psutil.Process(server.pid)
        family = [running, *running.children(recursive=True)]
        as_root = running.uids().real == 0
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not server.folder.exists()
    # PostgreSQL never runs as root, whoever we are.
    assert as_root == (kind is MariaDbServer and os.geteuid() == 0)
