"""Many topics in waves: what goes together, how far a plan has come, and what is gone on with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import has_code, mentions, raises
from tests.switch.test_decision import record
from tests.switch.test_operations import saved, settings, store
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings
from twinshore.state.store import Store
from twinshore.switch.core.steps import (
    SwitchKind,
    SwitchState,
    SwitchStatus,
    TopicMove,
    find_wave_plans,
    split_into_waves,
)
from twinshore.switch.operations import plan as planning
from twinshore.switch.operations.dispatch import plan_switch
from twinshore.switch.operations.plan import SwitchPlan, SwitchPlanRequest
from twinshore.switch.operations.waves import describe_waves, find_unfinished_waves, plan, topics_moved_by

pytestmark = pytest.mark.usefixtures("short_patience")

__all__ = ["settings", "store"]
NAMES = st.sampled_from([f"topic-{number}" for number in range(12)])


def test_topics_that_a_group_reads_together_move_together() -> None:
    assert split_into_waves("dcba", [], 2) == (("a", "b"), ("c", "d"))
    assert split_into_waves("abcd", [("a", "d")], 2) == (("a", "d"), ("b", "c"))
    assert split_into_waves("abcd", [("a", "b"), ("b", "c"), ("x", "d")], 2) == (("a", "b", "c"), ("d",))
    assert split_into_waves("", [], 2) == ()


@given(st.lists(NAMES), st.lists(st.lists(NAMES, max_size=4), max_size=4), st.integers(1, 5))
def test_each_topic_is_in_one_wave_and_each_flock_too(topics: list[str], together: list[list[str]], size: int) -> None:
    waves = split_into_waves(topics, together, size)
    assert sorted(topic for wave in waves for topic in wave) == sorted(set(topics))
    of = {topic: number for number, wave in enumerate(waves) for topic in wave}
    for some in together:
        assert len({of[topic] for topic in some if topic in of}) <= 1
    assert together or all(len(wave) <= size for wave in waves)


def wave(number: int, state: SwitchStatus, *left: str) -> SwitchState:
    one = replace(record(), id=f"{number}" * 32, begun_ms=number, state=state)
    topic = TopicMove(topic=f"topic-{number}", old_id="a" * 32, new_id="b" * 32, term=1, partitions=1)
    return replace(one, topics=(topic,), plan="f0" * 16, wave=number, left=tuple((name,) for name in left))


def test_how_far_a_plan_has_come_is_told_by_its_switches() -> None:
    first, second = wave(1, SwitchStatus.DONE, "topic-2", "topic-3"), wave(2, SwitchStatus.RUNNING, "topic-3")
    assert SwitchState.from_json(second.to_json()) == second
    (one,) = find_wave_plans([second, replace(record(), id="c" * 32), first])
    assert (one.done, one.moved, one.left, one.over) == (1, ("topic-1",), (("topic-3",),), False)
    assert mentions(one.sentence(), "f0f0f0f0", "1 of 3 waves", "west", "wave 2")
    (fell,) = find_wave_plans([replace(second, state=SwitchStatus.ROLLED_BACK), first])
    assert fell.over
    assert mentions(fell.sentence(), "wave 2", "turned back", "east")
    (begun,) = find_wave_plans([replace(second, state=SwitchStatus.DONE), first])
    assert (begun.done, begun.over, begun.moved) == (2, False, ("topic-1", "topic-2"))
    assert "`twinshore switch resume` goes on" in begun.sentence()
    (over,) = find_wave_plans([wave(3, SwitchStatus.DONE), replace(second, state=SwitchStatus.DONE), first])
    assert (over.done, over.over) == (3, True)


def test_between_two_waves_the_plan_is_owed(store: Store) -> None:
    saved(store, wave(1, SwitchStatus.DONE, "topic-2"))
    begun = find_unfinished_waves(store)
    assert begun is not None
    assert begun.left == (("topic-2",),)
    assert find_unfinished_waves(store, "f0f0") == begun
    assert find_unfinished_waves(store, "1111") == begun
    assert find_unfinished_waves(store, "abc") is None
    assert len(describe_waves(store)) == 1
    assert topics_moved_by(store, "f0f0") == topics_moved_by(store, "1111") == [r"topic\-1"]
    saved(store, wave(2, SwitchStatus.RUNNING))
    assert find_unfinished_waves(store) is None, "a switch is open, which is gone on with first"
    with pytest.raises(ConfigError):
        topics_moved_by(store, "abc")


def test_what_nobody_can_mean_of_waves_is_told(settings: Settings, store: Store) -> None:
    for asked in (
        SwitchPlanRequest(["orders"], "west", wave=2),
        SwitchPlanRequest([], "west", group="billing", wave=2),
    ):
        with raises(ConfigError, "switch.all-or-topics"):
            plan_switch(asked, settings, store)
    with raises(ConfigError, "switch.of-names-topics"):
        plan_switch(SwitchPlanRequest(["orders"], "west", of="abc"), settings, store)
    away = plan(SwitchPlanRequest([], "west", wave=2), settings, store)
    assert has_code(away.refusal, "switch.source-silent", cluster="east")
    assert away.waves == ()


def test_a_home_that_answers_is_known_of_a_whole_cluster_too(
    settings: Settings,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command asks for its name before it is left."""
    whole = SwitchPlan(state=record(SwitchKind.FORCED), alive="east")
    monkeypatch.setattr(planning, "plan", lambda *_, **__: whole)
    assert plan(SwitchPlanRequest([], "west", force=True, wave=5), settings, store).alive == "east"
