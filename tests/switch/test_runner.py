"""A switch is run to its end: what may pass is waited for, what will not turns it back, and a stop is heard in time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from testkit.errors import raises
from tests.switch.test_decision import NOW_MS, record
from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError
from twinshore.switch.core.steps import (
    STEPS,
    StepDone,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStatus,
    SwitchStep,
)
from twinshore.switch.step_runner import StepRunner


class Notebook:
    """Keeps each record as it was written; a clock that stands until somebody waits."""

    def __init__(self) -> None:
        self.kept: list[SwitchState] = []
        self.said: list[str] = []
        self.stop = threading.Event()

    def save(self, one: SwitchState) -> None:
        self.kept.append(SwitchState.from_json(one.to_json()))

    def run(
        self,
        once: Callable[[SwitchState], StepOutcome],
        begun: SwitchState | None = None,
        before_hold: Callable[[], None] = lambda: None,
        behind_flip: Callable[[], None] = lambda: None,
    ) -> SwitchState:
        runner = StepRunner(once, self.save, lambda: NOW_MS, self.said.append, self.stop, before_hold, behind_flip)
        return runner.run(begun or record())


def test_each_step_is_written_down_before_it_is_done() -> None:
    book, seen = Notebook(), list[SwitchStep]()

    def once(now: SwitchState) -> StepOutcome:
        assert book.kept[-1] == now
        seen.append(now.step)
        return StepDone(now)

    assert book.run(once).state is SwitchStatus.DONE
    assert tuple(seen) == STEPS[SwitchKind.PLANNED]
    assert book.kept[-1].state is SwitchStatus.DONE
    assert book.said[-1] == "the switch is done"


@pytest.mark.parametrize("error", [KafkaError("away", retriable=True), StoreError("locked")])
def test_what_may_pass_is_waited_for(error: Exception) -> None:
    book, left = Notebook(), [error]

    def once(now: SwitchState) -> StepOutcome:
        if now.step is SwitchStep.CATCH_UP and left:
            raise left.pop()
        return StepDone(now)

    assert book.run(once).state is SwitchStatus.DONE
    assert any(str(error) in said for said in book.said)


@pytest.mark.parametrize("error", [KafkaError("no right"), ConfigError("wrong"), RefusedError("another cluster")])
def test_what_will_not_pass_turns_it_back(error: Exception) -> None:
    def once(now: SwitchState) -> StepOutcome:
        if now.step is SwitchStep.CATCH_UP and now.state is SwitchStatus.RUNNING:
            raise error
        return StepDone(now)

    ended = Notebook().run(once)
    assert (ended.state, ended.why) == (SwitchStatus.ROLLED_BACK, str(error))


def test_a_stop_turns_it_back_before_the_point_of_no_return_and_not_behind_it() -> None:
    for step, state in ((SwitchStep.PROVE, SwitchStatus.ROLLED_BACK), (SwitchStep.FENCE, SwitchStatus.DONE)):
        book = Notebook()

        def once(now: SwitchState, step: SwitchStep = step, book: Notebook = book) -> StepOutcome:
            if now.step is step:
                book.stop.set()
            return StepDone(now)

        assert book.run(once).state is state


def test_somebody_else_who_goes_on_with_it_ends_this_one() -> None:
    class Taken(Notebook):
        def save(self, one: SwitchState) -> None:
            if one.step is SwitchStep.HOLD:
                raise RefusedError("his lease is newer")
            super().save(one)

    done: list[SwitchStep] = []

    def once(now: SwitchState) -> StepOutcome:
        done.append(now.step)
        return StepDone(now)

    with pytest.raises(RefusedError):
        Taken().run(once)
    assert SwitchStep.HOLD not in done, "nothing is done that was not written down"


def test_what_waits_is_told_once() -> None:
    left = [0] * 5

    def once(now: SwitchState) -> StepOutcome:
        if now.step is SwitchStep.CATCH_UP and left:
            left.pop()
            return StepPending("the twins are behind")
        return StepDone(now)

    book = Notebook()
    assert book.run(once).state is SwitchStatus.DONE
    assert len([said for said in book.said if "behind" in said]) == 1


def test_a_drill_that_is_stopped_is_written_down_as_ended() -> None:
    """It has nothing to undo, so it ends at once, also where nothing of it was done yet."""
    for done in (0, 2):
        book = Notebook()
        left = [0] * done

        def once(now: SwitchState, book: Notebook = book, left: list[int] = left) -> StepOutcome:
            if left:
                left.pop()
            if not left:
                book.stop.set()
            return StepDone(now)

        if not done:
            book.stop.set()
        ended = book.run(once, record(SwitchKind.DRILL))
        assert ended.state is SwitchStatus.ROLLED_BACK
        assert book.kept[-1].state is SwitchStatus.ROLLED_BACK


class Away(Notebook):
    """The store is away from when writers are held, and stays away until the process is gone."""

    def __init__(self, stops_at_s: float | None = None) -> None:
        super().__init__()
        self.now_ms, self.steps, self._stops_at_s = NOW_MS, list[tuple[SwitchStep, SwitchStatus]](), stops_at_s

    def save(self, one: SwitchState) -> None:
        self.now_ms += 400
        if self._stops_at_s is not None and self.now_ms >= NOW_MS + self._stops_at_s * 1000:
            self.stop.set()
        if SwitchStep.HOLD not in [step for step, _ in self.steps]:
            super().save(one)
        elif self.now_ms < NOW_MS + 6_000:
            raise StoreError("connection refused")
        else:
            raise RefusedError("switch.lease-lost", switch=one.id[:8])

    def once(self, one: SwitchState) -> StepOutcome:
        self.steps.append((one.step, one.state))
        return StepDone(one)

    def play(self, hold_s: float) -> None:
        begun = record(hold_s_max=hold_s)
        StepRunner(self.once, self.save, lambda: self.now_ms, self.said.append, self.stop).run(begun)


@pytest.mark.claim(
    "switch",
    "store-away-in-the-hold",
    "the store goes away while writers are held: they go on after `--hold-s`, or at once after a stop",
)
@pytest.mark.parametrize(("hold_s", "stops_at_s"), [(1.0, None), (60.0, 3.0)])
def test_writers_do_not_wait_for_the_store(hold_s: float, stops_at_s: float | None) -> None:
    book = Away(stops_at_s)
    with raises(RefusedError, "switch.stopped-while-held" if stops_at_s else "switch.lease-lost"):
        book.play(hold_s)
    assert (SwitchStep.HOLD, SwitchStatus.ROLLING_BACK) in book.steps
    assert [one for one in book.steps if one[1] is SwitchStatus.ROLLING_BACK] == [
        (SwitchStep.HOLD, SwitchStatus.ROLLING_BACK)
    ]
    assert all(not one.let_write_ms for one in book.kept), "who goes on by the store's record holds them again"


def test_behind_the_point_of_no_return_the_store_is_waited_for() -> None:
    book, left = Notebook(), [StoreError("locked")] * 2
    keep = book.save

    def save(one: SwitchState) -> None:
        if one.step is SwitchStep.APPLY_SETTINGS and left:
            book.stop.set()
            raise left.pop()
        keep(one)

    book.save = save  # type: ignore[method-assign]
    assert book.run(StepDone).state is SwitchStatus.DONE


def test_a_record_that_the_store_does_not_take_is_waited_for() -> None:
    """Whoever ended now would leave writers held."""
    book, left = Notebook(), [StoreError("locked")] * 2
    keep = book.save

    def save(one: SwitchState) -> None:
        if one.step is SwitchStep.CATCH_UP and left:
            raise left.pop()
        keep(one)

    book.save = save  # type: ignore[method-assign]
    assert book.run(StepDone).state is SwitchStatus.DONE
    assert book.said.count("catch up: away: locked") == 1
    assert [one.step for one in book.kept][:-1] == list(STEPS[SwitchKind.PLANNED])


def test_consumers_gather_right_before_the_switch_is_announced() -> None:
    book, seen = Notebook(), list[str]()

    def once(now: SwitchState) -> StepOutcome:
        seen.append(now.step)
        return StepDone(now)

    def move() -> None:
        assert not book.kept[-1].holds_writers, "whoever goes on with the switch knows that it has flipped"
        seen.append("move")

    ended = book.run(once, before_hold=lambda: seen.append("gather"), behind_flip=move)
    assert ended.state is SwitchStatus.DONE
    assert seen.index("gather") + 1 == seen.index(SwitchStep.ANNOUNCE) and seen.count("gather") == 1
    assert seen.index("move") - 1 == seen.index(SwitchStep.PROMOTE) and seen.count("move") == 1

    def refuse() -> None:
        raise RefusedError("a member does not wait")

    assert book.run(once, before_hold=refuse).state is SwitchStatus.ROLLED_BACK
