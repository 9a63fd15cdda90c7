"""A real Kafka cluster on loopback: one broker or three, each also a controller.

`LabBroker` has a broker's settings, its JVM, its folder, and faults. For quick starts two things are prepared once per
Kafka version. Kafka's StorageTool formats the storage; then only meta.properties is rewritten for each node, so a lab
cluster starts with the feature levels of a real one. A broker that starts and stops makes the JVM's class archive,
which halves the time and CPU of a start; a JVM that cannot use the archive starts without.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.lab.clients import create_topic, wait_for_brokers, wait_for_leaders
from twinshore.lab.jars import (
    KAFKA_NEWEST,
    ONE_COMPILER_FLAG,
    cache_folder,
    fetch_kafka_classpath,
    find_java,
    hold_cache_lock,
    make_once,
    print_notice,
)
from twinshore.lab.ports import free_port
from twinshore.lab.processes import ChildProcess, LabError, ProcessIdentity, log_tail, scratch_folder, start_child

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


_IDENTITY = re.compile(r"^(cluster\.id|node\.id|directory\.id)=.*$", re.MULTILINE)


def new_cluster_id() -> str:
    """A random id in Kafka's form: 22 characters of base64, not starting with a dash."""
    while True:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not identity.startswith("-"):
            return identity


def format_storage(version: str, data: Path, *, cluster_id: str, node_id: int) -> None:
    """Makes `data` the empty, formatted log folder of a node."""
    shutil.copytree(_template(version), data)
    meta = data / "meta.properties"
    identity = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_cluster_id()}
    text = meta.read_text(encoding="utf-8")
    meta.write_text(_IDENTITY.sub(lambda found: f"{found[1]}={identity[found[1]]}", text), encoding="utf-8")


def _template(version: str) -> Path:
    folder = cache_folder() / "formatted" / version
    return make_once(folder, "format", lambda data: _run_storage_tool(version, fetch_kafka_classpath(version), data))


def _run_storage_tool(version: str, classpath: str, data: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".format-", dir=data.parent) as scratch:
        ports = BrokerPorts(node_id=1, controller=9093, internal=9094, client=9092)
        settings = broker_settings(ports, (ports,), data)
        properties = Path(scratch, "server.properties")
        properties.write_text("\n".join(f"{name}={value}" for name, value in settings.items()), encoding="utf-8")
        tool = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(properties)]
        command = [find_java(), ONE_COMPILER_FLAG, "-Xmx128m", "-cp", classpath, *tool]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if said.returncode or not (data / "meta.properties").exists():
            raise LabError(
                "lab.cannot-set-up", what=f"the storage of Kafka {version}", cause=said.stderr[-2000:] or said.stdout
            )


_HEAP_MB = 256


def archive_flags(version: str) -> tuple[str, ...]:
    """JVM flags to start a broker of this version from its class archive."""
    archive = cache_folder() / "classes" / f"kafka-{version}-{_identity(fetch_kafka_classpath(version))}.jsa"
    if not archive.exists():
        with hold_cache_lock("classes"):
            if not archive.exists():
                print_notice(f"preparing Kafka {version} for quick starts (once)")
                archive.parent.mkdir(parents=True, exist_ok=True)
                _make(version, archive)
    # An empty file says that the archive could not be made, so that no later call tries again.
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


@functools.cache
def _identity(classpath: str) -> str:
    said = subprocess.run([find_java(), "-version"], capture_output=True, timeout=60, check=False)
    return hashlib.sha256(said.stderr + said.stdout + find_java().encode() + classpath.encode()).hexdigest()[:12]


