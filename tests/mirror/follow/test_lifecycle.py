"""Topics that end or begin anew: what is done, when, and what is never done."""

from __future__ import annotations

import pytest

from twinshore.fleet import Deleted, Follow, Recreated
from twinshore.mirror.follow.lifecycle import (
    CONFIRMED_FOR_MS,
    Act,
    Archive,
    DeleteTwin,
    Forget,
    LookAgain,
    Memory,
    Presence,
    Remember,
    Side,
    Span,
    State,
    Tell,
    TopicLook,
    Withdraw,
    decide,
    for_mapped,
    ranges,
    unsafe,
)

THERE, GONE, HIDDEN = Side(Presence.THERE, "s1", 2), Side(Presence.GONE), Side(Presence.HIDDEN)
TWIN = Side(Presence.THERE, "t1", 2)
ANEW = Side(Presence.THERE, "s2", 2)
SOMEONES = Side(Presence.THERE, "t2", 2)
WHOLE = [Span(0, 0, 10, 10, 10), Span(1, 0, 0, 0, 0)]
KEEP, ARCHIVE = Follow(), Follow(deleted=Deleted.ARCHIVE)
DELETE = Follow(deleted=Deleted.DELETE, delete_after_s=60)
AGAIN = Follow(recreated=Recreated.BEGIN_AGAIN, delete_after_s=60)
NOW = 10_000_000
NONE = Memory()


def look(source: Side = THERE, target: Side = TWIN, *, missed: int = 2, doubted: bool = False) -> TopicLook:
    return TopicLook("orders", "orders", "s1", "t1", source, target, missed, doubted)


def acts(seen: TopicLook, memory: Memory = NONE, follow: Follow = KEEP, spans: list[Span] | None = None) -> list[Act]:
    return decide(seen, memory, follow, WHOLE if spans is None else spans, NOW)


def kinds(found: list[Act]) -> list[type]:
    return [type(one) for one in found]


def since(state: State, ago_s: float) -> Memory:
    return Memory(state, int(NOW - ago_s * 1000))


def test_nothing_is_done_while_both_sides_are_as_known() -> None:
    for follow in (KEEP, ARCHIVE, DELETE, AGAIN):
        assert acts(look(), follow=follow) == []


@pytest.mark.parametrize(
    ("follow", "policy"),
    [(KEEP, "keep the twin"), (ARCHIVE, "archive the twin"), (DELETE, "delete the twin after 60 s")],
)
def test_a_deleted_topic_is_told_once_and_carried_no_more(follow: Follow, policy: str) -> None:
    assert acts(look(GONE, missed=1), follow=follow) == [], "one look may err"
    withdraw, tell, remember = acts(look(GONE), follow=follow)
    assert (withdraw, remember) == (Withdraw("orders"), Remember("orders", State.GONE))
    assert isinstance(tell, Tell)
    assert (tell.kind, tell.policy) == ("deleted topic", policy)
    assert tell.sentence == "topic orders was deleted on the source; its twin holds orders-0 0 to 9"
    assert acts(look(GONE), since(State.GONE, 3_600)) == [], "kept for ever"


def test_an_archived_twin_is_marked_and_then_left_alone() -> None:
    assert acts(look(GONE), since(State.GONE, 1), ARCHIVE) == [Archive("orders"), Remember("orders", State.ARCHIVED)]
    assert acts(look(GONE), since(State.ARCHIVED, 9_999), ARCHIVE) == []
    assert acts(look(GONE), since(State.ARCHIVED, 9_999), DELETE) == [], "another policy later does not reach it"


def test_deletion_waits_then_goes_step_by_step() -> None:
    assert acts(look(GONE), since(State.GONE, 59), DELETE) == []
    first = acts(look(GONE), since(State.GONE, 60), DELETE)
    assert kinds(first) == [Remember, Withdraw, DeleteTwin]
    assert kinds(acts(look(GONE), since(State.DELETING, 0), DELETE)) == [Withdraw, DeleteTwin], (
        "after a crash in between"
    )
    assert acts(look(GONE, GONE), since(State.DELETING, 0), DELETE) == [Forget("orders")]
    assert acts(look(GONE, SOMEONES), since(State.DELETING, 0), DELETE) == [], "not ours to delete"


@pytest.mark.parametrize(
    ("span", "why"),
    [
        (Span(1, 0, 12, 10, 10), "orders-1 holds offsets 10 to 11 that this link did not carry"),
        (Span(1, 0, 10, 10, 15), "the source's records of orders-1 from 10 to 14 never crossed"),
        (Span(1, 0, 5, 0, 0), "orders-1 holds offsets 0 to 4 that this link did not carry"),
    ],
)
def test_a_twin_that_is_more_or_less_than_a_copy_is_never_deleted(span: Span, why: str) -> None:
    tell, remember = acts(look(GONE), since(State.GONE, 99), DELETE, [WHOLE[0], span])
    assert isinstance(tell, Tell)
    assert tell.sentence == f"the twin of deleted topic orders is kept: {why}"
    assert remember == Remember("orders", State.KEPT)
    assert unsafe("orders", WHOLE) == ""


@pytest.mark.parametrize("state", [State.GONE, State.KEPT, State.ARCHIVED])
def test_nothing_is_left_to_say_once_the_twin_was_deleted_too(state: State) -> None:
    assert acts(look(GONE, GONE), since(state, 9)) == [Forget("orders")]
    assert acts(look(GONE, GONE, missed=1), since(state, 9)) == [], "one look may err"
    for target in (SOMEONES, HIDDEN):
        assert acts(look(GONE, target), since(state, 9)) == []


