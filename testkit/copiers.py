"""The two that are compared, each started as its users start it, and the clusters that they are compared on."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from testkit.clients import forget_links
from testkit.cluster import RigCluster
from testkit.figures import StageError
from testkit.jars import fetch_mirrormaker_classpath
from twinshore.config.model import Cluster
from twinshore.lab.jars import find_java
from twinshore.lab.mirror_process import own_code, settings_of
from twinshore.lab.processes import ChildProcess, start_child

# What `kafka-run-class.sh` sets where the user sets nothing, for brokers and MirrorMaker alike.
KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_HEAP_MB = 1024  # `kafka-server-start.sh`
_AS_SHIPPED = ("-XX:-UseSerialGC", *KAFKA_JVM, f"-Xms{_HEAP_MB}m", f"-Djdk.nio.maxCachedBufferSize={2**63 - 1}")
# Deleted topics leave the disk soon; else one run's rubbish is written back during the next.
_SETTINGS = {"file.delete.delay.ms": "1000"}


def bench_cluster(name: str, *, brokers: int = 1, via_proxy: bool = False) -> RigCluster:
    """A cluster to measure on, not started yet. Its brokers' JVMs are as Kafka's own start script sets them, since what
    brokers cost decides how fast any copier can be: the lab's own setting is for many small clusters on a small
    machine."""
    return RigCluster(
        name, brokers=brokers, settings=_SETTINGS, heap_mb=_HEAP_MB, jvm_flags=_AS_SHIPPED, via_proxy=via_proxy
    )


_MIRROR_MAKER_JVM = ("-Xms256M", "-Xmx2G", *KAFKA_JVM)  # `connect-mirror-maker.sh`


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One topic from source to target. `run` is new each time: nothing is taken over from an earlier run."""

    source: Cluster
    target: Cluster
    topic: str
    run: int
    copies: int = 1


class Copier(Protocol):
    """Something that copies a topic for ever, once started."""

    @property
    def name(self) -> str:
        """Who it is."""

    @property
    def setting(self) -> str:
        """How it is set."""

    def target_topic(self, job: CopyJob) -> str:
        """What the copy is called."""

    def start(self, job: CopyJob, folder: Path) -> ChildProcess:
        """Starts it in `folder`, which is empty, and returns at once."""

    def check(self, folder: Path) -> None:
        """Raises StageError when it did not take the settings it was given. For a copier that has copied."""


@dataclass(frozen=True, slots=True)
class MirrorMaker:
    """MirrorMaker 2 in its dedicated mode. Heartbeats and checkpoints are off: what is compared is the copying."""

    setting: str = "defaults"
    consumer: Mapping[str, str] | None = None
    producer: Mapping[str, str] | None = None
    tasks_max: int = 1
    name: str = "MirrorMaker 2"

    def target_topic(self, job: CopyJob) -> str:
        return f"{job.source.name}{job.run}.{job.topic}"

    def start(self, job: CopyJob, folder: Path, besides: Mapping[str, str] | None = None) -> ChildProcess:
        properties = self.properties(job) | dict(besides or {})
        file = folder / "mm2.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        command = [find_java(), *_MIRROR_MAKER_JVM, "-cp", fetch_mirrormaker_classpath()]
        command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        return start_child(command, folder=folder, log=folder / "copier.log")

    def check(self, folder: Path) -> None:
        """Looks for the settings in the lists that Kafka's clients log at their start."""
        log = (folder / "copier.log").read_text(encoding="utf-8", errors="replace")
        for kind, wanted in (("ConsumerConfig", self.consumer), ("ProducerConfig", self.producer)):
            said = "\n".join(re.findall(rf"{kind} values: *\n((?:\t.*\n)+)", log))
            for key, value in (wanted or {}).items():
                if f"\t{key} = {value}\n" not in said:
                    raise StageError(f"MirrorMaker did not take {key}={value}")

    def properties(self, job: CopyJob) -> dict[str, str]:
        """What its settings file holds."""
        source, target = f"{job.source.name}{job.run}", job.target.name
        link, copies = f"{source}->{target}", str(job.copies)
        properties = {
            "clusters": f"{source},{target}",
            f"{source}.bootstrap.servers": ",".join(job.source.bootstrap),
            f"{target}.bootstrap.servers": ",".join(job.target.bootstrap),
            f"{link}.enabled": "true",
            f"{link}.topics": re.escape(job.topic),
            f"{target}->{source}.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "replication.factor": copies,
            "tasks.max": str(self.tasks_max),
        }
        for topic in ("offset-syncs.topic", "offset.storage", "status.storage", "config.storage"):
            properties[f"{topic}.replication.factor"] = copies
        for key, value in (self.consumer or {}).items():
            properties[f"{link}.consumer.{key}"] = value
        for key, value in (self.producer or {}).items():
            properties[f"{target}.producer.{key}"] = value
        return properties


@dataclass(frozen=True, slots=True)
class Twinshore:
    """`twinshore mirror run` with its defaults, apart from `task_run_s` where it is named."""

    task_run_s: float = 0.0
    name: str = "Twinshore"

    @property
    def setting(self) -> str:
        return f"task_run_s = {self.task_run_s:g}" if self.task_run_s else "defaults"

    def target_topic(self, job: CopyJob) -> str:
        return job.topic

    def start(self, job: CopyJob, folder: Path) -> ChildProcess:
        forget_links(job.target)
        file = folder / "twinshore.toml"
        file.write_text(self.settings(job, folder), encoding="utf-8")
        return start_child(
            [sys.executable, "-m", "twinshore.cli", "mirror", "run", "--settings", str(file)],
            folder=folder,
            log=folder / "copier.log",
            environment=own_code(),
        )

    def check(self, folder: Path) -> None:
        """A setting it does not know would have ended it at once."""

    def settings(self, job: CopyJob, folder: Path) -> str:
        """What its settings file holds; the store is in `folder`."""
        run = {"task_run_s": f"{self.task_run_s:g}"} if self.task_run_s else {}
        store, topics = folder / "store.db", re.escape(job.topic)
        return settings_of(job.source, job.target, store=store, topics=topics, mirror=run)


# What a careful operator sets first: batches of 256 KB, and lz4 where the source has it, as MirrorMaker would write
# plain batches otherwise. linger.ms stays Kafka's own: more of it adds a little to the rate, and all of it to latency.
_BATCHES = {"batch.size": "262144", "buffer.memory": "67108864"}
_POLLS = {"max.poll.records": "2000", "max.partition.fetch.bytes": "4194304"}


def mirror_makers(workload: str, *, few: bool = False) -> tuple[MirrorMaker, ...]:
    """The settings of MirrorMaker that are tried on a workload, the defaults first; its fastest is the peer."""
    batches = _BATCHES | ({"compression.type": "lz4"} if workload == "lz4" else {})
    tried = (
        MirrorMaker(),
        MirrorMaker("256 KB batches", producer=batches),
        MirrorMaker("256 KB batches, larger polls, 2 tasks", _POLLS, batches, tasks_max=2),
    )
    return tried[:2] if few else tried
