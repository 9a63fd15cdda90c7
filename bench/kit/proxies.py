"""What may stand between clients and a cluster: nothing, a forwarder that reads nothing, the proxies, each as a process
of its own."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import twinshore
from testkit.cluster import RigCluster
from testkit.copiers import KAFKA_JVM
from testkit.jars import compile_java, fetch_python_packages
from twinshore.config.model import Cluster
from twinshore.lab.jars import MavenModule, fetch_jars, find_java
from twinshore.lab.ports import free_port_range
from twinshore.lab.processes import ChildProcess, LabError, log_tail, start_child
from twinshore.proxy.operations.breakers import SetBreakerLimits, act, build_limits, plan_limits, select_breakers
from twinshore.state.store import open_store

UVLOOP = "uvloop==0.23.0"
KROXYLICIOUS = "0.12.0"
# Numbers of the lab's brokers are below that.
_NODES = 4
_SERVES_WITHIN_S = 60.0
# Above all that passes: it is counted, and nothing is cut.
_BYTES_S, _RECORDS_S = 10**11, 10**9


@dataclass(frozen=True, slots=True)
class Serving:
    """One that serves clients at `bootstrap`; nothing runs where there is no child."""

    bootstrap: str
    child: ChildProcess | None = None

    def end(self) -> None:
        if self.child is not None:
            self.child.end(patience_s=15)


@dataclass(frozen=True, slots=True)
class Site:
    """Where something is to serve: before `cluster`, with its files in `folder`, which is empty. `beside` is another
    cluster, for those that take several."""

    cluster: RigCluster
    beside: Cluster
    folder: Path


class Between(Protocol):
    """Something that clients may come by."""

    @property
    def name(self) -> str:
        """As the page calls it."""

    def start(self, site: Site) -> Serving:
        """LabError where it cannot be had here."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Clients come to the brokers themselves."""

    name: str = "no proxy"

    def start(self, site: Site) -> Serving:
        return Serving(site.cluster.bootstrap[0])


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes are passed on unread by uvloop: what a proxy in Python can cost at least. It needs a broker that says the
    forwarder's address for its own, so it takes the place of the lab's fault proxy."""

    name: str = "opaque forwarder"

    def start(self, site: Site) -> Serving:
        there = site.cluster.proxy(0)
        there.stop()
        words = [str(there.port), *map(str, there.target)]
        command = [sys.executable, str(Path(__file__).with_name("forwarder.py")), *words]
        path = {"PYTHONPATH": str(fetch_python_packages(UVLOOP))}
        child = start_child(command, folder=site.folder, log=site.folder / "log", environment=path)
        return _serving(there.address, child, site.folder / "log")


@dataclass(frozen=True, slots=True)
class Ours:
    """`twinshore proxy run` before both clusters, with what it does by default. `guarded`: with a quota, and breakers
    that measure every topic. `carried`: topics that count as replicated from the second cluster to the first.
    """

    guarded: bool = True
    carried: str = ""

    @property
    def name(self) -> str:
        return "Twinshore"

    def start(self, site: Site) -> Serving:
        port, folder = free_port_range(1 + 2 * _NODES), site.folder
        settings = folder / "proxy.toml"
        settings.write_text(self.settings(port, (site.cluster.cluster, site.beside), folder), encoding="utf-8")
        if self.guarded:
            guard_all(f"sqlite:///{folder}/store.db")
        sources = str(Path(twinshore.__file__).resolve().parent.parent)
        inherited = os.environ.get("PYTHONPATH", "")
        child = start_child(
            [sys.executable, "-m", "twinshore.cli", "proxy", "run", "--settings", str(settings)],
            folder=folder,
            log=folder / "log",
            environment={"PYTHONPATH": os.pathsep.join(filter(None, [sources, inherited]))},
        )
        return _serving(f"127.0.0.1:{port}", child, folder / "log")

    def settings(self, port: int, clusters: Sequence[Cluster], folder: Path) -> str:
        """What its settings file holds; the store is in `folder`."""
        lines = ["[store]", f'url = "sqlite:///{folder}/store.db"']
        lines += ["[proxy]", f"port = {port}", f"nodes_per_cluster = {_NODES}"]
        lines += [f"client_bytes_s = {_BYTES_S}"] if self.guarded else []
        for one in clusters:
            addresses = ", ".join(f'"{address}"' for address in one.bootstrap)
            lines += [f"[clusters.{one.name}]", f"bootstrap = [{addresses}]"]
        if self.carried:
            first, second = (one.name for one in clusters)
            lines += [f'[links."{second}->{first}"]', f'topics = ["{self.carried}"]']
        return "\n".join(lines) + "\n"


def guard_all(url: str) -> None:
    """Breakers for every topic and client, whose limits nobody reaches: all that passes is measured."""
    with open_store(url) as store:
        for asked, limits in (
            (select_breakers("*", "*", produce=True, fetch=False), build_limits(_RECORDS_S, _BYTES_S, 0, 5, 30)),
            (select_breakers("*", "*", produce=False, fetch=True), build_limits(0, _BYTES_S, 0, 5, 30)),
        ):
            planned = plan_limits(SetBreakerLimits(asked, limits, "a bench"), store, by="bench")
            list(act(planned, store, by="bench"))


@dataclass(frozen=True, slots=True)
class KafkaProxy:
    """grepplabs/kafka-proxy, a program in Go: the one that KAFKA_PROXY names, or of that name on the path."""

    name: str = "kafka-proxy (Go)"

    def start(self, site: Site) -> Serving:
        program = os.environ.get("KAFKA_PROXY") or shutil.which("kafka-proxy")
        if not program:
            raise LabError("there is no kafka-proxy on the path, and KAFKA_PROXY names none")
        ports = free_port_range(2)
        command = [program, "server", "--default-listener-ip", "127.0.0.1", "--http-disable", "--log-level", "warning"]
        command += ["--bootstrap-server-mapping", f"{site.cluster.bootstrap[0]},127.0.0.1:{ports}"]
        command += ["--dynamic-sequential-min-port", str(ports + 1)]
        child = start_child(command, folder=site.folder, log=site.folder / "log")
        return _serving(f"127.0.0.1:{ports}", child, site.folder / "log")


_LAUNCHER = """\
import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

