"""Breakers by hand: what is asked is checked, done at once for all that it names, and told in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions, raises
from tests.proxy.test_traffic_look import produced
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.operations.breakers import (
    PROXY_GONE_MS,
    BreakerSelection,
    OpenBreakers,
    SetBreakerLimits,
    act,
    list_breakers,
    list_dropped_records,
    parse_seconds,
    plan_close,
    plan_limits,
    plan_open,
    wait_until_in_force,
)
from twinshore.proxy.operations.breakers import list_proxy_instances as look_at_instances
from twinshore.state.core.proxy_values import (
    BreakerCountRow,
    BreakerKind,
    BreakerLimits,
    BreakerPolicy,
    BreakerRow,
    BreakerState,
    DroppedRecordsRow,
    ProxyInstanceRow,
)
from twinshore.state.store import Store, open_store

PRODUCE = BreakerSelection("orders", "app-7", (BreakerKind.PRODUCE,))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as made:
        yield made


def opened(store: Store, asked: OpenBreakers) -> list[BreakerRow]:
    return [step.row for step in act(plan_open(asked, store, by="anna"), store, by="anna")]


def test_both_kinds_are_cut_at_once_and_the_audit_says_why(store: Store) -> None:
    rows = opened(store, OpenBreakers(BreakerSelection("orders"), "too much", for_s=600))
    assert [(row.kind, row.topic, row.state) for row in rows] == [
        (kind, "orders", BreakerState.OPEN) for kind in (BreakerKind.PRODUCE, BreakerKind.FETCH)
    ]
    assert store.breakers.revision() == 1
    told = {(row.subject, row.after, row.actor, row.topic) for row in store.audit.rows("")}
    assert told == {
        ("produce orders", "open for 600 s, refuse: too much", "anna", "orders"),
        ("fetch orders", "open for 600 s: too much", "anna", "orders"),
    }


def test_a_dry_run_changes_nothing(store: Store) -> None:
    planned = plan_open(OpenBreakers(PRODUCE, "too much", BreakerPolicy.DROP), store, by="anna")
    assert [(step.row.kind, step.row.client, step.row.policy) for step in planned.steps] == [
        (BreakerKind.PRODUCE, "app-7", BreakerPolicy.DROP)
    ]
    assert [mentions(one, "orders", "lost") for one in planned.shown] == [True]
    assert store.breakers.all() == (0, ())


def test_a_breaker_of_names_that_nothing_had_says_so_and_cuts_all_the_same(store: Store) -> None:
    """A topic that nobody writes yet may have one; a misspelt one would be believed in."""
    cut = OpenBreakers(BreakerSelection("ordrs", "ap-7"), "too much")
    assert plan_open(cut, store, by="anna").remarks == (), "no proxy has told of anything"
    store.traffic.tell([produced("app-7", "orders", 1_000, at_ms=wall_ms() - 20_000)])
    topic, client = plan_open(cut, store, by="anna").remarks
    assert mentions(topic, "topic ordrs", "orders") and mentions(client, "client ap-7", "app-7")
    guard = SetBreakerLimits(replace(PRODUCE, client="app-*"), BreakerLimits(records_s=100), "it ran away before")
    assert plan_limits(guard, store, by="anna").remarks == ()
    assert len(opened(store, cut)) == 2


def test_limits_stay_when_a_breaker_is_opened_and_go_when_it_is_closed(store: Store) -> None:
    guard = SetBreakerLimits(PRODUCE, BreakerLimits(records_s=100), "it ran away before")
    for _ in act(plan_limits(guard, store, by="anna"), store, by="anna"):
        pass
    opened(store, OpenBreakers(PRODUCE, "now"))
    ((_, rows),) = [store.breakers.all()]
    assert rows[0].limits == BreakerLimits(records_s=100)
    (step,) = act(plan_close(PRODUCE, store, by="bob"), store, by="bob")
    assert (step.row.state, step.row.limits) == (BreakerState.CLOSED, BreakerLimits())
    assert mentions(step.sentence(done=True), "orders", "app-7", "closed", "open", "100 records/s")
    planned = plan_close(PRODUCE, store, by="bob")
    assert (planned.steps, len(planned.remarks)) == ((), 1)


def test_of_two_who_saw_the_same_the_second_is_refused(store: Store) -> None:
    planned = plan_open(OpenBreakers(PRODUCE, "mine"), store, by="bob")
    opened(store, OpenBreakers(PRODUCE, "too much"))
    with raises(RefusedError, "proxy.breakers-changed"):
        list(act(planned, store, by="bob"))


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (OpenBreakers(BreakerSelection("or ders"), "x"), "breaker-topic-invalid"),
        (OpenBreakers(BreakerSelection("o*s"), "x"), "breaker-topic-invalid"),
        (OpenBreakers(BreakerSelection("orders", ""), "x"), "breaker-client-empty"),
        (OpenBreakers(BreakerSelection("orders"), " "), "breaker-reason-empty"),
        (SetBreakerLimits(PRODUCE, BreakerLimits(), "x"), "no-limit"),
        (SetBreakerLimits(PRODUCE, BreakerLimits(records_s=1, above_s=0), "x"), "limit-seconds-low"),
        (SetBreakerLimits(BreakerSelection("orders"), BreakerLimits(records_s=1), "x"), "limit-not-for-fetch"),
    ],
)
def test_what_cannot_be_is_said(store: Store, asked: OpenBreakers | SetBreakerLimits, wrong: str) -> None:
    with raises(ConfigError, f"proxy.{wrong}"):
        if isinstance(asked, OpenBreakers):
            plan_open(asked, store, by="anna")
        else:
            plan_limits(asked, store, by="anna")


def test_a_breaker_that_is_not_there_cannot_be_closed(store: Store) -> None:
    with raises(ConfigError, "proxy.no-such-breaker", topic="orders"):
        plan_close(PRODUCE, store, by="anna")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400)])
def test_times_are_read(text: str, seconds: int) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["10", "0m", "m", "-1s", "1w", "1.5h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with raises(ConfigError, "proxy.duration-invalid", text=text):
        parse_seconds(text)


def test_who_serves_and_who_is_behind_or_gone_is_seen(store: Store) -> None:
    assert mentions(wait_until_in_force(store), "no proxy")
    opened(store, OpenBreakers(PRODUCE, "too much"))
    now_ms = wall_ms()
    first = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, now_ms, 1, now_ms)
    for one in (first, replace(first, id="p2", name="proxy b:19092", revision=0)):
        store.proxies.tell(one, [], [])
    store.proxies.tell(replace(first, id="p3", name="proxy c:19092", seen_ms=now_ms - PROXY_GONE_MS - 1), [], [])
    stands = [(one["name"], one["status"]) for one in look_at_instances(store)]
    assert stands == [("proxy a:19092", "serves"), ("proxy b:19092", "1 change behind"), ("proxy c:19092", "gone")]
    assert mentions(wait_until_in_force(store, 0.0), "1 of 2", "proxy b:19092")


def test_what_a_breaker_answered_at_all_proxies_is_one_figure(store: Store) -> None:
    opened(store, OpenBreakers(PRODUCE, "too much"))
    now_ms = wall_ms()
    serves = ProxyInstanceRow("p1", "proxy a:19092", "a", 19092, now_ms, 1, now_ms)
    for name in ("p1", "p2"):
        count = BreakerCountRow(name, "orders", "app-7", BreakerKind.PRODUCE, 1, 2, 30, name == "p1", now_ms)
        drop = DroppedRecordsRow(name, "orders", "app-7", now_ms, "orders", "0", 2, 30, now_ms)
        store.proxies.tell(replace(serves, id=name), [count], [drop])
    (found,) = list_breakers(store)
    assert (found["requests"], found["records"], found["bytes"], found["tripped_at"]) == (2, 4, 60, 1)
    assert (found["open"], found["status"]) == (True, "open, refuse")
    assert sum(row.records for row in list_dropped_records(store)) == 4
