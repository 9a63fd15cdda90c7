"""Writes the tasks' reports as progress, incidents and statuses to the store, a few times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error, run_all
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.incident_rules import TransientIncidents
from twinshore.replication.core.lag import AlignmentProgress, shared_fetch_row, standby_row
from twinshore.replication.core.model import STANDBY, STOPPED, InactiveLink, LinkFacts, describe_link_state
from twinshore.replication.core.progress_rows import (
    PendingIncidents,
    salvage_refused_progress,
    to_incident,
    to_progress_row,
)
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.replication.task.core.shared_read import READ_KEY, sum_shared_fetch
from twinshore.replication.task.core.throttle import sum_by_side
from twinshore.runtime.scheduler import supervise
from twinshore.state.core.progress_rules import ProgressRefusedError
from twinshore.state.core.values import LinkStatus, ProgressRecord
from twinshore.state.incident_log import DROPS_PER_JOINED_ROW
from twinshore.state.store import Store

log = logging.getLogger(__name__)

RATE_HALF_LIFE_S = 3.0
SPEED_TTL_S = 5.0  # an older report of a task says nothing about now
STATUS_TTL_MS = 10_000
WRITE_FAILURES_MAX = 3  # parts of a turn: a store that is away takes its time for each
DROPS_LOG_INTERVAL_S = 60.0  # of one partition
SETTLE_TIMEOUT_S = 5.0  # so long a new epoch waits for what the last one left unwritten


@dataclass(slots=True)
class LinkStats:
    records: int = 0
    bytes: int = 0
    since_s: float = 0.0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: dict[TopicPartition, int] = field(default_factory=dict)
    rate: dict[TopicPartition, float] = field(default_factory=dict)
    # By task: when the report came, on the monotonic clock, and the report.
    speed: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    cut_to: dict[TopicPartition, int] = field(default_factory=dict)
    aligning: AlignmentProgress = field(default_factory=AlignmentProgress)
    # Bytes that a link of a broadcast has read by itself, since this process began.
    read_total: float = 0.0
    read_before: float = 0.0
    read_per_s: float = 0.0
    # When a task last reported the partition, on the monotonic clock, and the twin's end then.
    heard: dict[TopicPartition, tuple[float, int]] = field(default_factory=dict)

    def cuts(self) -> dict[TopicPartition, int]:
        """Returns log starts of sources that have grown since the twin's last cut."""
        return {partition: at for partition, at in self.starts.copy().items() if at > self.cut_to.get(partition, 0)}

    def speeds(self) -> list[dict[str, float]]:
        """Returns the tasks' reports of the last `SPEED_TTL_S`."""
        now_s = time.monotonic()
        return [speed for told_s, speed in self.speed.copy().values() if now_s - told_s < SPEED_TTL_S]

    def quotas(self) -> dict[str, float]:
        """Returns bytes a second by the side whose quota limits the link."""
        return sum_by_side(self.speeds())

    def held_back(self) -> str:
        """Returns the part of the status sentence on limiting quotas."""
        return "".join(
            f"; held back by the {side}'s quota: {size / 1e6:.2f} MB/s" for side, size in self.quotas().items()
        )

    def let_go(self) -> None:
        """Forgets offsets, since another process may replicate the link from now on."""
        # New ones, since others may be reading the old.
        self.lag, self.starts, self.heard, self.aligning = {}, {}, {}, AlignmentProgress()

    def forget(self, topic: str) -> None:
        self.aligning.forget(topic)
        tables: tuple[dict[TopicPartition, Any], ...] = (self.lag, self.rate, self.starts, self.cut_to, self.heard)
        for table in tables:
            for partition in [partition for partition in table if partition.topic == topic]:
                del table[partition]

    def rates(self, now_s: float) -> None:
        """Updates the rates; recent bytes weigh more after a longer pause."""
        took_s = now_s - self.since_s
        if self.since_s and took_s > 0:
            keep = 0.5 ** (took_s / RATE_HALF_LIFE_S)
            self.records_per_s = keep * self.records_per_s + (1 - keep) * self.records / took_s
            self.bytes_per_s = keep * self.bytes_per_s + (1 - keep) * self.bytes / took_s
            self.read_per_s = keep * self.read_per_s + (1 - keep) * (self.read_total - self.read_before) / took_s
            self.rate = {partition: keep * size for partition, size in self.rate.items() if size > 1.0}
        self.since_s, self.records, self.bytes, self.read_before = now_s, 0, 0, self.read_total

    def reading(self) -> dict[str, float]:
        """Figures of reads shared within a broadcast; empty for other links."""
        return sum_shared_fetch(self.speeds(), self.read_total)


