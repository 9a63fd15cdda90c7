"""Reads a segment of a spool, and says of bytes that cannot be read what they are. Pure: how to read is an argument.

A write that never ended leaves a **torn** tail: nothing that can be read lies behind it, and nobody was promised it.
Bytes that were on disk once and cannot be read now are **damaged**: a record behind them proves it. Between the two is
an **unfinished** batch: some of what was written together can be read, and no later write proves that all of it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from twinshore.client.spool.frames import (
    FRAME_MAGIC,
    HEADER_BYTES,
    PREFIX_BYTES,
    Framed,
    SegmentHeader,
    frame_length,
    read_frame,
)

BLOCK_BYTES = 256 << 10
Read = Callable[[int, int], bytes]


class GapKind(StrEnum):
    TORN = "torn"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a segment that are no record; reading goes on at `until`."""

    at: int
    until: int
    kind: GapKind


class Pages:
    """Bytes up to `end`, read a block at a time."""

    def __init__(self, read: Read, end: int) -> None:
        self._read, self.end = read, end
        self._begin, self._block = 0, b""

    def bytes_at(self, at: int, size: int) -> bytes:
        """So many, or as many as there are."""
        size = max(0, min(size, self.end - at))
        if at < self._begin or at + size > self._begin + len(self._block):
            self._begin, self._block = at, self._read(at, min(max(size, BLOCK_BYTES), self.end - at))
        begin = at - self._begin
        return self._block[begin : begin + size]

    def frame_at(self, at: int, salt: int) -> Framed | None:
        length = frame_length(self.bytes_at(at, PREFIX_BYTES))
        if length is None or at + length > self.end:
            return None
        found = read_frame(self.bytes_at(at, length), at, salt)
        return found if found is None or found.batch <= at else None


def framed(pages: Pages, salt: int, begin: int) -> Iterator[Framed]:
    """Records from there on, up to the first bytes that are none."""
    at = begin
    while at < pages.end and (found := pages.frame_at(at, salt)) is not None:
        yield found
        at += found.size


def scan(read: Read, header: SegmentHeader, end: int) -> Iterator[Framed | Gap]:
    """The whole segment in its order: each record that can be read, and each gap between them."""
    pages, at = Pages(read, end), HEADER_BYTES
    while at < end:
        found = pages.frame_at(at, header.salt)
        if found is not None:
            yield found
            at += found.size
            continue
        gap = gap_at(pages, header.salt, at)
        yield gap
        at = gap.until


def gap_at(pages: Pages, salt: int, at: int) -> Gap:
    """What the bytes are that begin there and are no record."""
    begin = _next(pages, salt, at + 1)
    if begin is None:
        return Gap(at, pages.end, GapKind.TORN)
    proven = False
    behind: int | None = begin
    while not proven and behind is not None:
        last = behind
        for one in framed(pages, salt, behind):
            last = one.at + one.size
            if one.batch > at:
                proven = True
                break
        behind = _next(pages, salt, last) if last < pages.end else None
    return Gap(at, begin, GapKind.DAMAGED if proven else GapKind.UNFINISHED)


def _next(pages: Pages, salt: int, at: int) -> int | None:
    """Where the next record begins that can be read."""
    while at < pages.end:
        block = pages.bytes_at(at, BLOCK_BYTES)
        place = block.find(FRAME_MAGIC)
        while place >= 0:
            if pages.frame_at(at + place, salt) is not None:
                return at + place
            place = block.find(FRAME_MAGIC, place + 1)
        if at + len(block) >= pages.end:
            return None
        at += max(1, len(block) - len(FRAME_MAGIC) + 1)
    return None
