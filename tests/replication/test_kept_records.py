"""What the store takes up of switches that were made while it was dead, and when no cluster need keep them any more."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.switch.test_decision import NOW_MS, record
from twinshore.replication.core.ownership import spent, to_take_up
from twinshore.state.core.values import SwitchRow
from twinshore.switch.core.steps import DEEDS, Deed, Kind, State, SwitchState
from twinshore.switch.operations.run import values_of

FORCED = replace(record(Kind.FORCED), kept="west", deed=Deed.FENCE)
ONE = FORCED.id


def taken(one: SwitchState) -> SwitchRow:
    (row,) = to_take_up({one.id: values_of(one)}, (), NOW_MS)
    return row


def test_a_switch_that_the_store_does_not_know_is_taken_up_as_it_stands() -> None:
    row = taken(FORCED)
    assert SwitchState.from_json(row.record) == FORCED
    assert (row.id, row.kind, row.source, row.target, row.state) == (ONE, "forced", "east", "west", "going on")
    assert (row.begun_ms, row.ended_ms) == (FORCED.begun_ms, None)
    assert taken(replace(FORCED, state=State.TURNED_BACK)).ended_ms == NOW_MS


def test_what_has_gone_on_there_is_news_and_what_the_store_keeps_is_not() -> None:
    row, later = taken(FORCED), values_of(replace(FORCED, deed=Deed.FLIP))
    assert to_take_up({ONE: values_of(FORCED)}, [row], NOW_MS) == []
    assert [json.loads(one.record)["deed"] for one in to_take_up({ONE: later}, [row], NOW_MS)] == ["flip"]
    ours = replace(row, record=replace(FORCED, kept="").to_json())
    assert to_take_up({ONE: later}, [ours], NOW_MS) == []
    assert spent({ONE: later}, [ours]) == [ONE], "a process with the store goes on with it"


@pytest.mark.parametrize("deed", DEEDS[Kind.FORCED])
def test_a_cluster_keeps_a_switch_until_nobody_works_on_it_without_the_store(deed: Deed) -> None:
    open_yet = replace(FORCED, deed=deed)
    assert spent({ONE: values_of(open_yet)}, [taken(open_yet)]) == []
    for over in (replace(open_yet, state=State.DONE).as_kept(), replace(open_yet, state=State.TURNED_BACK)):
        assert spent({ONE: values_of(over)}, ()) == []
        assert spent({ONE: values_of(over)}, [taken(open_yet)]) == [], "the store does not know yet how it ended"
        assert spent({ONE: values_of(over)}, [taken(over)]) == [ONE]


def test_what_is_done_without_the_store_waits_for_it_behind_its_point_of_no_return() -> None:
    owed = replace(FORCED, state=State.DONE, deed=Deed.RELEASE).as_kept()
    assert (owed.deed, owed.state, owed.awaits_store, owed.committed) == (Deed.GIVE, State.GOING, True, True)
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
    raw = values_of(FORCED) | change
    assert to_take_up({ONE: raw}, (), NOW_MS) == []
    assert to_take_up({ONE: None}, (), NOW_MS) == []
    assert spent({ONE: raw}, ()) == []
    assert asdict(taken(FORCED))["id"] == ONE
