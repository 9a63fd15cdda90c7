"""Quiet times: hours in which alarms are kept and shown but nobody is called. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import NamedTuple

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:(?P<days>[A-Za-z]{3}(?:,[A-Za-z]{3})*) )?(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)")
DAY_MINUTES = 24 * 60


class QuietTime(NamedTuple):
    """Minutes of a day in UTC. One that ends before it begins goes on into the next day; `days` are those it begins on,
    all when empty."""

    days: frozenset[int]
    begin: int
    end: int


def parse_quiet(text: str) -> QuietTime:
    """Of `22:00-06:00` or `Sat,Sun 10:00-12:00`; ValueError with what is wrong."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time like 22:00-06:00 or Sat,Sun 10:00-12:00, in UTC")
    names = [name.lower() for name in (found["days"] or "").split(",") if name]
    for name in names:
        if name not in DAYS:
            raise ValueError(f"{text!r}: no such day {name!r}; known: {', '.join(DAYS)}")
    begin, end = _minutes(found["from"], text), _minutes(found["to"], text)
    if begin == end:
        raise ValueError(f"{text!r} has no length")
    return QuietTime(frozenset(DAYS.index(name) for name in names), begin, end)


def is_quiet(times: Iterable[QuietTime], now_ms: int) -> bool:
    """Whether one of them holds at this moment."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    minute, today = moment.hour * 60 + moment.minute, moment.weekday()
    return any(_holds(one, minute, today) for one in times)


def _holds(one: QuietTime, minute: int, today: int) -> bool:
    if one.begin < one.end:
        return one.begin <= minute < one.end and _begins(one, today)
    yesterday = (today - 1) % len(DAYS)
    return (minute >= one.begin and _begins(one, today)) or (minute < one.end and _begins(one, yesterday))


def _begins(one: QuietTime, day: int) -> bool:
    return not one.days or day in one.days


def _minutes(text: str, whole: str) -> int:
    hours, _, minutes = text.partition(":")
    found = int(hours) * 60 + int(minutes)
    if found > DAY_MINUTES or int(minutes) > 59:
        raise ValueError(f"{whole!r}: no such time {text}")
    return found
