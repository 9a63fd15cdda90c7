"""When the keys of a compacted twin are compared: rules over what both ends were, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.proof.core.keys import (
    DELETE_RETENTION_MS,
    MISSING_TOMBSTONES_RECHECK_MS,
    KeyCheck,
    find_outdated_incidents,
    is_key_check_due,
    lag_age_ms,
    mark_keys_checked,
    missing_tombstones_incident,
    parse_delete_retention_ms,
    update_key_marks,
)
from twinshore.proof.core.model import CompareMode, CompareResult
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.state.core.values import IncidentRow, KeyCheckRow

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def look(target_end: int, source_end: int, target_id: str = "bb") -> PartitionScan:
    named = TopicPartition("small", 0)
    return PartitionScan(
        link="east->west",
        partition=named,
        twin="small",
        mode=CompareMode.COMPACTED,
        source_start=0,
        source_end=source_end,
        target_end=target_end,
        source_topic_id="aa",
        target_topic_id=target_id,
    )


class Played:
    """Rounds one after the other; `looks` are the times at which keys were compared."""

    def __init__(self) -> None:
        self.row: KeyCheckRow | None = None
        self.looks: list[int] = []

    def round(
        self, hour: float, target_end: int, source_end: int, *, retention_ms: int = DAY_MS, target_id: str = "bb"
    ) -> KeyCheckRow:
        now_ms = 1_700_000_000_000 + int(hour * HOUR_MS)
        at = look(target_end, source_end, target_id)
        self.row = update_key_marks(self.row, at, retention_ms, now_ms - 5, now_ms)
        if is_key_check_due(self.row, at, now_ms):
            self.looks.append(int(hour))
            self.row = mark_keys_checked(self.row, at, CompareResult(0, 0, source_end), now_ms)
        return self.row


def test_a_twin_in_step_is_looked_at_when_it_is_first_seen_and_once_it_has_what_was_there_then() -> None:
    played = Played()
    for hour in range(200):
        played.round(hour, 100 + 10 * hour, 105 + 10 * hour)
    # What lay before the first mark may have been of any age.
    assert played.looks == [0, 1]


def test_an_idle_twin_is_not_looked_at_again() -> None:
    played = Played()
    for hour in range(500):
        played.round(hour, 100, 100)
    played.round(500, 101, 101)
    assert played.looks == [0]


def test_a_pause_as_long_as_the_source_keeps_tombstones_is_looked_into_while_it_lasts_and_after_it() -> None:
    played = Played()
    for hour in range(4):
        played.round(hour, 100 + hour, 100 + hour)
    assert played.looks == [0]
    for hour in range(4, 30):
        played.round(hour, 103, 103 + hour)
    assert played.looks == [0, 27]
    for hour in range(30, 80):
        played.round(hour, 103 + hour, 104 + hour)
    # What crossed with the end of the pause may be as old as what crossed right behind it.
    assert played.looks == [0, 27, 30, 31]


def test_a_short_pause_is_not() -> None:
    played = Played()
    for hour in range(60):
        standing = 10 <= hour < 20
        played.round(hour, 110 if standing else 100 + hour, 100 + hour)
    assert played.looks == [0]


def test_a_long_backfill_is_looked_at_now_and_then_and_at_its_end() -> None:
    played = Played()
    for hour in range(100):
        played.round(hour, 10 + 10 * hour, 1_000)
    assert played.looks == [0, 24, 48, 72, 96, 99]


def test_nobody_looking_for_long_is_as_a_pause() -> None:
    played = Played()
    played.round(0, 100, 100)
    played.round(1, 110, 110)
    played.round(2, 120, 120)
    played.round(90, 700, 700)
    assert played.looks == [0, 90]


@pytest.mark.parametrize("rounds_meanwhile", [False, True])
def test_marks_by_a_clock_that_was_ahead_are_not_believed(rounds_meanwhile: bool) -> None:
    played, ahead = Played(), 72.0
    for hour in range(3):
        played.round(ahead + hour, 100 + 10 * hour, 100 + 10 * hour)
    # The clock is put right, and the mirror stands until the marks are in the past again.
    for hour in range(3, 80 if rounds_meanwhile else 4):
        played.round(hour, 120, 121 + hour)
    before, caught_up = len(played.looks), 90 if rounds_meanwhile else 44
    played.round(caught_up, 500, 500)
    assert len(played.looks) == before + 1
    for hour in range(caught_up + 1, 200):
        played.round(hour, 500 + hour, 500 + hour)
    assert len(played.looks) <= before + 2, "then marks are believed again"


def test_the_shortest_retention_meanwhile_counts() -> None:
    played = Played()
    for hour in range(4):
        played.round(hour, 100 + hour, 100 + hour)
    played.round(4, 103, 110, retention_ms=3 * HOUR_MS)
    played.round(5, 103, 111)
    assert played.looks == [0]
    played.round(6, 103, 112)
    played.round(7, 113, 113)
    assert played.looks == [0, 6, 7]


def test_a_topic_made_again_begins_again() -> None:
    played = Played()
    played.round(0, 100, 100)
    row = played.round(1, 50, 50, target_id="cc")
    assert played.looks == [0, 1] and row.target_topic_id == "cc"


def test_nothing_on_the_twin_is_nothing_to_look_at() -> None:
    played = Played()
    for hour in range(30):
        played.round(hour, 0, 1_000)
    assert played.looks == []
    played.round(31, 400, 1_000)
    assert played.looks == [31]


def test_owed_keys_are_looked_at_again_in_case_they_were_paid() -> None:
    now_ms = 1_700_000_000_000
    row = mark_keys_checked(
        update_key_marks(None, look(9, 9), DAY_MS, now_ms, now_ms), look(9, 9), CompareResult(0, 0, 9, owed=2), now_ms
    )
    for later_ms, end, again in (
        (MISSING_TOMBSTONES_RECHECK_MS, 10, True),
        (MISSING_TOMBSTONES_RECHECK_MS, 9, False),
        (5, 10, False),
    ):
        at = look(end, end)
        assert (
            is_key_check_due(update_key_marks(row, at, DAY_MS, now_ms, now_ms + later_ms), at, now_ms + later_ms)
            is again
        )


def test_standing_is_warned_of_in_time() -> None:
    row = replace(update_key_marks(None, look(5, 9), DAY_MS, 1_000, 1_000))
    assert lag_age_ms(row, look(8, 20), 1_000 + DAY_MS // 2) == DAY_MS // 2
    assert lag_age_ms(row, look(9, 20), 1_000 + DAY_MS // 2) == 0
    assert KeyCheck(row, DAY_MS // 2).warns and not KeyCheck(row, DAY_MS // 2 - 1).warns


@pytest.mark.parametrize(("value", "ms"), [(None, DELETE_RETENTION_MS), ("1000", 1_000), ("0", 0)])
def test_a_topics_retention_of_tombstones(value: str | None, ms: int) -> None:
    assert parse_delete_retention_ms(value) == ms


def test_the_ledger_is_told_how_many_and_where_but_no_key() -> None:
    at = look(9, 9)
    row = update_key_marks(None, at, DAY_MS, 1, 1)
    place = (row.link, row.topic, row.partition)
    assert missing_tombstones_incident(row) is None
    owing = mark_keys_checked(row, at, CompareResult(0, 0, 9, owed=2, owed_from=3, owed_to=8), 2)
    told = missing_tombstones_incident(owing)
    assert told is not None
    assert (told.kind, told.from_offset, told.to_offset) == (IncidentKind.DELETIONS_OWED, 3, 8)
    assert "2 keys" in told.sentence and "offsets 3 to 7" in told.sentence
    opened = [IncidentRow(4, told, 1, None)]
    assert find_outdated_incidents(opened, {place: owing}) == []
    assert find_outdated_incidents(opened, {}) == [], "of another partition nothing was learnt"
    (closed,) = find_outdated_incidents(opened, {place: mark_keys_checked(owing, at, CompareResult(0, 0, 9), 3)})
    assert closed[0] == 4
    (closed,) = find_outdated_incidents(
        opened, {place: mark_keys_checked(owing, at, CompareResult(0, 0, 9, owed=1, owed_from=3, owed_to=4), 3)}
    )
    assert closed == (4, "a later check found 1")