class ProgressRecorder:
    """`take` only queues; a thread writes. `lag`: a link's lag by recent log ends, None: unknown."""

    def __init__(
        self, store: Store, owner: str, every_s: float, lag: Callable[[str], int | None] = lambda _: None
    ) -> None:
        self._lag = lag
        self._store = store
        self._owner = owner
        self._every_s = every_s
        self._repeat_filter = RepeatFilter(log)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._queue: list[TaskReport] = []
        self._unwritten: list[ProgressRecord] = []
        self._unledgered = PendingIncidents()
        self._doubted: dict[str, set[str]] = defaultdict(set)
        self._ledgered: dict[str, list[PartitionIncident]] = defaultdict(list)
        self._drops_said: dict[tuple[str, str, int], float] = {}
        self._drops: dict[tuple[str, str, int], int] = defaultdict(int)  # rows since some were joined
        self._passing = TransientIncidents()
        self._forgotten: list[tuple[str, str]] = []
        self.stats: dict[str, LinkStats] = defaultdict(LinkStats)
        self._facts: dict[str, tuple[LinkFacts, int]] = {}
        # By link: owner and time of another mirror's last status, and when that was first seen here.
        self._others: dict[str, tuple[tuple[str, int], float]] = {}
        self._away: dict[str, dict[str, str]] = defaultdict(dict)
        self._closed = threading.Event()
        self._thread = supervise(self._work, "recorder")

    def take(self, report: TaskReport) -> None:
        with self._lock:
            self._queue.append(report)

    def say(self, link: str, now: LinkFacts, tasks: int) -> tuple[str, str]:
        """Takes the controller's facts. Returns state and sentence as in `twinshore status`, without figures that
        always change. After STOPPED no other state is taken.
        """
        with self._lock:
            before = self._facts.get(link, (None, 0))[0]
            if not (isinstance(before, InactiveLink) and before.word == STOPPED):
                self._facts[link] = (now, tasks)
            return describe_link_state(self._facts[link][0], tuple(self._away[link].values()))

    def away(self, link: str, side: str, sentence: str) -> None:
        """Sets why that side lets nothing through; empty: it does."""
        with self._lock:
            self._away[link].pop(side, None)
            if sentence:
                self._away[link][side] = sentence

    def behind(self, link: str) -> int:
        """Returns the lag in offsets, as far as known."""
        found = self._lag(link)
        return sum(self.stats[link].lag.copy().values()) if found is None else found

    def quotas(self, link: str) -> dict[str, float]:
        """As `LinkStats.quotas`. Any thread may ask for a link that has ended."""
        return self.stats.get(link, LinkStats()).quotas()

    def reading(self, link: str) -> dict[str, float]:
        """As `LinkStats.reading`."""
        return self.stats.get(link, LinkStats()).reading()

    def starts(self, link: str) -> dict[TopicPartition, int]:
        return self.stats[link].starts.copy()

    def cut_to(self, link: str) -> dict[TopicPartition, int]:
        return self.stats[link].cut_to.copy()

    def heard(self, link: str, partition: TopicPartition) -> tuple[float, int]:
        """Returns when a task last reported the partition, in monotonic time, and the twin's end then; zeros: never."""
        return self.stats[link].heard.get(partition, (0.0, 0))

    def _word(self, link: str) -> tuple[str, str, int]:
        """Returns state, sentence and tasks. Call under the lock."""
        now, tasks = self._facts[link]
        return *describe_link_state(now, tuple(self._away[link].values()), self.stats[link].held_back()), tasks

    def words(self) -> dict[str, dict[str, str]]:
        with self._lock:
            words = {link: self._word(link) for link in self._facts}
        return {link: {"state": state, "says": says} for link, (state, says, _) in words.items()}

    def stopped(self, link: str, stoppage: PartitionIncident) -> int:
        """Writes an open incident at once; returns its row's id."""
        return self._store.incidents.add(to_incident(link, stoppage), now_ms=wall_ms()).id

    def passed(self, link: str, stoppage: PartitionIncident) -> None:
        """Writes an incident that is closed already."""
        self._store.incidents.close(self.stopped(link, stoppage), now_ms=wall_ms())

    def mended(self, link: str, topic: str, partition: int = -1) -> None:
        """Closes the partition's open incidents."""
        now_ms = wall_ms()
        for row in self._store.incidents.rows(link, open_only=True):
            if (row.incident.topic, row.incident.partition) == (topic, partition):
                self._store.incidents.close(row.id, now_ms=now_ms)

    def doubted(self, link: str) -> set[str]:
        """Takes topics at which a task stopped because a side seemed deleted or recreated. The controller finds out
        which, so that one incident is written and not one for each partition.
        """
        with self._lock:
            return self._doubted.pop(link, set())

    def take_recorded(self, link: str) -> list[PartitionIncident]:
        """Takes the incidents that have been written since the last call."""
        with self._lock:
            return self._ledgered.pop(link, [])

    def passes(self, link: str, partition: TopicPartition, kind: IncidentKind, until: int) -> None:
        """Notes an open incident that stops nothing, and is over once progress has reached `until`."""
        self._passing.opened(link, partition, kind, until)

    def leaderless(self, link: str) -> frozenset[TopicPartition]:
        """Returns the partitions that wait because a leader is away."""
        return self._passing.away(link)

    def passing(self, link: str, partition: TopicPartition) -> Mapping[IncidentKind, int]:
        """Returns the partition's open kinds that stop nothing, as `TransientIncidents.kinds`."""
        return self._passing.kinds(link, partition)

    def forget(self, link: str, topic: str) -> None:
        """Drops unwritten rows of the topic, which gets a new twin."""
        with self._lock:
            self._forgotten.append((link, topic))

    def settle(self, link: str) -> None:
        """Call before a new lease epoch reads the store: writes the last epoch's progress, or drops it after
        `SETTLE_TIMEOUT_S`.
        """
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            self._flush(words=())  # those of all links, for each link that begins, would take most of the time
            with self._writing:
                held = [record for record in self._unwritten if record.link == link]
                if not held or time.monotonic() >= deadline_s:
                    self._unwritten = [record for record in self._unwritten if record.link != link]
                    self.stats[link].let_go()
                    self._passing.forget(link)
                    break
            time.sleep(self._every_s)
        if held:
            lost = f"{len(held)} progress records of the last epoch could not be written; tasks report them again"
            log.warning(f"{link}: {lost}", extra={"link": link})

    def written(self) -> bool:
        """Writes all reports so far. Returns whether that succeeded."""
        return self._flush(words=())

    def leave(self, link: str) -> None:
        """The link has ended here: writes the last status, and forgets the figures. Progress is still written when the
        store is back.
        """
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while not self._flush(words=(link,)) and time.monotonic() < deadline_s:
            time.sleep(self._every_s)
        with self._writing, self._lock:
            self._passing.forget(link)
            for table in (self._facts, self._away, self._doubted, self._ledgered, self.stats):
                table.pop(link, None)
            self._drops_said = {place: said_s for place, said_s in self._drops_said.items() if place[0] != link}
            for place in [place for place in self._drops if place[0] == link]:
                del self._drops[place]

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=10)
        self._flush()

    def _work(self) -> None:
        while not self._closed.wait(self._every_s):
            self._flush()

    def _flush(self, words: Collection[str] | None = None) -> bool:
        """`words`: links whose statuses are written; None: all. Returns whether all was written."""
        with self._writing:
            try:
                self._write(words)
                self._repeat_filter.well()
            except Exception as error:
                # Nothing queued is dropped: all is written once the store is back.
                self._repeat_filter.say(describe_error(error))
                return False
        return True

    def _write(self, words: Collection[str] | None) -> None:
        """Writes each part by itself, so that a refused one does not hold up the others."""
        with self._lock:
            accounts, self._queue = self._queue, []
            forgotten, self._forgotten = self._forgotten, []
        for report in accounts:
            for incident in report.incidents:
                self._queue_incident(report.link, incident)
            self._count(report)
            self._unwritten.extend(to_progress_row(report.link, progress) for progress in report.carried)
        for link, topic in forgotten:
            self._unwritten = [record for record in self._unwritten if (record.link, record.topic) != (link, topic)]
            self._unledgered.forget(link, topic)
            self._passing.forget(link, topic)
            self.stats[link].forget(topic)
        # Incidents before progress: a reader of progress and then of the incident log sees what was dropped below.
        run_all((self._write_incidents, self._record, partial(self._write_words, words), self._join_drops))

    def _write_incidents(self) -> None:
        refused: list[Exception] = []
        for places in self._unledgered.turn():
            found = self._unledgered.rows(places)
            try:
                self._store.incidents.add_all([to_incident(*one) for one in found], now_ms=wall_ms())
            except Exception as error:
                self._unledgered.failed(places)
                refused.append(error)
                if len(refused) == WRITE_FAILURES_MAX:
                    break
                continue
            self._unledgered.written(places)
            for link, incident in found:
                self._say_stopped(link, incident)
                if incident.kind is IncidentKind.STALE_DROPPED:
                    self._drops[link, incident.topic, incident.partition] += 1
                with self._lock:
                    self._ledgered[link].append(incident)
        if refused:
            raise refused[0]

    def _join_drops(self) -> None:
        """Joins rows of drops, which would fill the incident log in a lasting overload."""
        for place in [place for place, rows in self._drops.items() if rows >= DROPS_PER_JOINED_ROW]:
            self._store.incidents.join_drops(*place)
            del self._drops[place]

    def _write_words(self, of: Collection[str] | None) -> None:
        now_ms = wall_ms()
        with self._lock:
            states = {link: self._word(link) for link in self._facts if of is None or link in of}
        stand_by = any(state == STANDBY for state, _, _ in states.values())
        status = self._store.links.statuses() if stand_by else ()  # once for all: each may have another mirror's status
        beside = []
        for link, (state, sentence, tasks) in states.items():
            if state == STANDBY and self._covers_another(link, status, now_ms):
                beside.append(standby_row(link, self._owner, sentence, now_ms))
                continue
            self._store.links.save_status(self._status(link, state, sentence, tasks, now_ms))
            stats = self.stats[link]
            if reading := stats.reading():
                beside.append(shared_fetch_row(link, reading, len(stats.lag), stats.read_per_s, now_ms))
        if beside:
            self._store.link_states.remember(beside)

    def _queue_incident(self, link: str, incident: PartitionIncident) -> None:
        if incident.kind == IncidentKind.RECREATED_TOPIC:
            with self._lock:
                self._doubted[link].add(incident.topic)
            return
        with self._lock:
            away = set(self._away[link])
        if self._passing.hear(link, incident, away):
            self._unledgered.put(link, incident)

    def _covers_another(self, link: str, statuses: Iterable[LinkStatus], now_ms: int) -> bool:
        """Whether another mirror reports the link's status, which a standby must not overwrite. A status is alive while
        changes are seen here, so wrong clocks do no harm; only the first one seen is judged by its time.
        """
        words = [status for status in statuses if status.link == link and status.owner != self._owner]
        for status in words:
            if status.state in (STANDBY, STOPPED):
                continue
            said, now_s, before = (status.owner, status.updated_ms), time.monotonic(), self._others.get(link)
            if before is None or before[0] != said:
                lives = before is not None or now_ms - status.updated_ms < STATUS_TTL_MS
                before = self._others[link] = said, now_s if lives else -1e9
            return now_s - before[1] < STATUS_TTL_MS / 1000
        return False

    def _say_stopped(self, link: str, incident: PartitionIncident) -> None:
        """Limits log lines of dropped records, several a second in an overload; the incident log has all."""
        more = ""
        if incident.kind is IncidentKind.STALE_DROPPED:
            now_s, place = time.monotonic(), (link, incident.topic, incident.partition)
            if now_s - self._drops_said.get(place, -DROPS_LOG_INTERVAL_S) < DROPS_LOG_INTERVAL_S:
                return
            self._drops_said[place] = now_s
            more = f"; what else is dropped there within {DROPS_LOG_INTERVAL_S:g} s is only in the incident log"
        partition = TopicPartition(incident.topic, incident.partition)
        policy = incident.policy or incident.kind.policy
        text = f"{link}: {partition}: {incident.kind}: {incident.sentence}{more}"
        log.log(policy.log_level, text, extra={"link": link, **asdict(partition)})

    def _record(self) -> None:
        """Holds progress back while an incident of the partition is unwritten: after a crash in between, lost offsets
        would count as replicated.
        """
        waiting = {(link, incident.topic, incident.partition) for link, incident in self._unledgered}
        held, due = list[ProgressRecord](), list[ProgressRecord]()
        for record in self._unwritten:
            (held if (record.link, record.topic, record.partition) in waiting else due).append(record)
        while due:
            try:
                self._store.progress.record(due)
            except ProgressRefusedError as error:
                # Another mirror has the link by now, and has recorded the same offsets.
                log.warning(error.message)
                refused = {id(progress.progress): salvage_refused_progress(progress) for progress in error.refused}
                due = [kept for record in due for kept in refused.get(id(record), (record,))]
                self._unwritten = held + due
                continue
            due = []
        self._unwritten = held

    def _count(self, report: TaskReport) -> None:
        stats = self.stats[report.link]
        stats.speed[report.task] = (time.monotonic(), report.speed)
        stats.read_total += report.speed.get(READ_KEY, 0.0)
        for progress in report.carried:
            partition = TopicPartition(progress.topic, progress.partition)
            stats.records += progress.records
            stats.bytes += progress.bytes
            stats.lag[partition] = max(0, progress.source_end - progress.to_offset)
            stats.aligning.note(partition, progress.to_offset, progress.source_start)
            stats.starts[partition] = min(progress.source_start, progress.to_offset)
            stats.heard[partition] = time.monotonic(), progress.to_offset
            self._passing.reached(report.link, partition, progress.to_offset)
            stats.rate[partition] = stats.rate.get(partition, 0.0) + progress.bytes

    def _status(self, link: str, state: str, sentence: str, tasks: int, now_ms: int) -> LinkStatus:
        stats = self.stats[link]
        stats.rates(time.monotonic())
        speeds = stats.speeds()
        p50 = sorted(speed["produce_p50_ms"] for speed in speeds if "produce_p50_ms" in speed)
        p99 = [speed["produce_p99_ms"] for speed in speeds if "produce_p99_ms" in speed]
        status = (link, self._owner, state, sentence, now_ms, tasks, len(stats.lag))
        rates = (stats.records_per_s, stats.bytes_per_s, self.behind(link))
        return LinkStatus(*status, *rates, p50[len(p50) // 2] if p50 else None, max(p99, default=None))
