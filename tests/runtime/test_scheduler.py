"""One pool for all that a process does again and again: on time, never twice at once, whatever some of it does."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from testkit.log_lines import LogLines
from twinshore.runtime import scheduler as scheduling
from twinshore.runtime.scheduler import UNTIL_WOKEN, Scheduler
from twinshore.runtime.task_queue import ConcurrencyLimits, TaskQueue


def until(holds: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.005)


# -- what may begin


def test_the_task_that_is_due_for_longest_begins_and_none_twice_at_once() -> None:
    agenda = TaskQueue(ConcurrencyLimits(running=3, share=3))
    late, later = agenda.add("late", "a", 1.0), agenda.add("later", "a", 2.0)
    assert agenda.take(0.5) is None
    assert agenda.next_s(0.5) == 1.0
    assert (agenda.take(3.0), agenda.take(3.0), agenda.take(3.0)) == (late, later, None)
    assert agenda.next_s(3.0) is None
    agenda.done(late, 4.0, 5.0)
    assert agenda.next_s(4.0) == 9.0
    agenda.wake(later, 4.0)
    agenda.done(later, 5.0, 60.0, rest_s=0.5)
    assert agenda.next_s(5.0) == 5.5
    agenda.drop(later)
    assert agenda.take(8.0) is None
    assert agenda.take(9.0) is late


def test_what_was_missed_while_the_process_stood_still_is_not_made_up_for() -> None:
    agenda = TaskQueue(ConcurrencyLimits())
    entry = agenda.add("watch", "a", 1.0)
    assert agenda.take(10_000.0) is entry
    agenda.done(entry, 10_000.1, 1.0)
    assert agenda.take(10_000.2) is None
    assert agenda.next_s(10_000.2) == 10_001.1


def test_a_silent_cluster_takes_its_own_share_and_its_slow_tasks_half_of_it() -> None:
    agenda = TaskQueue(ConcurrencyLimits(running=8, share=4, slow_s=1.0))
    silent = [agenda.add(f"silent {number}", ["silent"], 0.0) for number in range(20)]
    well = [agenda.add(f"well {number}", ["well"], 0.5) for number in range(4)]
    begun = [agenda.take(1.0) for _ in range(9)]
    assert [one for one in begun if one in silent] == silent[:4]
    assert [one for one in begun if one in well] == well
    for one in silent[:4]:
        agenda.done(one, 11.0, 0.0)
    for one in well:
        agenda.done(one, 1.1, 60.0)
    # Those that have not run yet go first; of those that were slow, two at a time.
    assert [agenda.take(12.0) for _ in range(5)] == [*silent[4:8], None]
    for one in silent[4:]:
        if one.began_s is not None:
            agenda.done(one, 12.1, 60.0)
        else:
            agenda.drop(one)
    assert [agenda.take(13.0) for _ in range(3)] == [*silent[:2], None]


def test_one_silent_spoke_leaves_half_of_the_hub_to_the_others() -> None:
    agenda = TaskQueue(ConcurrencyLimits(running=48, share=8, slow_s=1.0))
    silent = [agenda.add(f"silent {number}", ["hub", "spoke"], 0.0) for number in range(30)]
    now_s = 1.0
    while any(not one.slow for one in silent):
        for one in [entry for _ in range(8) if (entry := agenda.take(now_s))]:
            agenda.done(one, now_s + 10.0, 0.0)
        now_s += 10.0
    slow = [agenda.take(now_s) for _ in range(8)]
    assert len([one for one in slow if one]) == 4
    others = [agenda.add(f"other {number}", ["hub", f"spoke {number}"], now_s) for number in range(4)]
    assert [agenda.take(now_s) for _ in range(4)] == others


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_passed_and_nobody_starves_whatever_comes(seed: int) -> None:
    rng = Random(seed)
    bounds = ConcurrencyLimits(running=6, share=3, slow_s=1.0)
    agenda = TaskQueue(bounds)
    clusters = ["a", "b", "c", "silent"]
    entries = [agenda.add(str(number), rng.sample(clusters, rng.choice((1, 2))), rng.random()) for number in range(30)]
    ran: Counter[str] = Counter()
    ends: list[tuple[float, int]] = []
    now_s = 0.0
    while now_s < 400:
        while (entry := agenda.take(now_s)) is not None:
            assert entry.began_s == now_s
            ran[entry.name] += 1
            took_s = 10.0 if "silent" in entry.asks else rng.random() / 10
            ends.append((now_s + took_s, entries.index(entry)))
        assert len(agenda.running) == len(ends) <= bounds.running
        busy = Counter(name for one in agenda.running for name in one.asks)
        assert all(count <= bounds.share for count in busy.values()), busy
        ends.sort()
        due_s = agenda.next_s(now_s)
        if ends and (due_s is None or ends[0][0] <= due_s):
            now_s, number = ends.pop(0)
            agenda.done(entries[number], now_s, 1.0)
        elif due_s is not None:
            now_s = due_s
    quick = [entry for entry in entries if "silent" not in entry.asks]
    assert min(ran[entry.name] for entry in quick) > 200, "a healthy task was late"
    assert min(ran[entry.name] for entry in entries) > 0


# -- on threads


def test_a_task_that_raises_is_noted_and_runs_again(monkeypatch: pytest.MonkeyPatch, log_lines: LogLines) -> None:
    monkeypatch.setattr(scheduling, "RESTART_DELAY_S", 0.01)
    scheduler = Scheduler()
    ran: list[int] = []

    def work() -> float:
        ran.append(1)
        if len(ran) < 3:
            raise LookupError("nobody knows")
        return 0.01

    task = scheduler.every("what fails", work)
    until(lambda: len(ran) > 5, f"it ran {len(ran)} times")
    assert task.close()
    assert log_lines == ["the thread 'what fails' ended unasked: LookupError: nobody knows"]
    assert scheduler.names() == []


def test_one_that_hangs_keeps_none_of_199_others_from_its_time() -> None:
    scheduler = Scheduler(ConcurrencyLimits(running=12, share=6, slow_s=0.2))
    over = threading.Event()
    ran: Counter[int] = Counter()
    late_s: list[float] = []
    last_s = dict.fromkeys(range(199), time.monotonic())

    def silent() -> float:
        over.wait(3.0)
        return 0.0

    def well(number: int) -> float:
        now_s = time.monotonic()
        late_s.append(now_s - last_s[number] - 0.5)
        last_s[number] = now_s
        ran[number] += 1
        return 0.5

    made = [scheduler.every("silent", silent, asks=["silent"]) for _ in range(40)]
    made += [scheduler.every(f"well {one}", partial(well, one), asks=["well"], first_s=0.5) for one in range(199)]
    until(lambda: len(ran) == 199 and min(ran.values()) >= 4, "some of the others do not run")
    late_s.sort()
    assert late_s[len(late_s) // 2] < 0.5, f"half of them were {late_s[len(late_s) // 2]:.2f} s late"
    over.set()
    assert all(task.close() for task in made)


def test_closing_waits_for_the_run_that_is_under_way_and_no_longer_than_it_may() -> None:
    scheduler = Scheduler()
    goes_on, began, ended, last = threading.Event(), threading.Event(), threading.Event(), threading.Event()

    def work() -> float:
        began.set()
        goes_on.wait(20)
        ended.set()
        return 0.0

    task = scheduler.every("long", work, last=last.set)
    assert began.wait(20)
    assert not task.close(0.05)
    assert not last.is_set()
    goes_on.set()
    assert task.close(20)
    assert ended.is_set()
    assert last.wait(20)


def test_a_task_may_end_itself_and_a_woken_one_runs_at_once() -> None:
    scheduler = Scheduler()
    ran: list[float] = []
    ends: list[bool] = []

    def work() -> float:
        ran.append(time.monotonic())
        if len(ran) == 3:
            ends.append(task.close())
        return UNTIL_WOKEN

    task = scheduler.every("by request", work, first_s=60.0)
    for times in (1, 2, 3):
        task.wake()
        until(lambda times=times: len(ran) == times, f"it ran {len(ran)} times, not {times}")  # type: ignore[misc]
    until(lambda: ends == [True] and scheduler.names() == [], f"{ends}, {scheduler.names()}")
    task.wake()
    time.sleep(0.05)
    assert len(ran) == 3
