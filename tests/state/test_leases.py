"""Leases on every database, with rivals."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from twinshore.state.core.values import LeaseRow
from twinshore.state.store import Store


def beat(store: Store, row: LeaseRow) -> LeaseRow | None:
    return store.leases.renew_each([row], {row.name: row.ttl_ms}).get(row.name)


def test_the_life_of_a_lease(store: Store) -> None:
    assert store.leases.read("task 1") is None
    taken = store.leases.take("task 1", "a", 4000, row=None)
    assert taken == LeaseRow("task 1", "a", 1, 0, 4000)
    assert store.leases.read("task 1") == taken
    beaten = beat(store, taken)
    assert beaten == replace(taken, renewals=1) == store.leases.read("task 1")
    assert store.leases.release(beaten)
    free = store.leases.read("task 1")
    assert free == replace(beaten, released=True)
    assert store.leases.take("task 1", "b", 5000, row=free) == LeaseRow("task 1", "b", 2, 0, 5000)


def test_it_is_taken_only_as_it_was_seen(store: Store) -> None:
    first = store.leases.take("task", "a", 1000, row=None)
    assert first is not None
    assert store.leases.take("task", "b", 1000, row=None) is None
    assert beat(store, first) is not None
    assert store.leases.take("task", "b", 1000, row=first) is None
    second = store.leases.take("task", "b", 1000, row=replace(first, renewals=1))
    assert second == LeaseRow("task", "b", 2, 0, 1000)


def test_who_has_lost_it_is_told_so(store: Store) -> None:
    first = store.leases.take("task", "a", 1000, row=None)
    assert first is not None
    second = store.leases.take("task", "b", 1000, row=first)
    assert beat(store, first) is None
    assert not store.leases.release(first)
    assert store.leases.read("task") == second


def test_a_released_lease_beats_no_more(store: Store) -> None:
    taken = store.leases.take("task", "a", 1000, row=None)
    assert taken is not None
    assert store.leases.release(taken)
    assert beat(store, taken) is None
    assert not store.leases.release(taken)


def test_a_beat_whose_answer_was_lost_may_be_sent_again_and_changes_what_others_see(store: Store) -> None:
    taken = store.leases.take("task", "a", 1000, row=None)
    assert taken is not None
    assert beat(store, taken) == replace(taken, renewals=1)
    assert beat(store, taken) == replace(taken, renewals=2)


def test_many_beat_at_once_and_those_that_are_lost_are_left_out(store: Store) -> None:
    names = [f"task {number}" for number in range(8)]
    rows = {name: store.leases.take(name, "a", 1000, row=None) for name in names}
    held = {name: row for name, row in rows.items() if row is not None}
    assert list(held) == names
    assert store.leases.release(held["task 1"])
    second = store.leases.take("task 2", "b", 3000, row=held["task 2"])
    third = store.leases.take("task 3", "a", 1000, row=held["task 3"])
    assert third is not None
    ttl_ms = {name: 60_000 if name == "task 4" else 2000 for name in names}
    beaten = store.leases.renew_each([*held.values(), LeaseRow("no task", "a", 1, 0, 1000)], {**ttl_ms, "no task": 1})
    assert list(beaten) == [name for name in names if name not in ("task 1", "task 2", "task 3")]
    assert all(row == replace(held[name], renewals=1, ttl_ms=ttl_ms[name]) for name, row in beaten.items())
    assert store.leases.read_each([*names, "no task"]) == {
        **beaten,
        "task 1": replace(held["task 1"], released=True),
        "task 2": second,
        "task 3": third,
    }


def test_of_many_who_take_at_once_one_gets_it(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(8)
    seen: LeaseRow | None = None

    def grab(index: int) -> LeaseRow | None:
        start.wait()
        return stores[index % 4].leases.take("task", f"owner {index}", 1000, row=seen)

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(1, 6):
            winners = [row for row in pool.map(grab, range(8)) if row is not None]
            assert [row.epoch for row in winners] == [round_]
            assert stores[0].leases.read("task") == winners[0]
            seen = winners[0]


def test_names_differ_by_case(store: Store) -> None:
    assert store.leases.take("Lane", "a", 1000, row=None) is not None
    assert store.leases.take("task", "b", 1000, row=None) is not None
