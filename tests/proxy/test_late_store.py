"""A store that is made later is taken up; one of another version is refused before anybody is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from testkit.log_lines import LogLines
from tests.scenarios.mirror_rig import settings_text
from twinshore.config.errors import StoreVersionError
from twinshore.config.model import Secret
from twinshore.config.settings import Settings, parse_settings
from twinshore.proxy import lazy_store
from twinshore.proxy.lazy_store import LazyStore
from twinshore.state.database import Database
from twinshore.state.store import open_store


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(lazy_store, "OPEN_RETRY_INTERVAL_S", 0.0)
    return parse_settings(settings_text(tmp_path, [], {}), name="test", env={})


def test_one_that_is_made_later_is_taken_up_and_both_are_said(settings: Settings, log_lines: LogLines) -> None:
    late = LazyStore(settings)
    assert late.get() is None
    open_store(settings.store.url).close()
    assert late.get() is not None
    late.check_version()
    late.close()
    assert [one.split(" at ")[0] for one in log_lines] == ["there is no store", "there is a store"]


def test_one_of_an_earlier_version_ends_who_would_serve_without_it(settings: Settings) -> None:
    open_store(settings.store.url).close()
    database = Database(settings.store.url, Secret())
    older = text("UPDATE twinshore_schema SET version_num = '0001'")
    database.write(lambda connection: connection.execute(older))
    database.close()
    late = LazyStore(settings)
    late.check_version()  # it has not been asked yet, and may merely be away
    with pytest.raises(StoreVersionError):
        late.get()
    with pytest.raises(StoreVersionError, match="and this version needs"):
        late.check_version()
