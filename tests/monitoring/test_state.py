"""What a monitor says of a link after samples, verdicts and silence; and which sentence it would tell."""

from __future__ import annotations

from twinshore.config.incident_policy import POLICY_GAP, POLICY_STOP, POLICY_TOPIC, IncidentKind
from twinshore.config.model import Link
from twinshore.monitoring.core.alerts import (
    AlarmKey,
    AlarmKind,
    AlertCondition,
    WindowVerdict,
    check_windows,
    describe_partitions,
)
from twinshore.monitoring.core.monitored_link import MISSING_TOPIC_GRACE_MS, MonitoredLink
from twinshore.monitoring.core.partition_lag import (
    GROUPS_PART,
    HEARTBEATS_PART,
    NO_VERDICT_YET,
    DelayVerdict,
    LagReading,
    MonitoredPartition,
    OffsetRelation,
)
from twinshore.monitoring.sampler import find_stopped_partitions
from twinshore.state.core.values import Incident, IncidentRow

LINK = "east->west"
BOUNDS = {"heartbeat_s": 30.0, "blind_s": 60.0, "period_s": 5.0}


def reading(
    ms: int, a: int, b: int, *, topic: str = "orders", partition: int = 0, axis: OffsetRelation = OffsetRelation.EXACT
) -> LagReading:
    return LagReading(MonitoredPartition(LINK, topic, partition), ms, a, b, "s", "t", axis=axis)


def conditions(state: MonitoredLink, now_ms: int) -> list[AlertCondition]:
    return state.conditions(now_ms, lambda _topic: 10.0, **BOUNDS)


def wrong(state: MonitoredLink, now_ms: int) -> dict[AlarmKind, AlertCondition]:
    found = [condition for condition in conditions(state, now_ms) if condition.wrong]
    assert len({condition.key for condition in found}) == len(found)
    return {condition.key.kind: condition for condition in found}


def test_a_topic_behind_for_longer_than_its_bound_is_told_with_what_would_be_lost() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 13_000, 1_000):
        state.take([reading(ms, 100 + ms, 100), reading(ms, 50, 50, partition=1)], {}, ms)
    condition = wrong(state, 12_000)[AlarmKind.RECOVERY_POINT]
    assert condition.key.topic == "orders"
    assert (
        "12,000 records of orders (partition 0) are on east alone, the oldest for 11.0 s (bound 10 s)"
        in condition.sentence
    )
    state.take([reading(13_000, 12_100, 12_100), reading(13_000, 50, 50, partition=1)], {}, 13_000)
    assert not wrong(state, 13_000)


def test_a_paused_topic_is_behind_on_purpose() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 30_000, 1_000):
        state.take([reading(ms, 100 + ms, 100)._replace(paused=True)], {}, ms)
    assert not wrong(state, 30_000)
    assert next(iter(state.lags.values())).state == "paused"


def test_somebody_elses_copy_has_a_lag_but_no_alarm_of_ours() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 30_000, 1_000):
        state.take([reading(ms, 100 + ms, 100, axis=OffsetRelation.FOREIGN)], {}, ms)
    (view,) = state.lags.values()
    assert (view.lag_records, view.recovery_point_ms) == (29_000, 28_000)
    assert not wrong(state, 29_000)


def test_a_restarted_monitor_knows_how_old_a_backlog_is() -> None:
    first = MonitoredLink(LINK, 0)
    for ms in range(0, 60_000, 500):
        first.take([reading(ms, 100 + ms, 100)], {}, ms)
    (row,) = first.rows()
    second = MonitoredLink(LINK, 300_000)
    second.restore([row])
    second.take([reading(300_000, 90_000, 100)], {}, 300_000)
    assert next(iter(second.lags.values())).recovery_point_ms == 300_000 - 500
    fresh = MonitoredLink(LINK, 300_000)
    fresh.take([reading(300_000, 90_000, 100)], {}, 300_000)
    assert next(iter(fresh.lags.values())).recovery_point_ms == 0


def test_heartbeats_that_stop_are_missed_and_those_that_never_came_are_not() -> None:
    state = MonitoredLink(LINK, 0)
    assert not wrong(state, 50_000)
    state.take([], {}, 50_000)
    state.take_heartbeat(7, 49_000, 50_000)
    assert state.beat_late_ms == 1_000
    state.take_heartbeat(7, 49_000, 70_000)
    state.take([], {}, 81_000)
    assert "31 s" in wrong(state, 81_000)[AlarmKind.HEARTBEAT].sentence
    state.expect_no_heartbeat(81_100)
    assert AlarmKind.HEARTBEAT not in wrong(state, 82_000), "paused"
    state.take_heartbeat(8, 81_000, 81_500)
    assert AlarmKind.HEARTBEAT not in wrong(state, 82_000)


