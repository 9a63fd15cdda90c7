"""Everything that the demo starts, and its end: at once, or by `twinshore demo --end` if kept."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil

from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import ONE_COMPILER_FLAG, fetch_kafka_classpath
from twinshore.lab.mirror_process import MirrorProcess, VerbProcess, settings_of
from twinshore.lab.ports import free_port_range
from twinshore.lab.processes import LabError, ProcessIdentity, get_process_identity, log_tail, start_child
from twinshore.lab.produce import Workload

STOP_PATIENCE_S = 15.0
NODES = 4  # the lab's broker ids are small
STARTS_WITHIN_S = 60.0
_SERVES = "serves clients of"


def proxy_section(clusters: Sequence[Cluster]) -> tuple[int, list[str]]:
    """Returns the proxy's first port and its settings for these clusters."""
    names = ", ".join(f'"{cluster.name}"' for cluster in clusters)
    port = free_port_range(1 + NODES * len(clusters))
    return port, [
        "[proxy]",
        'advertised_host = "127.0.0.1"',
        f"port = {port}",
        f"clusters = [{names}]",
        f"nodes_per_cluster = {NODES}",
    ]


class DemoMirror(MirrorProcess):
    """`twinshore mirror run` between two clusters, with settings, store and log in `folder`.

    `more`: further settings, for processes that share the file.
    """

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
        # Short, so that the demo shows tasks moving from one Spark job to the next.
        text = settings_of(source, target, store=folder / "store.db", topics=topics, mirror={"task_run_s": 10})
        ports = {int(address.rpartition(":")[2]) for address in target.bootstrap}
        start = partial(start_child, tied=not detached)
        super().__init__(folder, "\n".join([text, *more, ""]), target_ports=ports, start=start)

    def kill_one_worker(self) -> int:
        """Kills one worker that runs a task, with -9; returns its pid."""
        task_processes = self.task_processes()
        if not task_processes:
            raise LabError("lab.no-worker", log=str(self.log))
        victim = task_processes[0]
        victim.send_signal(signal.SIGKILL)
        return int(victim.pid)


def _wait_until(is_ready: Callable[[], object], process: VerbProcess, name: str) -> None:
    until_s = time.monotonic() + STARTS_WITHIN_S
    while not is_ready():
        if not process.child.alive() or time.monotonic() > until_s:
            raise LabError("lab.not-started", process=name, log=log_tail(process.log))
        time.sleep(0.05)


class DemoProxy(VerbProcess):
    """`twinshore proxy run` with the mirror's settings and store: the one address of producers and the group."""

    def __init__(self, mirror: DemoMirror, port: int, *, detached: bool = False) -> None:
        start = partial(start_child, tied=not detached)
        super().__init__(("proxy", "run"), mirror.settings, mirror.folder / "proxy.log", start=start)
        self.cluster = Cluster("proxy", (f"127.0.0.1:{port}",))

    def start(self, *arguments: str) -> None:
        """Returns once the proxy serves."""
        super().start(*arguments)
        _wait_until(lambda: _SERVES in self.said, self, "the proxy")


class DemoPlatform(VerbProcess):
    """`twinshore serve` with the mirror's settings and store, at a free port."""

    def __init__(self, mirror: DemoMirror) -> None:
        start = partial(start_child, tied=False)
        super().__init__(("serve",), mirror.settings, mirror.folder / "platform.log", start=start)

    def start(self, *arguments: str) -> None:
        """Returns once its address is known."""
        super().start(*arguments)
        _wait_until(lambda: self.address, self, "the platform")

    @property
    def address(self) -> str:
        """Where the first admin is made, and then all is shown."""
        found = re.search(r"https?://\S+/first-admin\S+", self.said)
        return found[0] if found else ""


KEPT_FILE = "demo.json"
BROKER_HEAP_MB = 384
STOP_PATIENCE_LOST_S = 3.0


