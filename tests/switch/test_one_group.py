"""One group that moves alone: what keeps it where it is, where it is taken to be, and whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.replication.test_known import put, section, settings_of
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import WireError
from twinshore.groups.core.goals import (
    OffsetGoal,
    describe_ahead,
    describe_changes,
    describe_short_logs,
    goals_from_json,
    goals_to_json,
)
from twinshore.groups.offset_move import links_between
from twinshore.replication.core.link_config import new_link_row
from twinshore.replication.links import adopt_settings
from twinshore.state.core.values import MirrorRequest, TopicInSwitch
from twinshore.state.store import open_store
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepFailed,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    apply_outcome,
    begin_switch,
    find_topics_moved_for_group,
)
from twinshore.switch.operations.one_client import GroupSwitchSteps, group_claim_name
from twinshore.switch.operations.show import SwitchView

GOAL = OffsetGoal("east->west", False, "orders", 40, "orders", 0, 30, 40)


def of_group(group: str = "billing", new: str = "west", state: SwitchStatus = SwitchStatus.RUNNING) -> SwitchState:
    moved = record().topics
    old = "east" if new == "west" else "west"
    made = SwitchState(
        id="e" * 32,
        kind=SwitchKind.GROUP,
        old=old,
        new=new,
        link=f"{old}->{new}",
        back=f"{new}->{old}",
        topics=moved,
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=10.0,
        step=SwitchStep.CLAIM,
        group=group,
    )
    return replace(begin_switch(made, NOW_MS), state=state)


def test_it_does_not_go_where_the_log_is_shorter_or_where_it_is_further_on() -> None:
    assert describe_short_logs([GOAL]) == ""
    assert mentions(describe_short_logs([replace(GOAL, short=3)]), "3 offsets", "orders-0")
    assert describe_ahead([GOAL, replace(GOAL, has=None)], "east", "west") == ""
    assert "by 2 offsets, in orders-0" in describe_ahead([replace(GOAL, has=42)], "east", "west")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([replace(GOAL, has=40)], ""),
        ([replace(GOAL, has=40, left=41, to=41)], "the group on east, in orders-0"),
        ([replace(GOAL, has=44)], "the group on west, in orders-0"),
        ([], "the group on east, in orders-0"),
        ([replace(GOAL, has=40), replace(GOAL, partition=1)], "new offsets on east: orders-1"),
    ],
)
def test_who_went_on_meanwhile_is_seen(now: list[OffsetGoal], why: str) -> None:
    said = describe_changes([GOAL], now, "east", "west")
    assert (said == "") is (why == "")
    assert why in said


def test_a_link_that_a_switch_has_added_takes_places_along(tmp_path: Path) -> None:
    """Settings that were read from their file alone name it nowhere, as those of a proxy."""
    settings = settings_of(tmp_path, section("east->west", "orders"))
    with open_store(settings.store.url) as store:
        adopt_settings(settings, store, by="the settings")
        put(store, new_link_row("west->east", {"topics": ["orders"]}, 5, "anna"))
        found = links_between(settings, store, "west", "east")
    assert sorted(link.name for link in found) == ["east->west", "west->east"]


def test_places_survive_their_way_and_garbage_does_not() -> None:
    some = (GOAL, replace(GOAL, back=True, has=None))
    assert goals_from_json(goals_to_json(some)) == some
    assert goals_from_json("") == ()
    for text in ("{", '[{"nobody": 1}]', "[1]"):
        with pytest.raises(WireError):
            goals_from_json(text)


def test_a_group_is_alone_until_its_topics_move() -> None:
    """The newest first: what was done last counts."""
    gone, topics_moved = of_group(state=SwitchStatus.DONE), replace(record(), state=SwitchStatus.DONE)
    west, none = frozenset({"orders"}), frozenset[str]()
    assert find_topics_moved_for_group([gone], "billing", ["orders", "others"], "west") == west
    assert find_topics_moved_for_group([gone], "billing", ["orders"], "east") == none
    assert find_topics_moved_for_group([gone], "audit", ["orders"], "west") == none
    assert find_topics_moved_for_group([gone], "billing", ["others"], "west") == none
    assert (
        find_topics_moved_for_group([replace(gone, state=SwitchStatus.ROLLED_BACK)], "billing", ["orders"], "west")
        == none
    )
    assert find_topics_moved_for_group([topics_moved, gone], "billing", ["orders"], "west") == none
    assert find_topics_moved_for_group([gone, topics_moved], "billing", ["orders"], "west") == west
    assert (
        find_topics_moved_for_group(
            [of_group(new="east", state=SwitchStatus.DONE), gone], "billing", ["orders"], "west"
        )
        == none
    )
    assert (
        find_topics_moved_for_group(
            [replace(record(), state=SwitchStatus.ROLLED_BACK), gone], "billing", ["orders"], "west"
        )
        == west
    )
    of_others = replace(topics_moved, topics=(replace(topics_moved.topics[0], topic="others"),))
    assert find_topics_moved_for_group([of_others, gone], "billing", ["orders", "others"], "west") == west, (
        "another topic has moved since"
    )


def test_it_turns_back_up_to_its_point_and_its_places_with_it() -> None:
    for step in STEPS[SwitchKind.GROUP][:6]:
        going = replace(of_group(), step=step, step_ms=NOW_MS)
        back = apply_outcome(going, StepFailed("consumers came back"), NOW_MS)
        undone = []
        while not back.ended:
            undone.append(back.step)
            back = apply_outcome(back, StepDone(back), NOW_MS)
        set_too = step in (SwitchStep.COMMIT_OFFSETS, SwitchStep.COMMIT)
        ran = step is not SwitchStep.CLAIM
        assert undone == [SwitchStep.COMMIT_OFFSETS] * set_too + [SwitchStep.BEFORE] * ran + [SwitchStep.CLAIM]
        assert back.held_ms == 0, "no writer waits for a group"
        said = SwitchView(back.id, back).verdict()
        assert mentions(said, "turned back", "consumers came back", "billing", "east")
    behind = replace(of_group(), step=SwitchStep.LET_OFFSETS_FOLLOW, step_ms=NOW_MS)
    assert apply_outcome(behind, StepPending("away"), NOW_MS + 10**9).state is SwitchStatus.RUNNING
    done = replace(behind, state=SwitchStatus.DONE)
    assert mentions(SwitchView(done.id, done).verdict(), "done", "billing", "west")
    assert mentions(SwitchView(done.id, done).sentence(), "billing", "east to west", "by anna: done")


def test_of_two_that_move_a_group_one_wins(tmp_path: Path) -> None:
    """Also where a switch of a topic that it reads is under way; a name of any length can be claimed."""
    for group in ("billing", "g" * 5000):
        with open_store(f"sqlite:///{tmp_path / str(len(group))}.db") as opened:
            first, second = of_group(group), replace(of_group(group), id="d" * 32)
            hands = GroupSwitchSteps([], None, opened, lambda: NOW_MS)  # type: ignore[arg-type]
            assert isinstance(hands.once(first), StepDone)
            assert isinstance(hands.once(first), StepDone), "a step may be done twice"
            told = hands.once(second)
            assert isinstance(told, StepFailed)
            assert "in another switch already (eeeeeeee)" in told.sentence
            assert group_claim_name(group) == opened.topics_in_switch.of("east<>west")[0].topic
            opened.topics_in_switch.end(first.id)
            opened.topics_in_switch.begin(
                [TopicInSwitch("east<>west", "orders", "c" * 32, "east->west", MirrorRequest.ANNOUNCED, NOW_MS)]
            )
            told = hands.once(second)
            assert isinstance(told, StepFailed)
            assert "orders, which it reads, is in a switch" in told.sentence
