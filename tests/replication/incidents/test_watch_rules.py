"""When a side counts as away and as back, and what disks with little room ask for."""

from __future__ import annotations

import pytest

from twinshore.kafka.brokers import LogDir
from twinshore.replication.core.incident_rules import (
    DiskSpace,
    IncidentAction,
    OutageTracker,
    describe_disks,
    describe_outage,
    describe_outage_with_cause,
    judge_disk_space,
    parse_outage_cause,
)


def told(absence: OutageTracker, trouble: bool, at_s: float) -> IncidentAction:
    """A look whose row the ledger takes."""
    turn = absence.look(trouble, at_s)
    absence.open = turn is IncidentAction.OPEN or (absence.open and turn is not IncidentAction.CLOSE)
    return turn


def test_a_side_is_away_after_a_while_and_back_once_it_is_settled() -> None:
    absence = OutageTracker(10.0)
    looks = [(0, False), (1, True), (10, True), (11, True), (30, True), (31, False), (32, True), (40, False)]
    found = [told(absence, trouble, float(at)) for at, trouble in looks]
    assert found == [
        IncidentAction.NOTHING,
        IncidentAction.NOTHING,
        IncidentAction.NOTHING,
        IncidentAction.OPEN,
        *[IncidentAction.NOTHING] * 4,
    ]
    assert told(absence, False, 41.9) is IncidentAction.NOTHING
    assert told(absence, False, 42.0) is IncidentAction.CLOSE
    assert absence.lasted_s() == 39.0
    assert told(absence, False, 60.0) is IncidentAction.NOTHING


def test_a_side_that_is_away_again_at_once_is_so_since_then() -> None:
    absence = OutageTracker(1.0)
    looks = [(10, True), (11, True), (12, False), (14, False), (15, True), (15.5, True), (16, True)]
    found = [told(absence, trouble, float(at)) for at, trouble in looks]
    assert [at for (at, _), turn in zip(looks, found, strict=True) if turn is not IncidentAction.NOTHING] == [
        11,
        14,
        16,
    ]
    assert absence.since_s == 15


def test_what_the_ledger_did_not_take_is_asked_for_again() -> None:
    absence = OutageTracker(1.0)
    assert [absence.look(True, at) for at in (0.0, 1.0, 2.0)] == [
        IncidentAction.NOTHING,
        IncidentAction.OPEN,
        IncidentAction.OPEN,
    ]
    absence.open = True
    assert absence.look(True, 3.0) is IncidentAction.NOTHING
    assert [absence.look(False, at) for at in (4.0, 6.0, 7.0)] == [
        IncidentAction.NOTHING,
        IncidentAction.CLOSE,
        IncidentAction.CLOSE,
    ]


def test_a_short_absence_is_none() -> None:
    absence = OutageTracker(5.0)
    for start in range(0, 100, 10):
        assert absence.look(True, float(start)) is IncidentAction.NOTHING
        assert absence.look(True, start + 4.9) is IncidentAction.NOTHING
        assert absence.look(False, start + 5.0) is IncidentAction.NOTHING


def test_a_side_has_not_answered_since_the_look_began() -> None:
    assert OutageTracker(5.0).look(True, 6.0, 1.0) is IncidentAction.OPEN
    assert OutageTracker(5.0).look(True, 6.0, 2.0) is IncidentAction.NOTHING


def test_a_row_of_an_earlier_process_closes_when_all_is_well() -> None:
    absence = OutageTracker(5.0, open=True)
    assert absence.look(True, 1.0) is IncidentAction.NOTHING, "there is a row"
    assert absence.look(False, 2.0) is IncidentAction.NOTHING
    assert absence.look(False, 4.0) is IncidentAction.CLOSE


@pytest.mark.parametrize(
    ("percent", "before", "now"),
    [
        (50, DiskSpace.ENOUGH, DiskSpace.ENOUGH),
        (9.9, DiskSpace.ENOUGH, DiskSpace.LOW),
        (2.9, DiskSpace.ENOUGH, DiskSpace.EXHAUSTED),
        (3.1, DiskSpace.EXHAUSTED, DiskSpace.EXHAUSTED),
        (3.3, DiskSpace.EXHAUSTED, DiskSpace.LOW),
        (10.1, DiskSpace.LOW, DiskSpace.LOW),
        (10.3, DiskSpace.EXHAUSTED, DiskSpace.ENOUGH),
    ],
)
def test_a_broker_stands_by_its_fullest_disk(percent: float, before: DiskSpace, now: DiskSpace) -> None:
    disks = [
        LogDir(1, "/full", 1000, int(percent * 10)),
        LogDir(1, "/empty", 1000, 1000),
        LogDir(2, "/other", 1000, 900),
    ]
    found = judge_disk_space(disks, {1: before}, warn_percent=10, pause_percent=3)
    assert found == {1: now, 2: DiskSpace.ENOUGH}
    said = describe_disks("west", disks, found)
    assert ("broker 1 of west" in said) is (now is not DiskSpace.ENOUGH)
    assert ("nothing is written" in said) is (now is DiskSpace.EXHAUSTED)


def test_without_a_bound_nothing_rests() -> None:
    assert judge_disk_space([LogDir(1, "/full", 1000, 0)], {}, warn_percent=10, pause_percent=0) == {1: DiskSpace.LOW}


def test_why_a_side_is_silent_is_read_as_it_was_written() -> None:
    said = describe_outage_with_cause("source", "east", "east:9092: cannot connect: does not answer: x")
    assert said.startswith(f"{describe_outage('source', 'east')}: ")
    assert parse_outage_cause(said, "source", "east") == "east:9092: cannot connect: does not answer: x"
    for sentence, side, cluster in (
        (said, "target", "east"),
        (said, "source", "eas"),
        ("nobody leads orders-0 on the source east", "source", "east"),
    ):
        assert parse_outage_cause(sentence, side, cluster) == ""
