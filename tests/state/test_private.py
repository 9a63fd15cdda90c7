"""A store's file on this machine is its owner's alone: the ledger holds excerpts of records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.state.core.values import LinkIdentity
from twinshore.state.database import readable_by_others
from twinshore.state.store import open_store


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    """Whoever starts this may let everybody read what it makes."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_nobody_else_may_read_what_a_new_store_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url):
        modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    assert len(modes) > 1, "SQLite's other files are there while it is open"
    assert set(modes.values()) == {0o600}, modes
    assert readable_by_others(url) == ""


def test_a_file_that_others_may_read_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with open_store(f"sqlite:///{file}"):
        pass
    file.chmod(0o644)
    assert str(file) in readable_by_others(f"sqlite:///{file}")
    assert file.stat().st_mode & 0o777 == 0o644
    assert readable_by_others("postgresql://somebody@127.0.0.1/db") == ""
    assert readable_by_others(f"sqlite:///{tmp_path}/none.db") == ""


@pytest.mark.claim("topics", "store-gone", "a store whose file is deleted while it is in use is told, and none is made")
def test_a_file_that_goes_while_it_is_in_use_is_told_and_not_made_again(tmp_path: Path) -> None:
    """What is written into a deleted file is lost, and nobody else sees it."""
    file, away = tmp_path / "store.db", tmp_path / "away.db"
    with open_store(f"sqlite:///{file}") as store:
        file.rename(away)
        for new in (False, True):  # by a connection that is open, and by a new one
            if new:
                store.close()
            with raises(StoreError, "state.file-replaced"):
                store.links.statuses()
            assert not file.exists()
        file.touch()
        with raises(StoreError, "state.file-replaced"):
            store.links.save_identity(LinkIdentity("east->west", 1, 0, "a", "b"))
        away.rename(file)
        assert store.links.identities() == ()
