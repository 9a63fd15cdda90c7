"""What becomes of a place: never past the twin's end, never backwards but for a reset, never twice the same commit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.frozen import COMMIT_MARK
from twinshore.groups.core.commit_rules import (
    DEFAULT_RULES,
    NO_MEMORY,
    CommitRules,
    GroupSyncStatus,
    PartitionMemory,
    TranslatedOffset,
    decide_commit,
    decide_commit_back,
)
from twinshore.kafka.protocol.offsets import CommittedOffset

OFFSETS = st.integers(0, 60)
NOTES = st.sampled_from(["", COMMIT_MARK, "note"])
MEMORIES = st.builds(
    PartitionMemory,
    st.integers(-1, 60),
    st.integers(0, 3),
    st.integers(-1, 60),
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(CommittedOffset, OFFSETS, NOTES),
)
RULES = st.builds(CommitRules, st.booleans(), st.booleans(), st.just(True), st.booleans())


def ours(offset: int) -> CommittedOffset:
    """As the link leaves a place whose consumer left no note."""
    return CommittedOffset(offset, COMMIT_MARK)


@given(OFFSETS, OFFSETS, st.none() | OFFSETS, NOTES, MEMORIES, RULES)
def test_no_commit_lies_beyond_the_twins_end_or_the_sources_place(
    source: int, end: int, there: int | None, note: str, memory: PartitionMemory, rules: CommitRules
) -> None:
    has = None if there is None else CommittedOffset(there, note)
    decision = decide_commit(CommittedOffset(source, "m"), TranslatedOffset(source), end, has, memory, rules)
    if decision.to is not None:
        assert decision.to.offset == min(source, end)
        assert decision.memory.agreed == decision.to.offset
    if decision.to is not None and there is not None and decision.to.offset < there:
        assert rules.resets
        assert decision.state is GroupSyncStatus.SET_BACK
        sent = memory.tried.offset if memory.tried else -1
        assert there in (memory.agreed, sent) or note == COMMIT_MARK, "somebody else's place was moved backwards"
        known = memory.agreed >= 0 or memory.own
        assert source < memory.high or (note == COMMIT_MARK and not known), "the source's group was never set back"


@given(OFFSETS, OFFSETS, OFFSETS, MEMORIES, RULES, NOTES)
def test_a_place_that_somebody_else_has_set_is_never_committed_over(
    source: int, end: int, there: int, memory: PartitionMemory, rules: CommitRules, note: str
) -> None:
    """Unmarked, and not where the link left it: whatever the source does, and whatever is remembered beside."""
    remembered = memory.agreed >= 0 or memory.own
    if there == memory.agreed or not remembered:
        memory = memory._replace(agreed=(there + 1) % 61, own=True)
    memory = memory._replace(tried=None)
    decision = decide_commit(
        CommittedOffset(source, note), TranslatedOffset(source), end, CommittedOffset(there), memory, rules
    )
    if decision.to is not None:
        assert decision.to.offset == there, "it was moved"
    if there not in (source, end):
        assert decision.state in (GroupSyncStatus.OWN, GroupSyncStatus.AHEAD)
        assert decision.memory.own
    again = decide_commit(
        CommittedOffset(source, note),
        TranslatedOffset(source),
        end,
        CommittedOffset(there, COMMIT_MARK),
        decision.memory,
        rules,
    )
    assert again.state is not GroupSyncStatus.OWN, "asked for, it follows again"


def test_a_place_that_was_never_seen_before_is_the_links_by_its_mark_its_note_or_where_it_stands() -> None:
    def found(there: CommittedOffset, rules: CommitRules = DEFAULT_RULES) -> GroupSyncStatus:
        return decide_commit(CommittedOffset(50), TranslatedOffset(50), 99, there, NO_MEMORY, rules).state

    assert found(CommittedOffset(20)) is GroupSyncStatus.OWN
    assert found(CommittedOffset(20, "\0")) is GroupSyncStatus.OWN, "a client's way to say nothing"
    assert found(CommittedOffset(20, None)) is GroupSyncStatus.OWN
    assert found(ours(20)) is GroupSyncStatus.MOVES
    assert found(CommittedOffset(20, "a consumer's note, which nobody may write over")) is GroupSyncStatus.MOVES
    same = decide_commit(CommittedOffset(50), TranslatedOffset(50), 99, CommittedOffset(50))
    assert (same.state, same.to) == (GroupSyncStatus.SAME, ours(50))
    assert decide_commit(CommittedOffset(50, COMMIT_MARK), TranslatedOffset(50), 99, None).to == ours(50), (
        "a mark of another link is no note of a consumer"
    )


def test_who_comes_by_itself_to_the_sources_place_is_not_the_links_for_that() -> None:
    seen = decide_commit(CommittedOffset(50), TranslatedOffset(50), 99, CommittedOffset(42), PartitionMemory(50, 0, 50))
    met = decide_commit(
        CommittedOffset(50), TranslatedOffset(50), 99, CommittedOffset(50), seen.memory._replace(agreed=40)
    )
    assert (seen.state, met.state, met.to) == (GroupSyncStatus.OWN, GroupSyncStatus.SAME, None)
    assert (
        decide_commit(CommittedOffset(70), TranslatedOffset(70), 99, CommittedOffset(50), met.memory).state
        is GroupSyncStatus.OWN
    )
    # Where the way back has brought the source there, both share the place, and who goes on is followed.
    shared = decide_commit(
        CommittedOffset(50),
        TranslatedOffset(50),
        99,
        CommittedOffset(50),
        seen.memory._replace(agreed=40),
        CommitRules(returns=True),
    )
    assert (shared.state, shared.to) == (GroupSyncStatus.SAME, None), "its reader may be about to commit"
    went_home = decide_commit(
        CommittedOffset(70), TranslatedOffset(70), 99, CommittedOffset(50), shared.memory, CommitRules(returns=True)
    )
    assert went_home.to == ours(70)


def test_a_group_moves_as_far_as_the_twin_reaches_and_on_when_it_grows() -> None:
    first = decide_commit(CommittedOffset(10, "mine"), TranslatedOffset(10), 4, None)
    assert (first.state, first.to, first.whole) == (GroupSyncStatus.BEHIND, ours(4), False)
    second = decide_commit(CommittedOffset(10, "mine"), TranslatedOffset(10), 12, ours(4), first.memory)
    assert (second.state, second.to, second.whole) == (GroupSyncStatus.MOVES, CommittedOffset(10, "mine"), True)
    third = decide_commit(
        CommittedOffset(10, "mine"), TranslatedOffset(10), 12, CommittedOffset(10, "mine"), second.memory
    )
    assert (third.state, third.to) == (GroupSyncStatus.SAME, None)


def test_what_a_consumer_left_beside_its_place_follows_by_itself() -> None:
    decision = decide_commit(
        CommittedOffset(10, "new"), TranslatedOffset(10), 12, CommittedOffset(10, "old"), PartitionMemory(10, 0, 10)
    )
    assert decision.to == CommittedOffset(10, "new")


def test_a_reset_is_followed_at_the_second_look_and_not_for_a_moment_of_disorder() -> None:
    steady = PartitionMemory(high=50, lower_looks=0, agreed=50, marked=True)
    first = decide_commit(CommittedOffset(20), TranslatedOffset(20), 60, ours(50), steady)
    assert (first.state, first.to, first.whole) == (GroupSyncStatus.SETTING_BACK, None, False)
    again = decide_commit(CommittedOffset(50), TranslatedOffset(50), 60, ours(50), first.memory)
    assert (again.state, again.memory) == (GroupSyncStatus.SAME, steady)
    second = decide_commit(CommittedOffset(23), TranslatedOffset(23), 60, ours(50), first.memory)
    assert (second.state, second.to) == (GroupSyncStatus.SET_BACK, ours(23))
    assert second.memory == PartitionMemory(23, 0, 23, marked=True)


def test_a_reset_is_not_followed_where_the_policy_says_never() -> None:
    memory = PartitionMemory(50, 1, 50)
    assert (
        decide_commit(CommittedOffset(20), TranslatedOffset(20), 60, ours(50), memory, CommitRules(resets=False)).state
        is GroupSyncStatus.AHEAD
    )


def test_who_read_on_at_the_target_is_left_alone_though_the_source_is_set_back() -> None:
    memory = PartitionMemory(high=50, lower_looks=5, agreed=50)
    decision = decide_commit(CommittedOffset(20), TranslatedOffset(20), 99, CommittedOffset(70), memory)
    assert (decision.state, decision.to, decision.whole) == (GroupSyncStatus.AHEAD, None, True)


def test_after_a_start_a_target_ahead_is_left_alone() -> None:
    assert (
        decide_commit(CommittedOffset(20), TranslatedOffset(20), 99, CommittedOffset(50), NO_MEMORY).state
        is GroupSyncStatus.AHEAD
    )


def test_after_a_start_a_place_of_the_links_own_that_is_ahead_is_set_back_at_the_second_look() -> None:
    """The source's group was set back, or deleted and begun again, while no mirror ran."""
    first = decide_commit(CommittedOffset(20), TranslatedOffset(20), 99, ours(50), NO_MEMORY)
    assert (first.state, first.to, first.whole) == (GroupSyncStatus.SETTING_BACK, None, False)
    second = decide_commit(CommittedOffset(22), TranslatedOffset(22), 99, ours(50), first.memory)
    assert (second.state, second.to) == (GroupSyncStatus.SET_BACK, ours(22))
    lost_end = decide_commit(CommittedOffset(50), TranslatedOffset(50), 40, ours(50), first.memory)
    assert (lost_end.state, lost_end.to) == (GroupSyncStatus.AHEAD, None), (
        "the twin is shorter, the group was not set back"
    )
    assert (
        decide_commit(
            CommittedOffset(20), TranslatedOffset(20), 99, ours(50), first.memory, CommitRules(resets=False)
        ).state
        is GroupSyncStatus.AHEAD
    )


