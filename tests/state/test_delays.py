"""Alarms and their history, places and watches: on three databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from twinshore.monitoring.core.partition_lag import shorten_group_id
from twinshore.state import monitoring
from twinshore.state.core.values import AlarmRow, AuditRow, PartitionDelayRow, WatcherRow
from twinshore.state.store import Store

LINK = "east->west"
LATE = AlarmRow(LINK, "recovery point", "orders", "", "12 s behind", raised_ms=5, reported_ms=5, reports=1)


def place(topic: str, partition: int, at_ms: int, group: str = "") -> PartitionDelayRow:
    return PartitionDelayRow(LINK, topic, partition, group, at_ms, 10, 8, 2, 300, "exact", "watched", "[[1, 10]]")


def test_one_thing_has_one_open_alarm_whoever_raises_it(store: Store, open_another: Callable[[], Store]) -> None:
    first = store.delay.raise_alarm(LATE)
    again = open_another().delay.raise_alarm(replace(LATE, sentence="13 s behind", raised_ms=9))
    assert again == first
    other = store.delay.raise_alarm(replace(LATE, group="billing"))
    assert other.id != first.id
    assert [one.id for one in store.delay.alarms(LINK, open_only=True)] == [other.id, first.id]
    assert store.delay.alarms("west->east") == ()
    store.delay.raise_alarm(replace(LATE, link="north->west"))
    assert [one.id for one in store.delay.alarms("west->east", LINK, limit=1)] == [other.id]


@pytest.mark.claim(
    "groups",
    "delay-long-ids",
    "groups with ids of any length have alarms and places in SQLite, PostgreSQL and MariaDB",
)
def test_alarms_and_places_of_groups_with_the_longest_ids_are_kept(store: Store) -> None:
    groups = [shorten_group_id(group) for group in ("g" * 255, "g" * 256, "\U0001f6a8" * 400, "with\0nul")]
    assert len(set(groups)) == 4
    for group in groups:
        store.delay.raise_alarm(replace(LATE, group=group))
    store.delay.save_partitions([place("orders", 0, 1, group) for group in groups])
    assert {one.group for one in store.delay.alarms(LINK)} == set(groups)
    assert {one.group for one in store.delay.partitions(LINK)} == set(groups)


def test_a_cleared_alarm_stays_in_the_history_and_may_rise_again(store: Store) -> None:
    first = store.delay.raise_alarm(LATE)
    told = replace(first, reported_ms=60, reports=2, sentence="an alarm \U0001f6a8 with \0 in it")
    store.delay.mark_alarm_reported(told)
    assert store.delay.clear_alarm(first.id, 90)
    assert not store.delay.clear_alarm(first.id, 95), "once"
    again = store.delay.raise_alarm(replace(LATE, raised_ms=100))
    assert again.id > first.id
    newest, oldest = store.delay.alarms(LINK)
    assert (newest.id, newest.cleared_ms) == (again.id, None)
    assert (oldest.cleared_ms, oldest.reports, oldest.reported_ms) == (90, 2, 60)
    assert oldest.sentence == "an alarm \U0001f6a8 with \ufffd in it"


def test_the_history_is_bounded_and_open_alarms_are_not_forgotten(store: Store) -> None:
    stays = store.delay.raise_alarm(replace(LATE, topic="open all the time"))
    kept, monitoring.ALARM_ROWS_MAX = monitoring.ALARM_ROWS_MAX, 5
    try:
        for number in range(12):
            store.delay.clear_alarm(store.delay.raise_alarm(replace(LATE, raised_ms=number)).id, number)
    finally:
        monitoring.ALARM_ROWS_MAX = kept
    left = store.delay.alarms()
    assert len(left) == 6
    assert left[-1].id == stays.id


def test_a_place_stands_as_it_was_said_last(store: Store) -> None:
    store.delay.save_partitions([])
    store.delay.save_partitions([place("orders", 0, 1), place("orders", 0, 1, "billing"), place("Orders", 0, 1)])
    store.delay.save_partitions([place("orders", 0, 7)])
    rows = store.delay.partitions(LINK)
    assert [(row.topic, row.group, row.at_ms) for row in rows] == [
        ("Orders", "", 1),
        ("orders", "", 7),
        ("orders", "billing", 1),
    ]
    assert rows[1] == place("orders", 0, 7)
    assert store.delay.forget_partitions(LINK, 5) == 2
    assert store.delay.partitions(LINK) == (place("orders", 0, 7),)


def test_places_of_topics_that_left_a_link_go_with_their_groups(store: Store) -> None:
    kept, others = place("orders", 0, 7), [place(f"gone{n}", 0, 7) for n in range(1_203)]
    store.delay.save_partitions([kept, *others, replace(others[0], group="billing")])
    store.delay.forget_topics("west->east", ["orders"])
    store.delay.forget_topics(LINK, [row.topic for row in others])
    store.delay.forget_topics(LINK, [])
    assert store.delay.partitions(LINK) == (kept,)


def test_more_places_than_a_statement_holds_are_saved(store: Store) -> None:
    many = [place("orders", number, 1) for number in range(1_203)]
    store.delay.save_partitions(many)
    assert list(store.delay.partitions(LINK)) == many


def test_a_watch_is_there_until_it_ends_in_good_order(store: Store, open_another: Callable[[], Store]) -> None:
    row = WatcherRow("monitor on a", "links", "a process 7", 1, 1_000, 50, 49, "watches 2 links", ("a->b", "b->a"))
    store.delay.save_heartbeat(row)
    open_another().delay.save_heartbeat(replace(row, heartbeats=2, heartbeat_ms=60))
    assert store.delay.watchers() == (replace(row, heartbeats=2, heartbeat_ms=60),)
    told = AuditRow(70, "", "monitor", row.name, "missed", "forgotten", "by anna", "anna")
    store.delay.remove_watcher(row.name, [told])
    assert (store.delay.watchers(), store.audit.rows()) == ((), (told,))
