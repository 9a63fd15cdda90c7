"""Whole rounds beside readers of the target that are no members: left alone until asked for, by whatever process."""

from __future__ import annotations

from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.groups.book import Book
from twinshore.groups.direction import Direction
from twinshore.groups.place import MARK, State
from twinshore.wire.group_places import Place


def test_who_reads_on_its_own_at_the_target_is_left_alone_until_it_is_asked_for() -> None:
    """A job that assigns its partitions itself and commits: no member, so that no coordinator keeps us off."""
    stage = Stage(verify_s=2.0)
    twin = TWINS[PARTS[0]]
    stage.commit("flink", 90)
    stage.turn()
    for at in (11, 20, 42):
        stage.west.groups["flink"][twin] = Place(at)
        stage.commit("flink", 95)
        for _ in range(4):
            stage.turn()
        assert (stage.there("flink"), stage.state("flink")) == (at, (State.OWN, 95 - at))
    stage.commit("flink", 97)
    stage.turn()
    assert stage.there("flink") == 42
    stage.west.groups["flink"][twin] = Place(95, MARK)  # as `groups move` leaves it
    for _ in range(4):
        stage.turn()
    assert (stage.there("flink"), stage.state("flink")[0]) == (97, State.SAME)


def test_a_place_of_its_own_that_the_target_has_forgotten_is_nobodys() -> None:
    stage = Stage()
    stage.commit("flink", 90)
    stage.turn()
    stage.west.groups["flink"][TWINS[PARTS[0]]] = Place(42)
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
    stage.west.groups["theirs"][TWINS[PARTS[0]]] = Place(30)
    for group in ("ours", "theirs"):
        stage.commit(group, 70)
    stage.direction = Direction(stage.east, stage.west, stage.west, Book(1000.0, 1e9), clock=lambda: stage.clock_s)
    stage.turn()
    assert (stage.there("ours"), stage.there("theirs")) == (70, 30)
    assert stage.state("theirs") == (State.OWN, 40)
