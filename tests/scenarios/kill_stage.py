"""Tasks that die: the real coordinator, task runs and tasks between real clusters, each task a process of its own
without Spark.

Without a JVM to start, a pump's life costs a fifth of a second, so that many deaths fit into a test.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.cluster import LabCluster
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.task.core.messages import (
    PartitionConfig,
    PartitionIncident,
    TaskConfig,
    TaskLimits,
    coordinator_epoch,
    parse_task_config,
)
from twinshore.replication.task.lookups import transactional_id_prefix
from twinshore.replication.task.runner import run_tasks
from twinshore.replication.task_pool import TaskPool

LINK = "here->there"
TASKS = 2
GRANT_S = 0.8
TASK_RUN_S = 1.5
FREEZE_S = GRANT_S + 2.0
LIFE_S_MAX = 2.5
GENERATION = 7


def _ride(order: str) -> None:
    list(run_tasks([order]))


class KillStage:
    """Carries topics until closed. `kills` counts what was done to tasks, by kind; `crossing`, at how many of these
    moments the dead pump's task had something of a topic left to carry."""

    def __init__(
        self, source: LabCluster, target: LabCluster, topics: Sequence[str], partitions: int, *, closed_units: bool
    ) -> None:
        self._source, self._target = source.cluster, target.cluster
        self.kafka = KafkaCluster(source.cluster), KafkaCluster(target.cluster)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["twinshore.replication.task.runner"])
        self._lock = threading.Lock()
        self._pids: dict[tuple[int, int], int] = {}
        self.kills: dict[str, int] = {"killed": 0, "frozen": 0}
        self.crossing: Counter[str] = Counter()
        self.incidents: list[PartitionIncident] = []
        self.accounts = 0
        self._producer = self.kafka[1].init_producer_id()
        self._units = transactional_id_prefix(LINK, self._producer[0]) if closed_units else ""
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 60.0, take=self._take)
        self.runs = TaskPool(self.coordinator, TASK_RUN_S, self._run)
        orders = self._orders(topics, partitions)
        self._partitions = [
            [TopicPartition(one.topic, one.partition) for one in orders[task::TASKS]] for task in range(TASKS)
        ]
        for task in range(TASKS):
            self.coordinator.open_task((LINK, task), GRANT_S)
            self.coordinator.assign((LINK, task), orders[task::TASKS])
            self.runs.open_task((LINK, task), lambda run, task=task: self._order(task, run))  # type: ignore[misc]

    def _orders(self, topics: Sequence[str], partitions: int) -> list[PartitionConfig]:
        ours, theirs = (side.metadata(topics).topics for side in self.kafka)
        return [
            PartitionConfig(topic, number, ours[topic].topic_id.hex(), theirs[topic].topic_id.hex())
            for number in range(partitions)
            for topic in topics
        ]

    def _order(self, task: int, run: int) -> TaskConfig:
        return TaskConfig(
            LINK,
            task,
            run,
            self._source,
            self._target,
            *self._producer,
            state_expiry_ms=86_400_000,
            coordinator_host=self.coordinator.host,
            coordinator_port=self.coordinator.port,
            coordinator_token=self.coordinator.token_of((LINK, task)),
            # Small pieces, so that there are many points to die at.
            limits=TaskLimits(partition_bytes_max=16 << 10, fetch_bytes_max=64 << 10, undelivered_s=0.5),
            report_s=0.2,
            fence=coordinator_epoch(GENERATION, run),
            units=self._units,
        )

    def _take(self, account: TaskReport) -> None:
        with self._lock:
            self.incidents += account.incidents
            self.accounts += len(account.carried)

    def _run(self, order: str, _name: str) -> str:
        """One pump's life; a death is told as Spark tells it."""
        run = parse_task_config(order)
        assert isinstance(run, TaskConfig)
        process: Any = self._context.Process(target=_ride, args=(order,), daemon=True)
        process.start()
        with self._lock:
            self._pids[run.task, run.run] = process.pid
        process.join()
        with self._lock:
            del self._pids[run.task, run.run]
        if process.exitcode:
            raise RuntimeError(f"exit code {process.exitcode}")
        return "finished"

    def holder(self, task: int) -> int | None:
        """The process that carries this task now."""
        run, _, _ = self.coordinator.holding((LINK, task))
        with self._lock:
            return None if run is None else self._pids.get((task, run))

    def harm(self, chance: random.Random, *, frozen: bool) -> None:
        """Lets a task be carried for a moment, and kills who carries it; or freezes him until it is another's, and lets
        him wake."""
        task = chance.randrange(TASKS)
        time.sleep(chance.random() ** 2 * LIFE_S_MAX)
        pid = self._hit(task, signal.SIGSTOP if frozen else signal.SIGKILL)
        self.kills["frozen" if frozen else "killed"] += 1
        ours, theirs = (side.list_offsets(self._partitions[task], OffsetKind.LOG_END) for side in self.kafka)
        self.crossing.update({named.topic for named in self._partitions[task] if ours[named] > theirs[named]})
        if frozen:
            time.sleep(FREEZE_S)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _hit(self, task: int, what: signal.Signals) -> int:
        """Whoever carries the task, as soon as somebody does."""
        deadline = time.monotonic() + 20
        while True:
            pid = self.holder(task)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, what)
                    return pid
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ends(self, side: int, topic: str, partitions: int, which: Any) -> list[int]:
        """Where the partitions of a topic end, on the source (0) or the target (1)."""
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        found = self.kafka[side].list_offsets(wanted, which)
        return [found[named] for named in wanted]

    def close(self) -> None:
        self.runs.close_link(LINK)
        self.runs.close()
        self.coordinator.finish_all(LINK)
        deadline = time.monotonic() + 10
        while not self.coordinator.idle(LINK) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.coordinator.close()
        with self._lock:
            pids = list(self._pids.values())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for side in self.kafka:
            side.close()
