"""Task groups at the real coordinator: which tasks board, what is launched, and what is left when a task ends, dies
or is frozen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from testkit.log_lines import LogLines
from tests.replication.raft_dock import LINKS, WITHIN_S, Dock, Task
from twinshore.kafka.clock import steady_s
from twinshore.replication import task_pool
from twinshore.replication.task.core.messages import (
    SlotTurn,
    TaskGroupConfig,
    encode_message,
    narrow_limits,
    parse_task_config,
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for a frozen task, in a few seconds."""
    monkeypatch.setattr(task_pool, "FROZEN_AFTER_S", 5.0)
    monkeypatch.setattr(task_pool, "END_TIMEOUT_S", 8.0)
    monkeypatch.setattr(task_pool, "START_TIMEOUT_S", 8.0)


@pytest.fixture
def dock(log_lines: LogLines) -> Iterator[Dock]:
    made = Dock(60.0, log_lines)
    yield made
    made.close()


def test_small_tasks_of_several_links_board_one_task_group(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    assert len(dock.tasks) == 1
    assert dock.said == []
    dock.open("link-late")
    dock.until(lambda: dock.coordinator.holding(("link-late", 0))[0] == 0, "a later link boards too")
    assert len(dock.tasks) == 1


def test_orders_of_a_task_group_take_smaller_pieces(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    ((order, _), *_) = dock.tasks[0].tasks.values()
    less = narrow_limits(order.limits)
    assert less.work_max < order.limits.work_max
    assert less.fetch_bytes_max < order.limits.fetch_bytes_max
    assert narrow_limits(less) == less


def test_the_next_task_takes_each_task_over_and_the_old_one_is_let_go(log_lines: LogLines) -> None:
    dock = Dock(2.0, log_lines)
    try:
        dock.until_all_are_held_by(0)
        dock.until(lambda: dock.tasks[0].leaving, "the first task is told to leave")
        dock.until(lambda: len(dock.tasks) > 1 and not dock.tasks[0].tasks, "the next carries")
        dock.until(lambda: all(dock.held().values()), "each task is held by the next task's task")
        assert dock.said == []
        assert dock.most == 2, "one carries, and its heir stands by"
    finally:
        dock.close()


def test_a_task_that_ends_begins_again_and_the_others_go_on(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    task = dock.tasks[0]
    slot, (order, _) = next(iter(task.tasks.items()))
    task.ends(slot, "a surprise", died=True)
    dock.until(lambda: bool(dock.said), "the log says so")
    assert dock.said == [f"{order.link} task 0 task run 0: its Spark task died (a surprise); the task starts again"]
    dock.until(lambda: order.link in {one.link for one, _ in list(task.tasks.values())}, "its heir is there")
    assert {link: run for link, run in dock.held().items() if link != order.link} == {
        f"link-{number}": 0 for number in range(LINKS) if f"link-{number}" != order.link
    }
    assert len(dock.tasks) == 1


def test_all_tasks_of_a_task_that_dies_board_the_next(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    task = dock.tasks[0]
    task.dead.set()
    task.over.set()
    dock.until(lambda: len(dock.tasks) == 2 and len(dock.tasks[1].tasks) == LINKS, "their heirs are there")
    assert dock.said == [f"task group 0 task run 0: its Spark task died (exit code 137); {LINKS} tasks start again"]


def test_a_frozen_task_gets_no_more_tasks(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.tasks[0].mute = True
    dock.until(lambda: len(dock.tasks) == 2, "another task")
    dock.open("link-late")
    dock.until(lambda: dock.coordinator.holding(("link-late", 0))[0] == 0, "the late link is carried by the other")
    assert "link-late" in {order.link for order, _ in list(dock.tasks[1].tasks.values())}
    assert dock.said == [
        f"task group 0 task run 0: frozen: no message for 15 s; {LINKS} tasks move to another Spark task"
    ]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("dies", [pytest.param(False, marks=pytest.mark.long), True], ids=["freezes", "dies"])
def test_a_task_in_whose_turns_tasks_end_is_put_apart_and_the_others_are_carried(
    dies: bool, log_lines: LogLines
) -> None:
    """The first task that ends says not why, the second has said whose turn it was."""
    dock = Dock(60.0, log_lines, grant_s=4.0, poison="link-2", dies=dies)
    others = {f"link-{number}" for number in range(LINKS) if number != 2}
    try:
        dock.until(lambda: dock.task_pool.apart == {("link-2", 0)}, "it is put apart")
        assert len(dock.tasks) <= 3, "two ends are enough to know it"
        told = [sentence for sentence in dock.said if "gets a Spark task of its own" in sentence]
        assert [sentence.split(":")[0] for sentence in told] == ["link-2 task 0"], dock.said
        dock.until(lambda: dock.manned(others) == 1.0, "the others are carried")
        seen: list[float] = []
        until_s = steady_s() + 6.0
        while steady_s() < until_s:
            seen.append(dock.manned(others))
            time.sleep(0.05)
        assert len(dock.tasks) == 3, dock.said  # no task of theirs has ended
        # Of 15 % before; what is missing from all is what a busy machine takes from grants of seconds.
        assert sum(seen) / len(seen) >= 0.6, (seen, dock.said)
        dock.until(lambda: dock.running <= 2, "tasks that hang are ended from outside: one raft's, and that lane's")
    finally:
        dock.close()


@pytest.mark.long
@pytest.mark.usefixtures("short")
def test_a_task_that_ends_between_turns_puts_nobody_apart(dock: Dock) -> None:
    """As where its machine goes: nobody's turn is to blame."""
    for number in range(3):
        dock.until_all_are_held_by(number)
        dock.tasks[number].dead.set()
        dock.tasks[number].over.set()
    dock.until_all_are_held_by(3)
    assert dock.task_pool.apart == frozenset()


def test_a_task_that_only_spark_has_lost_ends_once_its_heirs_carry(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.tasks[0].lost.set()
    dock.until(lambda: len(dock.tasks) == 2 and len(dock.tasks[1].tasks) == LINKS, "their heirs are there")
    dock.until(lambda: dock.tasks[0].leaving and not dock.tasks[0].tasks, "the lost one is told to leave")
    dock.until_all_are_held_by(1)


def test_a_link_that_begins_anew_at_once_boards_a_task_group_again(dock: Dock) -> None:
    """As where its lease was lost for a moment: no turn of the tides' thread sees that its task was gone."""
    dock.until_all_are_held_by(0)
    for _ in range(3):
        dock.task_pool.close_link("link-2")
        dock.coordinator.close_link("link-2")
        dock.open("link-2")
        token = dock.coordinator.token_of(("link-2", 0))
        dock.until(
            lambda token=token: token in {order.coordinator_token for order, _ in list(dock.tasks[0].tasks.values())},  # type: ignore[misc]
            "its new task is on the task group",
        )
    assert all("hung up" in sentence for sentence in dock.said), "no task of its own was tried"


def test_a_link_that_ends_stops_only_its_own_task(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.task_pool.close_link("link-2")
    dock.coordinator.finish_all("link-2")
    dock.until(lambda: dock.coordinator.idle("link-2"), "its task has said where it stands")
    dock.coordinator.close_link("link-2")
    began_s = steady_s()
    dock.until(lambda: steady_s() > began_s + 0.5, "time passes")
    assert len(dock.tasks[0].tasks) == LINKS - 1
    assert dock.said == []


def test_tasks_that_are_few_again_have_tasks_of_their_own(log_lines: LogLines) -> None:
    began: list[str] = []
    over = threading.Event()

    class Fewer(Dock):
        def _run(self, text: str, name: str) -> str:
            if isinstance(parse_task_config(text), TaskGroupConfig):
                return super()._run(text, name)
            began.append(name)
            over.wait(WITHIN_S)
            return "finished"

    dock = Fewer(60.0, log_lines)
    try:
        dock.until_all_are_held_by(0)
        for number in range(1, LINKS):
            dock.task_pool.close_link(f"link-{number}")
        dock.until(lambda: bool(began), "the last one gets a task")
        assert began == ["link-0 task 0 task run 1"]
    finally:
        over.set()
        dock.close()


@pytest.mark.long
@pytest.mark.usefixtures("short")
def test_a_task_that_hangs_as_it_leaves_is_ended_too(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> None:
    """Else it counts as the older one of its task group for ever, and nobody changes over any more."""
    shipped = Task.turn

    def turn(self: Task) -> None:
        shipped(self)
        self.mute = self.leaving and not self.tasks

    def run(self: Task) -> str:
        while not self.over.wait(0.01):
            if not self.mute:
                self.turn()
        for _, task in self.tasks.values():
            task.close()
        self.line.close()
        return "finished"

    monkeypatch.setattr(Task, "turn", turn)
    monkeypatch.setattr(Task, "run", run)
    dock = Dock(0.5, log_lines)
    try:
        dock.until(lambda: len(dock.tasks) >= 4, "tasks change over still")
    finally:
        dock.close()


@pytest.mark.usefixtures("short")
def test_a_task_is_put_apart_though_spark_tells_late_that_its_tasks_died(log_lines: LogLines) -> None:
    """As where an executor is lost: the next task is carried long before Spark says so."""

    class Late(Dock):
        def _run(self, text: str, name: str) -> str:
            try:
                return super()._run(text, name)
            except RuntimeError:
                self.closed.wait(4.0)
                raise

    dock = Late(60.0, log_lines, grant_s=2.0, poison="link-2", dies=True)
    try:
        dock.until(lambda: dock.task_pool.apart == {("link-2", 0)}, "it is put apart")
        assert len(dock.tasks) <= 3, "two ends are enough to know it"
    finally:
        dock.close()


def test_a_task_that_is_opened_again_counts_its_runs_on(dock: Dock) -> None:
    """Spark ends tasks by their names: a task of before that hangs must not share its name with one that carries."""
    dock.until_all_are_held_by(0)
    dock.task_pool.close_link("link-2")
    dock.coordinator.close_link("link-2")
    dock.open("link-2")
    dock.until(lambda: (dock.held().get("link-2") or 0) > 0, "its next task run has a number of its own")


@pytest.mark.long
@pytest.mark.usefixtures("short")
def test_what_befalls_tasks_while_the_driver_stands_still_puts_nobody_apart(dock: Dock) -> None:
    """As where its machine was stopped: a task gives up in whoever's turn it was then."""
    dock.until_all_are_held_by(0)
    dock.tasks[0].dead.set()
    dock.tasks[0].over.set()
    dock.until_all_are_held_by(1)
    task = dock.tasks[1]
    assert task.order.tells, "a task died, so the next says whose turn it is"
    with dock.task_pool._lock:
        task.mute = True
        time.sleep(0.5)
        task.line.tell(encode_message(SlotTurn(next(iter(task.tasks)))))
        time.sleep(0.5)
        task.dead.set()
        task.over.set()
        time.sleep(task_pool.DRIVER_STALL_S)
    dock.until_all_are_held_by(2)
    assert dock.task_pool.apart == frozenset(), dock.said
