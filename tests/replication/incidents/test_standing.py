"""A partition rests as long as the ledger says so, over restarts, and nobody but it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.incident_policy import POLICY_HEAL, POLICY_STOP, POLICY_WAIT, IncidentKind
from twinshore.config.model import Secret, TopicPartition
from twinshore.replication import stopped_partitions
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.model import ActiveLink, describe_link_state
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.stopped_partitions import StoppedPartitions
from twinshore.replication.task.core.messages import (
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    dropped_incident,
)
from twinshore.replication.task.core.position import report_lost_by_target
from twinshore.state.core.values import PartitionState
from twinshore.state.database import Database
from twinshore.state.store import Store, open_store
from twinshore.state.tables import incidents

LINK = "east->west"
ORDERS = [TopicPartition("orders", number) for number in range(3)]
CORRUPT = PartitionIncident("orders", 1, IncidentKind.CORRUPT_BATCH, 5, 7, "its CRC is wrong")
RIGHTS = PartitionIncident("orders", 1, IncidentKind.RIGHTS_LOST, 5, 6, "the right to this topic is missing")
CARRIED = PartitionProgress("orders", 1, 0, 5, 5, 50, 1, 9, 2, 1, 2)


class Place:
    """A store, a coordinator with three partitions on one task that nobody tasks, and whoever begins a term."""

    def __init__(self, folder: Path, said: LogLines) -> None:
        self.said = said
        self.folder = folder
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.recorder = ProgressRecorder(self.store, "first", 0.02)
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=self.recorder.take)
        self.coordinator.open_task((LINK, 0), 9.0)
        self.coordinator.assign((LINK, 0), [PartitionConfig(one.topic, one.partition, "00", "00") for one in ORDERS])
        self.standing = self.begun()

    def begun(self) -> StoppedPartitions:
        made = StoppedPartitions(LINK, self.store, self.coordinator, self.recorder)
        made.begin()
        return made

    def tell(self, *incidents: PartitionIncident, carried: tuple[PartitionProgress, ...] = ()) -> None:
        self.recorder.take(TaskReport(LINK, 0, carried, incidents, {}))

    def turned(self, holds: Callable[[], bool], within_s: float = 5.0) -> set[str]:
        """Turns until it holds; the topics to supply again."""
        deadline = time.monotonic() + within_s
        found = self.standing.turn()
        while not holds():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)
            found |= self.standing.turn()
        return found

    def close(self) -> None:
        self.coordinator.close()
        self.recorder.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> Iterator[Place]:
    for name, value in (("INCIDENT_POLL_INTERVAL_S", 0.05), ("RETRY_INTERVAL_S", 0.1), ("STABLE_AFTER_S", 0.2)):
        monkeypatch.setattr(stopped_partitions, name, value)
    made = Place(tmp_path, log_lines)
    yield made
    made.close()


def test_what_stopped_leaves_its_task_alone_and_rests_until_its_row_is_closed(place: Place) -> None:
    place.tell(carried=(CARRIED,))
    place.tell(CORRUPT)
    place.turned(lambda: ORDERS[1] in place.standing)
    place.turned(lambda: ORDERS[1] not in place.coordinator.placed(LINK))
    assert set(place.coordinator.placed(LINK)) == {ORDERS[0], ORDERS[2]}
    assert ORDERS[0] not in place.standing
    (row,) = place.store.incidents.rows(LINK, open_only=True)
    assert (row.incident.from_offset, row.incident.to_offset, row.closed_ms) == (5, 7, None)
    assert row.incident.policy == POLICY_STOP
    (position,) = place.store.progress.positions(LINK)
    assert position.state is PartitionState.STOPPED
    time.sleep(0.3)
    assert place.standing.turn() == set(), "it is not tried again unasked"
    place.store.incidents.close(row.id, now_ms=1)
    found = place.turned(lambda: ORDERS[1] not in place.standing)
    assert found | place.standing.turn() == {"orders"}
    (position,) = place.store.progress.positions(LINK)
    assert position.state is PartitionState.FLOWING


def test_it_rests_over_a_restart(place: Place) -> None:
    place.tell(CORRUPT)
    place.turned(lambda: ORDERS[1] in place.standing)
    again = place.begun()
    assert ORDERS[1] in again
    assert ORDERS[0] not in again


def test_rewording_what_the_ledger_says_releases_nothing(place: Place) -> None:
    place.tell(CORRUPT)
    place.turned(lambda: ORDERS[1] in place.standing and ORDERS[1] not in place.coordinator.placed(LINK))
    database = Database(f"sqlite:///{place.folder}/store.db", Secret())
    reworded = update(incidents).values(words="leave it where it is", sentence="said otherwise")
    assert database.write(lambda connection: connection.execute(reworded)).rowcount == 1
    database.close()
    deadline_s = time.monotonic() + 0.5
    while time.monotonic() < deadline_s:
        assert place.standing.turn() == set()
        time.sleep(0.02)
    assert ORDERS[1] in place.standing
    assert ORDERS[1] in place.begun()


@pytest.mark.claim("topics", "retried-row", "a row that is tried again closes once what it names has crossed")
def test_rights_are_tried_again_and_the_row_closes_when_they_are_back(place: Place) -> None:
    place.tell(RIGHTS)
    place.turned(lambda: ORDERS[1] in place.standing)
    assert place.turned(lambda: ORDERS[1] not in place.standing) == {"orders"}
    place.tell(RIGHTS)
    place.turned(lambda: ORDERS[1] in place.standing)
    assert len(place.store.incidents.rows(LINK)) == 1, "the same row, still open"
    place.turned(lambda: ORDERS[1] not in place.standing)
    assert place.store.incidents.rows(LINK, open_only=True), "tried is not carried"
    place.tell(carried=(CARRIED,))
    time.sleep(0.5)
    assert place.standing.turn() == set()
    assert place.store.incidents.rows(LINK, open_only=True), "a task looked, and nothing crossed"
    place.tell(carried=(replace(CARRIED, from_offset=5, to_offset=6),))
    place.turned(lambda: not place.store.incidents.rows(LINK, open_only=True))
    assert place.standing.turn() == set()


@pytest.mark.claim("topics", "held-is-told", "partitions that a disk near its end holds are no tasks that flow")
def test_what_is_held_is_counted_as_resting(place: Place) -> None:
    """As where the target's disk is near its end: status said that the link flows, with no partition."""
    held = set(ORDERS[:2])
    place.tell(CORRUPT)
    made = StoppedPartitions(LINK, place.store, place.coordinator, place.recorder, held=lambda: frozenset(held))
    until_s = time.monotonic() + 5.0
    while ORDERS[1] not in made or len(made) < 2:
        assert time.monotonic() < until_s
        made.turn()
        time.sleep(0.01)
    assert len(made) == 2, "the second is held, and rests by its row"
    state, sentence = describe_link_state(ActiveLink(0, 1, resting=len(made)))
    assert (state, sentence) == ("waiting", "0 partitions on 1 task; 2 partitions stopped by incidents")


