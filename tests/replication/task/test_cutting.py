"""Fetched batches become batches: the same records at the same offsets, restamped; whatever cannot cross is named."""

from __future__ import annotations

import random
import struct

import cramjam
import pytest

from tests.kafka.protocol.strategies import slice_batch
from tests.replication.task.parcels import parse_batches, sent_under
from twinshore.kafka.protocol.primitives import Buffer, varint
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MESSAGE_BYTES_DEFAULT,
    SEQUENCE_SPAN,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    encode_header,
    seal,
    split_batches,
)
from twinshore.replication.task.core.batches import (
    BufferPool,
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    PartitionStopped,
    SequenceMap,
    make_outgoing_batch,
)
from twinshore.replication.task.core.messages import TaskLimits

STAMP = SequenceMap(producer_id=9, producer_epoch=2, base_offset=0, base_sequence=0)
LIMITS = TaskLimits(merge_below_bytes=200, merged_bytes_max=600, join_below_bytes=500)


def records(base: int, count: int, chance: random.Random) -> list[Record]:
    return [
        Record(
            base + number,
            1_700_000_000_000 + chance.randrange(-5000, 5000),
            chance.choice((None, b"", b"key%d" % number)),
            chance.choice((None, b"", b"v" * chance.choice((1, 10, 400)))),
            chance.choice(((), ((b"h", None), (b"", b"x")))),
        )
        for number in range(count)
    ]


def source(
    base: int, chance: random.Random, batches: int = 12, *, append_time: bool = False
) -> tuple[bytes, list[Record]]:
    """A stretch of a log in mixed codecs and sizes, with what consumers see of it."""
    data, seen = b"", []
    for number in range(batches):
        ours = records(base, chance.choice((1, 1, 1, 2, 7)), chance)
        attributes = LOG_APPEND_TIME_FLAG if append_time and number % 3 == 0 else 0
        batch = encode_batch(
            ours, codec=chance.choice((Codec.NONE, *Codec)), attributes=attributes, producer_id=77, leader_epoch=4
        )
        data += batch
        ((view, header),) = split_batches(memoryview(batch))
        seen += decode_batch(view, header)
        base = ours[-1].offset + 1
    return data, seen


def fed(data: bytes, position: int = 0, write_from: int = -1, *, joins: bool = False) -> ParsedFetch:
    at = position if write_from < 0 else write_from
    return parse_batches(memoryview(data), position, at, LIMITS, BufferPool(LIMITS) if joins else None)


def body_of(piece: OutgoingBatch | OffsetGap) -> Buffer:
    assert isinstance(piece, OutgoingBatch)
    return piece.body


def read_back(found: ParsedFetch, stamp: SequenceMap = STAMP) -> list[Record]:
    """The parcels' records as the twin's consumers would see them; every header is judged on the way."""
    read: list[Record] = []
    for batch, head in sent_under(stamp, found.batches):
        assert isinstance(batch, OutgoingBatch)
        ((view, header),) = split_batches(memoryview(head + bytes(batch.body)))
        check_crc(view, header)
        assert header.base_offset == 0, "brokers refuse another base offset"
        assert header.count == header.last_offset_delta + 1 == batch.end - batch.base
        assert len(view) == batch.size
        assert header.attributes & ~0x07 == 0
        assert header.max_timestamp == batch.max_timestamp
        assert (header.producer_id, header.producer_epoch) == (stamp.producer_id, stamp.producer_epoch)
        sequence = batch.base - stamp.base_offset + stamp.base_sequence
        assert header.base_sequence == sequence % SEQUENCE_SPAN
        read += [record._replace(offset=batch.base + record.offset) for record in decode_batch(view, header)]
    return read


@pytest.mark.parametrize("base", [0, 5, 2**31 - 9, 2**40])
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("joins", [False, True])
def test_batches_hold_the_same_records_at_the_same_offsets(base: int, append_time: bool, joins: bool) -> None:
    stamp = STAMP._replace(base_offset=base, base_sequence=3)
    for seed in range(40):
        data, seen = source(base, random.Random(seed), append_time=append_time)
        found = fed(data, base, joins=joins)
        assert found.stopped is None, f"seed {seed}"
        assert read_back(found, stamp) == seen, f"seed {seed}"
        assert found.end == seen[-1].offset + 1
        assert found.leader_epoch == 4
        assert sum(entry.size for entry in found.carried) == len(data)
        assert [entry[4] for carried in found.carried for entry in carried.producers][-1] < found.end
        assert [batch.base for batch in found.batches] == [base, *(batch.end for batch in found.batches[:-1])]


