"""Alarms in the store, the webhook that hears them, and the processes that are missed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from testkit.log_lines import LogLines
from twinshore.config.sections.delay import DelaySection, parse_quiet
from twinshore.config.settings import parse_settings
from twinshore.monitoring.core.alerts import (
    CONSEQUENCE_SETTLE_MS,
    ActiveAlarm,
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTransition,
    AlertCondition,
    get_cluster_alarm_key,
    shift_alarm_clock,
)
from twinshore.monitoring.core.monitored_link import MonitoredLink
from twinshore.monitoring.core.partition_lag import LagReading, MonitoredPartition, OffsetRelation
from twinshore.monitoring.monitor import DelayCollector
from twinshore.monitoring.notify import AlarmManager, build_alarm_timings
from twinshore.monitoring.watchers import (
    WATCHER,
    WATCHES_WATCHERS,
    SilenceTimers,
    Watcher,
    build_monitor_name,
    check_watchers,
    find_replaced_watches,
    find_silent_watches,
    find_unwatched_links,
    find_watched_links,
)
from twinshore.replication.operations.link_admin import AddLink, LinkRequest, RemoveLink, act, plan
from twinshore.state.core.values import AlarmRow, LinkStatus, WatcherRow
from twinshore.state.store import Store, open_store

LINK = "east->west"
KEY = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "orders")
SECTION = DelaySection(clear_s=2, repeat_s=10)
SETTINGS = """
[store]
url = "sqlite:///{path}"
[clusters.east]
bootstrap = ["e:1"]
[clusters.west]
bootstrap = ["w:1"]
[links."east->west"]
[delay]
clear_s = 0
"""


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alarms_of(store: Store, told: list[AlarmEvent], quiet: str = "") -> AlarmManager:
    found = AlarmManager(store, build_alarm_timings(SECTION), [parse_quiet(quiet)] if quiet else [], told.append)
    found.load({LINK}, (AlarmKind.RECOVERY_POINT,))
    return found


@contextmanager
def a_store(folder: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{folder / 'store.db'}") as store:
        yield store


def test_another_process_goes_on_with_what_one_has_raised(tmp_path: Path) -> None:
    told: list[AlarmEvent] = []
    with a_store(tmp_path) as store:
        alarms_of(store, told).judge([AlertCondition(KEY, True, "late")], 1_000)
        second = alarms_of(store, told)
        second.judge([AlertCondition(KEY, True, "later")], 5_000)
        assert [event.happening for event in told] == [AlarmTransition.RAISED], "it was told 4 s ago"
        second.judge([AlertCondition(KEY, True, "latest")], 11_000)
        (row,) = store.delay.alarms(LINK)
        assert (row.sentence, row.reports, row.reported_ms, row.raised_ms) == ("latest", 2, 11_000, 1_000)
        second.judge([AlertCondition(KEY, False)], 12_000)
        second.judge([AlertCondition(KEY, False)], 14_000)
        assert [event.happening for event in told][-1] is AlarmTransition.CLEARED
        assert store.delay.alarms(LINK, open_only=True) == ()
        assert store.delay.alarms(LINK)[0].cleared_ms == 14_000


def test_in_a_quiet_time_the_history_has_it_and_nobody_is_told(tmp_path: Path) -> None:
    told: list[AlarmEvent] = []
    with a_store(tmp_path) as store:
        alarms_of(store, told, "00:00-00:10").judge([AlertCondition(KEY, True, "late")], 1_000)
        assert told == []
        (row,) = store.delay.alarms(LINK)
        assert (row.reported_ms, row.reports) == (None, 0)
        alarms_of(store, told, "00:00-00:10").judge([AlertCondition(KEY, True, "late")], 601_000)
        assert [event.happening for event in told] == [AlarmTransition.REPEATED]


def test_after_the_clock_was_set_every_moment_moves_with_it() -> None:
    fields = [name for name in ActiveAlarm._fields if name.endswith("_ms")]
    one = ActiveAlarm(KEY, 5_000, "late", 5_000, 5_000, 1, 5_000, 5_000)
    assert {getattr(shift_alarm_clock(one, -3_000), name) for name in fields} == {2_000}
    assert shift_alarm_clock(ActiveAlarm(KEY, 5_000, "late"), 7) == ActiveAlarm(KEY, 5_007, "late")


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_what_outlives_its_cause_is_told_in_time_though_the_clock_was_set(tmp_path: Path, step_ms: int) -> None:
    told: list[AlarmEvent] = []
    away = get_cluster_alarm_key("east")
    with a_store(tmp_path) as store:
        alarms, now_ms = alarms_of(store, told), 10_000_000
        for _ in range(20):
            now_ms += 1_000
            alarms.judge([AlertCondition(away, True, "east is away"), AlertCondition(KEY, True, "late")], now_ms)
        alarms.move(step_ms)
        now_ms += step_ms
        for _ in range(CONSEQUENCE_SETTLE_MS // 1_000 + 3):
            now_ms += 1_000
            alarms.judge([AlertCondition(away, False), AlertCondition(KEY, True, "late")], now_ms)
    assert [(event.happening, event.key) for event in told] == [
        (AlarmTransition.RAISED, away),
        (AlarmTransition.CLEARED, away),
        (AlarmTransition.REPEATED, KEY),
    ]
    assert "it lasted 10 s" in told[1].sentence or "it lasted 11 s" in told[1].sentence


def test_what_another_monitor_has_cleared_is_raised_again_while_it_stands_here(tmp_path: Path) -> None:
    away = get_cluster_alarm_key("east")
    with a_store(tmp_path) as store:
        first, second = alarms_of(store, []), alarms_of(store, [])
        for at_ms in (1_000, 11_000):
            first.judge([AlertCondition(away, True, "I cannot reach east")], at_ms)
            second.judge([AlertCondition(away, True, "east is away")], at_ms)
        (row,) = store.delay.alarms("east", open_only=True)
        for at_ms in (12_000, 15_000):
            second.judge([AlertCondition(away, False)], at_ms)
        assert store.delay.alarms("east", open_only=True) == ()
        first.refresh()
        (again,) = store.delay.alarms("east", open_only=True)
        assert (again.sentence, again.raised_ms, again.reported_ms) == (
            "I cannot reach east",
            row.raised_ms,
            row.reported_ms,
        )
        first.refresh()
        assert [one.id for one in store.delay.alarms("east", open_only=True)] == [again.id]
        first.judge([AlertCondition(away, False)], 16_000)
        store.delay.clear_alarm(again.id, 17_000)
        first.refresh()
        assert store.delay.alarms("east", open_only=True) == (), "it is about to clear here too"
        first.judge([AlertCondition(away, False)], 19_000)
        assert len(store.delay.alarms("east")) == 2


WATCH = WatcherRow("monitor on a", "links", "a process 1", 1, 1_000, 0, 0, "watches")


def monitor(*links: str) -> WatcherRow:
    return replace(WATCH, name=build_monitor_name(links), links=links)


WORD = LinkStatus(LINK, "a process 2", "flowing", "carries", 5)


def wrong(silences: SilenceTimers, now_s: float, watches: list[WatcherRow], words: list[LinkStatus]) -> set[AlarmKind]:
    conditions = check_watchers(silences, watches, words, now_s, own="me", word_s=6.0)
    assert all(bool(condition.sentence) is condition.wrong for condition in conditions)
    return {condition.key.kind for condition in conditions if condition.wrong}


def test_whoever_says_the_same_for_too_long_is_missed_on_ones_own_clock() -> None:
    silences = SilenceTimers()
    mine = replace(WATCH, name="me")
    assert wrong(silences, 100, [WATCH, mine], [WORD]) == set(), "it is the first look, whatever their clocks say"
    assert wrong(silences, 104, [WATCH, mine], [WORD]) == set()
    assert wrong(silences, 105.5, [WATCH, mine], [WORD]) == {AlarmKind.MONITOR}
    assert wrong(silences, 107, [WATCH, mine], [WORD]) == {AlarmKind.MONITOR, AlarmKind.MIRROR}
    assert wrong(silences, 108, [replace(WATCH, heartbeats=2)], [replace(WORD, updated_ms=6)]) == set()
    assert wrong(silences, 200, [replace(WATCH, heartbeats=2)], []) == {AlarmKind.MONITOR}
    assert wrong(silences, 201, [], []) == set(), "one that ended in good order is not missed"


def test_an_alarm_of_one_who_has_ended_in_good_order_is_over() -> None:
    gone, here = AlarmKey("monitor on a", AlarmKind.MONITOR), AlarmKey("monitor on b", AlarmKind.MONITOR)
    standing = [gone, here, AlarmKey(LINK, AlarmKind.MIRROR), KEY, AlarmKey("me", AlarmKind.MONITOR)]
    silences = SilenceTimers()
    rows = [replace(WATCH, name="monitor on b"), replace(WATCH, name="me")]
    check_watchers(silences, rows, [WORD], 0, own="me", word_s=6.0, standing=standing)
    conditions = check_watchers(silences, rows, [WORD], 9, own="me", word_s=6.0, standing=standing)
    assert {condition.key for condition in conditions if condition.wrong} == {here, AlarmKey(LINK, AlarmKind.MIRROR)}
    # Whoever judges is not silent.
    assert {condition.key for condition in conditions if not condition.wrong} == {
        gone,
        AlarmKey("me", AlarmKind.MONITOR),
    }


def test_a_watcher_that_starts_again_ends_what_is_not_missed_any_more(tmp_path: Path) -> None:
    text = SETTINGS.format(path=tmp_path / "store.db")
    gone = AlarmRow("monitor on a", "monitor silent", "", "", "silent", 5, 5, 1)
    theirs = AlarmRow("south->west", "mirror silent", "", "", "silent", 5, 5, 1)
    with a_store(tmp_path) as store:
        for alarm in (gone, replace(gone, link=WATCHER), theirs):
            store.delay.raise_alarm(alarm)
        watcher = Watcher(parse_settings(text, name="t", env={}), every_s=0.02)
        thread = threading.Thread(target=watcher.run)
        thread.start()
        until(lambda: len(store.delay.alarms(open_only=True)) == 1)
        watcher.stop()
        thread.join()
        # Of a link that its settings do not name it knows nothing.
        assert [row.link for row in store.delay.alarms(open_only=True)] == ["south->west"]


def test_a_watcher_misses_the_mirror_of_an_added_link_and_not_that_of_a_removed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, nobody would tell that the mirror of a link is gone which was added while the watcher ran."""
    monkeypatch.setattr("twinshore.monitoring.watchers.SILENCE_MIN_S", 0.1)
    settings = parse_settings(
        SETTINGS.format(path=tmp_path / "store.db") + "[mirror]\nprogress_s = 0.05\n", name="t", env={}
    )

    def missed() -> set[str]:
        return {row.link for row in store.delay.alarms(open_only=True)}

    def change(asked: LinkRequest) -> None:
        list(act(plan(asked, settings, store), settings, store, by="me"))

    with a_store(tmp_path) as store:
        for name in (LINK, "west->east"):
            store.links.save_status(replace(WORD, link=name))
        watcher = Watcher(settings, every_s=0.02)
        thread = threading.Thread(target=watcher.run)
        thread.start()
        until(lambda: missed() == {LINK})
        change(AddLink("west->east", ['topics=["bills"]']))
        until(lambda: missed() == {LINK, "west->east"})
        change(RemoveLink(LINK))
        until(lambda: missed() == {"west->east"})
        watcher.stop()
        thread.join()


