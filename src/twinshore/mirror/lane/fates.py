"""What becomes of a source batch: its records cross, or its offsets are taken by markers that nobody sees.

Read below the last stable offset, every fate is known: a fetch names the transactions that were aborted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from twinshore.logs.visible import Aborted, spans
from twinshore.wire.batch import HEADER_BYTES, TIMESTAMP_APPEND, BatchHeader, check_crc
from twinshore.wire.primitives import Buffer
from twinshore.wire.slice import hole_free_runs, slice_runs

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


def within(blanks: Iterable[Blank], begin: int, end: int) -> tuple[Blank, ...]:
    """The parts of these that lie in [begin, end)."""
    cut = (Blank(max(one.base, begin), min(one.end, end)) for one in blanks)
    return tuple(one for one in cut if one.base < one.end)


def beside(blanks: Iterable[Blank], others: Sequence[Blank]) -> list[Blank]:
    """The parts of these that lie in none of the others, which are in order."""
    found: list[Blank] = []
    for base, end in blanks:
        for other in within(others, base, end):
            found += within([Blank(base, other.base)], base, end)
            base = other.end
        found += within([Blank(base, end)], base, end)
    return found


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


def fates(
    view: memoryview, header: BatchHeader, position: int, write_from: int, aborted: Aborted
) -> Iterator[Blank | Piece]:
    """The fates of offsets from `position` to the batch's end, in order. What lies below `write_from` is on the twin
    already: of that only the blanks are named, each on one side of it. Each is made when it is asked for."""
    offsets = list(spans(view, header, position, aborted))
    runs = [(max(base, write_from), end) for base, end, seen in offsets if seen and end > write_from]
    most = ANEW_RECORDS_MAX
    if runs == [(header.base_offset, header.last_offset + 1)] and not header.attributes & TIMESTAMP_APPEND:
        check_crc(view, header)
        most, pieces = header.count, iter([Piece(view[HEADER_BYTES:], header)])
    else:
        pieces = _pieces(view, header, runs)
    for base, end, seen in offsets:
        if not seen:
            if base < write_from:
                yield Blank(base, min(end, write_from))
            if end > write_from:
                yield Blank(max(base, write_from), end)
        elif end > write_from:
            for _ in range(max(base, write_from), end, most):
                yield next(pieces)


def _pieces(view: memoryview, header: BatchHeader, runs: list[tuple[int, int]]) -> Iterator[Piece]:
    """Some for each run."""
    parts = [(at, min(at + ANEW_RECORDS_MAX, end)) for first, end in runs for at in range(first, end, ANEW_RECORDS_MAX)]
    if len(parts) > 1 and header.count == header.last_offset_delta + 1:
        hole_free_runs(view, header)  # Nothing of a batch crosses of which a part cannot be read.
    return (Piece(*sliced) for sliced in slice_runs(view, header, parts))
