"""Whole rounds beside groups that are deleted on the source: none comes back, and who begins again is followed."""

from __future__ import annotations

import pytest

from tests.groups.test_direction import PARTS, SCOPE, TWINS, Stage
from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.cluster_groups import SyncDirection
from twinshore.groups.core.commit_rules import CommitRules, GroupSyncStatus, decide_commit_back
from twinshore.groups.core.sync_state import SyncState
from twinshore.groups.sync import worst_status
from twinshore.kafka.protocol.offsets import CommittedOffset


class BothWays(Stage):
    """With the way back, as `back = true` has it."""

    def __init__(self) -> None:
        super().__init__()
        self.east.ends = dict.fromkeys(PARTS, 100)
        rules = CommitRules(makes=False)
        book = SyncState(5.0, 1e9)
        self.back = SyncDirection(
            self.west, self.east, self.east, book, decide_commit_back, rules, clock=lambda: self.clock_s
        )
        self.direction.echo = book.expect

    def rounds(self, count: int = 8) -> None:
        for _ in range(count):
            self.turn()
            here, there = self.west.listed(), self.east.listed()
            self.back.turn(SCOPE.reversed(), here, there, lambda _: True, self.now_s)


@pytest.fixture
def both() -> BothWays:
    stage = BothWays()
    stage.commit("g", 50)
    stage.rounds()
    assert stage.west.groups["g"] == {TWINS[PARTS[0]]: CommittedOffset(50, COMMIT_MARK)}
    return stage


def test_the_way_back_brings_no_deleted_group_back_though_it_reads_on_at_the_target(both: BothWays) -> None:
    del both.east.groups["g"]
    both.rounds()
    both.west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(70)}
    both.rounds()
    assert "g" not in both.east.groups
    both.commit("g", 5)
    both.rounds()
    assert both.east.groups["g"] == {PARTS[0]: CommittedOffset(5)}, "it has begun anew on the source"
    both.west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(80)}
    both.rounds()
    assert both.east.groups["g"] == {PARTS[0]: CommittedOffset(80)}, "now it goes on at the target"


def test_the_way_back_leaves_one_topics_places_deleted_until_the_group_reads_there(both: BothWays) -> None:
    both.commit("g", 9, PARTS[1])
    both.rounds()
    del both.east.groups["g"][PARTS[0]]
    both.rounds()
    assert both.east.groups["g"] == {PARTS[1]: CommittedOffset(9)}
    both.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(70)
    both.rounds()
    assert both.east.groups["g"] == {PARTS[1]: CommittedOffset(9), PARTS[0]: CommittedOffset(70)}


def test_the_way_back_makes_no_group_that_the_target_alone_knows(both: BothWays) -> None:
    for offset in (20, 30, 40):
        both.west.groups["reports"] = {TWINS[PARTS[0]]: CommittedOffset(offset)}
        both.rounds()
    assert "reports" not in both.east.groups


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("what", ["group", "places of a topic"])
def test_a_group_that_is_deleted_and_begins_again_lower_is_followed(what: str, *, restarts: bool) -> None:
    stage = Stage()
    stage.commit("g", 50)
    stage.commit("g", 7, PARTS[1])
    stage.turn()
    del stage.east.groups["g"][PARTS[0]]
    if what == "group":
        del stage.east.groups["g"]
    for _ in range(5):
        stage.turn()
    assert stage.there("g") == 50, "what is deleted on the source is not deleted on the target"
    if restarts:
        stage.direction = SyncDirection(
            stage.east, stage.west, stage.west, SyncState(1000.0, 1e9), clock=lambda: stage.clock_s
        )
    for offset in (10, 12, 14):
        stage.commit("g", offset)
        stage.turn()
    assert (stage.there("g"), worst_status(stage.direction.sync_state.groups["g"])[0]) == (14, GroupSyncStatus.SAME)


def test_who_has_read_on_at_the_target_while_the_group_was_gone_is_not_set_back() -> None:
    stage = Stage()
    stage.commit("g", 50)
    stage.turn()
    del stage.east.groups["g"]
    for _ in range(5):
        stage.turn()
    stage.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(60)
    stage.commit("g", 10)
    for _ in range(5):
        stage.turn()
    assert (stage.there("g"), stage.state("g")[0]) == (60, GroupSyncStatus.AHEAD)
