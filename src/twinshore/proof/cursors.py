"""The two cursors of a proof: the end of what is proven, and how far a pass has read that again. Pure."""

from __future__ import annotations

from dataclasses import replace

from twinshore.proof.rows import digest_sum
from twinshore.proof.values import Proven, Stretch, Way
from twinshore.store.proof_values import ProofRow, ProofState

NO_RECORDS = f"{0:032x}"


def emptied(row: ProofRow, at: int) -> ProofRow:
    """A proof of nothing yet, which begins at this offset."""
    nothing = replace(row, from_offset=at, to_offset=at, target_offset=-1, records=0, digest="", size=0, oldest_ms=0)
    return _without_pass(nothing)


def narrowed(row: ProofRow, start: int, upto: int) -> ProofRow:
    """What stands of a proof from `start` up to `upto`, both within it. What is cut has no digest any more. Where not
    every offset was a record, its count is the least that there can be."""
    if (start, upto) == (row.from_offset, row.to_offset):
        return row
    target = row.target_offset if upto == row.to_offset else -1
    if start == upto:
        return replace(emptied(row, start), target_offset=target)
    span, whole = upto - start, row.to_offset - row.from_offset
    at = max(start, row.again_offset) if row.again_offset >= 0 else -1
    left = replace(
        row,
        from_offset=start,
        to_offset=upto,
        target_offset=target,
        records=max(0, row.records - whole + span),
        digest="",
        size=row.size * span // whole,
        again_offset=at,
        again_target=row.again_target if at == row.again_offset else -1,
        again_end=min(row.again_end, upto),
    )
    return _over(left)


def extended(row: ProofRow, stretch: Stretch, result: Proven, read_ms: int) -> ProofRow:
    """The proof with what was compared from its end on."""
    empty = row.to_offset == row.from_offset
    known = (row.digest or empty) and stretch.digest
    return replace(
        row,
        to_offset=result.to,
        records=row.records + result.records,
        digest=f"{digest_sum(int(row.digest or NO_RECORDS, 16), result.digest):032x}" if known else "",
        size=row.size + result.bytes if row.size or empty else 0,
        oldest_ms=read_ms if empty else row.oldest_ms,
    )


def read_again(row: ProofRow, stretch: Stretch, result: Proven, read_ms: int) -> ProofRow:
    """The proof after a part of it was read again and found to be the same, from `read_ms` on. An answer that does not
    go on where the pass is changes nothing: another process has read that part."""
    if stretch.way is Way.COMPACTED:
        return _whole_again(row, result, read_ms)
    begins = row.again_offset < 0
    at = row.from_offset if begins else row.again_offset
    if result.to <= at or stretch.start > at or read_ms < row.again_ms:
        return row
    if begins:
        row = replace(row, again_ms=read_ms, again_end=row.to_offset)
    return _over(replace(row, again_offset=result.to, again_target=result.target_to))


def _whole_again(row: ProofRow, result: Proven, read_ms: int) -> ProofRow:
    """A compacted log is read again whole, with what is new in it."""
    if result.to < row.to_offset:
        return row
    row = replace(row, size=result.bytes, oldest_ms=max(row.oldest_ms, read_ms))
    grows = row.state is ProofState.IDENTICAL or result.to == row.to_offset
    return replace(row, to_offset=result.to, records=result.records) if grows else row


def _over(row: ProofRow) -> ProofRow:
    """A pass ends where the proof ended when it began: all of that was read since, and the rest is younger."""
    if row.again_offset < 0 or row.again_offset < row.again_end:
        return row
    return _without_pass(replace(row, oldest_ms=max(row.oldest_ms, row.again_ms)))


def _without_pass(row: ProofRow) -> ProofRow:
    return replace(row, again_offset=-1, again_target=-1, again_end=-1, again_ms=0)
