"""What protection costs: a producer behind a proxy writes to a topic that both sides acknowledge, and to another."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import KafkaError, Message, Producer

from testkit.cluster import RigCluster
from testkit.figures import percentile
from testkit.switch_under_load import until
from testkit.verbs import run_verb
from twinshore.config.model import Cluster
from twinshore.lab.clients import create_admin_client
from twinshore.lab.mirror_process import MirrorProcess, VerbProcess, settings_of
from twinshore.lab.ports import free_port_range
from twinshore.lab.processes import LabError

LEVELS = ("async", "sync")
READY_S, VALUE = 240.0, b"v" * 100


@dataclass(frozen=True, slots=True)
class LevelCost:
    """`cpu`: seconds of the proxy's processor for each second."""

    p50_ms: float
    p99_ms: float
    per_s: float
    cpu: float


@contextmanager
def protected_stage(command: str) -> Iterator[tuple[Cluster, psutil.Process]]:
    """Two clusters, a mirror and a proxy; of the topics `async` and `sync` the second is acknowledged by both sides."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-protection-")))
        east, west = (stack.enter_context(RigCluster(name, heap_mb=512)) for name in ("east", "west"))
        for topic in LEVELS:
            east.create_topic(topic, partitions=1)
        port = free_port_range(9)
        proxy_section = f"[proxy]\nport = {port}\nnodes_per_cluster = 4\nmetrics_port = 0\n"
        text = settings_of(
            east.cluster, west.cluster, store=folder / "store.db", topics="|".join(LEVELS),
            mirror={"disk_warn_percent": 0},
        )  # fmt: skip
        mirror = MirrorProcess(folder, text + proxy_section, command=command)
        mirror.start()
        stack.callback(mirror.end)
        admin = create_admin_client(west.cluster)
        until(lambda: set(LEVELS) <= admin.list_topics(timeout=10).topics.keys(), READY_S, "the twins are there")

        def protects() -> bool:
            """The store may not have the twin yet."""
            try:
                run_verb(
                    ["protection", "set", "sync", "--level", "sync"], mirror.settings, command=command, within_s=60
                )
            except LabError:
                return False
            return True

        until(protects, READY_S, "the topic is protected")
        proxy = VerbProcess(("proxy", "run"), mirror.settings, folder / "proxy.log", command=command)
        proxy.start()
        stack.callback(proxy.end)
        until(lambda: "serves clients of" in proxy.said, READY_S, "the proxy serves")
        yield Cluster("proxy", (f"127.0.0.1:{port}",)), psutil.Process(proxy.mark.pid)


def measure(cluster: Cluster, proxy: psutil.Process, topic: str, per_s: float, seconds: float) -> LevelCost:
    """Delays of acknowledgements at a rate."""
    delays: list[float] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap[0], "acks": "all", "linger.ms": 0, "log_level": 2})

    def told(sent_s: float, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        delays.append(time.monotonic() - sent_s)

    def send() -> None:
        producer.produce(topic, VALUE, on_delivery=partial(told, time.monotonic()))

    for _ in range(50):
        send()
        producer.flush(30)
    delays.clear()
    before, began_s, sent = sum(proxy.cpu_times()[:2]), time.monotonic(), 0
    while (now_s := time.monotonic() - began_s) < seconds:
        while sent < now_s * per_s:
            send()
            sent += 1
        producer.poll(0.001)
    producer.flush(60)
    took_s = time.monotonic() - began_s
    ordered = sorted(delays)
    cpu = (sum(proxy.cpu_times()[:2]) - before) / took_s
    return LevelCost(1000 * percentile(ordered, 0.5), 1000 * percentile(ordered, 0.99), len(ordered) / took_s, cpu)


def measure_levels(
    rates: Sequence[float], seconds: float, *, turns: int, say: Callable[[str], None], command: str
) -> dict[tuple[str, float], LevelCost]:
    """By level and rate the best of `turns`, the levels in turn in one run."""
    found: dict[tuple[str, float], LevelCost] = {}
    with protected_stage(command) as (cluster, proxy):
        for rate in rates:
            for turn in range(turns):
                for level in LEVELS:
                    cost = measure(cluster, proxy, level, rate, seconds)
                    figures = f"p50 {cost.p50_ms:.1f}, p99 {cost.p99_ms:.1f} ms, CPU {cost.cpu:.3f}"
                    say(f"{level} at {rate:g}/s, turn {turn + 1}: {figures}")
                    if (level, rate) not in found or cost.p50_ms < found[level, rate].p50_ms:
                        found[level, rate] = cost
    return found
