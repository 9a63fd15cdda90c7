"""The claims about logs of every kind rest on figures and tests that there are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bench.markers import PARTS, Figures
from bench.show_any_log import BOUNDS, EVENTS, KILLS, KINDS, SCENARIOS, claims
from tests.scenarios.test_mirror_any_log import KINDS as PLAYED

ROOT = Path(__file__).resolve().parents[2]


def test_every_kind_that_is_played_is_claimed() -> None:
    assert set(KINDS) == set(PLAYED)
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
