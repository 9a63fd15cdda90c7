"""Two sides of a compacted topic, each cleaned in its own time."""

from __future__ import annotations

import random

import pytest

from tests.proof.logs import batched, chunks
from twinshore.kafka.protocol.record_batch import Record
from twinshore.proof.core.compare import (
    CompareProgress,
    OneSidedKeys,
    OneSidedRecord,
    compare_compacted,
    find_missing_tombstones,
)


def written(chance: random.Random, count: int = 200) -> list[Record]:
    return [
        Record(n, n, b"k%d" % chance.randrange(40), None if chance.random() < 0.15 else b"v%d" % n)
        for n in range(count)
    ]


def cleaned(chance: random.Random, log: list[Record], upto: int, *, tombstones: bool) -> list[Record]:
    """As a cleaner leaves it that has come so far: below that offset only the latest of each key, some deletes gone."""
    latest = {record.key: record.offset for record in log if record.offset < upto}
    kept = []
    for record in log:
        if record.offset < upto:
            if latest[record.key] != record.offset:
                continue
            if record.value is None and tombstones and chance.random() < 0.5:
                continue
        kept.append(record)
    return kept


def compared(
    chance: random.Random, source: list[Record], target: list[Record], end: int
) -> tuple[bool, int, list[OneSidedRecord]]:
    tally, latest = CompareProgress(0), OneSidedKeys()
    one, other = (chunks(batched(chance, side, end, first=0)) for side in (source, target))
    same = compare_compacted(one, other, tally, end, latest)
    return same, tally.at, latest.open()


@pytest.mark.parametrize("seed", range(30))
def test_sides_cleaned_differently_are_the_same(seed: int) -> None:
    chance = random.Random(seed)
    log = written(chance)
    one, other = (cleaned(chance, log, chance.randrange(200), tombstones=True) for _ in range(2))
    assert compared(chance, one, other, 200) == (True, 200, []), f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_a_lost_latest_value_stays_open_and_a_changed_one_is_found(seed: int) -> None:
    chance = random.Random(f"lost {seed}")
    log = written(chance)
    source = cleaned(chance, log, chance.randrange(200), tombstones=True)
    target = cleaned(chance, log, chance.randrange(200), tombstones=True)
    latest = {record.key: record for record in log}
    lost = chance.choice([record for record in latest.values() if record.value is not None])
    without = [record for record in target if record.offset != lost.offset]
    same, _, still_open = compared(chance, source, without, 200)
    assert same and [one.offset for one in still_open if one.on_source] == [lost.offset], f"seed {seed}"
    changed = [record._replace(value=b"else") if record.offset == lost.offset else record for record in target]
    assert compared(chance, source, changed, 200)[:2] == (False, lost.offset), f"seed {seed}"


def test_a_deleted_key_that_one_side_still_shows_stays_open() -> None:
    chance = random.Random(1)
    log = [Record(0, 0, b"k", b"v"), Record(1, 1, b"other", b"v"), Record(2, 2, b"k", None)]
    same, _, still_open = compared(chance, log[:2], log[1:], 3)
    assert same and still_open == [OneSidedRecord(0, True, False)]


@pytest.mark.parametrize("seed", range(20))
def test_only_keys_whose_last_record_below_their_tombstone_is_a_value_are_still_shown(seed: int) -> None:
    chance = random.Random(f"shown {seed}")
    log = written(chance)
    deletes: dict[bytes, OneSidedRecord] = {
        b"k%d" % n: OneSidedRecord(chance.randrange(200), True, True) for n in range(30)
    }
    last = {}
    for record in log:
        if record.key in deletes and record.offset < deletes[record.key].offset:
            last[record.key] = record.value
    want = sorted(deletes[key] for key, value in last.items() if value is not None)
    assert want and find_missing_tombstones(chunks(batched(chance, log, 200, first=0)), deletes) == want, f"seed {seed}"
