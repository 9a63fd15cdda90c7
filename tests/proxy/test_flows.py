"""Flows are counted for windows of time, and are bounded in number whatever clients call themselves."""

from __future__ import annotations

import pytest

from twinshore.proxy.core import traffic
from twinshore.proxy.core.traffic import (
    ALARMED_FLOWS_MAX,
    IDLE_WINDOWS_MAX,
    UNKNOWN_TOPICS_MAX,
    TrafficTable,
    TrafficTotals,
    merge_flows,
    record_latency,
    select_busiest,
)
from twinshore.state.core.proxy_values import LATENCY_BUCKETS_MS, OTHER_NAMES, TrafficCounter, TrafficKey, TrafficKind

OTHER = TrafficKey(OTHER_NAMES, OTHER_NAMES, "east", TrafficKind.PRODUCE)


def key(
    client: str, topic: str = "orders", cluster: str = "east", kind: TrafficKind = TrafficKind.PRODUCE
) -> TrafficKey:
    return TrafficKey(client, topic, cluster, kind)


def asks(flows: TrafficTable, client: str, topic: str = "orders", kind: TrafficKind = TrafficKind.PRODUCE) -> None:
    flows.of(client, topic, "east", kind).requests += 1


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> TrafficTable:
    monkeypatch.setattr(traffic, "FLOWS_PER_KIND_MAX", dict.fromkeys(TrafficKind, most))
    return TrafficTable()


def test_a_window_has_what_came_since_the_last_one() -> None:
    flows = TrafficTable()
    asks(flows, "a")
    asks(flows, "a")
    asks(flows, "b")
    assert {one: flow.requests for one, flow in flows.window()} == {key("a"): 2, key("b"): 1}
    asks(flows, "a")
    assert {one: flow.requests for one, flow in flows.window()} == {key("a"): 1}
    assert flows.window() == []


def test_what_comes_beyond_the_bound_counts_for_others_and_idle_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = limited(monkeypatch, 2)
    for client in "abcd":
        asks(flows, client)
    assert {one: flow.requests for one, flow in flows.window()} == {key("a"): 1, key("b"): 1, OTHER: 2}
    for _ in range(IDLE_WINDOWS_MAX):
        asks(flows, "a")
        flows.window()
    asks(flows, "e")
    assert key("e") in dict(flows.window()), "b was forgotten"


def test_client_ids_that_are_made_up_leave_producers_their_room() -> None:
    flows = TrafficTable()
    for number in range(3_000):
        flows.comes(f"job-{number}")
        asks(flows, f"job-{number}", kind=TrafficKind.COMMIT)
        asks(flows, f"job-{number}", "", TrafficKind.METADATA)
    asks(flows, "app")
    asks(flows, "app", kind=TrafficKind.FETCH)
    window = dict(flows.window())
    assert window[key("app")].requests == window[key("app", kind=TrafficKind.FETCH)].requests == 1
    assert len(window) <= 3 * 501 + 2


def test_the_idlest_goes_where_there_is_no_room_and_no_busy_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = limited(monkeypatch, 3)
    for clients in ("abc", "bc", "b"):
        for client in clients:
            asks(flows, client)
        flows.window()
    asks(flows, "c")
    for client in "dbe":
        asks(flows, client)
    window = {one: flow.requests for one, flow in flows.window()}
    assert window == {key("b"): 1, key("c"): 1, key("d"): 1, OTHER: 1}, "d has come for a, and nobody was idle for e"


def test_a_client_that_is_connected_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = limited(monkeypatch, 1)
    kept = flows.comes("a")
    for _ in range(3):
        flows.window()
    assert flows.comes("b") is not kept
    kept.requests += 1
    assert TrafficKey("a", "", "", TrafficKind.CLIENT) in dict(flows.window())


def test_what_is_kept_for_alarms_has_places_beyond_and_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 0)
    flows = TrafficTable(lambda one: one._replace(client=OTHER_NAMES) if one.topic.startswith("orders") else None)
    for number in range(ALARMED_FLOWS_MAX + 10):
        asks(flows, f"c{number}", "orders")
        asks(flows, f"c{number}", "bills")
    assert {one: flow.requests for one, flow in flows.window()} == {
        key(OTHER_NAMES): ALARMED_FLOWS_MAX + 10,
        OTHER: ALARMED_FLOWS_MAX + 10,
    }
    for number in range(ALARMED_FLOWS_MAX + 10):
        asks(flows, "c", f"orders-{number}")
    assert dict(flows.window())[OTHER].requests == 11
    for _ in range(IDLE_WINDOWS_MAX):
        flows.window()
    asks(flows, "c", "orders-new")
    assert key(OTHER_NAMES, "orders-new") in dict(flows.window())


