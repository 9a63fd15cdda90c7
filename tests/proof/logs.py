"""Logs as a broker would send them, batched at random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from twinshore.kafka.protocol.record_batch import Codec, Record, encode_batch
from twinshore.proof.core.record_rows import Chunk, Chunker


def records(chance: random.Random, count: int, *, start: int = 0, holes: float = 0.0) -> list[Record]:
    """Records of every shape; with `holes` some offsets are nobody's."""
    found: list[Record] = []
    offset = start
    while len(found) < count:
        if chance.random() < holes:
            offset += chance.randint(1, 40)
        key = None if chance.random() < 0.2 else b"k%d" % chance.randrange(50)
        value = None if chance.random() < 0.1 else chance.randbytes(chance.choice([0, 1, 7, 8, 9, 63, 300]))
        headers = tuple((b"h%d" % n, chance.choice([None, b"", b"x"])) for n in range(chance.randrange(3)))
        found.append(Record(offset, 1_700_000_000_000 + chance.randrange(-5, 10_000), key, value, headers))
        offset += 1
    return found


def batched(
    chance: random.Random,
    log: Sequence[Record],
    end: int,
    *,
    codecs: Sequence[Codec] = tuple(Codec),
    most: int = 30,
    first: int | None = None,
) -> bytes:
    """The records in batches of random sizes and codecs, which reach to `end`."""
    out, at = [], 0
    begin = first
    while at < len(log):
        size = chance.randint(1, most)
        part = log[at : at + size]
        at += size
        last = end - 1 if at >= len(log) else chance.randint(part[-1].offset, log[at].offset - 1)
        out.append(
            encode_batch(
                part,
                codec=chance.choice(codecs),
                base_offset=begin,
                last_offset=last,
                producer_id=chance.randrange(9),
                base_sequence=chance.randrange(99),
            )
        )
        begin = None
    return b"".join(out)


def chunks(data: bytes) -> Iterator[Chunk]:
    """As a reader gives them."""
    return Chunker().chunks(memoryview(data), ())
