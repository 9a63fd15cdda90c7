"""From a link's control to its tasks, over a real coordinator: told once, told to heirs, told anew when needs
change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from twinshore.config.model import Cluster, LinkControl
from twinshore.replication import operator_control
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.operator_control import RateLimitPublisher
from twinshore.replication.task.core.messages import (
    Assign,
    PartitionConfig,
    StartWriting,
    TaskConfig,
    TaskRateLimits,
    TaskReady,
    ThrottleUsage,
)
from twinshore.replication.task.runner import CoordinatorClient

LINK = "east->west"
TASKS = 2
W = TypeVar("W")


class Shop:
    """A coordinator with a topic on two tasks."""

    def __init__(self) -> None:
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 100.0, take=lambda _: None)
        self.tasks: list[CoordinatorClient] = []
        for task in range(TASKS):
            self.coordinator.open_task((LINK, task), 5.0)
            self.coordinator.assign((LINK, task), [PartitionConfig("orders", task, "a", "b")])

    def task(self, task: int, run: int = 0) -> CoordinatorClient:
        cluster = Cluster("east", ("127.0.0.1:1",))
        token = self.coordinator.token_of((LINK, task))
        at: dict[str, Any] = {
            "coordinator_host": self.coordinator.host,
            "coordinator_port": self.coordinator.port,
            "coordinator_token": token,
        }
        order = TaskConfig(LINK, task, run, cluster, cluster, producer_id=1, producer_epoch=0, state_expiry_ms=1, **at)
        self.tasks.append(CoordinatorClient(order))
        return self.tasks[-1]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(operator_control, "RATE_LIMITS_INTERVAL_S", 0.0)
    made = Shop()
    yield made
    made.coordinator.close()
    for task in made.tasks:
        task.close()


def heard(line: CoordinatorClient, kind: type[W], within_s: float = 3.0) -> list[W]:
    """Words of this kind, once there is one."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found: list[W] = [word for word in line.words() if isinstance(word, kind)]
        if found:
            return found
        time.sleep(0.01)
    return []


def test_a_task_and_its_heir_are_told_their_share(shop: Shop) -> None:
    task = shop.task(0)
    assert heard(task, Assign)
    teller = RateLimitPublisher(LINK, shop.coordinator)
    teller.turn(LinkControl(throttle_bytes_s=1000, topic_throttles=(("orders", 100),)), TASKS)
    (bounds,) = heard(task, TaskRateLimits)
    assert (bounds.link, bounds.topics) == (500.0, {"orders": 50.0})
    assert heard(shop.task(0, run=1), TaskRateLimits) == [bounds]
    teller.turn(LinkControl(throttle_bytes_s=1000, topic_throttles=(("orders", 100),)), TASKS)
    assert not heard(task, TaskRateLimits, within_s=0.3), "nothing has changed"


def test_who_is_held_back_gets_what_others_leave(shop: Shop) -> None:
    busy, idle = shop.task(0), shop.task(1)
    for task in (busy, idle):
        task.say(TaskReady())
        assert heard(task, StartWriting)
    teller, control = RateLimitPublisher(LINK, shop.coordinator), LinkControl(throttle_bytes_s=1000)
    teller.turn(control, TASKS)
    assert heard(busy, TaskRateLimits)[0].link == 500.0
    busy.say(ThrottleUsage({"": [500.0, 1.0]}))
    idle.say(ThrottleUsage({}))
    until = time.monotonic() + 3.0
    while time.monotonic() < until and not shop.coordinator.used(LINK)[0]:
        time.sleep(0.01)
    teller.turn(control, TASKS)
    (mine,), (theirs,) = heard(busy, TaskRateLimits), heard(idle, TaskRateLimits)[-1:]
    assert mine.link > 990
    assert mine.link + theirs.link == pytest.approx(1000)


def test_a_bound_that_is_taken_away_is_told_too(shop: Shop) -> None:
    task = shop.task(0)
    assert heard(task, Assign)
    teller = RateLimitPublisher(LINK, shop.coordinator)
    teller.turn(LinkControl(), TASKS)
    assert not heard(task, TaskRateLimits, within_s=0.2), "there never was one"
    teller.turn(LinkControl(throttle_bytes_s=1000), TASKS)
    assert heard(task, TaskRateLimits)
    teller.turn(LinkControl(), TASKS)
    assert heard(task, TaskRateLimits) == [TaskRateLimits(0.0, {}, {})]


def test_what_an_operator_changes_is_told_at_once_though_needs_are_looked_at_twice_a_second(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_control, "RATE_LIMITS_INTERVAL_S", 60.0)
    task = shop.task(0)
    assert heard(task, Assign)
    teller = RateLimitPublisher(LINK, shop.coordinator)
    teller.turn(LinkControl(), TASKS)
    teller.turn(LinkControl(throttle_bytes_s=1000), TASKS)
    assert heard(task, TaskRateLimits)[0].link == 500.0
    teller.turn(LinkControl(throttle_bytes_s=3000), TASKS)
    assert heard(task, TaskRateLimits)[0].link == 1500.0
