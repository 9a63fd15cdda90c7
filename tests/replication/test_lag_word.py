"""Lag by fresh ends: what is counted, what is old, and how it stands in the store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from twinshore.config.model import TopicPartition
from twinshore.replication.core import lag
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.lag import (
    LAG_KIND,
    TopicLag,
    is_fresh,
    lag_row,
    parse_lag,
    replicated_offsets,
    summarize_lag,
)
from twinshore.replication.metrics import Meters
from twinshore.replication.task.core.messages import PartitionProgress
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

LINK = "east->west"
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


def told(meters: Meters, named: TopicPartition, begin: int, end: int, source_end: int) -> None:
    entry = PartitionProgress(named.topic, named.partition, begin, end, end - begin, 10, 1, source_end, 0, 1, 1)
    meters.take(TaskReport(LINK, 0, (entry,), (), {}))


def test_a_partition_that_was_not_seen_is_named_and_not_counted() -> None:
    places = [(ORDERS, 5, 9), (TopicPartition("orders", 1), 7, -1), (BILLS, -1, 3)]
    word = summarize_lag(places, 1_000)
    assert (word.lag, word.partitions, word.unseen) == (7, 3, 1)
    assert word.topics == {"orders": TopicLag(2, 12, 9, 4, 1), "bills": TopicLag(1, 0, 3, 3, 0)}


def test_a_word_comes_back_from_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word = summarize_lag([(ORDERS, 5, 9), (BILLS, 1, 1)], 1_000, {ORDERS: 400})
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        assert parse_lag(store.link_states.of(LINK, LAG_KIND)) is None
        store.link_states.remember([lag_row(LINK, summarize_lag([(ORDERS, 0, 1)], 1))])
        store.link_states.remember([lag_row(LINK, word)])
        assert parse_lag(store.link_states.of(LINK, LAG_KIND)) == word
        monkeypatch.setattr(lag, "LAG_TOPICS_MAX", 1)
        store.link_states.remember([lag_row(LINK, word)])
        bare = parse_lag(store.link_states.of(LINK, LAG_KIND))
        assert bare is not None
        assert (bare.lag, bare.partitions, bare.topics, bare.since_ms) == (4, 2, {}, 400)


def test_a_word_without_some_of_its_topics_is_one_of_the_others_alone() -> None:
    places = [(ORDERS, 5, 9), (TopicPartition("orders", 1), 7, -1), (BILLS, 1, 4)]
    word = summarize_lag(places, 1_000, {ORDERS: 500, BILLS: 700})
    assert word.since_ms == 500
    assert word.only(bool) is word
    assert word.only(lambda topic: topic == "bills") == summarize_lag([(BILLS, 1, 4)], 1_000, {BILLS: 700})


def test_a_twin_that_was_never_carried_stands_where_it_began() -> None:
    rows = [TwinRow(LINK, "orders", number, "a", "b", 40, 0, 1) for number in (0, 1)]
    assert replicated_offsets(rows, ()) == {TopicPartition("orders", 0): 40, TopicPartition("orders", 1): 40}


def test_a_lag_is_known_only_while_the_ends_are_fresh_and_what_is_missing_stays_so() -> None:
    meters, now_s = Meters(ends_s=2.0), time.monotonic()
    assert meters.lag(LINK) is None
    assert meters.word(LINK) is None
    told(meters, ORDERS, 0, 5, 9)
    told(meters, BILLS, 0, 3, 3)
    assert meters.lag(LINK) == 4
    later = meters.readings(LINK, now_s + 60)
    assert [(one.lag, one.unseen) for one in later.values()] == [(None, 1), (None, 1)]
    assert later[ORDERS].recovery_point_s == pytest.approx(60, abs=5)
    assert later[BILLS].recovery_point_s is None
    both = later[ORDERS] + later[BILLS]
    assert (both.lag, both.unseen, both.recovery_point_s) == (None, 2, later[ORDERS].recovery_point_s)


class Machine:
    """Its clock, which may be set, and the time since it was started."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = 1_000_000.0, 50.0

    def wall_ms(self) -> int:
        return int(self.wall_s * 1000)

    def monotonic(self) -> float:
        return self.steady_s


def test_a_clock_that_is_set_makes_no_lag_known_and_no_recovery_point_young(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, meters = Machine(), Meters(ends_s=2.0)
    monkeypatch.setattr("twinshore.replication.metrics.time", machine)
    monkeypatch.setattr("twinshore.replication.metrics.wall_ms", machine.wall_ms)
    told(meters, ORDERS, 0, 5, 9)
    meters.looked(LINK, {ORDERS: 9}, machine.steady_s)
    for step_s in (-1_800.0, 3_600.0):
        machine.wall_s += step_s
        assert meters.lag(LINK) == 4, step_s
    machine.wall_s -= 7_200
    machine.steady_s, machine.wall_s = machine.steady_s + 60, machine.wall_s + 60
    assert meters.lag(LINK) is None, "the source was last looked at a minute ago"
    assert meters.look_age_s(LINK, machine.steady_s) == 60
    assert meters.readings(LINK, machine.steady_s)[ORDERS].recovery_point_s == 60
    word = meters.word(LINK)
    assert word is not None
    assert word.seen_ms == word.since_ms == (machine.wall_s - 60) * 1000, "others read it by the world's time"


def test_clocks_of_two_hosts_may_differ_a_little() -> None:
    assert [is_fresh(age_s, 9.0) for age_s in (10, 9, 0, -4, -6, -3_600)] == [False, True, True, True, False, False]


def test_looks_count_for_what_no_task_tells_of_and_an_older_account_does_not_take_them_back() -> None:
    meters, now_s = Meters(), time.monotonic()
    told(meters, ORDERS, 0, 5, 5)
    meters.looked(LINK, {ORDERS: 30}, now_s)
    assert meters.lag(LINK) == 25
    told(meters, ORDERS, 5, 6, 8)
    assert meters.lag(LINK) == 24
    word = meters.word(LINK)
    assert word is not None
    assert word.topics["orders"][:4] == (1, 6, 30, 24)
    time.sleep(0.01)
    meters.looked(LINK, {ORDERS: 10}, time.monotonic())
    assert meters.lag(LINK) == 4, "a source that lost its end is believed"


def test_a_link_without_any_partition_has_no_lag_once_its_source_was_asked() -> None:
    meters = Meters()
    meters.looked(LINK, {}, time.monotonic())
    assert meters.lag(LINK) == 0
