"""Tides are launched for every lane, whatever ails one of them."""

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
from twinshore.replication import task_pool as tides_module
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.planner import STANDBYS_MAX
from twinshore.replication.task.core.config import TaskConfig
from twinshore.replication.task.core.messages import Finish
from twinshore.replication.task.runner import CoordinatorLost, TaskRunner
from twinshore.replication.task_pool import ATTEMPTS_MAX, TaskGroups, TaskPool

LINK = "east->west"
SIDE = Cluster("east", ("127.0.0.1:1",), Security(), "")


@pytest.fixture
def desk() -> Iterator[CoordinatorServer]:
    made = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=lambda _: None)
    yield made
    made.close()


def order_of(desk: CoordinatorServer, lane: int = 0) -> TaskConfig:
    """The order of the lane's first tide, as the lane is opened now."""
    at = (desk.host, desk.port, desk.token_of((LINK, lane)))
    return TaskConfig(LINK, lane, 0, SIDE, SIDE, 1, 0, 60_000, *at)


def test_a_lane_without_an_order_hinders_no_other_and_begins_again(
    desk: CoordinatorServer, log_lines: LogLines
) -> None:
    began: list[str] = []
    over = threading.Event()

    def run(*given: str) -> str:
        began.append(given[1])
        over.wait(10)
        return "finished"

    def make(lane: int, tide: int) -> TaskConfig:
        if lane == 0 and tide < 2:
            raise TwinshoreError("the link has been let go")
        return replace(order_of(desk, lane), tide=tide)

    tides = TaskPool(desk, 60.0, run)
    try:
        for lane in range(2):
            desk.open_task((LINK, lane), 9.0)
            tides.open_task((LINK, lane), lambda tide, lane=lane: make(lane, tide))  # type: ignore[misc]
        deadline = time.monotonic() + 10
        while len(began) < 2:
            assert time.monotonic() < deadline, (began, log_lines)
            time.sleep(0.01)
    finally:
        tides.close()
        over.set()
    assert sorted(began) == [f"{LINK} lane 0 tide 2", f"{LINK} lane 1 tide 0"]
    assert [mentions(one, f"{LINK} lane 0 tide {tide}", "let go") for tide, one in enumerate(log_lines)] == [True] * 2


