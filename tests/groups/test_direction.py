"""Whole rounds against a model of two clusters: what is committed, what is left alone, what is not asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.groups.model_sides import ModelSide
from twinshore.config.errors import KafkaError
from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import TopicPartition
from twinshore.groups.cluster_groups import TARGET_READ_MAX_AGE_S, SyncDirection
from twinshore.groups.core.commit_rules import EXACT_TRANSLATION, GroupSyncStatus, SyncScope, decide_commit_back
from twinshore.groups.core.sync_state import SyncRoundResult, SyncState
from twinshore.groups.sync import build_status, compared_groups, last_compared_status, worst_status
from twinshore.kafka.consumer_groups import GroupListing
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple

PARTS: list[TopicPartitionTuple] = [("orders", 0), ("orders", 1)]
SCOPE = SyncScope(
    {where: (("east." + where[0], where[1]), EXACT_TRANSLATION) for where in PARTS},
    (("orders", "east.orders", "a", "b"),),
)
TWINS = {where: twin for where, (twin, _) in SCOPE.parts.items()}


class Stage:
    """A source, a target, and rounds a second apart."""

    def __init__(self, verify_s: float = 1000.0, renew_s: float = 1e9) -> None:
        self.east, self.west = ModelSide("east"), ModelSide("west")
        self.west.ends = dict.fromkeys(TWINS.values(), 100)
        self.clock_s = 0.0
        self.ours = True
        self.holds: Callable[[], bool] = lambda: True
        self.now_s = 0.0
        self._periods = verify_s, renew_s
        self.restart()

    def restart(self) -> None:
        """The next process begins, and remembers nothing."""
        book = SyncState(*self._periods)
        self.direction = SyncDirection(self.east, self.west, self.west, book, clock=lambda: self.clock_s)

    def commit(self, group: str, offset: int, where: TopicPartitionTuple = PARTS[0]) -> None:
        self.east.groups.setdefault(group, {})[where] = CommittedOffset(offset)

    def there(self, group: str, where: TopicPartitionTuple = PARTS[0]) -> int | None:
        place = self.west.groups.get(group, {}).get(TWINS[where])
        return place.offset if place else None

    def turn(self) -> SyncRoundResult:
        self.now_s += 1.0
        here, there = self.east.listed(), self.west.listed()
        may, holds = (lambda: self.ours), (lambda: self.holds())
        return self.direction.turn(SCOPE, here, there, _is_meant, self.now_s, may=may, holds=holds)

    def state(self, group: str) -> tuple[GroupSyncStatus, int]:
        return worst_status(self.direction.sync_state.groups[group])[:2]


def test_only_what_changed_is_committed_and_only_what_is_open_is_asked() -> None:
    stage = Stage()
    for number in range(20):
        stage.commit(f"g{number}", number)
    assert stage.turn().commits == 20
    assert stage.turn().commits == 0
    stage.commit("g3", 50)
    turn = stage.turn()
    assert (turn.changed, turn.commits, stage.there("g3")) == (1, 1, 50)
    assert stage.turn().commits == 0


def test_a_place_waits_at_the_twins_end_and_goes_on_with_it() -> None:
    stage = Stage()
    stage.west.ends[TWINS[PARTS[0]]] = 40
    stage.commit("g", 70)
    stage.turn()
    assert (stage.there("g"), stage.state("g")) == (40, (GroupSyncStatus.BEHIND, 30))
    assert stage.turn().commits == 0
    stage.west.ends[TWINS[PARTS[0]]] = 80
    stage.turn()
    assert (stage.there("g"), stage.state("g")) == (70, (GroupSyncStatus.SAME, 0))


def test_a_group_with_members_there_is_not_even_asked_and_follows_when_they_go() -> None:
    stage = Stage()
    stage.commit("g", 10)
    stage.turn()
    stage.west.members.add("g")
    stage.commit("g", 20)
    assert stage.turn().commits == 0
    assert stage.state("g")[0] is GroupSyncStatus.LIVE
    stage.west.members.clear()
    stage.turn()
    assert stage.there("g") == 20
    stage.west.members.add("g")
    stage.turn()
    stage.west.consume("g", TWINS[PARTS[0]], 60)
    stage.west.members.clear()
    stage.turn()
    assert stage.state("g") == (GroupSyncStatus.AHEAD, 0)


def test_members_that_join_between_look_and_commit_are_not_overtaken() -> None:
    stage = Stage()
    stage.commit("g", 10)
    stage.west.joins_before_commit.add("g")
    stage.turn()
    assert (stage.there("g"), stage.state("g")[0]) == (None, GroupSyncStatus.LIVE)
    stage.west.joins_before_commit.clear()
    stage.turn()
    assert stage.there("g") == 10


def test_a_group_that_the_target_forgot_gets_its_place_again_at_once() -> None:
    stage = Stage()
    stage.commit("g", 10)
    stage.turn()
    stage.west.groups.clear()
    stage.turn()
    assert stage.there("g") == 10


def test_a_group_that_is_not_listed_for_a_moment_keeps_the_place_to_which_it_read_on() -> None:
    """Its coordinator moves: not listed is not the same as not there."""
    stage = Stage()
    stage.commit("g", 10)
    stage.turn()
    stage.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(80)
    stage.west.hidden.add("g")
    stage.commit("g", 20)
    stage.turn()
    assert stage.there("g") == 80
    stage.east.hidden.add("g")
    stage.turn()
    assert "g" in stage.direction.sync_state.groups
    for _ in range(3):
        stage.turn()
    assert "g" not in stage.direction.sync_state.groups


def test_a_place_lost_alone_is_found_by_the_next_comparison() -> None:
    stage = Stage(verify_s=5.0)
    for where in PARTS:
        stage.commit("g", 10, where)
    stage.turn()
    del stage.west.groups["g"][TWINS[PARTS[1]]]
    for _ in range(6):
        stage.turn()
    assert stage.there("g", PARTS[1]) == 10


def test_idle_groups_are_committed_again_in_time_and_those_of_others_are_left_alone() -> None:
    stage = Stage(renew_s=10.0)
    for number in range(50):
        stage.commit(f"g{number}", 10)
    stage.turn()
    stage.west.groups["g7"][TWINS[PARTS[0]]] = CommittedOffset(99)
    last = dict.fromkeys(stage.east.groups, stage.now_s)
    for _ in range(60):
        stage.west.taken.clear()
        stage.turn()
        last.update((one.group, stage.now_s) for one in stage.west.taken)
        # Its reader may be about to commit: nothing is written over it, the same offset neither.
        last["g7"] = stage.now_s
        assert "g7" not in {one.group for one in stage.west.taken}
        assert min(last.values()) >= stage.now_s - 11.0
        assert all(one.before == one.after for one in stage.west.taken)
    assert stage.there("g7") == 99


def test_filters_leave_groups_out() -> None:
    stage = Stage()
    stage.commit("left-out", 10)
    stage.turn()
    assert stage.there("left-out") is None


def test_a_cluster_that_is_away_is_told_and_nothing_is_forgotten() -> None:
    stage = Stage()
    stage.commit("g", 10)
    stage.turn()
    stage.east.away = True
    turn = stage.turn()
    assert "g" in stage.direction.sync_state.groups
    assert list(turn.told.values()) == ["east is away"]
    stage.east.away, stage.west.away = False, True
    stage.commit("g", 20)
    assert stage.turn().commits == 0
    stage.west.away = False
    stage.turn()
    assert stage.there("g") == 20


def test_what_one_direction_put_there_is_no_reading_for_the_other() -> None:
    """A consumer that goes on at once is seen to move from there, though the way back has never looked before."""
    stage = Stage()
    stage.east.ends = dict.fromkeys(PARTS, 100)
    back = SyncDirection(stage.west, stage.east, stage.east, SyncState(1000.0, 1e9), decide_commit_back)
    stage.direction.echo = back.sync_state.expect
    stage.commit("g", 30)
    stage.turn()
    stage.west.groups["g"][TWINS[PARTS[0]]] = CommittedOffset(70)
    back.turn(SCOPE.reversed(), stage.west.listed(), stage.east.listed(), lambda _: True, 9.0)
    assert stage.east.groups["g"][PARTS[0]] == CommittedOffset(70)
    stage.commit("g", 5)
    back.turn(SCOPE.reversed(), stage.west.listed(), stage.east.listed(), lambda _: True, 10.0)
    assert stage.east.groups["g"][PARTS[0]] == CommittedOffset(5), "a reset was undone from the other side"


def test_a_link_that_became_anothers_while_places_were_read_is_not_committed_for() -> None:
    """This process was stopped for a while; the next one has moved the group, and its consumers have read on."""
    stage = Stage()
    stage.commit("g", 10)

    def superseded(_: int) -> None:
        stage.ours = False
        stage.west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(60)}

    stage.west.meanwhile = superseded
    assert stage.turn().commits == 0
    assert stage.there("g") == 60


def test_a_link_that_is_lost_amid_its_commits_sends_no_more_of_them() -> None:
    stage = Stage()
    for number in range(9):
        stage.commit(f"g{number}", 10)
    asked = iter([True, True, True, True])
    here, there = stage.east.listed(), stage.west.listed()
    turn = stage.direction.turn(SCOPE, here, there, lambda _: True, 1.0, may=lambda: next(asked, False))
    assert turn.commits == len(stage.west.groups) == 3
    assert stage.turn().commits == 6


def test_nothing_is_committed_by_what_was_read_long_ago_and_it_is_read_anew() -> None:
    stage = Stage()
    stage.commit("g", 10)

    def paused(_: int) -> None:
        stage.clock_s += 3.0
        stage.west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(60)}

    stage.west.meanwhile = paused
    turn = stage.turn()
    assert (turn.commits, stage.there("g")) == (0, 60)
    assert turn.told.keys() == {"broker 1 of west"}
    stage.west.meanwhile = None
    stage.turn()
    assert (stage.there("g"), stage.state("g")[0]) == (60, GroupSyncStatus.AHEAD)


def test_nothing_is_committed_by_what_the_source_said_long_ago() -> None:
    """This process was stopped before it asked where the twins end; the source's group has been set back since."""
    stage = Stage()
    stage.commit("g", 90)

    def ends(
        parts: Iterable[TopicPartition], which: OffsetKind
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        if which is OffsetKind.HIGH_WATERMARK and stage.clock_s == 0.0:
            stage.clock_s += 60.0
            stage.east.groups["g"] = {PARTS[0]: CommittedOffset(10)}
            stage.west.groups["g"] = {TWINS[PARTS[0]]: CommittedOffset(10)}
        return dict.fromkeys(parts, 100), {}

    stage.west.offsets_of_each = ends  # type: ignore[method-assign]
    stage.turn()
    assert stage.there("g") == 10
    stage.turn()
    assert (stage.there("g"), stage.state("g")[0]) == (10, GroupSyncStatus.SAME)


def test_a_coordinator_that_is_always_slow_is_asked_for_fewer_groups_at_once() -> None:
    stage = Stage()
    for number in range(300):
        stage.commit(f"g{number}", 10)

    def slow(groups: int) -> None:
        stage.clock_s += 0.02 * groups

    stage.west.meanwhile = slow
    for _ in range(8):
        stage.turn()
    assert len(stage.west.groups) == 300


def test_a_group_without_rights_is_told_and_all_others_move() -> None:
    stage = Stage(verify_s=20.0, renew_s=5.0)
    for name in ("a", "forbidden", "z"):
        stage.commit(name, 10)
    stage.west.forbidden.add("forbidden")
    turn = stage.turn()
    assert (stage.there("a"), stage.there("forbidden"), stage.there("z")) == (10, None, 10)
    assert "grant Describe on forbidden" in turn.told["group forbidden"]
    assert stage.state("forbidden")[0] is GroupSyncStatus.REFUSED
    told = [stage.turn().told for _ in range(4)]
    assert sum("group forbidden" in one for one in told) <= 1, "it is not asked for in every round"
    stage.west.forbidden.clear()
    for _ in range(20):
        stage.turn()
    assert stage.there("forbidden") == 10


@pytest.mark.parametrize("named", [True, False], ids=["the dead broker is still named", "it is named no more"])
def test_a_group_whose_coordinator_is_lost_is_not_called_the_same(*, named: bool) -> None:
    stage = Stage(verify_s=5.0)
    for name in ("a", "lost"):
        stage.commit(name, 10)
    stage.turn()
    stage.west.lost.add("lost")
    stage.west.dead_is_named = named
    for _ in range(7):
        stage.turn()
    assert (stage.state("a")[0], stage.state("lost")[0]) == (GroupSyncStatus.SAME, GroupSyncStatus.AWAY)
    stage.commit("lost", 20)
    stage.turn()
    assert stage.state("lost")[0] is GroupSyncStatus.AWAY
    stage.west.lost.clear()
    stage.turn()
    assert (stage.there("lost"), stage.state("lost")[0]) == (20, GroupSyncStatus.SAME)


def test_a_twins_partition_without_a_leader_holds_up_no_other_topic() -> None:
    parts = {("orders", 0): (("orders", 0), EXACT_TRANSLATION), ("lost", 0): (("lost", 0), EXACT_TRANSLATION)}
    scope = SyncScope({**parts}, (("orders", "orders", "a", "b"), ("lost", "lost", "c", "d")))
    stage = Stage()
    stage.west.ends = dict.fromkeys(parts, 100)
    stage.west.leaderless.add(TopicPartition("lost", 0))
    for where in parts:
        stage.commit("g", 10, where)

    def turn() -> SyncRoundResult:
        stage.now_s += 1.0
        stage.clock_s += 1.0
        here, there = stage.east.listed(), stage.west.listed()
        return stage.direction.turn(scope, here, there, lambda _: True, stage.now_s)

    told = turn().told
    assert stage.west.groups["g"] == {("orders", 0): CommittedOffset(10, COMMIT_MARK)}
    assert stage.state("g")[0] is GroupSyncStatus.AWAY
    assert told == {"topic lost of west": "its groups wait: west: lost-0 has no leader"}
    assert turn().told == {}, "it is not asked again at once"
    assert stage.direction.sync_state.groups["g"].check, "nothing is known of its other place"
    stage.west.leaderless.clear()
    for _ in range(20):
        turn()
    assert stage.west.groups["g"][("lost", 0)] == CommittedOffset(10, COMMIT_MARK)
    assert not stage.direction.sync_state.groups["g"].check


@pytest.mark.claim(
    "groups",
    "word-of-groups",
    "a group whose commit nobody answered, or that was not sent, is not called the same, also once the source is lost",
)
@pytest.mark.parametrize("what", ["no answer", "asked somebody else", "lease lost", "read too slowly"])
def test_a_commit_that_nobody_answered_does_not_count_as_the_same(what: str) -> None:
    stage = Stage()
    stage.commit("g", 10)
    stage.commit("other", 10)
    stage.turn()
    assert stage.state("g") == (GroupSyncStatus.SAME, 0)
    stage.commit("g", 40)
    commit = stage.west.commit
    if what == "no answer":
        stage.west.commit = lambda *_: {}  # type: ignore[method-assign]
    elif what == "asked somebody else":
        stage.west.refuses[TWINS[PARTS[0]]] = 16  # NOT_COORDINATOR
    elif what == "lease lost":
        stage.ours = False
    else:
        stage.west.meanwhile = lambda _: setattr(stage, "clock_s", stage.clock_s + TARGET_READ_MAX_AGE_S)
    stage.turn()
    assert (stage.there("g"), stage.state("g")) == (10, (GroupSyncStatus.AWAY, 0))
    entries = stage.direction.sync_state.groups
    word = build_status(entries, SyncRoundResult(groups=2), now_s=stage.now_s, now_ms=1)
    assert last_compared_status(word, compared_groups(entries), "g")[0] == "away"
    assert last_compared_status(word, compared_groups(entries), "other")[0] == "same"
    stage.west.commit, stage.ours, stage.west.meanwhile = commit, True, None  # type: ignore[method-assign]
    stage.west.refuses.clear()
    stage.turn()
    assert (stage.there("g"), stage.state("g")) == (40, (GroupSyncStatus.SAME, 0))


def _is_meant(one: GroupListing) -> bool:
    return one.group != "left-out"
