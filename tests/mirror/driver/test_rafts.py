"""Rafts at the real desk: which lanes board, what is launched, and what is left when a task ends, dies or is frozen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from twinshore.fleet import Cluster
from twinshore.mirror.driver.desk import Desk, LaneKey
from twinshore.mirror.driver.tides import Tides
from twinshore.mirror.lane.orders import TideOrder
from twinshore.mirror.lane.raft_words import Carry, Leave, RaftOrder, heard_by_raft, narrowed, order_of
from twinshore.mirror.pump.desk_line import DeskLine, DeskLost, DriverLine
from twinshore.service.clock import steady_s

SIDE = Cluster("east", ("127.0.0.1:1",))
GRANT_S = 9.0
LINKS = 5
WITHIN_S = 60.0


class Task:
    """A raft's task without a loop: it hears orders, and each pump that it begins stands by at the desk at once."""

    def __init__(self, order: RaftOrder, *, mute: bool) -> None:
        self.order = order
        self.line = DriverLine(order.desk_host, order.desk_port)
        self.line.say("hello", token=order.desk_token, raft=order.raft, tide=order.tide)
        self.pumps: dict[int, tuple[TideOrder, DeskLine]] = {}
        self.over, self.dead, self.lost = threading.Event(), threading.Event(), threading.Event()
        self.mute = mute
        self.leaving = False

    def run(self) -> str:
        try:
            while not self.over.wait(0.01) and not (self.leaving and not self.pumps):
                if not self.mute:
                    self.turn()
        except DeskLost:
            pass
        finally:
            for _, pump in self.pumps.values():
                pump.close()
            self.line.close()
        if self.dead.is_set():
            raise RuntimeError("exit code 137")
        return "finished"

    def turn(self) -> None:
        self.line.say("afloat")
        for message in self.line.heard():
            match heard_by_raft(message):
                case Carry(berth, order):
                    self.pumps[berth] = order, DeskLine(order)
                    self.pumps[berth][1].say("ready")
                case Leave():
                    self.leaving = True
        for berth, (_, pump) in list(self.pumps.items()):
            try:
                whats = {message["what"] for message in pump.heard()}
            except DeskLost as error:
                self.ends(berth, error.message)
                continue
            if "finish" in whats:
                pump.say("done", carried=[], incidents=[], handovers=[], speed={})
                self.ends(berth, "finished")
            else:
                pump.beat([], [], {})

    def ends(self, berth: int, sentence: str, *, died: bool = False) -> None:
        self.pumps.pop(berth)[1].close()
        self.line.say("ended", berth=berth, sentence=sentence, died=died)


class Dock:
    """Tides of several links, with room for one raft and its heir."""

    def __init__(self, tide_s: float) -> None:
        self.desk = Desk("127.0.0.1", allowed_s=lambda _: GRANT_S, take=lambda _: None)
        self.said: list[str] = []
        self.tasks: list[Task] = []
        self.mute = False
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.tides = Tides(self.desk, tide_s, self._run, self.said.append, tasks=3)
        for number in range(LINKS):
            self.open(f"link-{number}")

    def open(self, link: str, grant_s: float = GRANT_S) -> None:
        self.desk.open_lane((link, 0), grant_s)
        at = self.desk.host, self.desk.port, self.desk.token_of((link, 0))
        order = TideOrder(link, 0, 0, SIDE, SIDE, 1, 0, 60_000, *at)
        self.tides.open_lane((link, 0), lambda tide: replace(order, tide=tide))

    def _run(self, text: str, _name: str) -> str:
        order = order_of(text)
        assert isinstance(order, RaftOrder), "no lane of these has a task of its own"
        task = Task(order, mute=self.mute)
        self.tasks.append(task)
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            ridden = ThreadPoolExecutor(1).submit(task.run)
            while not ridden.done():
                if task.lost.wait(0.01):
                    raise RuntimeError("executor lost")
            return ridden.result()
        finally:
            with self.lock:
                self.running -= 1

    def held(self) -> dict[str, int | None]:
        keys: list[LaneKey] = [(f"link-{number}", 0) for number in range(LINKS)]
        return {key[0]: self.desk.holding(key)[0] for key in keys}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, (what, self.held(), self.said, len(self.tasks))
            time.sleep(0.02)

    def until_all_are_held_by(self, number: int) -> None:
        def all_there() -> bool:
            if len(self.tasks) <= number:
                return False
            aboard = {(order.link, order.tide) for order, _ in list(self.tasks[number].pumps.values())}
            return aboard == set(self.held().items())

        self.until(all_there, f"task {number} carries all")

    def close(self) -> None:
        self.tides.close()
        self.desk.close()
        for task in self.tasks:
            task.over.set()


@pytest.fixture
def dock() -> Iterator[Dock]:
    made = Dock(60.0)
    yield made
    made.close()


