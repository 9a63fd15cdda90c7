"""Servers as child processes that end with this process, unless detached.

The kernel kills a tied process when the thread that forked it ends. So one long-lived thread forks all, and exit
handlers end them where the kernel cannot. A detached process is identified by pid and start time.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from twinshore.config.errors import CodedError
from twinshore.runtime.scheduler import DaemonExecutor

_TAIL_BYTES = 6_000
_TAIL_LINES = 25


class LabError(CodedError):
    """A server of the lab failed, or something needed could not be fetched."""


def log_tail(log: Path) -> str:
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = handle.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError as error:
        return f"no log: {error.strerror}"
    return "\n".join(lines)


_LAUNCH = str(Path(__file__).with_name("launch.py"))
_POLL_S = 0.02
_DEATH_PATIENCE_S = 10.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ENDED = ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process: pids are reused, pairs of pid and start are not.

    `start`: boot id and ticks since boot, independent of clock changes; clock seconds if the kernel does not report
    them.
    """

    pid: int
    start: str

    @classmethod
    def from_json(cls, raw: Any) -> ProcessIdentity:
        """Reads what `as_json` wrote. Raises ValueError or TypeError for anything else."""
        pid, start = raw
        return cls(int(pid), start if isinstance(start, str) else repr(float(start)))

    def as_json(self) -> list[int | str]:
        return [self.pid, self.start]

    def alive(self) -> bool:
        if ":" in self.start:
            seen = _kernel_says(self.pid)
            return seen is not None and seen[0] == self.start and seen[1] not in _ENDED
        try:
            process = psutil.Process(self.pid)
            return repr(process.create_time()) == self.start and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def send(self, number: signal.Signals) -> bool:
        """Signals the process if still alive; returns whether it was."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def end(self, *, patience_s: float = 0.0) -> None:
        """SIGTERM and, after `patience_s`, SIGKILL; returns when the process is gone."""
        if patience_s > 0 and self.send(signal.SIGTERM):
            self.send(signal.SIGCONT)
            if _gone(self, patience_s):
                return
        self.send(signal.SIGKILL)
        _gone(self, 30.0)


def get_own_identity() -> ProcessIdentity:
    return get_process_identity(os.getpid())


def get_process_identity(pid: int) -> ProcessIdentity:
    """The identity of the process with this pid now. Raises psutil.NoSuchProcess."""
    if not _boot_id():
        return ProcessIdentity(pid, repr(psutil.Process(pid).create_time()))
    seen = _kernel_says(pid)
    if seen is None:
        raise psutil.NoSuchProcess(pid)
    return ProcessIdentity(pid, seen[0])


@functools.cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _kernel_says(pid: int) -> tuple[str, str] | None:
    """Start and state of a process; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The process name before the fields is in brackets, and may hold brackets and spaces itself.
    fields = stat.rpartition(")")[2].split()
    return f"{_boot_id()}:{fields[19]}", fields[0]


class ChildProcess:
    """A running server that this process started. Calls after `end` are harmless."""

    def __init__(self, process: subprocess.Popen[bytes], *, tied: bool, death_signal: signal.Signals) -> None:
        self._process = process
        self._death_signal = death_signal
        self.pid = process.pid
        self.identity = get_process_identity(process.pid)
        if tied:
            _living[self.pid] = self

    def alive(self) -> bool:
        """Whether the process runs; reaps a dead one."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def stdin(self) -> int:
        """The file descriptor to write to, for a process with pipes."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    @property
    def stdout(self) -> int:
        """The file descriptor to read from, for a process with pipes."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, number: signal.Signals) -> None:
        """Signals the process, if running."""
        if self.alive():
            self._process.send_signal(number)

    def end(self, *, patience_s: float = 0.0) -> None:
        """As `ProcessIdentity.end`. A process with its own death signal gets that before SIGKILL, and some time to
        obey.
        """
        if patience_s > 0:
            self._ask(signal.SIGTERM, patience_s)
        if self._death_signal is not signal.SIGKILL:
            self._ask(self._death_signal, _DEATH_PATIENCE_S)
        if self.alive():
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        _living.pop(self.pid, None)

    def _ask(self, number: signal.Signals, patience_s: float) -> None:
        if not self.alive():
            return
        self._process.send_signal(number)
        self.send(signal.SIGCONT)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            pass


def start_child(
    command: Sequence[str],
    *,
    folder: Path,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user_id: int = -1,
    tied: bool = True,
    death_signal: signal.Signals = signal.SIGKILL,
    pipes: bool = False,
) -> ChildProcess:
    """Starts a server in a separate session; its output is appended to `log`.

    `tied`: the server dies with this process, by `death_signal`. `user_id`: run as this user (root only). `pipes`:
    stdin and stdout are pipes to this process.
    """
    launch = build_launch_command(
        command, user_id=user_id, parent=os.getpid() if tied else 0, death_signal=death_signal
    )
    full_environment = {**os.environ, **(environment or {})}

    def fork() -> ChildProcess:
        with (log or Path(os.devnull)).open("ab") as output:
            process = subprocess.Popen(
                launch,
                cwd=folder,
                env=full_environment,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                start_new_session=True,
                bufsize=0,
            )
        return ChildProcess(process, tied=tied, death_signal=death_signal)

    return fork() if not tied else _forker().submit(fork).result()


def build_launch_command(
    command: Sequence[str], *, user_id: int, parent: int = 0, death_signal: signal.Signals = signal.SIGKILL
) -> list[str]:
    """Wraps the command in the launcher, which drops privileges first."""
    return [sys.executable, "-I", "-S", _LAUNCH, str(parent), str(int(death_signal)), str(user_id), *command]


_living: dict[int, ChildProcess] = {}
# By process: the forking thread. A daemon thread ends only with the process, as PR_SET_PDEATHSIG needs.
_forkers: dict[int, DaemonExecutor[ChildProcess]] = {}
_guard = threading.Lock()


def _forker() -> DaemonExecutor[ChildProcess]:
    with _guard:
        # After a fork of this process the thread is gone and the children are not ours.
        if os.getpid() not in _forkers:
            _living.clear()
            _forkers[os.getpid()] = DaemonExecutor("lab-forker")
        return _forkers[os.getpid()]


@atexit.register
def _end_all() -> None:
    if os.getpid() in _forkers:
        for child in list(_living.values()):
            child.end()


def _gone(identity: ProcessIdentity, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while identity.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


_PREFIX = "twinshore-"
_OWNER = ".owner"
_swept = threading.Event()


def scratch_folder(kind: str) -> Path:
    """Creates a temporary folder with its owner's identity. A later process removes the folders of killed owners."""
    if not _swept.is_set():
        _swept.set()
        sweep_scratch_folders(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
    (folder / _OWNER).write_text(json.dumps([*get_own_identity().as_json(), _numbering()]), encoding="ascii")
    return folder


def _numbering() -> str:
    """The pid namespace: a container that shares the temporary folder has other pids."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def sweep_scratch_folders(where: Path) -> list[Path]:
    """Removes and returns folders of dead owners; other users' folders stay."""
    removed = []
    for owner in where.glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            if owner.stat().st_uid != os.getuid():
                continue
            *mark, numbering = json.loads(owner.read_text(encoding="ascii"))
            alive = ProcessIdentity.from_json(mark).alive()
        except (OSError, ValueError, TypeError):
            # Being written or removed now.
            continue
        if numbering == _numbering() and not alive:
            shutil.rmtree(owner.parent, ignore_errors=True)
            removed.append(owner.parent)
    return removed
