"""The mirror of the demo, as a user would start it: a process of its own, whose workers can be found and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

import twinshore
from twinshore.fleet import Cluster
from twinshore.lab.errors import LabError, log_tail
from twinshore.lab.processes import Child, ProcessMark, mark_of, start_child

STOP_PATIENCE_S = 15.0
# What the command line of Spark's Python workers holds; workers are forked and share their daemon's.
_WORKER_WORDS = ("pyspark.daemon", "pyspark.worker")


class DemoMirror:
    """`twinshore mirror run` between two clusters, with its settings, store and log in `folder`. `more`: further lines
    of the settings, for those that run beside it."""

    def __init__(
        self,
        folder: Path,
        source: Cluster,
        target: Cluster,
        topics: str,
        *,
        more: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        self.settings = folder / "twinshore.toml"
        self.log = folder / "mirror.log"
        self.command = [sys.executable, "-m", "twinshore.cli", "mirror", "run", "--settings", str(self.settings)]
        self._folder = folder
        self._target_ports = {int(address.rpartition(":")[2]) for address in target.bootstrap}
        self._detached = detached
        self._child: Child | None = None
        self._tree: dict[int, ProcessMark] = {}
        lines = [*_settings(folder, source, target, topics), *more]
        self.settings.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self) -> None:
        """Starts it and returns at once."""
        self._child = self._started(self.command, self.log, detached=self._detached)

    def start_beside(self, words: Sequence[str], log: Path, *, detached: bool = False) -> Child:
        """Starts `twinshore WORDS` with the same settings."""
        command = [sys.executable, "-m", "twinshore.cli", *words, "--settings", str(self.settings)]
        return self._started(command, log, detached=detached)

    def _started(self, command: Sequence[str], log: Path, *, detached: bool) -> Child:
        environment = {**self._sources(), "PYTHONUNBUFFERED": "1"}
        return start_child(command, folder=self._folder, log=log, environment=environment, tied=not detached)

    def environment(self) -> dict[str, str]:
        """What another process of the same Twinshore needs."""
        return {**os.environ, **self._sources()}

    def _sources(self) -> dict[str, str]:
        sources = str(Path(twinshore.__file__).resolve().parent.parent)
        return {"PYTHONPATH": os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH", "")]))}

    @property
    def mark(self) -> ProcessMark:
        """The mirror's own process."""
        if self._child is None:
            raise LabError("the demo's mirror was never started")
        return self._child.mark

    def check(self) -> None:
        """Raises LabError with the end of its log when it has ended by itself."""
        if self._child is not None and not self._child.alive():
            raise LabError(
                f"the mirror ended with code {self._child.exit_code}; the end of its log:\n{log_tail(self.log)}"
            )

    def workers(self) -> list[psutil.Process]:
        """The Spark Python workers, whether or not they carry something just now, and whoever would start another."""
        found = []
        for process in self._look():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if any(word in words for word in _WORKER_WORDS):
                    found.append(process)
        return found

    def pumping(self) -> list[psutil.Process]:
        """Those that write to the target now, and so carry a lane."""
        found = []
        for process in self.workers():
            with contextlib.suppress(psutil.Error):
                if self._writes(process):
                    found.append(process)
        return found

    def kill_a_pump(self) -> int:
        """kill -9 for one worker that carries a lane; its process id."""
        pumps = self.pumping()
        if not pumps:
            raise LabError("no Spark worker of the mirror is connected to the target", hint=f"see {self.log}")
        victim = pumps[0]
        victim.send_signal(signal.SIGKILL)
        return int(victim.pid)

    def end(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """An orderly stop, and then nothing of its process tree is left."""
        if self._child is None:
            return
        self._look()
        self._child.end(patience_s=patience_s)
        end_all(self._tree.values())

    def _writes(self, process: psutil.Process) -> bool:
        connections = process.net_connections(kind="tcp")
        return any(one.raddr and one.raddr.port in self._target_ports for one in connections)

    def _look(self) -> list[psutil.Process]:
        """The processes below the mirror's own, remembered for the end."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.mark.pid).children(recursive=True)
            for process in found:
                with contextlib.suppress(psutil.Error):
                    self._tree[process.pid] = mark_of(process.pid)
            return list(found)
        return []


def end_all(marks: Iterable[ProcessMark]) -> None:
    """Ends these processes, after a moment in which those that were told to end may do so."""
    left = list(marks)
    deadline = time.monotonic() + 2.0
    while left and time.monotonic() < deadline:
        left = [mark for mark in left if mark.alive()]
        time.sleep(0.05)
    for mark in left:
        mark.end()


def _settings(folder: Path, source: Cluster, target: Cluster, topics: str) -> list[str]:
    lines = ["[store]", f'url = "sqlite:///{folder}/store.db"', ""]
    for cluster in (source, target):
        addresses = ", ".join(f'"{address}"' for address in cluster.bootstrap)
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = [{addresses}]", ""]
    lines += [f'[links."{source.name}->{target.name}"]', f"topics = ['{topics}']", ""]
    # Short, so that the demo shows lanes being passed from one Spark job to the next.
    return [*lines, "[mirror]", "tide_s = 10", ""]
