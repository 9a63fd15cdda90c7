"""The table of metrics, for the collector and docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """Prometheus shows a counter's name with `_total`."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` without `_total`; `help` for server and page."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str

    @property
    def served(self) -> str:
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


LINK = ("link",)
TOPIC = ("link", "topic")
PARTITION = ("link", "topic", "partition")
LEVELS = {"link": LINK, "topic": TOPIC, "partition": PARTITION}
UNKNOWN_LAG = "absent while the source's log ends are unknown"
NO_BACKLOG = "since it was first seen on the source; 0: none is lacking; absent: unknown"


def _counter(name: str, labels: tuple[str, ...], help_text: str) -> Metric:
    return Metric(f"twinshore_{name}", MetricKind.COUNTER, labels, help_text)


def _gauge(name: str, labels: tuple[str, ...], help_text: str) -> Metric:
    return Metric(f"twinshore_{name}", MetricKind.GAUGE, labels, help_text)


METRICS_BY_LEVEL = {
    level: (
        _counter(f"{level}_records", labels, "Records replicated since this process began."),
        _counter(f"{level}_bytes", labels, "Bytes of batches replicated since this process began."),
        _counter(f"{level}_batches", labels, "Batches of the source replicated since this process began."),
        _gauge(f"{level}_lag_records", labels, f"Offsets of the source that the twin lacks; {UNKNOWN_LAG}."),
        _gauge(
            f"{level}_recovery_point_seconds", labels, f"Age of the oldest offset that the twin lacks, {NO_BACKLOG}."
        ),
    )
    for level, labels in LEVELS.items()
}
LINK_STATE = _gauge("link_state", ("link", "state"), "1 for the link's state, else 0.")
LINK_STATUS_AGE = _gauge("link_status_age_seconds", LINK, "Age of the link's last status report.")
LINK_POLL_AGE = _gauge(
    "link_source_age_seconds", LINK, "Age of the source's last known log ends; lag and recovery point are as old."
)
LINK_UNSEEN = _gauge(
    "link_unknown_lag_partitions", LINK, "Partitions whose log end on the source is unknown; the link's lag omits them."
)
LINK_TASKS = _gauge("link_tasks", LINK, "Tasks that replicate the link.")
LINK_PARTITIONS = _gauge("link_partitions", LINK, "Partitions with a twin.")
LINK_RECORDS_S = _gauge("link_records_per_second", LINK, "Current rate of replicated records.")
LINK_BYTES_S = _gauge("link_bytes_per_second", LINK, "Current rate of replicated bytes.")
LINK_THROTTLE = _gauge("link_throttle_bytes_per_second", LINK, "The link's throttle; 0: none.")
LINK_QUOTA = _gauge(
    "link_quota_bytes_per_second",
    ("link", "side"),
    "Rate that a cluster's own quota allows while it throttles the link; 0: it does not.",
)
LINK_QUEUE = _gauge(
    "link_queue_bytes", LINK, "Of a broadcast: fetched bytes that are not sent to this link's target yet."
)
LINK_JOINED = _gauge(
    "link_shared_partitions",
    LINK,
    "Of a broadcast: partitions read together with other links; the link reads the others by itself.",
)
LINK_READ = _counter(
    "link_read_bytes",
    LINK,
    "Of a broadcast: bytes fetched from the source by this link's requests, for all links that share them.",
)
LINK_ACKNOWLEDGED = _gauge("link_produce_seconds", ("link", "quantile"), "Latency of the target's produce responses.")
TOPIC_PAUSED = _gauge("topic_paused", TOPIC, "1 while paused, else 0.")
TOPIC_STOPPED = _gauge("topic_stopped_partitions", TOPIC, "Partitions stopped by an open incident.")
PARTITION_STOPPED = _gauge("partition_stopped", PARTITION, "1 while stopped by an open incident, else 0.")
INCIDENTS_OPEN = _gauge("incidents_open", ("link", "kind"), "Open incidents.")
INCIDENTS = _counter("incidents", ("link", "kind"), "Incidents, open and closed.")
GROUPS = _gauge("groups", ("link", "state"), "Consumer groups by their state on the target.")
GROUPS_BEHIND = _gauge(
    "groups_lag_records", LINK, "Sum of offsets by which committed offsets on the target are behind."
)
GROUPS_ROUND = _gauge("groups_sync_seconds", LINK, "Duration of the last sync of groups.")
GROUPS_STATUS_AGE = _gauge("groups_status_age_seconds", LINK, "Age of the last status report of groups.")
SWITCHES_OPEN = _gauge("switches_open", (), "Switches that are neither done nor rolled back.")
STORE_UP = _gauge("store_up", (), "1 while the store answers, else 0; states are absent then.")
SERIES_LEFT_OUT = _gauge(
    "metrics_omitted",
    ("level",),
    "Topics or partitions beyond `metrics_topics_max` or `metrics_partitions_max`, which have no series of their own.",
)

METRICS: tuple[Metric, ...] = (
    *METRICS_BY_LEVEL["link"],
    *(LINK_STATE, LINK_STATUS_AGE, LINK_POLL_AGE, LINK_UNSEEN, LINK_TASKS, LINK_PARTITIONS),
    *(LINK_RECORDS_S, LINK_BYTES_S, LINK_THROTTLE, LINK_QUOTA, LINK_QUEUE, LINK_JOINED, LINK_READ, LINK_ACKNOWLEDGED),
    *METRICS_BY_LEVEL["topic"],
    *(TOPIC_PAUSED, TOPIC_STOPPED),
    *METRICS_BY_LEVEL["partition"],
    *(GROUPS, GROUPS_BEHIND, GROUPS_ROUND, GROUPS_STATUS_AGE),
    *(PARTITION_STOPPED, INCIDENTS_OPEN, INCIDENTS, SWITCHES_OPEN, STORE_UP, SERIES_LEFT_OUT),
)
