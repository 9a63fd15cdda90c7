"""What never crossed of topics that were deleted on the source."""

from __future__ import annotations

import pytest

from tests.monitoring.test_state import reading, wrong
from twinshore.monitoring.core.alerts import AlarmKind
from twinshore.monitoring.core.monitored_link import LOST_RECORDS_KEPT_MS, MISSING_TOPIC_GRACE_MS, MonitoredLink
from twinshore.monitoring.core.partition_lag import OffsetRelation

DELETED = {"orders": "orders was deleted on east"}


def test_what_never_crossed_of_a_topic_that_was_deleted_is_told_for_hours() -> None:
    state = MonitoredLink("east->west", 0)
    state.take([reading(1_000, 1_000, 10), reading(1_000, 50, 50, partition=1)], {}, 1_000)
    hour = 3_600_000
    for at_ms in (2_000, 2_000 + MISSING_TOPIC_GRACE_MS, hour, LOST_RECORDS_KEPT_MS):
        state.take([], {}, at_ms, DELETED, {"orders": {0: 10, 1: 50}})
    condition = wrong(state, LOST_RECORDS_KEPT_MS)[AlarmKind.RECOVERY_POINT]
    assert "990 records of orders" in condition.sentence
    assert not state.explain_over(condition.key, LOST_RECORDS_KEPT_MS)
    assert not state.rows(), "no figure of it is shown as one of today"
    assert not state.unseen(LOST_RECORDS_KEPT_MS, 30_000)
    over_ms = LOST_RECORDS_KEPT_MS + 3_000
    state.take([], {}, over_ms, DELETED, {"orders": {}})
    assert not wrong(state, over_ms)
    assert state.explain_over(condition.key, over_ms) == DELETED["orders"]
    assert not state.lags


def test_a_topic_that_was_deleted_and_made_again_is_judged_by_what_it_is() -> None:
    state = MonitoredLink("east->west", 0)
    state.take([reading(1_000, 1_000, 10)], {}, 1_000)
    for at_ms in (2_000, 2_000 + MISSING_TOPIC_GRACE_MS):
        state.take([], {}, at_ms, DELETED, {"orders": {}})
    assert AlarmKind.RECOVERY_POINT in wrong(state, 8_000)
    state.take([reading(9_000, 5, 5)], {}, 9_000)
    assert not wrong(state, 9_000)


@pytest.mark.parametrize("why", ["all had crossed", "it was left out", "somebody else's copy", "for a moment"])
def test_a_topic_that_goes_is_no_alarm_where_nothing_is_known_to_be_lost(why: str) -> None:
    state = MonitoredLink("east->west", 0)
    axis = OffsetRelation.FOREIGN if why == "somebody else's copy" else OffsetRelation.EXACT
    state.take([reading(1_000, 1_000, 10, axis=axis)], {}, 1_000)
    deleted: dict[str, dict[int, int]] = {} if why == "it was left out" else {"orders": {0: 10}}
    if why == "all had crossed":  # as the mirror says since
        deleted["orders"][0] = 1_000
    for at_ms in (2_000, 3_000 if why == "for a moment" else 90_000):
        state.take([], {}, at_ms, DELETED, deleted)
        assert not wrong(state, at_ms)


def test_what_had_crossed_is_not_lost_once_the_store_has_forgotten_the_topic() -> None:
    state = MonitoredLink("east->west", 0)
    state.take([reading(1_000, 1_000, 960), reading(1_000, 80, 50, partition=1)], {}, 1_000)
    state.take([], {}, 2_000, DELETED, {"orders": {0: 1_000, 1: 70}})
    for at_ms in (2_000 + MISSING_TOPIC_GRACE_MS, 3_600_000):
        state.take([], {}, at_ms, DELETED, {"orders": {}})
        assert ": 10 records" in wrong(state, at_ms)[AlarmKind.RECOVERY_POINT].sentence
    state.take([reading(4_000_000, 5, 5)], {}, 4_000_000)
    assert not state.deleted, "what was made again has its own receipts"
