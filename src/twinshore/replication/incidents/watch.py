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
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import Link, TopicPartition
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
from twinshore.replication.core.incident_kinds import IncidentOutcome, kind_entry
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
from twinshore.replication.task.core.config import PartitionIncident
from twinshore.replication.task.core.error_actions import AUTHORIZATION_CODES
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
        stopped: Callable[[str, PartitionIncident], None],
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
        told = {TopicPartition(row.incident.topic, row.incident.partition) for row in rows}
        try:
            holders, answered, gone = self._holders(sorted({*behind, *told}))
        except KafkaError:
            return  # Readers of the source report its failure; no transaction is known to have ended.
        hanging = {one.place: one for one in self._patience.seen(holders, now_s)}
        holding = {(named.topic, named.partition, holder.first_offset) for named, holder in holders.items()}
        now_ms = wall_ms()
        for row in rows:
            place = (row.incident.topic, row.incident.partition, row.incident.from_offset)
            hanging.pop(place, None)  # It has its row.
            named = TopicPartition(*place[:2])
            if named in gone:
                self._store.incidents.close(row.id, now_ms=now_ms, came_to=TOPIC_GONE)
                gone_too = f"{TOPIC_GONE}, and with it the transaction of offset {place[2]}"
                self._log.info(f"{named}: {gone_too}", extra=asdict(named))
            elif place not in holding and named in answered:
                self._store.incidents.close(row.id, now_ms=now_ms)
                ended = f"{named}: the transaction of offset {place[2]} has ended"
                self._log.info(ended, extra=asdict(named))
        for found in hanging.values():
            stopped = found.stoppage()
            self._stopped(self._link, stopped)
            named = TopicPartition(stopped.topic, stopped.partition)
            self._log.warning(f"{named}: {stopped.kind}: {stopped.sentence}", extra=asdict(named))

    def _holders(
        self, asked: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, OldestTransaction], set[TopicPartition], set[TopicPartition]]:
        """Returns the oldest transaction of each held partition, the partitions with an answer, and those gone from the
        source.
        """
        stable, silent = self._source.offsets_of_each(asked, OffsetKind.LAST_STABLE)
        gone = {named for named, error in silent.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
        ends, _ = self._source.offsets_of_each(stable, OffsetKind.HIGH_WATERMARK)
        held = [named for named in ends if stable[named] < ends[named]]
        producers = self._source.describe_producers(held)
        found = {named: find_oldest_transaction(stable[named], ends[named], producers[named]) for named in held}
        return {named: holder for named, holder in found.items() if holder is not None}, set(ends), gone


def read_state_expiry_ms(target: KafkaCluster) -> int:
    """The shortest producer expiry of all brokers. STATE_EXPIRY_MS_UNKNOWN at most without the right to ask."""
    found = STATE_EXPIRY_MS_DEFAULT
    for node in target.metadata([], refresh=True).brokers:
        try:
            setting = target.admin.broker_settings(node).get(PRODUCER_EXPIRY_SETTING)
        except KafkaError as error:
            if error.code not in (Code.CLUSTER_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED):
                raise
            return min(found, STATE_EXPIRY_MS_UNKNOWN)
        if setting and setting.value:
            found = min(found, int(setting.value))
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
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        pumps: ReportedLogStarts,
    ) -> None:
        self._link, self._source, self._target = link, source, target
        self._store, self._pumps, self._log = store, pumps, LinkLogger(log, link.name)
        # By twin id: for a topic that was created again nothing of this holds.
        self._highest: dict[tuple[TopicPartition, str], int] = {}

    def look(self) -> None:
        """Polls exact twins; a mapped one may begin anywhere."""
        link = self._link.name
        mapped = self._store.offset_runs.reached(link)
        open_rows = self._store.incidents.rows(link, open_only=True)
        # A topic that was created again has its own row, and the twin's start means nothing.
        other = {
            row.incident.topic for row in open_rows if kind_entry(row.incident.kind).after is IncidentOutcome.TOPIC
        }
        twins_rows = [row for row in self._store.twins.of(link) if row.topic not in other]
        rows = [row for row in twins_rows if (row.topic, row.partition) not in mapped]
        anchors = {TopicPartition(row.topic, row.partition): row.base_offset for row in rows}
        called = {TopicPartition(self._link.twin_of(one.topic), one.partition): one for one in anchors}
        twins = {called[twin]: at for twin, at in _starts(self._target, called).items()}
        told = self._pumps.starts(link)
        ours = [row for row in open_rows if row.incident.kind is LOST_BEGINNING_KIND]
        opened = {TopicPartition(row.incident.topic, row.incident.partition): row for row in ours}
        known_lacks = {
            named: MissingOffsets(row.incident.from_offset, row.incident.to_offset) for named, row in opened.items()
        }
        sources = _starts(self._source, select_suspect_twins(twins, told, known_lacks))
        ids = {TopicPartition(row.topic, row.partition): row.target_topic_id for row in rows}
        before = {named: self._highest.get((named, twin_id), 0) for named, twin_id in ids.items()}
        for seen in (anchors, told, self._pumps.cut_to(link), sources):
            before |= {named: max(at, before[named]) for named, at in seen.items() if named in before}
        self._highest = {(named, ids[named]): at for named, at in before.items()}
        self._tell(find_missing_offsets(twins, sources, before), opened, sources)

    def _tell(
        self,
        lacks: dict[TopicPartition, MissingOffsets],
        opened: dict[TopicPartition, IncidentRow],
        asked: dict[TopicPartition, int],
    ) -> None:
        for named, row in opened.items():
            lack, end = lacks.get(named), row.incident.to_offset
            if named in asked and (lack is None or lack.end != end):
                self._close(named, row, "more is missing" if lack else "the twin has all that its source has")
        for named, lack in lacks.items():
            before = opened.get(named)
            if before is None or before.incident.to_offset != lack.end:
                self._open(named, lack)

    def _open(self, named: TopicPartition, lack: MissingOffsets) -> None:
        place = (self._link.name, named.topic, named.partition)
        kind, policy = LOST_BEGINNING_KIND, kind_entry(LOST_BEGINNING_KIND).policy
        incident = Incident(*place, kind, lack.begin, lack.end, policy, lack.sentence, kind.side)
        self._store.incidents.add(incident, now_ms=wall_ms())
        text = f"{named}: {kind}: {lack.sentence}"
        self._log.log(policy.log_level, text, extra=asdict(named))

    def _close(self, named: TopicPartition, row: IncidentRow, came_to: str) -> None:
        self._store.incidents.close(row.id, now_ms=wall_ms(), came_to=came_to)
        self._log.info(f"{named}: {LOST_BEGINNING_KIND}: {came_to}", extra=asdict(named))