def test_small_neighbours_travel_as_one_within_their_limit() -> None:
    chance = random.Random(0)
    data = b"".join(encode_batch(records(number, 1, chance)) for number in range(100))
    found = fed(data)
    assert len(found.batches) < 60
    assert max(batch.size for batch in found.batches if batch.end - batch.base > 1) <= LIMITS.merged_bytes_max + 100
    assert all(isinstance(body_of(batch), bytes) for batch in found.batches if batch.end - batch.base > 1)


def test_a_large_batch_is_not_copied() -> None:
    data = encode_batch([Record(0, 5, None, b"v" * 1000)])
    (batch,) = fed(data).batches
    assert isinstance(body_of(batch), memoryview)
    assert bytes(body_of(batch)) == data[HEADER_BYTES:]


@pytest.mark.parametrize("append_time", [False, True])
def test_what_the_twin_has_is_counted_but_not_sent(append_time: bool) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        data, seen = source(0, chance, append_time=append_time)
        borders = [header.last_offset + 1 for _, header in split_batches(memoryview(data))]
        write_from = chance.choice(borders)
        found = fed(data, 0, write_from)
        assert found.stopped is None
        assert found.noted_to == write_from
        assert read_back(found) == [record for record in seen if record.offset >= write_from], f"seed {seed}"
        assert found.end == borders[-1]


def test_a_twin_that_ends_inside_a_batch_gets_the_rest_of_it() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        data, seen = source(0, chance)
        write_from = chance.randrange(seen[-1].offset + 1)
        found = fed(data, write_from)
        assert found.stopped is None
        assert read_back(found) == seen[write_from:], f"seed {seed}, from {write_from}"
        assert found.end == seen[-1].offset + 1


def test_batches_before_the_position_are_left_out() -> None:
    data, seen = source(0, random.Random(1))
    second = split_batches(memoryview(data))[1][1].base_offset
    found = fed(data, second)
    assert read_back(found) == seen[second:]


def plain(base: int, count: int = 3) -> bytes:
    return encode_batch([Record(base + number, 5, b"k", b"v" * 300) for number in range(count)])


def holed(base: int) -> bytes:
    """As compaction leaves it: the record in the middle is gone."""
    return encode_batch([Record(base, 5, b"k", b"v"), Record(base + 2, 5, b"k", b"v")])


def small(base: int) -> bytes:
    return encode_batch([Record(base + number, 5, b"k", b"v") for number in range(3)])


@pytest.mark.parametrize(
    ("odd", "aborted", "gaps", "offsets"),
    [
        (encode_batch([Record(3, 5, b"k", b"v")], attributes=TRANSACTIONAL_FLAG, producer_id=1), [], [(4, 6)], [3]),
        (
            encode_batch([Record(3, 5, b"k", b"v")], attributes=TRANSACTIONAL_FLAG, producer_id=1),
            [(1, 2)],
            [(3, 6)],
            [],
        ),
        (encode_batch([Record(3, 5, b"\0\0\0\1", b"v")], attributes=CONTROL_FLAG, producer_id=1), [], [(3, 6)], []),
        (encode_batch([], base_offset=3, last_offset=4), [], [(3, 6)], []),
        (holed(3), [], [(4, 5)], [3, 5]),
        (plain(4, 2), [], [(3, 4)], [4, 5]),
    ],
    ids=["committed", "aborted", "control", "empty", "holed", "gap"],
)
@pytest.mark.parametrize("before", [plain(0), small(0)], ids=["large", "small"])
def test_what_nobody_sees_becomes_gaps_and_takes_no_sequence(
    before: bytes, odd: bytes, aborted: list[tuple[int, int]], gaps: list[tuple[int, int]], offsets: list[int]
) -> None:
    records = memoryview(before + odd + plain(6))
    found = parse_batches(records, 0, 0, LIMITS, None, aborted)
    assert found.stopped is None
    assert found.end == 9
    assert [piece for piece in found.batches if isinstance(piece, OffsetGap)] == gaps
    at, sequence, read = 0, 0, []
    for piece, head in sent_under(STAMP, found.batches):
        assert piece.base == at
        at = piece.end
        if isinstance(piece, OutgoingBatch):
            ((view, header),) = split_batches(memoryview(head + bytes(piece.body)))
            assert header.base_sequence == sequence
            sequence += header.count
            read += [piece.base + record.offset for record in decode_batch(view, header)]
    assert at == 9
    assert read == [0, 1, 2, *offsets, 6, 7, 8]
    assert sequence == len(read)


