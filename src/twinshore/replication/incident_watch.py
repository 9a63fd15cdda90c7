"""Watches what no task can detect, in separate tasks of each link.

`AvailabilityWatch` detects an unavailable side, refused access and full disks within seconds, over connections for
quick polls. `SlowChecks` may take long: where twins begin, and how long the target's brokers remember a producer.
`HangingTransactionWatch` finds open transactions that hold replication back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from twinshore.config.errors import ConfigError, KafkaError, WireError
from twinshore.config.incident_policy import IncidentKind, IncidentOutcome, IncidentSide
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.config.repeat_filter import RepeatFilter, describe_error, run_all
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.brokers import LogDir, read_log_dirs
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.log_reader import read_log_ends
from twinshore.kafka.metadata import NO_LEADER
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.core.incident_rules import (
    HANGING_KIND,
    DiskSpace,
    IncidentAction,
    MissingOffsets,
    OldestTransaction,
    OutageTracker,
    TransactionTimer,
    describe_disks,
    describe_outage_with_cause,
    find_missing_offsets,
    find_oldest_transaction,
    judge_disk_space,
    select_suspect_twins,
)
from twinshore.replication.task.core.error_actions import AUTHORIZATION_CODES
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.runtime.endpoints import SHORT_TIMEOUT_CONNECTIONS, LinkClients
from twinshore.runtime.logging import FailureLog, LinkLogger, OutageLog
from twinshore.runtime.scheduler import process_scheduler
from twinshore.state.core.values import Incident, IncidentRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

TOPIC_GONE = "its topic is gone from the source"
POLL_S_MAX = 30.0
POLL_S_MIN = 0.5
POLLS_PER_TIMEOUT = 5  # within the time that a transaction may take
PRODUCER_EXPIRY_SETTING = "producer.id.expiration.ms"
STATE_EXPIRY_MS_DEFAULT = 86_400_000
# If unknown: assume the least, and send one batch at a time where data is older than this.
STATE_EXPIRY_MS_UNKNOWN = 60_000
LOST_BEGINNING_KIND = IncidentKind.LOST_BEGINNING
SLOW_POLL_INTERVAL_S = 10.0
PATIENCE_S = 2.0


class HangingTransactionWatch:
    """Polls lagging partitions for hanging transactions."""

    def __init__(
        self,
        link: str,
        source: KafkaCluster,
        store: Store,
        after_s: float,
        *,
        stopped: Callable[[str, PartitionIncident], object],
    ) -> None:
        """`stopped` writes a row."""
        self._link, self._source, self._store = link, source, store
        self._stopped, self._log = stopped, LinkLogger(log, link)
        self._patience = TransactionTimer(after_s)
        self._every_s = min(POLL_S_MAX, max(POLL_S_MIN, after_s / POLLS_PER_TIMEOUT))
        self._looked_at_s = 0.0

    def look(self, behind: Iterable[TopicPartition]) -> None:
        """`behind`: partitions that lag. Closes rows of ended transactions, if the source answered for the partition,
        and of partitions that are gone.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s < self._every_s:
            return
        self._looked_at_s = now_s
        rows = [
            row for row in self._store.incidents.rows(self._link, open_only=True) if row.incident.kind == HANGING_KIND
        ]
        partitions = {TopicPartition(row.incident.topic, row.incident.partition) for row in rows}
        try:
            holders, answered, gone = self._holders(sorted({*behind, *partitions}))
        except KafkaError:
            return  # Readers of the source report its failure; no transaction is known to have ended.
        hanging = {one.place: one for one in self._patience.seen(holders, now_s)}
        holding = {(partition.topic, partition.partition, holder.first_offset) for partition, holder in holders.items()}
        now_ms = wall_ms()
        for row in rows:
            place = (row.incident.topic, row.incident.partition, row.incident.from_offset)
            hanging.pop(place, None)  # It has its row.
            partition = TopicPartition(*place[:2])
            if partition in gone or (place not in holding and partition in answered):
                came_to = TOPIC_GONE if partition in gone else ""
                self._store.incidents.close(row.id, now_ms=now_ms, came_to=came_to)
                ended = came_to and f"{came_to}, and with it the transaction of offset {place[2]}"
                ended = ended or f"the transaction of offset {place[2]} has ended"
                self._log.info(f"{partition}: {ended}", extra=asdict(partition))
        for found in hanging.values():
            incident = found.stoppage()
            self._stopped(self._link, incident)
            partition = TopicPartition(incident.topic, incident.partition)
            self._log.warning(f"{partition}: {incident.kind}: {incident.sentence}", extra=asdict(partition))

    def _holders(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, OldestTransaction], set[TopicPartition], set[TopicPartition]]:
        """Returns the oldest transaction of each held partition, the partitions with an answer, and those gone from the
        source.
        """
        stable, silent = self._source.offsets_of_each(partitions, OffsetKind.LAST_STABLE)
        gone = {partition for partition, error in silent.items() if error.code == Code.unknown_topic_or_partition}
        ends, _ = self._source.offsets_of_each(stable, OffsetKind.HIGH_WATERMARK)
        held = [partition for partition in ends if stable[partition] < ends[partition]]
        producers = self._source.describe_producers(held)
        found = {
            partition: find_oldest_transaction(stable[partition], ends[partition], producers[partition])
            for partition in held
        }
        return {partition: holder for partition, holder in found.items() if holder is not None}, set(ends), gone


