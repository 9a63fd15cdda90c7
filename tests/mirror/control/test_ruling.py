"""What a driver hears of its operators: changes once, refusals of what could loop, which topics leave their lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twinshore.fleet import Link
from twinshore.mirror.control import ruling
from twinshore.mirror.control.ruling import Ruling
from twinshore.store import ControlRow, Store, open_store

LINK = Link("east", "west", ("orders.*",))
BACK = Link("west", "east", ("bills.*",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def heard(store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Ruling:
    monkeypatch.setattr(ruling, "EVERY_S", 0.0)
    return Ruling(LINK, [LINK, BACK], store, said.append)


def put(store: Store, name: str, value: Any, link: str = LINK.name) -> None:
    row = ControlRow(link, name, json.dumps(value), 1, "me")
    assert store.change_controls(link, {name: row}, seen=store.control_version(link), told=())


def test_a_change_is_told_once_and_another_links_not_at_all(store: Store, heard: Ruling) -> None:
    assert not heard.changed(), "the settings hold from the start"
    put(store, "paused_topics", ["orders-old"])
    assert heard.changed()
    assert heard.holds("orders-old")
    assert not heard.changed()
    put(store, "paused", True, link=BACK.name)
    assert not heard.changed()


def test_what_could_loop_does_not_count_and_is_said(store: Store, heard: Ruling, said: list[str]) -> None:
    heard.changed()
    put(store, "topics", ["bills-2"])
    assert not heard.changed()
    assert heard.link == LINK
    assert said[0].startswith("east->west: what operators said does not count: links east->west and west->east would")
    put(store, "topics", ["lists"])
    assert heard.changed()
    assert heard.link.topics == ("lists",)


def test_a_row_that_makes_no_sense_is_said_once_and_the_rest_holds(
    store: Store, heard: Ruling, said: list[str]
) -> None:
    put(store, "priorities", "high")
    put(store, "throttle_bytes_s", 5)
    assert heard.changed()
    assert heard.link.control.throttle_bytes_s == 5
    put(store, "throttle_bytes_s", 6)
    assert heard.changed()
    assert len(said) == 1
    assert "priorities" in said[0]


def test_topics_leave_their_lanes_and_come_back_once_they_have_left(store: Store, heard: Ruling) -> None:
    put(store, "paused_topics", ["orders-old"])
    put(store, "topics", ["orders-.*"])
    heard.changed()
    asked: list[str] = []

    def withdraw(topic: str) -> bool:
        asked.append(topic)
        return len(asked) > 2

    on_lanes = {"orders-old", "orders", "orders-new", "twinshore.heartbeats"}
    assert heard.partings(on_lanes, withdraw) == ["orders", "orders-old"], "one is held, one no longer admitted"
    put(store, "paused_topics", [])
    heard.changed()
    names = dict.fromkeys(("orders-old", "orders-new"), ("id", 1))
    assert set(heard.flowing(names)) == {"orders-new"}, "it has not left yet"
    assert heard.partings({"orders-new"}, withdraw) == []
    assert set(heard.flowing(names)) == {"orders-old", "orders-new"}
    put(store, "paused", True)
    heard.changed()
    assert heard.flowing(names) == {}
