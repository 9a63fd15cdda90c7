"""Which tasks share a task group: none while there are tasks enough, then the small ones, and each stays where it
is.
"""

from __future__ import annotations

from collections import Counter

from twinshore.replication.core.planner import (
    BUSY_BYTES_S,
    CALM_RATIO,
    STANDBYS_MAX,
    assign_task_groups,
    spark_task_count,
)

TASKS = 6  # four stand, two change over
QUIET = 1_000.0


def tasks(count: int, rate: float = QUIET) -> dict[int, float]:
    return dict.fromkeys(range(count), rate)


def test_each_task_has_a_task_of_its_own_while_there_are_enough() -> None:
    assert set(assign_task_groups(tasks(TASKS - STANDBYS_MAX, 1e9), {}, TASKS).values()) == {None}


def test_small_tasks_spread_over_two_task_groups_and_never_over_more() -> None:
    found = assign_task_groups(tasks(200), {}, TASKS)
    assert Counter(found.values()) == {0: 100, 1: 100}


def test_the_busiest_tasks_keep_a_task_of_their_own() -> None:
    rates = tasks(10) | {3: BUSY_BYTES_S, 5: 3 * BUSY_BYTES_S, 7: 2 * BUSY_BYTES_S}
    found = assign_task_groups(rates, {}, TASKS)
    assert {task for task, task_group in found.items() if task_group is None} == {5, 7}
    assert len(set(found.values()) - {None}) == 2


def test_a_busy_task_that_shares_weighs_as_much_as_it_carries() -> None:
    rates = tasks(20) | {0: 4 * BUSY_BYTES_S, 1: 4 * BUSY_BYTES_S, 2: 2 * BUSY_BYTES_S}
    found = assign_task_groups(rates, {}, TASKS)
    beside = [task for task in rates if found[task] == found[2]]
    assert len(beside) == 1, found


def test_whoever_has_a_place_keeps_it_when_another_comes() -> None:
    before = assign_task_groups(tasks(50), {}, TASKS)
    after = assign_task_groups(tasks(51), before, TASKS)
    assert {task: after[task] for task in before} == before


def test_a_task_that_is_alone_stays_so_until_it_is_calm() -> None:
    now: dict[int, int | None] = assign_task_groups(tasks(10), {}, TASKS) | {4: None}
    assert assign_task_groups(tasks(10) | {4: BUSY_BYTES_S * CALM_RATIO}, now, TASKS)[4] is None
    assert assign_task_groups(tasks(10) | {4: BUSY_BYTES_S * CALM_RATIO - 1}, now, TASKS)[4] is not None
    assert assign_task_groups(tasks(10) | {6: BUSY_BYTES_S * CALM_RATIO}, now, TASKS)[6] is not None, (
        "one that shares has to carry more"
    )


def test_tasks_leave_their_task_group_when_few_are_left() -> None:
    before = assign_task_groups(tasks(50), {}, TASKS)
    assert set(assign_task_groups(tasks(4), before, TASKS).values()) == {None}


def test_task_groups_that_are_no_more_are_left() -> None:
    assert set(assign_task_groups(tasks(9), dict.fromkeys(range(9), 7), TASKS).values()) == {0, 1}


def test_tasks_apart_share_with_no_other() -> None:
    rates = tasks(10) | {3: 3 * BUSY_BYTES_S, 5: 2 * BUSY_BYTES_S}
    found = assign_task_groups(rates, {}, TASKS, apart={7})
    assert {task for task, task_group in found.items() if task_group is None} == {3, 7}, (
        "it takes the place of a busy one"
    )
    assert assign_task_groups(tasks(10), {}, 3, apart={7}) == dict.fromkeys(range(10), 0) | {7: None}, (
        "or that of an heir"
    )


def test_too_many_tasks_apart_share_a_task_group_among_themselves() -> None:
    found = assign_task_groups(tasks(10), {}, TASKS, apart={6, 7, 8, 99})
    assert {task for task, task_group in found.items() if task_group == 2} == {6, 7, 8}
    assert set(found.values()) == {0, 1, 2}
    again = assign_task_groups(tasks(10), found, TASKS)
    assert set(again.values()) == {0, 1}, "they come back"


def test_one_task_is_enough_for_all() -> None:
    assert set(assign_task_groups(tasks(9), {}, 1).values()) == {0}


def test_tasks_go_by_the_cores_and_the_tasks_of_a_link_unless_they_are_set() -> None:
    assert spark_task_count(2, 1, 0) == 6
    assert spark_task_count(2, 16, 0) == 20
    assert spark_task_count(2, 16, 3) == 3
    assert spark_task_count(2, 16, 1) == 2, "one carries, and its heir stands by"
