"""Where one log shows nothing and another something, each gone through once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twinshore.kafka.log_reader import find_missing_runs

Runs = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([(0, 10)], [(0, 10)], []),
        ([], [(3, 5)], [(0, 20)]),
        ([(0, 5), (8, 20)], [(0, 20)], [(5, 8)]),
        ([(0, 5), (8, 20)], [(0, 5), (8, 20)], []),
        ([(0, 5)], [(0, 5), (12, 13)], [(5, 20)]),
        ([(2, 4), (6, 8), (10, 30)], [(0, 1), (7, 8), (9, 10)], [(0, 2), (8, 10)]),
        ([(25, 30)], [(22, 30)], []),
    ],
    ids=["the same", "nothing", "a hole", "a hole on both", "the end", "some", "beyond"],
)
def test_what_one_log_lacks(ours: Runs, theirs: Runs, found: Runs) -> None:
    assert find_missing_runs(ours, theirs, 0, 20) == found


def test_no_more_of_a_log_is_read_than_is_asked_for() -> None:
    def endless() -> Iterator[tuple[int, int]]:
        at = 0
        while True:
            assert at < 40, "it reads on"
            yield at, at + 1
            at += 2

    assert find_missing_runs(endless(), endless(), 0, 20) == []
