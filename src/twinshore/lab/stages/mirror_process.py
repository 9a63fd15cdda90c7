"""What the faults happen to: mirrors started as users start them, between two clusters behind fault proxies."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

import twinshore
from twinshore.fleet import Cluster
from twinshore.lab import LabError
from twinshore.lab.errors import log_tail
from twinshore.lab.processes import Child, ProcessMark, mark_of, start_child

STOP_PATIENCE_S = 30.0
# Spark forks its workers, so they share their daemon's command line.
_WORKER_WORDS = ("pyspark.daemon", "pyspark.worker")


def settings_of(
    source: Cluster, *targets: Cluster, store: Path, topics: str, mirror: Mapping[str, object] | None = None
) -> str:
    """A settings file for one link, or a broadcast to several, over plain listeners, or with a user's name and
    password."""
    lines = ["[store]", f'url = "sqlite:///{store}"', ""]
    for cluster in (source, *targets):
        addresses = ", ".join(f'"{address}"' for address in cluster.bootstrap)
        lines += [f"[clusters.{cluster.name}]", f"bootstrap = [{addresses}]", ""]
        security = cluster.security
        if security.sasl:
            lines += [f"[clusters.{cluster.name}.security]", f'sasl = "{security.sasl}"']
            lines += [f'username = "{security.username}"', f'password_file = "{security.password.file}"', ""]
    for target in targets:
        lines += [f'[links."{source.name}->{target.name}"]', f"topics = ['{topics}']"]
        lines += ['broadcast = "shown"'] if len(targets) > 1 else []
    lines += ["", "[mirror]"]
    lines += [f"{name} = {value}" for name, value in (mirror or {}).items()]
    return "\n".join(lines) + "\n"


class MirrorProcess:
    """`twinshore mirror run` with its whole tree of processes; killed and started again at will."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        *,
        target_ports: Iterable[int] = (),
        command: str = "twinshore.cli",
        start: Callable[..., Child] = start_child,
    ) -> None:
        """`command`: the module that is run. `start`: as `start_child` does."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.settings = folder / "twinshore.toml"
        self.log = folder / "mirror.log"
        self.settings.write_text(settings, encoding="utf-8")
        self._target_ports = set(target_ports)
        self._command, self._start = command, start
        self._child: Child | None = None
        self._tree: dict[int, ProcessMark] = {}

    def start(self, *arguments: str) -> None:
        """Starts it and returns at once."""
        root = Path(twinshore.__file__).resolve().parent.parent.parent
        sources = os.pathsep.join([str(root / "src"), str(root)])
        inherited = os.environ.get("PYTHONPATH", "")
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, [sources, inherited])), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", self._command, "mirror", "run", "--settings", str(self.settings), *arguments]
        self._child = self._start(command, folder=self.folder, log=self.log, environment=environment)

    @property
    def child(self) -> Child:
        if self._child is None:
            raise LabError("this mirror was never started")
        return self._child

    @property
    def said(self) -> str:
        """Everything it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def check(self) -> None:
        """Raises LabError with the end of its log when it has ended by itself."""
        if not self.child.alive():
            raise LabError(f"a mirror ended with code {self.child.exit_code}; its log's end:\n{log_tail(self.log)}")

    def pumps(self) -> list[psutil.Process]:
        """The Spark Python workers that write to the target now, and so carry a lane."""
        found = []
        for process in self.look():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                ours = any(word in words for word in _WORKER_WORDS)
                if ours and any(
                    one.raddr and one.raddr.port in self._target_ports for one in process.net_connections(kind="tcp")
                ):
                    found.append(process)
        return found

    def look(self) -> list[psutil.Process]:
        """The processes below the mirror's own, remembered for the end."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.child.pid).children(recursive=True)
            for process in found:
                with contextlib.suppress(psutil.Error):
                    self._tree[process.pid] = mark_of(process.pid)
            return list(found)
        return []

    def kill(self) -> None:
        """kill -9 for the driver; its JVM and its workers must find out by themselves."""
        self.look()
        self.child.end()

    def end(self) -> int | None:
        """An orderly stop; its exit code. Nothing of its tree is left afterwards."""
        if self._child is None:
            return None
        self.look()
        with contextlib.suppress(LabError):
            self.child.end(patience_s=STOP_PATIENCE_S)
        for mark in self._tree.values():
            mark.send(signal.SIGCONT)
            mark.end()
        return self.child.exit_code
