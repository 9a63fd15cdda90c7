"""Mirrors with their tasks in threads, forked from a process that has loaded all that they load.

A mirror that is started by itself loads for three seconds of CPU before it asks its first question, and scenarios start
some hundred. Here one process for each worker of the tests loads once, and forks: what is forked runs the same command
(`tests/scenarios/pumps_in_threads.py`), and is the child of whoever asked, who signals it, waits for it and takes it
along when it dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import twinshore
from tests.scenarios import pumps_in_threads
from twinshore.lab.processes import ChildProcess, LabError, start_child

IN_THREADS = "tests.scenarios.pumps_in_threads"
ROOT = Path(twinshore.__file__).resolve().parent.parent.parent
LOADS_S_MAX = 120.0
ADOPTED_S_MAX = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# What a mirror loads, and only once it runs.
LOADED = (
    "twinshore.groups.sync",
    "twinshore.replication.main",
    "twinshore.replication.task.runner",
    "twinshore.replication.task.runner",
    "twinshore.replication.task.lookups",
    "twinshore.replication.task.lookups",
    "twinshore.proof.service",
    "twinshore.switch.old_home",
    "twinshore.kafka.protocol.compiled",
)


class Forked:
    """A process that another one forked for us: what `ChildProcess` asks of `subprocess.Popen`."""

    stdin = stdout = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._guard = threading.Lock()

    def poll(self) -> int | None:
        with self._guard:
            if self._code is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if ended else None
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        until_s = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > until_s:
                raise subprocess.TimeoutExpired("a forked mirror", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_warm(command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]) -> ChildProcess:
    """As `start_child` starts `python -m tests.scenarios.pumps_in_threads WORDS`, and within some milliseconds."""
    assert list(command[:3]) == [sys.executable, "-m", IN_THREADS], command
    if sys.platform != "linux":
        return start_child(command, folder=folder, log=log, environment=environment)
    order = {
        "parent": os.getpid(),
        "words": list(command[3:]),
        "folder": str(folder),
        "log": str(log),
        "environment": {**os.environ, **environment},
    }
    with _guard, _adopting():
        pid = _warm(log).fork(order)
    # It has the parts of `Popen` that are called.
    return ChildProcess(Forked(pid), tied=True, death_signal=signal.SIGKILL)  # type: ignore[arg-type]


def said_by(words: Sequence[str], *, folder: Path, within_s: float = 60.0) -> tuple[int, str]:
    """Exit code of `twinshore WORDS` in a process of its own, and all that it wrote."""
    log = folder / f"said-{time.monotonic_ns()}"
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    child = start_warm([sys.executable, "-m", IN_THREADS, *words], folder=folder, log=log, environment=paths)
    until_s = time.monotonic() + within_s
    while (code := child.exit_code) is None:
        assert time.monotonic() < until_s, log.read_text(encoding="utf-8")
        time.sleep(0.01)
    return code, log.read_text(encoding="utf-8")


class _Warm:
    """The process that has loaded."""

    def __init__(self, log: Path) -> None:
        self.owner = os.getpid()
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", __name__]
        self.child = start_child(command, folder=ROOT, log=log, environment=paths, pipes=True)

    def fork(self, order: Mapping[str, Any]) -> int:
        os.write(self.child.stdin, json.dumps(order).encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([self.child.stdout], [], [], LOADS_S_MAX)
            more = os.read(self.child.stdout, 100) if ready else b""
            if not more:
                raise LabError(f"no mirror was forked; what loads for them has ended with {self.child.exit_code}")
            said += more
        return int(said)


_guard = threading.Lock()
_kept: list[_Warm] = []


def _warm(log: Path) -> _Warm:
    if not _kept or _kept[-1].owner != os.getpid() or not _kept[-1].child.alive():
        _kept[:] = [_Warm(log)]
    return _kept[-1]


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Meanwhile whoever loses its parent below us becomes our child, and not that of process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def serve() -> list[str]:
    """Forks for each line of standard input. Returns, in what was forked, the words of the command that it is now."""
    for name in LOADED:
        importlib.import_module(name)
    pumps_in_threads.load()
    # What was loaded is not looked through again by each that is forked, nor copied for it.
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            return _become(json.loads(line))
        os.waitpid(between, 0)
    sys.exit()


def _become(order: Mapping[str, Any]) -> list[str]:
    """What was forked twice waits until it has been adopted: from then on it ends with whoever asked."""
    until_s = time.monotonic() + ADOPTED_S_MAX
    while os.getppid() != order["parent"]:
        if time.monotonic() > until_s:
            os._exit(1)
        time.sleep(0.001)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:
        os._exit(1)
    os.setsid()
    os.write(1, b"%d\n" % os.getpid())
    with Path(os.devnull).open("rb") as nothing, Path(order["log"]).open("ab") as log:
        os.dup2(nothing.fileno(), 0)
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    return list(order["words"])


if __name__ == "__main__":
    sys.argv = ["twinshore", *serve()]
    pumps_in_threads.run()
