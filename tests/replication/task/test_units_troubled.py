"""Closed units whose coordinator does not answer, or whose round fails in a way that nobody foresaw."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.kafka.peers import peer, silent
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionConfig, TaskConfig
from twinshore.replication.task.core.partition import PartitionReplicator
from twinshore.replication.task.core.resync import MarkerRunProgress, PendingMarkers
from twinshore.replication.task.lookups import (
    ACQUIRE_TIMEOUT_S,
    THREADS_MAX,
    BlockingCalls,
    CallResult,
    ConnectionOpened,
    EmptyTransactions,
    MarkersFinished,
    TransactionalIdWorker,
)


def marks() -> PendingMarkers:
    order = PartitionConfig("orders", 0, "aa", "bb")
    return PendingMarkers(PartitionReplicator.of(order, (7, 0), 3, 1 << 20), OffsetGap(10, 12))


@pytest.fixture
def away() -> Iterator[Cluster]:
    """It takes every request and answers none."""
    with peer(silent) as (host, port):
        yield Cluster("west", (f"{host}:{port}",))


def until(holds: Callable[[], bool], limit_s: float = 8.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_looks_that_wait_for_a_coordinator_hold_up_no_dial(away: Cluster) -> None:
    nowhere = Cluster("east", ("127.0.0.1:1",))
    order = TaskConfig("east->west", 0, 0, nowhere, away, 1, 0, 1, "127.0.0.1", 1, "token", units="twinshore.l.1.")
    scout = BlockingCalls(order, lambda: True)
    found: list[CallResult] = []
    try:
        for number in range(THREADS_MAX + 2):
            scout.look([TopicPartition("orders", number)], {})
        time.sleep(0.2)
        scout.dial("source", 1, "a line")

        def dialled() -> bool:
            found.extend(scout.take())
            return any(isinstance(one, ConnectionOpened) for one in found)

        until(dialled)
    finally:
        scout.close()


def test_an_id_that_a_round_waits_for_is_not_waited_for_by_looks(away: Cluster) -> None:
    reports: list[MarkersFinished] = []
    units = EmptyTransactions(away, "twinshore.l.1.", 0, holds=lambda: True, report=reports.append)
    try:
        units.take([marks()])
        time.sleep(0.5)
        began = time.monotonic()
        with pytest.raises(KafkaError, match="takes long") as raised:
            units.settled()
        assert raised.value.retriable
        assert time.monotonic() - began < ACQUIRE_TIMEOUT_S + 1.0
    finally:
        units.close()


def test_a_round_that_fails_in_an_unforeseen_way_is_told_once_and_the_thread_goes_on(
    away: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    def fails_twice(
        _: TransactionalIdWorker, runs: list[MarkerRunProgress]
    ) -> list[tuple[MarkerRunProgress, MarkerOutcome]]:
        rounds.append(len(runs))
        if len(rounds) <= 2:
            raise ValueError("an answer that nobody foresaw")
        return [(run, run.answer(0, 12)) for run in runs]

    monkeypatch.setattr(TransactionalIdWorker, "round", fails_twice)
    monkeypatch.setattr(TransactionalIdWorker, "hold", lambda _: None)
    monkeypatch.setattr("twinshore.kafka.transactional_ids.TransactionalIds.open_of", lambda *_: set())
    reports: list[MarkersFinished] = []
    units = EmptyTransactions(away, "twinshore.l.1.", 0, holds=lambda: True, report=reports.append)
    try:
        units.take([marks()])
        until(lambda: bool(reports))
        assert [answer.end for answer in reports[0].answers] == [12]
        with pytest.raises(KafkaError, match="ValueError: an answer that nobody foresaw"):
            units.settled()
        assert units.settled() == set(), "it is told once"
    finally:
        units.close()
