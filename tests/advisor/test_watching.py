"""What is told apart near a log's end, and in a member's share, on values."""

from __future__ import annotations

import struct

import pytest

from tests.kafka.protocol.strategies import raw_batch
from twinshore.advisor.collect import count_trailing_markers
from twinshore.kafka.consumer_groups import parse_assignment
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, split_batches

# Records 0 to 2, a marker at 3, records 4 to 6, markers at 7 and 8.
LOG = b"".join(
    raw_batch(base, count, attributes=attributes)
    for base, count, attributes in (
        (0, 3, 0),
        (3, 1, CONTROL_FLAG),
        (4, 3, 0),
        (7, 1, CONTROL_FLAG),
        (8, 1, CONTROL_FLAG),
    )
)
HEADERS = [header for _, header in split_batches(memoryview(LOG))]


@pytest.mark.parametrize(
    ("offset", "end", "expected"), [(0, 9, 3), (3, 9, 3), (4, 9, 2), (7, 9, 2), (8, 9, 1), (9, 9, 0), (0, 8, 2)]
)
def test_markers_are_counted_from_the_place_to_the_end(offset: int, end: int, expected: int) -> None:
    assert count_trailing_markers(HEADERS, offset, end) == expected


def share(version: int, *topics: tuple[str, tuple[int, ...]]) -> bytes:
    """A member's share, made without the code under test."""
    said = struct.pack(">hi", version, len(topics))
    for name, parts in topics:
        said += struct.pack(">h", len(name)) + name.encode() + struct.pack(f">i{len(parts)}i", len(parts), *parts)
    return said + struct.pack(">i", -1)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_members_share_is_read(version: int) -> None:
    said = share(version, ("orders", (0, 2)), ("bills", (1,)))
    assert [str(one) for one in parse_assignment(said)] == ["orders-0", "orders-2", "bills-1"]


def test_bytes_that_are_no_share_are_none() -> None:
    whole = share(1, ("orders", (0, 2)))
    for size in range(len(whole) - 1):
        assert list(parse_assignment(whole[:size])) == []
    assert list(parse_assignment(b"\x00\x01\x7f\xff\xff\xff")) == []
