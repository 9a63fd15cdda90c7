"""How much one fetch brings, by how far away the source is."""

from __future__ import annotations

import random

from twinshore.replication.task.core.connections import ROUND_TRIPS_KEPT, SourceDistance
from twinshore.replication.task.core.messages import TaskLimits

LEAST = 8 << 20
WIDEST = TaskLimits().fetch_bytes_widest


def test_a_far_source_is_asked_for_more_each_time_up_to_a_bound() -> None:
    distance = SourceDistance(LEAST, WIDEST)
    wider = [distance.answered(distance.fetch_bytes, 0.06, 0.09) for _ in range(ROUND_TRIPS_KEPT + 20)]
    assert wider == [False] * (ROUND_TRIPS_KEPT - 1) + [True] * 21
    assert distance.fetch_bytes == WIDEST


def test_a_near_source_that_is_often_busy_is_asked_for_no_more() -> None:
    chance = random.Random(7)
    distance = SourceDistance(LEAST, WIDEST)
    for number in range(500):
        waited_s = 0.002 if number % ROUND_TRIPS_KEPT == 0 else chance.uniform(0.01, 0.5)
        assert not distance.answered(LEAST, waited_s, waited_s + 0.01)
    assert distance.fetch_bytes == LEAST


def test_a_long_way_that_became_short_is_asked_for_less_again() -> None:
    distance = SourceDistance(LEAST, WIDEST)
    for _ in range(2 * ROUND_TRIPS_KEPT):
        distance.answered(distance.fetch_bytes, 0.06, 0.09)
    assert distance.fetch_bytes > LEAST
    for _ in range(ROUND_TRIPS_KEPT):
        assert not distance.answered(distance.fetch_bytes, 0.001, 0.03)
    assert distance.fetch_bytes == LEAST


def test_waiting_for_records_says_nothing_of_the_way() -> None:
    distance = SourceDistance(LEAST, WIDEST)
    assert not any(distance.answered(LEAST // 8 - 1, 0.4, 0.4) for _ in range(3 * ROUND_TRIPS_KEPT))
    assert distance.fetch_bytes == LEAST


def test_a_way_that_is_short_beside_the_reading_is_left_alone() -> None:
    distance = SourceDistance(LEAST, WIDEST)
    assert not any(distance.answered(LEAST, 0.02, 0.3) for _ in range(3 * ROUND_TRIPS_KEPT))


def test_fetches_that_do_not_fill_their_bound_leave_it_but_their_partitions_may_bring_more() -> None:
    distance = SourceDistance(LEAST, WIDEST)
    assert [distance.answered(LEAST // 2, 0.06, 0.09) for _ in range(ROUND_TRIPS_KEPT + 1)][-1]
    assert distance.fetch_bytes == LEAST
