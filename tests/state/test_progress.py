"""Receipts on every database: what follows, what repeats, what is refused, and that nothing grows without bound."""

from __future__ import annotations

import pickle
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import create_engine, select

from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.state.core.progress_rules import (
    PRODUCER_AGE_MS,
    PRODUCERS_PER_PARTITION_MAX,
    PRODUCERS_SLACK,
    ProgressRefusedError,
    last_offset,
)
from twinshore.state.core.values import (
    PartitionState,
    ProgressRecord,
    ReplicatedPosition,
    SourceBatch,
    SourceProducer,
    TwinRow,
)
from twinshore.state.store import Store, open_store
from twinshore.state.tables import source_producers

LINK = "east->west"


def carried(
    from_offset: int, to_offset: int, *, topic: str = "orders", partition: int = 0, at_ms: int = 0
) -> ProgressRecord:
    count = to_offset - from_offset
    end = to_offset + 5
    return ProgressRecord(
        link=LINK,
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        to_offset=to_offset,
        records=count,
        bytes=count * 10,
        batches=1,
        source_end=end,
        first_ms=at_ms,
        last_ms=at_ms + 1,
        lag_records=5,
    )


def by(producer_id: int, *offsets: int, epoch: int = 0) -> SourceProducer:
    return SourceProducer(producer_id, epoch, tuple(SourceBatch(one, one + 4, one, one) for one in offsets))


def wrote(store: Store, partition: int = 0) -> tuple[SourceProducer, ...]:
    """Whoever is kept as a writer of the partition of orders; the one that wrote last comes first."""
    found = store.replicated_prefixes.of(LINK, {"orders": 1}).get(("orders", partition))
    return tuple(sorted(found.producers, key=last_offset, reverse=True)) if found else ()


def test_receipts_add_up_to_a_position(store: Store) -> None:
    assert store.progress.positions(LINK) == ()
    store.progress.record([carried(0, 10, at_ms=100)])
    store.progress.record([carried(10, 25, at_ms=200), carried(0, 3, partition=1), carried(0, 4, topic="Orders")])
    first = ReplicatedPosition(
        link=LINK,
        topic="orders",
        partition=0,
        start_offset=0,
        to_offset=25,
        records=25,
        bytes=250,
        batches=2,
        source_end=30,
        lag_records=5,
        state=PartitionState.FLOWING,
        first_ms=100,
        last_ms=201,
    )
    assert store.progress.positions(LINK)[-2] == first
    assert [(one.topic, one.partition, one.to_offset) for one in store.progress.positions(LINK)] == [
        ("Orders", 0, 4),
        ("orders", 0, 25),
        ("orders", 1, 3),
    ]
    assert store.progress.positions("west->east") == ()


def test_nothing_to_record_is_nothing(store: Store) -> None:
    store.progress.record([])
    assert store.progress.positions(LINK) == ()


def test_a_twin_may_begin_anywhere_and_offsets_pass_every_32_bit_border(store: Store) -> None:
    store.progress.record([carried(2**31 - 5, 2**31 + 5), carried(2**31 + 5, 2**40)])
    position = store.progress.positions(LINK)[0]
    assert (position.start_offset, position.to_offset, position.records) == (2**31 - 5, 2**40, 2**40 - 2**31 + 5)


def test_several_receipts_of_one_partition_in_one_call_in_any_order(store: Store) -> None:
    store.progress.record([carried(10, 20), carried(20, 20), carried(0, 10)])
    assert store.progress.positions(LINK)[0].to_offset == 20


def test_a_receipt_that_comes_again_changes_nothing(store: Store) -> None:
    once = [replace(carried(0, 10), source_producers=(by(7, 0, 5),))]
    store.progress.record(once)
    store.progress.record([replace(carried(10, 20), source_producers=(by(7, 10, epoch=1),))])
    before = store.progress.positions(LINK), wrote(store)
    store.progress.record(once)
    store.progress.record([carried(3, 20, at_ms=999), carried(5, 5)])
    assert (store.progress.positions(LINK), wrote(store)) == before


