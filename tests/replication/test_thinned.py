"""Behind which receipts a twin may lack records that a fresh queue dropped, also once the queue is another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.config.frozen import HEARTBEATS
from twinshore.config.model import Link, OffsetRun, QueuePolicy, QueueRules, SourceOffset, TargetOffset
from twinshore.replication.core.model import CarryTopic
from twinshore.replication.task.core.messages import WrittenPosition
from twinshore.replication.topic_scanner import ALL_OFFSETS, build_partition_configs, read_lossy_offsets
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.drain import describe_partial_refill

KEEP = Link("east", "west")
FRESH = replace(KEEP, queue=QueueRules(QueuePolicy.DROP_OLDEST))
TWIN = TwinRow(KEEP.name, "prices", 0, "aa" * 16, "bb" * 16, 0, 0, 1_700_000_000_000)
BILLS, BEATS = replace(TWIN, topic="bills"), replace(TWIN, topic=HEARTBEATS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_of_a_link_that_keeps_again_records_may_be_missing_up_to_where_it_became_so(store: Store) -> None:
    second = replace(TWIN, partition=1)
    assert read_lossy_offsets(store, KEEP, {TWIN: 5}) == {}
    assert read_lossy_offsets(store, FRESH, {TWIN: 5, second: 7, BEATS: 0}) == {
        ("prices", 0): ALL_OFFSETS,
        ("prices", 1): ALL_OFFSETS,
    }
    for ends in ({TWIN: 10, second: 20, BILLS: 3}, {TWIN: 400, second: 800, BILLS: 3}):
        found = read_lossy_offsets(store, KEEP, ends)
        assert found == {("prices", 0): 10, ("prices", 1): 20}, "whatever receipts say since"
    assert read_lossy_offsets(store, KEEP, {TWIN: 400, replace(TWIN, partition=2): 0})["prices", 2] == -1, (
        "it began since"
    )


def test_a_twin_that_begins_lacks_nothing(store: Store) -> None:
    read_lossy_offsets(store, FRESH, {TWIN: 5})
    assert read_lossy_offsets(store, KEEP, {replace(TWIN, target_topic_id="dd" * 16): 0}) == {}


def test_where_the_queue_is_fresh_once_more_it_begins_again(store: Store) -> None:
    read_lossy_offsets(store, FRESH, {TWIN: 5})
    assert read_lossy_offsets(store, KEEP, {TWIN: 10}) == {("prices", 0): 10}
    assert read_lossy_offsets(store, FRESH, {TWIN: 60}) == {("prices", 0): ALL_OFFSETS}
    assert read_lossy_offsets(store, KEEP, {TWIN: 90}) == {("prices", 0): 90}


def test_who_has_a_twin_filled_anew_by_a_fresh_queue_is_told_that_it_gets_a_part() -> None:
    assert describe_partial_refill(KEEP) == ""
    assert "for it is deleted, and not filled again" in describe_partial_refill(FRESH)


def test_an_order_says_behind_which_reach_a_look_seeks_what_was_dropped(store: Store) -> None:
    """Offset runs were told beyond the receipts when the queue became `keep`."""
    step = CarryTopic("prices", 1, TWIN.source_topic_id, TWIN.target_topic_id, "", mapped=True)
    store.offset_runs.continue_exact([(TWIN, [OffsetRun(SourceOffset(3), TargetOffset(3), 4, 0)])])
    for link, lacks in (
        (KEEP, [False] * 3),
        (FRESH, [True] * 3),
        (KEEP, [True, True, False]),
        (KEEP, [True, True, False]),
    ):
        (order,) = build_partition_configs(store, link, [step], set()).values()
        assert [order.may_lack(WrittenPosition(at, 0, 0)) for at in (3, 7, 8)] == lacks, link.queue.policy
