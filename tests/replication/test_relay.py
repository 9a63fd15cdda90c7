"""A lane's relay: one holder at most, whatever order its messages, clocks and deaths come in."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from twinshore.replication.core.coordinator import LEASE_SLACK_S, OwnershipMessage, TaskOwnership
from twinshore.replication.task.core.messages import Handoff

GRANT_S = 4.0
RUNS = 300
STEPS = 150


@dataclass(slots=True)
class Pump:
    """What a task believes, on a clock of its own that runs at most a little slow."""

    run: int
    pace: float
    may_write_until_s: float = 0.0
    asked_s: float | None = None
    going: bool = False
    gone: bool = False


class Stage:
    """A coordinator, its tasks, and messages that take their time. `now_s` is true time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.relay = TaskOwnership(GRANT_S)
        self.tasks: list[Pump] = []
        self.now_s = 100.0
        self.to_tasks: list[OwnershipMessage] = []

    def allowed_s(self) -> float:
        """Now and then the link itself is about to be lost."""
        return self.chance.choice((100.0, 100.0, 1.0, 0.0))

    def hear(self, says: list[OwnershipMessage]) -> None:
        self.to_tasks += says

    def beat(self, task: Pump) -> None:
        if task.going and not task.gone and task.asked_s is None:
            task.asked_s = self.now_s
            self.now_s += self.chance.uniform(0.0, 0.3)
            if self.chance.random() < 0.9:
                self.hear(self.relay.beat(task.run, self.now_s, self.allowed_s()))

    def deliver(self) -> None:
        if not self.to_tasks:
            return
        say = self.to_tasks.pop(0)
        task = self.tasks[say.run]
        if task.gone:
            return
        match say.what:
            case "go":
                task.going = True
                self.beat(task)
            case "grant" if task.asked_s is not None:
                # Counted from before it was asked for, on a clock that may be a little slow.
                task.may_write_until_s = max(task.may_write_until_s, task.asked_s + say.grant_s * task.pace)
                task.asked_s = None
            case "finish":
                self.end(task, orderly=True)
            case "stop":
                self.end(task, orderly=False)
            case _:
                pass

    def end(self, task: Pump, *, orderly: bool) -> None:
        """Orderly: it writes no more and says so. Else it is lost, and may write on unseen while its grant lasts."""
        if task.gone:
            return
        if orderly:
            task.gone, task.may_write_until_s = True, 0.0
            self.hear(self.relay.done(task.run, (Handoff("t", 0, task.run, 1, 0),), self.now_s, self.allowed_s()))
        else:
            task.gone = True
        self.hear(self.relay.lost(task.run, self.now_s, self.allowed_s()))

    def arrive(self) -> None:
        if sum(not task.gone for task in self.tasks) < 3:
            self.tasks.append(Pump(len(self.tasks), pace=self.chance.uniform(0.97, 1.05)))
            self.hear(self.relay.arrived(self.tasks[-1].run, self.now_s, self.allowed_s()))

    def step(self) -> None:
        self.now_s += self.chance.expovariate(4.0)
        match self.chance.randrange(8):
            case 0:
                self.arrive()
            case 1 | 2 if self.tasks:
                self.beat(self.chance.choice(self.tasks))
            case 3 | 4:
                self.deliver()
            case 5:
                self.hear(self.relay.tick(self.now_s, self.allowed_s()))
            case 6 if self.tasks and self.chance.random() < 0.3:
                self.end(self.chance.choice(self.tasks), orderly=False)
            case _:
                pass

    def writers(self) -> list[int]:
        return [task.run for task in self.tasks if self.now_s < task.may_write_until_s]


def test_two_tasks_never_write_at_one_moment() -> None:
    asked = os.environ.get("TWINSHORE_SEED", "").split()
    handed = 0
    for seed in [int(asked[-1])] if asked else range(RUNS):
        stage = Stage(seed)
        for _ in range(STEPS):
            stage.step()
            assert len(stage.writers()) <= 1, f"TWINSHORE_SEED={seed}: {stage.writers()} write at {stage.now_s}"
        handed += len(stage.tasks)
    assert handed > len(range(RUNS)) or asked, "hardly anything happened"


def going(relay: TaskOwnership, run: int, now_s: float = 0.0) -> None:
    (say,) = relay.arrived(run, now_s, 100.0)
    assert (say.run, say.what) == (run, "go")


def test_an_heir_starts_where_the_holder_stood_and_at_once() -> None:
    relay = TaskOwnership(GRANT_S)
    going(relay, 0)
    assert [(say.run, say.what) for say in relay.arrived(1, 1.0, 100.0)] == [(0, "finish")]
    stood = (Handoff("t", 0, 17, 3, 5),)
    (say,) = relay.done(0, stood, 1.5, 100.0)
    assert (say.run, say.what, say.handoffs) == (1, "go", stood)
    assert relay.holder == 1
    assert relay.heir is None


