"""What a pump costs: its CPU for each record, between two peers on loopback that speak as brokers do, at no cost to it.

    python -m bench.measure.pump_rig [COMMIT] [--turns N] [--records N]

The pump is the shipped one with its desk, its loop, its lines and all decisions; only who leads, and where twins end,
it is told at once. The collector of garbage is told what a tide tells it. The pump runs by turns with the one of
COMMIT, which is checked out beside for as long; the best of all turns counts, since the machine is shared. The peers
are processes of their own, whose CPU does not count. Both pumps have the bounds that the settings of this tree give
where nothing is set.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import twinshore.replication.task.runner as shipped
from bench.measure.rig_peers import END, TOPIC, TOPIC_ID, WORKLOADS, peers
from twinshore.config.model import Cluster, Security, TopicPartition
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.connection import open_connection
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.task import runner
from twinshore.replication.task.core.messages import PartitionConfig, TaskConfig, TaskLimits, limits_from_settings
from twinshore.replication.task.core.partition import PartitionLeaders
from twinshore.replication.task.core.position import TargetState
from twinshore.replication.task.lookups import ConnectionOpened, LeadersFound, TwinsInspected

if TYPE_CHECKING:
    from twinshore.replication.core.coordinator import TaskReport

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "22203342"
LINK = "east->west"
RUN_S_MAX = 180.0
WARM_PART = 0.2


# -- the task


class ToldScout:
    """Stands in for the pump's errands, which are no part of what is measured: it answers at once."""

    units = None

    def __init__(self, addresses: dict[str, tuple[str, int]]) -> None:
        self._addresses = addresses
        self.wake_socket, self._bell = socket.socketpair()
        self._reports: list[object] = []

    def take(self) -> list[object]:
        self.wake_socket.recv(4096)
        found, self._reports = self._reports, []
        return found

    def _tell(self, report: object) -> None:
        self._reports.append(report)
        self._bell.send(b"!")

    def learn(self, _: object) -> None: ...

    def cut(self, *_: object) -> None: ...

    def dial(self, side: str, _node: int, key: object) -> None:
        connection = open_connection(self._addresses[side], Security())
        connection.transport.setblocking(False)
        self._tell(ConnectionOpened(side, key, connection))

    def ask_routes(self, tracks: Iterable[Any]) -> None:
        self._tell(LeadersFound({track.named: PartitionLeaders(1, 0, 2, target_epoch=0) for track in tracks}))

    def look(self, partitions: Iterable[TopicPartition], _: object) -> None:
        self._tell(TwinsInspected({named: TargetState(0, 0, 0, None, None, 0, END) for named in partitions}))

    def close(self) -> None:
        self.wake_socket.close()
        self._bell.close()


class Count:
    """Looks at the CPU of this thread once the task is warm, and once enough has crossed."""

    def __init__(self, wanted: int) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._warm, self._wanted = int(WARM_PART * wanted), wanted
        self._records = 0
        self._looks: list[tuple[float, int]] = []
        self.done = threading.Event()

    def take(self, account: TaskReport) -> None:
        self._records += sum(entry.records for entry in account.carried)
        least = max(self._wanted, self._looks[0][1] + 1) if self._looks else self._warm
        if self._records >= least and not self.done.is_set():
            self._looks.append((time.clock_gettime(self._clock), self._records))
            if len(self._looks) == 2:
                self.done.set()

    def us(self) -> float:
        (began_s, first), (ended_s, last) = self._looks
        return 1e6 * (ended_s - began_s) / (last - first)


def finish_once(done: threading.Event, coordinator: CoordinatorServer) -> None:
    done.wait(RUN_S_MAX)
    coordinator.finish_all(LINK)


def shipped_bounds() -> dict[str, float]:
    """What the settings give where nothing is set; on a busy machine the peers may seem far away, and what is far is
    read in another way."""
    return {**dataclasses.asdict(limits_from_settings(MirrorSettings())), "far_streams": 1}


def limits_from(bounds: dict[str, Any]) -> TaskLimits:
    """An older tree may not know all of them."""
    known = {one.name for one in dataclasses.fields(TaskLimits)}
    return TaskLimits(**{name: value for name, value in bounds.items() if name in known})


def once(workload: str, records: int, limits: TaskLimits) -> float:
    """Microseconds of CPU that the pump's thread takes for a record."""
    with peers(workload) as addresses:
        setattr(shipped, "BlockingCalls", lambda *_: ToldScout(addresses))  # noqa: B010
        count = Count(records)
        coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 60.0, take=count.take)
        coordinator.open_task((LINK, 0), 30.0)
        orders = [
            PartitionConfig(TOPIC, number, TOPIC_ID.hex(), "22" * 16)
            for number in range(WORKLOADS[workload].partitions)
        ]
        coordinator.assign((LINK, 0), orders)
        cluster = Cluster("rig", ("127.0.0.1:1",))
        sides = (cluster, cluster, 7, 0, 86_400_000)
        token = coordinator.token_of((LINK, 0))
        at = (coordinator.host, coordinator.port, token)
        order = TaskConfig(LINK, 0, 1, *sides, *at, limits)
        ender = threading.Thread(target=finish_once, args=(count.done, coordinator), daemon=True)
        ender.start()
        task = shipped.TaskRunner(order)
        runner.tune_garbage_collector()
        why = task.run()
        coordinator.close()
    if not count.done.is_set():
        raise SystemExit(f"{why}: less than {records} records crossed")
    return count.us()


# -- by turns


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="twinshore-rig-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def of_tree(tree: Path, workload: str, records: int) -> float:
    """One run of that tree's task by that tree's own rig, in a process of its own: an older tree has another layout."""
    rig = tree / Path(__file__).resolve().relative_to(ROOT)
    command = [sys.executable, str(rig), "--once", workload, "--records", str(records)]
    command += ["--bounds", json.dumps(shipped_bounds())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * RUN_S_MAX, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("commit", nargs="?", default=BEFORE)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    parser.add_argument("--once", choices=WORKLOADS, help=argparse.SUPPRESS)
    parser.add_argument("--bounds", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.once:
        print(once(asked.once, asked.records or WORKLOADS[asked.once].records, limits_from(asked.bounds)))
        return
    figures: dict[str, float | str | int] = {"bench": "pump_rig", "against": asked.commit, "turns": asked.turns}
    with checked_out(asked.commit) as before:
        for workload in asked.only or WORKLOADS:
            records = asked.records or WORKLOADS[workload].records
            runs = [[of_tree(tree, workload, records) for tree in (before, ROOT)] for _ in range(asked.turns)]
            old, new = (min(run[side] for run in runs) for side in (0, 1))
            print(f"{workload:<8} {old:7.3f} us/record at {asked.commit}, {new:7.3f} here: {new / old:6.3f}")
            figures |= {f"{workload}_before_us": round(old, 4), f"{workload}_us": round(new, 4)}
            figures[f"{workload}_ratio"] = round(new / old, 4)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
