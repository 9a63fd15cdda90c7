"""The table of steps and the hands that do them agree, and hands go by the switch's own clock."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.switch.test_decision import NOW_MS, record
from twinshore.config.model import Link
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchStep
from twinshore.switch.operations.one_client import GroupSwitchSteps
from twinshore.switch.operations.run import STEP_CLASSES
from twinshore.switch.step_runner import SwitchSteps

NOBODY: Any = type("Nobody", (), {"name": "nobody"})()
COMMANDS = {SwitchStep.BEFORE, SwitchStep.AFTER}  # the operator's, see `switch/step_runner.py`


def hands(kind: SwitchKind) -> Any:
    link, back = Link("east", "west"), Link("west", "east")
    settings: Any = type("Settings", (), {"mirror": type("Mirror", (), {"lease_s": 1.0})})
    if kind is SwitchKind.GROUP:
        return GroupSwitchSteps([link], NOBODY, NOBODY, lambda: NOW_MS)
    steps = STEP_CLASSES.get(kind, SwitchSteps)
    return steps(link, back, settings, NOBODY, NOBODY, NOBODY, lambda: NOW_MS, NOBODY)


@pytest.mark.parametrize("kind", SwitchKind)
def test_each_step_has_a_hand_and_what_may_be_undone_has_another(kind: SwitchKind) -> None:
    ours = hands(kind)
    steps = STEPS[kind]
    assert all(hasattr(ours, f"do_{step.name.lower()}") for step in set(steps) - COMMANDS)
    may_turn = steps[: steps.index(SwitchStep.COMMIT)] if SwitchStep.COMMIT in steps else ()
    undone = {step for step in may_turn if step.spec.undoes} - COMMANDS
    assert all(hasattr(ours, f"undo_{step.name.lower()}") for step in undone)


@pytest.mark.parametrize(("went_s", "late"), [(0, False), (14, False), (16, True), (-3600, True)])
def test_a_step_is_not_tried_for_ever_where_a_clock_went_back(went_s: int, late: bool) -> None:
    """The one that goes on with it may run on a host whose clock is behind."""
    one = replace(record(), step_ms=NOW_MS)
    assert one.tried_for(15_000, NOW_MS + went_s * 1000) is late


def test_hands_ask_no_other_clock() -> None:
    """What the record says since when is by the switch's own clock, which nobody sets meanwhile."""
    root = Path(__file__).parents[2] / "src" / "twinshore" / "switch"
    known = {"steps.py"}
    reads = [
        path
        for path in root.rglob("*.py")
        if re.search(r"(?<!SwitchState)\.deed_ms", path.read_text()) and path.name not in known
    ]
    assert reads == []
