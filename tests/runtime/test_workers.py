"""Threads that are kept on, and what /health says of those that ended unasked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from testkit.log_lines import LogLines
from twinshore.runtime import http, scheduler
from twinshore.runtime.http import MetricsServer
from twinshore.runtime.scheduler import FAILURE_SHOWN_S, DaemonExecutor, ThreadFailures, supervise

pytestmark = pytest.mark.claim(
    "topics",
    "threads-kept-on",
    "a thread that ends unasked begins again, and /health says 503 with its name and why for a minute",
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> ThreadFailures:
    found = ThreadFailures(Clock())
    monkeypatch.setattr(scheduler, "thread_failures", found)
    monkeypatch.setattr(http, "thread_failures", found)
    return found


def test_what_ends_a_thread_unasked_begins_it_again_and_is_said_once(
    failures: ThreadFailures, log_lines: LogLines
) -> None:
    turns: list[int] = []

    def work() -> None:
        turns.append(len(turns))
        if len(turns) < 4:
            raise BrokenPipeError("nobody reads")

    thread = supervise(work, "follow east->west", again_s=0.0)
    thread.join(timeout=30)
    assert not thread.is_alive() and len(turns) == 4
    assert log_lines == ["the thread 'follow east->west' ended unasked: BrokenPipeError: nobody reads"]
    assert failures.says() == log_lines[0]


def test_a_thread_that_nobody_keeps_on_is_noted_too(failures: ThreadFailures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", failures.hear)

    def work() -> None:
        raise ValueError("by hand")

    thread = threading.Thread(target=work, name="alone")
    thread.start()
    thread.join(timeout=30)
    assert failures.says() == "the thread 'alone' ended unasked: ValueError: by hand"


def test_health_fails_for_a_while(failures: ThreadFailures) -> None:
    served = MetricsServer("127.0.0.1", 0, CollectorRegistry(), dict)
    try:
        assert health(served.port) == (200, "ok")
        failures.note("looks east->west", OSError("out of descriptors"))
        assert health(served.port) == (503, "the thread 'looks east->west' ended unasked: OSError: out of descriptors")
        clock = failures._clock
        assert isinstance(clock, Clock)
        clock.now_s += FAILURE_SHOWN_S
        assert health(served.port) == (200, "ok")
    finally:
        served.close()


def health(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
            return answer.status, json.load(answer)["says"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["says"]


def test_what_is_left_behind_is_done_in_order_and_says_what_went_wrong() -> None:
    hands: DaemonExecutor[str] = DaemonExecutor("hands")

    def fails() -> str:
        raise ValueError("so")

    done = [hands.submit(lambda: threading.current_thread().name), hands.submit(fails), hands.submit(lambda: "after")]
    hands.close()
    assert (done[0].result(5.0), done[2].result(5.0)) == ("hands", "after")
    with pytest.raises(ValueError, match="so"):
        done[1].result(5.0)


def test_a_process_ends_while_something_is_left_behind() -> None:
    program = (
        "import time; from twinshore.runtime.scheduler import DaemonExecutor\n"
        "hands = DaemonExecutor('hands'); hands.submit(lambda: time.sleep(600)); hands.close(); print('over')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "over\n"
