"""The fuzz target in short, with a new seed each time; TWINSHORE_SEED replays one."""

from __future__ import annotations

import time

import pytest

from tests.kafka.protocol.fuzz_hostile import chosen_seed, rounds

ROUNDS = 6_000
LONG_S = 180


def test_damaged_bytes_are_read_or_refused() -> None:
    seed = chosen_seed()
    print(f"TWINSHORE_SEED={seed}")
    tally = rounds(seed, lambda number: number < ROUNDS)
    # Damage that nearly always passes, or never does, tests nothing.
    assert ROUNDS // 5 < tally.refused < ROUNDS


@pytest.mark.long
@pytest.mark.timeout(LONG_S * 2)
def test_damaged_bytes_for_minutes() -> None:
    seed = chosen_seed()
    print(f"TWINSHORE_SEED={seed}")
    end = time.monotonic() + LONG_S
    tally = rounds(seed, lambda _: time.monotonic() < end)
    assert tally.refused > tally.rounds // 5