def test_a_thread_that_cannot_start_costs_a_lane_one_try(
    desk: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """As where the machine lets nobody have another process or thread for a moment."""
    began: list[str] = []
    start = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name == f"{LINK} lane 0 tide 0":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", failing)

    def run(*given: str) -> str:
        began.append(given[1])
        return "finished"

    desk.open_task((LINK, 0), 9.0)
    tides = TaskPool(desk, 60.0, run)
    order = order_of(desk)
    tides.open_task((LINK, 0), lambda tide: replace(order, tide=tide))
    try:
        deadline = time.monotonic() + 10
        while not began:
            assert time.monotonic() < deadline, log_lines
            time.sleep(0.01)
    finally:
        tides.close()
    assert began[0] == f"{LINK} lane 0 tide 1"
    assert log_lines[0] == f"{LINK} lane 0 tide 0: it cannot begin (can't start new thread); the lane begins again"


def test_the_log_says_once_why_a_lane_has_no_pump(desk: CoordinatorServer, log_lines: LogLines) -> None:
    over = threading.Event()
    key = (LINK, 0)
    desk.open_task(key, 9.0)
    order = order_of(desk)
    tides = TaskPool(desk, 60.0, lambda *_: "finished" if over.wait(10) else "late")
    pump = LinePump(order)
    try:
        pump.ready()
        deadline = time.monotonic() + 10
        while desk.holding(key)[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        pump.done(unread_s=60.0)
        tides.open_task(key, lambda _: order)
        while not log_lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
    finally:
        tides.close()
        over.set()
        pump.close()
    (sentence,) = log_lines
    assert sentence.startswith(f"{LINK} lane 0: no pump begins for ")
    assert "throttled the last one" in sentence


def test_a_tide_that_was_late_for_its_own_term_does_not_carry_in_the_next(desk: CoordinatorServer) -> None:
    """Spark takes its time to start it. What its order says, as that records may be cut off, holds no more by then."""
    key = (LINK, 0)
    desk.open_task(key, 9.0)
    late = order_of(desk)
    desk.close_link(LINK)
    assert desk.token_of(key) == ""
    desk.open_task(key, 9.0)
    pump = LinePump(late)
    with pytest.raises(CoordinatorLost):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            assert pump.words() == [], "nothing is said to it"
            time.sleep(0.01)
    pump.close()
    pump = LinePump(order_of(desk))
    pump.ready()
    deadline = time.monotonic() + 10
    while desk.holding(key)[0] is None:
        assert time.monotonic() < deadline, "the tide of the same number that is meant gets the word"
        time.sleep(0.01)
    pump.close()


def test_tasks_that_hang_keep_no_heir_from_another_lane(
    desk: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """Each hung task is ended from outside, and stands by for nobody until then."""
    for name, short_s in (
        ("START_TIMEOUT_S", 0.5),
        ("ENDED_GRACE_S", 0.5),
        ("CHECK_INTERVAL_S", 0.1),
        ("END_TIMEOUT_S", 2.0),
    ):
        monkeypatch.setattr(tides_module, name, short_s)
    ended: dict[str, threading.Event] = {}
    over = threading.Event()

    def run(text: str, name: str) -> str:
        order = TaskConfig.from_json(text)
        ended[name] = threading.Event()
        pump = LinePump(order)
        pump.ready()
        try:
            while not (over.wait(0.01) or ended[name].is_set()):
                if order.lane < STANDBYS_MAX and pump.grant.until_s:
                    continue  # it hangs
                if Finish() in pump.words():
                    pump.done()
                    return "finished"
                pump.asks()
        finally:
            pump.close()
        raise RuntimeError("job cancelled")

    tides = TaskPool(desk, 1.0, run, end=lambda name: ended[name].set())
    deadline = time.monotonic() + 60
    try:
        for lane in range(STANDBYS_MAX + 1):
            desk.open_task((LINK, lane), 1.0)
            order = order_of(desk, lane)
            tides.open_task((LINK, lane), lambda tide, order=order: replace(order, tide=tide))  # type: ignore[misc]
        key = (LINK, STANDBYS_MAX)
        while (desk.holding(key)[0] or 0) < 4 or len([name for name, one in ended.items() if one.is_set()]) < 4:
            assert time.monotonic() < deadline, (desk.holding(key), sorted(ended), log_lines)
            time.sleep(0.01)
    finally:
        tides.close()
        over.set()
    assert any("does not end" in sentence for sentence in log_lines)


def test_a_lane_without_partitions_gets_one_pump_and_then_its_heir(
    desk: CoordinatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a link that is new or paused, whose filters admit nothing, or that has fewer partitions than lanes."""
    monkeypatch.setattr(tides_module, "START_TIMEOUT_S", 3.0)
    running: list[int] = []
    most = 0

    def run(text: str, _name: str) -> str:
        nonlocal most
        order = TaskConfig.from_json(text)
        running.append(order.tide)
        most = max(most, len(running))
        try:
            return TaskRunner(order).run()
        finally:
            running.remove(order.tide)

    tides = TaskPool(desk, 1.0, run)
    try:
        desk.open_task((LINK, 0), 9.0)
        order = order_of(desk)
        tides.open_task((LINK, 0), lambda tide: replace(order, tide=tide))
        deadline = time.monotonic() + 20
        while (desk.holding((LINK, 0))[0] or 0) < 2:
            assert time.monotonic() < deadline, (desk.holding((LINK, 0)), running)
            time.sleep(0.01)
    finally:
        tides.close()
        desk.close_link(LINK)
    assert most <= 3, "one that has handed over may take a moment to end"


def test_tasks_that_hang_before_they_carry_are_bounded_and_ended(
    desk: CoordinatorServer, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    """As where a file that they read lies on a machine that is gone: no word of the desk reaches them."""
    for name, short_s in (
        ("START_TIMEOUT_S", 0.1),
        ("END_TIMEOUT_S", 0.5),
        ("CHECK_INTERVAL_S", 0.1),
        ("STANDBY_TIMEOUT_S", 3.0),
    ):
        monkeypatch.setattr(tides_module, name, short_s)
    running: dict[str, threading.Event] = {}
    ended: list[str] = []
    most: list[int] = []

    def run(_text: str, name: str) -> str:
        most.append(len(running) + 1)
        running[name] = over = threading.Event()
        over.wait(60)
        del running[name]
        raise RuntimeError("job cancelled")

    def end(name: str) -> None:
        ended.append(name)
        running[name].set()

    tides = TaskPool(desk, 60.0, run, end=end)
    try:
        desk.open_task((LINK, 0), 9.0)
        order = order_of(desk)
        tides.open_task((LINK, 0), lambda tide: replace(order, tide=tide))
        deadline = time.monotonic() + 30
        while len(ended) < 3:
            assert time.monotonic() < deadline, (running, log_lines)
            time.sleep(0.01)
    finally:
        tides.close()
        for over in list(running.values()):
            over.set()
    assert ATTEMPTS_MAX <= max(most) <= ATTEMPTS_MAX + 1, "there is a bound, and it was met; the first may be ending"


def test_a_raft_s_task_that_never_speaks_is_ended(desk: CoordinatorServer, log_lines: LogLines) -> None:
    """As where its worker hangs before it dials, or dials and says nothing: such tasks would come to be ever more."""
    over = threading.Event()
    ended: list[str] = []

    def rides(order: str, name: str) -> str:
        del order, name
        over.wait(30.0)
        return "finished"

    made = TaskGroups(desk, 60.0, rides, lambda *_: None, ended.append, threading.Event())
    try:
        for now_s in (1000.0, 1031.0, 1062.0, 1062.1):
            made.turn([0], 0, now_s)
        assert ended == ["raft 0 tide 0"]
        assert [mentions(one, "raft 0 tide 0") for one in log_lines] == [True]
        assert len(made) == 2, "those that were launched later"
    finally:
        over.set()


def test_lanes_that_read_together_are_on_one_raft_and_others_have_tasks_of_their_own(desk: CoordinatorServer) -> None:
    over = threading.Event()
    began: list[str] = []

    def rides(order: str, name: str) -> str:
        del order
        began.append(name)
        over.wait(30.0)
        return "finished"

    tides = TaskPool(desk, 60.0, rides, tasks=6)
    try:
        for link, together in (("a->b", "prices"), ("a->c", "prices"), ("a->d", "news"), ("a->e", "")):
            for lane in range(2):
                desk.open_task((link, lane), 9.0)
                order = replace(order_of(desk), link=link, lane=lane)
                tides.open_task((link, lane), lambda tide, order=order: replace(order, tide=tide), together=together)  # type: ignore[misc]
        deadline = time.monotonic() + 10
        while len(began) < 4:
            assert time.monotonic() < deadline, began
            time.sleep(0.01)
    finally:
        tides.close()
        over.set()
    assert {name for name in began if "raft" not in name} == {"a->e lane 0 tide 0", "a->e lane 1 tide 0"}
    rafts = {key: jobs.raft for key, jobs in tides._lanes.items()}
    assert rafts["a->b", 0] == rafts["a->c", 0] != rafts["a->b", 1] == rafts["a->c", 1]
    assert {rafts["a->d", 0], rafts["a->d", 1]} <= {rafts["a->b", 0], rafts["a->b", 1]}, "there are not more tasks"
    assert (rafts["a->e", 0], rafts["a->e", 1]) == (None, None)
