"""The section `mirror`: how the mirror works, and where its tasks run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, flatten_table, read_section

SPARK_MASTER = re.compile(r"local(\[(\*|[1-9][0-9]*)\])?|(spark|k8s)://\S+|yarn")
# How often a task requests its lease while the lease lasts: one response may be late, and each loop takes time.
LEASE_REQUESTS_MIN = 3
FIXED_SPARK_SETTINGS = {
    "spark.master": "use master",
    "spark.speculation": "two runs of one task must never run at once",
    "spark.scheduler.mode": "tasks run in parallel, so it is FAIR",
    "spark.task.maxFailures": "the mirror itself restarts a task",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where tasks run, and `spark.*` settings passed through unchanged."""

    master: str = "local"
    conf: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """How the mirror works. The defaults suit one machine and two clusters."""

    tasks_per_link: int = setting(0, "tasks of each link; 0: one for two cores, at most 8", low=0, high=1024)
    spark_tasks: int = setting(
        0,
        "Spark tasks at once, two of them for handover; small tasks of links share one. 0: 4 more than cores, or"
        " than tasks of a link",
        low=0,
        high=4096,
    )
    task_run_s: float = setting(
        60.0, "maximum run of a task before its partitions are assigned again", low=0.2, high=3600
    )
    refresh_s: float = setting(2.0, "how often both clusters' metadata is refreshed", low=0.1, high=60)
    lease_s: float = setting(
        4.0,
        "a link or a task that has not renewed its lease for so long has lost it. Another mirror takes the link"
        " over up to 5 s later, when no request of the earlier owner can still arrive",
        low=0.5,
        high=120,
    )
    progress_s: float = setting(
        0.5,
        "how often a task commits its progress to the store and renews its lease; at most a third of `lease_s`",
        low=0.05,
        high=60,
    )
    fetch_mb: int = setting(8, "maximum size of a fetch response", low=1, high=512)
    partition_fetch_kb: int = setting(1024, "maximum size of one partition in a fetch response", low=16, high=524288)
    fetch_wait_ms: int = setting(
        500, "how long a broker may wait for records before it answers a fetch", low=0, high=30000
    )
    inflight_max: int = setting(8, "produce requests in flight for each connection", low=1, high=64)
    join_below_kb: int = setting(
        128, "adjacent uncompressed batches smaller than this are merged; 0: never", low=0, high=1024
    )
    merge_below_bytes: int = setting(
        4096, "adjacent compressed batches smaller than this are decompressed and merged; 0: never", low=0, high=1048576
    )
    merge_target_kb: int = setting(512, "target size of merged batches", low=4, high=512)
    produce_timeout_s: float = setting(30.0, "how long a target broker may take to replicate a batch", low=1, high=600)
    gap_offsets_max: int = setting(
        20_000_000,
        "maximum retention gap, in offsets, that is filled with markers; a larger gap stops the partition",
        low=0,
        high=1_000_000_000,
    )
    heartbeat_s: float = setting(
        1.0, "how often a link writes a heartbeat to `twinshore.heartbeats` on its source; 0: never", low=0, high=3600
    )
    hanging_transaction_s: float = setting(
        900.0, "an open transaction of the source that blocks a twin for longer is an incident", low=1, high=604800
    )
    away_after_s: float = setting(10.0, "a cluster that has not answered for so long is an incident", low=1, high=86400)
    disk_warn_percent: float = setting(
        10.0, "a target broker with less free space on a disk is an incident; 0: disks are not checked", low=0, high=100
    )
    disk_pause_percent: float = setting(
        3.0, "replication to a broker with less free space pauses; 0: never", low=0, high=100
    )
    disk_check_s: float = setting(10.0, "how often the target's disks are checked", low=1, high=3600)
    stop_s: float = setting(10.0, "how long a shutdown waits for requests in flight", low=0, high=600)
    metrics_address: str = setting("127.0.0.1", "address that serves /metrics and /health")
    metrics_port: int = setting(0, "port that serves /metrics and /health; 0: none", low=0, high=65535)
    metrics_topics_max: int = setting(
        1000, "maximum number of topics with their own series; all topics count in their link's", low=0, high=1000000
    )
    metrics_partitions_max: int = setting(
        2000,
        "maximum number of partitions with their own series; all partitions count in their link's",
        low=0,
        high=1000000,
    )
    ends_s: float = setting(
        2.0, "how often the source's log ends are read, for lag and recovery point", low=0.1, high=3600
    )
    spark: SparkSettings = SparkSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSection:
    """Spark. Every key that begins with `spark.` is passed through too."""

    master: str = setting(
        "local", "`local` (embedded), `local[k]`, or a cluster manager: `spark://host:port`, `yarn`, `k8s://...`"
    )


def read_mirror(raw: RawSection, complaints: Complaints) -> MirrorSettings:
    place = raw.place
    rest, inner = raw.parted("spark")
    spark = _spark(inner["spark"], complaints)
    section = read_section(MirrorSettings, rest, place, complaints)
    if section is None or spark is None:
        return MirrorSettings()
    if LEASE_REQUESTS_MIN * section.progress_s > section.lease_s:
        most = f"a third of lease_s ({section.lease_s:g}) at most"
        complaints.add(place, f"progress_s: is {section.progress_s:g}, must be {most}, or a busy task loses its lease")
    return replace(section, spark=spark)


def _spark(raw: object, complaints: Complaints) -> SparkSettings | None:
    place = "[mirror.spark]"
    if not isinstance(raw, Mapping):
        complaints.add(place, f"must be a section with keys, not {raw!r}")
        return None
    pairs = flatten_table({key: value for key, value in raw.items() if key == "spark" or key.startswith("spark.")})
    rest = {key: value for key, value in raw.items() if key != "spark" and not key.startswith("spark.")}
    strays = {key: value for key, value in rest.items() if "." in key or isinstance(value, Mapping)}
    for key, _ in flatten_table(strays):
        complaints.add(place, f"{key}: unknown; settings of Spark begin with `spark.`: did you mean spark.{key}?")
    rest = {key: value for key, value in rest.items() if key not in strays}
    section = read_section(SparkSection, rest, place, complaints)
    for key, _ in pairs:
        if key in FIXED_SPARK_SETTINGS:
            complaints.add(place, f"{key}: not here, {FIXED_SPARK_SETTINGS[key]}")
    if section is None:
        return None
    if not SPARK_MASTER.fullmatch(section.master):
        example = "like local, local[4], spark://host:7077"
        complaints.add(place, f"master: {section.master!r} is not a Spark master {example}")
    return SparkSettings(section.master, pairs)


SECTION = Section(
    "mirror", 40, (("[mirror]", MirrorSettings), ("[mirror.spark]", SparkSection)), read_mirror, overridden=True
)
