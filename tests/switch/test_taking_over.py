"""A forced switch takes over whatever a planned one may have left, and nothing that goes on."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from itertools import product

import pytest

from testkit.errors import mentions
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import WireError
from twinshore.config.model import Link
from twinshore.kafka.protocol.access_control import ANY_USER, Acl, PatternType, ResourceType
from twinshore.switch.core.acl_rules import (
    DeferredCleanup,
    RulesPlan,
    deferred_cleanup_of,
    may_clean_up,
    merge_cleanups,
    select_rights,
)
from twinshore.switch.core.steps import (
    MAKES_TWINS,
    STEPS,
    StepDone,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    apply_outcome,
)
from twinshore.switch.core.takeover import (
    describe_refilling_topics,
    describe_takeover,
    drop_topics,
    find_topics_moved_since,
    is_refilling,
    mark_taken_over,
    refilling_topics,
    topics_freed,
    topics_taken_over,
    why_not_take_over,
)
from twinshore.switch.core.unreplicated import UnreplicatedRange, ranges_to_json

RIGHTS = json.dumps(RulesPlan().as_record(), sort_keys=True)
EVERY = [(kind, step, state) for kind in SwitchKind for step, state in product(STEPS[kind], SwitchStatus)]


def standing(kind: SwitchKind, step: SwitchStep, state: SwitchStatus) -> SwitchState:
    return replace(record(kind), step=step, state=state, rights=RIGHTS)


@pytest.mark.parametrize(("kind", "step", "state"), EVERY)
def test_in_each_state_it_is_taken_over_or_refused(kind: SwitchKind, step: SwitchStep, state: SwitchStatus) -> None:
    one = standing(kind, step, state)
    # Who makes twins on east has the topics' home on west: a forced switch goes the other way.
    ways = ("west", "east") if kind in MAKES_TWINS else ("east", "west")
    why = why_not_take_over(one, *ways)
    past = one.committed and not one.ended and not is_refilling(one)
    assert bool(why) is (state is not SwitchStatus.DONE and (past or kind in (SwitchKind.DRILL, SwitchKind.GROUP)))
    if past:
        assert "switch resume" in why
    if why:
        return
    if state is SwitchStatus.DONE:
        assert mark_taken_over(one, ["orders"], "bob", NOW_MS) == one
        return
    words = "makes twins of them on east" if kind in MAKES_TWINS else "moves them from east to west"
    assert words in why_not_take_over(one, ways[0], "north")
    over = mark_taken_over(one, ["orders"], "bob", NOW_MS)
    assert over.ended
    assert apply_outcome(over, StepDone(over), NOW_MS) == over, "whoever goes on with it does nothing more"
    assert mark_taken_over(over, ["orders"], "carl", NOW_MS + 1) == over
    assert SwitchState.from_json(over.to_json()) == over
    if one.ended:
        assert over == one
    elif is_refilling(one):
        assert mentions(over.history[-1].sentence, "orders", "force", "bob")
    else:
        assert over.state is SwitchStatus.ROLLED_BACK and mentions(over.why, "bob", "force")
        assert f"taken over at {step.words}" in over.history[-1].sentence


@pytest.mark.parametrize("step", STEPS[SwitchKind.PLANNED][: STEPS[SwitchKind.PLANNED].index(SwitchStep.AFTER)])
def test_what_a_planned_one_may_have_left_on_the_old_home_is_kept(step: SwitchStep) -> None:
    debt = deferred_cleanup_of(standing(SwitchKind.PLANNED, step, SwitchStatus.RUNNING))
    assert debt == DeferredCleanup("f" * 32, "east", ("orders",), RIGHTS)
    assert DeferredCleanup.from_json(debt.to_json()) == debt
    assert deferred_cleanup_of(standing(SwitchKind.FORCED, SwitchStep.CATCH_UP, SwitchStatus.RUNNING)) is None, (
        "it never spoke to the old home"
    )


def test_the_preview_says_what_is_taken_over_and_what_is_owed() -> None:
    assert describe_takeover(standing(SwitchKind.PLANNED, SwitchStep.HOLD, SwitchStatus.RUNNING), ["orders"]) == (
        "takes over the planned switch ffffffff of orders, by anna, which stands at hold: it counts as turned back; "
        "what it changed on east is undone when east is back"
    )
    assert "undone" not in describe_takeover(
        standing(SwitchKind.FORCED, SwitchStep.CATCH_UP, SwitchStatus.RUNNING), ["orders"]
    )
    returning = describe_takeover(standing(SwitchKind.FAILBACK, SwitchStep.RESCUE, SwitchStatus.RUNNING), ["orders"])
    assert mentions(returning, "turned back", "on west", "undone")
    for text in ("", "[]", "{}", '{"switch": 1, "old": 2, "topics": 3, "rights": 4}'):
        with pytest.raises(WireError):
            DeferredCleanup.from_json(text)


@pytest.mark.parametrize("kind", [SwitchKind.FAILBACK, SwitchKind.REBUILD])
def test_what_is_filled_anew_stays_and_the_others_go(kind: SwitchKind) -> None:
    """Their home dies under a fail-back past its point of no return: twins that it deleted are no place to go to."""
    one = standing(kind, SwitchStep.REFILL, SwitchStatus.RUNNING)
    (topic,) = one.topics
    bills = replace(topic, topic="bills")
    two = replace(one, topics=(topic, bills), tails=ranges_to_json([UnreplicatedRange("bills", 0, 3, 9)]))
    every = kind is SwitchKind.REBUILD
    assert refilling_topics(two) == (("orders", "bills") if every else ("bills",))
    assert refilling_topics(replace(two, state=SwitchStatus.ROLLED_BACK)) == ()
    assert why_not_take_over(two, "west", "east") == ""
    if every:
        return
    words = describe_refilling_topics(two, ["orders", "bills"])
    assert mentions(words, "left out: bills", "ffffffff", "east", "west")
    assert topics_taken_over(two, ["orders"]) == ("orders",)
    assert mentions(describe_takeover(two, ["orders"]), "orders out of", "ffffffff")
    left = mark_taken_over(two, ["orders"], "bob", NOW_MS)
    assert (left.state, left.step, left.names()) == (SwitchStatus.RUNNING, SwitchStep.REFILL, ("bills",))
    assert deferred_cleanup_of(two, ["orders"]) == DeferredCleanup("f" * 32, "west", ("orders",))
    last = replace(two, step=SwitchStep.RESTORE_OFFSETS)
    assert (refilling_topics(last), "switch resume" in why_not_take_over(last, "west", "east")) == ((), True), (
        "it needs no home any more"
    )


def test_what_one_switch_owes_to_a_cluster_is_one_debt() -> None:
    first, then = (
        DeferredCleanup("f" * 32, "west", ("orders",), "rights"),
        DeferredCleanup("f" * 32, "west", ("bills",)),
    )
    assert merge_cleanups(first, None) == first
    assert merge_cleanups(then, first) == DeferredCleanup("f" * 32, "west", ("bills", "orders"), "rights")
    assert merge_cleanups(then, replace(first, old="east")) == then


def test_the_link_pays_where_the_topics_stay_and_the_way_back_behind_a_guard() -> None:
    debt = DeferredCleanup("f" * 32, "east", ("orders", "bills"))
    there, back = Link("east", "west"), Link("west", "east")
    asked: list[Collection[str]] = []

    def stands(topics: Collection[str]) -> bool:
        asked.append(topics)
        return guarded

    guarded = False
    assert may_clean_up(debt, there, ["other"], [], stands)
    assert not may_clean_up(debt, there, ["bills"], [], stands), "a denial must not go before the guard stands"
    assert may_clean_up(debt, back, [], ["other"], stands)
    assert not may_clean_up(debt, Link("west", "north"), [], ["bills"], stands), "another pair of clusters"
    assert asked == []
    assert not may_clean_up(debt, back, [], ["bills", "other"], stands)
    guarded = True
    assert may_clean_up(debt, back, [], ["bills", "other"], stands)
    assert asked == [{"bills"}, {"bills"}], "the cluster itself says so, and of these twins alone"


@pytest.mark.parametrize("step", STEPS[SwitchKind.FORCED])
def test_topics_that_have_moved_on_are_left_alone(step: SwitchStep) -> None:
    one = standing(SwitchKind.FORCED, step, SwitchStatus.RUNNING)
    (topic,) = one.topics
    term = max(topic.term, 1)
    for home, gone in ((("east", term), False), (("west", term + 1), False), (("east", term + 1), True)):
        assert bool(find_topics_moved_since(one, {}, {"orders": home})) is (gone and one.committed)
    assert (
        find_topics_moved_since(one, {"orders": ("west", term + 3)}, {"bills": ("west", 9)})
        == ("orders",) * one.committed
    )
    assert drop_topics(one, (), NOW_MS) == one
    assert drop_topics(one, ("orders",), NOW_MS).ended
    two = replace(one, topics=(topic, replace(topic, topic="bills")))
    assert drop_topics(two, ("orders",), NOW_MS).names() == ("bills",)
    assert not drop_topics(two, ("orders",), NOW_MS).ended


FLIPPED = [SwitchStep.AFTER, SwitchStep.START_REVERSE, SwitchStep.RELEASE]


@pytest.mark.parametrize("step", FLIPPED)
def test_what_has_moved_the_topics_to_a_home_that_is_gone_is_ended_by_a_switch_back(step: SwitchStep) -> None:
    done = standing(SwitchKind.PLANNED, step, SwitchStatus.RUNNING)
    assert why_not_take_over(done, "west", "east") == "", "resume would wait for west for ever"
    assert mentions(why_not_take_over(done, "east", "west"), step.words, "twinshore switch resume")
    ended = mark_taken_over(done, ["orders"], "bob", NOW_MS)
    assert (ended.state, ended.history[-1].sentence.startswith(f"ended at {step.words}, as west is gone")) == (
        SwitchStatus.DONE,
        True,
    )
    debt = deferred_cleanup_of(done)
    assert debt is not None
    assert (debt.old, debt.rights) == ("west", ""), "what was denied on east ends with the switch back"
    assert why_not_take_over(ended, "west", "east") == "", "whoever was killed there begins again"
    assert mentions(describe_takeover(ended, ["orders"]), "frees")


@pytest.mark.parametrize("step", FLIPPED)
def test_a_switch_back_of_some_topics_leaves_the_others_where_they_are(step: SwitchStep) -> None:
    """They are at home on west, and nothing but the denial keeps writers from their old home."""
    denials = {
        topic: Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, ANY_USER, "*", 4, 2) for topic in ("bills", "orders")
    }
    rights = json.dumps(RulesPlan(tuple(denials.values())).as_record())
    one = standing(SwitchKind.PLANNED, step, SwitchStatus.RUNNING)
    (topic,) = one.topics
    both_topics = replace(one, topics=(topic, replace(topic, topic="bills")), rights=rights)
    assert topics_taken_over(both_topics, ["orders"]) == topics_freed(both_topics, ["orders"]) == ("orders",)
    left = mark_taken_over(both_topics, ["orders"], "bob", NOW_MS)
    assert (left.state, left.step, left.names()) == (SwitchStatus.RUNNING, step, ("bills",))
    denied = [RulesPlan.from_record(json.loads(text)).deny for text in (left.rights, select_rights(rights, ["orders"]))]
    assert denied == [(denials["bills"],), (denials["orders"],)], "what is given back of east is of orders alone"
    assert mentions(describe_takeover(both_topics, ["orders"]), "bills stays on west")
    assert mark_taken_over(left, ["bills"], "bob", NOW_MS).state is SwitchStatus.DONE
    assert select_rights("", ["orders"]) == ""


def test_before_the_flip_it_stays_where_it_is() -> None:
    assert "is past its point" in why_not_take_over(
        standing(SwitchKind.PLANNED, SwitchStep.PROMOTE, SwitchStatus.RUNNING), "west", "east"
    )


def test_a_switch_that_may_go_on_without_the_store_is_not_taken_over() -> None:
    """Its process writes to the new home alone: no lease in the store says that it is gone."""
    kept = replace(standing(SwitchKind.FORCED, SwitchStep.CATCH_UP, SwitchStatus.RUNNING), kept="west")
    assert mentions(why_not_take_over(kept, "east", "west"), "without the store")
    after_flip = replace(kept, step=SwitchStep.AFTER)
    assert why_not_take_over(after_flip, "west", "east", answers=False) == "", (
        "west is gone, and with it where it writes"
    )
    assert mentions(why_not_take_over(after_flip, "west", "east", answers=True), "without the store")
    assert mentions(describe_takeover(after_flip, ["orders"]), "command `after`")


def test_what_was_taken_out_of_it_before_is_freed_once_more() -> None:
    anew = replace(
        standing(SwitchKind.FAILBACK, SwitchStep.REFILL, SwitchStatus.RUNNING),
        tails=ranges_to_json([UnreplicatedRange("orders", 0, 3, 9)]),
    )
    assert topics_freed(anew, ["bills"]) == ("bills",), "its record does not name bills any more, its claims may"
    assert topics_freed(replace(anew, state=SwitchStatus.DONE), ["bills"]) == anew.names()
