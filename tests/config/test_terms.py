"""A topic goes to and fro: no link is ever in sequence behind a fence that was put up against it."""

from __future__ import annotations

import random

import pytest

from twinshore.config.model import FIRST_TERM, TERM_MAX, fence_epoch, next_term, twin_epoch, written_epoch


def test_a_home_that_no_row_tells_is_in_its_first_term() -> None:
    assert next_term(0) == next_term(FIRST_TERM) == FIRST_TERM + 1
    assert next_term(7) == 8


@pytest.mark.parametrize("seed", range(20))
def test_each_fence_is_above_what_was_written_and_below_what_will_be(seed: int) -> None:
    """However often the topic moves."""
    rng = random.Random(seed)
    links = {"east": rng.randrange(3), "west": rng.randrange(3)}  # the epoch of the link from there
    twins = {"east": 0}  # the epoch of the twin that the link from there fills
    fences: dict[str, list[int]] = {"east": [], "west": []}
    written: dict[str, list[int]] = {"east": [], "west": []}
    home, term = "east", FIRST_TERM
    for _ in range(40):
        now = written_epoch(links[home], twins[home])
        assert all(now > fence for fence in fences[home]), "its first request would be refused"
        written[home].append(now)
        fence = fence_epoch(now)
        assert all(fence > epoch for epoch in written[home]), "a late request of any time would be taken"
        fences[home].append(fence)
        term, home = next_term(term), "west" if home == "east" else "east"
        twins[home] = twin_epoch(term)


def test_the_last_term_still_fits_into_a_header() -> None:
    """A link that began anew a thousand times besides."""
    assert fence_epoch(written_epoch(1_000, twin_epoch(next_term(TERM_MAX - 1)))) < 1 << 15