def test_what_has_not_crossed_yet_keeps_a_place_open() -> None:
    decision = decide_commit(CommittedOffset(90), TranslatedOffset(70, reached=False), 99, None)
    assert (decision.state, decision.to, decision.whole) == (GroupSyncStatus.BEHIND, ours(70), False)


@given(st.lists(st.tuples(OFFSETS, st.integers(0, 5), st.booleans()), max_size=30))
def test_in_the_end_the_target_is_where_the_source_is(steps: list[tuple[int, int, bool]]) -> None:
    """Any history of commits and growing logs, each looked at or not; then quiet. Nobody reads at the target."""
    source, end, there, memory = 0, 0, None, NO_MEMORY
    for offset, grown, looked in steps:
        source, end = min(offset, 60), end + grown
        if looked:
            decision = decide_commit(CommittedOffset(source), TranslatedOffset(source), end, there, memory)
            there, memory = decision.to or there, decision.memory
    for _ in range(3):
        decision = decide_commit(CommittedOffset(source), TranslatedOffset(source), 60, there, memory)
        there, memory = decision.to or there, decision.memory
    assert there == ours(source)
    assert decision.state is GroupSyncStatus.SAME


def test_the_way_back_begins_only_once_the_group_is_seen_to_read_at_the_target() -> None:
    found = decide_commit_back(CommittedOffset(50), TranslatedOffset(50), 99, CommittedOffset(20))
    assert (found.state, found.to) == (GroupSyncStatus.AHEAD, None), "a reset of the source may have been that"
    moved = decide_commit_back(CommittedOffset(60), TranslatedOffset(60), 99, CommittedOffset(20), found.memory)
    assert (moved.state, moved.to) == (GroupSyncStatus.MOVES, CommittedOffset(60))
    assert (
        decide_commit_back(CommittedOffset(40), TranslatedOffset(40), 99, CommittedOffset(60), moved.memory).to is None
    ), "never backwards"


