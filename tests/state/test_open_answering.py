"""A store that is asked whether it answers: within the time, whatever is wrong with it."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest

from testkit.databases import PostgresServer
from testkit.errors import raises
from twinshore.config.errors import RefusedError, StoreError
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.state.opening import open_responsive
from twinshore.state.store import open_store
from twinshore.switch.operations.run import require_writable_store

WITHIN_S = 1.0
PATIENT_S = 60.0


def settings(folder: Path, url: str) -> Settings:
    path = folder / "twinshore.toml"
    path.write_text(f'[store]\nurl = "{url}"\n[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n', encoding="utf-8")
    return load_settings(path, {})


def test_one_that_answers_is_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    open_store(url).close()
    with open_responsive(settings(tmp_path, url), PATIENT_S) as store:
        assert store.switches.all() == ()


def test_one_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with raises(StoreError, "state.no-store"):
        open_responsive(settings(tmp_path, f"sqlite:///{tmp_path / 'store.db'}"), PATIENT_S)
    assert not (tmp_path / "store.db").exists()


def test_one_that_refuses_is_told(tmp_path: Path) -> None:
    with raises(StoreError, "state.unusable"):
        open_responsive(settings(tmp_path, f"postgresql://me@127.0.0.1:{free_port()}/twinshore"), PATIENT_S)


def test_one_that_takes_the_connection_and_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"postgresql://me@127.0.0.1:{listening.getsockname()[1]}/twinshore"
        began_s = time.monotonic()
        with raises(StoreError, "state.no-answer", seconds=1.0):
            open_responsive(settings(tmp_path, url), WITHIN_S)
        assert time.monotonic() - began_s < PATIENT_S
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "store"), "none keeps the process"


def test_one_that_may_only_be_read_is_told(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    open_store(url).close()
    name = url.rpartition("/")[2]
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    with raises(StoreError, "state.unusable") as refused:
        open_responsive(settings(tmp_path, url), PATIENT_S)
    assert "read-only" in str(refused.value.values["cause"])
    with open_store(url) as store, pytest.raises(RefusedError, match=r"nothing was begun: .*read-only"):
        require_writable_store(store)