def said(state: MonitoredLink, now_ms: int) -> dict[tuple[AlarmKind, str, str], bool]:
    conditions = state.conditions(now_ms, lambda _topic: 10.0, **BOUNDS)
    return {(condition.key.kind, condition.key.topic, condition.key.group): condition.wrong for condition in conditions}


def test_after_a_restart_nothing_is_well_until_something_was_read() -> None:
    state = MonitoredLink(LINK, 100_000)
    for ms in range(101_000, 160_000, 1_000):
        state.take([], {"": "west: no broker answers"}, ms)
        assert not any(wrong is False for wrong in said(state, ms).values()), ms
    state.take([], {"": "west: no broker answers"}, 161_000)
    assert said(state, 161_000) == {(AlarmKind.BLIND, "", ""): True}
    state.take([reading(162_000, 1, 1)], {}, 162_000)
    assert said(state, 162_000) == {
        (AlarmKind.RECOVERY_POINT, "orders", ""): False,
        (AlarmKind.STOPPED, "orders", ""): False,
        (AlarmKind.BLIND, "", ""): False,
        (AlarmKind.BLIND, "orders", ""): False,
    }, "no window has judged yet, no heartbeat was heard"
    state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, DelayVerdict(judged=True))], 163_000)
    assert said(state, 163_000)[AlarmKind.BLIND, "", "windows"] is False


def test_after_a_restart_the_last_heartbeat_of_old_is_no_sign_of_life() -> None:
    state = MonitoredLink(LINK, 100_000)
    key = (AlarmKind.HEARTBEAT, "", "")
    for ms in range(101_000, 150_000, 1_000):
        state.take([reading(ms, 1, 1)], {}, ms)
        state.take_heartbeat(7, 1_000, ms)
        assert said(state, ms).get(key) is (True if ms > 131_000 else None), ms
    state.take_heartbeat(8, 150_000, 150_000)
    assert said(state, 150_000)[key] is False
    hushed = MonitoredLink(LINK, 100_000)
    hushed.take([reading(101_000, 1, 1)], {}, 101_000)
    hushed.expect_no_heartbeat(101_000)
    assert said(hushed, 101_000)[key] is False, "none is expected of a paused link"
    hushed.take([reading(102_000, 1, 1)], {}, 102_000)
    assert key not in said(hushed, 102_000)


def test_a_link_that_cannot_be_read_says_nothing_of_its_topics() -> None:
    state = MonitoredLink(LINK, 0)
    state.take([reading(1_000, 1, 1)], {}, 1_000)
    state.take([], {"": "west: no broker answers"}, 70_000)
    assert said(state, 70_000)[AlarmKind.BLIND, "", ""]
    assert (AlarmKind.BLIND, "orders", "") not in said(state, 70_000)


def test_groups_that_cannot_be_read_are_an_alarm_of_their_own_and_all_else_goes_on() -> None:
    state = MonitoredLink(LINK, 0)
    key = (AlarmKind.BLIND, "", "groups")
    gone = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "gone")
    for ms in range(0, 200_000, 5_000):
        failures = {GROUPS_PART: "west does not tell the places of billing"} if 20_000 <= ms < 150_000 else {}
        state.take([reading(ms, 1, 1)], failures, ms, {"gone": "gone was deleted on east"})
        state.take_parts(failures, ms)
        state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, DelayVerdict(judged=True))], ms)
        expected = None if 20_000 <= ms <= 80_000 else 80_000 < ms < 150_000
        assert said(state, ms).get(key) is expected, ms
        assert not [one for one, wrong in said(state, ms).items() if wrong and one != key], ms
        if ms == 100_000:
            assert "could be read for 80 s: west does not tell" in wrong(state, ms)[AlarmKind.BLIND].sentence
            assert state.explain_over(gone, ms), "what is gone is forgotten all the same"
            assert not state.explain_over(gone._replace(topic="orders", group="billing"), 9_000_000)