def _starts(cluster: KafkaCluster, parts: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        return read_log_ends(cluster, parts, OffsetKind.EARLIEST).of if parts else {}
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
        pumps: ReportedLogStarts,
        *,
        active: Callable[[], bool],
        outages: OutageLog,
    ) -> None:
        self._link, self._active = link, active
        self._trouble = FailureLog(link.name, "twins' beginnings", log, outages)
        self._ends = LinkClients(
            link, settings, patience_s=PATIENCE_S, call_s=PATIENCE_S, shared=SHORT_TIMEOUT_CONNECTIONS
        )
        self._beginnings = LogStartWatch(link, self._ends.source, self._ends.target, store, pumps)
        self.state_expiry_ms = STATE_EXPIRY_MS_DEFAULT
        ends = (link.source, link.target)
        self._task = process_scheduler.every(
            f"slow looks {link.name}", self._turn, asks=ends, first_s=SLOW_POLL_INTERVAL_S
        )

    def close(self) -> None:
        self._task.close()
        self._ends.close()

    def _turn(self) -> float:
        if not self._active():
            return SLOW_POLL_INTERVAL_S
        try:
            self._beginnings.look()
            self.state_expiry_ms = read_state_expiry_ms(self._ends.target)
            self._trouble.well("twins' beginnings are looked at again")
        except Exception as error:
            self._trouble.say("twins' beginnings are not looked at", error)
        return SLOW_POLL_INTERVAL_S


POLL_INTERVAL_S = 1.0
TWINS_INTERVAL_S = 10.0
CALL_TIMEOUT_S = 2.0
WAITING_AFTER_S = (
    3.0  # how long a side must be away before the link is said to wait for it: one slow answer proves nothing
)
SHOWN_MAX = 5
RECORDS = "records"
ACCESS_DENIED_CODES = AUTHORIZATION_CODES | {Code.SASL_AUTHENTICATION_FAILED}
WATCHED_KINDS = (
    IncidentKind.SOURCE_AWAY,
    IncidentKind.TARGET_AWAY,
    IncidentKind.RIGHTS_LOST,
    IncidentKind.DISK_NEAR_FULL,
)


