"""Recovery points: how long ago what is missing was first seen, whatever timestamps say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinshore.replication.core.lag import ARRIVALS_MAX, OffsetArrivals


def test_nothing_is_missing_while_the_twin_has_all() -> None:
    seen = OffsetArrivals()
    assert seen.age_s(0, 10.0) == 0.0
    seen.saw(5, 10.0)
    assert seen.age_s(5, 99.0) == 0.0


def test_the_oldest_missing_offset_counts_from_when_it_was_first_seen() -> None:
    seen = OffsetArrivals()
    seen.saw(5, 10.0)
    seen.saw(5, 11.0)
    seen.saw(9, 20.0)
    assert seen.age_s(3, 30.0) == 20.0
    assert seen.age_s(5, 30.0) == 10.0
    assert seen.age_s(8, 30.0) == 10.0
    assert seen.age_s(9, 30.0) == 0.0


def test_a_source_that_lost_its_end_is_believed() -> None:
    seen = OffsetArrivals()
    seen.saw(5, 10.0)
    seen.saw(9, 20.0)
    seen.saw(7, 30.0)
    assert seen.age_s(6, 40.0) == 20.0
    assert seen.age_s(7, 40.0) == 0.0
    seen.saw(8, 50.0)
    assert seen.age_s(7, 60.0) == 10.0


def test_what_an_earlier_process_saw_is_older_than_all_that_is_known_here() -> None:
    seen = OffsetArrivals()
    seen.saw(5, 100.0)
    seen.saw(9, 110.0)
    seen.recall([(10.0, 3), (20.0, 6)])
    assert seen.age_s(0, 120.0) == 110.0
    assert seen.age_s(3, 120.0) == 100.0
    assert seen.age_s(6, 120.0) == 10.0
    assert seen.missing(6) == [(110.0, 9)]


def test_of_what_an_earlier_process_saw_counts_what_the_source_still_has() -> None:
    seen = OffsetArrivals()
    seen.saw(4, 100.0)
    seen.recall([(10.0, 3), (20.0, 6), (30.0, 8)])
    assert seen.missing(0) == [(10.0, 3), (20.0, 4)]
    seen.saw(5, 130.0)
    assert seen.age_s(4, 140.0) == 10.0


STEPS = st.lists(st.tuples(st.floats(0.01, 5.0), st.integers(0, 9), st.integers(0, 9)), max_size=300)


@given(steps=STEPS)
def test_thinned_out_it_never_says_too_little(steps: list[tuple[float, int, int]]) -> None:
    seen, now_s, end, reached = OffsetArrivals(), 0.0, 0, 0
    first_seen: list[float] = []
    for took_s, came, crossed in steps:
        now_s += took_s
        end += came
        first_seen += [now_s] * came
        seen.saw(end, now_s)
        reached = min(end, reached + crossed)
        true_s = now_s - first_seen[reached] if reached < end else 0.0
        said_s = seen.age_s(reached, now_s)
        assert said_s >= true_s - 1e-9
        assert (said_s > 0) == (true_s > 0)
        assert len(seen._marks) <= ARRIVALS_MAX