def test_a_topic_that_was_only_out_of_sight_goes_on() -> None:
    assert acts(look(), since(State.GONE, 9)) == [Remember("orders", None), LookAgain("orders")]


def test_what_a_cluster_does_not_show_is_not_gone() -> None:
    for seen in (look(HIDDEN), look(THERE, HIDDEN), look(HIDDEN, HIDDEN)):
        assert acts(seen, since(State.GONE, 9_999), DELETE) == []
    tell = acts(look(HIDDEN, doubted=True))[0]
    assert isinstance(tell, Tell)
    assert tell.kind == "rights lost"


def test_a_topic_made_again_stops_unless_the_operator_said_otherwise() -> None:
    withdraw, again, tell = acts(look(ANEW))
    assert (withdraw, again) == (Withdraw("orders"), LookAgain("orders"))
    assert isinstance(tell, Tell)
    assert (tell.kind, tell.policy) == ("recreated topic", "stop the topic")
    assert tell.sentence.endswith("its offsets begin anew; its twin holds orders-0 0 to 9")


def test_it_begins_again_after_a_delay_and_only_on_the_twin_that_was_ours() -> None:
    assert kinds(acts(look(ANEW), follow=AGAIN)) == [Withdraw, LookAgain, Tell, Remember]
    assert acts(look(ANEW), since(State.BEGINNING, 59), AGAIN) == []
    withdraw, delete = acts(look(ANEW), since(State.BEGINNING, 60), AGAIN)
    assert isinstance(delete, DeleteTwin)
    assert delete.reason == "its source topic was deleted and made again; its twin holds orders-0 0 to 9"
    assert withdraw == Withdraw("orders")
    assert acts(look(ANEW, GONE), since(State.BEGINNING, 60), AGAIN) == [Forget("orders"), LookAgain("orders")]
    assert acts(look(ANEW, SOMEONES), since(State.BEGINNING, 60), AGAIN) == []


def test_an_operators_word_needs_no_delay_and_does_not_hold_for_ever() -> None:
    agreed = Memory(None, 0, NOW - 1)
    assert kinds(acts(look(ANEW), agreed)) == [Withdraw, LookAgain, Tell, Remember]
    beginning = Memory(State.BEGINNING, NOW, NOW - 1)
    assert kinds(acts(look(ANEW), beginning)) == [Withdraw, DeleteTwin]
    assert acts(look(ANEW, GONE), beginning) == [Forget("orders"), LookAgain("orders")]
    old = Memory(None, 0, NOW - CONFIRMED_FOR_MS)
    assert kinds(acts(look(ANEW), old)) == [Withdraw, LookAgain, Tell]


def test_a_twin_that_somebody_deleted_or_replaced_is_told() -> None:
    for target, words in ((GONE, "has been deleted on the target"), (SOMEONES, "made again by someone else")):
        withdraw, again, tell = acts(look(target=target))
        assert (withdraw, again) == (Withdraw("orders"), LookAgain("orders"))
        assert isinstance(tell, Tell)
        assert words in tell.sentence
    agreed = Memory(None, 0, NOW)
    assert acts(look(target=GONE), agreed) == [Withdraw("orders"), Forget("orders"), LookAgain("orders")]
    assert DeleteTwin not in kinds(acts(look(target=SOMEONES), agreed)), "someone's topic is not ours to delete"


def test_a_twin_that_grew_goes_back_to_the_planner_which_refuses_it() -> None:
    assert acts(look(target=Side(Presence.THERE, "t1", 3))) == [Withdraw("orders"), LookAgain("orders")]
    assert acts(look(source=Side(Presence.THERE, "s1", 3))) == [], "the twin grows after it"


def test_a_doubt_without_a_reason_is_mended_by_carrying_on() -> None:
    assert acts(look(doubted=True)) == [Withdraw("orders"), LookAgain("orders")]


def test_ranges_of_many_partitions_are_cut_short() -> None:
    many = [Span(number, 0, 5, 5, 5) for number in range(30)]
    assert ranges("a", many).endswith("a-19 0 to 4 and 10 partitions more")
    assert ranges("a", []) == "its twin holds nothing"


def test_a_mapped_twin_holds_data_of_others_and_is_never_deleted() -> None:
    wide = Side(Presence.THERE, "t1", 5)
    cases = (
        (look(GONE), since(State.GONE, 3600), DELETE),
        (look(ANEW), since(State.BEGINNING, 3600), AGAIN),
        (look(ANEW, wide), Memory(State.BEGINNING, NOW, NOW - 1), KEEP),
    )
    for case in cases:
        assert DeleteTwin in kinds(acts(*case)), "an exact one is"
        assert DeleteTwin not in kinds(acts(*for_mapped(*case)))
    assert acts(*for_mapped(look(THERE, wide), NONE, KEEP)) == [], "its further partitions are its own"


@pytest.mark.parametrize("target", [GONE, SOMEONES], ids=["deleted", "made again"])
def test_a_mapped_twin_that_is_gone_is_told_with_a_verb_that_works_for_it(target: Side) -> None:
    case = (look(target=target), Memory(None, 0, NOW - 1), KEEP)
    (told,) = [act for act in acts(*for_mapped(*case)) if isinstance(act, Tell)]
    assert "`twinshore mirror forget orders`" in told.sentence
    assert "begin-again" not in told.sentence, "it is refused for a mapped twin"
