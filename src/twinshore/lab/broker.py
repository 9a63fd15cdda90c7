"""One broker and controller of a lab cluster: its settings, its JVM, its folder, and faults."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The listeners of one broker."""

    node_id: int
    controller: int
    internal: int
    client: int


def broker_settings(own: BrokerPorts, everyone: Sequence[BrokerPorts], data: Path) -> dict[str, str]:
    """The settings of one broker, with plain-text listeners.

    Brokers and the lab have a listener of their own, so changed client credentials cannot break the cluster.
    """
    copies = str(min(len(everyone), 3))
    clients = {"INTERNAL": own.internal, "CLIENT": own.client}
    listeners = {"CONTROLLER": own.controller, **clients}
    return {
        "process.roles": "broker,controller",
        "node.id": str(own.node_id),
        "controller.quorum.voters": ",".join(f"{ports.node_id}@127.0.0.1:{ports.controller}" for ports in everyone),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(clients),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        # A broker killed with -9 can register again only when its old session has ended: 9 s by Kafka's default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Idle controllers write to their log twice a second, a third of an idle broker's work. Several brokers share a
        # small machine.
        "metadata.max.idle.interval.ms": "5000",
    }


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


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
