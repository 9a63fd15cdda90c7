"""What merging costs: microseconds a record from fetched bytes to a stamped batch, on one core.

    python bench/wire_merge.py

Each workload is split, grouped, merged (every CRC checked) and stamped as the task does it; the best of several runs
counts, since the machine is shared.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from time import perf_counter

from twinshore.kafka.protocol.record_batch import BatchHeader, Codec, Record, encode_batch, restamp, split_batches
from twinshore.kafka.protocol.rewrite import can_merge, merge_small

RECORDS = 30_000
RUNS = 9
MERGED_BYTES = 64 << 10
VALUE_BYTES = 100
Batch = tuple[memoryview, BatchHeader]


def fetched(codec: Codec, records_each: int) -> memoryview:
    """Batches of `records_each` records as a broker would send them."""
    batches = []
    for base in range(0, RECORDS, records_each):
        records = [
            Record(offset, 1_700_000_000_000 + offset // 3, None, os.urandom(VALUE_BYTES))
            for offset in range(base, base + records_each)
        ]
        batches.append(encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=base))
    return memoryview(bytearray(b"".join(batches)))


def groups(batches: list[Batch]) -> list[list[Batch]]:
    found, group, size = [], batches[:1], batches[0][1].length
    for before, batch in pairwise(batches):
        length = batch[1].length
        if size + length > MERGED_BYTES or not can_merge(before[1], batch[1]):
            found.append(group)
            group, size = [], 0
        group.append(batch)
        size += length
    found.append(group)
    return found


def carry(view: memoryview) -> int:
    """One fetch's way through the merging; returns the bytes to send."""
    sent = 0
    for group in groups(split_batches(view)):
        body, header, _ = merge_small(group)
        sent += len(restamp(header, 5, 0, header.base_offset)) + len(body)
    return sent


def measure(codec: Codec, records_each: int) -> float:
    view = fetched(codec, records_each)
    best = float("inf")
    for _ in range(RUNS):
        start = perf_counter()
        sent = carry(view)
        best = min(best, perf_counter() - start)
    us = best / RECORDS * 1e6
    name = f"{codec.name.lower()}, {records_each} a batch"
    print(f"{name:<18} {us:6.2f} us/record {1e6 / us:10,.0f} records/s {len(view) / sent:6.2f} x fewer bytes")
    return round(us, 3)


def main() -> None:
    print(f"{RECORDS:,} records with values of {VALUE_BYTES} bytes, merged to at most {MERGED_BYTES:,} bytes")
    single = measure(Codec.NONE, 1)
    five = measure(Codec.NONE, 5)
    lz4 = measure(Codec.LZ4, 1)
    zstd = measure(Codec.ZSTD, 1)
    print(json.dumps({"bench": "wire_merge", "single_us": single, "five_us": five, "lz4_us": lz4, "zstd_us": zstd}))


if __name__ == "__main__":
    main()
