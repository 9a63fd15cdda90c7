"""Lag, recovery points and all Prometheus metrics.

`Meters` counts what tasks report. `EndOffsetPoller` reads the source's log ends, so that lag and recovery point grow
even without a task, and stores them for `twinshore status`. `MirrorCollector` serves all.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from twinshore.config.errors import StoreError, TwinshoreError
from twinshore.config.incident_policy import IncidentEffect, IncidentKind, stops_replication
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import find_existing_partitions, read_log_ends, read_log_starts
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.filters import admits
from twinshore.replication.core.lag import (
    BACKLOG_KIND,
    BACKLOG_S_MIN,
    END_OFFSETS_TIMEOUT_S,
    GROUPS_KIND,
    ArrivalMark,
    LagStatus,
    OffsetArrivals,
    backlog_row,
    end_offsets_ttl_s,
    is_fresh,
    lag_row,
    parse_backlog,
    parse_groups_status,
    put_group_metrics,
    replicated_offsets,
    select_oldest_backlogs,
    status_ttl_s,
    summarize_lag,
)
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.model import STANDBY, STATES, STOPPED, UNKNOWN
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY
from twinshore.replication.task.core.throttle import SIDES
from twinshore.runtime.endpoints import SHORT_TIMEOUT_CONNECTIONS
from twinshore.runtime.http import AddressInUseError, MetricsServer
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import IncidentCount, LinkStatus
from twinshore.state.store import Store

log = logging.getLogger(__name__)


class MetricKind(StrEnum):
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


def _read_metrics() -> dict[str, Metric]:
    """The table of metrics, for the collector and docs/metrics.md."""
    rows = json.loads(resources.files(__package__).joinpath("metrics.json").read_text(encoding="utf-8")).items()
    return {
        name: Metric(f"twinshore_{name}", MetricKind(row["kind"]), tuple(row["labels"]), row["help"])
        for name, row in rows
    }


METRICS: Final = _read_metrics()
END_OFFSETS_INTERVAL_S = 2.0
NEVER_S = -1e18


@dataclass(slots=True)
class PartitionMeter:
    """`reached`: the twin's replicated offset, -1: unknown. `seen_s`: when the source's log end was last read;
    `told_s`: when a task last reported one.
    """

    records: int = 0
    bytes: int = 0
    batches: int = 0
    reached: int = -1
    seen_s: float = NEVER_S
    told_s: float = NEVER_S
    arrivals: OffsetArrivals = field(default_factory=OffsetArrivals)

    def end(self, since_s: float) -> int:
        """The source's log end if read since then, and the twin's offset is known; else -1."""
        return self.arrivals.end if self.seen_s >= since_s and self.reached >= 0 else -1


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Figures of a partition, topic or link. None: unknown now, as when log ends are `unseen`; the recovery point of
    records known to be missing still grows.
    """

    records: int = 0
    bytes: int = 0
    batches: int = 0
    lag: int | None = None
    recovery_point_s: float | None = None
    unseen: int = 0

    def __add__(self, other: MeterReading) -> MeterReading:
        lags = [reading.lag for reading in (self, other) if reading.lag is not None]
        ages = [reading.recovery_point_s for reading in (self, other) if reading.recovery_point_s is not None]
        return MeterReading(
            self.records + other.records,
            self.bytes + other.bytes,
            self.batches + other.batches,
            sum(lags) if lags else None,
            max(ages, default=None),
            self.unseen + other.unseen,
        )


EMPTY_READING = MeterReading()


