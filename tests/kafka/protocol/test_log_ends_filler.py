"""Log ends as brokers answer them, and batches that only take offsets."""

from __future__ import annotations

import struct

import pytest

from twinshore.config.errors import WireError
from twinshore.kafka.protocol.primitives import compact_string
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    split_batches,
)
from twinshore.kafka.protocol.transactions import (
    FILLER_RECORDS_MAX,
    LogEnd,
    encode_list_offsets,
    is_filler,
    make_filler,
    parse_list_offsets,
)


def answer(entries: dict[str, list[tuple[int, int, int]]]) -> bytes:
    """As the protocol's guide has it: throttle, topics, partitions with code, time, offset and epoch."""
    out = struct.pack(">i", 7) + bytes([len(entries) + 1])
    for topic, ours in entries.items():
        out += compact_string(topic) + bytes([len(ours) + 1])
        for partition, error, end in ours:
            out += struct.pack(">ihqqi", partition, error, -1, end, 3) + b"\0"
        out += b"\0"
    return out + b"\0"


def test_log_ends_are_read_as_they_were_answered() -> None:
    data = answer({"a": [(0, 0, 17), (5, 6, -1)], "b": [(1, 0, 2**40)]})
    expected = [LogEnd("a", 0, 0, 17, 3), LogEnd("a", 5, 6, -1, 3), LogEnd("b", 1, 0, 2**40, 3)]
    assert parse_list_offsets(memoryview(b"xx" + data), 2) == expected
    for size in range(len(data)):
        with pytest.raises(WireError, match=r"log ends|runs past the end"):
            parse_list_offsets(memoryview(data[:size]), 0)


def test_log_ends_are_asked_as_the_debugging_replica() -> None:
    body = encode_list_offsets([("t", [(3, 7)])])
    assert body == struct.pack(">ib", -2, 0) + b"\2\2t\2" + struct.pack(">iiq", 3, 7, -1) + b"\0\0\0"


@pytest.mark.parametrize("count", [1, 127, 128, 20_000, FILLER_RECORDS_MAX])
def test_a_filler_is_a_sound_batch_of_empty_records(count: int) -> None:
    made = make_filler(count)
    data = made.encode_header(4, 2, 2**31 - 1) + made.body
    ((view, header),) = split_batches(memoryview(data))
    check_crc(view, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 2**31 - 1)
    assert header.count == header.last_offset_delta + 1 == count
    read = decode_batch(view, header)
    assert read[0] == Record(0, 0, b"", None)
    assert read[-1] == Record(count - 1, 0, b"", None)
    assert len(data) < 1_000 + count
    assert is_filler(bytes(view), header)


@pytest.mark.parametrize(
    "record",
    [Record(0, 5, b"", None), Record(0, 0, b"", b""), Record(0, 0, b"k", None), Record(0, 0, None, None)],
)
def test_what_somebody_wrote_is_no_filler(record: Record) -> None:
    data = encode_batch([record])
    ((view, header),) = split_batches(memoryview(data))
    assert not is_filler(bytes(view), header)
    assert not is_filler(bytes(view), header._replace(attributes=CONTROL_FLAG))


@pytest.mark.parametrize("count", [0, FILLER_RECORDS_MAX + 1])
def test_a_filler_has_its_bounds(count: int) -> None:
    with pytest.raises(ValueError, match="filler"):
        make_filler(count)