def test_a_watcher_without_a_store_calls_and_the_history_has_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.monitoring.watchers.SILENCE_MIN_S", 0.1)
    text = SETTINGS.format(path=tmp_path / "store.db")
    with a_store(tmp_path) as store, closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        watcher = Watcher(parse_settings(text, name="t", env={}), every_s=0.02)
        thread = threading.Thread(target=watcher.run)
        thread.start()
        until(lambda: any("watches every monitor" in line for line in log_lines))
        raw.execute("ALTER TABLE watchers RENAME TO gone")
        until(lambda: any("alarm raised: the store has not answered" in line for line in log_lines))
        raw.execute("ALTER TABLE gone RENAME TO watchers")
        until(lambda: any("alarm cleared: watcher of watchers: blind" in line for line in log_lines))
        until(lambda: [row.cleared_ms is not None for row in store.delay.alarms()] == [True])
        watcher.stop()
        thread.join()


def test_more_alarms_than_are_shown_at_once_are_taken_over(tmp_path: Path) -> None:
    with a_store(tmp_path) as store:
        for number in range(1_001):
            store.delay.raise_alarm(AlarmRow(LINK, "recovery point", f"t{number}", "", "late", 5, 5, 1))
        assert len(alarms_of(store, []).book) == 1_001


def test_a_monitor_takes_the_place_of_those_whose_links_it_watches() -> None:
    long = [f"a-cluster-with-a-long-name-{number}->west" for number in range(9)]
    watched = (["a->b"], ["c->d"], ["a->b", "c->d"], ["a->b", "x->y"], long)
    rows = [monitor(*links) for links in watched]
    rows += [replace(WATCH, name="a->b", kind=WATCHES_WATCHERS), replace(WATCH, name="one that says of no link")]
    assert find_replaced_watches(["a->b", "c->d", "e->f"], rows) == [row.name for row in rows[:3]]
    assert find_replaced_watches(["a->b"], rows) == [], "not itself, and none that watches something else"
    assert find_replaced_watches(["c->d", "x->y"], rows) == ["monitor of c->d"]
    assert find_replaced_watches(["a->b", *long], rows) == ["monitor of a->b", build_monitor_name(long)]
    assert find_replaced_watches(long[:5], rows) == []


