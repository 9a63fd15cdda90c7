"""A forced switch takes over whatever a planned one may have left, and nothing that goes on."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from itertools import product

import pytest

from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import WireError
from twinshore.config.model import Link
from twinshore.kafka.protocol.rights import EVERYBODY, Acl, Pattern, Resource
from twinshore.switch.core.acl_rules import Debt, RulesPlan, both, debt_of, may_pay, rights_of
from twinshore.switch.core.forced import (
    fills_anew,
    freed,
    halves,
    moved_since,
    said,
    said_of_halves,
    taken,
    taken_over,
    why_not,
    without,
)
from twinshore.switch.core.steps import DEEDS, MAKES_TWINS, Deed, Done, Kind, State, SwitchState, after
from twinshore.switch.core.unreplicated import Tail, to_json

RIGHTS = json.dumps(RulesPlan().as_record(), sort_keys=True)
EVERY = [(kind, deed, state) for kind in Kind for deed, state in product(DEEDS[kind], State)]


def standing(kind: Kind, deed: Deed, state: State) -> SwitchState:
    return replace(record(kind), deed=deed, state=state, rights=RIGHTS)


@pytest.mark.parametrize(("kind", "deed", "state"), EVERY)
def test_in_each_state_it_is_taken_over_or_refused(kind: Kind, deed: Deed, state: State) -> None:
    one = standing(kind, deed, state)
    # Who makes twins on east has the topics' home on west: a forced switch goes the other way.
    ways = ("west", "east") if kind in MAKES_TWINS else ("east", "west")
    why = why_not(one, *ways)
    past = one.committed and not one.ended and not fills_anew(one)
    assert bool(why) is (state is not State.DONE and (past or kind in (Kind.DRILL, Kind.GROUP)))
    if past:
        assert "switch resume" in why
    if why:
        return
    if state is State.DONE:
        assert taken_over(one, ["orders"], "bob", NOW_MS) == one
        return
    words = "makes twins of them on east" if kind in MAKES_TWINS else "moves them from east to west"
    assert words in why_not(one, ways[0], "north")
    over = taken_over(one, ["orders"], "bob", NOW_MS)
    assert over.ended
    assert after(over, Done(over), NOW_MS) == over, "whoever goes on with it does nothing more"
    assert taken_over(over, ["orders"], "carl", NOW_MS + 1) == over
    assert SwitchState.from_json(over.to_json()) == over
    if one.ended:
        assert over == one
    elif fills_anew(one):
        assert "orders is moved by force, by bob" in over.told[-1].sentence
    else:
        assert (over.state, over.why) == (State.TURNED_BACK, "bob moves the topics by force")
        assert f"taken over at {deed}" in over.told[-1].sentence


@pytest.mark.parametrize("deed", DEEDS[Kind.PLANNED][: DEEDS[Kind.PLANNED].index(Deed.AFTER)])
def test_what_a_planned_one_may_have_left_on_the_old_home_is_kept(deed: Deed) -> None:
    debt = debt_of(standing(Kind.PLANNED, deed, State.GOING))
    assert debt == Debt("f" * 32, "east", ("orders",), RIGHTS)
    assert Debt.from_json(debt.to_json()) == debt
    assert debt_of(standing(Kind.FORCED, Deed.LEVEL, State.GOING)) is None, "it never spoke to the old home"


def test_the_preview_says_what_is_taken_over_and_what_is_owed() -> None:
    assert said(standing(Kind.PLANNED, Deed.HOLD, State.GOING), ["orders"]) == (
        "takes over the planned switch ffffffff of orders, by anna, which stands at hold: it counts as turned back; "
        "what it changed on east is undone when east is back"
    )
    assert "undone" not in said(standing(Kind.FORCED, Deed.LEVEL, State.GOING), ["orders"])
    returning = said(standing(Kind.FAILBACK, Deed.RESCUE, State.GOING), ["orders"])
    assert returning.endswith("counts as turned back; what it changed on west is undone when west is back")
    for text in ("", "[]", "{}", '{"switch": 1, "old": 2, "topics": 3, "rights": 4}'):
        with pytest.raises(WireError):
            Debt.from_json(text)


@pytest.mark.parametrize("kind", [Kind.FAILBACK, Kind.REBUILD])
def test_what_is_filled_anew_stays_and_the_others_go(kind: Kind) -> None:
    """Their home dies under a fail-back past its point of no return: twins that it deleted are no place to go to."""
    one = standing(kind, Deed.REFILL, State.GOING)
    (topic,) = one.topics
    bills = replace(topic, topic="bills")
    two = replace(one, topics=(topic, bills), tails=to_json([Tail("bills", 0, 3, 9)]))
    every = kind is Kind.REBUILD
    assert halves(two) == (("orders", "bills") if every else ("bills",))
    assert halves(replace(two, state=State.TURNED_BACK)) == ()
    assert why_not(two, "west", "east") == ""
    if every:
        return
    words = said_of_halves(two, ["orders", "bills"])
    assert words.startswith("left out: bills, which the fail-back switch ffffffff of orders, bills fills anew on east")
    assert words.endswith("it stays at home on west until that is back")
    assert taken(two, ["orders"]) == ("orders",)
    assert said(two, ["orders"]).startswith("takes orders out of the fail-back switch ffffffff")
    left = taken_over(two, ["orders"], "bob", NOW_MS)
    assert (left.state, left.deed, left.names()) == (State.GOING, Deed.REFILL, ("bills",))
    assert debt_of(two, ["orders"]) == Debt("f" * 32, "west", ("orders",))
    last = replace(two, deed=Deed.PUT_BACK)
    assert (halves(last), "switch resume" in why_not(last, "west", "east")) == ((), True), "it needs no home any more"


def test_what_one_switch_owes_to_a_cluster_is_one_debt() -> None:
    first, then = Debt("f" * 32, "west", ("orders",), "rights"), Debt("f" * 32, "west", ("bills",))
    assert both(first, None) == first
    assert both(then, first) == Debt("f" * 32, "west", ("bills", "orders"), "rights")
    assert both(then, replace(first, old="east")) == then


def test_the_link_pays_where_the_topics_stay_and_the_way_back_behind_a_guard() -> None:
    debt = Debt("f" * 32, "east", ("orders", "bills"))
    there, back = Link("east", "west"), Link("west", "east")
    asked: list[Collection[str]] = []

    def stands(topics: Collection[str]) -> bool:
        asked.append(topics)
        return guarded

    guarded = False
    assert may_pay(debt, there, ["other"], [], stands)
    assert not may_pay(debt, there, ["bills"], [], stands), "a denial must not go before the guard stands"
    assert may_pay(debt, back, [], ["other"], stands)
    assert not may_pay(debt, Link("west", "north"), [], ["bills"], stands), "another pair of clusters"
    assert asked == []
    assert not may_pay(debt, back, [], ["bills", "other"], stands)
    guarded = True
    assert may_pay(debt, back, [], ["bills", "other"], stands)
    assert asked == [{"bills"}, {"bills"}], "the cluster itself says so, and of these twins alone"


@pytest.mark.parametrize("deed", DEEDS[Kind.FORCED])
def test_topics_that_have_moved_on_are_left_alone(deed: Deed) -> None:
    one = standing(Kind.FORCED, deed, State.GOING)
    (topic,) = one.topics
    term = max(topic.term, 1)
    for home, gone in ((("east", term), False), (("west", term + 1), False), (("east", term + 1), True)):
        assert bool(moved_since(one, {}, {"orders": home})) is (gone and one.committed)
    assert moved_since(one, {"orders": ("west", term + 3)}, {"bills": ("west", 9)}) == ("orders",) * one.committed
    assert without(one, (), NOW_MS) == one
    assert without(one, ("orders",), NOW_MS).ended
    two = replace(one, topics=(topic, replace(topic, topic="bills")))
    assert without(two, ("orders",), NOW_MS).names() == ("bills",)
    assert not without(two, ("orders",), NOW_MS).ended


FLIPPED = [Deed.AFTER, Deed.TAKE_UP, Deed.RELEASE]


@pytest.mark.parametrize("deed", FLIPPED)
def test_what_has_moved_the_topics_to_a_home_that_is_gone_is_ended_by_a_switch_back(deed: Deed) -> None:
    done = standing(Kind.PLANNED, deed, State.GOING)
    assert why_not(done, "west", "east") == "", "resume would wait for west for ever"
    assert "is past its point of no return" in why_not(done, "east", "west")
    ended = taken_over(done, ["orders"], "bob", NOW_MS)
    assert (ended.state, ended.told[-1].sentence.startswith(f"ended at {deed}, as west is gone")) == (State.DONE, True)
    debt = debt_of(done)
    assert debt is not None
    assert (debt.old, debt.rights) == ("west", ""), "what was denied on east ends with the switch back"
    assert why_not(ended, "west", "east") == "", "whoever was killed there begins again"
    assert said(ended, ["orders"]).startswith("frees what is claimed still")


@pytest.mark.parametrize("deed", FLIPPED)
def test_a_switch_back_of_some_topics_leaves_the_others_where_they_are(deed: Deed) -> None:
    """They are at home on west, and nothing but the denial keeps writers from their old home."""
    denials = {
        topic: Acl(Resource.TOPIC, topic, Pattern.LITERAL, EVERYBODY, "*", 4, 2) for topic in ("bills", "orders")
    }
    rights = json.dumps(RulesPlan(tuple(denials.values())).as_record())
    one = standing(Kind.PLANNED, deed, State.GOING)
    (topic,) = one.topics
    both_topics = replace(one, topics=(topic, replace(topic, topic="bills")), rights=rights)
    assert taken(both_topics, ["orders"]) == freed(both_topics, ["orders"]) == ("orders",)
    left = taken_over(both_topics, ["orders"], "bob", NOW_MS)
    assert (left.state, left.deed, left.names()) == (State.GOING, deed, ("bills",))
    denied = [RulesPlan.from_record(json.loads(text)).deny for text in (left.rights, rights_of(rights, ["orders"]))]
    assert denied == [(denials["bills"],), (denials["orders"],)], "what is given back of east is of orders alone"
    assert "and bills stays on west" in said(both_topics, ["orders"])
    assert taken_over(left, ["bills"], "bob", NOW_MS).state is State.DONE
    assert rights_of("", ["orders"]) == ""


def test_before_the_flip_it_stays_where_it_is() -> None:
    assert "is past its point" in why_not(standing(Kind.PLANNED, Deed.FLIP, State.GOING), "west", "east")


def test_a_switch_that_may_go_on_without_the_store_is_not_taken_over() -> None:
    """Its process writes to the new home alone: no lease in the store says that it is gone."""
    kept = replace(standing(Kind.FORCED, Deed.LEVEL, State.GOING), kept="west")
    assert "may go on without the store" in why_not(kept, "east", "west")
    after_flip = replace(kept, deed=Deed.AFTER)
    assert why_not(after_flip, "west", "east", answers=False) == "", "west is gone, and with it where it writes"
    assert "may go on without the store" in why_not(after_flip, "west", "east", answers=True)
    assert said(after_flip, ["orders"]).endswith("no command `after` of it runs any more, with whoever began it")


def test_what_was_taken_out_of_it_before_is_freed_once_more() -> None:
    anew = replace(standing(Kind.FAILBACK, Deed.REFILL, State.GOING), tails=to_json([Tail("orders", 0, 3, 9)]))
    assert freed(anew, ["bills"]) == ("bills",), "its record does not name bills any more, its claims may"
    assert freed(replace(anew, state=State.DONE), ["bills"]) == anew.names()
