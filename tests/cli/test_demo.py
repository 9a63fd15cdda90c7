"""The demo as a user runs it: its last line, what it leaves behind, and what it says when the sides differ."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import psutil
import pytest
from confluent_kafka import Producer

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.lab.demo_stage import KEPT_FILE, end_kept

SOURCES = Path(__file__).resolve().parents[2] / "src"
SHORT = ("--seconds", "2", "--rate", "1500")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `twinshore WORDS` with temporary files below tmp_path; whatever is left of it ends with the test."""
    running: list[subprocess.Popen[str]] = []

    def started(*words: str, **environment: str) -> subprocess.Popen[str]:
        env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(SOURCES), **environment}
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "twinshore.cli", *words],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell starts what it puts into the background deaf to Ctrl-C, and so all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        running.append(process)
        return process

    yield started
    for process in running:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)
    for folder in tmp_path.glob("*/" + KEPT_FILE):
        end_kept(folder.parent)


def _read_until(stream: IO[str] | None, wanted: str) -> list[str]:
    """The lines up to the one that holds these words."""
    lines = []
    assert stream is not None
    for line in stream:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"it never said {wanted!r}:\n{''.join(lines)}")


def _processes_in(folder: Path) -> list[psutil.Process]:
    """Processes that somehow name the folder: brokers, the mirror, its Spark."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _tree(process: subprocess.Popen[str]) -> Sequence[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.timeout(900)
def test_it_ends_identical_with_topics_moved_a_cluster_lost_and_back(start: Start, tmp_path: Path) -> None:
    text, _ = start("demo", *SHORT).communicate(timeout=850)
    lines = text.splitlines()
    last = re.fullmatch(r"demo: identical, (\d+) records, 12 partitions", lines[-1])
    assert last, text
    assert "kill -9 to process" in text
    assert re.search(r"the gap: \d+ partitions", text)
    assert re.search(r"done: payments is at home on west; writers .* [\d.]+ s", text), text
    assert re.search(r"its longest pause was [\d.]+ s", text), text
    assert "at home on west" in text, text
    assert "at home on west" in text, text
    rescued = re.search(r"done: ([\d,]+) records rescued", text)
    assert rescued and int(rescued[1].replace(",", "")) > 0, text
    assert f"read {int(last[1]):,} records in all, none twice, none left out" in text
    assert "WARN" not in text
    assert list(tmp_path.glob("twinshore-demo-*")) == []


@pytest.mark.long
def test_what_it_kept_ends_on_request(start: Start, tmp_path: Path) -> None:
    text, _ = start("demo", *SHORT, KEEP="1").communicate(timeout=280)
    lines = text.splitlines()
    last = re.fullmatch(r"demo: identical, (\d+) records, 12 partitions", lines[-1])
    assert last, text
    assert int(last[1]) > 3_000

    (folder,) = tmp_path.glob("twinshore-demo-*")
    settings = folder / "twinshore.toml"
    status, _ = start("status", "--json", "--settings", str(settings)).communicate(timeout=60)
    links = {link["link"]: link for link in json.loads(status)["links"]}
    # The partitions of the topics at home there, and that of the heartbeats.
    shown = [(link["state"], link["stale"], link["partitions"]) for _, link in sorted(links.items())]
    assert shown == [("flowing", False, 8 + 1), ("flowing", False, 4 + 1)]
    marks = json.loads((folder / KEPT_FILE).read_text())["processes"]
    kept = [psutil.Process(pid) for pid, _ in marks]
    kept += kept[0].children(recursive=True)
    assert all(process.is_running() for process in kept)

    ended, _ = start("demo", "--end", str(folder)).communicate(timeout=60)
    assert ended.startswith("ended 5 processes")
    assert not folder.exists()
    psutil.wait_procs(kept, timeout=5)
    assert [process for process in kept if process.is_running()] == []


def test_ctrl_c_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    demo = start("demo", *SHORT)
    _read_until(demo.stdout, "starting the mirror")
    # Far enough for Spark's own processes to be there.
    until_s = time.monotonic() + 60
    while len(tree := _tree(demo)) < 4 and time.monotonic() < until_s:
        time.sleep(0.1)
    assert len(tree) >= 4, "two brokers, the mirror, its Spark"
    demo.send_signal(signal.SIGINT)
    text, _ = demo.communicate(timeout=60)
    assert demo.returncode not in (0, 1, 2), text
    assert "Traceback" not in text
    psutil.wait_procs(tree, timeout=5)
    assert [process for process in tree if process.is_running()] == []
    assert _processes_in(tmp_path) == []
    assert list(tmp_path.glob("twinshore-demo-*")) == []


@pytest.mark.long
def test_a_difference_is_named_and_fails(start: Start, tmp_path: Path) -> None:
    demo = start("demo", *SHORT)
    _read_until(demo.stdout, "west has everything")
    (settings,) = tmp_path.glob("twinshore-demo-*/twinshore.toml")
    west = tomllib.loads(settings.read_text())["clusters"]["west"]["bootstrap"][0]
    stranger = Producer({"bootstrap.servers": west, "log_level": 0})
    stranger.produce("clicks", b"who put this here?", partition=3)
    assert stranger.flush(20) == 0
    text, _ = demo.communicate(timeout=120)
    assert demo.returncode == 1, text
    assert re.match(r"demo: different: different, clicks: .*; partition 3 offset \d+: ", text.splitlines()[-1])
    assert list(tmp_path.glob("twinshore-demo-*")) == []


def test_only_the_folder_of_a_kept_demo_is_ended(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with raises(ConfigError, "lab.not-a-demo"):
        end_kept(tmp_path)
    assert (tmp_path / "precious").exists()
