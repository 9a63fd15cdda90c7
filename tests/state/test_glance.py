"""What is looked at often is read once for all who look, and no write of this process is ever missed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection

from twinshore.config.errors import StoreError
from twinshore.config.model import Secret
from twinshore.state import database as engine
from twinshore.state.core.values import ControlRow
from twinshore.state.database import Database, SharedRead
from twinshore.state.link_store import read_control_versions
from twinshore.state.store import open_store

LINK = "east->west"


class Counted:
    """How often the database was read."""

    def __init__(self) -> None:
        self.times, self.broken, self.slow_s = 0, False, 0.0

    def __call__(self, connection: Connection) -> dict[str, int]:
        self.times += 1
        time.sleep(self.slow_s)
        if self.broken:
            raise StoreError("the store is away")
        return read_control_versions(connection)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    open_store(url).close()
    return url


def changed(url: str, seen: int) -> None:
    """Another process says a word of the link."""
    store = open_store(url)
    row = ControlRow(LINK, "paused", "true", 5, "somebody")
    assert store.controls.change(LINK, {"paused": row}, seen=seen, told=[])
    store.close()


def test_many_that_ask_within_a_moment_read_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 60.0)
    database, counted = Database(url, Secret()), Counted()
    looked = SharedRead(database, counted)
    threads = [threading.Thread(target=looked.now) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (looked.now(), counted.times) == ({}, 1)
    database.close()


def test_what_this_process_wrote_is_seen_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 60.0)
    store = open_store(url)
    assert store.controls.version_lately(LINK) == 0
    row = ControlRow(LINK, "paused", "true", 5, "somebody")
    assert store.controls.change(LINK, {"paused": row}, seen=0, told=[])
    assert store.controls.version_lately(LINK) == 1
    store.close()


def test_what_another_process_wrote_is_seen_a_moment_later(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 60.0)
    store = open_store(url)
    assert store.controls.version_lately(LINK) == 0
    changed(url, seen=0)
    assert store.controls.version_lately(LINK) == 0, "the moment is not over"
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 0.0)
    assert store.controls.version_lately(LINK) == 1
    store.close()


def test_nothing_old_is_told_of_a_store_that_cannot_be_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database, counted = Database(url, Secret()), Counted()
    looked = SharedRead(database, counted)
    looked.now()
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 0.0)
    counted.broken = True
    with pytest.raises(StoreError):
        looked.now()
    with pytest.raises(StoreError):
        looked.now()
    counted.broken = False
    assert looked.now() == {}
    database.close()


@pytest.mark.parametrize("broken", [False, True])
def test_who_waits_for_a_slow_reading_has_that_one_be_it_a_failure(
    url: str, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read by itself, one behind the other: with a store far away, or away, the last waited for all of them."""
    database, counted = Database(url, Secret()), Counted()
    monkeypatch.setattr(engine, "SHARED_READ_MAX_AGE_S", 1.0)
    counted.broken, counted.slow_s = broken, 1.5
    looked = SharedRead(database, counted)
    found: list[dict[str, int] | None] = []

    def ask() -> None:
        try:
            found.append(looked.now())
        except StoreError:
            found.append(None)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, counted.times) == ([None if broken else {}] * 20, 1)
    database.close()