def test_what_the_target_lost_is_told_once_and_closes_when_it_is_there_again(place: Place) -> None:
    (lost,) = report_lost_by_target(ORDERS[2], 5, 9)
    place.tell(lost)
    place.tell(replace(lost, from_offset=7))
    place.turned(lambda: bool(place.store.incidents.rows(LINK)))
    assert ORDERS[2] in place.coordinator.placed(LINK), "it is carried all the while"
    place.tell(carried=(replace(CARRIED, partition=2, from_offset=9, to_offset=10),))
    place.turned(lambda: not place.store.incidents.rows(LINK, open_only=True))
    (row,) = place.store.incidents.rows(LINK)
    assert (row.incident.from_offset, row.incident.to_offset) == (5, 9)
    assert "lost offsets 5 to 8" in row.incident.sentence


def test_what_neither_side_has_any_more_is_named() -> None:
    (lost,) = report_lost_by_target(ORDERS[2], 5, 9, source_start=7)
    assert (lost.from_offset, lost.to_offset) == (5, 9)
    assert mentions(lost.sentence, "from 7 on")
    assert report_lost_by_target(ORDERS[2], 9, 9, source_start=9) == []


def test_a_topic_that_begins_anew_has_no_past(place: Place) -> None:
    place.tell(CORRUPT)
    place.turned(lambda: ORDERS[1] in place.standing)
    place.standing.forget("orders")
    assert ORDERS[1] not in place.standing
    assert not place.store.incidents.rows(LINK, open_only=True)


def test_what_passes_early_closes_no_row_of_what_lasts(place: Place) -> None:
    """The target lost much; the source is away for a moment; then the target loses more."""

    def open_rows() -> list[tuple[str, int]]:
        rows = place.store.incidents.rows(LINK, open_only=True)
        return sorted((row.incident.kind.value, row.incident.to_offset) for row in rows)

    def carried(begin: int, end: int) -> PartitionProgress:
        return replace(CARRIED, from_offset=begin, to_offset=end, source_end=200_000)

    lost = PartitionIncident(
        "orders", 1, IncidentKind.LOST_BY_TARGET, 500, 99_000, "the target lost 500 to 98999", POLICY_HEAL
    )
    away = PartitionIncident("orders", 1, IncidentKind.SOURCE_AWAY, 600, 601, "the source errs", POLICY_WAIT)
    place.tell(lost, carried=(carried(500, 600),))
    place.turned(lambda: open_rows() == [("lost by target", 99_000)])
    place.tell(away)
    place.turned(lambda: len(open_rows()) == 2)
    place.tell(carried=(carried(600, 700),))
    place.turned(lambda: open_rows() == [("lost by target", 99_000)])
    place.tell(lost, replace(lost, from_offset=650, to_offset=120_000))
    place.turned(lambda: open_rows() == [("lost by target", 99_000), ("lost by target", 120_000)])
    place.tell(carried=(carried(700, 99_500),))
    time.sleep(0.3)
    place.turned(lambda: True)
    assert open_rows()[-1] == ("lost by target", 120_000)
    place.tell(carried=(carried(99_500, 120_000),))
    place.turned(lambda: open_rows() == [])


