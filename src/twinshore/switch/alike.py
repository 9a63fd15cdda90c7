"""Whether two logs hold the same right below an offset. Pure.

A switch leaves a marker right below its point, and so does each transaction that ends there. Markers, holes and records
of aborted transactions hold nothing that could be lost, so that the look goes on below them, to the last record that
either log holds: an old home that lost its end before it grew again holds another one there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from twinshore.switch.rescued import Ending, Endings
from twinshore.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from twinshore.wire.primitives import Buffer
from twinshore.wire.records import Record, iter_records

SPANS = (1, 4, 64, 1_024, 16_384)  # so many offsets are looked at, more where these hold no record


class Alike(Enum):
    """UNKNOWN: one of the logs alone holds a record there, or there is nothing to be compared."""

    SAME = auto()
    OTHER = auto()
    UNKNOWN = auto()


Batch = tuple[Buffer, BatchHeader]
Read = Callable[[int], Iterable[Batch] | None]


def alike_below(at: int, one_start: int, other_start: int, one: Read, other: Read) -> Alike:
    """By the last record below `at` of two logs, which begin at these offsets. `one` and `other` read all that lies
    from an offset up to `at`, None where it is too much or cannot be read."""
    begin = max(one_start, other_start)
    for span in SPANS:
        first = max(begin, at - span)
        if first >= at:
            break
        pages = one(first), other(first)
        if pages[0] is None or pages[1] is None:
            break
        found = _compared(_held(pages[0], first, at), _held(pages[1], first, at))
        if found is not None:
            return found
        if first == one_start:
            return Alike.SAME  # `one` holds nothing at all that could be another's
        if first == begin:
            break
    return Alike.UNKNOWN


def _held(page: Iterable[Batch], first: int, at: int) -> dict[int, tuple[Record, bool]]:
    """The records from `first` up to `at` by their offsets, each with whether its transaction was aborted."""
    endings, found = Endings(), []
    for view, header in page:
        for record in iter_records(view, header):
            if not first <= record.offset < at:
                continue
            if header.attributes & CONTROL:
                endings.note(header.producer_id, record.offset, record.key)
            else:
                found.append((record, header))
    return {
        record.offset: (record, bool(header.attributes & TRANSACTIONAL) and _aborted(endings, header, record))
        for record, header in found
    }


def _aborted(endings: Endings, header: BatchHeader, record: Record) -> bool:
    return endings.of(header.producer_id, record.offset) is Ending.ABORTED


def _compared(one: dict[int, tuple[Record, bool]], other: dict[int, tuple[Record, bool]]) -> Alike | None:
    """None where neither holds a record that could be lost."""
    for offset in sorted(one.keys() | other.keys(), reverse=True):
        held = [log[offset] for log in (one, other) if offset in log]
        if len(held) == 2:
            return Alike.SAME if held[0][0] == held[1][0] else Alike.OTHER
        if not held[0][1]:
            return Alike.UNKNOWN
    return None