def test_a_client_that_calls_itself_as_others_are_called_is_one_of_them() -> None:
    flows = TrafficTable()
    for _ in range(2):
        asks(flows, OTHER_NAMES, OTHER_NAMES, TrafficKind.METADATA)
        for _ in range(IDLE_WINDOWS_MAX + 1):
            flows.window()
    asks(flows, "a", "t", TrafficKind.METADATA)
    assert key("a", "t", kind=TrafficKind.METADATA) in dict(flows.window())


def test_names_that_are_too_long_are_cut_and_counted() -> None:
    flows = TrafficTable()
    for _ in range(2):
        asks(flows, "c" * 1_000, "t" * 40_000)
    client = flows.comes("c" * 1_000)
    ((first, counted), (of_client, _)) = flows.window()
    assert (first, counted.requests) == (key("c" * 255, "t" * 249), 2)
    assert of_client.client == "c" * 255
    flows.goes("c" * 1_000, client)
    assert flows.comes("c" * 1_000) is client


def test_made_up_topics_crowd_out_no_other_flow() -> None:
    flows = TrafficTable()
    for number in range(UNKNOWN_TOPICS_MAX + 10):
        asks(flows, "a", f"t{number}", TrafficKind.METADATA)
    asks(flows, "a")
    window = dict(flows.window())
    assert window[TrafficKey(OTHER_NAMES, OTHER_NAMES, "east", TrafficKind.METADATA)].requests == 10
    assert key("a") in window
    for _ in range(IDLE_WINDOWS_MAX):
        flows.window()
    asks(flows, "a", "again", TrafficKind.METADATA)
    assert key("a", "again", kind=TrafficKind.METADATA) in dict(flows.window())


def test_connections_are_counted_and_their_peak_is_of_the_window() -> None:
    flows, of_client = TrafficTable(), TrafficKey("a", "", "", TrafficKind.CLIENT)
    first, second = flows.comes("a"), flows.comes("a")
    flows.goes("a", second)
    found = dict(flows.window())[of_client]
    assert (found.connections, found.connected_max) == (2, 2)
    first.requests += 1
    found = dict(flows.window())[of_client]
    assert (found.connections, found.connected_max) == (0, 1)
    for _ in range(IDLE_WINDOWS_MAX + 1):
        assert flows.window() == []
    first.requests += 1
    assert of_client in dict(flows.window()), "who is connected is not forgotten"
    flows.goes("a", first)
    for _ in range(IDLE_WINDOWS_MAX):
        flows.window()
    assert flows.comes("a") is not first


def test_others_connections_end_as_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = limited(monkeypatch, 0)
    kept = [(name, flows.comes(name)) for name in "ab"]
    assert dict(flows.window())[TrafficKey(OTHER_NAMES, OTHER_NAMES, "", TrafficKind.CLIENT)].connected_max == 2
    for name, flow in kept:
        flows.goes(name, flow)
    assert flows.window() == []
    flows.comes("c")
    assert dict(flows.window())[TrafficKey(OTHER_NAMES, OTHER_NAMES, "", TrafficKind.CLIENT)].connected_max == 1


def test_the_busiest_are_told_apart_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "REPORTED_FLOWS_MAX", 3)
    grown = [(key(f"c{number}"), TrafficCounter(requests=number, bytes=1)) for number in range(10)]
    told = dict(select_busiest(grown))
    assert [one.client for one in told] == ["c9", "c8", "c7", OTHER_NAMES]
    assert (told[OTHER].requests, told[OTHER].bytes) == (21, 7)
    known = dict(select_busiest(grown))
    merge_flows(known, told.items())
    assert sum(flow.requests for flow in known.values()) == 90


def test_answers_fall_into_the_bucket_whose_end_they_do_not_pass() -> None:
    flow = TrafficCounter()
    for took_ms in (0.4, 1.0, 1.1, 6_000.0):
        record_latency((flow,), took_ms)
    assert (flow.latency[0], flow.latency[1], flow.latency[len(LATENCY_BUCKETS_MS)]) == (2, 1, 1)
    assert flow.answered == 4


def test_totals_never_fall_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "METRIC_SERIES_MAX", 2)
    totals = TrafficTotals()
    for topic in ("a", "b", "c", "d"):
        totals.take(
            [
                (key("x", topic), TrafficCounter(bytes=5)),
                (TrafficKey(topic, "", "", TrafficKind.CLIENT), TrafficCounter(bytes=1)),
            ]
        )
    assert {one.topic: flow.bytes for one, flow in totals.topics.items()} == {"a": 5, "b": 5, OTHER_NAMES: 10}
    assert {name: flow.bytes for name, flow in totals.clients.items()} == {"a": 1, "b": 1, OTHER_NAMES: 2}
    assert totals.clusters["east"].bytes == 20
