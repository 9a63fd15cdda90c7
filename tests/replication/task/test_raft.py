"""The loop of a task group at the real coordinator: what ends one task ends no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pytest

from tests.replication.task.test_lane_bounds import SOURCE_ID, TARGET_ID
from tests.replication.task.test_seat import NAMED, table
from twinshore.config.model import Cluster
from twinshore.replication.coordinator_server import CoordinatorServer, TaskGroupAttemptId
from twinshore.replication.task.core.messages import (
    Assign,
    PartitionConfig,
    SlotEnded,
    SlotTurn,
    StartTask,
    StopTaskGroup,
    TaskConfig,
    TaskGroupConfig,
)
from twinshore.replication.task.core.partition import PartitionLeaders
from twinshore.replication.task.runner import TaskGroupRunner, TaskRunner

SIDE = Cluster("east", ("127.0.0.1:1",))
PLACE = TaskGroupAttemptId(0, 0)
WITHIN_S = 20.0


class Water:
    """A coordinator, and a task group with a task for each of two links."""

    def __init__(self, *, tells: bool = False) -> None:
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=lambda _: None)
        self.ended: list[SlotEnded] = []
        self.turns: list[int] = []
        self.said = ""
        order = TaskGroupConfig(
            0, 0, self.coordinator.host, self.coordinator.port, self.coordinator.task_groups.token, tells
        )
        self.thread = threading.Thread(target=lambda: self._run(order), daemon=True)
        self.thread.start()
        self.until(lambda: PLACE in self.coordinator.task_groups.there(), "the task group is there")
        for slot in (1, 2):
            self.board(slot)

    def _run(self, order: TaskGroupConfig) -> None:
        try:
            self.said = TaskGroupRunner(order).run()
        except Exception as error:
            self.said = repr(error)

    def board(self, slot: int) -> None:
        key = (f"link-{slot}", 0)
        self.coordinator.open_task(key, 9.0)
        at = self.coordinator.host, self.coordinator.port, self.coordinator.token_of(key)
        self.coordinator.task_groups.say(
            PLACE, StartTask(slot, TaskConfig(key[0], 0, 0, SIDE, SIDE, 1, 0, 60_000, *at))
        )
        self.until(lambda: self.stands_by(slot), f"task {slot} is at the coordinator")

    def stands_by(self, slot: int) -> bool:
        return bool(self.coordinator._decide(lambda core: core._assignments[(f"link-{slot}", 0)].sessions))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, (what, self.said, self.ended)
            words = [word for _, word in self.coordinator.task_groups.words()]
            self.ended += [word for word in words if isinstance(word, SlotEnded)]
            self.turns += [word.slot for word in words if isinstance(word, SlotTurn)]
            time.sleep(0.02)

    def close(self) -> None:
        self.coordinator.close()
        self.thread.join(WITHIN_S)


@pytest.fixture
def water() -> Iterator[Water]:
    made = Water()
    yield made
    made.close()


def test_a_task_that_is_hung_up_on_ends_alone(water: Water) -> None:
    water.coordinator.close_link("link-1")
    water.until(lambda: bool(water.ended), "its end is told")
    assert water.ended == [SlotEnded(1, "the driver hung up")]
    water.board(3)
    assert water.stands_by(2), "the other is there"
    water.coordinator.task_groups.say(PLACE, StopTaskGroup())
    for number in (2, 3):
        water.coordinator.close_link(f"link-{number}")
    water.until(lambda: not water.thread.is_alive(), "the task group ends with its last task")
    assert water.said == "finished"


def test_a_process_that_may_have_no_thread_more_still_lets_one_task_end(
    water: Water, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name == "let go":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", failing)
    water.coordinator.close_link("link-1")
    water.until(lambda: bool(water.ended or water.said), "its end is told")
    assert (water.said, water.ended) == ("", [SlotEnded(1, "the driver hung up")])
    assert water.stands_by(2), "the other is there"


def test_an_order_that_cannot_be_read_ends_its_own_task_alone(water: Water) -> None:
    """As where the driver's package is another one than the worker's."""
    task_group = water.coordinator.task_groups._task_groups[PLACE]
    task_group.sendall(b'{"what":"starttask","slot":7,"config":{"link":"link-7","of_a_later_version":1}}\n')
    water.until(lambda: bool(water.ended or water.said), "its end is told")
    (ended,) = water.ended
    assert (ended.slot, ended.died, water.said) == (7, True, "")
    assert ended.sentence.startswith("its order is unreadable: ")
    water.board(8)
    assert water.stands_by(1)
    assert water.stands_by(2)


def test_a_task_group_says_whose_turn_it_is_where_it_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[tuple[int, Iterable[int]]] = []
    turn = TaskRunner.turn

    def seen(self: TaskRunner, wait_s: float) -> None:
        turn(self, wait_s)
        time.sleep(0.05)
        during.append((int(self.config.link.removeprefix("link-")), asked.turns[-1:]))

    asked = Water(tells=True)
    monkeypatch.setattr(TaskRunner, "turn", seen)
    try:
        asked.until(lambda: {slot for slot, told in during if [slot] == told} == {1, 2}, "both had told turns")
        told = asked.turns
        assert {*told} == {0, 1, 2}
        assert all(before != after for before, after in pairwise(told)), "each is said once"
    finally:
        asked.close()


def test_a_task_group_that_was_not_asked_says_no_turns(water: Water) -> None:
    began_s = time.monotonic()
    water.until(lambda: time.monotonic() - began_s > 0.5, "some turns are over")
    assert water.turns == []


def test_a_task_that_stands_by_has_no_turn_for_what_others_read() -> None:
    """Nothing takes it up before the word to go: its task group would turn all the time."""
    coordinator, key = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=lambda _: None), ("link-1", 0)
    coordinator.open_task(key, 9.0)
    at = coordinator.host, coordinator.port, coordinator.token_of(key)
    reads = table(0)
    task = TaskRunner(TaskConfig(key[0], 0, 0, SIDE, SIDE, 1, 0, 60_000, *at, broadcast="prices"), reads.reading)
    try:
        list(task.core.hear(Assign((PartitionConfig("orders", 0, SOURCE_ID, TARGET_ID),)), 0.0))
        task.core.routed({NAMED: PartitionLeaders(1, 0, 2)}, "", "", 0.0)
        task.turn(0.0)
        assert reads.asking() == [0]
        reads.brings(0, 0, 30)
        assert task.partitions.called
        assert task.due_s(1.0) == task.core.timers_at_s
    finally:
        task.close()
        coordinator.close()