def test_heartbeats_that_cannot_be_read_have_not_stopped() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 120_000, 5_000):
        failures = {HEARTBEATS_PART: "not allowed"} if ms > 10_000 else {}
        state.take([reading(ms, 1, 1)], failures, ms)
        state.take_parts(failures, ms)
        if not failures:
            state.take_heartbeat(ms, ms, ms)
        assert not said(state, ms).get((AlarmKind.HEARTBEAT, "", "")), ms
    assert said(state, 120_000)[AlarmKind.BLIND, "", "heartbeats"]


def test_a_link_that_cannot_be_read_is_one_alarm_and_not_one_for_each_topic() -> None:
    state = MonitoredLink(LINK, 0)
    state.take([reading(1_000, 1, 1), reading(1_000, 1, 1, topic="bills")], {}, 1_000)
    state.take([], {"": "west: no broker answers"}, 70_000)
    condition = wrong(state, 70_000)[AlarmKind.BLIND]
    assert condition.key.topic == ""
    assert " 69 s: west: no broker answers" in condition.sentence


def test_one_topic_that_cannot_be_read_is_named() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 90_000, 1_000):
        read = [reading(ms, ms, ms)] + ([reading(ms, 1, 1, topic="bills")] if ms < 10_000 else [])
        state.take(read, {"bills": "no leader"} if ms >= 10_000 else {}, ms)
        state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), ms, DelayVerdict(judged=True))], ms)
    condition = wrong(state, 89_000)[AlarmKind.BLIND]
    assert condition.key.topic == "bills"
    assert "no leader" in condition.sentence


def test_a_topic_that_is_known_to_be_over_raises_nothing_and_is_forgotten() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 130_000, 1_000):
        there = ms < 10_000
        read = [reading(ms, ms, ms)] + ([reading(ms, 1, 1, topic="gone")] if there else [])
        state.take(read, {}, ms, {} if there else {"gone": "gone was deleted on east"})
        state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, DelayVerdict(judged=True))], ms)
        assert not wrong(state, ms), ms
        if ms < 10_000 or ms >= 10_000 + MISSING_TOPIC_GRACE_MS:
            assert {row.topic for row in state.rows()} == ({"orders", "gone"} if there else {"orders"}), ms
        assert state.left == ({"gone"} if ms >= 10_000 + MISSING_TOPIC_GRACE_MS else set()), ms
    assert {place.topic for place in state.lags} == {"orders"}
    assert set(state.seen_ms) == {"", "orders"}
    state.take([reading(130_000, 1, 1, topic="gone")], {}, 130_000)
    assert not state.left and "gone" in {row.topic for row in state.rows()}, "it was made again"


def test_a_topic_that_nobody_names_is_missed_with_its_last_figures_for_as_long_as_it_takes() -> None:
    state = MonitoredLink(LINK, 0)
    late = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "orders")
    unseen = "orders is not on west any more"
    for ms in range(0, 100_000, 1_000):
        state.take([reading(ms, 5_000, 10), reading(ms, 1, 1, topic="bills")], {}, ms)
    for ms in range(100_000, 9_000_000, 60_000):
        state.take([reading(ms, 1, 1, topic="bills")], {"orders": unseen}, ms)
        state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "bills", 0), 1, DelayVerdict(judged=True))], ms)
        found = state.conditions(ms, lambda _topic: 10.0, **BOUNDS)
        assert late not in {condition.key for condition in found}, (
            "its alarm stands: nothing is known that would clear it"
        )
        assert not state.explain_over(late, ms)
        if ms > 160_000:
            (condition,) = [condition for condition in found if condition.wrong]
            assert (condition.key.kind, condition.key.topic) == (AlarmKind.BLIND, "orders")
    assert unseen in condition.sentence
    assert "it lacked 4,990 records, the oldest for 99.0 s" in condition.sentence
    assert {row.topic for row in state.rows()} == {"bills", "orders"}, "the last figures are kept"


def test_a_topic_that_was_out_of_sight_before_a_restart_is_missed_after_it() -> None:
    first = MonitoredLink(LINK, 0)
    first.take([reading(1_000, 90, 10), reading(1_000, 1, 1, topic="bills")], {}, 1_000)
    second = MonitoredLink(LINK, 300_000)
    second.restore(first.rows())
    assert not wrong(second, 300_000), "nothing was read yet"
    second.take([reading(301_000, 1, 1, topic="bills")], {"orders": "west refuses to describe it"}, 301_000)
    condition = wrong(second, 301_000)[AlarmKind.BLIND]
    assert condition.key.topic == "orders"
    assert "300 s ago it lacked 80 records" in condition.sentence
    never = MonitoredLink(LINK, 300_000)
    for ms in range(300_000, 400_000, 1_000):
        never.take([reading(ms, 1, 1, topic="bills")], {"orders": "west refuses to describe it"}, ms)
        never.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "bills", 0), 1, DelayVerdict(judged=True))], ms)
        assert said(never, ms).get((AlarmKind.BLIND, "orders", "")) is (True if ms > 360_000 else None), ms


