"""Whether a twin's last record is its source's: ends and sequences alone do not tell a source that lost its end and
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
    """Whether they hold different records there. Not where one holds none, or cannot be read: cleaners take records,
    damage is found when it is fetched, and the twin has a marker of its own wherever consumers see nothing."""
    if source is None or twin is None or twin[1].attributes & CONTROL:
        return False
    try:
        theirs, ours = _record(source, offset), _record(twin, offset)
    except WireError:
        return False
    if theirs is None or ours is None:
        return False
    if twin[1].attributes & TIMESTAMP_APPEND:
        # The twin's topic stamps records itself; that the topics' settings differ is told elsewhere.
        ours = ours._replace(timestamp=theirs.timestamp)
    return theirs != ours


def first_unlike(unlike_at: Callable[[int], bool], low: int, last: int) -> int:
    """The first offset that is unlike, where `last` is: logs that part stay parted, but for places without records."""
    while low < last:
        middle = (low + last) // 2
        if unlike_at(middle):
            last = middle
        else:
            low = middle + 1
    return last


def _record(batch: Batch, offset: int) -> Record | None:
    check_crc(*batch)
    below = takewhile(lambda record: record.offset <= offset, iter_records(*batch, limit_bytes=REWRITE_BYTES_MAX))
    return next((record for record in below if record.offset == offset), None)