def _make(version: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as scratch:
        folder = Path(scratch)
        made = folder / "made.jsa"
        data = folder / "data"
        format_storage(version, data, cluster_id=new_cluster_id(), node_id=1)
        ports = BrokerPorts(node_id=1, controller=free_port(), internal=free_port(), client=free_port())
        settings = broker_settings(ports, (ports,), data)
        broker = LabBroker(
            node_id=1,
            port=ports.client,
            folder=folder,
            classpath=fetch_kafka_classpath(version),
            settings=settings,
            heap_mb=_HEAP_MB,
            jvm_flags=(f"-XX:ArchiveClassesAtExit={made}",),
            registered=lambda _: None,
        )
        try:
            broker.launch()
            broker.wait_ready()
            broker.stop()
        except LabError:
            pass
        finally:
            if broker.alive:
                broker.kill()
        if not made.exists():
            made.touch()
        made.rename(archive)


HEAP_MB = 512


def check_brokers(count: int) -> None:
    """Raises ConfigError for an impossible number of brokers."""
    if count not in (1, 3):
        raise ConfigError("lab.broker-count", brokers=count)


class LabCluster:
    """A cluster to start, use by `cluster` or `bootstrap`, break by its `brokers`, and stop.

    Without `folder` the data is removed by `stop`. Brokers can restart, a stopped cluster cannot.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = KAFKA_NEWEST,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        heap_mb: int = HEAP_MB,
        jvm_flags: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        check_brokers(brokers)
        self.name = name
        self.version = version
        self.cluster_id = new_cluster_id()
        self.brokers: tuple[LabBroker, ...] = ()
        self._broker_count = brokers
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._detached = detached
        self._keep = folder is not None
        self._folder = folder

    def start(self) -> None:
        """Returns when every broker serves and knows the others."""
        if self.brokers:
            raise ConfigError("lab.started-before", cluster=self.name)
        classpath = fetch_kafka_classpath(self.version)
        self.folder = self._folder or scratch_folder(f"lab-{self.name}")
        try:
            self._start_brokers(classpath)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every broker: in order if the data stays, otherwise by kill."""
        if self._keep:
            for broker in self.brokers:
                if broker.alive:
                    broker.stop()
        for broker in self.brokers:
            if broker.alive:
                broker.kill()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def cluster(self) -> Cluster:
        """The client's view."""
        return Cluster(self.name, self.bootstrap)

    def create_topic(
        self, topic: str, *, partitions: int = 1, copies: int = -1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic and returns when each serving broker shows a leader of every partition."""
        create_topic(self._internal, topic, partitions=partitions, copies=copies, settings=settings)
        if len(self.brokers) == 1:
            return
        # Each broker learns of a topic by itself, and the next request may go to any of them.
        alive = (text for text, broker in zip(self._internal.bootstrap, self.brokers, strict=True) if broker.alive)
        wait_for_leaders(replace(self._internal, bootstrap=tuple(alive)), topic, partitions)

    def _start_brokers(self, classpath: str) -> None:
        ports = [
            BrokerPorts(node_id=node_id, controller=free_port(), internal=free_port(), client=free_port())
            for node_id in range(1, self._broker_count + 1)
        ]
        self.bootstrap = tuple(f"127.0.0.1:{broker_ports.client}" for broker_ports in ports)
        self._internal = Cluster(self.name, tuple(f"127.0.0.1:{broker_ports.internal}" for broker_ports in ports))
        self.brokers = tuple(self._broker(broker_ports, ports, classpath) for broker_ports in ports)
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        wait_for_brokers(self._internal, {broker.node_id for broker in self.brokers})

    def _broker(self, own: BrokerPorts, everyone: Sequence[BrokerPorts], classpath: str) -> LabBroker:
        folder = self.folder / f"broker-{own.node_id}"
        folder.mkdir(parents=True)
        data = folder / "data"
        format_storage(self.version, data, cluster_id=self.cluster_id, node_id=own.node_id)
        return LabBroker(
            node_id=own.node_id,
            port=own.client,
            folder=folder,
            classpath=classpath,
            settings=self._broker_settings(own, everyone, data),
            heap_mb=self._heap_mb,
            jvm_flags=self._flags(self.version),
            registered=self._wait_registered,
            detached=self._detached,
        )

    def _broker_settings(self, own: BrokerPorts, everyone: Sequence[BrokerPorts], data: Path) -> dict[str, str]:
        return {**broker_settings(own, everyone, data), **self._settings}

    def _flags(self, version: str) -> tuple[str, ...]:
        return (*archive_flags(version), *self._jvm_flags)

    def _wait_registered(self, node_id: int) -> None:
        serving = (text for text, broker in zip(self._internal.bootstrap, self.brokers, strict=True) if broker.answers)
        wait_for_brokers(replace(self._internal, bootstrap=tuple(serving)), {node_id})
