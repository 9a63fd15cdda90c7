"""Both sides laid beside each other, chunk by chunk, until they part or the stretch ends. Pure: chunks are given.

Each iterator yields chunks without a gap; the target's carry the shift that makes their offsets the source's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twinshore.fleet import TwinshoreError
from twinshore.proof.chunks import Chunk, same_packed
from twinshore.proof.record_bytes import same_record
from twinshore.proof.rows import Sums

Chunks = Iterator[Chunk]


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


def compare_content(source: Chunks, target: Chunks, tally: Tally, *, last: bool) -> bool:
    """Goes on while the records of both are the same in order, until one side ends. False where they part: at
    `tally.at` and `tally.target_at`. When it is the `last` stretch the target must not go on where the source ends."""
    ours, theirs = next(source, None), next(target, None)
    while True:
        while ours is not None and ours.first >= len(ours.opened()[1]):
            tally.at = max(tally.at, ours.end)
            ours = next(source, None)
        if ours is None and not last:
            return True
        while theirs is not None and theirs.first >= len(theirs.opened()[1]):
            tally.target_at = max(tally.target_at, theirs.end)
            theirs = next(target, None)
        if theirs is None:
            return True
        if ours is None:
            tally.target_at = int(theirs.opened()[1][theirs.first, 0])
            return False
        if not _match_content(ours, theirs, tally):
            return False


def _match_content(ours: Chunk, theirs: Chunk, tally: Tally) -> bool:
    """Whether the rows are the same as far as the shorter chunk goes; the places to go on from are told."""
    data, rows = ours.opened()
    peer_data, peers = theirs.opened()
    while ours.first < len(rows) and theirs.first < len(peers):
        one, other = (data, rows, ours.first, len(rows)), (peer_data, peers, theirs.first, len(peers))
        done = tally.sums.match(one, other, 0, placed=False)
        tally.records += done
        ours.first += done
        theirs.first += done
        if ours.first < len(rows):
            tally.at = int(rows[ours.first, 0])
        if theirs.first < len(peers):
            tally.target_at = int(peers[theirs.first, 0])
        if ours.first < len(rows) and theirs.first < len(peers):
            if not same_record(data, rows[ours.first], peer_data, peers[theirs.first]):
                return False
            step_over(ours, theirs, tally)
    if ours.first == len(rows):
        tally.at = max(tally.at, ours.end)
    if theirs.first == len(peers):
        tally.target_at = max(tally.target_at, theirs.end)
    return True


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
