"""Bundles run side by side, and a task that dies costs no more than what it had to prove."""

from __future__ import annotations

import json
import threading
import time

from tests.proof.test_planning import LOOK, SMALL, cut
from twinshore.kafka.log_reader import ReadThrottle
from twinshore.proof.core.model import CompareRange, CompareResult
from twinshore.proof.jobs import run_bundles


def test_no_more_than_so_many_run_at_once_and_all_are_answered() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def run(bundle: str, _name: str) -> list[str]:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        orders = [CompareRange.from_json(text) for text in json.loads(bundle)]
        return [CompareResult(one.number, one.start, one.end).to_json() for one in orders]

    asked = cut(LOOK, SMALL)
    answers = [one for some in run_bundles(run, [[one] for one in asked], 2, lambda: False) for one in some]
    assert sorted((one.number, one.to) for one in answers) == [(one.number, one.end) for one in asked]
    assert most == 2


def test_a_task_that_dies_is_trouble_for_its_stretches_only() -> None:
    asked = cut(LOOK, SMALL)

    def run(bundle: str, _name: str) -> list[str]:
        (order,) = (CompareRange.from_json(text) for text in json.loads(bundle))
        if order.number == 1:
            raise RuntimeError("a page of Java\nSparkException: the worker is gone\nand more")
        return [CompareResult(order.number, order.start, order.end).to_json()]

    answers = {one.number: one for some in run_bundles(run, [[one] for one in asked], 2, lambda: False) for one in some}
    assert answers[1].trouble == "its task died: SparkException: the worker is gone"
    assert [number for number, one in answers.items() if one.trouble] == [1]


def test_nothing_is_begun_once_stopped() -> None:
    begun: list[str] = []

    def run(bundle: str, _name: str) -> list[str]:
        begun.append(bundle)
        return []

    asked = cut(LOOK, SMALL)
    for _ in run_bundles(run, [[one] for one in asked], 1, lambda: bool(begun)):
        pass
    assert len(begun) == 1


def test_a_pace_is_kept_and_what_was_not_used_is_not_saved_up() -> None:
    now_s, slept = 100.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s, slept
        now_s += seconds
        slept += seconds

    pace = ReadThrottle(1_000, lambda: now_s, sleep)
    for _ in range(10):
        pace.taken(500)
    assert 4.8 < slept <= 5.0
    now_s += 60
    before = now_s
    for _ in range(10):
        pace.taken(500)
    assert 4.8 < now_s - before <= 5.0
    assert pace.most(4 << 20) == 16 << 10
    assert ReadThrottle(0).most(77) == 77
