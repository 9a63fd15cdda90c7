"""Topics that end or begin anew: what is done, when, and what is never done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.errors import mentions
from twinshore.config.model import DeletedTopicPolicy, RecreatedTopicPolicy, SyncRules
from twinshore.replication.sync.core.decisions import (
    ArchiveTwin,
    AskTwinRanges,
    DeleteTwin,
    DeletionState,
    DropTopicState,
    LifecycleAction,
    RememberState,
    ReplanTopic,
    ReportIncident,
    RevokeApproval,
    WithdrawTopic,
)
from twinshore.replication.sync.core.lifecycle import (
    APPROVAL_TTL_MS,
    Approval,
    DeletionRules,
    LifecycleState,
    ObservedTopic,
    Presence,
    TopicObservation,
    TwinRange,
    adapt_to_mapped,
    decide_actions,
    is_source_lost,
    would_delete,
)

THERE, GONE, HIDDEN = (
    ObservedTopic(Presence.THERE, "s1", 2),
    ObservedTopic(Presence.GONE),
    ObservedTopic(Presence.HIDDEN),
)
TWIN = ObservedTopic(Presence.THERE, "t1", 2)
ANEW = ObservedTopic(Presence.THERE, "s2", 2)
ONCE_MORE = ObservedTopic(Presence.THERE, "s3", 2)
SOMEONES = ObservedTopic(Presence.THERE, "t2", 2)
WHOLE = [TwinRange(0, 0, 10, 10, 10), TwinRange(1, 0, 0, 0, 0)]
FOREIGN = [TwinRange(0, 0, 51_000, 10, 10), WHOLE[1]]
KEEP, ARCHIVE = DeletionRules(SyncRules()), DeletionRules(SyncRules(deleted=DeletedTopicPolicy.ARCHIVE))
DELETE = DeletionRules(SyncRules(deleted=DeletedTopicPolicy.DELETE, delete_after_s=60))
AGAIN = DeletionRules(SyncRules(recreated=RecreatedTopicPolicy.RECREATE, delete_after_s=60))
NOW = 1_800_000_000_000  # 2027-01-15 08:00:00 UTC
NONE = LifecycleState()


def look(
    source: ObservedTopic = THERE, target: ObservedTopic = TWIN, *, missed: int = 2, doubted: bool = False
) -> TopicObservation:
    return TopicObservation("orders", "orders", "s1", "t1", source, target, missed, doubted)


def acts(
    seen: TopicObservation,
    memory: LifecycleState = NONE,
    rules: DeletionRules = KEEP,
    spans: list[TwinRange] | None = None,
) -> list[LifecycleAction]:
    return decide_actions(seen, memory, rules, WHOLE if spans is None else spans, NOW)


def kinds(found: list[LifecycleAction]) -> list[type]:
    return [type(one) for one in found]


def since(state: DeletionState, ago_s: float, source: str = "") -> LifecycleState:
    """Of a deletion: announced so long ago, for a minute later."""
    since_ms = int(NOW - ago_s * 1000)
    announced = state in (DeletionState.ANNOUNCED, DeletionState.BEGIN_ANNOUNCED)
    return LifecycleState(state, since_ms, since_ms + 60_000 if announced else 0, source, ago_s if announced else 0.0)


def told(found: list[LifecycleAction]) -> list[tuple[str, str]]:
    """Kind and policy of each row."""
    return [(one.kind, one.policy.words) for one in found if isinstance(one, ReportIncident)]


def sentences(found: list[LifecycleAction]) -> str:
    return " / ".join(one.sentence for one in found if isinstance(one, ReportIncident))


def beginning(ago_s: float, source: str = "s2") -> LifecycleState:
    return since(DeletionState.BEGIN_ANNOUNCED, ago_s, source)


def test_nothing_is_done_while_both_sides_are_as_known() -> None:
    for rules in (KEEP, ARCHIVE, DELETE, AGAIN):
        assert acts(look(), rules=rules) == []


@pytest.mark.parametrize(
    ("rules", "policy", "more", "state"),
    [
        (KEEP, "keep the twin", "", RememberState("orders", DeletionState.GONE)),
        (ARCHIVE, "archive the twin", "", RememberState("orders", DeletionState.GONE)),
        (
            DELETE,
            "delete the twin after 60 s",
            "; the twin is deleted on 2027-01-15 08:01:00 UTC unless `twinshore mirror keep orders` forbids it",
            RememberState("orders", DeletionState.ANNOUNCED, NOW + 60_000),
        ),
        (
            replace(DELETE, against="the link is paused"),
            "keep the twin",
            "; the twin is kept: the link is paused",
            RememberState("orders", DeletionState.GONE),
        ),
    ],
    ids=["keep", "archive", "delete", "paused"],
)
def test_a_deleted_topic_is_told_once_and_carried_no_more(
    rules: DeletionRules, policy: str, more: str, state: RememberState
) -> None:
    assert acts(look(GONE, missed=1), rules=rules) == [], "one look may err"
    withdraw, tell, remember = acts(look(GONE), rules=rules)
    assert (withdraw, remember) == (WithdrawTopic("orders"), state)
    assert isinstance(tell, ReportIncident)
    assert (tell.kind, tell.policy.words) == ("deleted topic", policy)
    assert mentions(tell.sentence, "orders", "orders-0 0 to 9") and tell.sentence.endswith(more)
    assert acts(look(GONE), since(DeletionState.GONE, 3_600)) == [], "kept for ever"


@pytest.mark.claim("topics", "served-delay", "a host whose clock is a day ahead deletes no twin early")
def test_a_wall_clock_that_is_ahead_does_not_shorten_the_delay() -> None:
    watched = replace(since(DeletionState.ANNOUNCED, 86_400), served_s=59.9)
    assert not acts(look(GONE), watched, DELETE) and not acts(look(ANEW), replace(beginning(9_999), served_s=0), AGAIN)
    assert DeleteTwin in kinds(acts(look(GONE), replace(watched, served_s=60.0), DELETE))
    assert acts(look(GONE), replace(since(DeletionState.ANNOUNCED, 59), served_s=61.0), DELETE) == []


def test_an_archived_twin_is_marked_and_then_left_alone() -> None:
    assert acts(look(GONE), since(DeletionState.GONE, 1), ARCHIVE) == [
        ArchiveTwin("orders"),
        RememberState("orders", DeletionState.ARCHIVED),
    ]
    assert acts(look(GONE), since(DeletionState.ARCHIVED, 9_999), ARCHIVE) == []
    assert acts(look(GONE), since(DeletionState.ARCHIVED, 9_999), DELETE) == [], (
        "another policy later does not reach it"
    )


def test_deletion_waits_until_the_announced_time() -> None:
    assert acts(look(GONE), since(DeletionState.ANNOUNCED, 59), DELETE) == []
    assert acts(look(GONE), since(DeletionState.ANNOUNCED, 60), DELETE) == [
        WithdrawTopic("orders"),
        DeleteTwin("orders", "orders", "its source topic was deleted; its twin holds orders-0 0 to 9"),
    ]
    assert acts(look(GONE, GONE), since(DeletionState.ANNOUNCED, 60), DELETE) == [DropTopicState("orders")]
    assert acts(look(GONE, SOMEONES), since(DeletionState.ANNOUNCED, 60), DELETE) == [], "not ours to delete"


@pytest.mark.parametrize(
    "rules", [KEEP, replace(DELETE, against="the link is paused")], ids=["another policy", "something against it"]
)
def test_what_was_announced_is_taken_back_and_begins_anew_afterwards(rules: DeletionRules) -> None:
    taken_back = acts(look(GONE), since(DeletionState.ANNOUNCED, 99), rules)
    assert told(taken_back) == [("deleted topic", "keep the twin")]
    assert taken_back[-1] == RememberState("orders", DeletionState.GONE)
    anew = acts(look(GONE), since(DeletionState.GONE, 9_999), DELETE)
    assert "2027-01-15 08:01:00 UTC" in sentences(anew), "it has the whole delay again"
    assert anew[-1] == RememberState("orders", DeletionState.ANNOUNCED, NOW + 60_000)


def test_another_delay_is_announced_before_it_counts() -> None:
    shorter = replace(DELETE, rules=replace(DELETE.rules, delete_after_s=5))
    assert acts(look(GONE), since(DeletionState.ANNOUNCED, 30), shorter)[-1] == RememberState(
        "orders", DeletionState.ANNOUNCED, NOW + 5_000
    )


@pytest.mark.parametrize(
    ("span", "why"),
    [
        (TwinRange(1, 0, 12, 10, 10), "orders-1 holds offsets 10 to 11, which this link has no progress of"),
        (TwinRange(1, 0, 10, 10, 15), "the source's records of orders-1 from 10 to 14 were never replicated"),
        (TwinRange(1, 0, 5, 0, 0), "orders-1 holds offsets 0 to 4, which this link has no progress of"),
    ],
)
def test_a_twin_that_is_more_or_less_than_a_copy_is_never_deleted(span: TwinRange, why: str) -> None:
    for rules, seen, memory, what in (
        (DELETE, look(GONE), since(DeletionState.ANNOUNCED, 99), "deleted"),
        (AGAIN, look(ANEW), beginning(99), "recreated"),
    ):
        found = acts(seen, memory, rules, [WHOLE[0], span])
        assert DeleteTwin not in kinds(found)
        assert told(found)[-1] == ("deletion held", "keep the twin")
        assert sentences(found).endswith(f"the twin of {what} topic orders is kept: {why}")
        assert found[-1] == RememberState("orders", DeletionState.KEPT, source_id=seen.source.topic_id)
    assert acts(look(GONE), since(DeletionState.KEPT, 9_999), DELETE) == [], "told once, and for ever"
    assert acts(look(ANEW), since(DeletionState.KEPT, 9_999, "s2"), AGAIN) == []


def test_too_many_at_once_wait_for_a_word() -> None:
    rules = replace(DELETE, many="all 9 topics of the link are gone from the source at once")
    asked = acts(look(GONE), since(DeletionState.ANNOUNCED, 60), rules)
    assert "all 9 topics" in sentences(asked)
    assert "`twinshore mirror delete orders` approves it, unless something else forbids it then" in sentences(asked)
    assert asked[-1] == RememberState("orders", DeletionState.NEEDS_APPROVAL)
    for later in (rules, DELETE):
        assert acts(look(GONE), since(DeletionState.NEEDS_APPROVAL, 9_999), later) == [], (
            "fewer are left, but nobody said a word"
        )
    agreed = replace(since(DeletionState.NEEDS_APPROVAL, 9_999), let=Approval(NOW - 1))
    assert kinds(acts(look(GONE), agreed, rules)) == [WithdrawTopic, DeleteTwin]
    for against in (replace(rules, against="the link is paused"), KEEP):
        assert acts(look(GONE), agreed, against) == []
    assert kinds(acts(look(GONE), agreed, rules, FOREIGN)) == [ReportIncident, ReportIncident, RememberState]
    old = replace(agreed, let=Approval(NOW - APPROVAL_TTL_MS))
    assert acts(look(GONE), old, rules) == []
    of_another = replace(agreed, let=Approval(NOW, "s2"))
    assert acts(look(GONE), of_another, rules) == [], "that word was for a topic that was there"


def test_who_counts_among_those_that_would_go_at_once() -> None:
    gone = look(GONE)
    assert would_delete(gone, NONE, DELETE, NOW)
    assert would_delete(look(ANEW), NONE, AGAIN, NOW)
    for memory, rules in (
        (since(DeletionState.KEPT, 1), DELETE),
        (since(DeletionState.ARCHIVED, 1), DELETE),
        (LifecycleState(DeletionState.NEEDS_APPROVAL, 0, let=Approval(NOW)), DELETE),
        (NONE, KEEP),
        (NONE, replace(DELETE, against="the link is paused")),
    ):
        assert not would_delete(gone, memory, rules, NOW)
    assert not would_delete(look(), NONE, DELETE, NOW)
    assert not would_delete(look(ANEW), LifecycleState(begin=Approval(NOW, "s2")), AGAIN, NOW)
    assert [is_source_lost(look(side)) for side in (THERE, GONE, ANEW, HIDDEN)] == [False, True, True, False]


@pytest.mark.parametrize(
    "state",
    [
        DeletionState.GONE,
        DeletionState.KEPT,
        DeletionState.NEEDS_APPROVAL,
        DeletionState.ARCHIVED,
        DeletionState.ANNOUNCED,
    ],
)
def test_nothing_is_left_to_say_once_the_twin_was_deleted_too(state: DeletionState) -> None:
    assert acts(look(GONE, GONE), since(state, 9)) == [DropTopicState("orders")]
    assert acts(look(GONE, GONE, missed=1), since(state, 9)) == [], "one look may err"
    assert acts(look(GONE, HIDDEN), since(state, 9)) == []


def test_a_topic_that_was_only_out_of_sight_goes_on() -> None:
    assert acts(look(), since(DeletionState.ANNOUNCED, 9)) == [RememberState("orders", None), ReplanTopic("orders")]


def test_each_sight_of_the_topic_begins_the_delay_anew() -> None:
    """Gone, made again, gone again: who cleared a stub before restoring from the twin would lose it."""
    for rules in (DELETE, AGAIN):
        assert acts(look(ANEW), since(DeletionState.ANNOUNCED, 9_999), rules)[0] == RememberState("orders", None)
    again = acts(look(GONE), NONE, DELETE)
    assert again[-1] == RememberState("orders", DeletionState.ANNOUNCED, NOW + 60_000)
    third = acts(look(ONCE_MORE), beginning(9_999), AGAIN)
    assert third[-1] == RememberState("orders", DeletionState.BEGIN_ANNOUNCED, NOW + 60_000, "s3")
    assert DeleteTwin not in kinds(third)


def test_what_a_cluster_does_not_show_is_not_gone() -> None:
    for seen in (look(HIDDEN), look(THERE, HIDDEN), look(HIDDEN, HIDDEN)):
        assert acts(seen, since(DeletionState.ANNOUNCED, 9_999), DELETE) == []
    tell = acts(look(HIDDEN, doubted=True))[0]
    assert isinstance(tell, ReportIncident)
    assert tell.kind == "rights lost"


def test_a_topic_made_again_stops_unless_the_operator_said_otherwise() -> None:
    withdraw, again, tell = acts(look(ANEW))
    assert (withdraw, again) == (WithdrawTopic("orders"), ReplanTopic("orders"))
    assert isinstance(tell, ReportIncident)
    assert (tell.kind, tell.policy.words) == ("recreated topic", "stop the topic")
    assert tell.sentence.endswith("so its offsets start again; its twin holds orders-0 0 to 9")


def test_it_begins_again_at_the_announced_time_and_only_on_the_twin_that_was_ours() -> None:
    first = acts(look(ANEW), rules=AGAIN)
    assert kinds(first) == [WithdrawTopic, ReplanTopic, ReportIncident, RememberState]
    assert mentions(sentences(first), "2027-01-15 08:01:00 UTC")
    assert acts(look(ANEW), beginning(59), AGAIN) == []
    withdraw, delete = acts(look(ANEW), beginning(60), AGAIN)
    assert isinstance(delete, DeleteTwin)
    assert mentions(delete.reason, "made again", "orders-0 0 to 9")
    assert withdraw == WithdrawTopic("orders")
    assert acts(look(ANEW, GONE), beginning(60), AGAIN) == [DropTopicState("orders"), ReplanTopic("orders")]
    assert acts(look(ANEW, SOMEONES), beginning(60), AGAIN) == []
    paused = acts(look(ANEW), beginning(60), replace(AGAIN, against="the link is paused"))
    assert (paused[0], told(paused)) == (RememberState("orders", None), [("recreated topic", "stop the topic")])
    many = acts(look(ANEW), beginning(60), replace(AGAIN, many="9 twins would be deleted at once"))
    assert "`twinshore mirror recreate orders` approves" in sentences(many)
    assert many[-1] == RememberState("orders", DeletionState.NEEDS_APPROVAL, source_id="s2")


def test_an_operators_word_needs_no_delay_and_does_not_hold_for_ever() -> None:
    word = Approval(NOW - 1, "s2")
    assert kinds(acts(look(ANEW), LifecycleState(begin=word))) == [
        WithdrawTopic,
        ReplanTopic,
        ReportIncident,
        RememberState,
    ]
    agreed = LifecycleState(DeletionState.BEGIN_ANNOUNCED, NOW, NOW, "s2", begin=word)
    assert kinds(acts(look(ANEW), agreed)) == [WithdrawTopic, DeleteTwin]
    assert acts(look(ANEW, GONE), agreed) == [DropTopicState("orders"), ReplanTopic("orders")]
    for spent in (Approval(NOW - APPROVAL_TTL_MS, "s2"), Approval(NOW, "s3")):
        assert kinds(acts(look(ANEW), LifecycleState(begin=spent))) == [WithdrawTopic, ReplanTopic, ReportIncident]
    paused = acts(look(ANEW), agreed, replace(KEEP, against="the link is paused"))
    assert DeleteTwin not in kinds(paused)


def test_a_word_that_comes_before_an_announced_time_is_asked_about_too() -> None:
    agreed = replace(beginning(5), begin=Approval(NOW, "s2"))
    assert decide_actions(look(ANEW), agreed, AGAIN, None, NOW) == [AskTwinRanges("orders")]
    assert decide_actions(look(ANEW), beginning(5), AGAIN, None, NOW) == []
    assert kinds(acts(look(ANEW), agreed, AGAIN, FOREIGN)) == [
        ReportIncident,
        ReportIncident,
        RememberState,
        RevokeApproval,
    ]
    assert acts(look(ANEW), agreed, AGAIN, []) == [AskTwinRanges("orders")], "nothing goes unseen"
    assert acts(look(GONE), since(DeletionState.ANNOUNCED, 99), DELETE, WHOLE[:1]) == [AskTwinRanges("orders")]


def test_another_delay_is_announced_with_what_the_twin_holds() -> None:
    """The settings changed over a restart, while both deletions were announced."""
    sooner = {one: replace(one, rules=replace(one.rules, delete_after_s=30)) for one in (DELETE, AGAIN)}
    for seen, memory, rules in (
        (look(GONE), since(DeletionState.ANNOUNCED, 5), sooner[DELETE]),
        (look(ANEW), beginning(5), sooner[AGAIN]),
    ):
        assert decide_actions(seen, memory, rules, None, NOW) == [AskTwinRanges("orders")]
        (tell,) = [one for one in acts(seen, memory, rules) if isinstance(one, ReportIncident)]
        assert mentions(tell.sentence, "orders-0 0 to 9", "2027-01-15 08:00:30 UTC")


SIDES_SEEN = st.sampled_from([THERE, GONE, HIDDEN, ANEW, ONCE_MORE])
TWINS_SEEN = st.sampled_from([TWIN, GONE, HIDDEN, SOMEONES])
TIMES = st.integers(NOW - 100_000, NOW + 100_000)
WORDS = st.none() | st.builds(Approval, TIMES, st.sampled_from(["", "s2", "s3"]))
MEMORIES = st.builds(
    LifecycleState,
    st.none() | st.sampled_from(DeletionState),
    TIMES,
    TIMES,
    st.sampled_from(["", "s2", "s3"]),
    st.sampled_from([0.0, 60.0]),
    WORDS,
    WORDS,
)
FOLLOWS = st.builds(
    SyncRules,
    deleted=st.sampled_from(DeletedTopicPolicy),
    recreated=st.sampled_from(RecreatedTopicPolicy),
    delete_after_s=st.sampled_from([0.0, 60.0]),
)
RULES = st.builds(DeletionRules, FOLLOWS, st.sampled_from(["", "the link is paused"]), st.sampled_from(["", "many"]))


@settings(max_examples=2_000)
@given(SIDES_SEEN, TWINS_SEEN, st.integers(0, 3), st.booleans(), MEMORIES, RULES, st.booleans())
def test_nothing_is_said_or_done_by_what_nobody_asked(
    source: ObservedTopic,
    target: ObservedTopic,
    missed: int,
    doubted: bool,
    memory: LifecycleState,
    rules: DeletionRules,
    mapped: bool,
) -> None:
    seen = look(source, target, missed=missed, doubted=doubted), memory, rules
    seen = adapt_to_mapped(*seen) if mapped else seen
    unasked, asked = decide_actions(*seen, None, NOW), decide_actions(*seen, WHOLE, NOW)
    assert AskTwinRanges("orders") not in asked, "it is asked once"
    if unasked != [AskTwinRanges("orders")]:
        assert unasked == asked, "what was not asked changes nothing"
        gone = target.presence is Presence.GONE
        assert gone or "its twin holds" not in sentences(unasked)
    if DeleteTwin in kinds(asked):
        agreed = (memory.begin if is_there(seen[0]) else memory.let) is not None
        assert agreed or would_delete(*seen, NOW), "who goes counts among those that go"


def is_there(seen: TopicObservation) -> bool:
    return seen.source.presence is Presence.THERE


def test_an_operators_word_is_for_what_was_shown() -> None:
    word = Approval(NOW, "s2", ((0, 50_000),))
    agreed = LifecycleState(DeletionState.BEGIN_ANNOUNCED, NOW, NOW, "s2", begin=word)
    found = acts(look(ANEW), agreed, spans=FOREIGN)
    assert kinds(found) == [ReportIncident, ReportIncident, RememberState, RevokeApproval]
    assert mentions(sentences(found), "offsets 50000 to 50999")
    shown = replace(agreed, begin=replace(word, ends=((0, 51_000),)))
    assert kinds(acts(look(ANEW), shown, spans=FOREIGN)) == [WithdrawTopic, DeleteTwin]


def test_a_twin_that_somebody_deleted_or_replaced_is_told() -> None:
    for target, words in ((GONE, "has been deleted on the target"), (SOMEONES, "made again by someone else")):
        withdraw, again, tell = acts(look(target=target))
        assert (withdraw, again) == (WithdrawTopic("orders"), ReplanTopic("orders"))
        assert isinstance(tell, ReportIncident)
        assert words in tell.sentence
    agreed = LifecycleState(begin=Approval(NOW, "s1"))
    assert acts(look(target=GONE), agreed) == [WithdrawTopic("orders"), DropTopicState("orders"), ReplanTopic("orders")]
    assert DeleteTwin not in kinds(acts(look(target=SOMEONES), agreed)), "someone's topic is not ours to delete"


def test_a_twin_that_grew_goes_back_to_the_planner_which_refuses_it() -> None:
    assert acts(look(target=ObservedTopic(Presence.THERE, "t1", 3))) == [WithdrawTopic("orders"), ReplanTopic("orders")]
    assert acts(look(source=ObservedTopic(Presence.THERE, "s1", 3))) == [], "the twin grows after it"


def test_a_doubt_without_a_reason_is_mended_by_carrying_on() -> None:
    assert acts(look(doubted=True)) == [WithdrawTopic("orders"), ReplanTopic("orders")]


def test_a_mapped_twin_holds_data_of_others_and_is_never_deleted() -> None:
    wide = ObservedTopic(Presence.THERE, "t1", 5)
    cases = (
        (look(GONE), since(DeletionState.ANNOUNCED, 3600), DELETE),
        (look(ANEW), beginning(3600), AGAIN),
        (
            look(ANEW, wide),
            LifecycleState(DeletionState.BEGIN_ANNOUNCED, NOW, NOW, "s2", begin=Approval(NOW - 1, "s2")),
            KEEP,
        ),
    )
    held = [*WHOLE, *(TwinRange(number, 0, 0, 0, 0) for number in range(2, 5))]
    for case in cases:
        assert DeleteTwin in kinds(acts(*case, spans=held)), "an exact one is"
        assert DeleteTwin not in kinds(acts(*adapt_to_mapped(*case), spans=held))
    assert acts(*adapt_to_mapped(look(THERE, wide), NONE, KEEP)) == [], "its further partitions are its own"


@pytest.mark.parametrize("target", [GONE, SOMEONES], ids=["deleted", "made again"])
def test_a_mapped_twin_that_is_gone_is_told_with_a_verb_that_works_for_it(target: ObservedTopic) -> None:
    case = (look(target=target), LifecycleState(begin=Approval(NOW - 1, "s1")), KEEP)
    (told,) = [act for act in acts(*adapt_to_mapped(*case)) if isinstance(act, ReportIncident)]
    assert "`twinshore mirror forget orders`" in told.sentence
    assert "recreate" not in told.sentence, "it is refused for a mapped twin"
