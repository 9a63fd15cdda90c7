"""A proof's two cursors: nothing is lost or counted twice, however it is cut, goes on and is read again."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.proof.test_planning import LOOK, answer, cut
from twinshore.proof.core.model import CompareMode, CompareRange, CompareResult
from twinshore.proof.core.partition_scan import advance_reread, extend_proof, narrow_proof, reset_proof
from twinshore.proof.core.planning import apply_results
from twinshore.proof.core.record_rows import combine_digests
from twinshore.state.core.values import ProofRow, ProofState

ROW = replace(apply_results(LOOK, cut(LOOK), [answer(one, bytes=100) for one in cut(LOOK)], 5), oldest_ms=5)
WHOLE = cut(LOOK)[0]


def read(row: ProofRow, start: int, to: int, read_ms: int, target_to: int = -1) -> ProofRow:
    return advance_reread(row, replace(WHOLE, start=start, end=to), CompareResult(0, start, to, target_to), read_ms)


def going(row: ProofRow) -> tuple[int, int, int]:
    return row.reread_offset, row.reread_end, row.reread_ms


def test_a_proof_goes_on_and_is_as_old_as_its_oldest_part() -> None:
    assert (ROW.to_offset, ROW.records, ROW.bytes_read, ROW.read_ms) == (900, 890, 500, 5)
    more = extend_proof(ROW, WHOLE, CompareResult(0, 900, 950, records=40, bytes=9, digest=3), 77)
    assert (more.to_offset, more.records, more.bytes_read, more.read_ms) == (950, 930, 509, 5)
    assert int(more.digest, 16) == combine_digests(int(ROW.digest, 16), 3)
    begun = extend_proof(reset_proof(ROW, 900), WHOLE, CompareResult(0, 900, 950, records=40, bytes=9, digest=3), 77)
    assert (begun.from_offset, begun.records, begun.bytes_read, begun.read_ms, int(begun.digest, 16)) == (
        900,
        40,
        9,
        77,
        3,
    )
    unrated = extend_proof(ROW, replace(WHOLE, digest=False), CompareResult(0, 900, 950), 77)
    assert unrated.digest == "" and extend_proof(unrated, WHOLE, CompareResult(0, 950, 960, digest=3), 78).digest == ""


def test_what_is_cut_has_no_digest_and_counts_the_least_that_is_left() -> None:
    left = narrow_proof(ROW, 455, 900)
    assert (left.from_offset, left.records, left.digest, left.bytes_read, left.read_ms) == (455, 445, "", 250, 5)
    assert narrow_proof(replace(ROW, records=100), 600, 900).records == 0
    assert extend_proof(replace(left, records=0), WHOLE, CompareResult(0, 900, 950, digest=3), 7).digest == "", (
        "still unknown"
    )
    gone = narrow_proof(replace(ROW, target_offset=33), 900, 900)
    assert (gone.records, gone.bytes_read, gone.digest, gone.target_offset, gone.read_ms) == (0, 0, "", 33, 0)
    assert narrow_proof(replace(ROW, target_offset=33), 10, 899).target_offset == -1


def test_a_pass_makes_a_proof_young_once_it_has_read_all_that_was_proven_when_it_began() -> None:
    part = read(ROW, 10, 400, 50, target_to=44)
    assert (going(part), part.reread_target, part.read_ms) == ((400, 900, 50), 44, 5)
    part = extend_proof(part, WHOLE, CompareResult(0, 900, 950), 60)
    assert read(part, 300, 350, 70) == part, "another process has read that"
    assert read(part, 500, 600, 70) == part, "a gap would be left"
    assert read(part, 400, 600, 49) == part, "it was read before this pass began"
    part = read(part, 350, 600, 70)
    assert going(part) == (600, 900, 50)
    done = read(part, 600, 900, 80)
    assert (going(done), done.reread_target, done.read_ms, done.to_offset) == ((-1, -1, 0), -1, 50, 950)


def test_a_pass_over_what_is_cut_meanwhile_ends_where_the_rest_does() -> None:
    part = read(ROW, 10, 400, 50, target_to=44)
    assert going(narrow_proof(part, 100, 900)) == (400, 900, 50)
    behind = narrow_proof(part, 500, 900)
    assert (going(behind), behind.reread_target) == ((500, 900, 50), -1), "where it goes on there is looked for"
    assert going(narrow_proof(part, 10, 700)) == (400, 700, 50)
    over = narrow_proof(part, 10, 400)
    assert (going(over), over.read_ms) == ((-1, -1, 0), 50), "all that is left was read in this pass"


def test_whatever_comes_in_whatever_order_a_proof_is_never_younger_than_its_oldest_part() -> None:
    chance = random.Random(7)
    for _ in range(200):
        row, now_ms = reset_proof(ROW, 0), 1
        ages: list[int] = []
        for _ in range(60):
            now_ms += 1
            match chance.choice(["on", "again", "again", "retention"]):
                case "on":
                    to = row.to_offset + chance.randint(1, 50)
                    row = extend_proof(row, WHOLE, CompareResult(0, row.to_offset, to), now_ms)
                    ages += [now_ms] * (to - len(ages))
                case "again" if row.to_offset > row.from_offset:
                    at = row.reread_offset if row.reread_offset >= 0 else row.from_offset
                    start = max(row.from_offset, at + chance.choice([-20, 0, 0, 0, 20]))
                    to = min(row.to_offset, start + chance.randint(1, 80))
                    row = read(row, start, to, now_ms)
                    ages[start:to] = [now_ms] * (to - start) if to > start else []
                case "retention":
                    row = narrow_proof(row, chance.randint(row.from_offset, row.to_offset), row.to_offset)
                case _:
                    continue
            assert len(ages) == row.to_offset
            held = ages[row.from_offset :]
            assert not held or row.oldest_ms <= min(held)


def test_a_compacted_log_is_read_again_whole() -> None:
    wanted: CompareRange = replace(WHOLE, mode=CompareMode.COMPACTED)
    row = advance_reread(ROW, wanted, CompareResult(0, 10, 950, records=70, bytes=33), 50)
    assert (row.to_offset, row.records, row.bytes_read, row.read_ms) == (950, 70, 33, 50)
    assert advance_reread(ROW, wanted, CompareResult(0, 10, 899, records=70), 50) == ROW
    differs = replace(ROW, state=ProofState.DIFFERS)
    row = advance_reread(differs, wanted, CompareResult(0, 10, 950, records=70), 50)
    assert (row.to_offset, row.records) == (900, 890), "what differs behind it is not gone past"
