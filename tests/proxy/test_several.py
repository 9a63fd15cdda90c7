"""Several processes as one proxy, before clusters that do not answer: started again, ended together, told of as one."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client import CollectorRegistry

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.proxy.served import ProxyProcess
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.config.settings import parse_settings
from twinshore.lab.ports import free_port
from twinshore.proxy import server
from twinshore.proxy.operations.run import serve_proxy
from twinshore.proxy.server import (
    WorkerConfig,
    WorkerMessage,
    WorkerProcess,
    describe_unhealthy_workers,
    parse_worker_message,
    relay_log_line,
)
from twinshore.runtime.http import MetricsServer
from twinshore.runtime.process import RestartPause

pytestmark = pytest.mark.usefixtures("a_terminal")

NOBODY = [Cluster("east", ("127.0.0.1:1",))]
SETTINGS = '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n[store]\nurl = "sqlite:///{folder}/store.db"\n'


def until(holds: Callable[[], bool], within_s: float, what: str) -> None:
    until_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


def task(folder: Path) -> WorkerConfig:
    text = SETTINGS.format(folder=folder) + f"[proxy]\nport = {free_port()}\n"
    return WorkerConfig(parse_settings(text, name="test", env={}), 1, 2)


@contextmanager
def part(folder: Path) -> Iterator[WorkerProcess]:
    made = WorkerProcess(task(folder))
    made.start()
    try:
        until(lambda: made.port > 0, 60, "it says where it answers")
        yield made
    finally:
        if made.pid:
            os.kill(made.pid, signal.SIGKILL)
        made.end()


def watched(one: WorkerProcess, holds: Callable[[], bool], what: str) -> None:
    """As its keeper does, until something holds."""

    def look() -> bool:
        one.look()
        return holds()

    until(look, 60, what)


def is_back(one: WorkerProcess, starts: int) -> bool:
    return one.starts == starts and one.port > 0


@pytest.mark.parametrize(
    ("line", "word", "text"),
    [
        ("said no cluster answers\n", WorkerMessage.LOG, "no cluster answers"),
        ("health 4711\n", WorkerMessage.HEALTH, "4711"),
        ("beat \n", WorkerMessage.HEARTBEAT, ""),
        ("Traceback (most recent call last):\n", WorkerMessage.LOG, "Traceback (most recent call last):"),
    ],
)
def test_what_a_part_tells_is_a_word_and_what_nobody_meant_is_a_sentence(
    line: str, word: WorkerMessage, text: str
) -> None:
    assert parse_worker_message(line) == (word, text)


def test_a_line_of_a_part_keeps_its_level_logger_and_fields(log_lines: LogLines) -> None:
    line = {"level": "info", "logger": "twinshore.proxy.listeners", "message": "it is so", "cluster": "east"}
    relay_log_line(2, json.dumps(line))
    others = ["Traceback (most recent call last):", "{", "3", "{}"]
    for other in others:
        relay_log_line(2, other)
    first, *rest = log_lines.records
    assert log_lines.of("twinshore.proxy.listeners", cluster="east") == ["process 2: it is so"]
    assert (first.levelno, {one.levelno for one in rest}) == (logging.INFO, {logging.WARNING})
    assert log_lines[1:] == [
        "process 2: Traceback (most recent call last):",
        "process 2: {",
        "process 2: 3",
        "process 2: {}",
    ]


def test_a_part_that_has_ended_is_started_again_and_later_each_time(tmp_path: Path, log_lines: LogLines) -> None:
    with part(tmp_path) as one:
        one._restarts = RestartPause(0.2, 30, 60)
        for starts, again in ((2, "0.2"), (3, "0.4")):
            os.kill(one.pid, signal.SIGKILL)
            watched(one, lambda: one.pid == 0, "its end is seen")
            assert any(mentions(line, "process 1", "signal 9", f"{again} s") for line in log_lines)
            assert (one.port, one.serves) == (0, False)
            watched(one, partial(is_back, one, starts), "it is back")


def test_a_part_that_is_ended_by_hand_ends_in_good_order_and_is_started_again(
    tmp_path: Path, log_lines: LogLines
) -> None:
    with part(tmp_path) as one:
        watched(one, lambda: one._heard_s <= time.monotonic(), "its loop goes round")
        os.kill(one.pid, signal.SIGTERM)
        watched(one, partial(is_back, one, 2), "it is back")
        assert any(mentions(one, "process 1", "exit code 0", "1 s") for one in log_lines)
        assert "process 1: ended" in log_lines


def test_a_part_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    made = WorkerProcess(task(tmp_path))
    with monkeypatch.context() as without:
        without.setattr(sys, "executable", str(tmp_path / "gone"))
        made.start()
    assert (made.pid, made.starts) == (0, 0)
    assert [mentions(one, "process 1", "No such file", "1 s") for one in log_lines] == [True]
    try:
        watched(made, partial(is_back, made, 1), "it is there")
    finally:
        made.ask_to_end()
        made.end()
    assert made.pid == 0


def test_a_part_that_stands_still_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr(server, "WORKER_STALL_TIMEOUT_S", 2.0)
    with part(tmp_path) as one:
        first = one.pid
        until(lambda: one._heard_s <= time.monotonic(), 60, "its loop goes round")
        until_s = time.monotonic() + 4
        while time.monotonic() < until_s:
            one.look()
            assert one.pid == first
            time.sleep(0.2)
        os.kill(first, signal.SIGSTOP)
        watched(one, lambda: one.pid != first, "it is ended")
        assert any(mentions(one, "process 1", "killed") for one in log_lines)


def test_a_part_whose_keeper_is_gone_ends_in_good_order(tmp_path: Path) -> None:
    """By whichever way it went: the pipe between them is closed."""
    command = [sys.executable, "-m", "twinshore.proxy"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(pickle.dumps(task(tmp_path)))
        child.stdin.flush()
        for line in child.stdout:
            if line.startswith(b"beat"):
                break
        child.stdin.close()
        assert child.wait(30) == 0


def test_processes_end_together_and_are_told_of_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = ProxyProcess(tmp_path, NOBODY, more="processes = 2\n")
    try:
        with monkeypatch.context() as patched:
            patched.setenv("http_proxy", "http://127.0.0.1:1")  # parts are asked past it
            proxy.launch()
        until(lambda: proxy.has_said("process 2:"), 60, "both say something")
        code, health = until_told(proxy)
        assert code == 503, health
        assert health["says"] == "no process is well: 1: no cluster answers; 2: no cluster answers"
        assert sorted(health["processes"]) == ["1", "2"]
        assert len({one["pid"] for one in health["processes"].values()}) == 2
        found = proxy.metrics()
        assert found["twinshore_proxy_processes"] == 2
        assert found["twinshore_proxy_processes_running"] == 0
        for number in ("1", "2"):
            assert found[f'twinshore_proxy_connections{{process="{number}"}}'] == 0
            assert found[f'twinshore_proxy_cluster_up{{cluster="east",process="{number}"}}'] == 0
            assert found[f'twinshore_proxy_restarts_total{{process="{number}"}}'] == 0
        parts = proxy.process.children()
        assert len(parts) == 2
        assert proxy.end(signal.SIGHUP) == 0
        assert not any(one.is_running() for one in parts)
    finally:
        proxy.close()


def until_told(proxy: ProxyProcess) -> tuple[int, dict[str, Any]]:
    """What /health says, once both are asked."""
    found: list[tuple[int, dict[str, Any]]] = []

    def both() -> bool:
        found[:] = [proxy.health()]
        return all(one["says"] != "it does not answer" for one in found[0][1]["processes"].values())

    until(both, 60, "both answer")
    return found[0]


def test_health_judges_by_what_it_shows_and_asks_nobody_twice() -> None:
    """Who begins to answer meanwhile would be shown well beside a sentence that says otherwise."""
    answers = iter([{"serves": False, "ok": False, "says": "it does not answer"}, {"serves": True, "ok": True}])
    joined = {"1": {"serves": False, "ok": False, "says": "no cluster answers"}}
    served = MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        lambda: joined | {"2": next(answers)},
        of="processes",
        trouble=describe_unhealthy_workers,
    )
    try:
        with pytest.raises(HTTPError) as first:
            urlopen(f"http://127.0.0.1:{served.port}/health")
        with first.value as answer:
            told = json.load(answer)
        assert told["says"] == "no process is well: 1: no cluster answers; 2: it does not answer"
        assert [one["ok"] for one in told["processes"].values()] == [False, False]
        with urlopen(f"http://127.0.0.1:{served.port}/health") as answer:
            assert json.load(answer)["says"] == "ok"
    finally:
        served.close()


def test_processes_do_not_share_a_port_with_somebody_else(tmp_path: Path) -> None:
    before = set(psutil.Process().children())  # servers of other tests
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        text = SETTINGS.format(folder=tmp_path) + f"[proxy]\nport = {port}\n"
        with pytest.raises(ConfigError, match=rf"\[proxy\] address, port: 127.0.0.1:{port} cannot be served"):
            serve_proxy(parse_settings(text, name="test", env={}), 2)
    assert set(psutil.Process().children()) <= before, "nothing was started"
