"""The claims about the speed of logs of every kind rest on figures that there are."""

from __future__ import annotations

import dataclasses

from bench.measure.markers import PARTS, Figures
from bench.show.any_log import BOUNDS, claims


def test_every_claim_rests_on_a_figure() -> None:
    figures = {field.name for field in dataclasses.fields(Figures)}
    assert all(bound.figure in figures and bound.part in PARTS for bound in BOUNDS)
    names = [claim.name for claim in claims(1)]
    assert len(set(names)) == len(names) == len(BOUNDS) + 1