def test_a_topic_of_which_a_part_is_read_is_never_well_by_that_part() -> None:
    state = MonitoredLink(LINK, 0)
    key = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "orders")
    few = {"orders": "west has fewer partitions"}
    state.take([reading(1_000, 1, 1)], few, 1_000)
    assert key not in {condition.key for condition in state.conditions(1_000, lambda _topic: 10.0, **BOUNDS)}
    assert not state.vouches(AlertCondition(AlarmKey(LINK, AlarmKind.END_OFFSET, "orders"), False))
    for ms in range(2_000, 70_000, 1_000):
        state.take([reading(ms, 50, 1)], few, ms)
        state.take_verdicts([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 1, DelayVerdict(judged=True))], ms)
    found = wrong(state, 69_000)
    assert set(found) == {AlarmKind.RECOVERY_POINT, AlarmKind.BLIND}


def test_while_a_link_cannot_be_read_its_last_figures_clear_nothing() -> None:
    state = MonitoredLink(LINK, 0)
    state.take([reading(1_000, 1, 1)], {}, 1_000)
    state.take([], {"": "west: no broker answers"}, 2_000)
    assert (AlarmKind.RECOVERY_POINT, "orders", "") not in said(state, 2_000)


def test_nothing_of_a_topic_is_well_while_a_partition_of_it_is_stopped() -> None:
    state = MonitoredLink(LINK, 0)
    state.stopped = {"orders": "orders-1: somebody else wrote to the twin."}
    for ms in range(0, 30_000, 1_000):
        state.take([reading(ms, 50, 50), reading(ms, 9, 9, topic="bills")], {}, ms)
    found = said(state, 29_000)
    assert found[AlarmKind.STOPPED, "orders", ""] is True
    assert found[AlarmKind.STOPPED, "bills", ""] is False
    assert (AlarmKind.RECOVERY_POINT, "orders", "") not in found, "its lag is 0, and nothing crosses"
    assert found[AlarmKind.RECOVERY_POINT, "bills", ""] is False
    assert wrong(state, 29_000)[AlarmKind.STOPPED].sentence.count("orders-1") == 1
    for kind in (AlarmKind.END_OFFSET, AlarmKind.GROUP):
        assert not state.vouches(AlertCondition(AlarmKey(LINK, kind, "orders", "billing"), False))
    state.stopped = {}
    assert said(state, 30_000)[AlarmKind.STOPPED, "orders", ""] is False
    assert said(state, 30_000)[AlarmKind.RECOVERY_POINT, "orders", ""] is False


def test_what_is_late_beside_the_partitions_that_are_stopped_is_beyond_their_stop() -> None:
    state = MonitoredLink(LINK, 0)
    for ms in range(0, 30_000, 1_000):
        state.take([reading(ms, 9, 1, partition=number) for number in (0, 1)], {}, ms)
    rows = [
        IncidentRow(1, Incident(LINK, topic, number, IncidentKind.FOREIGN_WRITE, 1, 9, policy, "stopped"), 5, None)
        for topic, number, policy in (("orders", 1, POLICY_STOP), ("bills", 2, POLICY_TOPIC), ("other", 0, POLICY_GAP))
    ]
    said, resting = find_stopped_partitions(Link("east", "west"), rows)
    assert set(said) == {"orders", "bills"}
    assert resting == {"orders": frozenset({1}), "bills": frozenset({-1})}
    delayed = [
        WindowVerdict(MonitoredPartition(LINK, "orders", n), 10, DelayVerdict(True, latest_delayed=True))
        for n in (0, 1)
    ]
    for on, beyond in ((frozenset[int](), False), (frozenset({1}), True), (frozenset({0, 1}), False), ({-1}, False)):
        state.resting = {"orders": frozenset(on)}
        assert wrong(state, 29_000)[AlarmKind.RECOVERY_POINT].beyond is beyond, on
        (condition,) = check_windows(delayed, 5.0, {(LINK, "orders"): frozenset(on)})
        assert condition.beyond is beyond, on


