"""Verbs that start Spark, as processes: each can be stopped while it starts, and says nothing of Spark's own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from twinshore.replication.main import STARTING_SENTENCE
from twinshore.state.core.values import LinkStatus
from twinshore.state.store import open_store

pytestmark = pytest.mark.usefixtures("a_terminal")

STARTS_S = 240
ENDS_S = 60
TAKEN_AWAY_S = 5.0
SETTINGS = """
[store]
url = "sqlite:///store.db"
[mirror]
tasks_per_link = 1
[mirror.spark]
"spark.authenticate" = "true"
"spark.authenticate.secret" = "told-to-nobody"
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
"""
GOOD_ORDER = "the mirror was stopped in good order"
STOPPED_BEFORE = LinkStatus(
    "east->west", "a-host process 7 1a2b3c4d", "stopped", GOOD_ORDER, 1, 0, 0, 0.0, 0.0, 0, None, None
)


class Run:
    """The command in a session of its own."""

    def __init__(self, folder: Path, *verb: str, settings: str = SETTINGS) -> None:
        self.folder = folder
        (folder / "twinshore.toml").write_text(settings)
        self._said = folder / "said"
        command = [sys.executable, "-m", "twinshore.cli", *verb, "--settings", "twinshore.toml"]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def below(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def until(self, holds: Callable[[], object]) -> None:
        until_s = time.monotonic() + STARTS_S
        while not holds():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until_s, self.said
            time.sleep(0.02)

    def stop(self, number: signal.Signals) -> int:
        """Its exit code, once nothing of it is left."""
        below = self.below()
        if (
            number == signal.SIGHUP
        ):  # as a terminal that is closed: all of its group hears it, and a shell says it again
            os.killpg(self.process.pid, number)
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(ENDS_S)
        _, left = psutil.wait_procs(below, timeout=ENDS_S)
        assert not left, left
        assert self.gone(), "something of its session is left"
        return code

    def gone(self) -> bool:
        """Whether nothing of its session is left. What was killed counts until the system has taken it away."""
        until_s = time.monotonic() + TAKEN_AWAY_S
        while time.monotonic() < until_s:
            if not any(self._is_of_it(pid) for pid in psutil.pids()):
                return True
            time.sleep(0.02)
        return False

    def _is_of_it(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except OSError:
            return False

    def end(self) -> None:
        for one in self.below():
            one.kill()
        self.process.kill()
        self.process.wait(ENDS_S)


@contextlib.contextmanager
def begun(folder: Path, *verb: str, settings: str = SETTINGS) -> Iterator[Run]:
    made = Run(folder, *verb, settings=settings)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.end()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with begun(tmp_path, "mirror", "run") as made:
        yield made


@pytest.mark.claim(
    "groups",
    "spark-stopped",
    "whatever starts Spark can be stopped at any moment of its start: no process is left, no trace is shown",
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "cases",
    [
        [(signal.SIGTERM, 1.5), (signal.SIGINT, 0.0)],
        pytest.param(
            [(signal.SIGTERM, 0.0), (signal.SIGINT, 3.0)],
            marks=pytest.mark.long,
        ),
    ],
    ids=("some", "more"),
)
def test_whatever_starts_spark_can_be_stopped_while_it_starts_and_leaves_nothing(
    tmp_path: Path, cases: list[tuple[signal.Signals, float]]
) -> None:
    for number, after_s in cases:
        with begun(tmp_path, "prove") as run:
            run.until(run.below)
            time.sleep(after_s)
            case = (number, after_s)
            assert run.stop(number) == 128 + number, (case, run.said)
            first, *_, last = run.said.splitlines()
            assert first.startswith("starting Spark on local"), (case, run.said)
            assert "Traceback" not in run.said and "target filled" not in run.said, (case, run.said)
            assert "stopped before" in last, (case, run.said)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("number", "after_s"),
    [
        (signal.SIGINT, 0.0),
        pytest.param(signal.SIGTERM, 1.5, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 1.5, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 0.0, marks=pytest.mark.long),
    ],
)
def test_a_mirror_that_is_stopped_while_spark_starts_leaves_nothing(
    run: Run, number: signal.Signals, after_s: float
) -> None:
    run.until(run.below)
    time.sleep(after_s)
    assert run.stop(number) == 0, run.said
    assert "Traceback" not in run.said
    assert "stopped" in run.said.splitlines()[-1]
    with open_store(f"sqlite:///{run.folder / 'store.db'}") as store:
        (word,) = store.links.statuses()
    assert word.state == "stopped" or after_s, "what was stopped while it started is not missed"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_mirror_that_runs_says_nothing_of_sparks_start_and_shows_no_secret(
    tmp_path: Path, number: signal.Signals
) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.links.save_status(STOPPED_BEFORE)
    with begun(tmp_path, "mirror", "run") as run:
        _runs_and_says_nothing_of_sparks_start(run, number)


def _runs_and_says_nothing_of_sparks_start(run: Run, number: signal.Signals) -> None:
    first = r"waiting for east at 127.0.0.1:1 \.\.\. the mirror keeps trying\n.* east->west: starting Spark on local"
    run.until(lambda: re.search(first, run.said))
    with open_store(f"sqlite:///{run.folder / 'store.db'}") as store:
        run.until(lambda: store.links.statuses()[0] != STOPPED_BEFORE)
        (word,) = store.links.statuses()
    assert (word.state, word.sentence) == ("standby", STARTING_SENTENCE), (
        "a mirror that starts is not one that is stopped"
    )
    run.until(lambda: "east->west: east does not answer yet: east: no answer about metadata" in run.said)
    run.until(lambda: "east->west: waiting: " in run.said)
    shown = []
    for one in run.below():
        with contextlib.suppress(psutil.Error):
            shown.append(" ".join(one.cmdline()))
    assert any("java" in line for line in shown)
    assert not [line for line in shown if "told-to-nobody" in line]
    assert run.stop(number) == 0, run.said
    *lines, last = run.said.splitlines()
    assert last.endswith("stopped in good order")
    assert all("east->west" in line or "waiting for " in line for line in lines), run.said


@pytest.mark.claim(
    "topics", "killed-started-again", "the lease of a mirror that was killed runs out while the next one starts Spark"
)
@pytest.mark.timeout(400)
def test_the_lease_of_a_killed_mirror_runs_out_while_spark_starts(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.leases.take("link east->west", "a-host process 7 1a2b3c4d", 500, row=None)
    quick = SETTINGS.replace("tasks_per_link = 1", "tasks_per_link = 1\nlease_s = 0.5\nprogress_s = 0.1")
    with begun(tmp_path, "mirror", "run", settings=quick) as run:
        run.until(lambda: "east->west: waiting: " in run.said)
        assert "standing by" not in run.said, run.said
        assert run.stop(signal.SIGTERM) == 0, run.said