class DemoStage:
    """Two clusters, a load, a mirror and a proxy in one temporary folder. `close` ends everything started so far."""

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="twinshore-demo-"))
        self.east, self.west = (self._cluster(name) for name in ("east", "west"))
        self.loads: list[Workload] = []
        self.mirror: DemoMirror | None = None
        self.proxy: DemoProxy | None = None
        self._started: list[LabCluster] = []
        self._source_lost = False

    def start_clusters(self) -> None:
        """Starts both in parallel; returns when both serve."""
        fetch_kafka_classpath()
        with ThreadPoolExecutor(2) as pool:
            for cluster in (self.east, self.west):
                self._started.append(cluster)
            for done in [pool.submit(cluster.start) for cluster in (self.east, self.west)]:
                done.result()

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Creates the topics on the source only."""
        for topic, partitions in topics.items():
            self.east.create_topic(topic, partitions=partitions)

    def start_load(
        self, cluster: Cluster, topics: Mapping[str, int], compressions: tuple[str, ...], records_per_s: float
    ) -> None:
        """Writes to all topics at this address; the rate is shared."""
        quiet: dict[str, str | int] = {"log_level": 0}
        for seed, topic in enumerate(topics):
            share = records_per_s / len(topics)
            load = Workload(cluster, topic, records_per_s=share, compressions=compressions, settings=quiet, seed=seed)
            load.start()
            self.loads.append(load)

    def slow_load(self) -> None:
        """Halves the rate."""
        for load in self.loads:
            load.slow_down()

    def stop_load(self) -> int:
        return sum([load.stop() for load in self.loads])

    def start_mirror(self, topics: Mapping[str, int]) -> DemoMirror:
        """Starts the mirror and returns at once."""
        clusters = self.east.cluster, self.west.cluster
        self._port, lines = proxy_section(clusters)
        more = [*lines, "[serve]", "port = 0"]
        self.mirror = DemoMirror(self.folder, *clusters, "|".join(topics), more=more, detached=self.keep)
        self.mirror.start()
        return self.mirror

    def start_proxy(self) -> Cluster:
        """Starts the proxy and returns the clients' view once it serves."""
        assert self.mirror is not None
        self.proxy = DemoProxy(self.mirror, self._port, detached=self.keep)
        self.proxy.start()
        return self.proxy.cluster

    def kill_east(self) -> None:
        """kill -9 for every broker of the source."""
        self._source_lost = True
        for broker in self.east.brokers:
            broker.kill()

    def restart_east(self) -> None:
        """Returns when the source serves again."""
        for broker in self.east.brokers:
            broker.restart()
        self._source_lost = False

    def leave_running(self) -> list[str]:
        """Records what runs, so that `end_kept` ends only that. Returns lines on how to look and how to end."""
        assert self.mirror is not None and self.proxy is not None
        brokers = [broker.child.identity for cluster in (self.east, self.west) for broker in cluster.brokers]
        platform = DemoPlatform(self.mirror)
        platform.start()
        marks = [one.as_json() for one in (self.mirror.mark, platform.mark, self.proxy.mark, *brokers)]
        (self.folder / KEPT_FILE).write_text(json.dumps({"processes": marks}), encoding="utf-8")
        command = f"{sys.executable} -m twinshore.cli"
        return [
            f"KEEP=1: left running in {self.folder}",
            f"  east {', '.join(self.east.bootstrap)}; west {', '.join(self.west.bootstrap)}",
            f"  the proxy {', '.join(self.proxy.cluster.bootstrap)}, its log {self.proxy.log}",
            f"  the mirror is process {self.mirror.mark.pid}, its log {self.mirror.log}",
            f"  all of it on pages: {platform.address}",
            f"  look: {command} status --watch --settings {self.mirror.settings}",
            f"  end:  {command} demo --end {self.folder}",
        ]

    def close(self) -> None:
        """Ends everything and removes the folder. Signals are ignored until done."""
        with _undisturbed():
            with contextlib.suppress(Exception):
                # A failure has been reported by then, or does not matter any more.
                self.stop_load()
            if self.proxy is not None:
                self.proxy.end(0)  # open connections are reset
            if self.mirror is not None:
                # Without its source the mirror has nothing to finish, and would wait.
                self.mirror.end(STOP_PATIENCE_LOST_S if self._source_lost else STOP_PATIENCE_S)
            for cluster in self._started:
                for broker in cluster.brokers:
                    # The data goes with the folder, so no orderly end is needed.
                    broker.kill()
                if hasattr(cluster, "folder"):
                    cluster.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _cluster(self, name: str) -> LabCluster:
        folder = self.folder / name
        folder.mkdir()
        return LabCluster(
            name, folder=folder, heap_mb=BROKER_HEAP_MB, jvm_flags=(ONE_COMPILER_FLAG,), detached=self.keep
        )


def end_kept(folder: Path) -> int:
    """Ends a kept demo and removes its folder; returns how many processes still ran."""
    file = folder / KEPT_FILE
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        marks = [ProcessIdentity.from_json(one) for one in raw["processes"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("lab.not-a-demo", folder=str(folder), file=file.name) from error
    running = [identity for identity in marks if identity.alive()]
    mirror, *servers = marks
    below = []
    for mark in running:
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(mark.pid).children(recursive=True)
            below += [get_process_identity(child.pid) for child in children]
    mirror.end(patience_s=STOP_PATIENCE_S)
    for identity in below:
        identity.end(patience_s=2.0)
    for server in servers:
        server.end()
    shutil.rmtree(folder, ignore_errors=True)
    return len(running)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignores signals: a second Ctrl-C would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
