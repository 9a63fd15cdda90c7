"""Joined batches against plain Python's merging, and against everything that must end a run."""

from __future__ import annotations

import random

import numpy as np
import pytest
from crc32c import crc32c

from twinshore.config.errors import WireError
from twinshore.kafka.protocol import compiled
from twinshore.kafka.protocol.batch_join import BatchJoiner, JoinedBatches, as_source_array, can_join, join_buffer_bytes
from twinshore.kafka.protocol.record_batch import (
    CRC_START,
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

TIME_MS = 1_700_000_000_000
BELOW, MOST = 4_000, 10_000


def made(base: int, chance: random.Random, **keywords: int) -> bytes:
    """One batch of one to seventy records of every shape; base and time stamps anywhere."""
    records = [
        Record(
            base + number,
            TIME_MS + chance.choice((0, 1, 70, -70, 10**9, -(10**9))),
            chance.choice((None, b"", b"key")),
            chance.choice((None, b"", b"v" * chance.choice((1, 60, 61, 62, 130)))),
            chance.choice(((), ((b"h", None), (b"", b"x")))),
        )
        for number in range(chance.choice((1, 1, 2, 3, 70)))
    ]
    return bytes(encode_batch(records, leader_epoch=3, **keywords))  # type: ignore[arg-type]


def stretch(base: int, chance: random.Random, batches: int, **keywords: int) -> bytes:
    data = b""
    for _ in range(batches):
        data += made(base, chance, **keywords)
        base = split_batches(memoryview(data))[-1][1].last_offset + 1
    return data


def joined(data: bytes, place: int = 0, *, below: int = BELOW, most: int = MOST, room: int = 0) -> JoinedBatches | None:
    view = memoryview(data)
    header = next(found for at, found in places(data) if at == place)
    space = memoryview(bytearray(room or join_buffer_bytes(len(data)) + 100_000))
    return BatchJoiner(below_bytes=below, most_bytes=most).join(as_source_array(view), place, header, space, 0)


def places(data: bytes) -> list[tuple[int, BatchHeader]]:
    found, at = [], 0
    for view, header in split_batches(memoryview(data)):
        found.append((at, header))
        at += len(view)
    return found


def read(found: JoinedBatches) -> list[Record]:
    check_crc(encode_header(found.header) + bytes(found.body), found.header)
    return list(decode_batch(memoryview(encode_header(found.header) + bytes(found.body)), found.header))


def seen_by_consumers(data: bytes) -> list[Record]:
    return [record for view, header in split_batches(memoryview(data)) for record in decode_batch(view, header)]


def test_this_machine_joins() -> None:
    assert can_join(), "numba is among the dependencies"


@pytest.mark.parametrize("base", [0, 63, 2**31 - 40, 2**62])
def test_joined_records_read_as_before(base: int) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        data = stretch(base, chance, chance.randint(2, 30), producer_id=5, base_sequence=7)
        found = joined(data)
        assert found is not None, f"seed {seed}"
        assert read(found) == seen_by_consumers(data[: found.end]), f"seed {seed}"
        headers = [header for at, header in places(data) if at < found.end]
        assert found.batches == len(headers)
        assert found.header.max_timestamp == max(record.timestamp for record in read(found))
        assert found.header.leader_epoch == 3
        assert len(found.body) <= MOST + 70 * 24 + BELOW
        assert found.producers == [(5, h.producer_epoch, 7, 7 + h.count - 1, h[0], h[8]) for h in headers][-5:]


def test_the_last_five_batches_of_each_of_many_producers_are_told() -> None:
    chance = random.Random(3)
    for known in (1, 2, 40, 64):
        data, base, wrote = b"", 0, []
        for number in range(300):
            producer = number % known if number < known else chance.randrange(known)
            sequence = chance.choice((0, 9, 2**31 - 1))
            data += bytes(
                encode_batch(
                    [Record(base, TIME_MS, None, b"x"), Record(base + 1, TIME_MS, None, b"y")],
                    producer_id=producer,
                    producer_epoch=2,
                    base_sequence=sequence,
                )
            )
            wrote.append((producer, 2, sequence, (sequence + 1) % 2**31, base, TIME_MS))
            base += 2
        found = joined(data, most=1 << 20)
        assert found is not None and found.batches == 300
        for producer in range(known):
            ours = [entry for entry in wrote if entry[0] == producer]
            assert [entry for entry in found.producers if entry[0] == producer] == ours[-5:]
        assert [entry[4] for entry in found.producers] == sorted(entry[4] for entry in found.producers)


def test_a_run_ends_where_its_producers_are_too_many_to_remember() -> None:
    data = b"".join(
        bytes(encode_batch([Record(n, TIME_MS, None, b"x")], producer_id=n, base_sequence=0)) for n in range(400)
    )
    found = joined(data, most=1 << 20)
    assert found is not None
    assert found.batches == len(found.producers) == 320


@pytest.mark.parametrize("what", ["codec", "append time", "transaction", "gap", "large", "damage", "holes", "cut"])
def test_whatever_is_unusual_ends_the_run_before_it(what: str) -> None:
    chance = random.Random(1)
    before = stretch(0, chance, 4)
    offset = split_batches(memoryview(before))[-1][1].last_offset + 1
    record = Record(offset, TIME_MS, None, b"value")
    odd = {
        "codec": lambda: encode_batch([record], codec=Codec.GZIP),
        "append time": lambda: encode_batch([record], attributes=0x08),
        "transaction": lambda: encode_batch([record], attributes=0x10, producer_id=1, base_sequence=0),
        "gap": lambda: encode_batch([record._replace(offset=offset + 1)]),
        "large": lambda: encode_batch([record._replace(value=b"v" * BELOW)]),
        "damage": lambda: encode_batch([record])[:-1] + b"\x01",
        "holes": lambda: encode_batch([record, record._replace(offset=offset + 2)]),
        "cut": lambda: encode_batch([record])[:-1],
    }[what]()
    after = b"" if what == "cut" else bytes(encode_batch([record._replace(offset=offset + 3)]))
    found = joined(before + bytes(odd) + after, most=1 << 20)
    assert found is not None
    assert found.end == len(before)
    assert read(found) == seen_by_consumers(before)


def test_one_batch_alone_is_not_copied() -> None:
    data = bytes(encode_batch([Record(0, TIME_MS, None, b"x")]))
    assert joined(data) is None
    assert joined(data + bytes(encode_batch([Record(5, TIME_MS, None, b"x")]))) is None


def test_a_room_too_small_ends_the_run_and_nothing_is_written_behind_it() -> None:
    data = stretch(0, random.Random(8), 40)
    for room in (300, 1_000, 3_000, 5_000):
        found = joined(data, room=room)
        if found is not None:
            assert len(found.body) <= room
            assert read(found) == seen_by_consumers(data[: found.end])


def test_hostile_records_under_a_right_crc_never_cross_a_border() -> None:
    """Every byte of the records turned into anything, with a CRC that fits: the run ends, or what it gives is whole."""
    from crc32c import crc32c

    ended = 0
    for seed in range(4_000):
        chance = random.Random(seed)
        first = made(0, chance)
        start = split_batches(memoryview(first))[0][1].last_offset + 1
        second = bytearray(made(start, chance))
        for _ in range(chance.choice((1, 1, 3, 20))):
            second[chance.randrange(61, len(second))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        second[17:21] = crc32c(bytes(second[CRC_START:])).to_bytes(4, "big")
        found = joined(first + bytes(second))
        ended += found is None
        if found is not None:
            try:
                want = seen_by_consumers(bytes(second))
            except WireError:
                continue  # a key or a header ends nowhere: the joined records are as wrong as the source's, no more
            assert read(found)[start:] == want, f"seed {seed}"
    assert ended > 500


def test_time_stamps_out_of_range_are_left_to_the_careful_way() -> None:
    far = bytes(encode_batch([Record(0, 2**62, None, b"x")])) + bytes(encode_batch([Record(1, 2**62, None, b"x")]))
    assert joined(far) is None


def test_the_compiled_crc_is_that_of_the_library_at_every_length_and_place() -> None:
    seed = random.randrange(1 << 30)
    data = random.Random(seed).randbytes(20_000)
    source = np.frombuffer(data, dtype=np.uint8)
    lanes = [3 * compiled.LANE * times + more for times in (1, 2, 5) for more in (-1, 0, 1, 7, 8, 9)]
    for size in [*range(70), *lanes]:
        for place in (0, 1, 61):
            assert compiled.crc_of(source, place, place + size) == crc32c(data[place : place + size]), f"seed {seed}"


def large(base: int, chance: random.Random) -> bytes:
    """Records about as large as those that are checked, copied and sealed in one pass, and far larger."""
    most = chance.choice((2, 3, 8, 50)) * compiled.ONE_PASS_BYTES // 2
    sizes = [chance.randint(0, most) for _ in range(chance.choice((1, 2, 9)))]
    records = [
        Record(base + number, TIME_MS + chance.randint(-70, 70), chance.choice((None, b"key")), chance.randbytes(size))
        for number, size in enumerate(sizes)
    ]
    return bytes(encode_batch(records))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_records_of_every_size_are_sealed_as_they_are_copied(first: int) -> None:
    for seed in range(first, first + 50):
        chance, data, base = random.Random(seed), b"", 60
        for _ in range(chance.randint(2, 12)):
            data += large(base, chance)
            base = split_batches(memoryview(data))[-1][1].last_offset + 1
        found = joined(data, below=1 << 20, most=1 << 20)
        assert found is not None and found.end == len(data), f"seed {seed}"
        assert found.header == seal(found.header, found.body)
        assert read(found) == seen_by_consumers(data), f"seed {seed}"


def test_damage_anywhere_in_a_batch_ends_the_run_before_it() -> None:
    chance = random.Random(7)
    record = Record(0, TIME_MS, b"key", chance.randbytes(900))
    sound = [bytes(encode_batch([record._replace(offset=at)])) for at in range(4)]
    before, first = len(sound[0]) + len(sound[1]), places(sound[0])[0][1]
    joiner = BatchJoiner(below_bytes=1 << 20, most_bytes=1 << 20)
    for place in range(CRC_START, len(sound[2])):
        hurt = bytearray(sound[2])
        hurt[place] ^= 1 << chance.randrange(8)
        source = as_source_array(memoryview(b"".join([*sound[:2], bytes(hurt), sound[3]])))
        found = joiner.join(source, 0, first, memoryview(bytearray(join_buffer_bytes(1 << 16))), 0)
        assert found is not None, f"byte {place}"
        assert (found.end, found.batches) == (before, 2), f"byte {place}"
        assert read(found) == [record, record._replace(offset=1)], f"byte {place}"
