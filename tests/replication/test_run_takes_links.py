"""A mirror that starts takes links from its settings, says what stands otherwise, and refuses what could loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.log_lines import keep_log_lines
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings, parse_settings
from twinshore.replication import task_pool
from twinshore.replication.main import Mirror
from twinshore.replication.operations.link_admin import AddLink, ChangeLink, RemoveLink, act, plan, with_stored_links
from twinshore.state.store import open_store

ONE, TWO, THREE = "east->west", "west->north", "north->east"


def settings_of(folder: Path, topics: str) -> Settings:
    """Clusters where nothing answers, and two links."""
    ports = {"east": 1, "west": 2, "north": 3}
    lines = ["[store]", f'url = "sqlite:///{folder / "store.db"}"']
    for name, port in ports.items():
        lines += [f"[clusters.{name}]", f'bootstrap = ["127.0.0.1:{port}"]']
    for link in (ONE, TWO):
        lines += [f'[links."{link}"]', f'topics = ["{topics}"]']
    return parse_settings("\n".join(lines), name="settings.toml", env={})


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the mirror is stopped before Spark is there."""
    monkeypatch.setattr(task_pool, "open_engine", lambda *_: None)


def begun(settings: Settings) -> list[str]:
    """What a mirror logs until it would begin to carry."""
    with keep_log_lines() as lines:
        mirror = Mirror(with_stored_links(settings), ())
        mirror.run()
        mirror.stop()  # else its thread says in a later test that clusters are silent
    return lines


def test_a_start_takes_links_once_and_says_what_operators_said_since(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "orders")
    assert any(line.startswith(f"{ONE}, {TWO}: starting Spark") for line in begun(settings))
    with open_store(settings.store.url) as store:
        assert [row.link for row in store.link_rows.read()[1]] == [ONE, TWO]
        for asked in (ChangeLink(ONE, ['topics=["letters"]']), RemoveLink(TWO), AddLink(THREE, ['topics=["bills"]'])):
            assert list(act(plan(asked, settings, store), settings, store, by="anna"))
    said = [line for line in begun(settings_of(tmp_path, "parcels")) if not line.startswith("waiting for")]
    assert said[:3] == [
        f'{ONE}: topics is ["letters"], and ["parcels"] in the settings (by anna); see `twinshore link list`',
        f"{TWO}: was removed by anna; the settings still name it; see `twinshore link list`",
        f"{ONE}, {THREE}: starting Spark on local, which takes some seconds",
    ]


def test_edited_settings_that_could_loop_with_an_operators_link_are_refused(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "orders")
    begun(settings)
    with open_store(settings.store.url) as store:
        asked = AddLink(THREE, ['topics=["parcels"]'])
        assert list(act(plan(asked, settings, store), settings, store, by="anna"))
    with pytest.raises(ConfigError, match="in a circle"):
        begun(settings_of(tmp_path, "parcels"))