def test_a_link_is_watched_by_living_monitors_that_name_it() -> None:
    long = [f"a-cluster-with-a-long-name-{number}->west" for number in range(9)]
    rows = [
        replace(monitor("a->b", "c->d"), heartbeat_ms=60_000),
        monitor("e->f"),
        replace(monitor("g->h"), kind=WATCHES_WATCHERS, heartbeat_ms=60_000),
        replace(monitor(*long), heartbeat_ms=60_000, sentence="said in words of its own"),
    ]
    asked = ["a->b", "c->d", "d", "e->f", "g->h", *long, "a-cluster->west"]
    assert find_unwatched_links(asked, rows, 61_000) == ["d", "e->f", "g->h", "a-cluster->west"]


def test_after_the_store_was_away_those_who_could_not_write_have_time_to_speak() -> None:
    silences = SilenceTimers()
    standing = [AlarmKey("monitor on b", AlarmKind.MONITOR)]
    assert wrong(silences, 100, [WATCH], [WORD]) == set()
    silences.restart_timers(130)
    for now_s in (131, 144):
        assert check_watchers(silences, [WATCH], [WORD], now_s, own="me", word_s=6.0, standing=standing) == [], (
            "no news"
        )
    assert wrong(silences, 146, [WATCH], [WORD]) == set()
    assert wrong(silences, 152, [WATCH], [replace(WORD, updated_ms=6)]) == {AlarmKind.MONITOR}


