"""Alarms rise, are repeated no more than asked, and clear; quiet times keep them without calling anybody."""

from __future__ import annotations

import datetime

import pytest

from twinshore.config.sections.delay import is_quiet, parse_quiet
from twinshore.monitoring.core.alerts import (
    AlarmBook,
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTiming,
    AlarmTransition,
    AlertCondition,
    update_alarms,
)

KEY = AlarmKey("east->west", AlarmKind.RECOVERY_POINT, "orders")
OTHER = AlarmKey("east->west", AlarmKind.RECOVERY_POINT, "bills")


def play(
    course: list[tuple[float, bool]], timing: AlarmTiming, quiet: tuple[float, float] = (-1, -1), key: AlarmKey = KEY
) -> list[tuple[float, str, bool]]:
    book: AlarmBook = {}
    told = []
    for at_s, wrong in course:
        holds = quiet[0] <= at_s < quiet[1]
        book, events = update_alarms(
            book, [AlertCondition(key, wrong, "it is late")], int(at_s * 1000), {key.kind: timing}, quiet=holds
        )
        told += [(at_s, one.happening.value, one.tell) for one in events]
    return told


def always(wrong: bool, begin: int, end: int) -> list[tuple[float, bool]]:
    return [(at, wrong) for at in range(begin, end)]


def test_it_rises_only_after_it_was_wrong_without_a_break() -> None:
    timing = AlarmTiming(rise_s=3, clear_s=0, repeat_s=0)
    assert play([*always(True, 0, 3), (3, False), *always(True, 4, 7)], timing) == []
    assert play(always(True, 0, 9), timing) == [(3, "raised", True)]


def test_it_clears_only_after_it_was_right_without_a_break() -> None:
    timing = AlarmTiming(rise_s=0, clear_s=3, repeat_s=0)
    course = [(0.0, True), *always(False, 1, 3), (3.0, True), *always(False, 4, 9)]
    assert play(course, timing) == [(0, "raised", True), (7, "cleared", True)]


def test_it_is_repeated_no_more_than_asked() -> None:
    told = play(always(True, 0, 100), AlarmTiming(repeat_s=30))
    assert told == [(0, "raised", True), (30, "repeated", True), (60, "repeated", True), (90, "repeated", True)]
    assert play(always(True, 0, 100), AlarmTiming(repeat_s=0)) == [(0, "raised", True)]


def test_in_a_quiet_time_it_is_kept_and_told_once_it_ends_if_it_still_stands() -> None:
    told = play(always(True, 0, 30), AlarmTiming(repeat_s=0), quiet=(0, 20))
    assert told == [(0, "raised", False), (20, "repeated", True)]
    over = play([*always(True, 0, 10), *always(False, 10, 30)], AlarmTiming(), quiet=(0, 20))
    assert over == [(0, "raised", False), (10, "cleared", False)], "it came and went: nobody is called"


def test_no_news_changes_nothing() -> None:
    book, events = update_alarms({}, [AlertCondition(KEY, True, "late")], 0, {})
    assert [one.happening for one in events] == [AlarmTransition.RAISED]
    again, events = update_alarms(book, [], 9_000_000, {})
    assert (again, events) == (book, [])


def test_topics_do_not_share_an_alarm() -> None:
    book, _ = update_alarms({}, [AlertCondition(KEY, True, "late"), AlertCondition(OTHER, True, "late")], 0, {})
    book, events = update_alarms(book, [AlertCondition(OTHER, False)], 1_000, {})
    assert set(book) == {KEY}
    (event,) = events
    assert event == AlarmEvent(
        AlarmTransition.CLEARED, OTHER, 1_000, 0, "east->west bills: recovery point: well again; it lasted 1 s"
    )


def test_the_sentence_that_stands_is_the_newest() -> None:
    book, _ = update_alarms({}, [AlertCondition(KEY, True, "12 s behind")], 0, {})
    book, _ = update_alarms(book, [AlertCondition(KEY, True, "40 s behind")], 1_000, {})
    assert book[KEY].sentence == "40 s behind"


def ms(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp() * 1000)


@pytest.mark.parametrize(
    ("quiet", "moment", "holds"),
    [
        ("22:00-06:00", "2026-03-03T22:00", True),
        ("22:00-06:00", "2026-03-04T05:59", True),
        ("22:00-06:00", "2026-03-04T06:00", False),
        ("02:00-02:30", "2026-03-04T02:15", True),
        ("02:00-02:30", "2026-03-04T14:15", False),
        ("Sat,Sun 10:00-12:00", "2026-03-07T11:00", True),
        ("Sat,Sun 10:00-12:00", "2026-03-09T11:00", False),
        ("Sat 22:00-06:00", "2026-03-08T03:00", True),
        ("Sat 22:00-06:00", "2026-03-07T03:00", False),
    ],
)
def test_quiet_times_are_utc_and_may_go_over_midnight(quiet: str, moment: str, holds: bool) -> None:
    assert is_quiet([parse_quiet(quiet)], ms(moment)) is holds


@pytest.mark.parametrize(
    "wrong", ["22-06", "25:00-26:00", "10:70-11:00", "Caturday 10:00-11:00", "Xyz 10:00-11:00", "10:00-10:00"]
)
def test_a_quiet_time_that_makes_no_sense_says_why(wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong.split()[0].replace("[", "")):
        parse_quiet(wrong)