def test_what_does_not_follow_is_refused_and_nothing_recorded(store: Store) -> None:
    store.progress.record([carried(5, 10)])
    before = store.progress.positions(LINK)
    for wrong, reason in (
        (carried(11, 20), "orders-0 [11, 20) leaves a gap from 10"),
        (carried(2, 9), "orders-0 [2, 9) begins before 5, where this twin's progress begins"),
        (carried(10, 9), "orders-0 [10, 9) is not a range"),
    ):
        with pytest.raises(ProgressRefusedError) as caught:
            store.progress.record([carried(0, 7, topic="bills"), replace(wrong, source_producers=(by(1, 9),))])
        assert caught.value.values == {"ranges": f"{LINK} {reason}"}
        refused = caught.value.refused
        assert [(one.progress.from_offset, one.position_offset) for one in refused] == [(wrong.from_offset, 10)]
        assert pickle.loads(pickle.dumps(caught.value)).refused == refused
        assert store.progress.positions(LINK) == before
        assert wrote(store) == ()


def test_of_a_receipt_that_overlaps_only_what_is_new_is_recorded(store: Store) -> None:
    store.progress.record([replace(carried(0, 50), source_producers=(by(7, 0, 10), by(8, 40)))])
    store.progress.record([replace(carried(20, 56), source_producers=(by(7, 20, epoch=9), by(8, 40, 50)))])
    position = store.progress.positions(LINK)[0]
    assert (position.to_offset, position.records, position.bytes) == (56, 56, 560)
    assert wrote(store) == (by(8, 40, 50), by(7, 0, 10))


def test_an_idle_partition_still_learns_how_far_the_source_is(store: Store) -> None:
    store.progress.record([carried(0, 10)])
    store.progress.record([replace(carried(10, 10, at_ms=500), source_end=77, lag_records=67, batches=0)])
    position = store.progress.positions(LINK)[0]
    assert (position.to_offset, position.source_end, position.lag_records, position.last_ms) == (10, 77, 67, 501)


def test_an_epoch_goes_with_its_own_offset(store: Store) -> None:
    def kept() -> tuple[int, int]:
        (position,) = store.progress.positions(LINK)
        return position.to_offset, position.source_epoch

    store.progress.record([carried(0, 10)])
    assert kept() == (10, -1)
    store.progress.record([replace(carried(10, 10), source_epoch=2)])
    assert kept() == (10, 2), "who looked knows it now"
    store.progress.record([carried(10, 10), carried(3, 7), replace(carried(0, 10), source_epoch=1)])
    assert kept() == (10, 2)
    store.progress.record([replace(carried(8, 20), source_epoch=3)])
    assert kept() == (20, 3)
    store.progress.record([carried(20, 30)])
    assert kept() == (30, -1), "an older one would tell of a truncation that is none"
    store.progress.record([carried(40, 50), replace(carried(30, 40), source_epoch=4)])
    assert kept() == (50, -1)
    store.progress.record([replace(carried(50, 60), source_epoch=5)])
    assert kept() == (60, 5)


def test_a_partition_is_marked_stopped_and_stays_so(store: Store) -> None:
    assert not store.progress.set_state(LINK, "orders", 0, PartitionState.STOPPED)
    store.progress.record([carried(0, 10)])
    assert store.progress.set_state(LINK, "orders", 0, PartitionState.STOPPED)
    store.progress.record([carried(10, 20)])
    assert store.progress.positions(LINK)[0].state is PartitionState.STOPPED


def test_the_last_five_batches_of_each_producer(store: Store) -> None:
    store.progress.record([replace(carried(0, 20), source_producers=(by(7, 0, 5, 10), by(8, 15)))])
    store.progress.record([replace(carried(20, 40), source_producers=(by(7, 20, 25, 30), by(9, 35)))])
    assert wrote(store) == (by(9, 35), by(7, 5, 10, 20, 25, 30), by(8, 15))
    store.progress.record([replace(carried(40, 45), source_producers=(by(7, 40, epoch=1),))])
    assert wrote(store)[0] == by(7, 40, epoch=1)
    assert wrote(store, 1) == ()


def test_the_producers_of_two_receipts_in_one_call(store: Store) -> None:
    store.progress.record(
        [
            replace(carried(20, 40), source_producers=(by(7, 20, 25, 30, 35),)),
            replace(carried(0, 20), source_producers=(by(7, 0, 5), by(8, 10))),
        ]
    )
    assert wrote(store) == (by(7, 5, 20, 25, 30, 35), by(8, 10))


