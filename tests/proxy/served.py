"""A proxy as a process of its own, by the command, before clusters that a test names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

import twinshore
from tests.scenarios.mirror_rig import security_lines
from twinshore.config.model import Cluster
from twinshore.lab.ports import free_port, free_port_range

# Numbers of a lab's brokers are below that.
NODES = 4


class ProxyProcess:
    """`twinshore proxy run`, with settings in a folder of its own."""

    def __init__(self, folder: Path, clusters: Iterable[Cluster], *, more: str = "", store: str = "") -> None:
        self.clusters = list(clusters)
        self.port, self.metrics_port = free_port_range(1 + NODES * len(self.clusters)), free_port()
        self.url = store or f"sqlite:///{folder}/store.db"
        self.settings = folder / "proxy.toml"
        self._log = folder / "proxy.log"
        self._child: subprocess.Popen[bytes] | None = None
        text = f'[store]\nurl = "{self.url}"\n[proxy]\nport = {self.port}\nnodes_per_cluster = {NODES}\n'
        text += f"metrics_port = {self.metrics_port}\n{more}"
        for one in self.clusters:
            text += f"[clusters.{one.name}]\nbootstrap = {json.dumps(list(one.bootstrap))}\n"
            text += f"site = {json.dumps(one.site)}\n"
            text += "".join(f"{line}\n" for line in security_lines(one.name, one.security))
        self.settings.write_text(text)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def number_of(self, cluster: str, node: int) -> int:
        names = [one.name for one in self.clusters]
        return names.index(cluster) * NODES + node

    def port_of(self, cluster: str, node: int) -> int:
        return self.port + 1 + self.number_of(cluster, node)

    def launch(self, module: Sequence[str] = ("twinshore.cli",)) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(twinshore.__path__[0]).parent)}
        self._begun = len(self.said())
        command = [sys.executable, "-m", *module, "proxy", "run", "--settings", str(self.settings)]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def start(self, module: Sequence[str] = ("twinshore.cli",)) -> None:
        """Returns once clients are let in."""
        self.launch(module)
        assert self._child is not None
        until_s = time.monotonic() + 120
        while not re.search(r"serves clients of .* at ", self.said()[self._begun :]):
            assert time.monotonic() < until_s, self.said()
            assert self._child.poll() is None, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def has_said(self, text: str) -> bool:
        return text in self.said()

    @property
    def process(self) -> psutil.Process:
        assert self._child is not None
        return psutil.Process(self._child.pid)

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory_mb(self) -> float:
        return float(self.process.memory_info().rss) / (1 << 20)

    def health(self) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/health", timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def metrics(self) -> dict[str, float]:
        """Each figure by its name, with its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if line[:1] != "#"]
        return {name: float(value) for name, _, value in lines}

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self._child is not None
        self._child.send_signal(number)
        code = self._child.wait(30)
        self._child = None
        return code

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(30)


@contextlib.contextmanager
def proxy_before(folder: Path, *clusters: Cluster, more: str = "") -> Iterator[ProxyProcess]:
    """A proxy that serves, until the block ends."""
    made = ProxyProcess(folder, clusters, more=more)
    try:
        made.start()
        yield made
    finally:
        made.close()
