"""Task runs are launched for every task, whatever ails one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.replication.desk_office import LinePump
from twinshore.config.errors import TwinshoreError
from twinshore.config.model import Cluster, Security
from twinshore.replication import task_pool as runs_module
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.planner import STANDBYS_MAX
from twinshore.replication.task.core.messages import Finish, TaskConfig, json_adapter
from twinshore.replication.task.runner import CoordinatorLost, TaskRunner
from twinshore.replication.task_pool import ATTEMPTS_MAX, TaskGroups, TaskPool

LINK = "east->west"
SIDE = Cluster("east", ("127.0.0.1:1",), Security(), "")


@pytest.fixture
def coordinator() -> Iterator[CoordinatorServer]:
    made = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=lambda _: None)
    yield made
    made.close()


def order_of(coordinator: CoordinatorServer, task: int = 0) -> TaskConfig:
    """The order of the lane's first task run, as the task is opened now."""
    at = (coordinator.host, coordinator.port, coordinator.token_of((LINK, task)))
    return TaskConfig(LINK, task, 0, SIDE, SIDE, 1, 0, 60_000, *at)


def test_a_task_without_an_order_hinders_no_other_and_begins_again(
    coordinator: CoordinatorServer, log_lines: LogLines
) -> None:
    began: list[str] = []
    over = threading.Event()

    def work(*given: str) -> str:
        began.append(given[1])
        over.wait(10)
        return "finished"

    def make(task: int, run: int) -> TaskConfig:
        if task == 0 and run < 2:
            raise TwinshoreError("the link has been let go")
        return replace(order_of(coordinator, task), run=run)

    task_pool = TaskPool(coordinator, 60.0, work)
    try:
        for task in range(2):
            coordinator.open_task((LINK, task), 9.0)
            task_pool.open_task((LINK, task), lambda run, task=task: make(task, run))  # type: ignore[misc]
        deadline = time.monotonic() + 10
        while len(began) < 2:
            assert time.monotonic() < deadline, (began, log_lines)
            time.sleep(0.01)
    finally:
        task_pool.close()
        over.set()
    assert sorted(began) == [f"{LINK} task 0 task run 2", f"{LINK} task 1 task run 0"]
    failures = [one for one in log_lines if mentions(one, "let go")]
    assert [mentions(one, f"{LINK} task 0 task run {run}") for run, one in enumerate(failures)] == [True] * 2


