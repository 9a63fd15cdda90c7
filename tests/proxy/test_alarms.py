"""An alarm stands where a bound is passed for long enough, above or below, and ends once all is well for longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.config.sections.proxy import AlarmSection
from twinshore.proxy.core import traffic
from twinshore.proxy.core.breakers import TrafficAlarms
from twinshore.proxy.core.traffic import TrafficTable, record_latency
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind

WINDOW_S = 10.0
BUSY = AlarmSection(topic="orders*", above_bytes_s=1_000, for_s=20, quiet_s=30)
STILL = AlarmSection(topic="orders", below_records_s=5, for_s=20, quiet_s=30)
SLOW = AlarmSection(latency_ms=100, for_s=20, quiet_s=30)


def played(asked: AlarmSection, windows: list[TrafficCounter], key: TrafficKey | None = None) -> list[tuple[int, bool]]:
    """At which windows it turned, and to what."""
    alarms, found = TrafficAlarms([("a", asked)]), []
    key = key or TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)
    for number, flow in enumerate(windows):
        found += [(number, one.stands) for one in alarms.look([(key, flow)], WINDOW_S, number * WINDOW_S)]
        assert alarms.standing["a"] is (found[-1][1] if found else False)
    return found


def test_more_than_its_bound_for_long_enough_and_less_than_half_to_end() -> None:
    much, near, little = TrafficCounter(bytes=10_001), TrafficCounter(bytes=6_000), TrafficCounter(bytes=4_999)
    assert played(BUSY, [much, much, much]) == [(2, True)]
    assert played(BUSY, [much, much, near, much, much]) == []
    assert played(BUSY, [much] * 3 + [near] * 9) == [(2, True)]
    assert played(BUSY, [much] * 3 + [little] * 4) == [(2, True), (6, False)]


def test_less_than_its_bound_where_there_is_nothing_at_all() -> None:
    some, none = TrafficCounter(records=50), TrafficCounter()
    assert played(STILL, [some, none, none, none]) == [(3, True)]
    assert played(STILL, [some] * 9) == []
    assert played(STILL, [none] * 3 + [some] * 4) == [(2, True), (6, False)]


@pytest.mark.parametrize(("took_ms", "turns"), [(101.0, [(2, True)]), (100.0, []), (60_000.0, [(2, True)])])
def test_answers_that_take_long(took_ms: float, turns: list[tuple[int, bool]]) -> None:
    flow = TrafficCounter()
    record_latency((flow,), took_ms)
    assert played(SLOW, [flow] * 3) == turns


def answered(took_ms: float) -> TrafficCounter:
    flow = TrafficCounter(requests=1)
    record_latency((flow,), took_ms)
    return flow


ASKED, NONE, FAST, LATE = TrafficCounter(requests=1), TrafficCounter(), answered(1.0), answered(500.0)


@pytest.mark.parametrize(
    ("windows", "turns"),
    [
        ([LATE] * 3 + [ASKED] * 20, [(2, True)]),
        ([LATE] * 3 + [NONE] * 4, [(2, True), (6, False)]),
        ([LATE] * 3 + [ASKED] + [NONE] * 5, [(2, True)]),
        ([LATE] * 3 + [ASKED] + [NONE] * 12, [(2, True), (12, False)]),
        ([LATE] * 3 + [ASKED] * 5 + [FAST] * 4, [(2, True), (11, False)]),
        ([LATE] * 3 + [TrafficCounter(requests=5, acks_none=5)] * 4, [(2, True), (6, False)]),
        ([FAST] + [ASKED] * 4, [(4, True)]),
        ([ASKED, FAST] * 9, []),
        ([ASKED] + [NONE] * 20, []),
        ([LATE, ASKED, LATE], [(2, True)]),
    ],
)
def test_an_alarm_is_not_over_because_nothing_is_answered_at_all(
    windows: list[TrafficCounter], turns: list[tuple[int, bool]]
) -> None:
    assert played(SLOW, windows) == turns


def test_it_says_for_how_long_nothing_was_answered() -> None:
    alarms, key = TrafficAlarms([("slow", SLOW)]), TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)
    said = [one.sentence for window in range(4) for one in alarms.look([(key, ASKED)], WINDOW_S, window * WINDOW_S)]
    assert said == ["alarm slow stands: produce of *: 0 bytes/s, 0 records/s, without an answer for 30,000 ms"]


def test_others_topics_clients_and_kinds_are_no_matter() -> None:
    much = [TrafficCounter(bytes=10_001)] * 3
    assert played(BUSY, much, TrafficKey("app", "orders-2", "east", TrafficKind.PRODUCE)) == [(2, True)]
    assert played(BUSY, much, TrafficKey("app", "bills", "east", TrafficKind.PRODUCE)) == []
    assert played(BUSY, much, TrafficKey("app", "orders", "east", TrafficKind.FETCH)) == []


def test_made_up_clients_make_no_alarm_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "FLOWS_PER_KIND_MAX", dict.fromkeys(TrafficKind, 1))
    alarms = TrafficAlarms([("busy", BUSY), ("still", STILL)])
    flows, turns = TrafficTable(alarms.place_of), []
    for window in range(3):
        flows.of("job", "bills", "east", TrafficKind.PRODUCE).requests += 1
        flow = flows.of("app", "orders", "east", TrafficKind.PRODUCE)
        flow.records, flow.bytes = flow.records + 50, flow.bytes + 10_001
        turns += [one.name for one in alarms.look(flows.window(), WINDOW_S, window * WINDOW_S)]
    assert turns == ["busy"]


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (("orders*", "*"), ("*", "orders-1")),
        (("*", "app"), ("app", "*")),
        (("orders*", "a*"), ("app", "orders-1")),
        (("bills", "*"), None),
        (("orders*", "other"), None),
    ],
)
def test_alarms_have_told_apart_what_they_are_about(asked: tuple[str, str], kept: tuple[str, str] | None) -> None:
    alarms = TrafficAlarms([("a", AlarmSection(topic=asked[0], client=asked[1], above_bytes_s=1))])
    key = TrafficKey("app", "orders-1", "east", TrafficKind.PRODUCE)
    found = alarms.place_of(key)
    assert (found and (found.client, found.topic)) == kept
    assert alarms.place_of(key._replace(kind=TrafficKind.FETCH)) is None


def test_it_says_what_was_measured() -> None:
    alarms = TrafficAlarms([("busy", AlarmSection(above_bytes_s=1, for_s=1, client="app"))])
    grown = [(TrafficKey("app", "orders", "east", TrafficKind.PRODUCE), TrafficCounter(bytes=50, records=20))]
    assert alarms.look(grown, WINDOW_S, 0) == []
    (turned,) = alarms.look(grown, WINDOW_S, 10)
    said = "alarm busy stands: produce of * for clients app: 5 bytes/s, 2 records/s, answered within 0 ms"
    assert turned.sentence == said


def test_other_bounds_begin_again_and_the_same_ones_go_on() -> None:
    alarms, key = TrafficAlarms([("a", BUSY), ("b", BUSY)]), TrafficKey("app", "orders", "east", TrafficKind.PRODUCE)
    much = [(key, TrafficCounter(bytes=10_001))]
    for number in range(3):
        alarms.look(much, WINDOW_S, number * WINDOW_S)
    assert alarms.standing == {"a": True, "b": True}
    alarms.ask([("a", BUSY), ("b", replace(BUSY, for_s=10)), ("c", SLOW)])
    assert alarms.standing == {"a": True, "b": False, "c": False}
    assert [one.name for one in alarms.look(much, WINDOW_S, 30.0)] == []
    assert [one.name for one in alarms.look(much, WINDOW_S, 40.0)] == ["b"]
    alarms.ask([])
    assert (alarms.standing, alarms.look(much, WINDOW_S, 50.0), alarms.place_of(key)) == ({}, [], None)
