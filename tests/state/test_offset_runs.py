"""Offset runs of mapped twins: neighbours become one, nothing is told twice, both sides find them; on three
databases.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine

from twinshore.config.model import (
    OffsetRun,
    SourceOffset,
    TargetOffset,
    append_runs,
    drop_first_records,
    source_end,
    target_end,
)
from twinshore.state.core.values import ProgressRecord, TwinRow
from twinshore.state.store import Store
from twinshore.state.tables import offset_runs

LINK = "east->west"


def offset_run(source: int, target: int, length: int, sequence: int) -> OffsetRun:
    return OffsetRun(SourceOffset(source), TargetOffset(target), length, sequence)


def gained(*offset_runs: OffsetRun, begin: int = 0, end: int = 0, topic: str = "orders") -> ProgressRecord:
    return ProgressRecord(
        link=LINK,
        topic=topic,
        partition=0,
        from_offset=begin,
        to_offset=end,
        records=end - begin,
        bytes=10,
        batches=1,
        source_end=end,
        first_ms=0,
        last_ms=1,
        lag_records=0,
        offset_runs=offset_runs,
    )


def adopted(store: Store, first: OffsetRun, topic: str = "orders") -> None:
    store.offset_runs.adopt([(TwinRow(LINK, topic, 0, "aa", "bb", first.source, first.sequence, 5), first)])


def test_neighbours_become_one_and_repetitions_change_nothing(store: Store) -> None:
    adopted(store, offset_run(40, 100, 0, 0))
    assert [row.base_offset for row in store.twins.of(LINK)] == [40]
    store.progress.record([gained(offset_run(40, 100, 10, 0), begin=40, end=50)])
    store.progress.record([gained(offset_run(45, 105, 10, 5), offset_run(56, 115, 4, 15), begin=50, end=60)])
    store.progress.record([gained(offset_run(40, 100, 15, 0), begin=60, end=60)])
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(40, 100, 15, 0), offset_run(56, 115, 4, 15))
    assert store.offset_runs.reached(LINK) == {("orders", 0): offset_run(56, 115, 4, 15)}
    assert store.offset_runs.reached("west->east") == {}


def test_an_adoption_keeps_what_is_there_and_goes_with_its_topic(store: Store) -> None:
    adopted(store, offset_run(0, 7, 0, 0))
    adopted(store, offset_run(3, 9, 0, 0))
    adopted(store, offset_run(3, 9, 0, 0), topic="Orders")
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(0, 7, 0, 0),)
    # Others wrote before the first record landed: the empty offset run makes room for it.
    store.progress.record([gained(offset_run(0, 12, 2, 0), begin=0, end=2)])
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(0, 12, 2, 0),)
    store.forget_topic(LINK, "orders")
    assert store.offset_runs.reached(LINK) == {("Orders", 0): offset_run(3, 9, 0, 0)}


def test_an_exact_twin_goes_on_mapped_behind_what_it_holds(store: Store) -> None:
    row = store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 10, 0, 5)])[0]
    known, behind = offset_run(0, 0, 10, 0), offset_run(10, 38, 0, 0)
    store.offset_runs.continue_exact([(row, (known, behind))])
    store.progress.record([gained(offset_run(11, 38, 5, 0), begin=10, end=16)])
    store.offset_runs.continue_exact([(row, (known, offset_run(10, 43, 0, 0)))])
    assert store.offset_runs.of(LINK, "orders", 0) == (known, behind, offset_run(11, 38, 5, 0)), "done twice, nothing"
    assert store.offset_runs.around(LINK, "orders", 0, 4) == (known, behind)
    assert store.offset_runs.reached(LINK) == {("orders", 0): offset_run(11, 38, 5, 0)}


def test_both_sides_find_what_lies_around_an_offset(store: Store) -> None:
    adopted(store, offset_run(0, 10, 0, 0))
    store.progress.record(
        [gained(offset_run(0, 10, 5, 0), offset_run(6, 15, 5, 5), offset_run(20, 40, 1, 10), begin=0, end=21)]
    )
    first, second, third = store.offset_runs.of(LINK, "orders", 0)
    assert store.offset_runs.around(LINK, "orders", 0, 5) == (first, second)
    assert store.offset_runs.around(LINK, "orders", 0, 6) == (second, third)
    assert store.offset_runs.around(LINK, "orders", 0, 99) == (third, None)
    assert store.offset_runs.around(LINK, "orders", 0, 9, on_target=True) == (None, first)
    assert store.offset_runs.around(LINK, "orders", 0, 39, on_target=True) == (second, third)
    assert store.offset_runs.of(LINK, "orders", 0, limit=1) == (third,)


def test_what_the_twin_holds_no_more_is_dropped_but_never_the_last(store: Store) -> None:
    adopted(store, offset_run(0, 10, 0, 0))
    store.progress.record(
        [gained(offset_run(0, 10, 5, 0), offset_run(6, 15, 5, 5), offset_run(20, 40, 1, 10), begin=0, end=21)]
    )
    assert store.offset_runs.trim(LINK, {("orders", 0): 16, ("bills", 0): 9}) == 1
    assert [one.source for one in store.offset_runs.of(LINK, "orders", 0)] == [6, 20]
    assert store.offset_runs.trim(LINK, {("orders", 0): 1_000}) == 1
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(20, 40, 1, 10),)


def test_where_all_is_told_the_next_offset_run_lies_behind_what_is_deleted(store: Store) -> None:
    adopted(store, offset_run(0, 10, 0, 2**31 - 5))
    store.progress.record([gained(offset_run(0, 10, 5, 2**31 - 5), begin=0, end=5)])
    assert store.offset_runs.trim(LINK, {("orders", 0): 15}, told=[("orders", 0)]) == 0, "it ends there"
    assert store.offset_runs.trim(LINK, {("orders", 0): 40}) == 0, "not all is told: the last stays"
    assert store.offset_runs.trim(LINK, {("orders", 0): 40}, told=[("orders", 0)]) == 1
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(5, 40, 0, 0),)
    # What was on its way to the store meanwhile takes that place.
    store.progress.record([gained(offset_run(5, 30, 2, 0), begin=5, end=7)])
    assert store.offset_runs.of(LINK, "orders", 0) == (offset_run(5, 30, 2, 0),)


def test_any_cut_of_a_history_adds_up_to_the_same_offset_runs() -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        whole: list[OffsetRun] = []
        source, target, sequence = 0, 0, rng.choice([0, 2**31 - 20])
        for _ in range(rng.randint(1, 8)):
            source, target = source + rng.randint(1, 3), target + rng.choice([1, 4])
            one = offset_run(source, target, rng.randint(1, 30), sequence)
            whole.append(one)
            source, target, sequence = source_end(one), target_end(one), (sequence + one.length) % 2**31
        whole = append_runs(None, whole)
        pieces = []
        for one in whole:
            while one.length:
                size = rng.randint(1, one.length)
                pieces.append(one._replace(length=size))
                one = drop_first_records(one, size)
        standing: list[OffsetRun] = []
        at = 0
        while at < len(pieces):
            back = max(0, at - rng.randint(0, 3))
            ahead = at + rng.randint(1, 4)
            known = standing[-1] if standing else None
            standing = standing[:-1] + append_runs(known, pieces[back:ahead])
            at = ahead
        assert standing == whole


def test_what_is_told_between_the_two_questions_skips_nothing(
    store: Store, open_another: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted(store, offset_run(1000, 40, 0, 0))
    store.progress.record([gained(offset_run(1000, 40, 100, 0), begin=1000, end=1100)])
    other, told = (
        open_another(),
        gained(offset_run(1100, 140, 10, 100), offset_run(1111, 151, 9, 110), begin=1100, end=1120),
    )
    asked = Connection.execute

    def execute(self: Connection, *args: Any, **more: Any) -> Any:
        found = asked(self, *args, **more)
        if "offset_runs" in str(args[0]):
            monkeypatch.setattr(Connection, "execute", asked)
            other.progress.record([told])
        return found

    monkeypatch.setattr(Connection, "execute", execute)
    before, behind = store.offset_runs.around(LINK, "orders", 0, 1105)
    assert before is not None
    assert source_end(before) == 1110 or (behind is None and source_end(before) == 1100), "6 offsets would be left out"


def test_how_far_twins_reach_is_looked_up_however_long_their_maps_are(store: Store, store_url: str) -> None:
    """Asked every second of every link: a map of a transactional topic has a row for each transaction."""
    engine = create_engine(store_url)
    for link, count in (("north->west", 20), (LINK, 20_000)):
        store.offset_runs.adopt([(TwinRow(link, "orders", 0, "aa", "bb", 0, 0, 0), offset_run(0, 0, 0, 0))])
        for begin in range(1, count, 4_000):
            rows = [offset_run(2 * at, 3 * at, 1, at) for at in range(begin, min(count, begin + 4_000))]
            values = [{"link": link, "topic": "orders", "partition": 0, **row._asdict()} for row in rows]
            with engine.begin() as connection:
                connection.execute(offset_runs.insert(), values)
        assert store.offset_runs.reached(link) == {
            ("orders", 0): offset_run(2 * count - 2, 3 * count - 3, 1, count - 1)
        }
    engine.dispose()
    took: dict[str, list[float]] = {"north->west": [], LINK: []}
    for _ in range(30):
        for link, times in took.items():
            begun_s = time.perf_counter()
            store.offset_runs.reached(link)
            times.append(time.perf_counter() - begun_s)
    few_s, many_s = (min(times) for times in took.values())
    assert many_s < 3 * few_s + 0.003, (few_s, many_s)