class Meters:
    """Counters of all links; thread-safe. Times are monotonic, so a clock change makes nothing older. `ends_s`:
    interval of reads.
    """

    def __init__(self, ends_s: float = END_OFFSETS_INTERVAL_S) -> None:
        self._fresh_s = end_offsets_ttl_s(ends_s)
        self._links: dict[str, dict[TopicPartition, PartitionMeter]] = {}
        self._looked_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, report: TaskReport) -> None:
        now_s = time.monotonic()
        with self._lock:
            link = self._links.setdefault(report.link, {})
            for progress in report.carried:
                partition = TopicPartition(progress.topic, progress.partition)
                meter = link.get(partition)
                if meter is None:
                    meter = link[partition] = PartitionMeter()
                meter.records += progress.records
                meter.bytes += progress.bytes
                meter.batches += progress.batches
                if progress.source_end >= 0 and progress.to_offset > meter.reached:
                    meter.seen_s = meter.told_s = now_s
                # A report may be older than the last read of log ends; only a read shows that the source lost records.
                if progress.source_end > meter.arrivals.end:
                    meter.arrivals.saw(progress.source_end, now_s)
                meter.reached = progress.to_offset

    def restore(self, link: str, partition: TopicPartition, reached: int, end: int, at_s: float) -> None:
        """Sets what the store knows: the source had this log end at `at_s` at the latest."""
        with self._lock:
            meter = self._links.setdefault(link, {}).setdefault(partition, PartitionMeter())
            if meter.reached < 0:
                meter.reached = reached
                if meter.arrivals.end < 0:
                    meter.arrivals.saw(end, at_s)

    def recall(
        self, link: str, waits: Mapping[TopicPartition, Sequence[ArrivalMark]], now_s: float, now_ms: int
    ) -> None:
        """Sets when an earlier mirror saw the records that twins lack; a future time counts as now."""
        with self._lock:
            for partition, meter in self._links.get(link, {}).items():
                marks = [(now_s - max(0, now_ms - mark.at_ms) / 1000, mark.end) for mark in waits.get(partition, ())]
                meter.arrivals.recall(marks)

    def waits(self, link: str, now_s: float, now_ms: int) -> dict[TopicPartition, list[ArrivalMark]]:
        """Returns marks of records missing for `BACKLOG_S_MIN`; the next mirror knows younger ones by itself."""
        with self._lock:
            places = [
                (partition, meter.arrivals.missing(meter.reached))
                for partition, meter in self._links.get(link, {}).items()
            ]
        return {
            partition: [ArrivalMark(now_ms - int((now_s - at_s) * 1000), end) for at_s, end in marks]
            for partition, marks in places
            if marks and now_s - marks[0][0] >= BACKLOG_S_MIN
        }

    def looked(
        self, link: str, ends: Mapping[TopicPartition, int], seen_s: float, asked_s: float | None = None
    ) -> None:
        """Takes the source's log ends. `seen_s`: when new records count as arrived; `asked_s`: when the request was
        sent.
        """
        with self._lock:
            self._looked_s[link] = now_s = time.monotonic()
            meters = self._links.setdefault(link, {})
            for partition, end in ends.items():
                meter = meters.setdefault(partition, PartitionMeter())
                meter.seen_s = now_s
                # A task may have reported more while this response was in flight.
                if end > meter.arrivals.end or meter.told_s < (now_s if asked_s is None else asked_s):
                    meter.arrivals.saw(end, seen_s)

    def keep_only(self, link: str, partitions: Iterable[TopicPartition]) -> None:
        kept = set(partitions)
        with self._lock:
            meters = self._links.get(link, {})
            for partition in [partition for partition in meters if partition not in kept]:
                del meters[partition]

    def forget(self, link: str) -> None:
        with self._lock:
            self._links.pop(link, None)
            self._looked_s.pop(link, None)

    def look_age_s(self, link: str, now_s: float) -> float | None:
        """Seconds since the source's log ends were read; None: never."""
        at_s = self._looked_s.get(link)
        return None if at_s is None else max(0.0, now_s - at_s)

    def lag(self, link: str) -> int | None:
        """Returns the link's lag; None: unknown."""
        since_s = time.monotonic() - self._fresh_s
        with self._lock:
            places = [(meter.reached, meter.end(since_s)) for meter in self._links.get(link, {}).values()]
        seen = [max(0, end - reached) for reached, end in places if end >= 0]
        looked = self._looked_s.get(link, since_s) > since_s
        return sum(seen) if seen or (looked and not places) else None

    def word(self, link: str) -> LagStatus | None:
        """Returns the lag at the last read, in wall-clock times; None before the first."""
        at_s = self._looked_s.get(link)
        if at_s is None:
            return None
        now_s, now_ms = time.monotonic(), wall_ms()
        with self._lock:
            meters = self._links.get(link, {})
            places = [
                (partition, meter.reached, meter.end(at_s - self._fresh_s)) for partition, meter in meters.items()
            ]
            ages = {partition: _age_s(meter, now_s) for partition, meter in meters.items()}
        since_ms = {partition: now_ms - int(age_s * 1000) for partition, age_s in ages.items() if age_s}
        return summarize_lag(places, now_ms - int((now_s - at_s) * 1000), since_ms)

    def readings(self, link: str, now_s: float) -> dict[TopicPartition, MeterReading]:
        with self._lock:
            return {
                partition: _reading(meter, now_s, now_s - self._fresh_s)
                for partition, meter in self._links.get(link, {}).items()
            }


