"""The batch header: split, check, restamp. Batches here are built field by field, by no code under test."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.protocol.strategies import raw_batch
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    check_crc,
    next_sequence,
    restamp,
    sequence_of,
    shift_crc,
    split_batches,
    with_producer_id,
)


def test_complete_batches_come_in_order_and_an_incomplete_last_one_is_left() -> None:
    data = raw_batch(10, 5) + raw_batch(15, 1, b"x" * 300) + raw_batch(20, 2)
    for cut in range(1, len(raw_batch(20, 2)) + 1):
        found = split_batches(memoryview(data[: len(data) - cut]))
        assert [header.base_offset for _, header in found] == [10, 15]
    assert [bytes(view) for view, _ in split_batches(memoryview(data))] == [
        raw_batch(10, 5),
        raw_batch(15, 1, b"x" * 300),
        raw_batch(20, 2),
    ]
    _, header = split_batches(memoryview(data))[1]
    assert (header.count, header.producer_id, header.producer_epoch, header.base_sequence) == (1, 77, 3, 500)
    assert (header.leader_epoch, header.base_timestamp, header.max_timestamp, header.last_offset) == (4, 1000, 2000, 15)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [26, 200])
def test_old_formats_are_named(magic: int, size: int) -> None:
    old = struct.pack(">qiIb", 7, size - 12, 0, magic).ljust(size, b"\0")
    with pytest.raises(WireError, match=f"offset 7 has message format v{magic}") as caught:
        split_batches(memoryview(raw_batch(0, 3) + old))
    assert caught.value.offset == len(raw_batch(0, 3))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (struct.pack(">qi", 3, 48), "claims 48 bytes"),
        (struct.pack(">qi", 3, -1), "claims -1 bytes"),
        (struct.pack(">q", -5), "negative offset -5"),
        (struct.pack(">q", 1), "offset 1 follows one that ends at 2"),
    ],
)
def test_headers_that_cannot_be_are_refused(change: bytes, message: str) -> None:
    second = bytearray(raw_batch(3, 1))
    second[: len(change)] = change
    with pytest.raises(WireError, match=message) as caught:
        split_batches(memoryview(raw_batch(0, 3) + bytes(second)))
    assert caught.value.offset == len(raw_batch(0, 3))


@pytest.mark.parametrize(("last_delta", "count"), [(0, 2), (5, -1), (-1, 0), (-2, 0)])
def test_counts_that_cannot_be_are_refused(last_delta: int, count: int) -> None:
    batch = bytearray(raw_batch(0, 1))
    batch[23:27] = struct.pack(">i", last_delta)
    batch[57:61] = struct.pack(">i", count)
    with pytest.raises(WireError, match="records in"):
        split_batches(memoryview(batch))


def test_a_compacted_batch_may_hold_fewer_records_than_offsets() -> None:
    batch = bytearray(raw_batch(0, 10))
    batch[57:61] = struct.pack(">i", 0)
    ((_, header),) = split_batches(memoryview(batch))
    assert (header.count, header.last_offset_delta) == (0, 9)


def test_restamp_changes_only_what_the_target_needs() -> None:
    attributes = 3 | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
    ((view, header),) = split_batches(memoryview(raw_batch(123, 9, b"z" * 1000, attributes)))
    data = restamp(header, 9001, 6, 2**31 - 1) + view[HEADER_BYTES:]
    ((_, after),) = split_batches(memoryview(data))
    check_crc(memoryview(data), after)
    assert after == header._replace(
        base_offset=0,
        leader_epoch=-1,
        attributes=3 | LOG_APPEND_TIME_FLAG,
        producer_id=9001,
        producer_epoch=6,
        base_sequence=2**31 - 1,
        crc=after.crc,
    )
    assert data == restamp(header, 9001, 6, 2**31 - 1) + view[HEADER_BYTES:]


def test_a_flipped_bit_is_found_and_names_the_batch() -> None:
    data = bytearray(raw_batch(55, 2))
    ((view, header),) = split_batches(memoryview(data))
    check_crc(view, header)
    data[-1] ^= 1
    with pytest.raises(WireError, match="corrupt batch at offset 55"):
        check_crc(view, header)


def test_sequences_wrap_as_brokers_count() -> None:
    top = 2**31 - 1
    assert next_sequence(top, 1) == 0
    assert next_sequence(top - 1, 1) == top
    assert next_sequence(top - 2, 10) == 7
    assert sequence_of(1000, top, 1001) == 0
    assert sequence_of(1000, 5, 1000 + 2**31) == 5
    assert sequence_of(1000, 5, 1003) == 8


@given(
    st.binary(min_size=1, max_size=60), st.binary(min_size=60, max_size=60), st.integers(0, 40_000) | st.just(3 << 20)
)
def test_a_crc_follows_its_changed_beginning(before: bytes, after: bytes, length: int) -> None:
    rest = bytes(range(251)) * (length // 251) + bytes(length % 251)
    before = before.ljust(60, b"\1")
    assert crc32c(before + rest) ^ shift_crc(crc32c(before) ^ crc32c(after), length) == crc32c(after + rest)


def test_restamp_carries_damage_along() -> None:
    data = bytearray(raw_batch(55, 2, b"q" * 9000))
    ((view, header),) = split_batches(memoryview(data))
    data[5000] ^= 4
    head = restamp(header, 1, 0, 0)
    ((copy, after),) = split_batches(memoryview(head + view[HEADER_BYTES:]))
    with pytest.raises(WireError, match="corrupt batch"):
        check_crc(copy, after)


@pytest.mark.parametrize("body", [b"", b"q", b"q" * 9000])
def test_another_producer_id_changes_nothing_else(body: bytes) -> None:
    ((view, header),) = split_batches(memoryview(raw_batch(55, 2, body, TRANSACTIONAL_FLAG)))
    ((copy, after),) = split_batches(memoryview(with_producer_id(header, 1 << 50) + view[HEADER_BYTES:]))
    check_crc(copy, after)
    assert after._replace(crc=0) == header._replace(crc=0, producer_id=1 << 50)
