"""The claims about logs of every kind rest on figures and tests that there are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.kit.claims import Finding
from bench.kit.playing import Played
from bench.measure.markers import PARTS, Figures
from bench.show import any_log as show_any_log
from bench.show.any_log import BOUNDS, EVENTS, KILLS, KINDS, LOOK, LOOKED_AT, SCENARIOS, claims
from twinshore.lab.stages.figures import StageError
from twinshore.lab.stages.kinds import HOLDS
from twinshore.lab.stages.kinds import KINDS as PLAYED

ROOT = Path(__file__).resolve().parents[2]


def test_every_kind_that_is_played_is_claimed() -> None:
    assert set(KINDS) == set(PLAYED)
    assert set(HOLDS) == LOOKED_AT
    names = [claim.name for claim in claims(1)]
    assert len(set(names)) == len(names) == len(KINDS) + len(EVENTS) + len(BOUNDS) + 3


def test_every_claim_rests_on_a_test_or_a_figure() -> None:
    scenarios, kills = ((ROOT / file).read_text(encoding="utf-8") for file in (SCENARIOS, KILLS))
    assert all(f"def {test}(" in scenarios for test, _ in EVENTS.values())
    for what in ("markers", "closed_units"):
        assert f"def test_pumps_die_while_{what}_cross(" in kills
        assert f"def test_pumps_die_a_hundred_times_while_{what}_cross(" in kills
    figures = {field.name for field in dataclasses.fields(Figures)}
    assert all(bound.figure in figures and bound.part in PARTS for bound in BOUNDS)


def _played(failures: dict[str, str]) -> list[Played]:
    tests = {LOOK: LOOKED_AT, "test_a_twin_is_exact": KINDS}
    return [
        Played(test, f"{pair}-{kind}", 1.0, (), failures.get(f"{test} {pair} {kind}", ""))
        for test, kinds in tests.items()
        for pair in ("4.1.0", "3.9.1")
        for kind in kinds
    ]


def _codecs(failures: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Finding:
    monkeypatch.setattr(show_any_log, "_run_scenarios", lambda: _played(failures))
    (claim,) = [claim for claim in claims(1) if claim.name == "log-codecs"]
    return claim.run(False)


def test_a_kind_needs_the_twin_of_both_pairs_and_a_source_that_has_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _codecs({}, monkeypatch).passed
    assert _codecs({f"{LOOK} 4.1.0 idle": "of another kind"}, monkeypatch).passed
    assert not _codecs({"test_a_twin_is_exact 3.9.1 codecs": "offset 7 differs"}, monkeypatch).passed
    with pytest.raises(StageError, match="the source has no such log: no batch in zstd"):
        _codecs({f"{LOOK} 4.1.0 codecs": "no batch in zstd"}, monkeypatch)
