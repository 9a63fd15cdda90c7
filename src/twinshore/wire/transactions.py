"""DescribeTransactions v0: how transactions stand. By hand, since coordinators date those that never began at -1."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinshore.wire.apis import DESCRIBE_TRANSACTIONS
from twinshore.wire.primitives import (
    I16,
    I32,
    NO_TAGS,
    PAST_END,
    compact_string,
    read_compact_string,
    read_count,
    skip_tags,
    truncated,
    uvarint,
)

TRANSACTIONS_KEY = DESCRIBE_TRANSACTIONS

_DATES_AND_PRODUCER = struct.Struct(">iqqh")


class Transaction(NamedTuple):
    """`partitions`: those whose markers are still to come."""

    error: int
    name: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]


def encode_transactions(names: Sequence[str]) -> bytes:
    """The request's body: transactional ids of one coordinator."""
    return b"".join([uvarint(len(names) + 1), *map(compact_string, names), NO_TAGS])


def parse_transactions(view: memoryview, position: int) -> list[Transaction]:
    """One for each id that was asked about."""
    found: list[Transaction] = []
    try:
        count, position = read_count(view, position + 4)
        for _ in range(count):
            (error,) = I16.unpack_from(view, position)
            name, position = read_compact_string(view, position + 2)
            state, position = read_compact_string(view, position)
            _, _, producer_id, epoch = _DATES_AND_PRODUCER.unpack_from(view, position)
            topics, position = read_count(view, position + _DATES_AND_PRODUCER.size)
            partitions: list[tuple[str, int]] = []
            for _ in range(topics):
                topic, position = read_compact_string(view, position)
                numbers, position = read_count(view, position)
                for _ in range(numbers):
                    partitions.append((topic or "", I32.unpack_from(view, position)[0]))
                    position += 4
                position = skip_tags(view, position)
            position = skip_tags(view, position)
            found.append(Transaction(error, name or "", state or "", producer_id, epoch, partitions))
        skip_tags(view, position)
    except PAST_END as past_end:
        raise truncated("a transactions response", view) from past_end
    return found
