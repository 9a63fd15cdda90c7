"""`python -m bench.measure.many_links`: what one mirror process needs for many small links, in threads and connections.

The links go between aliases of two lab clusters, and each has one topic. Tasks are left out unless `--spark`: without
them no task of Spark runs, and what is measured is the driver itself. With them, Spark's Python workers are counted as
well, and the memory of all processes; pages that several share count once (PSS).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from twinshore.config.sections.mirror import MirrorSettings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import MirrorProcess
from twinshore.lab.ports import free_port
from twinshore.replication import task_pool
from twinshore.replication.task_pool import TaskEngine

SPOKES = 20  # of one source


class Parked:
    """An engine whose task runs carry nothing and never end."""

    host = "127.0.0.1"

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def ride(self, _order: str, _name: str) -> str:
        self._stop.wait()
        return "finished"

    def end(self, _name: str) -> None:
        """Nothing of it can hang."""

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing runs."""


def parked(settings: MirrorSettings, tasks: int, stop: threading.Event) -> TaskEngine:
    del settings, tasks
    return Parked(stop)


def settings_of(east: LabCluster, west: LabCluster, links: int, folder: Path, port: int) -> str:
    """Settings with so many links, from some aliases of one cluster, each to its own alias of the other."""
    lines = ["[store]", f'url = "sqlite:///{folder / "store.db"}"']
    hubs = 1 + (links - 1) // SPOKES
    for called, cluster, count in (("east", east, hubs), ("west", west, links)):
        for number in range(count):
            lines += [f"[clusters.{called}-{number}]", f"bootstrap = {list(cluster.bootstrap)}"]
    for number in range(links):
        lines += [f'[links."east-{number // SPOKES}->west-{number}"]', f"topics = ['small-{number}']"]
    lines += ["[mirror]", "tasks_per_link = 1", "disk_warn_percent = 0", f"metrics_port = {port}"]
    return "\n".join(lines) + "\n"


def figures_of(process: psutil.Process, ports: dict[int, str], links: int) -> dict[str, Any]:
    """What the process holds now. Threads and descriptors of its tasks are counted with it."""
    seen = Counter(ports[one.raddr.port] for one in process.net_connections() if one.raddr and one.raddr.port in ports)
    children = [child for child in process.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    daemons = {child.pid for child in children if "pyspark.worker" in " ".join(child.cmdline())}
    workers = [child for child in children if child.pid in daemons and child.ppid() in daemons]
    shares = [one.memory_full_info().pss for one in (process, *children)]
    return {
        "links": links,
        "threads": process.num_threads(),
        "rss_mb": round(process.memory_info().rss / 1e6),
        "cpu_s": round(sum(process.cpu_times()[:2]), 1),
        "connections": dict(seen),
        "children": len(children),
        "workers": len(workers),
        "worker_threads": [worker.num_threads() for worker in workers],
        "all_pss_mb": round(sum(shares) / 1e6),
        "each_pss_mb": [round(share / 1e6) for share in shares],
        "children_rss_mb": round(sum(child.memory_info().rss for child in children) / 1e6),
    }


def carried(port: int) -> int:
    """How many links are carried, by the mirror's own word."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            said = json.load(answer)["links"]
    except OSError:
        return 0
    return sum(one["state"] not in ("standby", "stopped") for one in said.values())


def measure(links: int, *, spark: bool, begin_s: float, watch_s: float) -> dict[str, Any]:
    """Starts it all, waits until every link is carried, and looks `watch_s` later."""
    with (
        tempfile.TemporaryDirectory(prefix="twinshore-bench-") as name,
        LabCluster("east") as east,
        LabCluster("west") as west,
    ):
        folder, port = Path(name), free_port()
        for number in range(links):
            east.create_topic(f"small-{number}")
        command = "twinshore.cli" if spark else "bench.measure.many_links"
        mirror = MirrorProcess(folder, settings_of(east, west, links, folder, port), command=command)
        begun_s = time.monotonic()
        mirror.start()
        try:
            while (now := carried(port)) < links:
                mirror.check()
                if time.monotonic() - begun_s > begin_s:
                    break  # A machine that is too small for so many: what it needs is to be seen all the same.
                time.sleep(0.5)
            took_s = time.monotonic() - begun_s
            process = psutil.Process(mirror.child.pid)
            cpu_s = sum(process.cpu_times()[:2])
            time.sleep(watch_s)
            used = (sum(process.cpu_times()[:2]) - cpu_s) / watch_s
            ports = {
                int(address.rpartition(":")[2]): cluster.name
                for cluster in (east, west)
                for address in cluster.bootstrap
            }
            found = figures_of(process, ports, links)
            return {**found, "carried": now, "began_s": round(took_s, 1), "cores": round(used, 2)}
        finally:
            mirror.kill()


def main() -> None:
    """Prints one line of JSON."""
    if sys.argv[1:2] == ["mirror"]:
        from twinshore.cli.__main__ import main as twinshore

        task_pool.open_engine = parked
        twinshore()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, default=200)
    parser.add_argument("--begin-s", type=float, default=240.0, help="how long all links have to begin")
    parser.add_argument("--watch-s", type=float, default=20.0)
    parser.add_argument("--spark", action="store_true", help="with Spark and its tasks")
    given = parser.parse_args()
    print(json.dumps(measure(given.links, spark=given.spark, begin_s=given.begin_s, watch_s=given.watch_s)))


if __name__ == "__main__":
    main()