def read_state_expiry_ms(target: KafkaCluster) -> int:
    """The shortest producer expiry of all brokers. STATE_EXPIRY_MS_UNKNOWN at most without the right to ask."""
    found = STATE_EXPIRY_MS_DEFAULT
    for node in target.metadata([], refresh=True).brokers:
        try:
            entry = target.admin.broker_settings(node).get(PRODUCER_EXPIRY_SETTING)
        except KafkaError as error:
            if error.code not in (Code.cluster_authorization_failed, Code.topic_authorization_failed):
                raise
            return min(found, STATE_EXPIRY_MS_UNKNOWN)
        if entry and entry.value:
            found = min(found, int(entry.value))
    return found


class ReportedLogStarts(Protocol):
    """Log starts that tasks reported."""

    def starts(self, link: str) -> Mapping[TopicPartition, int]:
        """Log starts of the source."""

    def cut_to(self, link: str) -> Mapping[TopicPartition, int]:
        """Offsets to which twins were cut."""


class LogStartWatch:
    """Finds twins that lost their beginning. For one link and one thread."""

    def __init__(
        self, link: Link, source: KafkaCluster, target: KafkaCluster, store: Store, reported: ReportedLogStarts
    ) -> None:
        self._link, self._source, self._target = link, source, target
        self._store, self._reported, self._log = store, reported, LinkLogger(log, link.name)
        # By twin id: for a topic that was created again nothing of this holds.
        self._highest: dict[tuple[TopicPartition, str], int] = {}

    def look(self) -> None:
        """Polls exact twins; a mapped one may begin anywhere."""
        link = self._link.name
        mapped = self._store.offset_runs.reached(link)
        open_rows = self._store.incidents.rows(link, open_only=True)
        # A topic that was created again has its own row, and the twin's start means nothing.
        other = {row.incident.topic for row in open_rows if row.incident.kind.after is IncidentOutcome.TOPIC}
        twins_rows = [row for row in self._store.twins.of(link) if row.topic not in other]
        rows = [row for row in twins_rows if (row.topic, row.partition) not in mapped]
        anchors = {TopicPartition(row.topic, row.partition): row.base_offset for row in rows}
        called = {TopicPartition(self._link.twin_of(tp.topic), tp.partition): tp for tp in anchors}
        twins = {called[twin]: at for twin, at in _starts(self._target, called).items()}
        told = self._reported.starts(link)
        ours = [row for row in open_rows if row.incident.kind is LOST_BEGINNING_KIND]
        opened = {TopicPartition(row.incident.topic, row.incident.partition): row for row in ours}
        known_lacks = {
            partition: MissingOffsets(row.incident.from_offset, row.incident.to_offset)
            for partition, row in opened.items()
        }
        sources = _starts(self._source, select_suspect_twins(twins, told, known_lacks))
        ids = {TopicPartition(row.topic, row.partition): row.target_topic_id for row in rows}
        before = {partition: self._highest.get((partition, twin_id), 0) for partition, twin_id in ids.items()}
        for seen in (anchors, told, self._reported.cut_to(link), sources):
            before |= {partition: max(at, before[partition]) for partition, at in seen.items() if partition in before}
        self._highest = {(partition, ids[partition]): at for partition, at in before.items()}
        self._tell(find_missing_offsets(twins, sources, before), opened, sources)

    def _tell(
        self,
        lacks: dict[TopicPartition, MissingOffsets],
        opened: dict[TopicPartition, IncidentRow],
        asked: dict[TopicPartition, int],
    ) -> None:
        for partition, row in opened.items():
            lack, end = lacks.get(partition), row.incident.to_offset
            if partition in asked and (lack is None or lack.end != end):
                self._close(partition, row, "more is missing" if lack else "the twin has all that its source has")
        for partition, lack in lacks.items():
            before = opened.get(partition)
            if before is None or before.incident.to_offset != lack.end:
                self._open(partition, lack)

    def _open(self, partition: TopicPartition, lack: MissingOffsets) -> None:
        place = (self._link.name, partition.topic, partition.partition)
        kind, policy = LOST_BEGINNING_KIND, LOST_BEGINNING_KIND.policy
        incident = Incident(*place, kind, lack.begin, lack.end, policy, lack.sentence, kind.side)
        self._store.incidents.add(incident, now_ms=wall_ms())
        text = f"{partition}: {kind}: {lack.sentence}"
        self._log.log(policy.log_level, text, extra=asdict(partition))

    def _close(self, partition: TopicPartition, row: IncidentRow, came_to: str) -> None:
        self._store.incidents.close(row.id, now_ms=wall_ms(), came_to=came_to)
        self._log.info(f"{partition}: {LOST_BEGINNING_KIND}: {came_to}", extra=asdict(partition))


