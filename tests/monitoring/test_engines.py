"""The plain engine judges as the pure step does; the journal brings back what it was given."""

from __future__ import annotations

import json
from pathlib import Path

from twinshore.config.sections.delay import DelaySettings
from twinshore.monitoring.core.alerts import WindowVerdict
from twinshore.monitoring.core.partition_lag import (
    NO_VERDICT_YET,
    LagReading,
    MonitoredPartition,
    OffsetRelation,
    WindowState,
)
from twinshore.monitoring.windows import (
    JOURNAL_FILES_KEPT,
    UNREAD_TICKS_MAX,
    Journal,
    LocalWindowEngine,
    ThresholdRules,
    _judge,
    decode_reading,
    decode_window_state,
    encode_reading,
    encode_window_state,
    group_by_tick,
)

ORDERS = MonitoredPartition("east->west", "orders", 0)
AUDIT = MonitoredPartition("east->west", "audit", 0)


def test_the_plain_engine_judges_by_each_topics_own_threshold() -> None:
    engine = LocalWindowEngine(ThresholdRules(DelaySettings(latest_thresholds=(("audit", 1_000),))))
    for tick in range(5):
        engine.give(tick, [LagReading(place, tick, 100 * tick, 0) for place in (ORDERS, AUDIT)])
    found = engine.verdicts()
    assert [tick for tick, _ in found] == [0, 1, 2, 3, 4]
    late = [(tick, one.place.topic) for tick, judged in found for one in judged if one.verdict.latest_delayed]
    assert late == [(3, "orders"), (4, "orders")]
    assert engine.verdicts() == []


def test_places_that_are_gone_are_forgotten_by_both() -> None:
    engine = LocalWindowEngine(ThresholdRules(DelaySettings()))
    engine.give(1, [LagReading(AUDIT, 1, 1, 1)])
    for tick in (999, 1_000, 2_000):
        engine.give(tick, [LagReading(ORDERS, tick, 1, 1)])
    assert set(engine._windows) == {ORDERS}
    line, state = (
        encode_reading(7, LagReading(ORDERS, 7, 1, 1)),
        f"{UNREAD_TICKS_MAX - 1} {encode_window_state(WindowState(tick=6))}",
    )
    rules = ThresholdRules(DelaySettings())
    place = json.dumps(list(ORDERS))
    ((_, kept, verdicts),) = _judge(place, ([], [state]), rules)
    assert (kept.split(" ")[0], verdicts) == (str(UNREAD_TICKS_MAX), "[]")
    assert list(_judge(place, ([], [kept]), rules)) == []
    ((_, read, verdicts),) = _judge(place, ([line], [kept]), rules)
    assert read.startswith("0 ")
    assert json.loads(verdicts)[0][0] == 7


def test_a_batch_that_is_run_again_counts_each_tick_once_and_keeps_the_window() -> None:
    place, rules = json.dumps(list(ORDERS)), ThresholdRules(DelaySettings())
    lines = [encode_reading(tick, LagReading(ORDERS, 1_000 * tick, 100 * tick, 0)) for tick in range(8)]
    ((_, before, _),) = _judge(place, (lines[:4], []), rules)
    (once,) = _judge(place, (lines[4:6], [before]), rules)
    (again,) = _judge(place, (lines[4:6], [before]), rules)
    assert again == once
    ((_, after, verdicts),) = _judge(place, ([lines[5], *lines[6:]], [again[1]]), rules)
    # The last tick again says nothing, and the window goes on as if it had not been there.
    assert [(tick, verdict[0]) for tick, verdict, _ in json.loads(verdicts)] == [(5, False), (6, True), (7, True)]
    assert decode_window_state(after.partition(" ")[2]).restarts == 0


def test_a_batch_with_readings_of_two_periods_is_judged_in_the_order_of_reading() -> None:
    place, rules = json.dumps(list(ORDERS)), ThresholdRules(DelaySettings())
    fast = [encode_reading(360_000 + n, LagReading(ORDERS, 5_000 * n, 100 * n, 0)) for n in range(4)]
    slow = [encode_reading(30_000 + n, LagReading(ORDERS, 60_000 * (n + 1), 1_000 + 100 * n, 0)) for n in range(5)]
    ((_, state, verdicts),) = _judge(place, ([*slow[:2], *fast], []), rules)
    assert [tick for tick, _, _ in json.loads(verdicts)] == [360_000, 360_001, 360_002, 360_003, 30_000, 30_001]
    ((_, _, verdicts),) = _judge(place, (slow[2:], [state]), rules)
    assert [verdict[0] for _, verdict, _ in json.loads(verdicts)] == [False, True, True]


def test_a_batch_is_told_tick_by_tick() -> None:
    batch = [WindowVerdict(place, tick, NO_VERDICT_YET) for place in (ORDERS, AUDIT) for tick in (8, 7)]
    assert [(tick, len(judged)) for tick, judged in group_by_tick(batch)] == [(7, 2), (8, 2)]


def test_the_journal_keeps_readings_whole_and_in_order_across_restarts(tmp_path: Path) -> None:
    readings = [
        LagReading(ORDERS, 5, 10, 9, "a", "b", axis=OffsetRelation.MAPPED, carried=7, paused=True),
        LagReading(ORDERS._replace(group="billing"), 5, 10, 9, "a", "b", 4, None),
    ]
    first = Journal(tmp_path).append(3, readings)
    second = Journal(tmp_path).append(4, readings[:1])
    assert second > first
    journal = Journal(tmp_path)
    assert journal.numbers() == [first, second]
    assert [decode_reading(line) for line in journal.lines(first)] == [(3, one) for one in readings]
    assert list(journal.lines(first + 1_000_000)) == []


def test_the_journal_is_bounded_and_an_emptied_one_goes_on_upwards(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    numbers = [journal.append(tick, []) for tick in range(JOURNAL_FILES_KEPT + 5)]
    assert journal.numbers() == numbers[5:]
    for path in tmp_path.iterdir():
        path.unlink()
    assert Journal(tmp_path).append(1, []) > numbers[-1] - 1_000
