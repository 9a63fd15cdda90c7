"""What a driver hears of its operators: changes once, refusals of what could loop, which topics leave their tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.log_lines import LogLines
from twinshore.config.errors import StoreError
from twinshore.config.model import Link
from twinshore.replication import operator_control
from twinshore.replication.links import effective_links
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND, OperatorOverrides
from twinshore.state.core.values import ControlRow
from twinshore.state.store import Store, open_store

LINK = Link("east", "west", ("orders.*",))
ON, BACK = Link("west", "south"), Link("south", "east", ("bills.*",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def heard(store: Store, monkeypatch: pytest.MonkeyPatch) -> OperatorOverrides:
    monkeypatch.setattr(operator_control, "OVERRIDES_POLL_INTERVAL_S", 0.0)
    return OperatorOverrides(LINK, [LINK, ON, BACK], store)


def put(store: Store, name: str, value: Any, link: str = LINK.name, at_ms: int = 1) -> None:
    row = ControlRow(link, name, json.dumps(value), at_ms, "me")
    assert store.controls.change(link, {name: row}, seen=store.controls.version(link), told=())


def test_a_change_is_told_once_and_another_links_not_at_all(store: Store, heard: OperatorOverrides) -> None:
    assert not heard.changed(), "the settings hold from the start"
    put(store, "paused_topics", ["orders-old"])
    assert heard.changed()
    assert heard.pauses("orders-old")
    assert not heard.changed()
    put(store, "paused", True, link=BACK.name)
    assert not heard.changed()


def test_what_could_loop_does_not_count_and_is_said(
    store: Store, heard: OperatorOverrides, log_lines: LogLines
) -> None:
    heard.changed()
    put(store, "topics", ["bills-2"])
    assert not heard.changed()
    assert heard.link == LINK
    wrong = "east->west: what operators said of its filters does not count: links east->west, west->south and "
    assert log_lines[0].startswith(wrong)
    put(store, "topics", ["lists"])
    assert heard.changed()
    assert heard.link.topics == ("lists",)


def test_a_row_that_makes_no_sense_is_said_once_and_the_rest_holds(
    store: Store, heard: OperatorOverrides, log_lines: LogLines
) -> None:
    put(store, "priorities", "high")
    put(store, "throttle_bytes_s", 5)
    assert heard.changed()
    assert heard.link.control.throttle_bytes_s == 5
    put(store, "throttle_bytes_s", 6)
    assert heard.changed()
    assert len(log_lines) == 1
    assert "priorities" in log_lines[0]


def test_topics_leave_their_tasks_and_come_back_once_they_have_left(store: Store, heard: OperatorOverrides) -> None:
    put(store, "paused_topics", ["orders-old"])
    put(store, "topics", ["orders-.*"])
    heard.changed()
    asked: list[str] = []

    def withdraw(topic: str) -> bool:
        asked.append(topic)
        return len(asked) > 2

    on_tasks = {"orders-old", "orders", "orders-new", "twinshore.heartbeats"}
    assert heard.take_unwanted_topics(on_tasks, withdraw) == ["orders", "orders-old"], (
        "one is held, one no longer admitted"
    )
    put(store, "paused_topics", [])
    heard.changed()
    names = dict.fromkeys(("orders-old", "orders-new"), ("id", 1))
    assert set(heard.flowing(names)) == {"orders-new"}, "it has not left yet"
    assert heard.take_unwanted_topics({"orders-new"}, withdraw) == []
    assert set(heard.flowing(names)) == {"orders-old", "orders-new"}
    put(store, "paused", True)
    heard.changed()
    assert heard.flowing(names) == {}


@pytest.mark.usefixtures("heard")
def test_of_words_said_at_once_both_processes_refuse_the_newest(store: Store) -> None:
    """The other's was not there yet when each was judged."""
    links = [LINK, replace(ON, topics=("x.*",)), BACK]
    ears = [OperatorOverrides(link, links, store) for link in (LINK, BACK)]
    put(store, "topics", ["x-1"], at_ms=2)
    assert ears[0].changed()
    assert ears[0].link.topics == ("x-1",)
    put(store, "topics", ["x.*"], link=BACK.name, at_ms=1)
    put(store, "paused", True)
    assert [one.changed() for one in ears] == [True, True]
    assert [one.link.topics for one in ears] == [LINK.topics, ("x.*",)]
    assert ears[0].link.control.paused
    late = OperatorOverrides(LINK, links, store)
    late.changed()
    assert late.link.topics == LINK.topics, "over a restart too"