public final class RunProxy {
    public static void main(String[] words) throws Exception {
        ConfigParser parser = new ConfigParser();
        String text = Files.readString(Path.of(words[0]));
        try (KafkaProxy proxy = new KafkaProxy(parser, parser.parseConfiguration(text), Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
"""
_CONFIGURATION = """\
virtualClusters:
  - name: bench
    targetCluster:
      bootstrapServers: {bootstrap}
    gateways:
      - name: plain
        portIdentifiesNode:
          bootstrapAddress: 127.0.0.1:{port}
          nodeIdRanges:
            - name: brokers
              start: 0
              end: 3
"""


@dataclass(frozen=True, slots=True)
class Kroxylicious:
    """Its runtime, without filters, in a virtual machine that is set as Kafka's own are."""

    name: str = "Kroxylicious (Java)"

    def start(self, site: Site) -> Serving:
        jars = fetch_jars(
            f"Kroxylicious {KROXYLICIOUS}", MavenModule("io.kroxylicious", "kroxylicious-runtime", KROXYLICIOUS)
        )
        folder = site.folder
        source = folder / "RunProxy.java"
        source.write_text(_LAUNCHER, encoding="utf-8")
        path = compile_java(source, os.pathsep.join(map(str, sorted(jars.glob("*.jar")))), folder)
        port = free_port_range(1 + _NODES)
        settings = folder / "proxy.yaml"
        settings.write_text(_CONFIGURATION.format(bootstrap=site.cluster.bootstrap[0], port=port), encoding="utf-8")
        command = [find_java(), *KAFKA_JVM, "-Xmx1G", "-cp", path, "RunProxy", str(settings)]
        child = start_child(command, folder=folder, log=folder / "log")
        return _serving(f"127.0.0.1:{port}", child, folder / "log")


def _serving(bootstrap: str, child: ChildProcess, log: Path) -> Serving:
    """Returns once clients are answered there."""
    until_s = time.monotonic() + _SERVES_WITHIN_S
    asker = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500})
    while True:
        try:
            if asker.list_topics(timeout=2).brokers:
                return Serving(bootstrap, child)
        except KafkaException as error:
            if not child.alive() or time.monotonic() > until_s:
                child.end()
                told = log_tail(log) if log else ""
                raise LabError(
                    f"it does not serve at {bootstrap}: {error.args[0].str()}; its log's end:\n{told}"
                ) from None
            time.sleep(0.2)


# The one that is measured against, the peers, and the limit.
PEERS: tuple[Between, ...] = (KafkaProxy(), Kroxylicious())