@pytest.mark.parametrize("size", [1, 300], ids=["small", "large"])
@pytest.mark.parametrize("place", [HEADER_BYTES + 3, 18, 30, 45])
def test_a_corrupt_batch_stops_there_and_names_its_offset(size: int, place: int) -> None:
    good = [encode_batch([Record(number, 5, b"k", b"v" * size)]) for number in range(5)]
    damaged = bytearray(good[3])
    damaged[place] ^= 0x40
    found = fed(b"".join([*good[:3], bytes(damaged), *good[4:]]))
    assert isinstance(found.stopped, PartitionStopped)
    assert found.stopped.kind == "corrupt batch"
    assert "offset 3" in found.stopped.sentence
    assert (found.stopped.offset, found.stopped.end) == (3, 4)
    assert [record.offset for record in read_back(found)] == [0, 1, 2], "what is sound crosses first, no more"
    assert found.end == 3


def test_damage_in_the_first_batch_lets_nothing_through() -> None:
    damaged = bytearray(encode_batch([Record(0, 5, b"k", b"v")]))
    damaged[-1] ^= 1
    found = fed(bytes(damaged) + encode_batch([Record(1, 5, b"k", b"v")]))
    assert isinstance(found.stopped, PartitionStopped)
    assert (found.batches, found.end, found.stopped.offset) == ([], 0, 0)


def test_a_record_count_that_lies_is_not_carried() -> None:
    data = bytearray(plain(0))
    struct.pack_into(">i", data, 57, 2)
    found = fed(bytes(data))
    assert found.batches == []
    assert isinstance(found.stopped, PartitionStopped)


@pytest.mark.claim("crossing", "packed-better", "a batch that its producer packed better than we do crosses in parts")
def test_a_batch_that_becomes_larger_as_it_is_written_anew_crosses_in_parts() -> None:
    """As a producer fills one up to `max.message.bytes`, with a level that the task does not know of."""
    chance = random.Random(1)
    words = [f"{chance.getrandbits(chance.choice((12, 20, 28))):x}" for _ in range(3000)]
    plain = bytearray()
    for delta in range(9_100):
        value = " ".join(chance.choice(words) for _ in range(48)).encode()
        rest = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        plain += varint(len(rest)) + rest
    body = bytes(cramjam.zstd.compress(bytes(plain), level=19))
    bits = int(Codec.ZSTD) | LOG_APPEND_TIME_FLAG
    header = seal(BatchHeader(0, 0, 3, 2, 0, bits, 9_099, 5, 6, -1, -1, -1, 9_100), body)
    assert len(body) + HEADER_BYTES <= MESSAGE_BYTES_DEFAULT
    whole, _ = slice_batch(memoryview(encode_header(header) + body), header, 0, 9_100)
    assert len(whole) + HEADER_BYTES > MESSAGE_BYTES_DEFAULT, "it would be refused"
    found = fed(encode_header(header) + body)
    assert [(one.base, one.end) for one in found.batches] == [(0, 4_550), (4_550, 9_100)]
    assert all(isinstance(one, OutgoingBatch) and one.size <= MESSAGE_BYTES_DEFAULT for one in found.batches)
    assert (found.end, found.stopped) == (9_100, None)


def test_a_body_that_is_not_the_headers_is_refused() -> None:
    ((view, header),) = split_batches(memoryview(plain(0)))
    with pytest.raises(ValueError, match="under a header for"):
        make_outgoing_batch(header, view[HEADER_BYTES + 1 :])
