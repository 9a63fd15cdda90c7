"""The parts that a proof consists of, each with when it was last read: all of it is read again in turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from twinshore.proof.rows import digest_sum
from twinshore.store.proof_values import ProofPiece, ProofRow

NO_RECORDS = f"{0:032x}"
SPAN_MAX = 1_000_000
PIECES_MAX = 400
# Neighbours that were read within so long of each other are one part.
TOGETHER_MS = 300_000
_WORD = 1 << 64


def pieces_of(row: ProofRow) -> tuple[ProofPiece, ...]:
    """The parts of a proof. One whose parts nobody knows is one part that was read nobody knows when."""
    if row.to_offset <= row.from_offset:
        return ()
    borders = [row.from_offset, *(piece.to_offset for piece in row.pieces)]
    begins = [*(piece.from_offset for piece in row.pieces), row.to_offset]
    if row.pieces and borders == begins:
        return row.pieces
    digest = row.digest if row.digest or row.records else NO_RECORDS
    return (ProofPiece(row.from_offset, row.to_offset, row.records, digest, 0, 0),)


def with_pieces(row: ProofRow, start: int, pieces: Iterable[ProofPiece]) -> ProofRow:
    """The proof that these parts make, in order and without a gap, from `start` on."""
    parts = joined(tuple(pieces))
    records = sum(piece.records for piece in parts)
    known = records and all(piece.digest for piece in parts)
    digest = f"{digest_sum(*(int(piece.digest, 16) for piece in parts)):032x}" if known else ""
    to = parts[-1].to_offset if parts else start
    return replace(row, from_offset=start, to_offset=to, records=records, digest=digest, pieces=parts)


def narrowed(row: ProofRow, start: int, upto: int) -> ProofRow:
    """What stands of a proof from `start` up to `upto`."""
    if (start, upto) == (row.from_offset, row.to_offset):
        return row
    left = with_pieces(row, start, cut(pieces_of(row), start, upto))
    return replace(left, target_offset=row.target_offset if upto == row.to_offset else -1)


def cut(pieces: Iterable[ProofPiece], start: int, upto: int) -> tuple[ProofPiece, ...]:
    """The parts of these pieces that lie from `start` up to `upto`. A piece that is cut has no digest any more.
    Where not every offset of it was a record, its count is the least that there can be."""
    found = []
    for piece in pieces:
        first, last = max(piece.from_offset, start), min(piece.to_offset, upto)
        if first >= last:
            continue
        if (first, last) == (piece.from_offset, piece.to_offset):
            found.append(piece)
            continue
        span, whole = last - first, piece.to_offset - piece.from_offset
        found.append(
            ProofPiece(
                *(first, last, max(0, piece.records - whole + span), "", piece.size * span // whole, piece.read_ms),
                piece.target_from if first == piece.from_offset else -1,
            )
        )
    return tuple(found)


def laid(pieces: Sequence[ProofPiece], new: ProofPiece, *, target_to: int = -1) -> tuple[ProofPiece, ...] | None:
    """These with `new` in their place where it lies; None where a part of that was read later than it."""
    if any(
        one.read_ms >= new.read_ms and one.from_offset < new.to_offset and one.to_offset > new.from_offset
        for one in pieces
    ):
        return None
    before, after = cut(pieces, 0, new.from_offset), cut(pieces, new.to_offset, 1 << 63)
    for one in pieces:
        if one.from_offset == new.from_offset and one.to_offset > new.to_offset:
            after = (_rest(one, new, after[0]), *after[1:])
    if after and after[0].target_from < 0 <= target_to:
        after = (after[0]._replace(target_from=target_to), *after[1:])
    return (*before, new, *after)


def _rest(whole: ProofPiece, read: ProofPiece, torn: ProofPiece) -> ProofPiece:
    """What is left of a part whose beginning was read again, and found to be the same: all of it less that."""
    digest = ""
    if whole.digest and read.digest:
        high, low = divmod(int(read.digest, 16), _WORD)
        digest = f"{digest_sum(int(whole.digest, 16), -high % _WORD * _WORD + -low % _WORD):032x}"
    return torn._replace(
        digest=digest, records=max(0, whole.records - read.records), size=max(0, whole.size - read.size)
    )


def joined(pieces: tuple[ProofPiece, ...]) -> tuple[ProofPiece, ...]:
    """Neighbours that were read together are one; of very many, those that were read in turn."""
    found: list[ProofPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if (
            last is not None
            and 0 <= piece.read_ms - last.read_ms <= TOGETHER_MS  # What a pass has reached stays apart from the rest.
            and piece.to_offset - last.from_offset <= SPAN_MAX
            and bool(last.digest) is bool(piece.digest)
        ):
            found[-1] = _both(last, piece)
        else:
            found.append(piece)
    while len(found) > PIECES_MAX:
        at = min(range(len(found) - 1), key=lambda n: abs(found[n].read_ms - found[n + 1].read_ms))
        found[at : at + 2] = [_both(found[at], found[at + 1])]
    return tuple(found)


def _both(one: ProofPiece, other: ProofPiece) -> ProofPiece:
    known = one.digest and other.digest
    digest = f"{digest_sum(int(one.digest, 16), int(other.digest, 16)):032x}" if known else ""
    return one._replace(
        to_offset=other.to_offset,
        records=one.records + other.records,
        digest=digest,
        size=one.size + other.size,
        read_ms=min(one.read_ms, other.read_ms),
    )