def test_an_alarm_of_a_topic_that_is_over_can_clear() -> None:
    state = MonitoredLink(LINK, 0)
    gone = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "gone")
    group = AlarmKey(LINK, AlarmKind.GROUP, "orders", "billing")
    for ms in range(0, 200_000, 1_000):
        there = ms < 100_000
        read = [reading(ms, ms, ms)] + ([reading(ms, 1, 1, topic="gone")] if there else [])
        state.take(read, {}, ms, {} if there else {"gone": "gone was deleted on east"})
        if ms == 50_000:
            of_group = reading(ms, 1, 1)._replace(
                place=MonitoredPartition(LINK, "orders", 0, "billing"), source_commit=1
            )
            state.take([of_group, *read], {}, ms)
        if ms < 150_000:
            assert not state.explain_over(gone, ms), ms
    assert state.explain_over(gone, 199_000)
    assert not state.explain_over(gone._replace(link="west->east"), 199_000)
    assert not state.explain_over(gone._replace(topic="orders"), 199_000)
    assert not state.explain_over(group, 199_000)
    state.seen_ms["orders"] = 9_000_000
    assert state.explain_over(group, 9_000_000)
    state.take([reading(9_000_000, 1, 1, topic="gone"), reading(9_000_000, 1, 1)], {}, 9_000_000)
    assert not state.explain_over(gone, 9_100_000), "it is there again"


def test_a_twin_made_anew_while_nobody_watched_is_behind_from_when_that_was_seen() -> None:
    before = MonitoredLink(LINK, 0)
    before.take([reading(1_000, 100, 100)], {}, 1_000)
    for lost in (0, 50):  # Made anew and empty, or its end cut off.
        state = MonitoredLink(LINK, 60_000)
        state.restore(before.rows())
        for ms in range(60_000, 72_000, 1_000):
            state.take([reading(ms, 100, lost)._replace(target_id="t2")], {}, ms)
        condition = wrong(state, 71_000)[AlarmKind.RECOVERY_POINT]
        assert f"{100 - lost} records of orders" in condition.sentence and "the oldest for 11.0 s" in condition.sentence


def test_a_groups_place_is_shown_beside_the_sources() -> None:
    state = MonitoredLink(LINK, 0)
    at = reading(0, 100, 100)._replace(
        place=MonitoredPartition(LINK, "orders", 0, "billing"), source_commit=80, target_commit=70
    )
    state.take([at], {}, 0)
    (view,) = state.lags.values()
    assert (view.source_end, view.target_end, view.lag_records) == (80, 70, 10)
    state.take([at._replace(target_commit=None)], {}, 0)
    assert next(iter(state.lags.values())).target_end == -1


def test_the_windows_sentence_says_what_moved_and_what_did_not() -> None:
    late = DelayVerdict(True, latest_delayed=True, a_max_sub=600, b_max_sub=20)
    judged = [WindowVerdict(MonitoredPartition(LINK, "orders", number), 9, late) for number in range(8)]
    judged += [
        WindowVerdict(MonitoredPartition(LINK, "orders", 8), 9, DelayVerdict(True)),
        WindowVerdict(MonitoredPartition(LINK, "orders", 9), 9, NO_VERDICT_YET),
    ]
    (condition,) = check_windows(judged, 5.0)
    assert condition.key.kind is AlarmKind.END_OFFSET
    assert "orders moved by 4,800 on east within 5 s, and by 160 on west in 15 s" in condition.sentence
    assert "partitions 0, 1, 2, 3, 4 and 3 more" in condition.sentence
    (right,) = check_windows([WindowVerdict(MonitoredPartition(LINK, "orders", 0), 10, DelayVerdict(True))], 5.0)
    assert not right.wrong
    group = WindowVerdict(
        MonitoredPartition(LINK, "orders", 0, "billing"), 9, DelayVerdict(True, True, True, 9, 1, 600, 20)
    )
    (condition,) = check_windows([group], 5.0)
    assert (condition.key.kind, condition.key.group) == (AlarmKind.GROUP, "billing")
    assert "600 on east" in condition.sentence


def test_partitions_in_words() -> None:
    assert describe_partitions([3]) == "partition 3"
    assert describe_partitions([2, 1, 2]) == "partitions 1, 2"
