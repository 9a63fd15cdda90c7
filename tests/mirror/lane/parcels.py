"""Parcels whose bytes do not matter."""

from __future__ import annotations

from twinshore.mirror.lane.cutting import Parcel
from twinshore.wire.batch import split_batches
from twinshore.wire.records import Record, encode_batch

HEADER = split_batches(memoryview(encode_batch([Record(0, 5, b"k", b"v")])))[0][1]


def a_parcel(base: int, end: int, size: int = 10, max_timestamp: int = 5) -> Parcel:
    return Parcel(HEADER, b"body", base, end, size, max_timestamp)