def test_in_an_overload_without_a_pause_each_row_of_what_was_dropped_closes_once_the_twin_is_past_it(
    place: Place,
) -> None:
    """The next row is always open: were they judged by their kind, none would ever close, and none be joined."""
    told, at = 0, 0
    place.tell(dropped_incident(ORDERS[1], 5, 10, "older than 1 s"))
    for at in range(10, 1_000, 10):
        place.tell(dropped_incident(ORDERS[1], at, at + 5, "older than 1 s"))
        place.tell(carried=(replace(CARRIED, from_offset=told, to_offset=at, source_end=at + 10),))
        told = at

    def open_ranges() -> list[tuple[int, int]]:
        rows = place.store.incidents.rows(LINK, open_only=True)
        return [(row.incident.from_offset, row.incident.to_offset) for row in rows]

    place.turned(lambda: len(place.store.incidents.rows(LINK)) == 100 and open_ranges() == [(at, at + 5)])
    assert not [line for line in place.said if "over:" in line], place.said
    place.tell(carried=(replace(CARRIED, from_offset=told, to_offset=at + 5, source_end=at + 5),))
    place.turned(lambda: open_ranges() == [])
    assert next(line for line in place.said if "over:" in line).startswith(f"{LINK}: orders-1: over: stale dropped")


def test_what_is_dropped_of_a_twin_that_has_fallen_back_is_open_until_it_is_told_of_anew(place: Place) -> None:
    place.tell(dropped_incident(ORDERS[1], 90, 95, "older than 1 s"))
    place.tell(carried=(replace(CARRIED, to_offset=80, source_end=95),))
    place.turned(lambda: bool(place.store.incidents.rows(LINK)))
    place.tell(dropped_incident(ORDERS[1], 40, 45, "older than 1 s"))
    place.turned(lambda: len(place.store.incidents.rows(LINK)) == 2)
    time.sleep(0.2)
    place.turned(lambda: True)
    assert len(place.store.incidents.rows(LINK, open_only=True)) == 2
    place.tell(carried=(replace(CARRIED, from_offset=39, to_offset=45, source_end=95),))
    place.turned(lambda: [one.incident.to_offset for one in place.store.incidents.rows(LINK, open_only=True)] == [95])


def test_a_side_that_is_away_from_a_twin_that_was_never_told_of_has_one_row_that_stays_open(place: Place) -> None:
    """Nothing was told of the twin: its row ends at -1, as what is not over does."""
    for _ in range(3):
        place.tell(PartitionIncident("orders", 1, IncidentKind.TARGET_AWAY, -1, -1, "no answer", POLICY_WAIT))
        place.turned(lambda: bool(place.store.incidents.rows(LINK)))
        time.sleep(0.15)
        place.turned(lambda: True)
    (row,) = place.store.incidents.rows(LINK)
    assert row.closed_ms is None


AWAY = PartitionIncident(
    "orders", 1, IncidentKind.TARGET_AWAY, 5_000, 6_000, "the twin's leader answers nothing", POLICY_WAIT
)
LOST = PartitionIncident(
    "orders", 1, IncidentKind.LOST_BY_TARGET, 4_000, 6_000, "the target lost 4000 to 5999", POLICY_HEAL
)


def open_kinds(place: Place) -> list[tuple[str, int]]:
    rows = place.store.incidents.rows(LINK, open_only=True)
    return sorted((row.incident.kind.value, row.incident.from_offset) for row in rows)


def test_a_twin_that_begins_anew_has_troubles_of_its_own(place: Place) -> None:
    """What was told of the old twin reached further than the new one does: its rows were once all that was told."""
    place.tell(AWAY, LOST)
    place.turned(lambda: len(open_kinds(place)) == 2)
    place.recorder.forget(LINK, "orders")
    place.standing.forget("orders")
    place.turned(lambda: not open_kinds(place))
    time.sleep(0.1)
    place.tell(replace(AWAY, from_offset=10, to_offset=60), replace(LOST, from_offset=20, to_offset=30))
    place.turned(lambda: open_kinds(place) == [("lost by target", 20), ("target away", 10)])


def test_what_another_mirror_closed_meanwhile_is_told_again_when_it_is_met_again(place: Place) -> None:
    place.tell(AWAY)
    place.turned(lambda: len(open_kinds(place)) == 1)
    for row in place.store.incidents.rows(LINK, open_only=True):
        place.store.incidents.close(row.id, now_ms=1)
    place.recorder.settle(LINK)
    place.standing = place.begun()
    place.tell(replace(AWAY, from_offset=9_000, to_offset=9_500))
    place.turned(lambda: open_kinds(place) == [("target away", 9_000)])
