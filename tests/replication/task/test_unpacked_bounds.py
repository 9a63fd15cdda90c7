"""What small compressed batches unpack to is bounded, whatever they claim: merged, written anew, or looked into."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest

from tests.kafka.protocol.strategies import one, raw_batch
from tests.replication.task.parcels import parse_batches
from twinshore.config.errors import TooLargeError
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    Codec,
    Record,
    decode_batch,
    decompress,
    encode_batch,
    encode_header,
    plain_records,
)
from twinshore.kafka.protocol.rewrite import MERGED_PLAIN_BYTES_MAX, REWRITE_BYTES_MAX, REWRITE_RECORDS_MAX
from twinshore.proof.core.record_rows import UnpackBuffer
from twinshore.replication.task.core.batches import BatchParser, OutgoingBatch, ParsedFetch
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.core.position import differ_at

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMITS = TaskLimits(merge_below_bytes=64 << 10)
SENT_MS = 1_700_000_000_000
MEGABYTE = bytes(1_000_000)


def at(batch: bytes, offset: int) -> bytes:
    """The same batch elsewhere: the base offset is not under the CRC."""
    return offset.to_bytes(8, "big") + batch[8:]


def packed(value: bytes, codec: Codec = Codec.ZSTD, attributes: int = 0) -> bytes:
    return encode_batch([Record(0, SENT_MS, b"k", value)], codec=codec, attributes=attributes)


def fed(data: bytes, limits: TaskLimits = LIMITS, position: int = 0) -> ParsedFetch:
    return parse_batches(memoryview(data), position, position, limits)


def batches(found: ParsedFetch) -> list[OutgoingBatch]:
    assert all(isinstance(piece, OutgoingBatch) for piece in found.batches)
    return [piece for piece in found.batches if isinstance(piece, OutgoingBatch)]


def unpacked_bytes(batch: OutgoingBatch) -> int:
    return len(plain_records(*one(encode_header(batch.header) + bytes(batch.body))))


@pytest.mark.parametrize("codec", PACKED)
def test_small_batches_that_unpack_to_much_cross_as_they_are(codec: Codec) -> None:
    single = packed(MEGABYTE, codec)
    data = b"".join(at(single, offset) for offset in range(160))
    tracemalloc.start()
    try:
        found = batches(fed(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(batch.base, batch.end) for batch in found] == [(offset, offset + 1) for offset in range(160)]
    assert all(bytes(batch.body) == single[61:] for batch in found)
    assert peak < 8 << 20, f"{peak} bytes for {len(data)} fetched"


@pytest.mark.parametrize("codec", PACKED)
def test_what_is_merged_unpacks_to_what_any_client_reads(codec: Codec) -> None:
    words = b"".join(b"%d of many, " % (number * number) for number in range(600))
    single = packed(words, codec)
    found = batches(fed(b"".join(at(single, offset) for offset in range(400))))
    sizes = [unpacked_bytes(batch) for batch in found]
    assert max(sizes) <= MERGED_PLAIN_BYTES_MAX + 16 * 400, "deltas take some bytes more"
    assert len(found) < 16, f"hardly anything was merged: {sizes}"
    assert [batch.base for batch in found[1:]] == [batch.end for batch in found[:-1]]
    assert (found[0].base, found[-1].end) == (0, 400)


def test_neighbours_of_a_bomb_are_merged_on_both_sides() -> None:
    packs = [packed(b"small" * 9)] * 5 + [packed(MEGABYTE)] + [packed(b"small" * 9)] * 5
    found = batches(fed(b"".join(at(pack, offset) for offset, pack in enumerate(packs))))
    assert [(batch.base, batch.end) for batch in found] == [(0, 5), (5, 6), (6, 11)]


def bomb(attributes: int) -> bytes:
    return packed(bytes(REWRITE_BYTES_MAX), attributes=attributes)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (LOG_APPEND_TIME_FLAG, "the time at which the source appended"),
        (CONTROL_FLAG | TRANSACTIONAL_FLAG, "may end a transaction"),
    ],
)
def test_what_must_be_written_anew_and_is_too_large_stops_by_its_own_name(attributes: int, why: str) -> None:
    data = at(packed(b"before"), 0) + at(bomb(attributes), 1) + at(packed(b"behind"), 2)
    found = parse_batches(memoryview(data), 0, 0, LIMITS, None, [(-1, 0)])
    assert [(batch.base, batch.end) for batch in batches(found)] == [(0, 1)], "what came before crosses"
    assert found.stopped
    assert (found.stopped.kind, found.stopped.offset, found.stopped.end) == ("too large unpacked", 1, 2)
    assert why in found.stopped.sentence
    assert "corrupt" not in found.stopped.sentence


def test_so_does_a_batch_of_too_many_records_with_a_hole() -> None:
    records = [Record(offset, SENT_MS, None, None) for offset in range(REWRITE_RECORDS_MAX + 1)]
    data = encode_batch(records, codec=Codec.ZSTD, last_offset=REWRITE_RECORDS_MAX + 1)
    found = fed(data)
    assert found.stopped
    assert found.stopped.kind == "too large unpacked"
    assert "the source's compaction" in found.stopped.sentence


def test_what_costs_much_to_cut_is_cut_in_portions() -> None:
    single = packed(MEGABYTE, attributes=LOG_APPEND_TIME_FLAG)
    data = b"".join(at(single, offset) for offset in range(10))
    cutter = BatchParser(memoryview(data), 0, 0, LIMITS, None, ())
    ends, position = [], 0
    while cutter.more:
        found = cutter.parse(20_000)
        assert found.stopped is None
        assert cutter.work < 30_000
        assert [batch.base for batch in batches(found)] == list(range(position, found.end))
        position = found.end
        ends.append(position)
    assert ends == [3, 6, 9, 10]


def test_readers_say_too_large_and_not_corrupt() -> None:
    packer = cramjam.zstd.Compressor()
    for _ in range(257):
        packer.compress(bytes(1 << 20))
    view, header = one(raw_batch(0, 1, bytes(packer.finish()), Codec.ZSTD))
    with pytest.raises(TooLargeError, match="offset 0: its zstd data holds more than 268435456 bytes") as error:
        decode_batch(view, header)
    assert error.value.hint, "a proof calls a batch corrupt only where nothing else is known of it"
    with pytest.raises(TooLargeError) as error:
        UnpackBuffer().unpacked(view, header)
    assert error.value.hint
    assert error.value.within("east").message.startswith("east: batch at offset 0")
    assert not differ_at((view, header), (view, header), 0), "a look leaves it to the fetch"


@pytest.mark.parametrize("codec", PACKED)
def test_no_codec_makes_more_than_it_may(codec: Codec) -> None:
    def peak_of(data: Buffer) -> int:
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError):
                decompress(codec, data, 10_000)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    view, _ = one(packed(MEGABYTE, codec))
    assert peak_of(view[61:]) < 200_000