def test_producers_are_bounded_by_number(store: Store) -> None:
    step = PRODUCERS_PER_PARTITION_MAX // 2
    for index in range(5):
        low = index * step
        crowd = tuple(by(producer, producer * 10) for producer in range(low, low + step))
        store.progress.record([replace(carried(low * 10, (low + step) * 10), source_producers=crowd)])
        kept = wrote(store)
        assert len(kept) <= PRODUCERS_PER_PARTITION_MAX + PRODUCERS_SLACK
        newest = [one.producer_id for one in kept[:PRODUCERS_PER_PARTITION_MAX]]
        assert newest == list(range(low + step - 1, max(-1, low + step - 1 - PRODUCERS_PER_PARTITION_MAX), -1))


def test_producers_are_bounded_by_age_once_a_hundred_more_have_come(store: Store, store_url: str) -> None:
    engine = create_engine(store_url)

    def rows() -> set[int]:
        with engine.connect() as connection:
            return set(connection.scalars(select(source_producers.c.producer_id)))

    store.progress.record([replace(carried(0, 10), source_producers=(by(7, 0), by(8, 5)))])
    later = carried(10, 1_000, at_ms=PRODUCER_AGE_MS + 2)
    crowd = [by(8, 10), *(by(100 + number, 11 + number) for number in range(PRODUCERS_SLACK - 3))]
    store.progress.record([replace(later, source_producers=tuple(crowd))])
    assert 7 in rows()
    store.progress.record([replace(later, from_offset=1_000, to_offset=1_010, source_producers=(by(99, 1_000),))])
    assert rows() == {one.producer_id for one in crowd} | {99}
    engine.dispose()


def test_a_topic_is_forgotten_with_all_that_hangs_on_it_and_may_begin_again(store: Store) -> None:
    store.progress.record([replace(carried(0, 10), source_producers=(by(7, 0),)), carried(0, 10, topic="bills")])
    store.twins.save([TwinRow(LINK, name, 0, "aa", "bb", 0, 0, 1) for name in ("orders", "bills")])
    assert store.forget_topic(LINK, "orders") == 1
    assert store.forget_topic(LINK, "orders") == 0
    assert (
        [one.topic for one in store.twins.of(LINK)]
        == [one.topic for one in store.progress.positions(LINK)]
        == ["bills"]
    )
    store.progress.record([carried(500, 510)])
    assert [one.start_offset for one in store.progress.positions(LINK)] == [0, 500]
    assert wrote(store) == ()


def test_producers_somebody_else_wrote_are_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        store.progress.record([replace(carried(0, 10), source_producers=(by(7, 0),))])
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
            connection.execute("UPDATE source_producers SET batches = '[[1]]'")
        with raises(StoreError, "state.invalid-row", place="source_producers, position 1, producer 7"):
            store.progress.record([replace(carried(10, 20), source_producers=(by(7, 10),))])
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
            connection.execute("UPDATE positions SET state = 'lost'")
        with raises(StoreError, "state.invalid-row", place="positions, row 1"):
            store.progress.positions(LINK)


def test_writers_of_different_partitions_do_not_hinder_each_other(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(4)

    def write(index: int) -> None:
        start.wait()
        for turn in range(5):
            stores[index].progress.record(
                [carried(turn * 10, turn * 10 + 10, partition=index + 4 * part) for part in range(25)]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [one.to_offset for one in stores[0].progress.positions(LINK)] == [50] * 100


def test_two_who_write_the_same_partition_never_count_a_record_twice(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(3)]
    start = Barrier(3)

    def write(index: int) -> None:
        start.wait()
        for turn in range(20):
            size = 10 + index
            stores[index].progress.record([carried(turn * size, turn * size + size)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    position = stores[0].progress.positions(LINK)[0]
    assert position.records == position.to_offset
    assert position.to_offset == 240


def test_a_thousand_partitions_take_less_than_a_second_of_work(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        best_s = 9.0
        for turn in range(6):
            given = [
                replace(
                    carried(turn * 100, turn * 100 + 100, topic=f"topic-{index // 20}", partition=index % 20),
                    source_producers=(by(index, *range(turn * 100, turn * 100 + 100, 20)),),
                )
                for index in range(1000)
            ]
            began_s = time.process_time()
            store.progress.record(given)
            best_s = min(best_s, time.process_time() - began_s)
        assert len(store.progress.positions(LINK)) == 1000
    assert best_s < 1.0, "a fifth of it on a machine that does nothing else"
