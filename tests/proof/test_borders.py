"""What both logs' borders and the ledger leave of a proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.test_planning import LOOK, answer, cut
from twinshore.config.incident_policy import POLICY_STOP, IncidentKind
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.partition_scan import PartitionScan, narrow_proof
from twinshore.proof.core.planning import apply_results, refresh_idle_proof
from twinshore.state.core.values import Incident, IncidentRow, ProofRow, ProofState

LEVEL = replace(LOOK, target_end=1_000)
MAPPED = replace(LOOK, mode=CompareMode.OFFSET_MAP, offset_runs=((10, 100, 300), (310, 900, 400)), target_end=1_300)


def proven(look: PartitionScan) -> ProofRow:
    asked = cut(look)
    return apply_results(look, asked, [answer(one, target_to=one.end) for one in asked], 5)


def opened(kind: IncidentKind, start: int, stop: int = -1) -> IncidentRow:
    return IncidentRow(7, Incident(LOOK.link, "orders", 3, kind, start, stop, POLICY_STOP, "so it is"), 1, None)


@pytest.mark.parametrize(
    ("change", "span"),
    [
        ({}, (10, 1_000)),
        ({"source_start": 40}, (40, 1_000)),
        ({"source_start": 1_000}, (1_000, 1_000)),
        ({"source_end": 700}, (10, 700)),
        ({"target_end": 700}, (10, 700)),
        ({"target_end": 0}, (10, 10)),
        ({"source_start": 40, "target_end": 20}, (40, 40)),
        ({"rows": (opened(IncidentKind.LOST_BY_TARGET, 400, 600),)}, (10, 400)),
        ({"rows": (opened(IncidentKind.RETENTION_GAP, 400, 600),)}, (10, 1_000)),
        ({"rows": (opened(IncidentKind.CONTENT_DIFFERS, 400),)}, (10, 1_000)),
    ],
)
def test_a_proof_is_narrowed_to_what_both_sides_hold(change: dict[str, object], span: tuple[int, int]) -> None:
    look = replace(LEVEL, stored=proven(LEVEL), **change)  # type: ignore[arg-type]
    row = look.resumable_proof
    assert row is not None
    assert (row.from_offset, row.to_offset, row.records) == (*span, span[1] - span[0])
    assert look.proof_invalidated is (span != (10, 1_000))
    assert look.start >= row.to_offset


def test_where_offsets_had_no_record_the_least_that_is_left_is_counted() -> None:
    row = replace(proven(LEVEL), records=100)
    assert narrow_proof(row, 10, 990).records == 90
    assert narrow_proof(row, 600, 1_000).records == 0


def test_a_gap_that_is_open_is_never_called_identical_nor_kept_young() -> None:
    look = replace(LEVEL, stored=proven(LEVEL), rows=(opened(IncidentKind.RETENTION_GAP, 400, 600),))
    assert [row.id for row in look.open_incidents] == [7]
    assert refresh_idle_proof(look, 10**9) is None
    assert refresh_idle_proof(replace(look, rows=()), 10**9) is not None
    behind = replace(look, rows=(opened(IncidentKind.CORRUPT_BATCH, 1_000),))
    assert behind.open_incidents == (), "nothing was said of what lies there"
    past = replace(look, rows=(opened(IncidentKind.RETENTION_GAP, 2, 10),))
    assert past.open_incidents == (), "that part is gone on both sides"


def test_what_is_gone_of_a_twins_beginning_is_looked_at_in_each_round() -> None:
    look = replace(LEVEL, stored=proven(LEVEL), target_start=300)
    (one,) = cut(look)
    assert (one.start, one.end) == (10, 300)
    assert apply_results(look, [one], [answer(one)], 9) == replace(proven(LEVEL), proven_ms=9), (
        "there was nothing to see"
    )
    more = replace(look, source_end=1_100, target_end=1_100)
    assert [(one.start, one.end) for one in cut(more)] == [(10, 300), (1_000, 1_100)]
    failed = apply_results(more, cut(more), [answer(one, to=10, trouble="away")], 9)
    assert (failed.to_offset, failed.proven_ms) == (1_000, 5)
    anew = replace(look, mode=CompareMode.COMPACTED, stored=replace(proven(LEVEL), mode="compacted"))
    assert anew.resumable_proof is None, "of a compacted twin only all of it says which keys are gone"


def test_a_log_that_is_shorter_than_its_proof_is_looked_at_again() -> None:
    look = replace(LEVEL, stored=proven(LEVEL))
    assert not look.log_shrunk and not replace(look, source_end=1_100).log_shrunk
    assert replace(look, target_end=999).log_shrunk and replace(look, source_end=999).log_shrunk
    lost = replace(look, target_end=999).resumable_proof
    assert lost is not None and lost.state is ProofState.DIFFERS and "held all through offset 999" in lost.sentence
    both = replace(look, target_end=999, source_end=999).resumable_proof
    assert both is not None and both.state is ProofState.IDENTICAL, "neither side has what the other lacks"


def test_of_a_mapped_twin_what_its_own_cluster_took_leaves_the_books() -> None:
    row = proven(MAPPED)
    assert (row.from_offset, row.to_offset) == (10, 710)
    for target_start, first in ((50, 10), (150, 60), (400, 310), (1_300, 710)):
        look = replace(MAPPED, stored=row, target_start=target_start)
        left = look.resumable_proof
        assert left is not None and (left.from_offset, left.to_offset) == (first, 710)
    for target_end, upto in ((1_300, 710), (1_000, 410), (500, 310), (150, 60)):
        left = replace(MAPPED, stored=row, target_end=target_end).resumable_proof
        assert left is not None and left.to_offset == upto
        assert (left.state is ProofState.DIFFERS) is (upto < 710)


def test_by_content_a_shorter_side_is_laid_beside_the_other_anew() -> None:
    look = replace(LOOK, mode=CompareMode.CONTENT, target_end=1_000)
    row = replace(proven(look), to_offset=1_000, target_offset=1_000)
    assert replace(look, stored=row).resumable_proof == row
    assert replace(look, stored=row, target_end=700).resumable_proof is None
    assert replace(look, stored=row, source_end=700).resumable_proof is None


def test_nothing_is_compared_over_what_the_mirror_rests_at() -> None:
    look = replace(LOOK, target_end=1_100, rows=(opened(IncidentKind.TRUNCATION, 600, 700),))
    last = cut(look)[-1]
    assert (last.end, last.target_end) == (600, -1)
