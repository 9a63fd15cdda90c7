"""A proxy behind a balancer that clients of two sites come by, and clients that say at which site they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testkit.jars import fetch_tools_classpath
from tests.proxy.served import NODES, ProxyProcess
from tests.proxy.test_proxy_header import binary
from tests.scenarios.mirror_rig import url_in
from tests.scenarios.plain_clients import Acked, PlainReader, PlainWriter
from tests.scenarios.switch_rig import SwitchRig
from tests.scenarios.test_following_writers import until
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import ONE_COMPILER_FLAG, find_java

HOST = "127.0.0.2"
# By how clients' ids begin: where the balancer says that they come from.
CLIENTS = {"frankfurt": bytes([10, 1, 0, 7]), "paris": bytes([10, 2, 0, 7])}
BEHIND_S = 4
SETTINGS = f"""\
advertised_host = "{HOST}"
balancers = ["127.0.0.1"]
[near]
own_topics = ["near-logs*"]
behind_s_max = {BEHIND_S}
[near.networks]
"10.1.0.0/16" = "frankfurt"
"10.2.0.0/16" = "paris"
"""


class Balancer:
    """Takes connections at the proxy's ports on another address, and passes them on with a PROXY header."""

    def __init__(self, ports: range) -> None:
        self._ports, self._begun = ports, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._begun.wait(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        servers = [await asyncio.start_server(self._passes(port), HOST, port) for port in self._ports]
        self._begun.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0.1)

    def _passes(self, port: int) -> Any:
        async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass_on(reader, writer, port)
            writer.close()
            self._tasks.discard(task)

        return come

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """A client says its name in the header of its first request."""
        first = await reader.readexactly(14)
        (size,) = struct.unpack_from(">h", first, 12)
        name = await reader.readexactly(size)
        site = name.decode().partition("-")[0]
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        outer.write(binary(CLIENTS.get(site, bytes([192, 168, 0, 1]))) + first + name)
        await asyncio.gather(_task(reader, outer), _task(inner, writer))


async def _task(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@dataclass
class NearRig:
    """East is in Frankfurt, west in Paris. `more`: records that others wrote."""

    rig: SwitchRig
    proxy: ProxyProcess
    before: int
    stack: ExitStack
    writers: list[PlainWriter] = field(default_factory=list)
    more: int = 0

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.proxy.port}"

    def writer(self, per_s: float = 300) -> PlainWriter:
        name = f"frankfurt-{len(self.writers)}"
        made = PlainWriter(self.bootstrap, self.rig.topic, per_s, name, **{"client.id": name})
        self.stack.callback(made.stop)
        self.writers.append(made)
        return made

    def reader(self, site: str, **settings: Any) -> PlainReader:
        named = {"client.id": f"{site}-reader", "fetch.error.backoff.ms": 50, **settings}
        made = PlainReader(self.bootstrap, f"{self.rig.topic}-{site}", [self.rig.topic], **named)
        self.stack.callback(made.stop)
        return made

    def java_reader(self, folder: Path, site: str) -> JavaReader:
        made = JavaReader(folder, self.bootstrap, self.rig.topic, site)
        self.stack.callback(made.kill)
        until(lambda: bool(made.spans()), 120, "it reads")
        return made

    def near_bytes(self, cluster: str) -> float:
        return self.proxy.metrics().get(f'twinshore_proxy_follower_bytes_total{{cluster="{cluster}"}}', 0.0)

    def reads_near(self, cluster: str, within_s: float = 120) -> None:
        """Returns once something was read at that cluster that was not read there before."""
        count = self.near_bytes(cluster)
        until(lambda: self.near_bytes(cluster) > count, within_s, f"somebody reads near on {cluster}")

    def acked(self) -> list[Acked]:
        return [one for writer in self.writers for one in writer.stop()]


class JavaReader:
    """Kafka's verifiable consumer, which says what it has read, from where to where."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, site: str) -> None:
        self._said, self._log = folder / f"{site}-java.said", folder / f"{site}-java.log"
        settings = folder / f"{site}-java.properties"
        settings.write_text(f"client.id={site}-java\nisolation.level=read_committed\n")
        words = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", f"java-{topic}"]
        words += ["--reset-policy", "earliest", "--command-config", str(settings)]
        command = [
            find_java(),
            ONE_COMPILER_FLAG,
            "-cp",
            fetch_tools_classpath(),
            "org.apache.kafka.tools.VerifiableConsumer",
            *words,
        ]
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=said, stderr=log)

    def spans(self) -> list[tuple[int, int, int]]:
        """Partition, first offset and last offset of what was read at once."""
        lines = [json.loads(line) for line in self._said.read_text().split("\n")[:-1] if line.startswith("{")]
        parts = [part for one in lines if one["name"] == "records_consumed" for part in one["partitions"]]
        return [(one["partition"], one["minOffset"], one["maxOffset"]) for one in parts]

    def places(self) -> Counter[tuple[int, int]]:
        return Counter((part, at) for part, first, last in self.spans() for at in range(first, last + 1))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def said(self) -> str:
        return self._log.read_text()[-3000:]


@contextmanager
def before_sites(rig: SwitchRig, folder: Path) -> Iterator[NearRig]:
    """A proxy with the store of the mirror, behind its balancer."""
    with ExitStack() as stack:
        proxy = balanced(stack, folder, rig.east, rig.west, url_in(rig.rig.folder))
        yield NearRig(rig, proxy, sum(rig.level()), stack)


def balanced(stack: ExitStack, folder: Path, east: LabCluster, west: LabCluster, store: str = "") -> ProxyProcess:
    """A proxy that serves, and its balancer."""
    clusters = [replace(east.cluster, site="frankfurt"), replace(west.cluster, site="paris")]
    proxy = ProxyProcess(folder, clusters, more=SETTINGS, store=store)
    stack.callback(proxy.close)
    proxy.start()
    balancer = Balancer(range(proxy.port, proxy.port + 1 + 2 * NODES))
    stack.callback(balancer.close)
    return proxy
