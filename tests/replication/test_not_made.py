"""A link that cannot begin leaves nothing behind that keeps the next try from it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from testkit.log_lines import LogLines
from tests.replication.test_link_driver import Place
from twinshore.replication import controller, metrics
from twinshore.replication.links import LinkRegistry
from twinshore.replication.main import MirrorContext
from twinshore.replication.metrics import Meters, MetricsService
from twinshore.replication.task_pool import TaskEngine
from twinshore.runtime.lease_keeper import lease_renewer
from twinshore.runtime.logging import OutageLog
from twinshore.runtime.scheduler import process_scheduler


def test_a_driver_that_could_not_be_made_keeps_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """It renewed it for ever, and the next one stood by behind it."""
    place = Place(tmp_path, log_lines)
    before = list(lease_renewer._keepers[place.store])
    assert before == [place.driver.lease]

    def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(controller, "LogStartSync", none_left)
    with pytest.raises(RuntimeError):
        place.begun()
    assert lease_renewer._keepers[place.store] == before
    place.close()


def test_a_driver_whose_source_could_not_be_watched_leaves_no_task_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Each try left some that ran on, idle, for as long as the process lived."""
    place = Place(tmp_path, log_lines)
    place.driver.close(clean=True)
    before = process_scheduler.names()
    links = place.settings.links
    measures = MetricsService(place.settings.mirror, links, place.store, place.recorder, Meters())
    registry = SimpleNamespace(settings_around=lambda _: place.settings)
    engine = cast(TaskEngine, SimpleNamespace())
    rooms = (place.store, cast(LinkRegistry, registry), place.recorder, measures, engine, place.coordinator, place.runs)
    shared = MirrorContext("first", {}, 1, *rooms, outages=OutageLog())

    def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(metrics, "EndOffsetPoller", none_left)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                shared.driver_of(place.link)
    assert process_scheduler.names() == before
    assert not lease_renewer._keepers.get(place.store)
    measures.close()
    place.driver = place.begun()
    place.close()
