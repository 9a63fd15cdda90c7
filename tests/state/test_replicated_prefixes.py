"""What had crossed of a topic that moved by force is kept by its flip, on every database, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace

from tests.state.test_progress import by
from tests.state.test_topics_in_switch import EAST_WEST, FLIP, PAIR, WEST_EAST, carried_by_east
from twinshore.state.core.progress_rules import PRODUCERS_PER_PARTITION_MAX
from twinshore.state.core.values import HomeChange, ProgressRecord, ReplicatedPrefix
from twinshore.state.store import Store
from twinshore.state.switches import PREFIX_RETENTION_MS, PRODUCER_LOOKBACK_MS

NOW_MS = 10 * PREFIX_RETENTION_MS
TORN = replace(FLIP, torn=True, since_ms=NOW_MS)
MINE = 77 << 48 | 4001


def wrote(store: Store, to_offset: int, *, partition: int = 0, topic: str = "orders", at_ms: int = NOW_MS) -> None:
    """Some more has crossed, of two producers."""
    begun = {(one.topic, one.partition): one.to_offset for one in store.progress.positions(EAST_WEST)}
    since = begun.get((topic, partition), 0)
    receipt = ProgressRecord(
        link=EAST_WEST,
        topic=topic,
        partition=partition,
        from_offset=since,
        to_offset=to_offset,
        records=1,
        bytes=1,
        batches=1,
        source_end=to_offset,
        first_ms=at_ms,
        last_ms=at_ms,
        lag_records=0,
    )
    some = by(MINE, since, since + 5, epoch=3), by(9, since + 10)
    store.progress.record([replace(receipt, source_producers=some)])


def crossed(store: Store, term: int = 2, topic: str = "orders") -> dict[tuple[str, int], ReplicatedPrefix]:
    return store.replicated_prefixes.of(EAST_WEST, {topic: term})


def test_a_flip_by_force_keeps_how_far_its_topic_had_crossed_and_who_wrote_it(store: Store) -> None:
    carried_by_east(store)
    wrote(store, 200)
    wrote(store, 50, partition=1)
    before = crossed(store)
    assert before.keys() == {("orders", 0), ("orders", 1)}
    assert (before["orders", 0].to_offset, before["orders", 0].all_known) == (200, True)
    assert {one.producer_id: one for one in before["orders", 0].producers} == {
        MINE: by(MINE, 100, 105, epoch=3),
        9: by(9, 110),
    }
    store.topics_in_switch.change_homes([TORN])
    assert store.progress.positions(EAST_WEST) == (), "its positions are gone"
    after = crossed(store)
    assert {place: replace(one, producers=()) for place, one in after.items()} == {
        place: replace(one, producers=()) for place, one in before.items()
    }
    assert set(after["orders", 0].producers) == set(before["orders", 0].producers)
    assert (crossed(store, 3), crossed(store, topic="bills")) == ({}, {}), "another move, another topic"


def test_flips_done_twice_keep_it_and_planned_ones_keep_nothing(store: Store) -> None:
    carried_by_east(store)
    wrote(store, 200)
    for _ in range(2):
        store.topics_in_switch.change_homes([TORN])
        carried_by_east(store)  # by somebody who had not heard of it
    assert crossed(store)["orders", 0].to_offset == 200
    home = replace(FLIP, home="east", term=3, link=WEST_EAST, back=EAST_WEST, since_ms=NOW_MS + 1)
    store.topics_in_switch.change_homes([home])
    assert (crossed(store), crossed(store, 3)) == ({}, {})
    carried_by_east(store, "bills")
    wrote(store, 150, topic="bills")
    store.topics_in_switch.change_homes([replace(FLIP, topic="bills", since_ms=NOW_MS)])
    assert crossed(store, topic="bills") == {}


def test_who_wrote_long_before_the_last_that_crossed_is_left_out_and_a_crowd_is_told(store: Store) -> None:
    carried_by_east(store)
    old_ms = NOW_MS - PRODUCER_LOOKBACK_MS - 1
    wrote(store, 200, at_ms=old_ms)
    crowd = tuple(by(number, 200 + 5 * number) for number in range(PRODUCERS_PER_PARTITION_MAX))
    receipt = ProgressRecord(
        link=EAST_WEST,
        topic="orders",
        partition=1,
        from_offset=0,
        to_offset=9_000,
        records=1,
        bytes=1,
        batches=1,
        source_end=9_000,
        first_ms=NOW_MS,
        last_ms=NOW_MS,
        lag_records=0,
    )
    crowded = replace(receipt, source_producers=crowd)
    store.progress.record([crowded, replace(crowded, partition=2, last_ms=old_ms)])
    wrote(store, 9_100, partition=2)
    for _ in range(2):
        found = crossed(store)
        assert len(found["orders", 0].producers) == 2, "nothing crossed for an hour before the switch"
        assert (len(found["orders", 1].producers), found["orders", 1].all_known) == (PRODUCERS_PER_PARTITION_MAX, False)
        assert (len(found["orders", 2].producers), found["orders", 2].all_known) == (2, True), "its crowd is silent"
        store.topics_in_switch.change_homes([TORN])


def test_it_is_kept_for_a_day_and_forgotten_by_the_next_flip(store: Store) -> None:
    carried_by_east(store)
    wrote(store, 200)
    store.topics_in_switch.change_homes([TORN])
    for late_ms, kept in ((PREFIX_RETENTION_MS, 1), (PREFIX_RETENTION_MS + 1, 0)):
        topic = f"late-{late_ms}"
        carried_by_east(store, topic)
        store.topics_in_switch.change_homes([replace(FLIP, topic=topic, since_ms=NOW_MS + late_ms)])
        assert len(crossed(store)) == kept


def test_many_topics_are_asked_at_once(store: Store) -> None:
    topics = [f"many-{number:04}" for number in range(501)]
    receipts = [
        ProgressRecord(
            link=EAST_WEST,
            topic=topic,
            partition=0,
            from_offset=0,
            to_offset=10,
            records=1,
            bytes=1,
            batches=1,
            source_end=10,
            first_ms=NOW_MS,
            last_ms=NOW_MS,
            lag_records=0,
        )
        for topic in topics
    ]
    store.progress.record([replace(one, source_producers=(by(MINE, 0),)) for one in receipts])
    flips = [
        HomeChange(
            pair=PAIR,
            topic=one,
            home="west",
            term=2,
            link=EAST_WEST,
            back="",
            source_topic_id="",
            target_topic_id="",
            points=(),
            since_ms=NOW_MS,
            set_by="anna",
            torn=True,
        )
        for one in topics[:250]
    ]
    store.topics_in_switch.change_homes(flips)
    found = store.replicated_prefixes.of(EAST_WEST, dict.fromkeys(topics, 2))
    assert found == {(topic, 0): ReplicatedPrefix(2, 10, True, (by(MINE, 0),)) for topic in topics}
