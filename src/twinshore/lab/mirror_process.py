"""Twinshore as users start it: settings files, and verbs as separate processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

import twinshore
from twinshore.config.model import Cluster
from twinshore.lab.processes import ChildProcess, LabError, ProcessIdentity, get_process_identity, log_tail, start_child

COMMAND = "twinshore.cli"
STOP_PATIENCE_S = 30.0
# Spark forks its workers, so they share their daemon's command line.
_WORKER_WORDS = ("pyspark.daemon", "pyspark.worker")


def addresses(clusters: Iterable[Cluster], links: Mapping[str, str], store: Path) -> str:
    """A settings file: clusters with addresses and optional SASL user, and links with the lines of their sections."""
    lines = ["[store]", f'url = "sqlite:///{store}"']
    for cluster in clusters:
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = {list(cluster.bootstrap)}"]
        security = cluster.security
        if security.sasl:
            lines += [f"[clusters.{cluster.name}.security]", f'sasl = "{security.sasl}"']
            lines += [f'username = "{security.username}"', f'password_file = "{security.password.file}"']
    for link, section in links.items():
        lines += [f'[links."{link}"]', section]
    return "\n".join(lines) + "\n"


def settings_of(
    source: Cluster, *targets: Cluster, store: Path, topics: str, mirror: Mapping[str, object] | None = None
) -> str:
    """A settings file for one link, or a broadcast to several targets, with a `mirror` section."""
    section = f"topics = ['{topics}']" + ('\nbroadcast = "shown"' if len(targets) > 1 else "")
    links = {f"{source.name}->{target.name}": section for target in targets}
    lines = ["", "[mirror]", *(f"{name} = {value}" for name, value in (mirror or {}).items())]
    return addresses((source, *targets), links, store) + "\n".join(lines) + "\n"


def own_code() -> dict[str, str]:
    sources = Path(twinshore.__file__).resolve().parent.parent
    paths = (str(sources), str(sources.parent), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}


class VerbProcess:
    """`twinshore WORDS` as a separate process, with the output in `log`."""

    def __init__(
        self,
        words: Sequence[str],
        settings: Path,
        log: Path,
        *,
        command: str = COMMAND,
        start: Callable[..., ChildProcess] = start_child,
    ) -> None:
        """`command`: the module to run. `start`: a substitute for `start_child`."""
        self.settings, self.log = settings, log
        self._words, self._command, self._start = words, command, start
        self._child: ChildProcess | None = None

    def start(self, *arguments: str) -> None:
        """Starts the process and returns at once."""
        command = [sys.executable, "-m", self._command, *self._words, "--settings", str(self.settings), *arguments]
        self._child = self._start(command, folder=self.settings.parent, log=self.log, environment=own_code())

    @property
    def child(self) -> ChildProcess:
        if self._child is None:
            raise LabError("lab.never-started", process=f"twinshore {' '.join(self._words)}")
        return self._child

    @property
    def mark(self) -> ProcessIdentity:
        return self.child.identity

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def check(self) -> None:
        """Raises LabError with the log's end if the process has ended by itself."""
        if not self.child.alive():
            raise LabError(
                "lab.process-ended",
                process=f"twinshore {' '.join(self._words)}",
                exit_code=self.child.exit_code,
                log=log_tail(self.log),
            )

    def kill(self) -> None:
        self.child.end()

    def end(self, patience_s: float = STOP_PATIENCE_S) -> int | None:
        """An orderly stop; returns the exit code, None if never started."""
        if self._child is None:
            return None
        self._child.end(patience_s=patience_s)
        return self._child.exit_code


class MirrorProcess(VerbProcess):
    """`twinshore mirror run` with its process tree; can be killed and restarted at will."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        *,
        target_ports: Iterable[int] = (),
        command: str = COMMAND,
        start: Callable[..., ChildProcess] = start_child,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        file = folder / "twinshore.toml"
        file.write_text(settings, encoding="utf-8")
        super().__init__(("mirror", "run"), file, folder / "mirror.log", command=command, start=start)
        self._target_ports = set(target_ports)
        self._tree: dict[int, ProcessIdentity] = {}

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, idle ones and the forking daemon included."""
        return [one for one in self.look() if _is(one, _works)]

    def task_processes(self) -> list[psutil.Process]:
        """Workers that are connected to the target now, and so run a task."""
        return [one for one in self.workers() if _is(one, self._writes)]

    def _writes(self, process: psutil.Process) -> bool:
        connections = process.net_connections(kind="tcp")
        return any(one.raddr and one.raddr.port in self._target_ports for one in connections)

    def look(self) -> list[psutil.Process]:
        """The mirror's child processes, remembered for `end`."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.child.pid).children(recursive=True)
            for process in found:
                with contextlib.suppress(psutil.Error):
                    self._tree[process.pid] = get_process_identity(process.pid)
            return list(found)
        return []

    def kill(self) -> None:
        """kill -9 for the driver. Its JVM and workers must notice by themselves."""
        self.look()
        self.child.end()

    def end(self, patience_s: float = STOP_PATIENCE_S) -> int | None:
        if self._child is None:
            return None
        self.look()
        super().end(patience_s)
        for identity in self._tree.values():
            identity.send(signal.SIGCONT)
            identity.end()
        return self.child.exit_code


def _works(process: psutil.Process) -> bool:
    words = " ".join(process.cmdline())
    return any(word in words for word in _WORKER_WORDS)


def _is(process: psutil.Process, so: Callable[[psutil.Process], bool]) -> bool:
    """Checks a process that may be gone or belong to another user."""
    try:
        return so(process)
    except psutil.Error:
        return False
