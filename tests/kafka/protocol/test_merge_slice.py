"""Merged and sliced batches read as the batches they were made of: offset, timestamp, key, value, headers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.protocol.strategies import CODECS, one, raw_batch, record_runs, slice_batch
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    encode_header,
    restamp,
    split_batches,
)
from twinshore.kafka.protocol.rewrite import can_merge, hole_free_runs, merge_small, slice_runs


def read(body: bytes, header: BatchHeader) -> list[Record]:
    """What a consumer reads of a batch made here; its header must fit it."""
    view, found = one(encode_header(header) + body)
    check_crc(view, found)
    return decode_batch(view, found)


def pieces(records: list[Record], cuts: list[int], codec: Codec) -> list[tuple[memoryview, BatchHeader]]:
    """The records as neighbouring batches, begun anew at each cut."""
    edges = sorted({0, len(records), *(cut % len(records) for cut in cuts)})
    data = b"".join(encode_batch(records[a:b], codec=codec, leader_epoch=3) for a, b in itertools.pairwise(edges))
    return split_batches(memoryview(data))


@given(record_runs(max_size=30), st.lists(st.integers(0, 100), max_size=30), CODECS)
def test_merged_neighbours_read_as_before(records: list[Record], cuts: list[int], codec: Codec) -> None:
    batches = pieces(records, cuts, codec)
    headers = [header for _, header in batches]
    assert all(can_merge(a, b) for a, b in itertools.pairwise(headers))
    body, header, _ = merge_small(batches)
    assert read(body, header) == records
    assert (header.count, header.attributes) == (len(records), codec)
    head = restamp(header, 9, 1, 77)
    view, stamped = one(head + body)
    check_crc(view, stamped)
    assert (stamped.base_offset, stamped.producer_id, stamped.base_sequence) == (0, 9, 77)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_merged_batch_is_of_the_latest_epoch_of_its_parts(codec: Codec) -> None:
    records = [Record(at, 5, None, b"so", ()) for at in range(3)]
    data = [encode_batch([one], codec=codec, base_offset=one.offset, leader_epoch=3 + one.offset) for one in records]
    batches = split_batches(memoryview(b"".join(map(bytes, data))))
    assert merge_small(batches).header.leader_epoch == 5
    assert merge_small(batches[:2]).header.leader_epoch == 4


@pytest.mark.parametrize("size", [*range(50, 70), 8_000, 8_190, 8_191, 8_192, 20_000])
@pytest.mark.parametrize("gap_ms", [0, -1, 1, 63, 64, 4_095, 4_096, 10**12])
def test_single_records_of_every_awkward_size_merge(size: int, gap_ms: int) -> None:
    records = [Record(2**31 - 2 + i, 10**12 + gap_ms * i, None, bytes(size + i), ()) for i in range(3)]
    body, header, _ = merge_small(pieces(records, [1, 2], Codec.NONE))
    assert read(body, header) == records
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_many_single_records_merge() -> None:
    records = [Record(i, 10**12 + i, b"key", b"v%d" % i, ((b"h", b"x"),)) for i in range(5_000)]
    body, header, _ = merge_small(pieces(records, list(range(5_000)), Codec.NONE))
    assert read(body, header) == records


def test_what_may_not_be_merged() -> None:
    def header(first: int, attributes: int = 0, last: int | None = None) -> BatchHeader:
        records = [Record(first, 5, b"k", b"v")]
        return one(encode_batch(records, attributes=attributes, last_offset=last))[1]

    assert can_merge(header(4), header(5))
    assert not can_merge(header(4), header(6))
    assert not can_merge(header(4), header(4))
    assert not can_merge(header(4, last=5), header(6))
    assert not can_merge(header(4), header(5, last=6))
    assert not can_merge(header(4), header(5, attributes=3))
    for bit in (LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, CONTROL_FLAG, DELETE_HORIZON_FLAG):
        assert not can_merge(header(4, attributes=bit), header(5, attributes=bit))


def test_merging_what_may_not_be_merged_is_the_callers_mistake() -> None:
    far = [one(encode_batch([Record(offset, 5, b"k", b"v")])) for offset in (4, 6)]
    with pytest.raises(ValueError, match=r"offset 6 .* 4$"):
        merge_small(far)


def test_merging_and_slicing_do_not_launder_damage() -> None:
    data = bytearray(b"".join(encode_batch([Record(i, 5, b"k", b"value")]) for i in range(3)))
    batches = split_batches(memoryview(data))
    batches[1][0][-3] ^= 8
    with pytest.raises(WireError, match="corrupt batch at offset 1"):
        merge_small(batches)
    with pytest.raises(WireError, match="corrupt batch at offset 1"):
        slice_batch(*batches[1], 1, 2)


def test_a_body_longer_than_its_only_record_is_refused() -> None:
    record = bytes([2 * 63, 0, 0, 0, 1, 2 * 58]) + bytes(58)
    assert len(record) == 64
    batches = [one(raw_batch(0, 1, record + b"!")), one(raw_batch(1, 1, record))]
    with pytest.raises(WireError, match="1 bytes follow"):
        merge_small(batches)


@given(record_runs(holes=True), CODECS, st.data())
def test_a_slice_holds_its_offsets_and_no_others(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    base, end = records[0].offset, records[-1].offset + 1
    view, header = one(encode_batch(records, codec=codec, leader_epoch=3, producer_id=8))
    first = data.draw(st.integers(base - 2, end))
    stop = data.draw(st.integers(first, end + 2))
    wanted = [record for record in records if first <= record.offset < stop]
    if not wanted:
        with pytest.raises(WireError, match="no record"):
            slice_batch(view, header, first, stop)
        return
    body, sliced = slice_batch(view, header, first, stop)
    assert read(body, sliced) == wanted
    assert (sliced.base_offset, sliced.last_offset) == (wanted[0].offset, wanted[-1].offset)
    assert sliced.max_timestamp == max(record.timestamp for record in wanted)
    assert (sliced.attributes, sliced.leader_epoch, sliced.producer_id) == (codec, 3, 8)


@given(record_runs(), CODECS)
def test_append_time_becomes_create_time(records: list[Record], codec: Codec) -> None:
    view, header = one(encode_batch(records, codec=codec, attributes=LOG_APPEND_TIME_FLAG))
    body, anew = slice_batch(view, header, header.base_offset, header.last_offset + 1)
    assert anew.attributes == codec
    assert read(body, anew) == decode_batch(view, header)


@given(record_runs(holes=True), CODECS)
def test_runs_name_every_offset_once(records: list[Record], codec: Codec) -> None:
    view, header = one(encode_batch(records, codec=codec))
    runs = hole_free_runs(view, header)
    assert [offset for first, end in runs for offset in range(first, end)] == [record.offset for record in records]
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(runs))


def test_an_empty_batch_has_no_runs() -> None:
    assert hole_free_runs(*one(encode_batch([], base_offset=7, last_offset=9))) == []


def test_a_delete_horizon_moves_no_timestamp() -> None:
    records = [Record(0, 50, b"k", b"v"), Record(3, 70, b"l", None)]
    view, header = one(encode_batch(records, attributes=DELETE_HORIZON_FLAG))
    body, anew = slice_batch(view, header, 0, 4)
    assert (read(body, anew), anew.attributes) == (records, 0)


def test_all_runs_of_a_batch_at_once_are_the_slices_one_by_one() -> None:
    records = [Record(number, 1_000 + number, b"k", b"v" * number) for number in (0, 1, 4, 9, 10, 11)]
    data = encode_batch(records, codec=Codec.ZSTD, base_offset=0, last_offset=12)
    ((view, header),) = split_batches(memoryview(data))
    runs = hole_free_runs(view, header)
    assert runs == [(0, 2), (4, 5), (9, 12)]
    assert [made[:2] for made in slice_runs(view, header, runs)] == [slice_batch(view, header, *run) for run in runs]
    with pytest.raises(WireError, match="no record at offsets 5 to 8"):
        list(slice_runs(view, header, [(0, 2), (5, 9)]))
