"""A topic changes homes and comes back: what was known before it went moves no place of a group afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.groups.model_sides import ModelSide
from tests.groups.test_direction import PARTS, SCOPE, TWINS
from tests.groups.test_kept_together import INVOICES, Stage, held
from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.cluster_groups import ROUNDS_UNTIL_GONE, SyncDirection
from twinshore.groups.core.commit_rules import EMPTY_SCOPE, CommitRules, SyncScope, decide_commit_back
from twinshore.groups.core.sync_state import SyncState
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple

OTHERS: TopicPartitionTuple = ("refunds", 0)
# The link keeps twins of orders and of refunds, and of refunds alone while orders are at home on the other side.
WITH_OTHERS = SyncScope(
    {**SCOPE.parts, OTHERS: (("east.refunds", 0), SCOPE.parts[PARTS[0]][1])},
    (*SCOPE.names, ("refunds", "east.refunds", "c", "d")),
)
WITHOUT_ORDERS = SyncScope({OTHERS: WITH_OTHERS.parts[OTHERS]}, WITH_OTHERS.names[1:])


def cross(stage: Stage) -> None:
    for where in INVOICES:
        stage.cross(where, 999)


def away(stage: Stage, group: str, offset: int, *, twins: bool) -> None:
    """Orders are at home on west, and the group reads on there. `twins`: invoices stay where they are."""
    stage.logs.now = EMPTY_SCOPE
    if not twins:
        stage.logs.twinless = {"invoices"}
    stage.west.groups[group] = {TWINS[PARTS[0]]: CommittedOffset(offset)}
    for at in (offset - 50, offset):
        stage.east.groups[group] = {PARTS[0]: CommittedOffset(at)}
        stage.turn()
    stage.logs.now, stage.logs.twinless = replace(SCOPE), set()


@pytest.mark.parametrize("twins", [True, False])
@pytest.mark.parametrize("group", ["billing", "reports"])
def test_a_group_that_went_away_and_came_home_with_its_topic_follows_again(group: str, twins: bool) -> None:
    stage = Stage()
    stage.process(90, group)
    cross(stage)
    for _ in range(2):
        stage.turn()
    assert stage.there(group) == 90
    away(stage, group, 200, twins=twins)
    stage.turn()
    stage.read = 200
    stage.process(100, group)
    cross(stage)
    for _ in range(2):
        stage.turn()
    assert stage.there(group) == 300, "it is not on its own there"
    assert not stage.direction.sync_state.groups[group].standing


@pytest.mark.parametrize("group", ["billing", "reports"])
def test_a_place_that_was_heard_before_its_topic_came_home_is_no_place_in_it(group: str) -> None:
    """Its coordinator is silent in the first rounds after that."""
    stage = Stage()
    stage.process(90, group)
    cross(stage)
    stage.turn()
    away(stage, group, 200, twins=True)
    stage.east.groups[group] = {PARTS[0]: CommittedOffset(250)}
    stage.west.groups[group] = {TWINS[PARTS[0]]: CommittedOffset(250)}
    stage.east.lost.add(group)
    for _ in range(ROUNDS_UNTIL_GONE - 1):
        stage.turn()
    stage.east.lost.clear()
    stage.turn()
    stage.read = 250
    stage.process(50, group)
    cross(stage)
    for _ in range(2):
        stage.turn()
    assert stage.there(group) == 300


def test_a_topic_that_goes_and_comes_holds_back_no_group_that_does_not_read_it() -> None:
    stage = Stage()
    stage.west.ends["east.refunds", 0] = 1000
    stage.logs.now = WITH_OTHERS
    stage.process(10)
    stage.east.groups["billing"] = {OTHERS: CommittedOffset(10)}
    cross(stage)
    stage.turn()
    stage.process(10)
    stage.east.groups["billing"] = {OTHERS: CommittedOffset(20)}
    for scope in (WITHOUT_ORDERS, WITH_OTHERS):
        stage.logs.now = scope
        stage.turn()
        assert (held(stage.kept), set(stage.kept.waiting)) == (set(), {"billing"})
    cross(stage)
    stage.turn()
    assert stage.west.groups["billing"] == {("east.refunds", 0): CommittedOffset(20, COMMIT_MARK)}


def test_where_the_link_left_a_group_that_is_no_more_is_forgotten_with_the_topic() -> None:
    """Its consumers leave notes, so that the link knows its places by memory alone."""
    stage = Stage()
    stage.east.groups["reports"] = {PARTS[0]: CommittedOffset(90, "open: 88")}
    stage.turn()
    del stage.east.groups["reports"]
    for _ in range(ROUNDS_UNTIL_GONE):
        stage.turn()
    for stage.logs.now in (EMPTY_SCOPE, SCOPE):
        stage.turn()
    stage.east.groups["reports"] = {PARTS[0]: CommittedOffset(30, "open: 28")}
    for _ in range(4):
        stage.turn()
    assert stage.there("reports") == 90, "whoever read it on west may have come to that very offset"


@pytest.mark.parametrize("restarts", [True, False])
def test_what_the_way_there_set_before_says_of_no_place_that_it_was_seen_to_move(restarts: bool) -> None:
    east, west = ModelSide("east"), ModelSide("west")
    east.ends = dict.fromkeys(PARTS, 1000)
    east.groups["g"], west.groups["g"] = {PARTS[0]: CommittedOffset(90)}, {TWINS[PARTS[0]]: CommittedOffset(90)}

    def begun() -> SyncDirection:
        book = SyncState(1000.0, float("inf"))
        return SyncDirection(west, east, east, book, decide_commit_back, CommitRules(makes=False), clock=lambda: 0.0)

    back = begun()
    now_s = 0.0

    def turn(scope: SyncScope) -> None:
        nonlocal now_s
        for _ in range(2):
            now_s += 1.0
            back.turn(scope, west.listed(), east.listed(), lambda _: True, now_s)

    back.sync_state.expect("g", TWINS[PARTS[0]], 90)
    turn(SCOPE.reversed())
    turn(EMPTY_SCOPE)
    west.groups["g"], east.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(200)}, {PARTS[0]: CommittedOffset(150)}
    if restarts:
        back = begun()
    turn(SCOPE.reversed())
    assert east.groups["g"][PARTS[0]].offset == 150, "nobody saw it move on west"
    west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(210)}
    turn(SCOPE.reversed())
    assert east.groups["g"][PARTS[0]].offset == 210
