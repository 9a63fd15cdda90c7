"""How a link of a broadcast is read: what a mirror leaves in the store, and what is made of it while it holds."""

from __future__ import annotations

import pytest

from testkit.errors import mentions
from twinshore.replication.core.lag import (
    SharedFetchStatus,
    broadcast_values,
    describe_broadcast,
    parse_shared_fetch,
    shared_fetch_row,
)
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY

LINK = "london->tokyo"
TOLD = {JOINED_KEY: 3.0, QUEUED_KEY: 2_500_000.0, READ_KEY: 9e9}


@pytest.mark.parametrize(("age_ms", "holds"), [(0, True), (5_000, True), (5_001, False), (-60_000, False)])
def test_a_word_comes_back_while_it_holds(age_ms: int, holds: bool) -> None:
    found = parse_shared_fetch([shared_fetch_row(LINK, TOLD, 4, 7e6, 100_000)], 100_000 + age_ms, 5.0)
    assert found == (SharedFetchStatus(100_000, 4, 3, 2_500_000, 7e6) if holds else None)
    assert parse_shared_fetch([], 0, 5.0) is None


def test_a_link_reads_or_is_fed() -> None:
    reads, fed = SharedFetchStatus(1, 4, 3, 2_500_000, 7e6), SharedFetchStatus(1, 1, 1, 0, 12.0)
    assert (reads.reads, fed.reads) == (True, False)
    assert describe_broadcast("prices", reads) == (
        "of broadcast prices: 3 of 4 partitions read together with others; it reads 7.00 MB/s of the source itself;"
        " 2.50 MB wait for its target"
    )
    assert mentions(str(fed), "1 of 1 partition", "0.00 MB") and mentions(describe_broadcast("prices", None), "prices")
    assert describe_broadcast("", fed) == ""


def test_for_programs_what_nobody_says_is_null_and_a_link_of_none_has_none() -> None:
    told = SharedFetchStatus(1, 4, 3, 2_500_000, 7e6)
    assert broadcast_values("", told) is None
    whole = {"name": "prices", "reads": True, "partitions": 4, "joined": 3, "queue_bytes": 2_500_000, "read_per_s": 7e6}
    assert broadcast_values("prices", told) == whole
    assert broadcast_values("prices", None) == dict.fromkeys(whole) | {"name": "prices"}


def test_what_joined_is_never_more_than_there_is() -> None:
    """A task tells of what it has joined before anything of it was carried."""
    found = parse_shared_fetch([shared_fetch_row(LINK, TOLD, 0, 0.0, 1)], 1, 5.0)
    assert found is not None
    assert (found.joined, found.partitions) == (3, 3)
