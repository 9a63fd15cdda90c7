"""Which offsets read-committed consumers see (no control or aborted records, no compaction holes), and when records of
two clusters are the same. Below the last stable offset a fetch lists all aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Headers,
    check_crc,
    iter_records,
)
from twinshore.kafka.protocol.rewrite import hole_free_runs

_ABORT = 0
_CONTROL_KEY_BYTES = 4
_CONTROL_BYTES_MAX = 1 << 20


class AbortedTransactions:
    """The aborted transactions of one fetch. Pass batches in order, each once."""

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        """`listed`: producer id and first offset of each, from the fetch."""
        self._coming = sorted(listed, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def hides(self, view: memoryview, header: BatchHeader) -> bool:
        """Whether consumers do not see the batch's records."""
        if not header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
            return False
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.attributes & CONTROL_FLAG:
            if header.producer_id in self._open and _aborts(view, header):
                self._open.discard(header.producer_id)
            return True
        return header.producer_id in self._open


def _aborts(view: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch is an abort. Not one emptied by compaction: its data is gone as well."""
    if not header.count:
        return False
    check_crc(view, header)
    key = next(iter_records(view, header, limit_bytes=_CONTROL_BYTES_MAX)).key or b""
    return len(key) >= _CONTROL_KEY_BYTES and int.from_bytes(key[2:4], "big") == _ABORT


def visible_spans(
    view: memoryview, header: BatchHeader, at: int, aborted: AbortedTransactions
) -> Iterator[tuple[int, int, bool]]:
    """Yields (first, end, visible) without gaps from `at` to the batch's end."""
    stop = header.last_offset + 1
    if aborted.hides(view, header) or not header.count:
        runs = []
    elif header.count == header.last_offset_delta + 1:
        runs = [(header.base_offset, stop)]
    else:
        check_crc(view, header)
        runs = hole_free_runs(view, header)
    for first, end in runs:
        if end <= at:
            continue
        if first > at:
            yield at, first, False
        yield max(first, at), end, True
        at = end
    if at < stop:
        yield at, stop, False


class RecordContent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class DatedContent(NamedTuple):
    """A record's content and timestamp; None for LogAppendTime."""

    content: RecordContent
    timestamp_ms: int | None

    def copied_from(self, theirs: DatedContent) -> bool:
        """Whether this may be a copy of `theirs`: copies keep timestamps if the target's broker allows."""
        return self.content == theirs.content and self.timestamp_ms in (None, theirs.timestamp_ms)