def _reading(meter: PartitionMeter, now_s: float, since_s: float) -> MeterReading:
    end, age_s = meter.end(since_s), _age_s(meter, now_s)
    counts = (meter.records, meter.bytes, meter.batches)
    if end < 0:
        return MeterReading(*counts, recovery_point_s=age_s or None, unseen=1)
    return MeterReading(*counts, max(0, end - meter.reached), age_s)


def _age_s(meter: PartitionMeter, now_s: float) -> float:
    """Returns for how many seconds the oldest known record that the twin lacks has been on the source; 0: none."""
    return meter.arrivals.age_s(meter.reached, now_s) if meter.reached >= 0 else 0.0


TWINS_INTERVAL_S = 15.0
OWNERSHIP_POLL_S = 0.2


def recreated_topics(store: Store, link: str) -> frozenset[str]:
    rows = store.incidents.rows(link, open_only=True)
    return frozenset(row.incident.topic for row in rows if row.incident.kind is IncidentKind.RECREATED_TOPIC)


def refused_topics(store: Store, link: str) -> frozenset[str]:
    """Returns topics that the link refuses and never began to replicate."""
    incidents = [row.incident for row in store.incidents.rows(link, open_only=True)]
    found = {
        incident.topic
        for incident in incidents
        if incident.topic and incident.partition < 0 and stops_replication(incident.kind, incident.policy)
    }
    return frozenset(found - store.twins.begun(link, found)) if found else frozenset()