def test_one_who_watches_the_watchers_is_missed_by_name() -> None:
    silences = SilenceTimers()
    watcher = replace(WATCH, name=WATCHER, kind=WATCHES_WATCHERS)
    check_watchers(silences, [watcher], [], 0, own="me", word_s=6.0)
    (condition,) = check_watchers(silences, [watcher], [], 9, own="me", word_s=6.0)
    assert condition.key == AlarmKey(WATCHER, AlarmKind.MONITOR)


def test_mirrors_of_links_that_a_living_monitor_watches_are_that_monitors_to_miss() -> None:
    silences = SilenceTimers()
    one = monitor(LINK)
    assert find_watched_links(silences, [one], 0.0) == {LINK}
    assert find_watched_links(silences, [one], 4.0) == {LINK}
    assert find_watched_links(silences, [one], 9.0) == frozenset(), "it is silent"
    assert find_watched_links(silences, [replace(one, heartbeats=one.heartbeats + 1)], 10.0) == {LINK}


def test_an_alarm_that_another_process_has_from_now_on_is_left_and_not_cleared(tmp_path: Path) -> None:
    told: list[AlarmEvent] = []
    key = AlarmKey(LINK, AlarmKind.MIRROR)
    with a_store(tmp_path) as store:
        alarms = alarms_of(store, told)
        alarms.judge([AlertCondition(key, True, "its mirror is silent")], 1_000)
        alarms.leave(AlarmKind.MIRROR, {LINK})
        assert alarms.book == {}
        assert [row.kind for row in store.delay.alarms(open_only=True)] == ["mirror silent"]
        alarms.load({LINK}, (AlarmKind.MIRROR,))
        assert set(alarms.book) == {key}
        alarms.judge([AlertCondition(key, False)], 2_000)
        alarms.judge([AlertCondition(key, False)], 5_000)
        assert store.delay.alarms(open_only=True) == ()
    assert [event.happening for event in told] == [AlarmTransition.RAISED, AlarmTransition.CLEARED]