def _starts(cluster: KafkaCluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        return read_log_ends(cluster, partitions, OffsetKind.EARLIEST).of if partitions else {}
    except KafkaError:
        return {}


class SlowChecks:
    """Slow polls of one link. `active`: whether this process reports on the link. `state_expiry_ms` may be read by any
    thread.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        reported: ReportedLogStarts,
        *,
        active: Callable[[], bool],
        outages: OutageLog,
    ) -> None:
        self._link, self._active = link, active
        self._trouble = FailureLog(link.name, "log starts of twins", log, outages)
        self._clients = LinkClients(
            link, settings, patience_s=PATIENCE_S, call_s=PATIENCE_S, shared=SHORT_TIMEOUT_CONNECTIONS
        )
        self._beginnings = LogStartWatch(link, self._clients.source, self._clients.target, store, reported)
        self.state_expiry_ms = STATE_EXPIRY_MS_DEFAULT
        ends = (link.source, link.target)
        self._task = process_scheduler.every(
            f"slow checks {link.name}", self._turn, asks=ends, first_s=SLOW_POLL_INTERVAL_S
        )

    def close(self) -> None:
        self._task.close()
        self._clients.close()

    def _turn(self) -> float:
        if not self._active():
            return SLOW_POLL_INTERVAL_S
        try:
            self._beginnings.look()
            self.state_expiry_ms = read_state_expiry_ms(self._clients.target)
            self._trouble.well("the twins' log starts are checked again")
        except Exception as error:
            self._trouble.say("the twins' log starts are not checked", error)
        return SLOW_POLL_INTERVAL_S


POLL_INTERVAL_S = 1.0
TWINS_INTERVAL_S = 10.0
# How long a side must be away before the link is said to wait for it: one slow answer proves nothing.
WAITING_AFTER_S = 3.0
SHOWN_MAX = 5
RECORDS = "records"
ACCESS_DENIED_CODES = AUTHORIZATION_CODES | {Code.sasl_authentication_failed}


@dataclass(slots=True)
class WatchedOutage:
    """A kind of outage, and its open incident."""

    kind: IncidentKind
    tracker: OutageTracker
    row: IncidentRow | None = None


@dataclass(slots=True)
class WatchedCluster:
    """One cluster of the link. `away`: it does not answer, or nothing has a leader. `refused`: it refuses the mirror's
    access. `none_since_s`: since when nothing can be replicated because of it; -1: something can.
    """

    side: IncidentSide
    cluster: KafkaCluster
    away: WatchedOutage
    refused: WatchedOutage
    none_since_s: float = -1.0
    silent: str = ""  # why it does not answer at all; the log says that for all links


class LinkStatusReporter(Protocol):
    def away(self, link: str, side: str, sentence: str) -> None: ...

    def behind(self, link: str) -> int: ...


class AvailabilityWatch:
    """Watches both sides of one link. `active`: whether this process reports on the link. `held`: partitions that must
    not be written now; may be read by any thread.
    """

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        recorder: LinkStatusReporter,
        *,
        active: Callable[[], bool],
        outages: OutageLog,
    ) -> None:
        self._link, self._mirror, self._store = link, settings.mirror, store
        self._recorder, self._active, self._outages = recorder, active, outages
        self._log = LinkLogger(log, link.name)
        self._repeat_filter = RepeatFilter(self._log)
        self._sides = [
            self._side(IncidentSide.SOURCE, IncidentKind.SOURCE_AWAY, settings.cluster(link.source)),
            self._side(IncidentSide.TARGET, IncidentKind.TARGET_AWAY, settings.cluster(link.target)),
        ]
        self.held: frozenset[TopicPartition] = frozenset()
        self._twins: list[TopicPartition] = []
        self._twins_at_s = self._disks_at_s = -1e9
        self._rooms: dict[int, DiskSpace] = {}
        self._disk_row: IncidentRow | None = None
        self._disks_unknown = ""
        self._adopted = False
        asks = (link.source, link.target)
        self._task = process_scheduler.every(f"watch {link.name}", self._turn, asks=asks, first_s=POLL_INTERVAL_S)

    def close(self) -> None:
        self._task.close()
        self._outages.forget(self._link.name)
        for side in self._sides:
            side.cluster.close()

    def _side(self, side: IncidentSide, kind: IncidentKind, cluster: Cluster) -> WatchedCluster:
        client = SHORT_TIMEOUT_CONNECTIONS.client(cluster, PATIENCE_S)
        return WatchedCluster(side, client, self._outage(kind), self._outage(IncidentKind.RIGHTS_LOST))

    def _outage(self, kind: IncidentKind) -> WatchedOutage:
        return WatchedOutage(kind, OutageTracker(self._mirror.away_after_s))

    def _turn(self) -> float:
        if not self._active():
            self._adopted = False
            self._outages.forget(self._link.name)
            for side in self._sides:
                side.silent = ""
                self._report_away(side, "", 0.0)
            return POLL_INTERVAL_S
        try:
            self.look()
            self._repeat_filter.well()
        except Exception as error:
            # A dead watch would look as if all were well.
            self._repeat_filter.say(describe_error(error))
        return POLL_INTERVAL_S

    def look(self) -> None:
        """Polls both sides, and the target's disks if due. One failure does not stop the others."""
        if not self._adopted:
            self._adopt()
        if time.monotonic() - self._twins_at_s >= TWINS_INTERVAL_S:
            self._read_twins(time.monotonic())
        run_all([*(partial(self._check, side) for side in self._sides), self._check_disks])

    def _check_disks(self) -> None:
        now_s = time.monotonic()
        if self._mirror.disk_warn_percent and now_s - self._disks_at_s >= self._mirror.disk_check_s:
            self._disks_at_s = now_s
            # A new twin must be paused too.
            self._read_twins(now_s)
            self._look_at_disks(self._sides[1].cluster)

    def _read_twins(self, now_s: float) -> None:
        self._twins_at_s = now_s
        self._twins = [TopicPartition(row.topic, row.partition) for row in self._store.twins.of(self._link.name)]

    # -- away

    def _check(self, side: WatchedCluster) -> None:
        away = refused = side.silent = ""
        some = False
        begun_s = time.monotonic()
        try:
            away, some = self._leaderless(side)
        except KafkaError as error:
            if error.code in ACCESS_DENIED_CODES:
                refused = f"the {side.side} refuses the mirror's access: {error}"
            else:
                away = describe_outage_with_cause(side.side, side.cluster.name, error.cause or str(error))
                side.silent = error.cause
        except (WireError, ConfigError) as error:
            away = f"the {side.side} {side.cluster.name} cannot be asked: {error}"
        now_s = time.monotonic()
        self._report_away(side, "" if some else away or refused, begun_s)
        outages = ((side.away, away), (side.refused, refused))
        run_all([partial(self._judge, side, outage, cause, now_s, begun_s) for outage, cause in outages])

    def _judge(self, side: WatchedCluster, outage: WatchedOutage, cause: str, now_s: float, begun_s: float) -> None:
        """The row lasts from the beginning of the silence to the next answer. An outage counts as reported once the
        incident log has the row.
        """
        tracker = outage.tracker
        action = tracker.look(bool(cause), now_s, begun_s)
        if action is IncidentAction.OPEN:
            self._report_silent(side)
            outage.row = self._open(outage.kind, cause, side.side, at_s=tracker.since_s)
            tracker.open = True
        elif action is IncidentAction.CLOSE:
            lasted = f" after {tracker.lasted_s():.0f} s" if tracker.lasted_s() else ""
            came_to = f"back{lasted}, {self._recorder.behind(self._link.name):,} records behind"
            if outage.row is not None:
                self._close(outage.row, came_to, at_s=tracker.well_s)
            outage.row, tracker.open = None, False

    def _report_away(self, side: WatchedCluster, cause: str, begun_s: float) -> None:
        """`cause`: why nothing can be replicated because of this side, or ""."""
        if not cause:
            side.none_since_s = -1.0
        elif side.none_since_s < 0:
            side.none_since_s = begun_s
        lasts = cause and time.monotonic() - side.none_since_s >= WAITING_AFTER_S
        self._recorder.away(self._link.name, side.side, cause if lasts else "")
        if lasts:
            self._report_silent(side)
        if not side.silent:
            self._outages.answers(self._link.name, RECORDS, side.cluster.name)

    def _report_silent(self, side: WatchedCluster) -> None:
        if side.silent:
            place = (side.cluster.name, self._link.name, RECORDS)
            self._outages.silent(*place, side.silent, since_s=side.none_since_s)

    def _leaderless(self, side: WatchedCluster) -> tuple[str, bool]:
        """Describes partitions without a leader, or ""; and returns whether others have one."""
        names = {tp.topic for tp in self._twins}
        if side.side is IncidentSide.TARGET:
            names = {self._link.twin_of(name) for name in names}
        topics = side.cluster.metadata(sorted(names), refresh=True).topics
        missing = [
            f"{name}-{partition.partition}"
            for name, topic in sorted(topics.items())
            for partition in topic.partitions
            if partition.leader == NO_LEADER
        ]
        if not missing:
            return "", True
        every = sum(len(topic.partitions) for topic in topics.values())
        sentence = f"no broker leads {join_names(missing, SHOWN_MAX)} on the {side.side} {side.cluster.name}"
        return sentence, len(missing) < every

    # -- disks

    def _look_at_disks(self, target: KafkaCluster) -> None:
        try:
            metadata = target.metadata(sorted({self._link.twin_of(one.topic) for one in self._twins}), refresh=True)
            disks = [disk for node in sorted(metadata.brokers) for disk in read_log_dirs(target, node)]
        except (KafkaError, WireError, ConfigError) as error:
            passing = isinstance(error, KafkaError) and error.retriable
            if not passing and str(error) != self._disks_unknown:
                self._disks_unknown = str(error)
                self._log.warning(f"the target's disks cannot be watched: {error}")
            return
        warn, pause = self._mirror.disk_warn_percent, self._mirror.disk_pause_percent
        now = judge_disk_space(disks, self._rooms, warn_percent=warn, pause_percent=pause)
        full = {node for node, room in now.items() if room is DiskSpace.EXHAUSTED}
        self.held = frozenset(
            partition
            for partition in (self._twins if full else ())
            if (topic := metadata.topics.get(self._link.twin_of(partition.topic)))
            and any(full.intersection(tp.replicas) for tp in topic.partitions if tp.partition == partition.partition)
        )
        little = any(room is not DiskSpace.ENOUGH for room in now.values())
        if now != self._rooms or little != (self._disk_row is not None):
            self._tell_disks(disks, now)
        self._rooms = now

    def _tell_disks(self, disks: Iterable[LogDir], now: dict[int, DiskSpace]) -> None:
        sentence = describe_disks(self._link.target, disks, now)
        if self._disk_row is not None:
            self._close(self._disk_row, "more changed" if sentence else "there is room again")
            self._disk_row = None
        if sentence:
            rest = f"; {len(self.held)} partitions are paused" if self.held else ""
            self._disk_row = self._open(IncidentKind.DISK_NEAR_FULL, sentence + rest, IncidentSide.TARGET)

    # -- the incident log

    def _adopt(self) -> None:
        rows = self._store.incidents.rows(self._link.name, open_only=True)
        self._disk_row = None
        for side in self._sides:
            side.away, side.refused = self._outage(side.away.kind), self._outage(side.refused.kind)
        for row in rows:
            kind = row.incident.kind
            if row.incident.topic:
                continue
            if kind is IncidentKind.DISK_NEAR_FULL:
                self._disk_row, self._rooms = row, {-1: DiskSpace.LOW}
            for side in self._sides:
                own = row.incident.side is side.side
                outage = side.away if kind is side.away.kind else side.refused if own else None
                if outage and kind is outage.kind:
                    outage.row, outage.tracker.open = row, True
        self._adopted = True

    def _open(self, kind: IncidentKind, sentence: str, side: IncidentSide, at_s: float = -1.0) -> IncidentRow:
        policy = kind.policy
        incident = Incident(self._link.name, "", -1, kind, -1, -1, policy, sentence, side)
        row = self._store.incidents.add(incident, now_ms=_moment_ms(at_s))
        self._log_incident(kind, sentence, policy.log_level)
        return row

    def _close(self, row: IncidentRow, came_to: str, at_s: float = -1.0) -> None:
        self._store.incidents.close(row.id, now_ms=max(row.opened_ms, _moment_ms(at_s)), came_to=came_to)
        self._log_incident(row.incident.kind, came_to, logging.INFO)

    def _log_incident(self, kind: IncidentKind, sentence: str, level: int) -> None:
        """The log reports a silent cluster once for all links."""
        silent = [side.cluster.name for side in self._sides if side.away.kind is kind]
        if not any(map(self._outages.has_reported, silent)):
            self._log.log(level, f"{kind}: {sentence}")


def _moment_ms(at_s: float) -> int:
    """Converts a monotonic time to wall time; below 0: now."""
    return wall_ms() - (int((time.monotonic() - at_s) * 1000) if at_s >= 0 else 0)