def admitted_partitions(link: Link, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Keeps partitions of admitted topics; matches each topic once."""
    topics = {topic for topic in {partition.topic for partition in reached} if admits(link, topic)}
    return {partition: at for partition, at in reached.items() if partition.topic in topics}


class EndOffsetPoller:
    """Reads one link's log ends apart from the controller, which a slow source must not hold up. `holds` returns the
    link with current filters; `ours`: whether this process holds the link.
    """

    def __init__(
        self,
        holds: Callable[[], Link],
        source: Cluster,
        store: Store,
        meters: Meters,
        every_s: float,
        ours: Callable[[], object],
    ) -> None:
        link = holds()
        self._link, self._store, self._meters = link.name, store, meters
        self._every_s, self._ours, self._holds = every_s, ours, holds
        self._filters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._twins: tuple[TopicPartition, ...] = ()
        self._count = 0
        self._refused: frozenset[str] = frozenset()
        self._read_at_s = self._looked_at_s = -1e9
        self._held = self._waited = False
        self._before: dict[TopicPartition, tuple[ArrivalMark, ...]] = {}
        self._spoken_s: float | None = None
        self._source = SHORT_TIMEOUT_CONNECTIONS.client(source, END_OFFSETS_TIMEOUT_S)
        name, asks = f"looks {link.name}", (link.source,)
        self._task = process_scheduler.every(name, self._turn, asks=asks, first_s=OWNERSHIP_POLL_S)

    def close(self) -> None:
        self._task.close()
        self._source.close()

    def _turn(self) -> float:
        ours = bool(self._ours())
        if ours == self._held and time.monotonic() - self._looked_at_s < self._every_s:
            return OWNERSHIP_POLL_S
        self._looked_at_s = time.monotonic()
        # The controller reports errors; here the age of the last read grows, and that is a metric.
        with suppress(TwinshoreError):
            self._look(self._source, ours)
        return OWNERSHIP_POLL_S

    def _look(self, source: KafkaCluster, ours: bool) -> None:
        if not ours:
            if self._held:
                self._meters.forget(self._link)
            self._held = False
            self._listen()
            return
        seen_s = time.monotonic()
        if not self._held:
            self._listen()
            # Records that arrived while no mirror ran may have arrived right after the last status.
            seen_s = self._spoken_s or seen_s
            self._remember(seen_s)
            self._held = True
        # A new twin counts at once: a link that is paused right then has a lag.
        refused = refused_topics(self._store, self._link)
        link = self._holds()
        filters = (link.topics, link.exclude)
        known = self._store.twins.count(self._link) == self._count
        known = known and (refused, filters) == (self._refused, self._filters)
        if not known or time.monotonic() - self._read_at_s >= TWINS_INTERVAL_S:
            self._refused, self._filters = refused, filters
            self._read_twins(source, link, seen_s)
        asked_s = time.monotonic()
        ends = read_log_ends(source, self._twins).without(recreated_topics(self._store, self._link))
        if ends.gone or ends.mute:
            # Deleted, or unreadable now: left out until the twins are read again.
            kept = tuple(partition for partition in self._twins if partition.topic not in ends.gone)
            self._meters.keep_only(self._link, kept)
            self._twins = tuple(partition for partition in kept if partition.topic not in ends.mute)
        self._meters.looked(self._link, ends.of, seen_s, asked_s)
        self._leave_word()

    def _leave_word(self) -> None:
        """Stores the lag, and since when records are missing, which the last mirror may know better."""
        self._recall()
        self._before = {}
        now_ms = wall_ms()
        waits = select_oldest_backlogs(self._meters.waits(self._link, time.monotonic(), now_ms))
        lag_status = self._meters.word(self._link)
        rows = [lag_row(self._link, lag_status)] if lag_status is not None else []
        if waits or self._waited:
            rows.append(backlog_row(self._link, waits, now_ms))
        if rows:
            self._store.link_states.remember(rows)
        self._waited = bool(waits)

    def _read_twins(self, source: KafkaCluster, link: Link, seen_s: float) -> None:
        """Reads the twins; new ones without progress count from their start."""
        reached = replicated_offsets(self._store.twins.of(self._link), ())
        self._count = len(reached)
        reached |= read_log_starts(source, self._refused)  # All their records are missing.
        reached = admitted_partitions(link, reached)
        self._twins = find_existing_partitions(source, tuple(reached))
        self._read_at_s = time.monotonic()
        self._meters.keep_only(self._link, self._twins)
        for partition in self._twins:
            self._meters.restore(
                self._link, partition, reached[partition], self._end_before(partition, reached[partition]), seen_s
            )

    def _listen(self) -> None:
        """Notes when a mirror last reported the link, in monotonic time."""
        for status in self._store.links.statuses():
            if status.link == self._link and status.state != STANDBY:
                self._spoken_s = time.monotonic() - max(0, wall_ms() - status.updated_ms) / 1000

    def _remember(self, at_s: float) -> None:
        """Restores figures, so that a restart does not make recovery points younger."""
        self._before = parse_backlog(self._store.link_states.of(self._link, BACKLOG_KIND))
        for position in self._store.progress.positions(self._link):
            partition = TopicPartition(position.topic, position.partition)
            self._meters.restore(
                self._link, partition, position.to_offset, self._end_before(partition, position.source_end), at_s
            )
        self._waited = bool(self._before)
        self._recall()

    def _end_before(self, partition: TopicPartition, end: int) -> int:
        """Returns the log end that an earlier mirror last saw. Otherwise, while the leader does not answer, missing
        records would look lost by the source.
        """
        marks = self._before.get(partition)
        return max(end, marks[-1].end) if marks else end

    def _recall(self) -> None:
        """Restores arrivals; repeated after each read, since the source may not have answered before."""
        self._meters.recall(self._link, self._before, time.monotonic(), wall_ms())


SERVE_RETRY_S = 2.0


class MetricsService:
    """Measures, and serves metrics once the port is free: the mirror for which this one stands by may have the port."""

    def __init__(
        self, settings: MirrorSettings, links: Sequence[Link], store: Store, recorder: ProgressRecorder, meters: Meters
    ) -> None:
        self._settings, self._store, self._recorder, self._meters = settings, store, recorder, meters
        self._looks: dict[str, EndOffsetPoller] = {}
        self._server: MetricsServer | None = None
        self._tried_at_s: float | None = None
        ttl_s = status_ttl_s(settings.progress_s)
        self._collector = MirrorCollector(links, meters, store, recorder, settings, ttl_s, before=_statuses(store))
        self._serve()

    def take(self, report: TaskReport) -> None:
        self._recorder.take(report)
        self._meters.take(report)

    def watch(self, holds: Callable[[], Link], source: Cluster, ours: Callable[[], object]) -> None:
        """Measures the link from now on. `holds` and `ours`: as for `EndOffsetPoller`."""
        link = holds()
        self._looks[link.name] = EndOffsetPoller(holds, source, self._store, self._meters, self._settings.ends_s, ours)
        self._collector.watch(link)

    def leave(self, link: Link) -> None:
        self._collector.leave(link)
        if poller := self._looks.pop(link.name, None):
            poller.close()
        self._meters.forget(link.name)

    def _words(self) -> dict[str, dict[str, Any]]:
        """Returns the links' states for /health; an unknown lag is null."""
        now_s = time.monotonic()
        return {
            link: {**said, "lag_records": self._meters.lag(link), "look_age_s": self._meters.look_age_s(link, now_s)}
            for link, said in self._recorder.words().items()
        }

    def beat(self) -> None:
        self._serve()
        if self._server:
            self._server.beat()

    def _serve(self) -> None:
        now_s, settings = time.monotonic(), self._settings
        first = self._tried_at_s is None
        if self._server or not settings.metrics_port or now_s < (self._tried_at_s or 0.0) + SERVE_RETRY_S:
            return
        self._tried_at_s = now_s
        try:
            self._server = MetricsServer(settings.metrics_address, settings.metrics_port, self._collector, self._words)
        except AddressInUseError as error:
            if first:
                log.warning(
                    f"no metrics yet: {error.message}; another mirror may serve there; tried every {SERVE_RETRY_S:g} s"
                )
            return
        if not first:
            log.info(f"metrics are served at {settings.metrics_address}:{settings.metrics_port} now")

    def close(self) -> None:
        if self._server:
            self._server.close()
        for poller in list(self._looks.values()):
            poller.close()


def _statuses(store: Store) -> Sequence[LinkStatus]:
    try:
        return store.links.statuses()
    except StoreError:
        return ()


SHARED_FETCH_METRICS = {
    QUEUED_KEY: "link_queue_bytes",
    JOINED_KEY: "link_shared_partitions",
    READ_KEY: "link_read_bytes",
}


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The store at a scrape; empty, and not `up`, when there is no answer."""

    up: bool = False
    links: Mapping[str, Link] = field(default_factory=dict)
    words: Mapping[str, LinkStatus] = field(default_factory=dict)
    counts: Sequence[IncidentCount] = ()
    stopped: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    switches: int = 0


class MetricFamilies:
    """By the names of `metrics.json`."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {name: _family(metric) for name, metric in METRICS.items()}

    def put(self, metric: str, labels: Sequence[str], value: float) -> None:
        family = self.families[metric]
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(list(labels), value)

    def carried(self, level: str, labels: Sequence[str], reading: MeterReading) -> None:
        values = {
            "records": reading.records,
            "bytes": reading.bytes,
            "batches": reading.batches,
            "lag_records": reading.lag,
            "recovery_point_seconds": reading.recovery_point_s,
        }
        for name, value in values.items():
            if value is not None:
                self.put(f"{level}_{name}", labels, value)


def _family(metric: Metric) -> Family:
    if metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


class MirrorCollector(Collector):
    """Reads everything at each scrape; keeps nothing."""

    def __init__(
        self,
        links: Sequence[Link],
        meters: Meters,
        store: Store,
        recorder: ProgressRecorder,
        limits: MirrorSettings,
        ttl_s: float,
        *,
        before: Iterable[LinkStatus],
    ) -> None:
        """`ttl_s`: age in seconds up to which a status counts. `before`: statuses at the start of this process; an
        unchanged one does not show whether its mirror lives.
        """
        self._links = {link.name: link for link in links}
        self._meters, self._store, self._recorder, self._limits, self._ttl_s = meters, store, recorder, limits, ttl_s
        self._before = {(status.link, status.owner, status.updated_ms) for status in before}

    def watch(self, link: Link) -> None:
        self._links = {**self._links, link.name: link}

    def leave(self, link: Link) -> None:
        self._links = {name: one for name, one in self._links.items() if name != link.name}

    def describe(self) -> list[Family]:
        """Called at registration, when the store need not answer."""
        return [_family(metric) for metric in METRICS.values()]

    def collect(self) -> Iterator[Family]:
        watched = list(self._links.values())
        metrics, now_s, known = MetricFamilies(), wall_ms() / 1000, self._known(watched)
        metrics.put("store_up", (), float(known.up))
        if known.up:
            metrics.put("switches_open", (), known.switches)
        topics_left, partitions_left = self._limits.metrics_topics_max, self._limits.metrics_partitions_max
        missing = {"topic": 0, "partition": 0}
        for link in watched:
            readings = self._meters.readings(link.name, time.monotonic())
            self._link(metrics, link.name, readings, known, now_s)
            topics = _by_topic(readings)
            kept = list(topics)[:topics_left]
            topics_left, missing["topic"] = topics_left - len(kept), missing["topic"] + len(topics) - len(kept)
            _topics(metrics, known.links.get(link.name, link), {topic: topics[topic] for topic in kept}, known)
            shown = list(readings)[:partitions_left]
            partitions_left -= len(shown)
            missing["partition"] += len(readings) - len(shown)
            stopped = known.stopped.get(link.name, frozenset())
            for partition in shown:
                labels = (link.name, partition.topic, str(partition.partition))
                metrics.carried("partition", labels, readings[partition])
                metrics.put("partition_stopped", labels, _is_stopped(partition, stopped))
        for name, said in known.groups.items():
            put_group_metrics(metrics.put, name, said, now_s)
        for level, count in missing.items():
            metrics.put("metrics_omitted", (level,), count)
        for incident_count in known.counts:
            metrics.put("incidents_open", (incident_count.link, incident_count.kind), incident_count.open)
            metrics.put("incidents", (incident_count.link, incident_count.kind), incident_count.all)
        yield from metrics.families.values()

    def _link(
        self,
        metrics: MetricFamilies,
        name: str,
        readings: Mapping[TopicPartition, MeterReading],
        known: StoreSnapshot,
        now_s: float,
    ) -> None:
        look_age_s = self._meters.look_age_s(name, time.monotonic())
        whole = sum(readings.values(), EMPTY_READING)
        if not readings and self._meters.lag(name) == 0:
            whole = MeterReading(lag=0, recovery_point_s=0.0)
        metrics.carried("link", (name,), whole)
        metrics.put("link_partitions", (name,), len(readings))
        metrics.put("link_unknown_lag_partitions", (name,), whole.unseen)
        quotas, reading = self._recorder.quotas(name), self._recorder.reading(name)
        for side in SIDES:
            metrics.put("link_quota_bytes_per_second", (name, side), quotas.get(side, 0.0))
        for key, metric in SHARED_FETCH_METRICS.items():
            if key in reading:
                metrics.put(metric, (name,), reading[key])
        if look_age_s is not None:
            metrics.put("link_source_age_seconds", (name,), look_age_s)
        if known.up:
            metrics.put("link_throttle_bytes_per_second", (name,), known.links[name].control.throttle_bytes_s)
        status = known.words.get(name)
        age_s = now_s - status.updated_ms / 1000 if status else 0.0
        # A status that says stopped in good order stays true.
        fresh = status is not None and self._is_new(status) and is_fresh(age_s, self._ttl_s)
        holds = status is not None and (fresh or status.state == STOPPED)
        present = status.state if status and holds and status.state in STATES else UNKNOWN
        for state in STATES if known.up else ():
            metrics.put("link_state", (name, state), float(state == present))
        if status is None:
            return
        metrics.put("link_status_age_seconds", (name,), max(0.0, age_s))
        if not fresh or status.state == STOPPED:
            return
        metrics.put("link_tasks", (name,), status.tasks)
        metrics.put("link_records_per_second", (name,), status.records_per_s)
        metrics.put("link_bytes_per_second", (name,), status.bytes_per_s)
        for quantile, value_ms in (("0.5", status.p50_ms), ("0.99", status.p99_ms)):
            if value_ms is not None:
                metrics.put("link_produce_seconds", (name, quantile), value_ms / 1000)

    def _is_new(self, status: LinkStatus) -> bool:
        """Whether the status was written since this process began; compares the status itself, for clocks may be set
        back.
        """
        return (status.link, status.owner, status.updated_ms) not in self._before

    def _known(self, watched: Sequence[Link]) -> StoreSnapshot:
        names = {link.name for link in watched}
        try:
            links = {link.name: effective_link(link, self._store.controls.of(link.name)).link for link in watched}
            words = {status.link: status for status in self._store.links.statuses() if status.link in names}
            counts = [count for count in self._store.incidents.counts() if count.link in names]
            stopped = {name: self._stopped(name) for name in names}
            groups = {name: parse_groups_status(self._store.link_states.of(name, GROUPS_KIND)) for name in names}
            switches = len(self._store.switches.all(open_only=True))
        except StoreError:
            return StoreSnapshot()
        return StoreSnapshot(True, links, words, counts, stopped, groups, switches)

    def _stopped(self, link: str) -> frozenset[TopicPartition]:
        incidents = [row.incident for row in self._store.incidents.rows(link, open_only=True)]
        return frozenset(
            TopicPartition(incident.topic, incident.partition)
            for incident in incidents
            if incident.topic and (incident.policy.stops or incident.policy.effect is IncidentEffect.TOPIC)
        )


def _topics(
    metrics: MetricFamilies, link: Link, topics: Mapping[str, dict[TopicPartition, MeterReading]], known: StoreSnapshot
) -> None:
    stopped = known.stopped.get(link.name, frozenset())
    for topic, ours in topics.items():
        labels = (link.name, topic)
        metrics.carried("topic", labels, sum(ours.values(), EMPTY_READING))
        metrics.put("topic_paused", labels, float(link.control.pauses(topic)))
        metrics.put("topic_stopped_partitions", labels, sum(_is_stopped(partition, stopped) for partition in ours))


def _is_stopped(partition: TopicPartition, stopped: frozenset[TopicPartition]) -> bool:
    return partition in stopped or TopicPartition(partition.topic, -1) in stopped


def _by_topic(readings: Mapping[TopicPartition, MeterReading]) -> dict[str, dict[TopicPartition, MeterReading]]:
    found: dict[str, dict[TopicPartition, MeterReading]] = {}
    for partition, reading in readings.items():
        found.setdefault(partition.topic, {})[partition] = reading
    return found
