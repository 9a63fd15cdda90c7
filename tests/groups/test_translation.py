"""Through offset runs, both ways: a reader goes on at the very next record, wherever it stands."""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.groups.core.commit_rules import (
    EXACT_TRANSLATION,
    FindRuns,
    ReplicatedTranslation,
    ReversedTranslation,
    RunTranslation,
    TranslatedOffset,
)


def offset_run(source: int, target: int, length: int) -> OffsetRun:
    return OffsetRun(SourceOffset(source), TargetOffset(target), length, sequence=0)


def around(runs: list[OffsetRun]) -> FindRuns:
    def find(offset: int, on_target: bool) -> tuple[OffsetRun | None, OffsetRun | None]:
        begins = [run.target if on_target else run.source for run in runs]
        at = bisect.bisect_right(begins, offset)
        return (runs[at - 1] if at else None), (runs[at] if at < len(runs) else None)

    return find


# Gaps before each run on either side, and its length.
SHAPES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=8)


def runs_of(shapes: list[tuple[int, int, int]]) -> list[OffsetRun]:
    runs, source, target = [], 0, 0
    for before_source, before_target, length in shapes:
        source, target = source + before_source, target + before_target
        runs.append(offset_run(source, target, length))
        source, target = source + length, target + length
    return runs


def records(runs: list[OffsetRun]) -> list[tuple[int, int]]:
    """Each record's offsets on both sides."""
    return [(run.source + n, run.target + n) for run in runs for n in range(run.length)]


@given(SHAPES)
def test_nothing_is_read_twice_and_nothing_is_left_out(shapes: list[tuple[int, int, int]]) -> None:
    runs = runs_of(shapes)
    translation, pairs = RunTranslation(around(runs)), records(runs)
    for one, there in ((0, 1), (1, 0)):
        for offset in range(pairs[0][one], pairs[-1][one] + 3):
            spot = translation.forward(offset) if one == 0 else translation.back(offset)
            assert spot is not None
            unread = [pair[there] for pair in pairs if pair[one] >= offset]
            assert [pair[there] for pair in pairs if pair[there] >= spot.offset] == unread
            assert spot.reached == (offset <= pairs[-1][one] + 1)


@given(SHAPES)
def test_there_and_back_reads_the_same_record(shapes: list[tuple[int, int, int]]) -> None:
    translation = RunTranslation(around(runs_of(shapes)))
    for source, target in records(runs_of(shapes)):
        assert translation.forward(source) == TranslatedOffset(target)
        assert translation.back(target) == TranslatedOffset(source)
        assert ReversedTranslation(translation).forward(target) == TranslatedOffset(source)


def test_before_the_first_record_of_the_link_nothing_is_claimed() -> None:
    translation = RunTranslation(around([offset_run(100, 500, 0)]))
    assert translation.forward(99) is None
    assert translation.forward(100) == TranslatedOffset(500)
    assert translation.forward(101) == TranslatedOffset(500, reached=False)
    assert translation.back(499) is None


def test_offsets_without_records_behind_the_last_offset_run_are_reached_once_they_have_crossed() -> None:
    """The end of a transaction: the group stands behind it, and no offset run ever will."""
    runs = around([offset_run(0, 10, 90)])
    assert RunTranslation(runs, lambda: 90).forward(92) == TranslatedOffset(100, reached=False)
    assert RunTranslation(runs, lambda: 92).forward(92) == TranslatedOffset(100)


def test_exact_twins_need_no_translation() -> None:
    assert EXACT_TRANSLATION.forward(7) == EXACT_TRANSLATION.back(7) == TranslatedOffset(7)


def test_what_lies_on_a_twin_beyond_what_was_carried_is_no_place_on_the_source() -> None:
    asked: list[int] = []

    def carried(where: tuple[str, int], offset: int) -> int:
        asked.append(offset)
        return {"orders": 10, "new": 0}[where[0]]

    orders, new = (ReplicatedTranslation((topic, 0), carried) for topic in ("orders", "new"))
    assert orders.forward(25) == TranslatedOffset(25)
    assert not asked, "the other way the twin's end is the bound"
    assert [orders.back(offset) for offset in (4, 10, 25)] == [
        TranslatedOffset(4),
        TranslatedOffset(10),
        TranslatedOffset(10, reached=False),
    ]
    assert new.back(3) is None, "nothing is known before the first record that was carried"
    assert ReversedTranslation(orders).forward(25) == TranslatedOffset(10, reached=False)
    assert ReplicatedTranslation(("new", 0), carried, 7).back(25) == TranslatedOffset(7, reached=False), (
        "what both held before the link"
    )
    assert ReplicatedTranslation(("orders", 0), carried) == orders, "a look that finds the same is no news"
