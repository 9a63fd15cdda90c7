"""Whether a twin's last record is its source's, told from two batches that hold its offset."""

from __future__ import annotations

import pytest

from twinshore.kafka.protocol.record_batch import LOG_APPEND_TIME_FLAG, Codec, Record, encode_batch, split_batches
from twinshore.replication.task.core.position import RawBatch, differ_at, first_difference, last_difference


def records(first: int, count: int, said: bytes = b"") -> list[Record]:
    return [Record(offset, 1_000 + offset, b"k", said + b"%d" % offset) for offset in range(first, first + count)]


def batch(found: list[Record], attributes: int = 0, codec: Codec = Codec.NONE) -> RawBatch:
    ((view, header),) = split_batches(memoryview(encode_batch(found, attributes=attributes, codec=codec)))
    return view, header


def test_the_same_record_is_like_however_it_is_batched() -> None:
    assert not differ_at(batch(records(10, 5)), batch(records(12, 1)), 12)
    assert not differ_at(batch(records(10, 5), codec=Codec.GZIP), batch(records(12, 3)), 12)


@pytest.mark.parametrize(
    "ours",
    [
        Record(12, 1_012, b"k", b"another"),
        Record(12, 1_012, b"other", b"12"),
        Record(12, 1_013, b"k", b"12"),
        Record(12, 1_012, b"k", b"12", ((b"h", b""),)),
        Record(12, 1_012, b"k", None),
    ],
)
def test_any_difference_is_seen(ours: Record) -> None:
    assert differ_at(batch(records(10, 5)), batch([ours]), 12)


@pytest.mark.parametrize("parted", [0, 1, 7, 49, 50])
def test_the_first_unlike_offset_is_found_in_few_looks(parted: int) -> None:
    looked: list[int] = []

    def unlike_at(offset: int) -> bool:
        looked.append(offset)
        return offset >= parted

    assert first_difference(unlike_at, 0, 50) == parted
    assert len(looked) <= 6


def test_what_is_displaced_is_unlike() -> None:
    moved = [record._replace(offset=record.offset + 3) for record in records(10, 5)]
    assert differ_at(batch(records(10, 10)), batch(moved), 14)


def test_all_that_both_batches_hold_is_compared() -> None:
    sent_again = [*records(10, 2), Record(12, 1_012, b"k", b"another"), *records(13, 3)]
    assert last_difference(batch(records(10, 6)), batch(sent_again), 15) == 12
    assert not differ_at(batch(records(10, 6)), batch(sent_again), 15), "the last record alone says nothing"
    assert last_difference(batch(records(13, 6)), batch(sent_again), 15) == -1, (
        "the batches share only what is the same"
    )
    assert last_difference(batch(records(10, 6)), batch(sent_again), 11) == -1
    cleaned = [record for record in sent_again if record.offset != 12]
    assert last_difference(batch(records(10, 6)), batch(cleaned), 15) == -1


def test_nothing_is_said_where_one_side_has_no_record() -> None:
    assert not differ_at(None, batch(records(10, 5)), 14)
    assert not differ_at(batch(records(10, 5)), None, 14)
    assert not differ_at(batch(records(13, 2)), batch(records(10, 3)), 12), "a cleaner took it"


def test_damage_is_not_called_a_difference() -> None:
    view, header = batch(records(10, 5))
    for place in (70, len(view) - 2):
        torn = bytearray(view)
        torn[place] ^= 0x40
        assert not differ_at((bytes(torn), header), batch(records(10, 5)), 14), (
            "the last byte of a value decodes as well"
        )


def test_a_target_that_stamps_records_itself_is_judged_by_the_rest() -> None:
    stamped = batch([Record(12, 99_999, b"k", b"12")], LOG_APPEND_TIME_FLAG)
    assert not differ_at(batch(records(10, 5)), stamped, 12)
    assert differ_at(batch(records(10, 5, b"x")), stamped, 12)
