"""What the recorder makes of what a fresh queue drops: an overload tells of it some times a second, for ever."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.replication.test_recorder import LINK, account, locked_store
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.replication import recorder as recording
from twinshore.replication.core.progress_rows import PendingIncidents
from twinshore.replication.recorder import WRITE_FAILURES_MAX, ProgressRecorder
from twinshore.replication.task.core.messages import PartitionIncident, dropped_incident
from twinshore.state import incident_log
from twinshore.state.core.values import Incident, TwinRow
from twinshore.state.store import open_store


def test_what_an_overload_drops_is_written_many_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        drops = [
            dropped_incident(TopicPartition("orders", 0), at, at + 3, "older than 1 s") for at in range(0, 5_000, 5)
        ]
        recorder.take(account(*drops, drops[0]))
        with monkeypatch.context() as locked:
            locked.setattr(store.incidents, "add", locked_store)
            assert recorder.written()
        found = [(row.incident.from_offset, row.incident.to_offset) for row in store.incidents.rows(LINK)]
        assert sorted(found) == [(row.from_offset, row.to_offset) for row in drops]
        recorder.close()


def test_of_what_an_overload_drops_one_line_of_each_partition_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        for _ in range(2):
            drops = [
                dropped_incident(TopicPartition("orders", 0), at, at + 3, "older than 1 s") for at in range(0, 50, 5)
            ]
            recorder.take(account(*drops, dropped_incident(TopicPartition("orders", 1), 7, 9, "older than 1 s")))
            assert recorder.written()
        one, other = log_lines
        assert mentions(one, LINK, "orders-0", "3 offsets") and mentions(other, LINK, "orders-1", "2 offsets")
        assert len(store.incidents.rows(LINK)) == 11
        monkeypatch.setattr(recording, "DROPS_LOG_INTERVAL_S", 0.0)
        recorder.take(account(dropped_incident(TopicPartition("orders", 1), 9, 10, "older than 1 s")))
        assert recorder.written()
        assert len(log_lines) == 3
        recorder.close()


def test_rows_of_what_an_overload_drops_are_joined_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (incident_log, recording):
        monkeypatch.setattr(module, "DROPS_PER_JOINED_ROW", 10)
    monkeypatch.setattr(incident_log, "DROPS_KEPT_SINGLE", 5)
    orders = TopicPartition("orders", 0)
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
        recorder = ProgressRecorder(store, "first", 60)
        for at in range(0, 1_000, 5):
            recorder.take(account(dropped_incident(orders, at, at + 3, "older than 1 s")))
            assert recorder.written()
            recorder.mended(LINK, "orders", 0)
        rows = store.incidents.rows(LINK)
        assert len(rows) <= 200 / 10 + 10 + 5
        assert sorted(part for row in rows for part in row.ranges) == [(at, at + 3) for at in range(0, 1_000, 5)]
        recorder.close()


def test_what_waited_for_the_store_is_written_many_rows_at_once_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an overload an outage leaves thousands; receipts and words wait behind them."""
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        drops = [
            dropped_incident(TopicPartition("orders", 0), at, at + 3, "older than 1 s") for at in range(0, 25_000, 5)
        ]
        recorder.take(account(*drops))
        with monkeypatch.context() as locked:
            locked.setattr(store.incidents, "add_all", locked_store)
            for _ in range(10):
                assert not recorder.written()
        writes, add_all = [], store.incidents.add_all

        def counted(found: Collection[Incident], *, now_ms: int) -> None:
            writes.append(len(found))
            add_all(found, now_ms=now_ms)

        monkeypatch.setattr(store.incidents, "add_all", counted)
        assert recorder.written()
        assert sum(writes) == len(store.incidents.rows(LINK)) == 5_000
        assert len(writes) < 25, writes
        recorder.close()


def test_a_row_that_is_refused_keeps_thousands_from_the_store_for_a_few_turns_only(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recorder = ProgressRecorder(store, "first", 60)
        drops = [
            dropped_incident(TopicPartition("orders", 0), at, at + 3, "older than 1 s") for at in range(0, 25_000, 5)
        ]
        refused = PartitionIncident("orders", 1, IncidentKind.REFUSED, 1 << 80, 2, "no database has such a number")
        recorder.take(account(*drops[:700], refused, *drops[700:]))
        for _ in range(12):
            assert not recorder.written()
        assert len(store.incidents.rows(LINK)) == 5_000
        recorder.close()


def a_turn_of(waiting: PendingIncidents, waited: dict[tuple[int, int], int], *, away: bool) -> int:
    """As the recorder takes them; in how many parts."""
    failures = parts = 0
    for places in waiting.turn():
        parts += 1
        found = [(one.partition, one.from_offset) for _, one in waiting.rows(places)]
        if away or any(at >= 1 << 80 for _, at in found):
            waiting.failed(places)
            failures += 1
            if failures == WRITE_FAILURES_MAX:
                break
            continue
        waiting.written(places)
        for one in found:
            del waited[one]
    return parts


@pytest.mark.parametrize("refused", [1, 2, 40])
@pytest.mark.parametrize("new", [0, 1, 5, 50, 700])
def test_no_row_waits_for_long_behind_those_that_are_never_taken_while_others_come(new: int, refused: int) -> None:
    """Some are refused from the beginning, among many; one comes later. And the store is away for a while."""
    waiting, waited = PendingIncidents(), dict[tuple[int, int], int]()

    def comes(partition: int, at: int, turn: int) -> None:
        waiting.put(LINK, dropped_incident(TopicPartition("orders", partition), at, at + 1, "older than 1 s"))
        if at < 1 << 80:
            waited[partition, at] = turn

    for number in range(900):
        comes(1_000 + number, 1 << 80 if number % 20 == 0 and number < 20 * refused else 7, 0)
    back = 0
    for turn in range(200):
        away = 60 <= turn < 90
        if turn == 40:
            comes(2_000, 1 << 80, turn)
        for partition in range(new):
            comes(partition, turn, turn)
        parts = a_turn_of(waiting, waited, away=away)
        back = turn if away else back
        if waited and not away and turn - back > 5:
            assert turn - min(waited.values()) < 4 * refused + 12, (turn, len(waited))
        if turn == back + 1:
            assert parts < 50 + 2 * refused, "what waited while the store was away is written many at once"
    assert not waited or min(waited.values()) > 190