def test_a_holder_lost_without_a_word_is_waited_out_and_its_heir_looks_for_itself() -> None:
    relay = TaskOwnership(GRANT_S)
    going(relay, 0)
    assert relay.beat(0, 2.0, 100.0) == [OwnershipMessage(0, "grant", GRANT_S)]
    relay.arrived(1, 3.0, 100.0)
    assert relay.lost(0, 3.0, 100.0) == []
    assert relay.due_s() == 2.0 + GRANT_S + LEASE_SLACK_S
    assert relay.tick(2.0 + GRANT_S, 100.0) == []
    (say,) = relay.tick(2.0 + GRANT_S + LEASE_SLACK_S, 100.0)
    assert (say.run, say.what, say.handoffs) == (1, "go", ())


def test_a_frozen_holder_whose_connection_stays_open_is_waited_out_as_well() -> None:
    relay = TaskOwnership(GRANT_S)
    going(relay, 0)
    assert relay.beat(0, 2.0, 100.0) == [OwnershipMessage(0, "grant", GRANT_S)]
    assert [(say.run, say.what) for say in relay.arrived(1, 3.0, 100.0)] == [(0, "finish")]
    assert relay.tick(2.0 + GRANT_S, 100.0) == []
    (say,) = relay.tick(2.0 + GRANT_S + LEASE_SLACK_S, 100.0)
    assert (say.run, say.what, say.handoffs) == (1, "go", ())
    assert relay.beat(0, 9.0, 100.0) == [OwnershipMessage(0, "stop")]


def test_nobody_is_granted_longer_than_the_link_is_ours() -> None:
    relay = TaskOwnership(GRANT_S)
    assert relay.arrived(0, 0.0, 0.0) == []
    (say,) = relay.tick(1.0, 1.5)
    assert say.grant_s == 1.5
    assert relay.beat(0, 1.2, 0.7) == [OwnershipMessage(0, "grant", 0.7)]
    assert relay.beat(0, 1.9, 0.0) == [OwnershipMessage(0, "stop")]


def test_who_does_not_hold_is_told_to_stop_and_is_not_believed() -> None:
    relay = TaskOwnership(GRANT_S)
    going(relay, 0)
    assert relay.beat(7, 1.0, 100.0) == [OwnershipMessage(7, "stop")]
    assert relay.done(7, (Handoff("t", 0, 999, 1, 0),), 1.0, 100.0) == []
    assert relay.holder == 0


def test_an_heir_that_is_lost_leaves_the_holder_alone() -> None:
    relay = TaskOwnership(GRANT_S)
    going(relay, 0)
    relay.arrived(1, 1.0, 100.0)
    assert relay.lost(1, 1.1, 100.0) == []
    assert relay.beat(0, 1.2, 100.0) == [OwnershipMessage(0, "grant", GRANT_S)]


def test_an_heir_waits_until_a_broker_that_did_not_listen_to_the_lost_task_has_taken_what_lies_with_it() -> None:
    relay = TaskOwnership(GRANT_S)
    relay.arrived(0, 0.0, 100.0)
    relay.beat(0, 10.0, 100.0, 30.0)
    relay.arrived(1, 11.0, 100.0)
    assert relay.lost(0, 12.0, 100.0) == []
    assert relay.tick(39.9, 100.0) == [], "its grant is over since 14 s, its request is not"
    assert [say.what for say in relay.tick(40.1, 100.0)] == ["go"]


def test_a_beat_that_names_no_unread_request_takes_back_no_earlier_one() -> None:
    """The connection to that broker may have been dropped meanwhile; what it was sent lies there all the same."""
    relay = TaskOwnership(GRANT_S)
    relay.arrived(0, 0.0, 100.0)
    relay.beat(0, 10.0, 100.0, 30.0)
    relay.beat(0, 11.0, 100.0)
    relay.arrived(1, 12.0, 100.0)
    assert relay.lost(0, 12.0, 100.0) == []
    assert relay.waits_s(12.0) == 0.0, "its grant still runs"
    assert relay.waits_s(16.0) == 24.0
    assert not relay.free(39.9)
    assert relay.tick(39.9, 100.0) == []
    assert [say.what for say in relay.tick(40.0, 100.0)] == ["go"]
    assert relay.waits_s(40.0) == 0.0


def test_a_task_that_stops_in_good_order_says_for_how_long_its_heir_must_wait() -> None:
    for unread_s, goes_s in ((0.0, 12.0), (268.0, 280.0)):
        relay = TaskOwnership(GRANT_S)
        relay.arrived(0, 0.0, 100.0)
        relay.beat(0, 10.0, 100.0, 270.0)
        relay.arrived(1, 11.0, 100.0)
        says = relay.done(0, (), 12.0, 100.0, unread_s)
        assert relay.waits_s(12.0) == unread_s
        assert relay.due_s() in (None, goes_s)
        says += relay.tick(goes_s - 0.1, 100.0) + relay.tick(goes_s, 100.0) if unread_s else []
        assert [(say.run, say.what) for say in says] == [(1, "go")]
