"""Which of the calls that a spool holds an earlier process may have sent."""

from __future__ import annotations

from pathlib import Path

from tests.client.spool.spooling import done, put, taken
from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.spool import Spool
from twinshore.config.frozen import CALL_HEADER


def call(number: int, time_ms: int, mark: bytes | None, made_ms: int = 9_000) -> SpoolRecord:
    headers = () if mark is None else ((CALL_HEADER, mark),)
    return SpoolRecord(number, "orders", b"value", None, -1, time_ms, headers, made_ms)


def test_it_is_known_of_each_topic_from_when_on_and_which_may_have_been_sent(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.left == {}
    put(spool, call(0, 6_000, b"one-0"), call(1, 400, b"one-1"))
    put(spool, call(2, 100, None), *(call(number, 5_000 - number, b"one-%d" % number) for number in range(90, 100)))
    put(spool, call(200, 9_500, b"two-200"))  # its time is later than its call
    first, second = taken(spool, most=2)
    done(spool, [second])  # the first one was refused, or nobody knows
    assert first.number == 0
    spool.close()
    spool = Spool(tmp_path)
    left = spool.left["orders"]
    spool.close()
    assert left.since_ms == 4_901, "what is done, or bears no mark, counts for nothing"
    there = [b"one-0", b"one-90", b"one-99", b"two-200", b"two-0"]
    assert [mark in left for mark in there] == [True] * 5
    absent = [b"one-1", b"one-2", b"one-89", b"one-201", b"three-95", b"one-", b"", b"-95", b"one-" + b"9" * 9_999]
    assert [mark in left for mark in absent] == [False] * 9


def test_a_time_that_is_later_than_its_call_is_not_looked_from(tmp_path: Path) -> None:
    """A topic may bear its brokers' time instead."""
    spool = Spool(tmp_path)
    put(spool, call(0, 99_000, b"one-0"))
    spool.close()
    spool = Spool(tmp_path)
    assert spool.left["orders"].since_ms == 9_000
    spool.close()
