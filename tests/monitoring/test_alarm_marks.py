"""What people say of an open alarm: who knows of it, and how long nothing is sent. And the webhook's test."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import opened, write_settings
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.core.alerts import (
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTiming,
    AlarmTransition,
    AlertCondition,
    describe_marks,
    is_hushed,
)
from twinshore.monitoring.notify import AlarmManager
from twinshore.monitoring.operations import AlarmMark, act_mark, plan_mark
from twinshore.state.core.values import AlarmRow
from twinshore.state.store import Store, open_store

KEY = AlarmKey("east->west", AlarmKind.RECOVERY_POINT, "orders")
REPEAT_MS = 30_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found


class Monitored:
    """A monitor's alarms; each turn is one repeat later."""

    def __init__(self, store: Store) -> None:
        self.store, self.told = store, list[AlarmEvent]()
        timings = {KEY.kind: AlarmTiming(clear_s=0, repeat_s=REPEAT_MS / 1000)}
        self.alarms = AlarmManager(store, timings, [], self.told.append)
        self.now_ms = wall_ms()

    def turn(self, wrong: bool = True) -> list[str]:
        """Returns what was sent."""
        self.told.clear()
        self.alarms.judge([AlertCondition(KEY, wrong, "orders are late")], self.now_ms)
        self.now_ms += REPEAT_MS
        return [str(event.happening) for event in self.told]

    def row(self) -> AlarmRow:
        return self.store.delay.alarms()[0]

    def mark(self, reason: str = "", hours: float | None = None) -> None:
        planned = plan_mark(AlarmMark(self.row().id, reason, hours), self.store)
        assert list(act_mark(planned, self.store, by="ada")) == list(planned.steps)


def test_an_acknowledged_alarm_is_not_sent_again(store: Store) -> None:
    one = Monitored(store)
    assert (one.turn(), one.turn()) == (["raised"], ["repeated"])
    one.mark("the disk is replaced")
    assert (one.turn(), one.row().reports) == ([], 2)
    assert (one.row().acknowledged_by, one.row().reason) == ("ada", "the disk is replaced")
    (told,) = [row for row in store.audit.rows() if row.kind == "alarm"]
    assert (told.subject, told.actor, told.outcome) == (str(one.row().id), "ada", "the disk is replaced")
    assert one.turn(wrong=False) == ["cleared"], "its end is sent"
    assert one.row().cleared_ms is not None and describe_marks(one.row(), one.now_ms) == ""
    assert (one.turn(), one.turn()) == (["raised"], ["repeated"]), "the next one is another"


def test_nothing_is_sent_of_a_silenced_alarm(store: Store) -> None:
    one = Monitored(store)
    one.turn()
    one.mark(hours=1)
    assert (one.turn(), one.row().silenced_by) == ([], "ada")
    one.mark(hours=0)
    assert one.turn() == ["repeated"]
    one.mark(hours=0.03)
    assert (one.turn(), one.turn()) == ([], ["repeated"]), "a silence ends by itself"
    one.mark(hours=1)
    assert one.turn(wrong=False) == []
    assert one.row().cleared_ms is not None and one.row().silent_until_ms == 0


def test_a_restarted_monitor_knows_what_was_said(store: Store) -> None:
    one = Monitored(store)
    one.turn()
    one.mark()
    again = Monitored(store)
    again.alarms.load({KEY.link}, [KEY.kind])
    again.now_ms = one.now_ms + REPEAT_MS
    assert again.turn() == []


def test_an_alarm_that_another_monitor_closed_rises_without_marks(store: Store) -> None:
    one = Monitored(store)
    one.turn()
    one.mark("known")
    one.alarms.load({KEY.link}, [KEY.kind])
    store.delay.clear_alarm(one.row().id, one.now_ms)
    one.alarms.refresh()
    assert (one.row().cleared_ms, one.row().acknowledged_by) == (None, "")


def test_what_is_new_about_an_acknowledged_alarm_is_sent() -> None:
    row = AlarmRow(*KEY, "late", 0, acknowledged_by="ada")
    event = AlarmEvent(AlarmTransition.REPEATED, KEY, 9, 0, "late")
    assert is_hushed(event, row, 9)
    assert not is_hushed(event._replace(also=1), row, 9)
    assert not is_hushed(event._replace(happening=AlarmTransition.CLEARED), row, 9)
    assert is_hushed(event._replace(also=1), AlarmRow(*KEY, "late", 0, silent_until_ms=10), 9)
    assert not is_hushed(event, AlarmRow(*KEY, "late", 0, silent_until_ms=9), 9)


def test_an_alarm_that_is_not_open_is_refused(store: Store) -> None:
    one = Monitored(store)
    one.turn()
    planned = plan_mark(AlarmMark(one.row().id), store)
    one.turn(wrong=False)
    with raises(ConfigError, "monitoring.alarm-not-open", number=one.row().id):
        plan_mark(AlarmMark(one.row().id), store)
    with raises(ConfigError, "monitoring.alarm-not-open", number=one.row().id):
        list(act_mark(planned, store, by="ada"))


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any], Callable[[int], None]]]:
    """A webhook's address, what it gets, and how it answers."""
    got, status = [], [200]

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status[0])
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", got, lambda code: status.__setitem__(0, code)
        server.shutdown()


def test_verbs_mark_alarms_and_test_the_webhook(tmp_path: Path, hook: Any) -> None:
    url, got, answer = hook
    file = write_settings(tmp_path, f'[links."east->west"]\n[delay]\nwebhook_url = "{url}"\n')
    with opened(file) as store:
        number = str(Monitored(store).turn() and store.delay.alarms()[0].id)
    asking.run(file, "delay", "alarms", "acknowledge", number, "--reason", "known")
    asking.run(file, "delay", "alarms", "silence", number, "--hours", "2")
    listed = asking.run(file, "delay", "alarms")
    assert f"#{number} " in listed and "known" in listed and "silenced" in listed
    asking.run(file, "delay", "webhook", "test", "--dry-run")
    assert got == []
    asking.run(file, "delay", "webhook", "test")
    assert [(one["happening"], one["link"]) for one in got] == [("test", "")]
    answer(500)
    with raises(RefusedError, "monitoring.webhook-failed"):
        asking.run(file, "delay", "webhook", "test")
    assert len(got) == 2, "a test is tried once"
    with raises(ConfigError, "monitoring.no-webhook"):
        asking.run(write_settings(tmp_path, '[links."east->west"]\n'), "delay", "webhook", "test", "--dry-run")