def test_the_way_back_gives_a_place_only_where_the_group_has_others_and_is_seen_to_read() -> None:
    found = decide_commit_back(CommittedOffset(50), TranslatedOffset(50), 99, None)
    assert found.to is None, "it may have been deleted on the source"
    assert decide_commit_back(CommittedOffset(50), TranslatedOffset(50), 99, None, found.memory).to is None
    assert decide_commit_back(CommittedOffset(40), TranslatedOffset(40), 99, None, found.memory).to is None, (
        "it was set back, nobody read"
    )
    assert decide_commit_back(CommittedOffset(60), TranslatedOffset(60), 99, None, found.memory).to == CommittedOffset(
        60
    )
    unknown = decide_commit_back(
        CommittedOffset(60), TranslatedOffset(60), 99, None, found.memory, CommitRules(makes=False)
    )
    assert unknown.to is None
    begun = decide_commit_back(CommittedOffset(60), TranslatedOffset(60), 99, CommittedOffset(5), unknown.memory)
    assert begun.to is None, "what it read before the source's group began anew is no reading of that group"


@given(st.lists(st.tuples(st.sampled_from(["read east", "read west", "reset east", "look"]), OFFSETS), max_size=25))
def test_both_ways_at_once_come_to_rest(steps: list[tuple[str, int]]) -> None:
    """One direction's commit is never a reason for the other's: after two quiet looks nothing is committed."""
    east, west = CommittedOffset(0), CommittedOffset(0)
    forth, back = NO_MEMORY, NO_MEMORY
    for what, offset in [*steps, *[("look", 0)] * 4]:
        commits = 0
        if what == "read east":
            east = CommittedOffset(max(east.offset, offset))
        elif what == "reset east":
            east = CommittedOffset(offset)
        elif what == "read west":
            west = CommittedOffset(max(west.offset, offset))
        else:
            one = decide_commit(east, TranslatedOffset(east.offset), 99, west, forth)
            west, forth = one.to or west, one.memory
            other = decide_commit_back(west, TranslatedOffset(west.offset), 99, east, back)
            east, back = other.to or east, other.memory
            commits = (one.to is not None) + (other.to is not None)
    assert commits == 0


def test_a_place_that_both_sides_share_is_marked_once_its_reader_rests_there() -> None:
    """Only the mark tells the next process that it is nobody's own any more."""
    both = CommitRules(returns=True)
    placed = decide_commit(CommittedOffset(100), TranslatedOffset(100), 300, None, NO_MEMORY, both)
    met = decide_commit(CommittedOffset(150), TranslatedOffset(150), 300, CommittedOffset(150), placed.memory, both)
    assert (met.state, met.to) == (GroupSyncStatus.SAME, None), "its reader may be about to commit"
    rested = decide_commit(CommittedOffset(150), TranslatedOffset(150), 300, CommittedOffset(150), met.memory, both)
    assert (rested.state, rested.to) == (GroupSyncStatus.SAME, ours(150))
    assert decide_commit(CommittedOffset(200), TranslatedOffset(200), 300, ours(150), NO_MEMORY, both).to == ours(200)