def test_a_thread_that_cannot_start_costs_a_task_one_try(
    coordinator: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """As where the machine lets nobody have another process or thread for a moment."""
    began: list[str] = []
    start = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name == f"{LINK} task 0 task run 0":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", failing)

    def work(*given: str) -> str:
        began.append(given[1])
        return "finished"

    coordinator.open_task((LINK, 0), 9.0)
    task_pool = TaskPool(coordinator, 60.0, work)
    order = order_of(coordinator)
    task_pool.open_task((LINK, 0), lambda run: replace(order, run=run))
    try:
        deadline = time.monotonic() + 10
        while not began:
            assert time.monotonic() < deadline, log_lines
            time.sleep(0.01)
    finally:
        task_pool.close()
    assert began[0] == f"{LINK} task 0 task run 1"
    assert log_lines[0] == f"{LINK} task 0 task run 0: it cannot start (can't start new thread); the task starts again"


def test_the_log_says_once_why_a_task_has_no_task(coordinator: CoordinatorServer, log_lines: LogLines) -> None:
    over = threading.Event()
    key = (LINK, 0)
    coordinator.open_task(key, 9.0)
    order = order_of(coordinator)
    task_pool = TaskPool(coordinator, 60.0, lambda *_: "finished" if over.wait(10) else "late")
    task = LinePump(order)
    try:
        task.ready()
        deadline = time.monotonic() + 10
        while coordinator.holding(key)[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        task.done(unread_s=60.0)
        task_pool.open_task(key, lambda _: order)
        while not log_lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
    finally:
        task_pool.close()
        over.set()
        task.close()
    (sentence,) = log_lines
    assert sentence.startswith(f"{LINK} task 0: no attempt starts for ")
    assert "throttled the last one" in sentence


def test_a_run_that_was_late_for_its_own_term_does_not_carry_in_the_next(coordinator: CoordinatorServer) -> None:
    """Spark takes its time to start it. What its order says, as that records may be cut off, holds no more by then."""
    key = (LINK, 0)
    coordinator.open_task(key, 9.0)
    late = order_of(coordinator)
    coordinator.close_link(LINK)
    assert coordinator.token_of(key) == ""
    coordinator.open_task(key, 9.0)
    task = LinePump(late)
    with pytest.raises(CoordinatorLost):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            assert task.words() == [], "nothing is said to it"
            time.sleep(0.01)
    task.close()
    task = LinePump(order_of(coordinator))
    task.ready()
    deadline = time.monotonic() + 10
    while coordinator.holding(key)[0] is None:
        assert time.monotonic() < deadline, "the task run of the same number that is meant gets the word"
        time.sleep(0.01)
    task.close()


def test_tasks_that_hang_keep_no_heir_from_another_task(
    coordinator: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Each hung task is ended from outside, and stands by for nobody until then."""
    for name, short_s in (
        ("START_TIMEOUT_S", 0.5),
        ("ENDED_GRACE_S", 0.5),
        ("CHECK_INTERVAL_S", 0.1),
        ("END_TIMEOUT_S", 2.0),
    ):
        monkeypatch.setattr(runs_module, name, short_s)
    ended: dict[str, threading.Event] = {}
    over = threading.Event()

    def work(text: str, name: str) -> str:
        order = json_adapter(TaskConfig).validate_json(text)
        ended[name] = threading.Event()
        task = LinePump(order)
        task.ready()
        try:
            while not (over.wait(0.01) or ended[name].is_set()):
                if order.task < STANDBYS_MAX and task.grant.until_s:
                    continue  # it hangs
                if Finish() in task.words():
                    task.done()
                    return "finished"
                task.asks()
        finally:
            task.close()
        raise RuntimeError("job cancelled")

    task_pool = TaskPool(coordinator, 1.0, work, end=lambda name: ended[name].set())
    deadline = time.monotonic() + 60
    try:
        for task in range(STANDBYS_MAX + 1):
            coordinator.open_task((LINK, task), 1.0)
            order = order_of(coordinator, task)
            task_pool.open_task((LINK, task), lambda run, order=order: replace(order, run=run))  # type: ignore[misc]
        key = (LINK, STANDBYS_MAX)
        while (coordinator.holding(key)[0] or 0) < 4 or len([name for name, one in ended.items() if one.is_set()]) < 4:
            assert time.monotonic() < deadline, (coordinator.holding(key), sorted(ended), log_lines)
            time.sleep(0.01)
    finally:
        task_pool.close()
        over.set()
    assert any("does not end" in sentence for sentence in log_lines)


def test_a_task_without_partitions_gets_one_task_and_then_its_heir(
    coordinator: CoordinatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a link that is new or paused, whose filters admit nothing, or that has fewer partitions than tasks."""
    monkeypatch.setattr(runs_module, "START_TIMEOUT_S", 3.0)
    running: list[int] = []
    most = 0

    def work(text: str, _name: str) -> str:
        nonlocal most
        order = json_adapter(TaskConfig).validate_json(text)
        running.append(order.run)
        most = max(most, len(running))
        try:
            return TaskRunner(order).run()
        finally:
            running.remove(order.run)

    task_pool = TaskPool(coordinator, 1.0, work)
    try:
        coordinator.open_task((LINK, 0), 9.0)
        order = order_of(coordinator)
        task_pool.open_task((LINK, 0), lambda run: replace(order, run=run))
        deadline = time.monotonic() + 20
        while (coordinator.holding((LINK, 0))[0] or 0) < 2:
            assert time.monotonic() < deadline, (coordinator.holding((LINK, 0)), running)
            time.sleep(0.01)
    finally:
        task_pool.close()
        coordinator.close_link(LINK)
    assert most <= 3, "one that has handed over may take a moment to end"


def test_tasks_that_hang_before_they_carry_are_bounded_and_ended(
    coordinator: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """As where a file that they read lies on a machine that is gone: no word of the coordinator reaches them."""
    for name, short_s in (
        ("START_TIMEOUT_S", 0.1),
        ("END_TIMEOUT_S", 0.5),
        ("CHECK_INTERVAL_S", 0.1),
        ("STANDBY_TIMEOUT_S", 3.0),
    ):
        monkeypatch.setattr(runs_module, name, short_s)
    running: dict[str, threading.Event] = {}
    ended: list[str] = []
    most: list[int] = []

    def work(_text: str, name: str) -> str:
        most.append(len(running) + 1)
        running[name] = over = threading.Event()
        over.wait(60)
        del running[name]
        raise RuntimeError("job cancelled")

    def end(name: str) -> None:
        ended.append(name)
        running[name].set()

    task_pool = TaskPool(coordinator, 60.0, work, end=end)
    try:
        coordinator.open_task((LINK, 0), 9.0)
        order = order_of(coordinator)
        task_pool.open_task((LINK, 0), lambda run: replace(order, run=run))
        deadline = time.monotonic() + 30
        while len(ended) < 3:
            assert time.monotonic() < deadline, (running, log_lines)
            time.sleep(0.01)
    finally:
        task_pool.close()
        for over in list(running.values()):
            over.set()
    assert ATTEMPTS_MAX <= max(most) <= ATTEMPTS_MAX + 1, "there is a bound, and it was met; the first may be ending"


def test_a_task_group_s_task_that_never_speaks_is_ended(coordinator: CoordinatorServer, log_lines: LogLines) -> None:
    """As where its worker hangs before it dials, or dials and says nothing: such tasks would come to be ever more."""
    over = threading.Event()
    ended: list[str] = []

    def rides(order: str, name: str) -> str:
        del order, name
        over.wait(30.0)
        return "finished"

    made = TaskGroups(coordinator, 60.0, rides, lambda *_: None, ended.append, threading.Event())
    try:
        for now_s in (1000.0, 1031.0, 1062.0, 1062.1):
            made.turn([0], 0, now_s)
        assert ended == ["task group 0 task run 0"]
        assert [mentions(one, "task group 0 task run 0") for one in log_lines] == [True]
        assert len(made) == 2, "those that were launched later"
    finally:
        over.set()


def test_tasks_that_read_together_are_on_one_task_group_and_others_have_tasks_of_their_own(
    coordinator: CoordinatorServer,
) -> None:
    over = threading.Event()
    began: list[str] = []

    def rides(order: str, name: str) -> str:
        del order
        began.append(name)
        over.wait(30.0)
        return "finished"

    task_pool = TaskPool(coordinator, 60.0, rides, tasks=6)
    try:
        for link, together in (("a->b", "prices"), ("a->c", "prices"), ("a->d", "news"), ("a->e", "")):
            for task in range(2):
                coordinator.open_task((link, task), 9.0)
                order = replace(order_of(coordinator), link=link, task=task)
                task_pool.open_task((link, task), lambda run, order=order: replace(order, run=run), together=together)  # type: ignore[misc]
        deadline = time.monotonic() + 10
        while len(began) < 4:
            assert time.monotonic() < deadline, began
            time.sleep(0.01)
    finally:
        task_pool.close()
        over.set()
    assert {name for name in began if "task group" not in name} == {"a->e task 0 task run 0", "a->e task 1 task run 0"}
    task_groups = {key: jobs.task_group for key, jobs in task_pool._attempts.items()}
    assert task_groups["a->b", 0] == task_groups["a->c", 0] != task_groups["a->b", 1] == task_groups["a->c", 1]
    assert {task_groups["a->d", 0], task_groups["a->d", 1]} <= {task_groups["a->b", 0], task_groups["a->b", 1]}, (
        "there are not more tasks"
    )
    assert (task_groups["a->e", 0], task_groups["a->e", 1]) == (None, None)
