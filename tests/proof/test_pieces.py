"""The parts of a proof, cut and laid together: nothing is lost or counted twice, whatever is read again when."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.proof.test_planning import LOOK, answer, cut
from twinshore.proof import pieces as books
from twinshore.proof.pieces import NO_RECORDS, PIECES_MAX, TOGETHER_MS, joined, laid, narrowed, pieces_of, with_pieces
from twinshore.proof.planning import outcome
from twinshore.proof.rows import digest_sum
from twinshore.store.proof_values import ProofPiece, ProofRow

ROW = outcome(LOOK, cut(LOOK), [answer(one) for one in cut(LOOK)], 5)


def piece(start: int, stop: int, read_ms: int = 0, *, digest: str = "") -> ProofPiece:
    return ProofPiece(start, stop, stop - start, digest or f"{stop - start:032x}", 100 * (stop - start), read_ms)


def tiles(row: ProofRow) -> bool:
    borders = [row.from_offset, *(one.to_offset for one in row.pieces)]
    return borders == [*(one.from_offset for one in row.pieces), row.to_offset]


def test_a_proof_of_an_older_version_is_one_part_that_nobody_knows_the_age_of() -> None:
    old = replace(ROW, pieces=())
    assert pieces_of(old) == (ProofPiece(10, 900, 890, ROW.digest, 0, 0),)
    assert old.read_ms == 0
    assert pieces_of(replace(ROW, to_offset=950)) == (ProofPiece(10, 950, 890, ROW.digest, 0, 0),), "they do not fit"
    assert pieces_of(replace(old, to_offset=10)) == ()
    assert pieces_of(replace(old, records=0, digest=""))[0].digest == NO_RECORDS


def test_whatever_is_read_again_when_all_is_counted_once() -> None:
    chance = random.Random(7)
    row, now_ms = with_pieces(ROW, 0, [piece(0, 1_000)]), 1
    for _ in range(300):
        now_ms += chance.choice([1, TOGETHER_MS * 2])
        start = chance.randrange(1_000)
        new = piece(start, chance.randint(start + 1, 1_000), now_ms)
        parts = laid(pieces_of(row), new)
        assert parts is not None
        row = with_pieces(row, 0, parts)
        assert tiles(row) and row.records == 1_000
        assert row.read_ms <= now_ms
    for start in range(0, 1_000, 100):
        now_ms += TOGETHER_MS * 2
        row = with_pieces(row, 0, laid(pieces_of(row), piece(start, start + 100, now_ms)) or ())
    assert int(row.digest, 16) == digest_sum(*(one.to_offset - one.from_offset for one in row.pieces)) == 1_000


def test_an_answer_that_was_read_before_what_stands_is_not_kept() -> None:
    stands = (piece(0, 100, 50), piece(100, 200, 20))
    assert laid(stands, piece(50, 150, 40)) is None
    assert laid(stands, piece(100, 150, 40)) is not None


def test_a_torn_part_has_no_digest_and_counts_the_least_that_is_left() -> None:
    row = with_pieces(ROW, 0, [piece(0, 100), piece(100, 200, TOGETHER_MS * 3)])
    left = narrowed(row, 0, 100)
    assert (left.records, left.digest) == (100, f"{100:032x}")
    torn = narrowed(row, 50, 200)
    assert (torn.from_offset, torn.records, torn.digest) == (50, 150, "")
    sparse = with_pieces(ROW, 0, [piece(0, 100)._replace(records=30)])
    assert (narrowed(sparse, 10, 100).records, narrowed(sparse, 80, 100).records) == (20, 0)


def test_neighbours_that_were_read_together_are_one_and_there_are_never_very_many() -> None:
    assert len(joined(tuple(piece(n, n + 1, n) for n in range(1_000)))) == 1
    apart = tuple(piece(n, n + 1, n * TOGETHER_MS * 2) for n in range(2_000))
    found = joined(apart)
    assert len(found) == PIECES_MAX
    assert sum(one.records for one in found) == 2_000
    assert found[0].read_ms == 0, "it is as old as its oldest part"
    assert len(joined((piece(0, 900_000), piece(900_000, 1_200_000)))) == 2
    assert books.SPAN_MAX == 1_000_000


def test_of_a_part_whose_beginning_is_read_again_the_rest_is_known_too() -> None:
    chance = random.Random(3)
    digests = [chance.getrandbits(128) for _ in range(100)]
    whole = ProofPiece(0, 100, 60, f"{digest_sum(*digests):032x}", 5_000, 1)
    first = ProofPiece(0, 40, 25, f"{digest_sum(*digests[:40]):032x}", 2_100, TOGETHER_MS * 2)
    parts = laid((whole,), first)
    assert parts == (first, ProofPiece(40, 100, 35, f"{digest_sum(*digests[40:]):032x}", 2_900, 1))
