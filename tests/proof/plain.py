"""The loops of a comparison in plain Python, slow and simple: what the compiled ones must equal."""

from __future__ import annotations

from typing import Any

from twinshore.proof.core.keys import NO_KEY, TOMBSTONE, VALUE
from twinshore.proof.core.record_rows import Array, hash_key, key_at

WORD = (1 << 64) - 1
FIRST, SECOND, THIRD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xFF51AFD7ED558CCD


def index_records(*_: Any) -> int:
    """Takes none: each record is walked."""
    return -1


def index_plain(_source: Array, place: int, expected: int, _table: Array, out: Array) -> None:
    out[:] = (place, expected, 0, 0)


def same_bytes(one: Array, other: Array) -> bool:
    return one.tobytes() == other.tobytes()


def add_rows(data: Array, rows: Array, first: int, end: int, sums: Array) -> None:
    for row in range(first, end):
        _add(data, rows[row].tolist(), sums)


def matching(
    one: Array, ones: Array, i: int, n: int, other: Array, others: Array, j: int, m: int, shift: int, placed: bool,
    sums: Array,
) -> int:  # fmt: skip
    for step in range(min(n - i, m - j)):
        ours, theirs = ones[i + step].tolist(), others[j + step].tolist()
        same = (not placed or ours[0] == theirs[0] + shift) and ours[1] == theirs[1]
        if not same or one[ours[2] : ours[3]].tobytes() != other[theirs[2] : theirs[3]].tobytes():
            return step
        _add(one, ours, sums)
    return min(n - i, m - j)


def hash_keys(data: Array, rows: Array, first: int, end: int, hashes: Array, kinds: Array) -> None:
    for at in range(first, end):
        key, tombstone = key_at(data, rows[at])
        hashes[at - first] = 0 if key is None else hash_key(key)
        kinds[at - first] = NO_KEY if key is None else TOMBSTONE if tombstone else VALUE


def _add(data: Array, row: list[int], sums: Array) -> None:
    offset, time, start, end = row
    rest = data[start:end].tobytes()
    time &= WORD
    one = ((offset ^ len(rest)) * FIRST) & WORD
    two = ((offset + time) & WORD) * SECOND & WORD
    one ^= (one >> 32) ^ time
    two ^= two >> 29
    for place in range(0, len(rest), 8):
        word = int.from_bytes(rest[place : place + 8], "little")
        one = (one ^ word) * FIRST & WORD
        one ^= one >> 32
        two = ((two + word) & WORD) * SECOND & WORD
        two ^= two >> 29
    old_one, old_two = (int(task) for task in sums)
    sums[0] = (old_one + _finished(one)) & WORD
    sums[1] = (old_two + _finished(two ^ one)) & WORD


def _finished(task: int) -> int:
    task ^= task >> 33
    task = task * THIRD & WORD
    task ^= task >> 29
    task = task * SECOND & WORD
    return task ^ (task >> 32)
