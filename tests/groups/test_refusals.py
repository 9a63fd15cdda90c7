"""Whole rounds beside a cluster that refuses places: it is told after a while, and until it is over."""

from __future__ import annotations

import pytest

from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.groups.core.sync_state import describe_refusals


@pytest.mark.parametrize("code", [-1, 12])
def test_a_place_that_is_refused_again_and_again_is_told_until_it_is_taken(code: int) -> None:
    """Also where the broker's word is that it may be tried again: as newer ones say of a commit that is too large."""
    stage = Stage(verify_s=5.0)
    stage.west.refuses[TWINS[PARTS[1]]] = code
    for where in PARTS:
        stage.commit("g", 10, where)

    def told() -> str:
        return describe_refusals(stage.direction.refusals(), stage.now_s)

    for _ in range(20):
        stage.turn()
        assert told() == ""
    assert (stage.there("g"), stage.there("g", PARTS[1])) == (10, None)
    for _ in range(12):
        stage.turn()
    assert told().startswith("1 group ") and "group g: west " in told()
    stage.west.refuses.clear()
    for _ in range(6):
        stage.turn()
    assert (stage.there("g", PARTS[1]), told()) == (10, "")
