"""What `twinshore groups` shows of places: the same as the mirror's rounds say, whose memory it has not."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.groups.model_sides import ModelSide
from tests.groups.test_direction import PARTS, SCOPE, TWINS
from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.core.commit_rules import DEFAULT_RULES, CommitRules, GroupSyncStatus
from twinshore.groups.view import (
    ONLY_ON_TARGET,
    PARTLY_ONLY_ON_TARGET,
    GroupsSnapshot,
    GroupView,
    _parts,
    _view,
    read_snapshot,
)
from twinshore.kafka.consumer_groups import GroupListings
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple


def shown(there: CommittedOffset, rules: CommitRules = DEFAULT_RULES, *, own: bool = False) -> str:
    where, ends = PARTS[0], dict.fromkeys(TWINS.values(), 100)
    places = {where: CommittedOffset(99, "AgB")}, {TWINS[where]: there}
    (part,) = _parts(*places, SCOPE, ends, rules, {where} if own else ())
    return part.state


def test_a_place_that_the_mirror_leaves_alone_is_shown_so() -> None:
    assert shown(CommittedOffset(60, "AgA")) == GroupSyncStatus.MOVES
    assert shown(CommittedOffset(60, "AgA"), own=True) == GroupSyncStatus.OWN
    assert shown(CommittedOffset(60, COMMIT_MARK), own=True) == GroupSyncStatus.MOVES, "it was asked for since"
    assert shown(CommittedOffset(99, "AgB"), own=True) == GroupSyncStatus.SAME


def test_what_the_settings_and_the_store_say_of_places_holds_here_too() -> None:
    assert shown(CommittedOffset(60)) == GroupSyncStatus.OWN
    for rules in (CommitRules(marks=False), CommitRules(notes=True)):
        assert shown(CommittedOffset(60), rules) == GroupSyncStatus.MOVES


def seen(
    here: GroupsSnapshot,
    there: GroupsSnapshot,
    *,
    ends: Collection[TopicPartitionTuple] = tuple(TWINS.values()),
    word: object = None,
) -> GroupView:
    told = {"differ": {"g": word}} if word else {}
    return _view("east->west", "g", (here, there), SCOPE, dict.fromkeys(ends, 100), told, DEFAULT_RULES)


def state_of(
    here: dict[TopicPartitionTuple, CommittedOffset], there: dict[TopicPartitionTuple, CommittedOffset]
) -> str:
    return seen(*(GroupsSnapshot(GroupListings({}, {}), {"g": places}, {}) for places in (here, there))).state


def test_a_group_of_which_a_partition_is_read_on_the_target_only_is_not_called_the_same() -> None:
    first, second = PARTS[:2]
    both = {TWINS[first]: CommittedOffset(50, COMMIT_MARK), TWINS[second]: CommittedOffset(7)}
    assert state_of({first: CommittedOffset(50), second: CommittedOffset(7)}, both) == GroupSyncStatus.SAME
    assert state_of({first: CommittedOffset(50)}, both) == PARTLY_ONLY_ON_TARGET
    assert state_of({first: CommittedOffset(60)}, both) == GroupSyncStatus.MOVES, "what the mirror does comes first"
    assert state_of({}, both) == ONLY_ON_TARGET


@pytest.mark.parametrize("word", [{}, {"waits": ["other"]}, {"waits": ["g"]}])
def test_a_group_waits_only_where_the_mirror_holds_its_places_back(word: dict[str, object]) -> None:
    """Also of those that are named in `outputs`: all may have crossed, and without a mirror nothing is held back."""
    where = PARTS[0]

    def states(at: int) -> tuple[str, str]:
        here, there = (
            GroupsSnapshot(GroupListings({}, {}), {"g": one}, {})
            for one in ({where: CommittedOffset(60)}, {TWINS[where]: CommittedOffset(at, COMMIT_MARK)})
        )
        view = _view("east->west", "g", (here, there), SCOPE, dict.fromkeys(TWINS.values(), 100), word, DEFAULT_RULES)
        return view.state, view.parts[0].state

    waits = word.get("waits") == ["g"]
    assert states(50) == (
        (GroupSyncStatus.WAITS, GroupSyncStatus.WAITS) if waits else (GroupSyncStatus.MOVES, GroupSyncStatus.MOVES)
    )
    assert states(60) == (GroupSyncStatus.SAME, GroupSyncStatus.SAME)


def sight(side: ModelSide) -> GroupsSnapshot:
    return read_snapshot(side, side.listed(), ["g"])


@pytest.fixture
def sides() -> tuple[ModelSide, ModelSide]:
    """A group that stands at 50 of the first partition, on both."""
    east, west = ModelSide("east"), ModelSide("west")
    east.groups["g"], west.groups["g"] = (
        {PARTS[0]: CommittedOffset(50)},
        {TWINS[PARTS[0]]: CommittedOffset(50, COMMIT_MARK)},
    )
    return east, west


@pytest.mark.parametrize("lost", ["unlisted", "listed"])
def test_a_lost_coordinator_makes_no_place_of_a_group_vanish(sides: tuple[ModelSide, ModelSide], lost: str) -> None:
    """A broker that was killed is named for a while, and then no more; its groups are not known in either case."""
    east, west = sides
    listed = west.listed()
    west.lost.add("g")
    there = read_snapshot(west, listed if lost == "listed" else west.listed(), ["g"])
    view = seen(sight(east), there)
    assert (view.state, view.missing, view.behind, view.parts[0].state) == ("away", None, None, "away")
    assert view.target_state == ("Empty" if lost == "listed" else "away")
    assert "on west " in view.why
    west.lost.clear()
    east.lost.add("g")
    view = seen(sight(east), sight(west))
    assert (view.source_state, view.state, view.parts[0].target) == ("away", "away", 50)
    assert "on east " in view.why


def test_a_group_that_the_target_hides_is_refused_and_does_not_move(sides: tuple[ModelSide, ModelSide]) -> None:
    east, west = sides
    west.hidden.add("g")
    west.forbidden.add("g")
    view = seen(sight(east), sight(west))
    assert (view.state, view.target_state, view.missing) == ("refused", "refused", None)
    assert "grant Describe on g" in view.why


def test_places_that_the_target_did_not_take_from_the_mirror_do_not_move(sides: tuple[ModelSide, ModelSide]) -> None:
    east, west = sides
    east.groups["g"][PARTS[0]] = CommittedOffset(60)
    assert seen(sight(east), sight(west)).state == GroupSyncStatus.MOVES
    word = [GroupSyncStatus.REFUSED, 10, 1, [], [list(PARTS[0])]]
    assert seen(sight(east), sight(west), word=word).state == GroupSyncStatus.REFUSED
    east.groups["g"][PARTS[0]] = CommittedOffset(50)
    assert seen(sight(east), sight(west), word=word).state == GroupSyncStatus.SAME


def test_a_twin_without_a_leader_does_not_end_at_0(sides: tuple[ModelSide, ModelSide]) -> None:
    view = seen(*(sight(side) for side in sides), ends=())
    assert (view.state, view.parts[0].end) == ("away", None)
