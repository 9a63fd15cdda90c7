"""A switch is killed at each step and goes on; nothing is lost, written twice, or left held."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.switch.world import TROUBLE, Hands, World, play
from twinshore.config.errors import WireError
from twinshore.switch.core.steps import (
    STEPS,
    MustRollBack,
    StepDone,
    StepFailed,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
    TopicMove,
    apply_outcome,
    begin_rollback,
    begin_switch,
    repeat_hold,
)

NOW_MS = 1_000_000


def record(kind: SwitchKind = SwitchKind.PLANNED, hold_s_max: float = 10.0) -> SwitchState:
    moved = TopicMove(topic="orders", old_id="a" * 32, new_id="b" * 32, term=1, partitions=1)
    made = SwitchState(
        id="f" * 32,
        kind=kind,
        old="east",
        new="west",
        link="east->west",
        back="west->east",
        topics=(moved,),
        by="anna",
        begun_ms=NOW_MS,
        hold_s_max=hold_s_max,
        step=SwitchStep.CLAIM,
    )
    return begin_switch(made, NOW_MS)


def check(world: World, ended: SwitchState) -> None:
    assert not world.wrong
    home = "west" if ended.state is SwitchStatus.DONE else "east"
    assert world.line[0] == home
    assert world.line[2] == "settled", "nobody is left held"
    assert not world.rights_held
    assert not world.claimed
    assert world.logs[home] == list(range(world.acknowledged)), "each acknowledged record once, in order"


@pytest.mark.claim(
    "switch",
    "killed-at-each-deed",
    "killed at each step and gone on with: nothing lost, nobody left held",
)
@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize(
    "trouble", [None, *STEPS[SwitchKind.PLANNED][: STEPS[SwitchKind.PLANNED].index(SwitchStep.COMMIT) + 1]]
)
def test_a_switch_that_is_killed_at_any_step_ends_whole(trouble: SwitchStep | None, moment: int) -> None:
    """At each call of a hand, in each of its moments, on its way forward and on its way back."""
    for kill in range(60):
        world = World(random.Random(kill * 7 + moment))
        hands = Hands(world, (kill, moment), trouble)
        ended = play(record(), hands, NOW_MS)
        check(world, ended)
        assert (ended.state is SwitchStatus.DONE) is (trouble is None)
        assert trouble is None or TROUBLE in ended.why
        if hands.calls < kill:
            break
    else:
        pytest.fail("more than 60 calls: the kills did not reach the end")


@pytest.mark.claim(
    "switch",
    "hold-runs-out",
    "a hold that runs out at any moment of a switch, killed or not: nothing is lost, and nobody is left held",
)
@pytest.mark.parametrize("moment", [0, 1, 2])
def test_a_hold_that_runs_out_at_any_moment_loses_nothing(moment: int) -> None:
    """Writers go on by themselves, and where no authorizer runs nothing keeps them out."""
    ended_so: set[tuple[SwitchStatus, bool]] = set()
    for kill in range(400):
        world = World(random.Random(kill * 11 + moment), authorizer=kill % 3 == 0, runs_out=0.2)
        ended = play(record(), Hands(world, (kill % 20, moment)), NOW_MS)
        check(world, ended)
        ended_so.add((ended.state, world.shut))
    both = {(SwitchStatus.DONE, True), (SwitchStatus.ROLLED_BACK, False), (SwitchStatus.ROLLED_BACK, True)}
    assert ended_so == both, "it turns back before the point of no return, and behind it"


def test_who_goes_on_with_it_holds_the_writers_again() -> None:
    steps = STEPS[SwitchKind.PLANNED]
    for step in steps:
        held = steps.index(SwitchStep.HOLD) <= steps.index(step) <= steps.index(SwitchStep.COMMIT)
        assert repeat_hold(_at(record(), step), NOW_MS).step is (SwitchStep.HOLD if held else step)
    back = begin_rollback(_at(record(), SwitchStep.PROVE), "differs", NOW_MS)
    assert repeat_hold(back, NOW_MS) == back


def test_behind_the_point_of_no_return_it_turns_back_only_where_writers_went_on() -> None:
    for step in (SwitchStep.FENCE, SwitchStep.PROMOTE):
        back = apply_outcome(_at(record(), step), MustRollBack("somebody wrote on east"), NOW_MS)
        assert (back.state, back.step, back.why) == (
            SwitchStatus.ROLLING_BACK,
            SwitchStep.HOLD,
            "somebody wrote on east",
        )
        assert apply_outcome(back, MustRollBack("again"), NOW_MS) == back


def test_behind_the_point_of_no_return_nothing_turns_back() -> None:
    for step in STEPS[SwitchKind.PLANNED][STEPS[SwitchKind.PLANNED].index(SwitchStep.COMMIT) + 1 :]:
        going = _at(record(), step)
        assert going.committed
        for outcome in (StepFailed("no"), StepPending("later")):
            later = apply_outcome(going, outcome, NOW_MS + 10_000_000)
            assert (later.state, later.step, later.waits) == (SwitchStatus.RUNNING, step, outcome.sentence)
        assert begin_rollback(going, "an operator says so", NOW_MS) == going


def test_writers_wait_no_longer_than_they_may() -> None:
    """Whether the step waits or is done: over the bound the switch turns back, also where the clock went back."""
    for outcome in (StepPending("not level"), StepDone(record())):
        for later_ms in (10_001, -1):
            going = apply_outcome(_at(record(), SwitchStep.ANNOUNCE), StepDone(record()), NOW_MS)
            assert going.held_ms == NOW_MS, "it counts from before the first writer is held"
            back = apply_outcome(going, outcome, NOW_MS + later_ms)
            assert (back.state, back.step) == (SwitchStatus.ROLLING_BACK, SwitchStep.HOLD)
            assert "longer than 10 s" in back.why or "took longer" in back.why


def test_a_step_before_the_hold_that_takes_long_is_given_up() -> None:
    going = _at(record(), SwitchStep.ANNOUNCE)
    patience_ms = int(SwitchStep.ANNOUNCE.spec.patience_s * 1000)
    assert apply_outcome(going, StepPending("two followers"), NOW_MS + patience_ms).state is SwitchStatus.RUNNING
    back = apply_outcome(going, StepPending("two followers"), NOW_MS + patience_ms + 1)
    assert back.state is SwitchStatus.ROLLING_BACK
    assert "two followers" in back.why


def test_the_way_back_ends_only_at_its_end() -> None:
    going = begin_rollback(_at(record(), SwitchStep.PROVE), "differs", NOW_MS)
    for _ in range(3):
        going = apply_outcome(going, StepFailed("the cluster is away"), NOW_MS + 10**9)
        assert going.state is SwitchStatus.ROLLING_BACK
        assert going.waits == "the cluster is away"
    steps = []
    while not going.ended:
        steps.append(going.step)
        going = apply_outcome(going, StepDone(going), NOW_MS)
    assert steps == [SwitchStep.HOLD, SwitchStep.ANNOUNCE, SwitchStep.BEFORE, SwitchStep.CLAIM]
    assert going.state is SwitchStatus.ROLLED_BACK


def test_a_drill_and_a_forced_switch_have_their_own_steps() -> None:
    assert SwitchStep.PROMOTE not in STEPS[SwitchKind.DRILL]
    assert not any(step.spec.undoes for step in STEPS[SwitchKind.DRILL]), "it changes nothing, so nothing is undone"
    assert SwitchStep.HOLD not in STEPS[SwitchKind.FORCED]
    forced = _at(record(SwitchKind.FORCED), SwitchStep.CATCH_UP)
    assert apply_outcome(forced, StepPending("the target is slow"), NOW_MS + 20_000).state is SwitchStatus.RUNNING


def test_what_a_step_found_is_kept_and_the_rest_is_the_decisions() -> None:
    going = _at(record(), SwitchStep.CATCH_UP)
    found = TopicMove(topic="orders", old_id="a" * 32, new_id="b" * 32, term=1, partitions=1, points=(42,))
    lying = SwitchState.from_json(going.to_json())
    outcome = StepDone(_with(lying, topics=(found,), state=SwitchStatus.DONE, step=SwitchStep.RELEASE))
    later = apply_outcome(going, outcome, NOW_MS)
    assert (later.topics[0].points, later.step, later.state) == ((42,), SwitchStep.PROVE, SwitchStatus.RUNNING)


def test_a_record_survives_its_way_and_garbage_does_not() -> None:
    one = _with(record().tell(NOW_MS, "a word"), rights="{}", held_ms=5)
    assert SwitchState.from_json(one.to_json()) == one
    for text in ("", "{}", "[]", "null", one.to_json()[:-2], one.to_json().replace('"claim"', '"steal"', 1)):
        with pytest.raises(WireError):
            SwitchState.from_json(text)


def _with(one: SwitchState, **values: object) -> SwitchState:
    from dataclasses import replace

    return replace(one, **values)  # type: ignore[arg-type]


def _at(one: SwitchState, step: SwitchStep) -> SwitchState:
    return _with(one, step=step, step_ms=NOW_MS)


def test_the_operators_command_is_ended_though_the_switch_began_anew() -> None:
    """`before` had run for a process without the store; the one that goes on with it turns back at its first step."""
    anew = replace(record(SwitchKind.FORCED), command="before, ended well")
    back = begin_rollback(anew, "another has claimed the topics", NOW_MS)
    assert (back.state, back.step) == (SwitchStatus.ROLLING_BACK, SwitchStep.BEFORE)
    assert begin_rollback(replace(anew, command=""), "the same", NOW_MS).step is SwitchStep.CLAIM
