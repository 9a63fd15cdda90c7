"""Two proofs of one partition at once, and proofs by two ways: what one of them finds the other does not wipe out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.log_lines import LogLines
from tests.proof.small_broker import TOPIC
from tests.proof.test_known_differences import spoil
from tests.proof.test_planning import DIFFERENCE, LOOK, answer, cut
from tests.proof.test_proving import AT, Rig, log, rig
from tests.proof.test_rereading import Again
from twinshore.config.settings import load_settings
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.partition_scan import PartitionScan
from twinshore.proof.core.planning import ProofOptions, apply_results, mark_differing, rebase_scan
from twinshore.proof.core.report import describe_report, exit_code
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import ProofReport, ProofRounds
from twinshore.state.core.values import ProofRow, ProofState


def typed(two: Rig, meanwhile: Callable[[], None], *, again: bool) -> ProofReport:
    """A proof that somebody types; once it has read what it compares first, `meanwhile` happens."""
    waiting = [meanwhile]

    def run(bundle: str, name: str) -> list[str]:
        answers = run_bundle_in_process(bundle, name)
        if waiting:
            waiting.pop()()
        return answers

    loaded = load_settings(two.settings, {})
    wishes = ProofOptions(range_records=30)
    proving = ProofRounds(loaded, two.store, run, options=wishes, tasks=1, mode=CompareMode.EXACT, settle_s=0.0)
    return proving.round(loaded.links, [TOPIC], again=again)


@pytest.mark.claim(
    "groups",
    "proof-two-at-once",
    "a difference that one proof finds while another one runs is told by both, and its row stays open",
)
@pytest.mark.parametrize("again", [False, True])
def test_a_difference_that_another_proof_finds_meanwhile_stands(
    tmp_path: Path, again: bool, log_lines: LogLines
) -> None:
    with rig(tmp_path, log(), log()) as two:
        whole, other = two.source.log, two.target.log
        two.source.log, two.target.log = whole[:-5], other[:-5]
        beside = Again(two, log_lines)
        assert beside.round() == 0
        two.source.log, two.target.log = whole, other
        clean: list[tuple[bytes, object]] = []

        def rots() -> None:
            clean.extend(two.target.log)
            spoil(two.target, AT)
            beside.until(lambda: bool(two.store.incidents.rows(open_only=True)))

        report = typed(two, rots, again=again)
        assert exit_code(report) == 1, "\n".join(describe_report(report))
        for _ in range(2):
            (row,) = two.store.proofs.of()
            assert (row.state, row.to_offset) == (ProofState.DIFFERS, AT)
            (opened,) = two.store.incidents.rows(open_only=True)
            assert opened.incident.from_offset == AT
            assert exit_code(two.round()) == 1
        two.target.log = clean  # type: ignore[assignment]
        assert exit_code(two.round()) == 0
        assert two.store.incidents.rows(open_only=True) == ()
        beside.hands.close()


@pytest.mark.claim(
    "groups",
    "proof-by-its-own-way",
    "a proof by content neither closes what an exact proof found nor calls both sides identical meanwhile",
)
def test_a_proof_by_another_way_closes_nothing(tmp_path: Path) -> None:
    moved = [record._replace(offset=record.offset + (record.offset >= AT)) for record in log()]
    with rig(tmp_path, log(), moved) as two:
        assert exit_code(two.round()) == 1
        for _ in range(2):
            report = two.round(CompareMode.CONTENT)
            assert exit_code(report) == 1, "\n".join(describe_report(report))
            assert f"from offset {AT} on, by open incident 1" in "\n".join(describe_report(report))
            (opened,) = two.store.incidents.rows(open_only=True)
            assert (opened.incident.from_offset, opened.incident.proof_mode) == (AT, "exact")
        two.target.log = two.source.log
        assert exit_code(two.round()) == 0
        assert two.store.incidents.rows(open_only=True) == ()


@pytest.mark.claim(
    "groups",
    "proof-overtaken",
    "a proof that another one overtakes while records come calls nothing of it lost",
)
@pytest.mark.parametrize("looks", [True, False])
def test_what_another_proof_has_proven_meanwhile_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """`looks`: while the first one looks at the ends; else while it compares."""
    with rig(tmp_path, log(), log()) as two:
        whole, other, asked = two.source.log, two.target.log, two.source._offset
        two.source.log, two.target.log = whole[:-5], other[:-5]

        def grow() -> None:
            two.source.log, two.target.log = whole, other
            assert exit_code(two.round()) == 0

        def seen(body: memoryview) -> object:
            monkeypatch.undo()
            grow()
            return asked(body)

        if looks:
            monkeypatch.setattr(two.source, "_offset", seen)
        assert exit_code(typed(two, (lambda: None) if looks else grow, again=False)) == 0
        (row,) = two.store.proofs.of()
        assert (row.state, row.to_offset) == (ProofState.IDENTICAL, row.source_end)
        assert two.store.incidents.rows() == ()


ROW = apply_results(replace(LOOK, target_end=500), cut(replace(LOOK, target_end=500)), [], 5)
STANDS = replace(ROW, to_offset=610, records=600, last_incident_id=4, revision=8)


def meets(stands: ProofRow, *spoilt: int) -> ProofRow:
    """What stands after a round that asked for all, where another process has proven through 610 meanwhile."""
    asked = cut(replace(LOOK, last_incident_id=3))
    answers = [answer(one, to=450, difference=DIFFERENCE) if one.number in spoilt else answer(one) for one in asked]
    look = rebase_scan(LOOK, stands)
    assert look is not None
    return apply_results(look, asked, answers, 9)


def test_results_go_on_from_what_another_process_has_proven() -> None:
    row = meets(STANDS)
    assert (row.from_offset, row.to_offset, row.records) == (10, 900, 600 + 290), "counted once"
    assert row.revision == 8
    straddled = meets(replace(STANDS, to_offset=650))
    assert straddled.to_offset == 650, "the rest is left to the next round"
    found = meets(STANDS, 2)
    assert (found.state, found.to_offset) == (ProofState.DIFFERS, 450), "a difference counts wherever it was found"


@pytest.mark.parametrize("way", CompareMode)
def test_a_proof_behind_the_ends_that_were_seen_is_taken_over_whole(way: CompareMode) -> None:
    stands = replace(STANDS, mode=way.value, target_offset=610, source_end=620)
    early = replace(LOOK, mode=way, source_end=500, target_end=500, offset_runs=((10, 10, 490),))
    look = rebase_scan(early, stands)
    assert look is not None
    assert apply_results(look, [], [], 9) == replace(stands, last_incident_id=LOOK.last_incident_id)


@pytest.mark.parametrize("early", [replace(LOOK, stored=STANDS), replace(LOOK, remembered=STANDS)])
def test_a_proof_that_proved_no_more_hides_no_end_that_was_lost(early: PartitionScan) -> None:
    look = rebase_scan(replace(early, target_end=500), replace(STANDS, revision=9, reread_offset=400))
    assert look is not None
    row = apply_results(look, [], [], 9)
    assert (row.state, row.to_offset, row.revision) == (ProofState.DIFFERS, 500, 9)


def test_what_stands_of_other_topics_or_by_another_way_is_left() -> None:
    assert rebase_scan(LOOK, None) is None
    assert rebase_scan(LOOK, replace(STANDS, mode="content")) is None
    assert rebase_scan(LOOK, replace(STANDS, target_topic_id="cc")) is None
    assert rebase_scan(replace(LOOK, source_start=700), STANDS) is None


def test_of_two_differences_the_first_is_kept() -> None:
    first = replace(STANDS, state=ProofState.DIFFERS, to_offset=300, sentence="first")
    assert mark_differing(first, answer(cut(LOOK)[2], to=450, difference=DIFFERENCE), 9) == first
