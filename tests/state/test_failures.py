"""A database that cannot be had, or has no room, is told in one sentence; nothing is left half-done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.engine import make_url

from testkit.errors import raises
from twinshore.config.errors import CodedError, ConfigError, StoreError
from twinshore.config.model import Secret
from twinshore.state.core.values import ProgressRecord
from twinshore.state.database import Database
from twinshore.state.store import Store, open_store

LINK = "east->west"


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute('BEGIN IMMEDIATE')
print('held', flush=True)
sys.stdin.read()
"""


def crowd(turn: int) -> list[ProgressRecord]:
    return [
        ProgressRecord(
            link=LINK,
            topic=f"topic-{index}",
            partition=turn,
            from_offset=0,
            to_offset=10,
            records=10,
            bytes=100,
            batches=1,
            source_end=10,
            first_ms=0,
            last_ms=1,
        )
        for index in range(200)
    ]


def failure(url: str, password: Secret | None = None) -> CodedError:
    with pytest.raises(CodedError) as caught:
        open_store(url, password)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("nonsense", "state.invalid-url"),
        ("postgresql://u@h:${PORT}/d", "state.invalid-url"),
        ("postgresql://u@h:/d", "state.invalid-url"),
        ("oracle://h/d", "state.unknown-database"),
        ("postgresql+psycopg2://h/d", "state.unknown-database"),
        ("sqlite://", "state.in-memory"),
        ("sqlite:///:memory:", "state.in-memory"),
        ("postgresql://u:hush@h", "state.no-database-name"),
    ],
)
def test_a_url_that_names_no_store(url: str, code: str) -> None:
    error = failure(url)
    assert isinstance(error, ConfigError) and error.code == code
    assert "hush" not in str(error)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    error = failure(f"sqlite:///{tmp_path}/nowhere/store.db")
    assert (error.code, error.values["folder"]) == ("state.cannot-open", f"{tmp_path}/nowhere")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"not a database at all, but a letter\n" * 200)
    error = failure(f"sqlite:///{file}")
    assert (error.code, error.values["place"]) == ("state.corrupt", str(file))
    assert file.read_bytes() == b"not a database at all, but a letter\n" * 200


