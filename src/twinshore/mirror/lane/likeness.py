"""Whether a twin's last records are its source's: ends and sequences alone do not tell a source that lost its end and
grew beyond it again, nor a foreign write that lies below batches of ours. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from twinshore.fleet import WireError
from twinshore.wire.batch import CONTROL, TIMESTAMP_APPEND, BatchHeader, check_crc
from twinshore.wire.primitives import Buffer
from twinshore.wire.records import Record, iter_records
from twinshore.wire.slice import REWRITE_BYTES_MAX

Batch = tuple[Buffer, BatchHeader]


def unlike(source: Batch | None, twin: Batch | None, offset: int) -> bool:
    """Whether they hold different records there."""
    return last_unlike(source, twin, offset) == offset


def last_unlike(source: Batch | None, twin: Batch | None, last: int) -> int:
    """The last offset up to `last` at which both hold a record, and another one; -1 where there is none. Nothing is
    said of what one of them lacks, or of what cannot be read: cleaners take records, damage is found when it is
    fetched, and the twin has a marker of its own wherever consumers see nothing."""
    if source is None or twin is None or twin[1].attributes & CONTROL:
        return -1
    try:
        theirs, ours = _records(source, last), _records(twin, last)
    except WireError:
        return -1
    # Where the twin's topic stamps records itself, that the topics' settings differ is told elsewhere.
    stamped = bool(twin[1].attributes & TIMESTAMP_APPEND)
    for offset in sorted(theirs.keys() & ours.keys(), reverse=True):
        one = theirs[offset]
        if one != (ours[offset]._replace(timestamp=one.timestamp) if stamped else ours[offset]):
            return offset
    return -1


def first_unlike(unlike_at: Callable[[int], bool], low: int, last: int) -> int:
    """The first offset that is unlike, where `last` is: logs that part stay parted, but for places without records."""
    while low < last:
        middle = (low + last) // 2
        if unlike_at(middle):
            last = middle
        else:
            low = middle + 1
    return last


def _records(batch: Batch, last: int) -> dict[int, Record]:
    check_crc(*batch)
    found = iter_records(*batch, limit_bytes=REWRITE_BYTES_MAX)
    return {one.offset: one for one in takewhile(lambda record: record.offset <= last, found)}
