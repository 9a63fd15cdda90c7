"""Both sides laid beside each other, chunk by chunk, until they part or the stretch ends. Pure: chunks are given.

Each iterator yields chunks without a gap; the target's carry the shift that makes their offsets the source's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twinshore.fleet import TwinshoreError
from twinshore.proof.chunks import Chunk, same_packed
from twinshore.proof.record_bytes import same_record
from twinshore.proof.rows import Array, Sums

Chunks = Iterator[Chunk]
Stretched = tuple[Array, Array, int, int]


@dataclass(slots=True)
class Tally:
    """What a comparison has seen to be the same. `at` is how far, on the source; `target_at` on the target, where
    offsets do not count."""

    at: int
    target_at: int = -1
    records: int = 0
    equal_batches: int = 0
    sums: Sums = field(default_factory=Sums)


def compare_placed(source: Chunks, target: Chunks, tally: Tally, end: int, *, digest: bool = True) -> bool:
    """Goes on to `end` of the source while records and their offsets are the same; False where they part, which is at
    `tally.at`."""
    if tally.at >= end:
        return True  # Readers of nothing have no chunk to give.
    ours, theirs = _next(source), _next(target)
    while tally.at < end:
        if same_packed(ours, theirs) and tally.at <= _base(ours) and ours.end <= end:
            _take_packed(ours, tally, digest=digest)
            if tally.at < end:
                ours, theirs = _next(source), _next(target)
            continue
        ours.skip_below(tally.at)
        theirs.skip_below(tally.at - theirs.shift)
        stop = min(ours.end, theirs.source_end, end)
        if not _match(ours, theirs, stop, tally):
            return False
        tally.at = max(tally.at, stop)
        if tally.at < end:
            if ours.end <= stop:
                ours = _next(source)
            if theirs.source_end <= stop:
                theirs = _next(target)
    return True


def _match(ours: Chunk, theirs: Chunk, stop: int, tally: Tally) -> bool:
    """Whether all rows below `stop` are the same; where not, `tally.at` is the first offset that is not."""
    data, rows = ours.opened()
    peer_data, peers = theirs.opened()
    n = max(ours.first, ours.rows_below(stop))
    m = max(theirs.first, theirs.rows_below(stop - theirs.shift))
    while True:
        one, other = (data, rows, ours.first, n), (peer_data, peers, theirs.first, m)
        done = tally.sums.match(one, other, theirs.shift, placed=True)
        tally.records += done
        ours.first += done
        theirs.first += done
        left, right = ours.first < n, theirs.first < m
        if not left and not right:
            return True
        at = int(rows[ours.first, 0]) if left else stop
        peer_at = int(peers[theirs.first, 0]) + theirs.shift if right else stop
        if at == peer_at and same_record(data, rows[ours.first], peer_data, peers[theirs.first]):
            step_over(ours, theirs, tally)
            continue
        tally.at = min(at, peer_at)
        return False


def step_over(ours: Chunk, theirs: Chunk, tally: Tally) -> None:
    """Counts a record of each as the same, though its bytes are not: some client wrote a length longer than it need."""
    data, rows = ours.opened()
    tally.sums.add(data, rows, ours.first, ours.first + 1)
    tally.records += 1
    ours.first += 1
    theirs.first += 1


def compare_content(source: Chunks, target: Chunks, tally: Tally, ends: tuple[int, int], *, last: bool) -> bool:
    """Goes on while the records of both are the same in order, until one side is at its end (`ends`: the source's, the
    target's). False where they part: at `tally.at` and `tally.target_at`. When it is the `last` stretch the target must
    not go on where the source ends."""
    ours, theirs = _Queue(source, tally.at, ends[0]), _Queue(target, tally.target_at, ends[1])
    while True:
        more = ours.more(), theirs.more()
        tally.at, tally.target_at = ours.at, theirs.at
        if not more[1] or (not more[0] and not last):
            return True
        if not more[0]:
            return False
        one, other = ours.head(), theirs.head()
        data, rows, first, _ = one
        peer_data, peers, peer_first, _ = other
        done = tally.sums.match(one, other, 0, placed=False)
        if not done:
            if not same_record(data, rows[first], peer_data, peers[peer_first]):
                return False
            tally.sums.add(data, rows, first, first + 1)
            done = 1
        tally.records += done
        ours.skip(done)
        theirs.skip(done)


class _Queue:
    """One side's records in order, from `at` to `end`; `at` is the place of the next one, or behind the last."""

    def __init__(self, chunks: Chunks, at: int, end: int) -> None:
        self.at = at
        self._chunks, self._end = chunks, end
        self._chunk: Chunk | None = None
        self._stop = 0

    def more(self) -> bool:
        """Whether there is a next record; it is looked for."""
        while self._chunk is None or self._chunk.first >= self._stop:
            if self._chunk is not None:
                self.at = max(self.at, min(self._chunk.end, self._end))
            if self.at >= self._end:
                return False
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                return False
            self._chunk.skip_below(self.at)
            self._stop = self._chunk.rows_below(self._end)
        self.at = int(self._chunk.opened()[1][self._chunk.first, 0])
        return True

    def head(self) -> Stretched:
        """The next records that lie together."""
        assert self._chunk is not None
        return *self._chunk.opened(), self._chunk.first, self._stop

    def skip(self, count: int) -> None:
        """These are dealt with."""
        assert self._chunk is not None
        self._chunk.first += count


def _take_packed(chunk: Chunk, tally: Tally, *, digest: bool) -> None:
    assert chunk.packed is not None
    tally.equal_batches += 1
    tally.records += chunk.packed[1].count
    if digest:
        data, rows = chunk.opened()
        tally.sums.add(data, rows, 0, len(rows))
    tally.at = chunk.end


def _base(chunk: Chunk) -> int:
    return chunk.packed[1].base_offset if chunk.packed is not None else -1


def _next(chunks: Chunks) -> Chunk:
    found = next(chunks, None)
    if found is None:
        raise TwinshoreError("a log ended before the stretch that was to be compared")
    return found
