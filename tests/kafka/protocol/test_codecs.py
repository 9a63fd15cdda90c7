"""Codecs: round trips, the frames Kafka's clients demand, and input that lies about its size."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.protocol.strategies import CODECS, one, raw_batch
from twinshore.config.errors import WireError
from twinshore.kafka.protocol.record_batch import Codec, compress, decode_batch, decompress, decompress_into

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b'{"name": "twin", "offset": 12345}' * 10_000


@given(st.binary(max_size=300) | st.integers(1, 5_000).map(lambda n: bytes(range(256)) * n), CODECS)
def test_what_is_compressed_decompresses_equal(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, data))) == data


@given(st.lists(st.tuples(st.binary(max_size=300) | st.just(TEXT), CODECS), max_size=6))
def test_a_room_used_again_holds_each_in_turn(given_in_turn: list[tuple[bytes, Codec]]) -> None:
    room = bytearray(64)
    for data, codec in given_in_turn:
        room, plain = decompress_into(codec, compress(codec, data), room)
        assert plain == data
    with pytest.raises(WireError, match="more than 1000 bytes"):
        decompress_into(Codec.LZ4, compress(Codec.LZ4, TEXT), bytearray(1 << 20), 1000)
    with pytest.raises(WireError, match="malformed zstd"):
        decompress_into(Codec.ZSTD, b"no such thing", room)


def test_gzip_is_pythons_own() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT)) == TEXT


def test_snappy_is_written_in_xerials_frame_and_read_in_both() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    # Java's stream accepts two frames joined, as two flushed writers leave them.
    assert decompress(Codec.SNAPPY, framed + framed) == TEXT + TEXT


def test_lz4_blocks_are_independent_and_64_kb() -> None:
    framed = compress(Codec.LZ4, TEXT)
    assert framed[:7] == bytes.fromhex("04224d18604082")
    assert framed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(framed)) == TEXT
    noise = bytes(cramjam.zstd.compress(bytes(range(256)) * 40)) * 900
    assert decompress(Codec.LZ4, compress(Codec.LZ4, noise)) == noise
    # Frames whose blocks are linked and whose contents are summed are read, never written.
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))) == TEXT


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("limit_bytes", [1, 1_000, len(TEXT) - 1])
def test_output_beyond_the_limit_is_refused(codec: Codec, limit_bytes: int) -> None:
    with pytest.raises(WireError, match=f"holds more than {limit_bytes} bytes"):
        decompress(codec, compress(codec, TEXT), limit_bytes)
    assert decompress(codec, compress(codec, TEXT), len(TEXT)) == TEXT


def test_uncompressed_data_has_the_limit_too() -> None:
    with pytest.raises(WireError, match="holds more than 10 bytes"):
        decompress(Codec.NONE, bytes(11), 10)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    limit_bytes = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="holds more than 1048576 bytes"):
            decompress(codec, bomb, limit_bytes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The last attempt's buffer and the one before it; the codecs' own windows are not Python's to count.
    assert peak < 2 * limit_bytes + (64 << 10)


@pytest.mark.parametrize("codec", PACKED)
def test_data_cut_short_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in (1, 5, len(packed) // 2, len(packed) - 2):
        with pytest.raises(WireError, match=codec.name.lower()):
            decompress(codec, packed[: len(packed) - cut], 1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_malformed_data_is_refused_without_room_for_the_limit(codec: Codec) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"malformed|claims"):
            decompress(codec, compress(codec, TEXT)[:30] + b"twin" * 50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("size", [-1, 0, 5, 1 << 30])
def test_a_snappy_block_that_lies_about_its_size_is_refused(size: int) -> None:
    framed = compress(Codec.SNAPPY, b"abc")[:16] + size.to_bytes(4, "big", signed=True) + b"\3\10"
    with pytest.raises(WireError, match=f"a snappy block claims {size} bytes of 2"):
        decompress(Codec.SNAPPY, framed)


def test_a_batch_names_itself_when_its_data_is_malformed() -> None:
    view, header = one(raw_batch(77, 1, b"not zstd at all", attributes=Codec.ZSTD))
    with pytest.raises(WireError, match="batch at offset 77: malformed zstd data"):
        decode_batch(view, header, limit_bytes=1 << 20)