def test_a_look_without_memory_goes_by_the_wall_clock() -> None:
    rows = [
        replace(WATCH, heartbeat_ms=1_000),
        replace(WATCH, name="slow", heartbeat_interval_ms=60_000, heartbeat_ms=1_000),
    ]
    assert find_silent_watches(rows, 9_000) == {"monitor on a": 8.0}
    assert set(find_silent_watches(rows, 300_000)) == {"monitor on a", "slow"}


class Watching:
    def __init__(self) -> None:
        self.states = {LINK: MonitoredLink(LINK, 0)}
        self.sampled_ms = {LINK: 2_000}


def test_the_metrics_on_the_page_are_the_ones_served_and_the_rules_ask_for_no_others(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    watching = Watching()
    for ms, end in ((0, 100), (1_000, 150), (4_000, 150)):
        watching.states[LINK].take(
            [LagReading(MonitoredPartition(LINK, "orders", 0), ms, end, 100, axis=OffsetRelation.EXACT)], {}, ms
        )
    watching.states[LINK].take_heartbeat(1, 3_500, 4_000)
    with a_store(tmp_path) as store:
        alarms = alarms_of(store, [])
        alarms.judge([AlertCondition(KEY, True, "late")], 4_000)
        registry = CollectorRegistry()
        registry.register(DelayCollector(watching, alarms))
        text = generate_latest(registry).decode()
    assert f'twinshore_delay_lag_records{{link="{LINK}",topic="orders"}} 50.0' in text
    assert f'twinshore_delay_recovery_point_seconds{{link="{LINK}",topic="orders"}} 3.0' in text
    assert f'twinshore_delay_heartbeat_seconds{{link="{LINK}"}} 0.5' in text
    assert f'twinshore_delay_alarms{{kind="recovery point",link="{LINK}"}} 1.0' in text
    assert f'twinshore_delay_read_timestamp_seconds{{link="{LINK}",topic="orders"}} 4.0' in text
    # It is out of sight: a figure of old that looks like today's would be worse than none.
    watching.states[LINK].take([], {"orders": "west refuses to describe it"}, 9_000)
    hidden = {metric.name: metric.samples for metric in DelayCollector(watching, alarms).collect()}
    assert hidden["twinshore_delay_lag_records"] == hidden["twinshore_delay_recovery_point_seconds"] == []
    assert [one.value for one in hidden["twinshore_delay_read_timestamp_seconds"]] == [4.0]
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    page = (root / "docs" / "delay.md").read_text()
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `twinshore_delay")} == served
    rules = (root / "deploy" / "prometheus" / "delay.yml").read_text()
    asked = {word for word in rules.replace("(", " ").replace(")", " ").split() if word.startswith("twinshore_delay_")}
    assert asked
    assert asked <= served
