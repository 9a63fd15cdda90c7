"""What is copied: three shapes of topic, as ready-made batches."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass

from twinshore.service.clock import wall_ms
from twinshore.wire.codecs import Codec
from twinshore.wire.records import Record, encode_batch

PARTITIONS = 4
PLAIN_BATCH_BYTES = 16 << 10
LZ4_BATCH_BYTES = 64 << 10
_BATCH_KINDS = 4
_SEED = 20


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as brokers store it, and how many records it holds."""

    data: bytes
    records: int


@dataclass(frozen=True, slots=True)
class Workload:
    """`backlog` is how many records lie ready when a copier starts; `short_backlog` in a short run."""

    name: str
    says: str
    backlog: int
    short_backlog: int
    batches: tuple[Batch, ...]

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    @property
    def bytes_per_record(self) -> float:
        return sum(len(batch.data) for batch in self.batches) / sum(batch.records for batch in self.batches)


def plain() -> Workload:
    """1 KB records that do not compress, in 16 KB batches."""
    chance = random.Random(_SEED)
    per_batch = PLAIN_BATCH_BYTES // 1_040

    def batch() -> Batch:
        return _batch([(None, chance.randbytes(1_000)) for _ in range(per_batch)], Codec.NONE)

    return Workload(
        "plain",
        "1 KB records, uncompressed, 16 KB batches",
        6_000_000,
        4_000_000,
        tuple(batch() for _ in range(_BATCH_KINDS)),
    )


def lz4() -> Workload:
    """JSON records in batches that reach 64 KB when compressed: `batch.size` as the Java producer counts it."""
    chance = random.Random(_SEED)

    def batch() -> Batch:
        pairs = [_order(chance) for _ in range(250)]
        filled = _batch(pairs, Codec.LZ4)
        fitting = len(pairs) * LZ4_BATCH_BYTES // len(filled.data)
        pairs += [_order(chance) for _ in range(fitting - len(pairs))]
        return _batch(pairs, Codec.LZ4)

    return Workload(
        "lz4",
        "JSON records of about 250 bytes, lz4, 64 KB batches",
        48_000_000,
        36_000_000,
        tuple(batch() for _ in range(_BATCH_KINDS)),
    )


def single() -> Workload:
    """100-byte records, each a batch of its own, as producers that do not linger leave them."""
    chance = random.Random(_SEED)
    return Workload(
        "single",
        "100-byte records, one to a batch",
        8_000_000,
        5_000_000,
        tuple(_batch([(None, chance.randbytes(100))], Codec.NONE) for _ in range(_BATCH_KINDS)),
    )


WORKLOADS = {"plain": plain, "lz4": lz4, "single": single}


def _batch(pairs: Sequence[tuple[bytes | None, bytes]], codec: Codec) -> Batch:
    now_ms = wall_ms()
    records = [Record(place, now_ms + place // 50, key, value) for place, (key, value) in enumerate(pairs)]
    return Batch(encode_batch(records, codec=codec), len(records))


_CITIES = ("Lisboa", "Porto", "Trieste", "Rijeka", "Gdańsk", "Tallinn", "Malmö", "Aarhus", "Bergen", "Cork")
_STATES = ("placed", "paid", "packed", "shipped", "delivered", "returned")


def _order(chance: random.Random) -> tuple[bytes, bytes]:
    customer = chance.randrange(1_000_000)
    order = {
        "order_id": "".join(chance.choices(string.hexdigits[:16], k=24)),
        "customer_id": customer,
        "state": chance.choice(_STATES),
        "city": chance.choice(_CITIES),
        "placed_at": f"2026-03-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:07Z",
        "total_cents": chance.randrange(500, 250_000),
        "currency": "EUR",
        "items": [
            {"sku": f"SKU-{chance.randrange(100_000):05}", "count": chance.randrange(1, 5)}
            for _ in range(chance.randrange(1, 4))
        ],
    }
    return f"c{customer}".encode(), json.dumps(order, ensure_ascii=False).encode()
