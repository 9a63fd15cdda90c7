"""What an old home holds that never crossed, by what its logs and the link back say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import mentions
from twinshore.config.errors import WireError
from twinshore.config.incident_policy import IncidentKind
from twinshore.switch.core.unreplicated import (
    OldHomePartition,
    UnreplicatedRange,
    clamp_offsets,
    describe_deleted_offsets,
    describe_differing,
    find_changed_ranges,
    find_unreplicated_ranges,
    has_unchecked_records,
    ranges_from_json,
    ranges_to_json,
)

LEVEL = OldHomePartition("orders", 0, 0, 10, 10)
FOREIGN = IncidentKind.FOREIGN_WRITE


@pytest.mark.parametrize(
    ("stood", "span"),
    [
        (LEVEL, None),
        (replace(LEVEL, end=7), None),  # what it lost it gets again
        (replace(LEVEL, end=15, carried=15), None),  # the link back wrote there
        (replace(LEVEL, end=15), (10, 15)),  # nobody has looked yet
        (replace(LEVEL, end=15, stopped=FOREIGN, stopped_at=10), (10, 15)),
        (replace(LEVEL, end=30, carried=20, stopped=FOREIGN, stopped_at=25), (20, 30)),
        (replace(LEVEL, start=12, end=15, stopped=FOREIGN, stopped_at=10), (12, 15)),
        (replace(LEVEL, start=2, end=7, stopped=IncidentKind.TRUNCATION, stopped_at=6), (2, 7)),
        (replace(LEVEL, start=2, end=15, stopped=FOREIGN, stopped_at=10, one_past=False), (2, 15)),
        (replace(LEVEL, end=15, carried=15, stopped=IncidentKind.RIGHTS_LOST), None),
    ],
)
def test_what_would_be_lost(stood: OldHomePartition, span: tuple[int, int] | None) -> None:
    assert [(one.first, one.end) for one in find_unreplicated_ranges([stood])] == ([span] if span else [])


def test_a_partition_that_nobody_looked_at_is_waited_for() -> None:
    assert has_unchecked_records(replace(LEVEL, end=15))
    assert not has_unchecked_records(replace(LEVEL, end=15, stopped=FOREIGN, stopped_at=10))
    assert has_unchecked_records(replace(LEVEL, end=15, carried=11)), (
        "what lies behind what was carried may be a stranger's"
    )
    assert not has_unchecked_records(replace(LEVEL, end=15, carried=11, strays_at=12))
    assert not has_unchecked_records(replace(LEVEL, end=15, carried=15))
    assert not has_unchecked_records(LEVEL)


def test_a_tail_that_grew_or_is_new_is_told() -> None:
    found = (UnreplicatedRange("orders", 0, 10, 15), UnreplicatedRange("orders", 1, 3, 4))
    assert find_changed_ranges(found, found) == ()
    assert find_changed_ranges(found, (replace(found[0], first=12), found[1])) == (), "some of it was not to be saved"
    grown = replace(found[1], end=6)
    assert find_changed_ranges(found, (found[0], grown)) == (grown,)
    stray = UnreplicatedRange("orders", 2, 8, 9)
    assert find_changed_ranges(found, (*found, stray)) == (stray,)
    assert [str(one) for one in found] == ["orders-0 offsets 10 to 14", "orders-1 offset 3"]


def test_what_retention_has_taken_unseen_is_told() -> None:
    gone = replace(LEVEL, start=19, end=19, stopped=FOREIGN, stopped_at=10)
    assert find_unreplicated_ranges([gone]) == (UnreplicatedRange("orders", 0, 19, 19, gone=9),)
    partly = find_unreplicated_ranges([replace(gone, end=21)])
    assert partly == (UnreplicatedRange("orders", 0, 19, 21, gone=9),)
    assert mentions(describe_deleted_offsets(partly), "9 offsets")
    assert describe_deleted_offsets(find_unreplicated_ranges([replace(LEVEL, end=15)])) == ""
    assert "nothing is left" in str(find_unreplicated_ranges([gone])[0])
    lost = replace(LEVEL, start=4, end=4, stopped=IncidentKind.TRUNCATION, stopped_at=4)
    assert find_unreplicated_ranges([lost]) == (UnreplicatedRange("orders", 0, 4, 4, beside=True),), (
        "it stands still, and must be filled anew"
    )


def test_strangers_in_a_partition_that_goes_on_are_saved_with_the_others() -> None:
    stray = replace(LEVEL, end=20, carried=13, strays_at=13)
    other = replace(LEVEL, partition=1, end=15, stopped=FOREIGN, stopped_at=10)
    assert find_unreplicated_ranges([stray, other]) == (
        UnreplicatedRange("orders", 0, 13, 20),
        UnreplicatedRange("orders", 1, 10, 15),
    )
    assert describe_differing([stray, other], ["orders"], "east", "west") == ""
    differs = [replace(other, differs=True), stray]
    assert mentions(describe_differing(differs, ["orders"], "east", "west"), "orders-1", "east", "west")
    assert describe_differing(differs, ["bills"], "east", "west") == ""


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 50)))
def test_no_group_stands_in_a_tail_that_is_no_more(places: dict[tuple[str, int], int]) -> None:
    starts = {("a", 0): 10, ("b", 2): 0}
    there = clamp_offsets(places, starts)
    assert there.keys() == places.keys()
    assert all(at <= starts.get(where, at) and at <= places[where] for where, at in there.items())


def test_tails_survive_their_way_and_garbage_does_not() -> None:
    found = (UnreplicatedRange("orders", 0, 10, 15, 5, 3, "a file"),)
    assert ranges_from_json(ranges_to_json(found)) == found
    assert ranges_from_json("") == ()
    for text in ("x", "[1]", '[{"topic": "a"}]'):
        with pytest.raises(WireError):
            ranges_from_json(text)
