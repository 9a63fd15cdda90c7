"""One group that moves alone: what keeps it where it is, where it is taken to be, and whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.replication.test_known import put, section, settings_of
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import WireError
from twinshore.groups.core.goals import Goal, from_json, further_on, moved_on, short_of, to_json
from twinshore.groups.offset_move import links_between
from twinshore.replication.core.link_config import added
from twinshore.replication.links import taken
from twinshore.state.core.values import Asked, TopicInSwitch
from twinshore.state.store import open_store
from twinshore.switch.core.steps import (
    DEEDS,
    Cannot,
    Deed,
    Done,
    Kind,
    State,
    SwitchState,
    Wait,
    after,
    alone_at,
    begin,
)
from twinshore.switch.group import OneGroup, claim_of
from twinshore.switch.operations.show import Shown

GOAL = Goal("east->west", False, "orders", 40, "orders", 0, 30, 40)


def of_group(group: str = "billing", new: str = "west", state: State = State.GOING) -> SwitchState:
    moved = record().topics
    old = "east" if new == "west" else "west"
    made = SwitchState(
        id="e" * 32,
        kind=Kind.GROUP,
        old=old,
        new=new,
        link=f"{old}->{new}",
        back=f"{new}->{old}",
        topics=moved,
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=10.0,
        deed=Deed.CLAIM,
        group=group,
    )
    return replace(begin(made, NOW_MS), state=state)


def test_it_does_not_go_where_the_log_is_shorter_or_where_it_is_further_on() -> None:
    assert short_of([GOAL]) == ""
    assert short_of([replace(GOAL, short=3)]) == "3 offsets that it has read are not there yet, in orders-0"
    assert further_on([GOAL, replace(GOAL, has=None)], "east", "west") == ""
    assert "by 2 offsets, in orders-0" in further_on([replace(GOAL, has=42)], "east", "west")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([replace(GOAL, has=40)], ""),
        ([replace(GOAL, has=40, left=41, to=41)], "on east meanwhile, in orders-0"),
        ([replace(GOAL, has=44)], "on west meanwhile, in orders-0"),
        ([], "on east meanwhile, in orders-0"),
        ([replace(GOAL, has=40), replace(GOAL, partition=1)], "that it had not before: orders-1"),
    ],
)
def test_who_went_on_meanwhile_is_seen(now: list[Goal], why: str) -> None:
    said = moved_on([GOAL], now, "east", "west")
    assert (said == "") is (why == "")
    assert why in said


def test_a_link_that_a_switch_has_added_takes_places_along(tmp_path: Path) -> None:
    """Settings that were read from their file alone name it nowhere, as those of a proxy."""
    settings = settings_of(tmp_path, section("east->west", "orders"))
    with open_store(settings.store.url) as store:
        taken(settings, store, by="the settings")
        put(store, added("west->east", {"topics": ["orders"]}, 5, "anna"))
        found = links_between(settings, store, "west", "east")
    assert sorted(link.name for link in found) == ["east->west", "west->east"]


def test_places_survive_their_way_and_garbage_does_not() -> None:
    some = (GOAL, replace(GOAL, back=True, has=None))
    assert from_json(to_json(some)) == some
    assert from_json("") == ()
    for text in ("{", '[{"nobody": 1}]', "[1]"):
        with pytest.raises(WireError):
            from_json(text)


def test_a_group_is_alone_until_its_topics_move() -> None:
    """The newest first: what was done last counts."""
    gone, topics_moved = of_group(state=State.DONE), replace(record(), state=State.DONE)
    west, none = frozenset({"orders"}), frozenset[str]()
    assert alone_at([gone], "billing", ["orders", "others"], "west") == west
    assert alone_at([gone], "billing", ["orders"], "east") == none
    assert alone_at([gone], "audit", ["orders"], "west") == none
    assert alone_at([gone], "billing", ["others"], "west") == none
    assert alone_at([replace(gone, state=State.TURNED_BACK)], "billing", ["orders"], "west") == none
    assert alone_at([topics_moved, gone], "billing", ["orders"], "west") == none
    assert alone_at([gone, topics_moved], "billing", ["orders"], "west") == west
    assert alone_at([of_group(new="east", state=State.DONE), gone], "billing", ["orders"], "west") == none
    assert alone_at([replace(record(), state=State.TURNED_BACK), gone], "billing", ["orders"], "west") == west
    of_others = replace(topics_moved, topics=(replace(topics_moved.topics[0], topic="others"),))
    assert alone_at([of_others, gone], "billing", ["orders", "others"], "west") == west, "another topic has moved since"


def test_it_turns_back_up_to_its_point_and_its_places_with_it() -> None:
    for deed in DEEDS[Kind.GROUP][:6]:
        going = replace(of_group(), deed=deed, deed_ms=NOW_MS)
        back = after(going, Cannot("consumers came back"), NOW_MS)
        undone = []
        while not back.ended:
            undone.append(back.deed)
            back = after(back, Done(back), NOW_MS)
        set_too = deed in (Deed.SET, Deed.COMMIT)
        ran = deed is not Deed.CLAIM
        assert undone == [Deed.SET] * set_too + [Deed.BEFORE] * ran + [Deed.CLAIM]
        assert back.held_ms == 0, "no writer waits for a group"
        said = Shown(back.id, back).verdict()
        assert said == "turned back: consumers came back; group billing stays on east"
    behind = replace(of_group(), deed=Deed.FOLLOW, deed_ms=NOW_MS)
    assert after(behind, Wait("away"), NOW_MS + 10**9).state is State.GOING
    done = replace(behind, state=State.DONE)
    assert Shown(done.id, done).verdict() == "done: group billing continues on west: start its consumers there"
    assert "switch of group billing alone from east to west, by anna: done" in Shown(done.id, done).sentence()


def test_of_two_that_move_a_group_one_wins(tmp_path: Path) -> None:
    """Also where a switch of a topic that it reads is under way; a name of any length can be claimed."""
    for group in ("billing", "g" * 5000):
        with open_store(f"sqlite:///{tmp_path / str(len(group))}.db") as opened:
            first, second = of_group(group), replace(of_group(group), id="d" * 32)
            hands = OneGroup([], None, opened, lambda: NOW_MS)  # type: ignore[arg-type]
            assert isinstance(hands.once(first), Done)
            assert isinstance(hands.once(first), Done), "a deed may be done twice"
            told = hands.once(second)
            assert isinstance(told, Cannot)
            assert "in another switch already (eeeeeeee)" in told.sentence
            assert claim_of(group) == opened.switching.of("east<>west")[0].topic
            opened.switching.end(first.id)
            opened.switching.begin(
                [TopicInSwitch("east<>west", "orders", "c" * 32, "east->west", Asked.ANNOUNCED, NOW_MS)]
            )
            told = hands.once(second)
            assert isinstance(told, Cannot)
            assert "orders, which it reads, is in a switch" in told.sentence
