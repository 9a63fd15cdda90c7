"""Windows of what went through proxies come back as they were told, and go once they are old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.state import proxies as statements
from twinshore.state.core.proxy_values import (
    MAX_FIELDS,
    SUM_FIELDS,
    TrafficCounter,
    TrafficKey,
    TrafficKind,
    TrafficRow,
)
from twinshore.state.store import Store

KEY = TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)
FLOW = TrafficCounter(software="librdkafka 2.4.0")
for _number, _name in enumerate((*SUM_FIELDS, *MAX_FIELDS), 1):
    setattr(FLOW, _name, _number)
ROW = TrafficRow("p1", "proxy a:19092", 1_000, 11_000, KEY, FLOW)


def test_a_window_comes_back_as_it_was_told_and_is_told_once(store: Store) -> None:
    FLOW.latency[2] = 7
    other = replace(ROW, key=KEY._replace(topic="Orders"), flow=TrafficCounter(requests=1))
    store.traffic.tell([ROW, other])
    store.traffic.tell([ROW, other])
    assert store.traffic.rows(0, 11_000) == (ROW, other)
    assert store.traffic.rows(11_000, 20_000) == ()
    store.traffic.tell([])


def test_a_row_that_no_database_takes_leaves_the_others(store: Store) -> None:
    bad = replace(ROW, key=KEY._replace(cluster="c" * 65), flow=TrafficCounter(requests=-(2**64)))
    other = replace(ROW, flow=TrafficCounter(records=2**70, batches=2**63 - 1))
    assert store.traffic.tell([ROW, bad, other]) == 1
    assert store.traffic.tell([ROW, bad, other]) == 1
    clamped = replace(ROW, flow=TrafficCounter(records=2**63 - 1, batches=2**63 - 1))
    assert store.traffic.rows(0, 11_000) == (ROW, clamped)
    assert store.traffic.tell([bad]) == 1
    assert store.traffic.rows(0, 11_000) == ()


def test_any_name_of_a_client_can_be_kept(store: Store) -> None:
    store.traffic.tell([replace(ROW, key=KEY._replace(client="a\0b" + "x" * 400, topic="t" * 400))])
    ((row),) = store.traffic.rows(0, 11_000)
    assert row.key.client == ("a\ufffdb" + "x" * 400)[:255]
    assert row.key.topic == "t" * 249


def test_old_windows_go_also_where_there_are_very_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        store.traffic.tell([replace(ROW, since_ms=number, until_ms=number * 1_000 + 1)])
    assert store.traffic.forget_before(2_000) == 2
    assert len(store.traffic.rows(0, 10_000)) == 3
    monkeypatch.setattr(statements, "_FORGOTTEN_AT_ONCE", 1)
    assert store.traffic.forget_before(10_000) == 2
    assert store.traffic.forget_before(10_000) == 1