def test_a_file_another_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinshore.state.database.TRANSACTION_WAIT_S", 0.01)
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        hold = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE')"
        )
        wait = "; print('held', flush=True); sys.stdin.read()"
        holder = subprocess.Popen(
            [sys.executable, "-c", hold + wait, str(tmp_path / "store.db")], stdin=-1, stdout=-1, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with raises(StoreError, "state.locked"):
            store.progress.record(crowd(0))
        holder.communicate()
        store.progress.record(crowd(0))


def test_a_server_that_is_not_there() -> None:
    error = failure("postgresql://somebody@127.0.0.1:1/nothing", Secret())
    assert error.message.startswith("the store postgresql://127.0.0.1:1/nothing cannot be used: ")
    assert failure("mysql://somebody@127.0.0.1:1/nothing").message.startswith("the store mysql://127.0.0.1:1/nothing")


@pytest.mark.parametrize(
    ("kind", "said"), [("own_postgres", '"nowhere" does not exist'), ("own_mariadb", "no such database")]
)
def test_a_database_that_is_not_there(kind: str, said: str, request: pytest.FixtureRequest) -> None:
    url = make_url(request.getfixturevalue(kind)).set(database="nowhere")
    assert said in failure(url.render_as_string(hide_password=False)).message


def _parted(text: str, folder: Path) -> tuple[str, Path]:
    """A server's URL without its password, and a file that holds that."""
    url = make_url(text)
    secret = folder / "password"
    secret.write_text(f"{url.password or ''}\n", encoding="utf-8")
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return bare.render_as_string(), secret


@pytest.mark.parametrize("kind", ["own_postgres", "own_mariadb"])
def test_the_password_comes_from_its_file_at_each_connection(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bare, secret = _parted(request.getfixturevalue(kind), tmp_path)
    with open_store(bare, Secret(file=str(secret))) as store:
        assert store.progress.positions("nowhere") == ()


@pytest.mark.parametrize("kind", ["own_postgres", "own_mariadb"])
def test_a_password_that_went_away_is_a_failure_of_the_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bare, secret = _parted(request.getfixturevalue(kind), tmp_path)
    with open_store(bare, Secret(file=str(secret))) as store:
        store.close()
        away = secret.rename(tmp_path / "away")
        with raises(StoreError, "state.no-password"):
            store.progress.positions("nowhere")
        away.rename(secret)
        assert store.progress.positions("nowhere") == ()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_password_that_cannot_be_read_is_a_failure_of_the_store(kind: str, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    database = Database(f"{kind}://u@127.0.0.1:1/d", Secret(file=str(secret)))
    causes = []
    for content in (None, b"hush\xff"):
        if content is not None:
            secret.write_bytes(content)
        with raises(StoreError, "state.no-password", place=f"{kind}://127.0.0.1:1/d") as caught:
            database.read(lambda connection: connection.scalar(text("SELECT 1")))
        causes.append(str(caught.value.values["cause"]))
        assert "hush" not in str(caught.value)
    database.close()
    assert all(str(secret) in cause for cause in causes) and causes[0].endswith("No such file or directory")


def test_a_postgresql_that_the_network_cut_off_is_given_up(own_postgres: str) -> None:
    database = Database(own_postgres, Secret())

    def parameters(connection: Connection) -> dict[str, str]:
        driver = connection.connection.driver_connection
        assert driver is not None
        found: dict[str, str] = driver.info.get_parameters()
        return found

    kept = database.read(parameters)
    database.close()
    names = ("tcp_user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count")
    assert [kept[name] for name in names] == ["30000", "10", "5", "4"]


def test_a_wrong_password_is_told_without_saying_it(own_mariadb: str, tmp_path: Path) -> None:
    url = make_url(own_mariadb).set(password=None)
    secret = tmp_path / "password"
    secret.write_text("hush", encoding="utf-8")
    error = failure(url.render_as_string(), Secret(file=str(secret)))
    assert error.code == "state.access-denied" and "password" in str(error.values["cause"])
    assert "hush" not in str(error)


CUT = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND datname = current_database()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}


@pytest.mark.parametrize("kind", ["own_postgres", "own_mariadb"])
def test_connections_that_were_cut_are_made_anew(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(kind)
    other = Database(url, Secret())
    with open_store(url) as store:
        assert store.links.identity("nowhere") is None
        cut(other)
        assert store.links.identity("nowhere") is None
    other.close()


def cut(database: Database) -> None:
    def work(connection: Connection) -> int:
        dialect = "postgresql" if connection.dialect.name == "postgresql" else "mysql"
        found = connection.execute(text(CUT[dialect])).scalars().all()
        if dialect == "mysql":
            for number in found:
                connection.execute(text("KILL CONNECTION :number"), {"number": number})
        return len(found)

    assert database.write(work) > 0


@contextmanager
def full_disk() -> Iterator[None]:
    """SQLite as it behaves on a full disk: its file may not grow past some pages."""

    def limit(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count=120")

    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)


def fill(store: Store) -> tuple[int, StoreError]:
    for turn in range(100):
        try:
            store.progress.record(crowd(turn))
        except StoreError as error:
            return turn, error
    raise AssertionError("the disk was never full")


def test_a_full_disk_names_place_and_remedy_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with full_disk(), open_store(url) as store:
        turns, error = fill(store)
        assert (error.code, error.values["place"]) == ("state.full", f"{tmp_path}/store.db")
        assert "KiB free" in str(error.values["free"]) and str(tmp_path) in error.hint
        assert len(store.progress.positions(LINK)) == turns * 200
    with open_store(url) as store:
        assert len(store.progress.positions(LINK)) == turns * 200
        store.progress.record(crowd(turns))
        assert len(store.progress.positions(LINK)) == turns * 200 + 200


FILL_UNDER_QUOTA = """
import resource, sys
from twinshore.state.core.values import ProgressRecord
from twinshore.state.store import open_store
store = open_store(sys.argv[1])
told = dict(link='l', partition=0, bytes=9, batches=1, first_ms=0, last_ms=1)
begun = ProgressRecord(topic='t', from_offset=0, to_offset=10, records=10, source_end=10, **told)
store.progress.record([begun])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
turn = 0
while turn < 1000:
    try:
        told |= dict(partition=turn, from_offset=0, to_offset=9, records=9, source_end=9)
        store.progress.record([ProgressRecord(topic=f't{part}', **told) for part in range(100)])
    except Exception as error:
        print(type(error).__name__, turn, error)
        break
    turn += 1
"""


def test_a_quota_is_told_as_well_and_what_was_recorded_stays(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    run = subprocess.run(
        [sys.executable, "-c", FILL_UNDER_QUOTA, url], capture_output=True, text=True, check=True, timeout=120
    )
    kind, turn, sentence = run.stdout.split(" ", 2)
    assert kind == "StoreError"
    assert f"the store {tmp_path}/store.db cannot be written" in sentence
    assert "space, quota, health" in sentence
    with open_store(url) as store:
        assert len(store.progress.positions("l")) == 1 + int(turn) * 100
        store.progress.record(crowd(0))
        assert len(store.progress.positions(LINK)) == 200
