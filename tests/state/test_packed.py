"""Ranges of offsets as text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import raises
from twinshore.config.errors import StoreError
from twinshore.state.core.values import encode_ranges, merge_ranges, parse_ranges

RANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 50)).map(lambda one: (one[0], sum(one))))


@given(RANGES)
def test_text_says_the_same_offsets(ranges: list[tuple[int, int]]) -> None:
    back = parse_ranges(encode_ranges(ranges))
    assert back == merge_ranges(ranges)
    assert {at for part in back for at in range(*part)} == {at for part in ranges for at in range(*part)}
    assert all(one[1] < other[0] for one, other in itertools.pairwise(back)), "in order, with something between"


def test_it_is_short() -> None:
    many = [(2**40 + at, 2**40 + at + 17) for at in range(0, 100_000, 100)]
    assert len(encode_ranges(many)) < 8 * len(many)


@pytest.mark.parametrize("text", ["7", "1+", "+1", "a+b", "1-2", "-1+2"])
def test_what_is_no_ranges_is_not_guessed_at(text: str) -> None:
    with raises(StoreError, "state.invalid-row", place="incidents"):
        parse_ranges(text)
