"""Groups values by a key, or into slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Returns the values by key, both in the order of the pairs."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def in_slices(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    """Yields the values in slices of at most `size`."""
    ordered = list(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]