@dataclass(slots=True)
class WatchedCluster:
    """One cluster of the link. `kind`: of its outage incident. `row`: the open outage incident. `refused_row`: the open
    incident about refused access.
    """

    called: str
    kind: IncidentKind
    cluster: KafkaCluster
    away: OutageTracker
    refused: OutageTracker
    none_since_s: float = -1.0
    row: IncidentRow | None = None
    refused_row: IncidentRow | None = None
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
        self._once = RepeatFilter(self._log)
        self._sides = [
            self._side("source", IncidentKind.SOURCE_AWAY, settings, link.source),
            self._side("target", IncidentKind.TARGET_AWAY, settings, link.target),
        ]
        self.held: frozenset[TopicPartition] = frozenset()
        self._twins: list[TopicPartition] = []
        self._twins_at_s = self._disks_at_s = -1e9
        self._rooms: dict[int, DiskSpace] = {}
        self._disk_row: IncidentRow | None = None
        self._disks_unknown = ""
        self._adopted = False
        self._task = process_scheduler.every(
            f"watch {link.name}", self._turn, asks=(link.source, link.target), first_s=POLL_INTERVAL_S
        )

    def close(self) -> None:
        self._task.close()
        self._outages.forget(self._link.name)
        for side in self._sides:
            side.cluster.close()

    def _side(self, called: str, kind: IncidentKind, settings: Settings, name: str) -> WatchedCluster:
        cluster = KafkaCluster(
            settings.cluster(name),
            client_id=SHORT_TIMEOUT_CONNECTIONS.client_id,
            patience_s=PATIENCE_S,
            call_s=CALL_TIMEOUT_S,
            pool=SHORT_TIMEOUT_CONNECTIONS.pool,
        )
        return WatchedCluster(called, kind, cluster, self._absence(), self._absence())

    def _absence(self) -> OutageTracker:
        return OutageTracker(self._mirror.away_after_s)

    def _turn(self) -> float:
        if not self._active():
            self._adopted = False
            self._outages.forget(self._link.name)
            for side in self._sides:
                side.silent = ""
                self._say_whether_away(side, "", 0.0)
            return POLL_INTERVAL_S
        try:
            self.look()
            self._once.well()
        except Exception as error:
            # A dead watch would look as if all were well.
            self._once.say(f"{describe_error(error)}")
        return POLL_INTERVAL_S

    def look(self) -> None:
        """Polls both sides, and the target's disks if due. One failure does not stop the others."""
        if not self._adopted:
            self._adopt()
        if time.monotonic() - self._twins_at_s >= TWINS_INTERVAL_S:
            self._read_twins(time.monotonic())
        run_all([*(partial(self._look_at, side) for side in self._sides), self._look_at_room])

    def _look_at_room(self) -> None:
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

    def _look_at(self, side: WatchedCluster) -> None:
        away = refused = side.silent = ""
        some = False
        begun_s = time.monotonic()
        try:
            away, some = self._leaderless(side)
        except KafkaError as error:
            if error.code in ACCESS_DENIED_CODES:
                refused = f"the {side.called} turns the mirror away: {error}"
            else:
                away = describe_outage_with_cause(side.called, side.cluster.name, error.cause or str(error))
                side.silent = error.cause
        except (WireError, ConfigError) as error:
            away = f"the {side.called} {side.cluster.name} cannot be asked: {error}"
        now_s = time.monotonic()
        self._say_whether_away(side, "" if some else away or refused, begun_s)
        run_all(
            [
                lambda: self._judge(side.away, away, partial(self._tell_away, side), now_s, begun_s),
                lambda: self._judge(side.refused, refused, partial(self._tell_refused, side), now_s, begun_s),
            ]
        )

    def _judge(
        self, absence: OutageTracker, trouble: str, tell: Callable[[str, str], None], now_s: float, begun_s: float
    ) -> None:
        """An outage counts as reported once the incident log has the row."""
        turn = absence.look(bool(trouble), now_s, begun_s)
        if turn is IncidentAction.OPEN:
            tell(trouble, "")
            absence.open = True
        elif turn is IncidentAction.CLOSE:
            lasted = f" after {absence.lasted_s():.0f} s" if absence.lasted_s() else ""
            tell("", f"back{lasted}, {self._recorder.behind(self._link.name):,} records behind")
            absence.open = False

    def _tell_away(self, side: WatchedCluster, trouble: str, came_to: str) -> None:
        """The row lasts from the beginning of the silence to the next answer."""
        if side.row is not None:
            self._close(side.row, came_to, at_s=side.away.well_s)
        if trouble:
            self._say_silent(side)
        where = side.kind.side
        side.row = self._open(side.kind, trouble, where, at_s=side.away.since_s) if trouble else None

    def _tell_refused(self, side: WatchedCluster, trouble: str, came_to: str) -> None:
        if side.refused_row is not None:
            self._close(side.refused_row, came_to)
        side.refused_row = self._open(IncidentKind.RIGHTS_LOST, trouble, side.kind.side) if trouble else None

    def _say_whether_away(self, side: WatchedCluster, none: str, begun_s: float) -> None:
        """`none`: why nothing can be replicated because of this side, or ""."""
        if not none:
            side.none_since_s = -1.0
        elif side.none_since_s < 0:
            side.none_since_s = begun_s
        lasts = none and time.monotonic() - side.none_since_s >= WAITING_AFTER_S
        self._recorder.away(self._link.name, side.called, none if lasts else "")
        if lasts:
            self._say_silent(side)
        if not side.silent:
            self._outages.answers(self._link.name, RECORDS, side.cluster.name)

    def _say_silent(self, side: WatchedCluster) -> None:
        if side.silent:
            self._outages.silent(side.cluster.name, self._link.name, RECORDS, side.silent, since_s=side.none_since_s)

    def _leaderless(self, side: WatchedCluster) -> tuple[str, bool]:
        """Describes partitions without a leader, or ""; and returns whether others have one."""
        names = {named.topic for named in self._twins}
        if side.called == "target":
            names = {self._link.twin_of(name) for name in names}
        seen = side.cluster.metadata(sorted(names), refresh=True).topics
        missing = [
            f"{name}-{part.partition}"
            for name, topic in sorted(seen.items())
            for part in topic.partitions
            if part.leader == NO_LEADER
        ]
        if not missing:
            return "", True
        every = sum(len(topic.partitions) for topic in seen.values())
        sentence = f"nobody leads {join_names(missing, SHOWN_MAX)} on the {side.called} {side.cluster.name}"
        return sentence, len(missing) < every

    # -- disks

    def _look_at_disks(self, target: KafkaCluster) -> None:
        try:
            seen = target.metadata(sorted({self._link.twin_of(one.topic) for one in self._twins}), refresh=True)
            disks = [disk for node in sorted(seen.brokers) for disk in read_log_dirs(target, node)]
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
            named
            for named in (self._twins if full else ())
            if (topic := seen.topics.get(self._link.twin_of(named.topic)))
            and any(full.intersection(part.replicas) for part in topic.partitions if part.partition == named.partition)
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
            rest = f"; {len(self.held)} partitions rest" if self.held else ""
            self._disk_row = self._open(IncidentKind.DISK_NEAR_FULL, sentence + rest, IncidentSide.TARGET)

    # -- the incident log

    def _adopt(self) -> None:
        rows = self._store.incidents.rows(self._link.name, open_only=True)
        self._disk_row = None
        for side in self._sides:
            side.row = side.refused_row = None
            side.away, side.refused = self._absence(), self._absence()
        for row in rows:
            kind = row.incident.kind
            if row.incident.topic or kind not in WATCHED_KINDS:
                continue
            if kind is IncidentKind.DISK_NEAR_FULL:
                self._disk_row, self._rooms = row, {-1: DiskSpace.LOW}
            for side in self._sides:
                if kind is side.kind:
                    side.row, side.away.open = row, True
                if kind is IncidentKind.RIGHTS_LOST and row.incident.side is side.kind.side:
                    side.refused_row, side.refused.open = row, True
        self._adopted = True

    def _open(self, kind: IncidentKind, sentence: str, where: IncidentSide, at_s: float = -1.0) -> IncidentRow:
        incident = Incident(self._link.name, "", -1, kind, -1, -1, kind_entry(kind).policy, sentence, where)
        row = self._store.incidents.add(incident, now_ms=_moment_ms(at_s))
        self._say_of(kind, sentence, kind_entry(kind).policy.log_level)
        return row

    def _close(self, row: IncidentRow, came_to: str, at_s: float = -1.0) -> None:
        self._store.incidents.close(row.id, now_ms=max(row.opened_ms, _moment_ms(at_s)), came_to=came_to)
        self._say_of(row.incident.kind, came_to, logging.INFO)

    def _say_of(self, kind: IncidentKind, sentence: str, level: int) -> None:
        """The log reports a silent cluster once for all links."""
        side = next((one for one in self._sides if one.kind is kind), None)
        if side is None or not self._outages.has_reported(side.cluster.name):
            self._log.log(level, f"{kind}: {sentence}")


def _moment_ms(at_s: float) -> int:
    """Converts a monotonic time to wall time; below 0: now."""
    return wall_ms() - (int((time.monotonic() - at_s) * 1000) if at_s >= 0 else 0)
