"""What is asked about delays as a program asks: values come back, and the store alone is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_TOPIC, IncidentKind
from twinshore.config.settings import parse_settings
from twinshore.monitoring import operations
from twinshore.monitoring.operations import (
    CheckStatus,
    ForgetWatcher,
    act,
    describe_alarm_durations,
    plan,
    read_alarm_history,
    read_delays,
)
from twinshore.monitoring.watchers import WATCHER, build_last_watch_rows, build_monitor_name
from twinshore.state.core.values import AlarmRow, Incident, PartitionDelayRow, WatcherRow
from twinshore.state.store import Store, open_store

LINK, NOW_MS = "east->west", 1_000_000
MONITOR = build_monitor_name([LINK])
CLUSTERS = '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n[clusters.west]\nbootstrap = ["127.0.0.1:2"]\n'
SETTINGS = parse_settings(f'{CLUSTERS}[links."{LINK}"]\n', name="settings", env={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        rows = [
            PartitionDelayRow(LINK, "orders", 0, "", NOW_MS - 1_000, 100, 90, 10, 2_500, "exact", "watched"),
            PartitionDelayRow(LINK, "orders", 1, "", NOW_MS, 50, 50, 0, 0, "exact", "watched"),
            PartitionDelayRow(LINK, "theirs", 0, "", NOW_MS, 900, 100, 7, 1_000, "foreign", "watched"),
        ]
        found.delay.save_partitions(rows)
        found.delay.save_heartbeat(WatcherRow(MONITOR, "links", "a", 1, 1_000, NOW_MS, NOW_MS, "watches", (LINK,)))
        yield found


def test_a_topic_is_the_sum_of_its_partitions_and_as_old_as_the_oldest(store: Store) -> None:
    found = read_delays((), "", SETTINGS, store, clock=lambda: NOW_MS)
    orders, theirs = found.topics()
    assert (orders.partitions, orders.source_end, orders.lag_records, orders.seen_s) == (2, 150, 10, 1.0)
    assert (orders.recovery_point_ms, orders.about, theirs.about) == (2_500, False, True)
    assert found.sentences() == [f"{MONITOR}: watches, 0 s ago"]
    assert "unreplicated_ends" not in found.as_values()["partitions"][0]
    with raises(ConfigError, "monitoring.unknown-topic", topic="order", near="; did you mean orders?"):
        read_delays((), "order", SETTINGS, store, clock=lambda: NOW_MS)


def test_a_topic_that_is_not_carried_has_no_lag_of_nought(store: Store) -> None:
    why = "the twin theirs may not be written"
    for topic, sentence in (("theirs", why), ("unwatched", "elsewhere")):
        row = Incident(LINK, topic, -1, IncidentKind.RIGHTS_LOST, -1, -1, POLICY_TOPIC, sentence)
        store.incidents.add(row, now_ms=NOW_MS)
    found = read_delays((), "", SETTINGS, store, clock=lambda: NOW_MS)
    orders, theirs = found.topics()
    assert (orders.stopped, orders.unknown) == ("", False)
    assert theirs.unknown and why in theirs.stopped
    assert found.sentences()[0] == f"not replicated: {theirs.stopped}"
    assert not any("elsewhere" in sentence for sentence in found.sentences())
    assert {"link": LINK, "topic": "theirs", "why": theirs.stopped} in found.as_values()["not_replicated"]
    assert read_delays((), "orders", SETTINGS, store, clock=lambda: NOW_MS).stopped == {}


def test_a_group_whose_place_nobody_knows_has_no_lag_of_nought(store: Store) -> None:
    rows = [
        PartitionDelayRow(LINK, "orders", 0, "placed", NOW_MS, 90, 90, 0, 0, "exact", "watched"),
        PartitionDelayRow(LINK, "orders", 0, "unplaced", NOW_MS, 90, -1, 0, 0, "foreign", "watched"),
        PartitionDelayRow(LINK, "mapped", 0, "placed", NOW_MS, 90, 40, 0, 0, "mapped", "watched"),
    ]
    store.delay.save_partitions(rows)
    found = {
        (one.topic, one.group): one.unknown
        for one in read_delays((), "", SETTINGS, store, clock=lambda: NOW_MS).topics()
    }
    assert {at for at, unknown in found.items() if unknown} == {("orders", "unplaced"), ("mapped", "placed")}


def test_what_is_written_while_it_looks_is_not_from_the_future(store: Store) -> None:
    def clock() -> int:
        seen = [row.heartbeats for row in store.delay.watchers()]
        assert seen == [1], "the clock is read once all is read"
        store.delay.save_heartbeat(
            WatcherRow(MONITOR, "links", "a", 2, 1_000, NOW_MS + 9_000, NOW_MS + 9_000, "watches", (LINK,))
        )
        return NOW_MS

    found = read_delays((), "", SETTINGS, store, clock=clock)
    assert found.sentences() == [f"{MONITOR}: watches, 0 s ago"]


def test_a_verdict_has_its_level_and_why(store: Store) -> None:
    well = operations.check_links((), "", SETTINGS, store, clock=lambda: NOW_MS)
    assert str(well) == "OK: 3 partitions watched, recovery point 2.5 s"
    assert operations.read_figure("lag", (), "orders", SETTINGS, store, clock=lambda: NOW_MS).value == 10
    store.delay.raise_alarm(AlarmRow(LINK, "recovery point", "orders", "", "orders are late", NOW_MS - 9_000))
    late = operations.check_links((), "", SETTINGS, store, clock=lambda: NOW_MS)
    assert (late.level, late.sentences) == (CheckStatus.WARNING, ("orders are late [for 9 s, read 1 s ago]",))
    assert operations.read_figure("alarms", (), "", SETTINGS, store, clock=lambda: NOW_MS).value == 1
    later_ms = NOW_MS + 600_000
    assert operations.check_links((), "", SETTINGS, store, clock=lambda: later_ms).level is CheckStatus.CRITICAL
    assert (
        "has said nothing for 600 s"
        in operations.read_figure("alarms", (), "", SETTINGS, store, clock=lambda: later_ms).why
    )
    with raises(ConfigError, "monitoring.unknown-item", item="speed"):
        operations.read_figure("speed", (), "", SETTINGS, store, clock=lambda: NOW_MS)


def test_an_alarm_that_nobody_judges_any_more_is_not_told_as_of_now(store: Store) -> None:
    """A monitor had ended while an outage lasted; minutes after it was over, the alarm's age still grew."""
    for row in (
        AlarmRow("east", "cluster away", "", "", "east does not answer", NOW_MS - 9_000),
        AlarmRow(LINK, "recovery point", "orders", "", "orders are late", NOW_MS - 8_000),
    ):
        store.delay.raise_alarm(row)
    assert read_delays((), "", SETTINGS, store, clock=lambda: NOW_MS).sentences()[:2] == [
        "alarm for 9 s: east does not answer",
        "  with it, for 8 s: orders are late",
    ]
    rows = read_alarm_history((), SETTINGS, store, limit=9)
    assert describe_alarm_durations(rows, SETTINGS, store, clock=lambda: NOW_MS) == ["stands", "stands"]
    then = "stood when a monitor last watched"
    later_ms = NOW_MS + 420_000
    for ends in (False, True):
        if ends:
            store.link_states.remember(build_last_watch_rows([LINK], NOW_MS + 60_000))
            store.delay.remove_watcher(MONITOR)
        found, ago = read_delays((), "", SETTINGS, store, clock=lambda: later_ms), f"{7 - ends} min ago"
        assert found.sentences()[0] == f"alarm that {then}, {ago}: east does not answer"
        assert found.sentences()[1] == f"  with it, {then}, {ago}: orders are late"
        assert [one["watched"] for one in found.as_values()["alarms"]] == [False, False]
        said = operations.check_links((), "", SETTINGS, store, clock=lambda: later_ms)
        assert said.level is CheckStatus.CRITICAL
        assert f"east does not answer [{then}, {ago}]" in str(said) and "[for " not in str(said)
        assert describe_alarm_durations(rows, SETTINGS, store, clock=lambda: later_ms) == [f"{then}, {ago}"] * 2
    store.delay.clear_alarm(rows[0].id, rows[0].raised_ms + 5_000)
    (over, *_) = read_alarm_history((), SETTINGS, store, limit=9)
    assert describe_alarm_durations([over], SETTINGS, store, clock=lambda: later_ms) == ["for 5 s"]
    # Whoever watches the watchers judges mirrors alone.
    store.delay.save_heartbeat(WatcherRow(WATCHER, "watchers", "b", 1, 1_000, later_ms, later_ms, "watches"))
    store.delay.raise_alarm(AlarmRow(LINK, "mirror silent", "", "", "it is silent", later_ms))
    told = read_delays((), "", SETTINGS, store, clock=lambda: later_ms).sentences()
    assert [line for line in told if line.startswith("alarm for ")] == ["alarm for 0 s: it is silent"]


