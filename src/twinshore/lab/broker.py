"""One broker and controller of a lab cluster: a JVM, its folder, and faults for tests."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from twinshore.lab.errors import LabError, log_tail
from twinshore.lab.jars import find_java
from twinshore.lab.processes import ChildProcess, ProcessIdentity, start_child

_READY = b"Kafka Server started"
_READY_WITHIN_S = 90.0
_STOP_PATIENCE_S = 20.0
_POLL_S = 0.05
_MARK = "process.json"

# Serial collection and few compiler threads: several brokers share a small machine.
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Xms64m",
    "-Djava.awt.headless=true",
    "-Djdk.nio.maxCachedBufferSize=1048576",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def read_process_identity(folder: Path) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.from_json(json.loads((folder / _MARK).read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        return None


class LabBroker:
    """A broker with fixed ports and folder, so a killed one can be started again."""

    def __init__(
        self,
        *,
        node_id: int,
        port: int,
        folder: Path,
        classpath: str,
        settings: Mapping[str, str],
        heap_mb: int,
        jvm_flags: Sequence[str] = (),
        registered: Callable[[int], None],
        detached: bool = False,
    ) -> None:
        self.node_id = node_id
        self.port = port
        self.folder = folder
        self.log_dir = folder / "data"
        self.log = folder / "broker.log"
        self._registered = registered
        self._detached = detached
        self._child: ChildProcess | None = None
        self._paused = False
        self._settings_file = folder / "server.properties"
        self._heap_mb = heap_mb
        self.settings = dict(settings)
        self.runs(classpath, jvm_flags)

    def runs(self, classpath: str, jvm_flags: Sequence[str]) -> None:
        """Sets the program of the next start."""
        self._command = [find_java(), *_JVM, f"-Xmx{self._heap_mb}m", *jvm_flags, "-cp", classpath, "kafka.Kafka"]

    @property
    def child(self) -> ChildProcess:
        """The running process, or the last one."""
        if self._child is None:
            raise LabError("lab.never-started", process=f"broker {self.node_id}")
        return self._child

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def alive(self) -> bool:
        """Whether the process exists, even if paused."""
        return self._child is not None and self._child.alive()

    @property
    def answers(self) -> bool:
        """Whether the broker runs and is not paused."""
        return self.alive and not self._paused

    def launch(self) -> None:
        """Starts the process and returns at once; see `wait_ready`."""
        lines = [f"{name}={value}" for name, value in self.settings.items()]
        self._settings_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [*self._command, str(self._settings_file)]
        self._paused = False
        self._child = start_child(command, folder=self.folder, log=self.log, tied=not self._detached)
        (self.folder / _MARK).write_text(json.dumps(self._child.identity.as_json()), encoding="ascii")

    def wait_ready(self, within_s: float = _READY_WITHIN_S) -> None:
        """Returns when the broker serves. Raises LabError with the log's end if the broker dies or is too slow."""
        deadline = time.monotonic() + within_s
        while not self._said_ready():
            if not self.child.alive():
                raise LabError(
                    "lab.process-ended",
                    process=f"broker {self.node_id}",
                    exit_code=self.child.exit_code,
                    log=log_tail(self.log),
                )
            if time.monotonic() > deadline:
                raise LabError("lab.not-started", process=f"broker {self.node_id}", log=log_tail(self.log))
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """kill -9: nothing is flushed."""
        self.child.end()

    def stop(self) -> None:
        """An orderly stop: leaders move first, the log is closed."""
        self.child.end(patience_s=_STOP_PATIENCE_S)

    def pause(self) -> None:
        """SIGSTOP: connections stay open without answers."""
        self._paused = True
        self.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.send(signal.SIGCONT)
        self._paused = False

    def restart(self) -> None:
        """Restarts on the same data and ports, after an orderly stop if running. Returns when the broker serves."""
        if self.alive:
            self.stop()
        self.launch()
        self.wait_ready()
        self._registered(self.node_id)

    def _said_ready(self) -> bool:
        with self.log.open("rb") as handle:
            handle.seek(self._log_start)
            return _READY in handle.read()
