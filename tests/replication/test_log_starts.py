"""A twin's log is cut to its source's start, unless nothing may ever be deleted."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.recovery import LogStartSync, select_due_cuts
from twinshore.state.core.values import TwinRow
from twinshore.state.store import open_store

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize("never", [False, True])
def test_where_nothing_may_be_deleted_the_target_is_not_even_asked(
    tmp_path: Path, never: bool, log_lines: LogLines
) -> None:
    doubted: list[str] = []

    def doubt(topics: Iterable[str]) -> None:
        doubted.extend(topics)

    nowhere = KafkaCluster(Cluster("west", ("127.0.0.1:1",)), patience_s=0.1, call_s=0.1)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store, closing(nowhere):
        store.twins.save([TwinRow("east->west", "orders", 0, "aa", "bb", 0, 0, 1)])
        starts = LogStartSync(Link("east", "west"), nowhere, store, never=lambda: never, doubt=doubt)
        starts.cut({ORDERS: 5}, {})
    assert doubted == ([] if never else ["orders"])
    assert len(log_lines) == (0 if never else 1)


def test_only_filler_is_cut_where_nothing_else_may_be() -> None:
    wanted = {TopicPartition("orders", number): 90 for number in range(3)}
    stranger = {TopicPartition("bills", 0): 5}
    anchors = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 60, TopicPartition("orders", 2): 200}
    assert select_due_cuts(wanted | stranger, anchors, {}, never=False) == wanted
    assert select_due_cuts(wanted | stranger, anchors, {}, never=True) == {
        TopicPartition("orders", 1): 60,
        TopicPartition("orders", 2): 90,
    }
    done = {TopicPartition("orders", 1): 60, TopicPartition("orders", 2): 90}
    assert not select_due_cuts(wanted, anchors, done, never=True), "once is enough"