def test_without_any_word_of_when_a_monitor_ended_none_is_made_up(store: Store) -> None:
    store.delay.raise_alarm(AlarmRow(LINK, "recovery point", "orders", "", "orders are late", NOW_MS - 9_000))
    store.delay.remove_watcher(MONITOR)
    told = read_delays((), "", SETTINGS, store, clock=lambda: NOW_MS).sentences()
    assert told[0].startswith("alarm that stood ") and told[0].endswith(": orders are late")


def test_a_watcher_that_will_not_come_again_is_forgotten_with_its_alarm(store: Store) -> None:
    store.delay.raise_alarm(AlarmRow(MONITOR[:130], "monitor silent", "", "", "it is silent", 1))
    planned = plan(ForgetWatcher(MONITOR), store)
    (step,) = planned.steps
    assert len(step.missed) == 1 and step.sentence(done=False).startswith(f"{MONITOR} would ")
    assert [row.name for row in store.delay.watchers()] == [MONITOR]
    assert list(act(planned, store, by="anna")) == [step]
    assert list(store.delay.watchers()) == []
    (told,) = store.audit.rows()
    assert (told.kind, told.subject, told.before, told.after) == ("monitor", MONITOR, "missed", "forgotten")
    assert (told.actor, told.outcome) == ("anna", "by anna")
    (row,) = read_alarm_history((), SETTINGS, store, limit=9)
    assert row.cleared_ms is not None
    with raises(ConfigError, "monitoring.unknown-monitor"):
        plan(ForgetWatcher(MONITOR), store)
