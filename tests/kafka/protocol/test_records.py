"""Records: our encoding read by kio and by us, kio's read by us, and bytes that are not records refused by name."""

from __future__ import annotations

import datetime
import io
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records import readers as kio_readers
from kio.records import schema as kio_schema
from kio.records import writers as kio_writers
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from tests.kafka.protocol.strategies import CODECS, one, raw_batch, record_runs
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.record_batch import (
    LOG_APPEND_TIME_FLAG,
    Codec,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
)


@given(record_runs(holes=True), CODECS)
def test_what_is_encoded_decodes_equal(records: list[Record], codec: Codec) -> None:
    view, header = one(encode_batch(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7))
    check_crc(view, header)
    assert decode_batch(view, header) == records
    assert (header.count, header.last_offset) == (len(records), records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(record_runs(holes=True))
def test_kio_reads_our_records(records: list[Record]) -> None:
    records = [record._replace(timestamp=max(record.timestamp, 0)) for record in records]
    batch, size = kio_readers.read_batch(data := encode_batch(records), 0)
    assert size == len(data)
    # kio drops the milliseconds of a record's timestamp.
    assert [
        (r.offset, int(r.timestamp.timestamp()), r.key, r.value, tuple((h.key, h.value) for h in r.headers))
        for r in batch.records
    ] == [(r.offset, r.timestamp // 1000, r.key, r.value, r.headers) for r in records]


@given(record_runs())
def test_we_read_kios_records(records: list[Record]) -> None:
    records = [record._replace(timestamp=max(record.timestamp, 0) // 1000 * 1000) for record in records]
    theirs = kio_schema.NewRecordBatch(
        producer_id=i64(1),
        producer_epoch=i16(2),
        base_sequence=i32(3),
        attributes=i16(0),
        records=tuple(
            kio_schema.Record(
                attributes=i8(0),
                timestamp=TZAwareMicros.parse(datetime.datetime.fromtimestamp(record.timestamp // 1000, datetime.UTC)),
                offset=i64(record.offset),
                key=record.key,
                value=record.value,
                headers=tuple(kio_schema.RecordHeader(key=key, value=value) for key, value in record.headers),
            )
            for record in records
        ),
    )
    # kio leaves a new batch's offsets to the broker, which packs them from 0.
    buffer = io.BytesIO()
    kio_writers.write_batch(buffer, theirs)
    data = struct.pack(">q", records[0].offset) + buffer.getvalue()[8:]
    view, header = one(data)
    check_crc(view, header)
    assert decode_batch(view, header) == records


def test_log_append_time_is_every_records_time() -> None:
    records = [Record(0, 10, b"k", b"v"), Record(1, 99, None, b"w")]
    view, header = one(encode_batch(records, attributes=LOG_APPEND_TIME_FLAG))
    assert [record.timestamp for record in decode_batch(view, header)] == [99, 99]


def test_a_batch_emptied_by_compaction_holds_nothing() -> None:
    for codec in Codec:
        view, header = one(encode_batch([], base_offset=7, last_offset=9, codec=codec))
        assert decode_batch(view, header) == []
        assert (header.count, header.last_offset) == (0, 9)


GOOD = bytes([2 * 8, 0, 0, 0, 2, 107, 2, 118, 0])


@pytest.mark.parametrize(
    ("body", "count", "message"),
    [
        (GOOD + b"!", 1, "1 bytes follow the last record"),
        (GOOD[:-1], 1, "claims 8 bytes of 7"),
        (GOOD, 2, "claims 2 records in 9 bytes"),
        (GOOD + GOOD, 2, "offset delta 0 after 0"),
        (bytes([2 * 8, 0, 0, 2, 2, 107, 2, 118, 0]), 1, "offset delta 1 after -1"),
        (bytes([2 * 8, 0, 0, 0, 3, 107, 2, 118, 0]), 1, "a field claims -2 bytes"),
        (bytes([2 * 8, 0, 0, 0, 2, 107, 40, 118, 0]), 1, "a field claims 20 bytes of 2"),
        (bytes([2 * 8, 0, 0, 0, 2, 107, 2, 118, 2]), 1, "claims 1 headers in 0 bytes"),
        (bytes([2 * 8, 0, 0, 0, 2, 107, 0, 0, 0]), 1, "1 bytes too many"),
        (bytes([2 * 9, 0, 0, 0, 2, 107, 0, 2, 1, 1]), 1, "a header has no key"),
        (b"\xff" * 12, 1, "batch at offset 40: a varint is longer than 32 bits"),
        (b"\x0c" + b"\xff" * 6, 1, "records end too early"),
    ],
)
def test_records_that_cannot_be_are_refused(body: bytes, count: int, message: str) -> None:
    view, header = one(raw_batch(40, count, body))
    with pytest.raises(WireError, match=message):
        decode_batch(view, header)


def test_a_good_record_is_the_base_of_the_bad_ones() -> None:
    view, header = one(raw_batch(40, 1, GOOD))
    assert decode_batch(view, header) == [Record(40, 1000, b"k", b"v")]
    assert header.crc == crc32c(view[21:])


@given(st.integers(5, 7))
def test_an_unknown_codec_is_named(codec: int) -> None:
    view, header = one(raw_batch(40, 1, GOOD, attributes=codec))
    with pytest.raises(WireError, match=f"unknown codec {codec}"):
        decode_batch(view, header)
