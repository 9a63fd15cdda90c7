"""What becomes of a source batch: its records cross, or its offsets are taken by markers that nobody sees.

Read below the last stable offset, every fate is known: a fetch names the transactions that were aborted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twinshore.wire.batch import CONTROL, HEADER_BYTES, TIMESTAMP_APPEND, TRANSACTIONAL, BatchHeader, check_crc
from twinshore.wire.primitives import Buffer
from twinshore.wire.records import iter_records
from twinshore.wire.slice import hole_free_runs, slice_runs

_ABORT = 0
_CONTROL_KEY_BYTES = 4
_CONTROL_BYTES_MAX = 1 << 20
# Of so many records one batch is made where batches are written anew: a long one becomes several, each made quickly.
ANEW_RECORDS_MAX = 1 << 14


class Blank(NamedTuple):
    """Offsets [base, end) that no consumer of the source sees: control records, aborted ones, holes of compaction."""

    base: int
    end: int

    @property
    def skipped(self) -> int:
        """Over how many offsets the sequences of what comes behind do not go on."""
        return self.end - self.base

    @property
    def size(self) -> int:
        """Bytes it keeps busy here."""
        return 0


class Leap(Blank):
    """Such offsets before the link's first record, whose sequence follows its offset whatever came before it."""

    __slots__ = ()

    @property
    def skipped(self) -> int:
        return 0


class Piece(NamedTuple):
    """Records that cross: a batch without holes, its header still the source's own but for what was cut.
    `unpacked` is how many bytes were unpacked for it."""

    body: Buffer
    header: BatchHeader
    unpacked: int = 0


class Aborted:
    """Which transactional batches of one fetch were aborted; batches must be shown in their order, each once."""

    def __init__(self, listed: Iterable[tuple[int, int]]) -> None:
        """`listed`: producer id and first offset of each, as the fetch names them."""
        self._coming = sorted(listed, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def hides(self, view: memoryview, header: BatchHeader) -> bool:
        """Whether a transactional or control batch is not to be seen by anybody."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.attributes & CONTROL:
            if header.producer_id in self._open and _aborts(view, header):
                self._open.discard(header.producer_id)
            return True
        return header.producer_id in self._open


def _aborts(view: memoryview, header: BatchHeader) -> bool:
    """A control batch that compaction has emptied says nothing any more: the data it closed is gone as well."""
    if not header.count:
        return False
    check_crc(view, header)
    key = next(iter_records(view, header, limit_bytes=_CONTROL_BYTES_MAX)).key or b""
    return len(key) >= _CONTROL_KEY_BYTES and int.from_bytes(key[2:4], "big") == _ABORT


def fates(
    view: memoryview, header: BatchHeader, position: int, write_from: int, aborted: Aborted
) -> Iterator[Blank | Piece]:
    """The fates of offsets from `position` to the batch's end, in order. What lies below `write_from` is on the twin
    already: of that only the blanks are named, each on one side of it. Each is made when it is asked for."""
    hidden = bool(header.attributes & (CONTROL | TRANSACTIONAL)) and aborted.hides(view, header)
    spans = list(_spans(view, header, position, hidden=hidden))
    runs = [(max(base, write_from), end) for base, end, seen in spans if seen and end > write_from]
    most = ANEW_RECORDS_MAX
    if runs == [(header.base_offset, header.last_offset + 1)] and not header.attributes & TIMESTAMP_APPEND:
        check_crc(view, header)
        most, pieces = header.count, iter([Piece(view[HEADER_BYTES:], header)])
    else:
        pieces = _pieces(view, header, runs)
    for base, end, seen in spans:
        if not seen:
            if base < write_from:
                yield Blank(base, min(end, write_from))
            if end > write_from:
                yield Blank(max(base, write_from), end)
        elif end > write_from:
            for _ in range(max(base, write_from), end, most):
                yield next(pieces)


def _spans(view: memoryview, header: BatchHeader, at: int, *, hidden: bool) -> Iterator[tuple[int, int, bool]]:
    """Offsets from `at` to the batch's end, without a gap: first, end, and whether consumers see them."""
    stop = header.last_offset + 1
    if hidden or not header.count:
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


def _pieces(view: memoryview, header: BatchHeader, runs: list[tuple[int, int]]) -> Iterator[Piece]:
    """Some for each run."""
    parts = [(at, min(at + ANEW_RECORDS_MAX, end)) for first, end in runs for at in range(first, end, ANEW_RECORDS_MAX)]
    if len(parts) > 1 and header.count == header.last_offset_delta + 1:
        hole_free_runs(view, header)  # Nothing of a batch crosses of which a part cannot be read.
    return (Piece(*sliced) for sliced in slice_runs(view, header, parts))
