"""The five codecs of record batches, as Kafka's own clients and brokers frame them.

`decompress` never makes more than a named number of bytes, whatever its input claims. Compression uses each codec's
usual level: what is compressed anew here is a small part of what crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import cramjam

from twinshore.fleet.errors import TooLargeError, WireError
from twinshore.wire.primitives import Buffer

DECOMPRESSED_BYTES_MAX = 256 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32 << 10
# Kafka's Java clients read only LZ4 frames whose blocks are independent, which cramjam does not write; so the frame is
# written here: magic, flags (version 1, independent blocks), 64 KB blocks, and the checksum of those two bytes.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_END = b"\0\0\0\0"
_FIRST_GUESS_BYTES = 16 << 10
# How a full output buffer is told from malformed input: the words of Rust's standard library, passed on as they are.
_NO_ROOM = "failed to write whole buffer"


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    try:
        return Codec(attributes & 0x07)
    except ValueError as error:
        raise WireError(f"batch attributes {attributes:#x} name the unknown codec {attributes & 0x07}") from error


def compress(codec: Codec, data: Buffer) -> bytes:
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESS[codec](data)


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Raises WireError for malformed input, TooLargeError for output beyond `limit_bytes`."""
    if codec is Codec.NONE or not data:
        if len(data) > limit_bytes:
            raise _too_large(codec, limit_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _snappy(data, limit_bytes)
    into = _DECOMPRESS_INTO[codec]
    guess = max(_FIRST_GUESS_BYTES, 8 * len(data))
    while True:
        size = min(guess, limit_bytes)
        out = bytearray(size)
        try:
            made = into(data, out)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise WireError(f"malformed {codec.name.lower()} data: {error}") from error
            if size == limit_bytes:
                raise _too_large(codec, limit_bytes) from error
            # All the attempts together write at most 4/3 of what the last one does.
            guess *= 4
            continue
        del out[made:]
        return bytes(out)


def decompress_again(
    codec: Codec, data: Buffer, room: bytearray, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[bytearray, memoryview]:
    """As `decompress`, into `room` or, where that is too small, a larger one: the room to use next time, and what was
    made. A fresh buffer each time costs several times what decompressing does."""
    into = _DECOMPRESS_INTO.get(codec)
    if into is not None and data:
        try:
            made = into(data, room)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise WireError(f"malformed {codec.name.lower()} data: {error}") from error
        else:
            if made > limit_bytes:
                raise _too_large(codec, limit_bytes)
            return room, memoryview(room)[:made]
    plain = decompress(codec, data, limit_bytes)
    larger = bytearray(min(limit_bytes, 2 * len(plain))) if len(plain) > len(room) else room
    return larger, memoryview(plain)


def _snappy(data: Buffer, limit_bytes: int) -> bytes:
    """Snappy in xerial's frame, as Java clients and brokers write it, or bare, as librdkafka does."""
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _snappy_block(view, limit_bytes, limit_bytes)
    made = []
    left = limit_bytes
    position, end = 0, len(view)
    while position < end:
        if view[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= end - position:
            raise WireError(f"a snappy block claims {size} bytes of {max(end - position, 0)}", offset=position)
        block = _snappy_block(view[position : position + size], left, limit_bytes)
        made.append(block)
        left -= len(block)
        position += size
    return b"".join(made)


def _snappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise WireError(f"malformed snappy data: {error}") from error


def _snappy_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += [len(block).to_bytes(4, "big"), block]
    return b"".join(out)


def _lz4_frame(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += [len(block).to_bytes(4, "little"), block]
        else:
            out += [(len(plain) | 1 << 31).to_bytes(4, "little"), bytes(plain)]
    out.append(_LZ4_END)
    return b"".join(out)


def _too_large(codec: Codec, limit_bytes: int) -> TooLargeError:
    sentence = f"its {codec.name.lower()} data holds more than {limit_bytes} bytes, too many to be unpacked here"
    return TooLargeError(sentence, hint="its bytes may be sound: nobody has looked into them")


_COMPRESS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    Codec.SNAPPY: _snappy_xerial,
    Codec.LZ4: _lz4_frame,
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
_DECOMPRESS_INTO: dict[Codec, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
