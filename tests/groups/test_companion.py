"""What runs beside a link: it fails by itself, tells it once, and leaves its word only where it has looked."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from twinshore.config.settings import Settings, parse_settings
from twinshore.groups.sync import GroupSyncService, start_group_sync
from twinshore.lab.ports import free_port
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.logging import OutageLog
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.store import Store, open_store

pytestmark = pytest.mark.usefixtures("short_patience")


def settings(folder: Path, rules: str = "") -> Settings:
    text = f"""
[store]
url = "sqlite:///{folder / "store.db"}"
[clusters.east]
bootstrap = ["127.0.0.1:{free_port()}"]
[clusters.west]
bootstrap = ["127.0.0.1:{free_port()}"]
[links."east->west"]
[links."east->west".groups]
every_s = 0.1
{rules}
"""
    return parse_settings(text, name="test", env={})


class Stage:
    def __init__(self, folder: Path, store: Store, said: LogLines, *, active: bool = True, rules: str = "") -> None:
        self.said = said
        read = settings(folder, rules)
        self.companion = start_group_sync(LinkContext(read.links[0], read, store, lambda: active, OutageLog()))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.db'}")


def running() -> list[str]:
    return [name for name in process_scheduler.names() if name.startswith("groups ")]


def test_clusters_that_are_away_are_told_once_and_hinder_nobody(
    tmp_path: Path, store: Store, log_lines: LogLines
) -> None:
    stage = Stage(tmp_path, store, log_lines)
    deadline = time.monotonic() + 30
    while not stage.said:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert isinstance(stage.companion, GroupSyncService)
    while stage.companion.failed < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert running() == ["groups east->west"]
    began = time.monotonic()
    stage.companion.close()
    assert time.monotonic() - began < 4, "a stop waited for clusters that are away"
    assert len(stage.said) == 1
    assert re.match("(east|west) does not answer: ", stage.said[0])
    while running():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert store.link_states.of("east->west") == ()
    store.close()


def test_a_link_that_is_not_ours_is_left_alone(tmp_path: Path, store: Store, log_lines: LogLines) -> None:
    stage = Stage(tmp_path, store, log_lines, active=False)
    time.sleep(0.5)
    stage.companion.close()
    assert stage.said == []
    store.close()


def test_nothing_runs_beside_a_link_whose_groups_do_not_follow(
    tmp_path: Path, store: Store, log_lines: LogLines
) -> None:
    stage = Stage(tmp_path, store, log_lines, rules="enabled = false")
    assert running() == []
    stage.companion.close()
    store.close()
