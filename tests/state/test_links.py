"""What belongs to a link, on every database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from twinshore.config.incident_policy import POLICY_DROP, IncidentKind
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.state.core.values import Incident, LinkIdentity, LinkStatus, PartitionState, ProgressRecord, TwinRow
from twinshore.state.store import Store

IDENTITY = LinkIdentity("east->west", 2**40, 3, "source-cluster", "target-cluster")


def twin(topic: str, partition: int, base_offset: int = 0) -> TwinRow:
    return TwinRow("east->west", topic, partition, "aa" * 16, "bb" * 16, base_offset, 2**31 - 1, 1_700_000_000_000)


def test_a_link_keeps_whom_it_writes_as(store: Store) -> None:
    assert store.links.identity("east->west") is None
    assert store.links.save_identity(IDENTITY) == IDENTITY
    assert store.links.identity("east->west") == IDENTITY
    assert store.links.save_identity(replace(IDENTITY, producer_id=7)) == IDENTITY
    assert store.links.identity("east->West") is None


def test_two_mirrors_that_start_at_once_write_as_one(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(4)

    def save(index: int) -> LinkIdentity:
        start.wait()
        return stores[index].links.save_identity(replace(IDENTITY, producer_id=index))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(save, range(4)))) == 1


def test_a_twin_knows_which_rows_of_the_ledger_are_of_one_before_it(store: Store) -> None:
    def dropped(begin: int) -> int:
        what = Incident("east->west", "orders", 0, IncidentKind.STALE_DROPPED, begin, begin + 5, POLICY_DROP, "so")
        return store.incidents.add(what, now_ms=2_000_000_000_000).id

    first = dropped(5)
    (saved,) = store.twins.save([twin("orders", 0)])
    assert saved.last_incident_id == first
    assert dropped(10) > first
    (again,) = store.twins.save([twin("orders", 0)])
    assert again.last_incident_id == first, "its life goes on"
    store.forget_topic("east->west", "orders")
    newest = dropped(15)
    store.twins.save([twin("orders", 0)])
    (anew,) = store.twins.of("east->west")
    assert anew.last_incident_id == newest


def test_a_store_is_the_same_store_whoever_asks_first(open_another: Callable[[], Store]) -> None:
    stores = [open_another() for _ in range(4)]
    start = Barrier(4)

    def ask(index: int) -> str:
        start.wait()
        return stores[index].links.own_id(f"{index}" * 32)

    with ThreadPoolExecutor(4) as pool:
        (own,) = set(pool.map(ask, range(4)))
    assert own in {f"{index}" * 32 for index in range(4)}
    assert open_another().links.own_id("f" * 32) == own


def test_an_identity_is_replaced_only_as_it_was_seen(store: Store) -> None:
    store.links.save_identity(IDENTITY)
    newer = replace(IDENTITY, producer_epoch=4)
    assert store.links.replace_identity(IDENTITY, newer)
    assert not store.links.replace_identity(IDENTITY, replace(IDENTITY, producer_epoch=5))
    assert store.links.identity("east->west") == newer


def test_whose_twin_a_topic_of_a_target_is(store: Store) -> None:
    rows = [replace(twin("orders", 0), link=link) for link in ("east->west", "north->west")]
    other = replace(twin("bills", 0), target_topic_id="cc" * 16)
    store.twins.save([*rows, other])
    assert store.twins.of_target_topics(["bb" * 16]) == tuple(rows)
    assert store.twins.of_target_topics(["bb" * 16, *(f"{number:032x}" for number in range(1_200)), "cc" * 16]) == (
        other,
        *rows,
    )
    assert store.twins.of_target_topics([]) == ()


def test_of_which_topics_a_link_has_a_twin(store: Store) -> None:
    store.twins.save([twin("orders", 0), twin("orders", 1), replace(twin("bills", 0), link="north->west")])
    asked = ["orders", "Orders", "bills", *(f"topic {number}" for number in range(1_200))]
    assert store.twins.begun("east->west", asked) == {"orders"}
    assert store.twins.begun("east->west", []) == frozenset()


def carried(row: TwinRow, begin: int, end: int) -> ProgressRecord:
    return ProgressRecord(
        link=row.link,
        topic=row.topic,
        partition=row.partition,
        from_offset=begin,
        to_offset=end,
        records=end - begin,
        bytes=10 * (end - begin),
        batches=1,
        source_end=max(30, end),
        first_ms=10 * end,
        last_ms=10 * end + 1,
    )


def test_which_partitions_a_link_carries_on_as_they_are(store: Store) -> None:
    """Not one that it has stopped, nor one in which it has written nothing behind what was there before."""
    rows = [*(twin("orders", number) for number in range(3)), replace(twin("bills", 0), inherited_end=30)]
    store.twins.save([*rows, twin("idle", 0), replace(twin("orders", 0), link="north->west")])
    for row in rows:
        store.progress.record([carried(row, 0, 25)])
    store.progress.set_state("east->west", "orders", 1, PartitionState.STOPPED)
    store.progress.set_state("east->west", "orders", 2, PartitionState.ARCHIVED)
    asked = ["orders", "bills", "idle", *(f"topic {number}" for number in range(1_200))]
    assert store.twins.flowing("east->west", asked) == (rows[0],)
    store.progress.record([carried(rows[3], 25, 30)])
    assert store.twins.flowing("east->west", asked) == (rows[0],), "it may have had more than that"
    store.progress.record([carried(rows[3], 30, 31)])
    assert store.twins.flowing("east->west", asked) == (rows[3], rows[0])
    assert store.twins.flowing("east->west", []) == ()
    store.offset_runs.continue_exact([(rows[3], [OffsetRun(SourceOffset(31), TargetOffset(40), 0, 0)])])
    assert store.twins.flowing("east->west", asked) == (rows[0],), "at offsets of its own it is no twin to read"


def test_twins_are_kept_as_first_saved(store: Store) -> None:
    first = [twin("orders", 1), twin("orders", 0), twin("Orders", 0)]
    assert store.twins.save(first) == tuple(first)
    again = store.twins.save([twin("orders", 0, 99), twin("bills", 0)])
    assert again == (twin("orders", 0), twin("bills", 0))
    assert set(store.twins.of("east->west")) == {*first, twin("bills", 0)}
    assert store.twins.of("west->east") == ()
    assert store.twins.save([]) == ()


def test_two_mirrors_that_save_twins_at_once_agree(open_another: Callable[[], Store]) -> None:
    stores = [open_another(), open_another()]
    start = Barrier(2)

    def save(index: int) -> tuple[TwinRow, ...]:
        start.wait()
        return stores[index].twins.save([twin("orders", partition, index) for partition in range(40)])

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(save, range(2))
    assert one == other == stores[0].twins.of("east->west")


def test_the_last_word_on_each_link_stands(store: Store) -> None:
    first = LinkStatus("east->west", "host 1", "running", "🌊 carries 3 partitions", 5)
    last = replace(first, updated_ms=6, tasks=2, partitions=3, records_per_s=1.5, lag_records=9, p50_ms=1.25)
    other = replace(first, link="west->east")
    for status in (first, other, last):
        store.links.save_status(status)
    assert store.links.statuses() == (last, other)