def test_a_link_that_a_new_one_clashes_with_stays_paused(store: Store, log_lines: LogLines) -> None:
    """Only one was there when its operators narrowed it to what the settings of a new one name."""
    alone = OperatorOverrides(LINK, [LINK], store)
    put(store, "topics", ["bills.*"])
    put(store, "paused", True)
    put(store, "throttle_bytes_s", 9)
    assert alone.changed()
    assert not log_lines
    beside = OperatorOverrides(LINK, [LINK, ON, BACK], store)
    assert beside.changed()
    assert (beside.link.control.paused, beside.link.control.throttle_bytes_s) == (True, 9)
    assert beside.link.topics == LINK.topics
    assert len(log_lines) == 1


def test_a_clash_ends_when_the_other_link_makes_room(store: Store, heard: OperatorOverrides) -> None:
    put(store, "topics", ["bills-2"])
    assert not heard.changed()
    assert not heard.changed()
    (row,) = store.incidents.rows(LINK.name, open_only=True)
    assert (row.incident.kind, row.incident.topic) == ("clashing filters", "")
    assert {LINK.name, BACK.name} <= set(row.incident.sentence.replace(",", "").split())
    put(store, "topics", ["lists"], link=BACK.name)
    assert heard.changed()
    assert heard.link.topics == ("bills-2",)
    assert not store.incidents.rows(open_only=True)


def test_a_plan_notes_nothing(store: Store, heard: OperatorOverrides) -> None:
    put(store, "topics", ["lists"])
    assert effective_links([LINK, ON, BACK], store)[LINK.name].link.topics == ("lists",)
    put(store, "topics", ["bills-2"])
    assert effective_links([LINK, ON, BACK], store)[LINK.name].link == LINK
    assert not store.link_states.of(LINK.name)
    assert not store.incidents.rows()
    heard.changed()
    heard.acknowledge(tasks_left=True)
    assert [(row.kind, row.value) for row in store.link_states.of(LINK.name)] == [
        (EFFECTIVE_FILTERS_KIND, '[["orders.*"], []]')
    ]


@pytest.mark.parametrize("fails_at", range(6))
def test_a_store_that_fails_while_a_word_is_heard_has_it_heard_at_the_next_look(
    store: Store, heard: OperatorOverrides, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Whatever call fails: an operator's pause that is heard by half must not wait for the next word."""
    put(store, "topics", ["lists"])
    put(store, "paused", True)
    calls = 0

    def failing(ask: Any) -> Any:
        def asked(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at + 1:
                raise StoreError("the store does not answer")
            return ask(*args, **more)

        return asked

    monkeypatch.setattr(operator_control, "OVERRIDES_POLL_INTERVAL_S", 60.0)
    parts = (
        (store.link_states, ("of", "of_each", "remember", "forget")),
        (store.controls, ("of_each", "version_lately")),
    )
    for part, names in parts:
        for name in names:
            monkeypatch.setattr(part, name, failing(getattr(part, name)))
    monkeypatch.setattr(store.incidents, "rows", failing(store.incidents.rows))
    for _ in range(2):
        try:
            heard.changed()
        except StoreError:
            continue
    assert calls > 6, "each of these fails in one of the rounds"
    assert (heard.link.control.paused, heard.link.topics) == (True, ("lists",))
    heard.acknowledge(tasks_left=True)
    assert [row.value for row in store.link_states.of(LINK.name, EFFECTIVE_FILTERS_KIND)] == ['[["lists"], []]']


def test_a_new_term_says_again_what_holds(
    store: Store, heard: OperatorOverrides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process with other settings may have carried the link meanwhile, and said what held there."""
    heard.changed()
    heard.acknowledge(tasks_left=True)
    edited = Link("east", "west", ("lists",))
    other = OperatorOverrides(edited, [edited, BACK], store)
    other.changed()
    other.acknowledge(tasks_left=True)
    assert [row.value for row in store.link_states.of(LINK.name, EFFECTIVE_FILTERS_KIND)] == ['[["lists"], []]']
    monkeypatch.setattr(operator_control, "OVERRIDES_POLL_INTERVAL_S", 60.0)
    heard.anew()
    assert not heard.changed()
    assert not store.link_states.of(LINK.name, EFFECTIVE_FILTERS_KIND), (
        "all twins of the link are its own until it has said it"
    )
    heard.acknowledge(tasks_left=True)
    assert [row.value for row in store.link_states.of(LINK.name, EFFECTIVE_FILTERS_KIND)] == ['[["orders.*"], []]']
