"""A segment that was cut, or whose bits were flipped, at every place: nothing false is ever read, and loss is told."""

from __future__ import annotations

import random

import pytest

from testkit.errors import raises
from tests.client.spool.spooling import record
from twinshore.client.core.spool_format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    FramedRecord,
    SegmentGap,
    SegmentGapKind,
    SegmentHeader,
    SpoolMarks,
    SpoolRecord,
    TopicMark,
    body_bytes,
    frame_bytes,
    header_bytes,
    normalize_headers,
    read_header,
    read_marks,
    scan_segment,
)
from twinshore.config.errors import UnsupportedError

HEADER = SegmentHeader(7, 100, 0xC0FFEE)


def segment(*batches: list[SpoolRecord]) -> tuple[bytes, list[int], list[int]]:
    """Its bytes, where each batch begins, and where each record ends."""
    text, begins, ends = header_bytes(HEADER), [], []
    for batch in batches:
        begins.append(len(text))
        for one in batch:
            text += frame_bytes(body_bytes(one), begins[-1], HEADER.salt)
            ends.append(len(text))
    return text, begins, ends


def scanned(text: bytes) -> tuple[list[SpoolRecord], list[SegmentGap]]:
    found = list(scan_segment(lambda at, size: text[at : at + size], HEADER, len(text)))
    records = [one.record for one in found if isinstance(one, FramedRecord)]
    return records, [one for one in found if isinstance(one, SegmentGap)]


BATCHES = [[record(1), record(2)], [record(3)], [record(4), record(5, "bills"), record(6)]]
RECORDS = [one for batch in BATCHES for one in batch]


def test_what_is_written_is_read_as_it_was() -> None:
    odd = SpoolRecord(9, "ümlaut", None, b"", 3, -1, (("k", b""), ("k", None)), 0)
    text, _, _ = segment([odd], [record(10, value=b"")])
    assert scanned(text) == ([odd, record(10, value=b"")], [])
    assert read_header(text) == HEADER


@pytest.mark.claim(
    "client", "spool-cut", "spool: the log cut at every byte: all before is read, nothing torn is believed"
)
def test_a_log_cut_at_every_byte_gives_all_before_and_nothing_torn() -> None:
    text, _, ends = segment(*BATCHES)
    for cut in range(HEADER_BYTES, len(text) + 1):
        whole = [one for one, end in zip(RECORDS, ends, strict=True) if end <= cut]
        is_clean = cut in (HEADER_BYTES, *ends)
        gaps = (
            []
            if is_clean
            else [SegmentGap(max([HEADER_BYTES, *(end for end in ends if end <= cut)]), cut, SegmentGapKind.TORN)]
        )
        assert scanned(text[:cut]) == (whole, gaps), cut


@pytest.mark.parametrize("filler", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_a_tail_that_the_disk_never_got_is_torn_though_the_file_is_long(filler: bytes) -> None:
    text, _, ends = segment(*BATCHES)
    for cut in range(ends[2], len(text)):
        if text[cut:] == filler * (len(text) - cut):
            continue
        records, gaps = scanned(text[:cut] + filler * (len(text) - cut))
        assert records == [one for one, end in zip(RECORDS, ends, strict=True) if end <= cut]
        assert [gap.kind for gap in gaps] == [SegmentGapKind.TORN]


def test_a_bit_flipped_anywhere_alters_no_record_and_is_told() -> None:
    text, begins, ends = segment(*BATCHES)
    for at in range(HEADER_BYTES, len(text)):
        for bit in range(8):
            flipped = text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]
            records, gaps = scanned(flipped)
            hit = next(place for place, end in enumerate(ends) if at < end)
            assert records == RECORDS[:hit] + RECORDS[hit + 1 :], (at, bit)
            (gap,) = gaps
            assert gap.at <= at < gap.until
            kinds = {5: SegmentGapKind.TORN}.get(
                hit, SegmentGapKind.UNFINISHED if ends[hit] > begins[-1] else SegmentGapKind.DAMAGED
            )
            assert gap.kind is kinds, (at, bit)


def test_two_places_that_are_damaged_are_two_gaps() -> None:
    text, _, ends = segment(*BATCHES)
    flipped = bytearray(text)
    for at in (ends[0] + 20, ends[2] + 20):
        flipped[at] ^= 1
    records, gaps = scanned(bytes(flipped))
    assert [one.number for one in records] == [1, 3, 5, 6]
    assert [gap.kind for gap in gaps] == [SegmentGapKind.DAMAGED, SegmentGapKind.UNFINISHED]


def test_a_frame_within_a_value_is_no_record() -> None:
    """It was made with another salt, or lies in a record that is torn."""
    inner = frame_bytes(body_bytes(record(66)), 0, HEADER.salt ^ 1)
    text, _, _ = segment([record(1)], [record(2, value=inner * 3)])
    assert scanned(text[:-1])[0] == [record(1)]
    assert [gap.kind for gap in scanned(text[:-1])[1]] == [SegmentGapKind.TORN]


def test_records_larger_than_what_is_read_at_a_time() -> None:
    seed = 4
    dice = random.Random(seed)
    sizes = [BLOCK_BYTES - 60, BLOCK_BYTES, 3 * BLOCK_BYTES + 1, 10, BLOCK_BYTES // 2, BLOCK_BYTES // 2, 5]
    records = [record(number, value=dice.randbytes(size)) for number, size in enumerate(sizes)]
    text, _, ends = segment(*[[one] for one in records])
    assert scanned(text) == (records, [])
    flipped = bytearray(text)
    flipped[ends[2] - 5] ^= 8
    found, gaps = scanned(bytes(flipped))
    assert found == records[:2] + records[3:]
    assert gaps == [SegmentGap(ends[1], ends[2], SegmentGapKind.DAMAGED)]


def test_a_header_that_was_altered_is_not_read_and_one_of_a_later_version_is_refused() -> None:
    text = header_bytes(HEADER)
    for at in range(len(text)):
        assert read_header(text[:at] + bytes([text[at] ^ 4]) + text[at + 1 :]) is None
        assert read_header(text[:at]) is None
    later = text[:9] + b"\x02" + text[10:]
    import struct

    from crc32c import crc32c

    body = later[: HEADER_BYTES - 4]
    with raises(UnsupportedError, "client.spool-of-another-version", version=2, known=1):
        read_header(body + struct.pack(">I", crc32c(body)))


def test_marks_that_were_altered_anywhere_mark_nothing() -> None:
    marks = SpoolMarks(77, (3, 900), {"orders": TopicMark(50, (4, 7)), "bills": TopicMark(9)})
    text = marks.text()
    assert read_marks(text) == marks
    for at in range(len(text) - 1):
        assert read_marks(text[:at]) is None
        assert read_marks(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]) is None


def test_headers_as_the_client_takes_them() -> None:
    assert normalize_headers({"a": "x", "b": b"y"}) == (("a", b"x"), ("b", b"y"))
    assert normalize_headers([("a", None), ("a", "x")]) == (("a", None), ("a", b"x"))
    assert normalize_headers(None) == ()
    with pytest.raises(TypeError, match="bytes, str or None"):
        normalize_headers([("a", 3)])
    with pytest.raises(ValueError, match="cannot be kept"):
        body_bytes(record(1)._replace(partition=1 << 40))
