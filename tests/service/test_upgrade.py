"""An older store's tables change when an operator says so, once no mirror of the older version is alive."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from twinshore.fleet import ConfigError, RefusedError, Secret, StoreError
from twinshore.fleet.settings import Settings, load_settings
from twinshore.service.operations.upgrade import act, plan
from twinshore.store import open_store
from twinshore.store.engine import Database
from twinshore.store.opening import (
    open_answering,
    open_found,
    open_if_there,
    open_known,
    open_or_make,
    open_to_look,
)
from twinshore.store.schema import SCHEMA, schema_of

OLDER = "0021"
TTL_MS = 400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "twinshore.toml"
    file.write_text('[store]\nurl = "sqlite:///store.db"\n[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n')
    return load_settings(file, {})


@pytest.fixture
def older(settings: Settings) -> Settings:
    """The store of the version before."""
    open_store(settings.store.url).close()
    with database_of(settings) as database:
        database.write(lambda one: one.execute(text("DROP TABLE crossings")))
        say_schema(database, OLDER)
    return settings


@contextlib.contextmanager
def database_of(settings: Settings) -> Iterator[Database]:
    database = Database(settings.store.url, Secret())
    yield database
    database.close()


def say_schema(database: Database, version: str) -> None:
    rename = text("UPDATE twinshore_schema SET version_num = :version")
    database.write(lambda one: one.execute(rename, {"version": version}))


def schema_in(settings: Settings) -> str | None:
    with database_of(settings) as database:
        return database.read(schema_of)


def lease(settings: Settings, beat: int, released: bool = False) -> None:
    """As a mirror of the version before writes it."""
    row = {"owner": "anna process 1", "ttl": TTL_MS, "beat": beat, "released": released}
    insert = "INSERT OR REPLACE INTO leases (name, owner, generation, beat, ttl_ms, released)"
    values = text(f"{insert} VALUES ('link east->west', :owner, 1, :beat, :ttl, :released)")
    with database_of(settings) as database:
        database.write(lambda one: one.execute(values, row))


def look(settings: Settings) -> object:
    with open_to_look(settings) as store:
        return store


@pytest.mark.parametrize(
    "opened",
    [open_or_make, open_if_there, open_known, open_found, look, lambda settings: open_answering(settings, 10.0)],
)
def test_an_older_store_is_opened_by_nothing_and_stays_as_it_is(
    older: Settings, opened: Callable[[Settings], object]
) -> None:
    file = Path(older.store.url.removeprefix("sqlite:///"))
    before = file.read_bytes()
    with pytest.raises(StoreError, match=f"has schema {OLDER}, and this version needs {SCHEMA}") as refused:
        opened(older)
    assert "twinshore store upgrade" in refused.value.hint
    assert file.read_bytes() == before


def test_it_is_changed_where_an_operator_says_so_and_opened_then(older: Settings) -> None:
    planned = plan(older, print)
    (step,) = planned.steps
    assert schema_in(older) == OLDER, "a plan changes nothing"
    assert f"from schema {OLDER} to {SCHEMA}" in step.sentence(done=False)
    assert list(act(planned, older)) == [step]
    open_known(older).close()
    assert schema_in(older) == SCHEMA
    again = plan(older, print)
    assert not again.steps
    assert "nothing to do" in again.shown[0]


def test_a_mirror_that_renews_its_lease_is_not_robbed_of_its_tables(older: Settings) -> None:
    lease(older, 1)
    ended = threading.Event()

    def beats() -> None:
        beat = 1
        while not ended.wait(TTL_MS / 4000):
            beat += 1
            lease(older, beat)

    beating = threading.Thread(target=beats)
    beating.start()
    try:
        with pytest.raises(RefusedError, match=r"link east->west is carried by anna process 1"):
            plan(older, print)
    finally:
        ended.set()
        beating.join()
    assert schema_in(older) == OLDER


def test_a_killed_mirrors_lease_is_waited_for_and_said(older: Settings) -> None:
    lease(older, 1)
    said: list[str] = []
    begun_s = time.monotonic()
    planned = plan(older, said.append)
    assert time.monotonic() - begun_s >= TTL_MS / 1000
    assert len(said) == 1
    assert "anna process 1" in said[0]
    assert planned.steps


def test_a_mirror_that_begins_behind_the_plan_refuses_the_act(older: Settings) -> None:
    lease(older, 1, released=True)
    planned = plan(older, print)
    lease(older, 2)
    beaten = threading.Timer(TTL_MS / 2000, lambda: lease(older, 3))
    beaten.start()
    with pytest.raises(RefusedError):
        list(act(planned, older))
    beaten.join()
    assert schema_in(older) == OLDER


def test_a_newer_store_and_none_at_all_are_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no store at"):
        plan(settings, print)
    assert not (tmp_path / "store.db").exists()
    open_store(settings.store.url).close()
    with database_of(settings) as database:
        say_schema(database, "9999")
    with pytest.raises(StoreError, match="which this version does not know"):
        plan(settings, print)


def test_tables_that_a_killed_process_left_half_made_are_made_by_the_next(settings: Settings) -> None:
    with database_of(settings) as database:
        database.write(lambda one: one.execute(text("CREATE TABLE twins (link TEXT)")))
    assert not plan(settings, print).steps
