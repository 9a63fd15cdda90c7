"""Whether a producer's batch follows on what it had written where the topic was at home before. Pure.

The new home has never heard of the producer, so it takes whatever comes first. Its old home knows what was there last:
by that a batch that comes a second time is told apart, and one that comes too early, as a client may send it while it
hears of the move for those before. Once the new home has taken a batch of the producer it checks for itself.

Where the old home is gone, the mirror knows what of the producer had crossed. A twin is a beginning of its source, so
all that the producer had written before that had crossed as well. What lies behind may be lost, so none comes too
early.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.proxy.core.leads import Wrote
from twinshore.wire.batch import HEADER_BYTES, PREFIX_BYTES, SEQUENCE_SPAN, BatchHeader, next_batch, with_producer_id
from twinshore.wire.primitives import I32, Buffer

_COUNT_AT = HEADER_BYTES - I32.size


class Sequel(Enum):
    """NEXT: it follows, or nothing is known. TWICE: it is there already. EARLY: something is missing before it, unless
    the new home has it. STALE: its producer has been shut out."""

    NEXT = auto()
    TWICE = auto()
    EARLY = auto()
    STALE = auto()


class Batch(NamedTuple):
    """The one batch that a producer may send to a partition."""

    header: BatchHeader
    data: memoryview


def batch_in(records: memoryview | bytes | None) -> Batch | None:
    """None where it is none that could be read: that is for the broker to refuse."""
    view = memoryview(records or b"")
    try:
        found = next_batch(view, 0, 0)
    except WireError:
        return None
    if found is None or len(found[0]) != len(view) or found[1].length != len(view) - PREFIX_BYTES:
        return None
    return Batch(found[1], view)


def count_in(records: memoryview | bytes | None) -> int:
    """How many records its batch says that it has: the producer's word."""
    if records is None or len(records) < HEADER_BYTES:
        return 0
    return max(0, int(I32.unpack_from(records, _COUNT_AT)[0]))


def sequel(header: BatchHeader, wrote: Wrote) -> Sequel:
    """How the batch stands to what its producer wrote last elsewhere."""
    if header.producer_epoch != wrote.epoch:
        return Sequel.NEXT if header.producer_epoch > wrote.epoch else Sequel.STALE
    ahead = distance(header.base_sequence, wrote.last)
    if ahead == 1:
        return Sequel.NEXT
    if ahead > 1:
        return Sequel.NEXT if wrote.lost else Sequel.EARLY
    return Sequel.TWICE if distance(header.base_sequence + header.count - 1, wrote.last) <= 0 else Sequel.EARLY


def offset_in(header: BatchHeader, wrote: Wrote) -> int | None:
    """Where the batch is, that came a second time; None where that is not known."""
    numbers = header.base_sequence, (header.base_sequence + header.count - 1) % SEQUENCE_SPAN
    for one in wrote.batches:
        if numbers == (one.base_sequence, one.last_sequence):
            return one.base_offset
    return None


def distance(sequence: int, last: int) -> int:
    """By how much it lies behind the last one; sequences begin anew at their end."""
    found = (sequence - last) % SEQUENCE_SPAN
    return found if found < SEQUENCE_SPAN // 2 else found - SEQUENCE_SPAN


def under(batch: Batch, producer_id: int) -> Buffer:
    """The batch as this producer's."""
    return b"".join((with_producer_id(batch.header, producer_id), batch.data[HEADER_BYTES:]))
