"""Hostile bytes: valid input, damaged at random, must give an answer or a WireError, soon and in little memory.

    python -m tests.wire.fuzz_hostile --seconds 600 [--seed N]

A failure prints the seed, the round and the bytes; the same seed replays it.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import psutil
from crc32c import crc32c

from tests.kafka.protocol.strategies import slice_batch
from twinshore.config.errors import WireError
from twinshore.kafka.protocol import fetch as serving_fetch
from twinshore.kafka.protocol import produce as serving_produce
from twinshore.kafka.protocol.fetch import (
    FETCH_VERSION_BY_ID,
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    ForgottenPartition,
    parse_fetch_by_id,
)
from twinshore.kafka.protocol.framing import read_response_header
from twinshore.kafka.protocol.handshake import (
    ApiVersionRange,
    ApiVersionsResponse,
    FeatureRange,
    encode_api_versions,
    parse_api_versions,
)
from twinshore.kafka.protocol.primitives import uvarint
from twinshore.kafka.protocol.produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    read_produce_response,
)
from twinshore.kafka.protocol.record_batch import (
    CRC_START,
    HEADER_BYTES,
    Codec,
    Record,
    check_crc,
    compress,
    decode_batch,
    decompress,
    encode_batch,
    restamp,
    split_batches,
)
from twinshore.kafka.protocol.requests import Endpoint, read_request
from twinshore.kafka.protocol.rewrite import can_merge, hole_free_runs, merge_small
from twinshore.kafka.protocol.transactions import parse_describe_transactions, parse_markers

LIMIT_BYTES = 1 << 20
# A record of 7 bytes becomes a tuple of some 200; nothing here may cost more than that rate allows.
PYTHON_BYTES_MAX = 48 * LIMIT_BYTES
PROCESS_BYTES_MAX = 256 << 20
ROUND_S_MAX = 5.0

Bytes = bytes | bytearray


class Target(NamedTuple):
    name: str
    make: Callable[[random.Random], bytes]
    damage: Callable[[random.Random, bytes], bytes]
    feed: Callable[[memoryview], object]


class Failure(Exception):
    """A round that ended in neither an answer nor a WireError, or too late, or too large."""


def damaged(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(7):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                size = rng.choice((1, 2, 4, 8))
                number = rng.choice((0, -1, 1, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1)) & (1 << 8 * size) - 1
                out[at : at + size] = number.to_bytes(size, "big")
            case 3:
                del out[at : at + rng.choice((1, 2, 4, 60))]
            case 4:
                out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 60)))
            case 5:
                out[at:at] = out[at : at + rng.randrange(100)]
            case _:
                del out[at:]
    return bytes(out)


def some_records(rng: random.Random) -> list[Record]:
    offset = rng.choice((0, 5, 2**31 - 2, 2**62))
    records = []
    for _ in range(rng.choice((1, 1, 2, 40))):
        headers = tuple((b"h%d" % i, rng.choice((None, b"", b"value"))) for i in range(rng.choice((0, 0, 1, 3))))
        value = rng.choice((None, b"", rng.randbytes(10), b"v" * 300))
        records.append(Record(offset, rng.choice((0, 10**12, 10**12 + 7)), rng.choice((None, b"key")), value, headers))
        offset += rng.choice((1, 1, 1, 3))
    return records


def a_batch(rng: random.Random) -> bytes:
    codec = rng.choice(list(Codec))
    return encode_batch(some_records(rng), codec=codec, attributes=rng.choice((0, 0, 0x08, 0x10, 0x40)))


def some_batches(rng: random.Random) -> bytes:
    codec = rng.choice((Codec.NONE, Codec.NONE, *Codec))
    records = [Record(i, 10**12 + i, None, rng.randbytes(20)) for i in range(rng.choice((2, 5, 20)))]
    return b"".join(encode_batch([record], codec=codec) for record in records)


def damaged_batches(rng: random.Random, data: bytes) -> bytes:
    """Damage in headers, in records, or in what the records decompress to; mostly with lengths and CRCs put right."""
    out = []
    for view, header in split_batches(memoryview(data)):
        head, body = bytearray(view[:HEADER_BYTES]), bytes(view[HEADER_BYTES:])
        if rng.random() < 0.6:
            codec = Codec(header.attributes & 7)
            if rng.random() < 0.5:
                body = compress(codec, damaged(rng, decompress(codec, body)))
            else:
                body = damaged(rng, body)
        if rng.random() < 0.4:
            head[CRC_START:] = damaged(rng, bytes(head[CRC_START:]))[: HEADER_BYTES - CRC_START].ljust(40, b"\0")
        if rng.random() < 0.9:
            head[8:12] = struct.pack(">i", HEADER_BYTES - 12 + len(body))
            head[17:21] = struct.pack(">I", crc32c(body, crc32c(bytes(head[CRC_START:]))))
        out.append(bytes(head) + body)
    whole = b"".join(out)
    return damaged(rng, whole) if rng.random() < 0.2 else whole


def feed_batches(view: memoryview) -> None:
    for batch, header in split_batches(view):
        last = header.last_offset
        for step in (
            lambda b, h: decode_batch(b, h, limit_bytes=LIMIT_BYTES),
            check_crc,
            lambda _, h: restamp(h, 1, 0, 5),
            lambda b, h: hole_free_runs(b, h, limit_bytes=LIMIT_BYTES),
            lambda b, h, last=last: slice_batch(b, h, last, last + 1, limit_bytes=LIMIT_BYTES),
        ):
            _allowed(step, batch, header)


def feed_merge(view: memoryview) -> None:
    batches = split_batches(view)
    if all(can_merge(before[1], after[1]) for before, after in pairwise(batches)) and len(batches) > 1:
        merge_small(batches, plain_bytes_max=LIMIT_BYTES)


def _allowed(step: Callable[..., object], *arguments: object) -> None:
    try:
        step(*arguments)
    except WireError:
        pass


def a_fetch(rng: random.Random) -> bytes:
    def part() -> bytes:
        aborted = rng.choice((b"\0", b"\1", b"\2" + struct.pack(">qqB", 5, 6, 0)))
        tags = rng.choice((b"\0", b"\1\0\15" + struct.pack(">iqB", 1, 2, 0), b"\1\1\11" + struct.pack(">iiB", 1, 2, 0)))
        records = a_batch(rng)
        fields = struct.pack(">ihqqq", 1, 0, 9, 9, 0) + aborted + struct.pack(">i", -1)
        return fields + uvarint(len(records) + 1) + records + tags

    parts = [part() for _ in range(rng.randrange(4))]
    topic = bytes(16) + uvarint(len(parts) + 1) + b"".join(parts) + b"\0"
    return struct.pack(">ihi", 0, 0, 7) + b"\2" + topic + b"\0"


def feed_fetch(view: memoryview) -> None:
    for part in parse_fetch_by_id(view, 0).partitions:
        _allowed(feed_batches, part.records)


def a_produce(rng: random.Random) -> bytes:
    errors = rng.choice((b"\1", b"\2" + struct.pack(">i", 3) + b"\4bad\0"))
    tags = rng.choice((b"\0", b"\1\0\11" + struct.pack(">iiB", 1, 2, 0)))
    part = struct.pack(">ihqqq", 1, 0, 9, -1, 0) + errors + rng.choice((b"\0", b"\4why")) + tags
    return b"\2" + b"\7orders" + b"\3" + part * 2 + b"\0" + struct.pack(">i", 0) + b"\0"


def a_marker(rng: random.Random) -> bytes:
    parts = (struct.pack(">ih", 0, rng.choice((0, 52))) + b"\0") * 2
    return b"\3" + (struct.pack(">q", 44) + b"\2\7orders\3" + parts + b"\0\0") * 2 + b"\0"


def a_transaction(rng: random.Random) -> bytes:
    state = b"\0\0\4one\x08Ongoing" + struct.pack(">iqqh", 20_000, rng.choice((-1, 5_000)), 17, 3)
    topic = b"\7orders\3" + struct.pack(">ii", 0, 5) + b"\0"
    return bytes(4) + b"\3" + (state + b"\3" + topic * 2 + b"\0") * 2 + b"\0"


def feed_codecs(view: memoryview) -> None:
    decompress(Codec(view[0] % 5), view[1:], LIMIT_BYTES)


def packed(rng: random.Random) -> bytes:
    codec = rng.choice(list(Codec))
    plain = rng.choice((b"", rng.randbytes(300), b"twin" * 30_000, bytes(8 << 20)))
    return bytes([codec]) + compress(codec, plain)


def damaged_but_first(rng: random.Random, data: bytes) -> bytes:
    return data[:1] + damaged(rng, data[1:])


def a_served(rng: random.Random) -> bytes:
    """Which of `SERVED`, in which version, and its bytes."""
    number = rng.randrange(len(SERVED))
    versions, _, write = SERVED[number]
    version = rng.choice(versions)
    return bytes([number, version]) + write(version, bytes(16) if version >= FETCH_VERSION_BY_ID else "orders")


def damaged_behind_both(rng: random.Random, data: bytes) -> bytes:
    return data[:2] + damaged(rng, data[2:])


def feed_served(view: memoryview) -> None:
    SERVED[view[0]][1](view, 2, view[1])


def _produce_request(version: int, topic: str | bytes) -> bytes:
    batches = [ProduceRequestPartition(topic, 0, b"abc"), ProduceRequestPartition(topic, 1, None)]
    return b"".join(serving_produce.write_produce_request(version, ProduceRequest("tx", 1, 5000, batches)))


def _produce_answer(version: int, topic: str | bytes) -> bytes:
    part = ProducedPartition(topic, 0, 87, -1, -1, 3, "worse", (4, 5), [(2, "bad"), (3, None)])
    return serving_produce.write_produce_response(
        version, ProduceResponse([part, part], 7, [Endpoint(4, "b4", 9092, "a")])
    )


def _fetch_request(version: int, topic: str | bytes) -> bytes:
    wanted = [FetchRequestPartition(topic, number, 7, 50, 2, 2) for number in range(3)]
    asked = FetchRequest(5, 1, 99, 1, wanted, 3, 4, [ForgottenPartition(topic, 5)], "a", (1, 2))
    return serving_fetch.write_fetch_request(version, asked)


def _fetch_answer(version: int, topic: str | bytes) -> bytes:
    part = FetchResponsePartition(topic, 0, 0, 9, 9, 0, [(7, 3)], 2, b"abc", (1, 2), (3, 4), (5, 6))
    answer = FetchResponse(0, 0, 3, [part, part], [Endpoint(4, "b4", 9092, None)])
    return b"".join(serving_fetch.write_fetch_response(version, answer))


def _versions(version: int, _topic: str | bytes) -> bytes:
    features = [FeatureRange("metadata.version", 1, 25)]
    return encode_api_versions(
        version, ApiVersionsResponse(0, [ApiVersionRange(0, 0, 13)] * 3, 5, features, 9, features, True)
    )


Served = tuple[range, Callable[[memoryview, int, int], object], Callable[[int, "str | bytes"], bytes]]
SERVED: tuple[Served, ...] = (
    (serving_produce.PRODUCE_VERSIONS, serving_produce.read_produce_request, _produce_request),
    (serving_produce.PRODUCE_VERSIONS, serving_produce.read_produce_response, _produce_answer),
    (serving_fetch.FETCH_VERSIONS, serving_fetch.read_fetch_request, _fetch_request),
    (serving_fetch.FETCH_VERSIONS, serving_fetch.read_fetch_response, _fetch_answer),
    (range(5), parse_api_versions, _versions),
)


TARGETS = (
    Target("batch", a_batch, damaged_batches, feed_batches),
    Target("merge", some_batches, damaged_batches, feed_merge),
    Target("fetch", a_fetch, damaged, feed_fetch),
    Target("produce", a_produce, damaged, lambda view: read_produce_response(view, 0, 12).appended),
    Target("produce by id", a_produce, damaged, lambda view: read_produce_response(view, 0, 13).appended),
    Target("markers", a_marker, damaged, lambda view: parse_markers(view, 0)),
    Target("transactions", a_transaction, damaged, lambda view: parse_describe_transactions(view, 0)),
    Target("header", lambda rng: rng.randbytes(9), damaged, read_response_header),
    Target("served", a_served, damaged_behind_both, feed_served),
    Target("request", lambda rng: rng.randbytes(12), damaged, read_request),
    Target("codec", packed, damaged_but_first, feed_codecs),
)


class Tally(NamedTuple):
    rounds: int
    refused: int


def one_round(seed: int, number: int) -> bool:
    """Whether the input was refused. Round `number` of `seed` is the same wherever it runs."""
    rng = random.Random(f"{seed}/{number}")
    target = TARGETS[number % len(TARGETS)]
    data = target.damage(rng, target.make(rng))
    refused = False
    started = time.perf_counter()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        target.feed(memoryview(data))
    except WireError:
        refused = True
    except Exception as error:
        raise Failure(f"{target.name}: seed {seed} round {number}: {error!r} for {data.hex()}") from error
    took = time.perf_counter() - started
    _, peak = tracemalloc.get_traced_memory()
    if took > ROUND_S_MAX:
        raise Failure(f"{target.name}: seed {seed} round {number}: took {took:.1f} s for {data.hex()}")
    if peak - before > PYTHON_BYTES_MAX:
        raise Failure(f"{target.name}: seed {seed} round {number}: took {peak - before} bytes for {data.hex()}")
    return refused


def rounds(seed: int, go_on: Callable[[int], bool]) -> Tally:
    process = psutil.Process()
    at_start = process.memory_info().rss
    number = refused = 0
    tracemalloc.start()
    try:
        while go_on(number):
            refused += one_round(seed, number)
            number += 1
            if number % 1_000 == 0 and (grown := process.memory_info().rss - at_start) > PROCESS_BYTES_MAX:
                raise Failure(f"seed {seed}: the process grew by {grown} bytes in {number} rounds")
    finally:
        tracemalloc.stop()
    return Tally(number, refused)


def chosen_seed() -> int:
    """TWINSHORE_SEED when it is set, to replay a failure; otherwise a new one."""
    return int(os.environ.get("TWINSHORE_SEED") or random.SystemRandom().randrange(1 << 31))


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed damaged bytes to every reader of the wire room.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = chosen_seed() if arguments.seed is None else arguments.seed
    print(f"seed {seed}")
    end = time.monotonic() + arguments.seconds
    try:
        tally = rounds(seed, lambda _: time.monotonic() < end)
    except Failure as failure:
        print(failure)
        return 1
    print(f"{tally.rounds} rounds, {tally.refused} refused, none wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