def test_small_lanes_of_several_links_board_one_raft(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    assert len(dock.tasks) == 1
    assert dock.said == []
    dock.open("link-late")
    dock.until(lambda: dock.desk.holding(("link-late", 0))[0] == 0, "a later link boards too")
    assert len(dock.tasks) == 1


def test_orders_of_a_raft_take_smaller_pieces(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    ((order, _), *_) = dock.tasks[0].pumps.values()
    less = narrowed(order.limits)
    assert less.work_max < order.limits.work_max
    assert less.fetch_bytes_max < order.limits.fetch_bytes_max
    assert narrowed(less) == less


def test_the_next_task_takes_each_lane_over_and_the_old_one_is_let_go() -> None:
    dock = Dock(0.5)
    try:
        dock.until_all_are_held_by(0)
        dock.until(lambda: dock.tasks[0].leaving, "the first task is told to leave")
        dock.until(lambda: len(dock.tasks) > 1 and not dock.tasks[0].pumps, "the next carries")
        assert dock.said == []
        assert all(tide for tide in dock.held().values())
        assert dock.most == 2, "one carries, and its heir stands by"
    finally:
        dock.close()


def test_a_pump_that_ends_begins_again_and_the_others_go_on(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    task = dock.tasks[0]
    berth, (order, _) = next(iter(task.pumps.items()))
    task.ends(berth, "a surprise", died=True)
    dock.until(lambda: bool(dock.said), "the log says so")
    assert dock.said == [f"{order.link} lane 0 tide 0: its pump died (a surprise); the lane begins again"]
    dock.until(lambda: order.link in {one.link for one, _ in list(task.pumps.values())}, "its heir is there")
    assert {link: tide for link, tide in dock.held().items() if link != order.link} == {
        f"link-{number}": 0 for number in range(LINKS) if f"link-{number}" != order.link
    }
    assert len(dock.tasks) == 1


def test_all_lanes_of_a_task_that_dies_board_the_next(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    task = dock.tasks[0]
    task.dead.set()
    task.over.set()
    dock.until(lambda: len(dock.tasks) == 2 and len(dock.tasks[1].pumps) == LINKS, "their heirs are there")
    assert dock.said == [f"raft 0 tide 0: its task died (exit code 137); {LINKS} lanes begin again"]


def test_a_frozen_task_gets_no_more_lanes(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.tasks[0].mute = True
    dock.until(lambda: len(dock.tasks) == 2, "another task")
    dock.open("link-late")
    dock.until(lambda: dock.desk.holding(("link-late", 0))[0] == 0, "the late link is carried by the other")
    assert "link-late" in {order.link for order, _ in list(dock.tasks[1].pumps.values())}
    assert dock.said == [f"raft 0 tide 0: frozen: not a word for 15 s; {LINKS} lanes move to another"]


def test_a_task_that_only_spark_has_lost_ends_once_its_heirs_carry(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.tasks[0].lost.set()
    dock.until(lambda: len(dock.tasks) == 2 and len(dock.tasks[1].pumps) == LINKS, "their heirs are there")
    dock.until(lambda: dock.tasks[0].leaving and not dock.tasks[0].pumps, "the lost one is told to leave")
    dock.until_all_are_held_by(1)


def test_a_link_that_begins_anew_at_once_boards_a_raft_again(dock: Dock) -> None:
    """As where its lease was lost for a moment: no turn of the tides' thread sees that its lane was gone."""
    dock.until_all_are_held_by(0)
    for _ in range(3):
        dock.tides.close_link("link-2")
        dock.desk.close_link("link-2")
        dock.open("link-2")
        token = dock.desk.token_of(("link-2", 0))
        dock.until(
            lambda token=token: token in {order.desk_token for order, _ in list(dock.tasks[0].pumps.values())},  # type: ignore[misc]
            "its new pump is on the raft",
        )
    assert all("hung up" in sentence for sentence in dock.said), "no task of its own was tried"


def test_a_link_that_ends_stops_only_its_own_pump(dock: Dock) -> None:
    dock.until_all_are_held_by(0)
    dock.tides.close_link("link-2")
    dock.desk.finish_all("link-2")
    dock.until(lambda: dock.desk.idle("link-2"), "its pump has said where it stands")
    dock.desk.close_link("link-2")
    began_s = steady_s()
    dock.until(lambda: steady_s() > began_s + 0.5, "time passes")
    assert len(dock.tasks[0].pumps) == LINKS - 1
    assert dock.said == []


def test_lanes_that_are_few_again_have_tasks_of_their_own() -> None:
    began: list[str] = []
    over = threading.Event()

    class Fewer(Dock):
        def _run(self, text: str, name: str) -> str:
            if isinstance(order_of(text), RaftOrder):
                return super()._run(text, name)
            began.append(name)
            over.wait(WITHIN_S)
            return "finished"

    dock = Fewer(60.0)
    try:
        dock.until_all_are_held_by(0)
        for number in range(1, LINKS):
            dock.tides.close_link(f"link-{number}")
        dock.until(lambda: bool(began), "the last one gets a task")
        assert began == ["link-0 lane 0 tide 1"]
    finally:
        over.set()
        dock.close()
