"""What the store takes up of switches that were made while it was dead, and when no cluster need keep them any more."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.switch.test_decision import NOW_MS, record
from twinshore.replication.core.ownership import find_new_switches, find_obsolete_records
from twinshore.state.core.values import SwitchRow
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchState, SwitchStatus, SwitchStep
from twinshore.switch.operations.run import switch_state_values

FORCED = replace(record(SwitchKind.FORCED), kept="west", step=SwitchStep.FENCE)
ONE = FORCED.id


def taken(one: SwitchState) -> SwitchRow:
    (row,) = find_new_switches({one.id: switch_state_values(one)}, (), NOW_MS)
    return row


def test_a_switch_that_the_store_does_not_know_is_taken_up_as_it_stands() -> None:
    row = taken(FORCED)
    assert SwitchState.from_json(row.switch_state) == FORCED
    assert (row.id, row.kind, row.source, row.target, row.state) == (ONE, "forced", "east", "west", "going on")
    assert (row.begun_ms, row.ended_ms) == (FORCED.begun_ms, None)
    assert taken(replace(FORCED, state=SwitchStatus.ROLLED_BACK)).ended_ms == NOW_MS


def test_what_has_gone_on_there_is_news_and_what_the_store_keeps_is_not() -> None:
    row, later = taken(FORCED), switch_state_values(replace(FORCED, step=SwitchStep.PROMOTE))
    assert find_new_switches({ONE: switch_state_values(FORCED)}, [row], NOW_MS) == []
    assert [json.loads(one.switch_state)["deed"] for one in find_new_switches({ONE: later}, [row], NOW_MS)] == ["flip"]
    ours = replace(row, switch_state=replace(FORCED, kept="").to_json())
    assert find_new_switches({ONE: later}, [ours], NOW_MS) == []
    assert find_obsolete_records({ONE: later}, [ours]) == [ONE], "a process with the store goes on with it"


@pytest.mark.parametrize("step", STEPS[SwitchKind.FORCED])
def test_a_cluster_keeps_a_switch_until_nobody_works_on_it_without_the_store(step: SwitchStep) -> None:
    open_yet = replace(FORCED, step=step)
    assert find_obsolete_records({ONE: switch_state_values(open_yet)}, [taken(open_yet)]) == []
    for over in (
        replace(open_yet, state=SwitchStatus.DONE).as_kept(),
        replace(open_yet, state=SwitchStatus.ROLLED_BACK),
    ):
        assert find_obsolete_records({ONE: switch_state_values(over)}, ()) == []
        assert find_obsolete_records({ONE: switch_state_values(over)}, [taken(open_yet)]) == [], (
            "the store does not know yet how it ended"
        )
        assert find_obsolete_records({ONE: switch_state_values(over)}, [taken(over)]) == [ONE]


def test_what_is_done_without_the_store_waits_for_it_behind_its_point_of_no_return() -> None:
    owed = replace(FORCED, state=SwitchStatus.DONE, step=SwitchStep.RELEASE).as_kept()
    assert (owed.step, owed.state, owed.awaits_store, owed.committed) == (
        SwitchStep.APPLY_SETTINGS,
        SwitchStatus.RUNNING,
        True,
        True,
    )
    assert owed.as_kept() == owed
    assert FORCED.as_kept() == FORCED


@pytest.mark.parametrize(
    "change",
    [
        {"id": "2" * 32},
        {"id": "x"},
        {"kept": ""},
        {"kept": None},
        {"old": "e" * 65},
        {"by": "\x1b[2J"},
        {"state": 7},
        {"begun_ms": -1},
        {"begun_ms": 1 << 60},
        {"kind": "planned"},
        {"kind": "of a later version"},
        {"state": "waiting"},
    ],
)
def test_what_strangers_write_is_taken_up_by_nobody(change: dict[str, Any]) -> None:
    raw = switch_state_values(FORCED) | change
    assert find_new_switches({ONE: raw}, (), NOW_MS) == []
    assert find_new_switches({ONE: None}, (), NOW_MS) == []
    assert find_obsolete_records({ONE: raw}, ()) == []
    assert asdict(taken(FORCED))["id"] == ONE
