"""Whole rounds beside readers of the target that are no members: left alone until asked for, by whatever process."""

from __future__ import annotations

from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.cluster_groups import SyncDirection
from twinshore.groups.core.commit_rules import GroupSyncStatus
from twinshore.groups.core.sync_state import SyncState
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple


def test_who_reads_on_its_own_at_the_target_is_left_alone_until_it_is_asked_for() -> None:
    """A job that assigns its partitions itself and commits: no member, so that no coordinator keeps us off."""
    stage = Stage(verify_s=2.0)
    twin = TWINS[PARTS[0]]
    stage.commit("flink", 90)
    stage.turn()
    for at in (11, 20, 42):
        stage.west.groups["flink"][twin] = CommittedOffset(at)
        stage.commit("flink", 95)
        for _ in range(4):
            stage.turn()
        assert (stage.there("flink"), stage.state("flink")) == (at, (GroupSyncStatus.OWN, 95 - at))
    stage.commit("flink", 97)
    stage.turn()
    assert stage.there("flink") == 42
    stage.west.groups["flink"][twin] = CommittedOffset(95, COMMIT_MARK)  # as `groups move` leaves it
    for _ in range(4):
        stage.turn()
    assert (stage.there("flink"), stage.state("flink")[0]) == (97, GroupSyncStatus.SAME)


def test_a_place_of_its_own_that_the_target_has_forgotten_is_nobodys() -> None:
    stage = Stage()
    stage.commit("flink", 90)
    stage.turn()
    stage.west.groups["flink"][TWINS[PARTS[0]]] = CommittedOffset(42)
    stage.commit("flink", 95)
    stage.turn()
    stage.west.forget("flink")
    stage.turn()
    assert stage.there("flink") == 95


def test_after_a_restart_places_of_the_link_are_known_by_their_mark_and_others_are_left_alone() -> None:
    stage = Stage()
    for group in ("ours", "theirs"):
        stage.commit(group, 50)
    stage.turn()
    stage.west.groups["theirs"][TWINS[PARTS[0]]] = CommittedOffset(30)
    for group in ("ours", "theirs"):
        stage.commit(group, 70)
    stage.direction = SyncDirection(
        stage.east, stage.west, stage.west, SyncState(1000.0, 1e9), clock=lambda: stage.clock_s
    )
    stage.turn()
    assert (stage.there("ours"), stage.there("theirs")) == (70, 30)
    assert stage.state("theirs") == (GroupSyncStatus.OWN, 40)


def streams(stage: Stage, offset: int) -> None:
    """A group whose consumers leave a note of their own with each place."""
    stage.east.groups.setdefault("streams", {})[PARTS[0]] = CommittedOffset(offset, f"AgAAAZ{offset}")


def test_a_commit_whose_answer_is_lost_makes_nobodys_place_of_the_links() -> None:
    stage = Stage()
    streams(stage, 50)
    stage.turn()
    commit = stage.west.commit

    def unanswered(*asked: object) -> dict[str, dict[TopicPartitionTuple, int]]:
        commit(*asked)  # type: ignore[arg-type]
        return {}

    streams(stage, 60)
    stage.west.commit = unanswered  # type: ignore[method-assign,assignment]
    stage.turn()
    stage.west.commit = commit  # type: ignore[method-assign]
    streams(stage, 70)
    for _ in range(2):
        stage.turn()
    assert (stage.there("streams"), stage.state("streams")[0]) == (70, GroupSyncStatus.SAME)


def test_a_reset_by_an_operator_to_where_the_link_left_the_group_is_the_operators() -> None:
    stage = Stage()
    twin = TWINS[PARTS[0]]
    stage.commit("g", 60)
    stage.turn()
    stage.west.groups["g"][twin] = CommittedOffset(70)
    stage.commit("g", 80)
    stage.turn()
    stage.west.groups["g"][twin] = CommittedOffset(60)  # reset, to read again what came since
    stage.commit("g", 95)
    stage.turn()
    assert (stage.there("g"), stage.state("g")) == (60, (GroupSyncStatus.OWN, 35))


def test_a_reader_that_commits_at_the_very_place_that_the_link_left_is_not_moved_from_there() -> None:
    stage = Stage()
    stage.commit("g", 60)
    stage.turn()
    stage.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(60)
    stage.commit("g", 95)
    stage.turn()
    assert stage.there("g") == 60


def test_members_that_came_and_read_nothing_leave_the_group_to_follow() -> None:
    stage = Stage()
    stage.commit("g", 60)
    stage.turn()
    stage.west.members.add("g")
    stage.turn()
    stage.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(60)  # committed as they left
    stage.west.members.clear()
    stage.commit("g", 95)
    stage.turn()
    assert stage.there("g") == 95


def test_a_group_whose_consumers_ever_left_a_note_gets_no_mark() -> None:
    """Some clients decode what stands beside a place, and end at a text that they did not write."""
    stage = Stage()
    twins = [TWINS[where] for where in PARTS]
    stage.commit("g", 30, PARTS[1])
    stage.turn()
    assert stage.west.groups["g"][twins[1]] == CommittedOffset(30, COMMIT_MARK)
    streams_note = CommittedOffset(50, "open: 48, 49")
    stage.east.groups["g"][PARTS[0]] = streams_note
    for _ in range(2):
        stage.turn()
    assert stage.west.groups["g"] == {twins[0]: streams_note, twins[1]: CommittedOffset(30, "")}
    stage.commit("g", 70)
    stage.turn()
    assert stage.west.groups["g"][twins[0]] == CommittedOffset(70, "")
    del stage.east.groups["g"]
    for _ in range(5):
        stage.turn()
    stage.commit("g", 80)
    stage.turn()
    assert stage.west.groups["g"][twins[0]] == CommittedOffset(80, ""), "it was gone for a while, and is the same group"
