"""Looks that may take long: where twins begin, which open transactions hold twins back, and how long the target's
brokers remember a producer.

A separate task for each link: a cluster that does not answer must not keep the watch from saying so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.fleet.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.logs.looks import log_ends
from twinshore.mirror.incidents.kinds import After, known
from twinshore.mirror.incidents.watch_rules import HANGING, Holder, Lack, Patience, holder_of, lacking, suspects
from twinshore.mirror.lane.orders import Stoppage
from twinshore.service.cause_log import Trouble, with_causes
from twinshore.service.clock import wall_ms
from twinshore.service.connections import QUICK
from twinshore.service.ends import Ends
from twinshore.service.scheduler import tasks
from twinshore.store import Incident, IncidentKind, LedgerRow, Store

GONE = "its topic is gone from the source"
LOOK_S_MAX = 30.0
LOOK_S_MIN = 0.5
LOOKS_MIN = 5  # in the time that a transaction may take
SETTING = "producer.id.expiration.ms"
STATE_EXPIRY_MS_DEFAULT = 86_400_000
# Where it is not ours to know: believe in nothing, send one batch at a time where data is older than this.
STATE_EXPIRY_MS_UNKNOWN = 60_000
KIND = IncidentKind.LOST_BEGINNING
EVERY_S = 10.0
PATIENCE_S = 2.0


class HeldTwins:
    """Looks now and then at the partitions that lag."""

    def __init__(
        self,
        link: str,
        source: KafkaCluster,
        store: Store,
        after_s: float,
        *,
        stopped: Callable[[str, Stoppage], None],
        log: Callable[[str], None],
    ) -> None:
        """`stopped` writes a row; `log` gets a sentence for each that opens or closes."""
        self._link, self._source, self._store = link, source, store
        self._stopped, self._log = stopped, log
        self._patience = Patience(after_s)
        self._every_s = min(LOOK_S_MAX, max(LOOK_S_MIN, after_s / LOOKS_MIN))
        self._looked_at_s = 0.0

    def look(self, behind: Iterable[NamedPartition]) -> None:
        """`behind` are the partitions that lag. Rows of transactions that have ended are closed: of those partitions
        alone that the source has answered for, whether or not they are known to lag; and of those that it has no
        more."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s < self._every_s:
            return
        self._looked_at_s = now_s
        rows = [row for row in self._store.ledger.rows(self._link, open_only=True) if row.incident.kind == HANGING]
        told = {NamedPartition(row.incident.topic, row.incident.partition) for row in rows}
        try:
            holders, answered, gone = self._holders(sorted({*behind, *told}))
        except KafkaError:
            return  # Whatever ails the source is told by those who read it; nothing is known to have ended.
        hanging = {one.place: one for one in self._patience.seen(holders, now_s)}
        holding = {(named.topic, named.partition, holder.first_offset) for named, holder in holders.items()}
        now_ms = wall_ms()
        for row in rows:
            place = (row.incident.topic, row.incident.partition, row.incident.from_offset)
            hanging.pop(place, None)  # It has its row.
            named = NamedPartition(*place[:2])
            if named in gone:
                self._store.ledger.close(row.id, now_ms=now_ms, came_to=GONE)
                self._log(f"{self._link}: {named}: {GONE}, and with it the transaction of offset {place[2]}")
            elif place not in holding and named in answered:
                self._store.ledger.close(row.id, now_ms=now_ms)
                self._log(f"{self._link}: {named}: the transaction of offset {place[2]} has ended")
        for found in hanging.values():
            stopped = found.stoppage()
            self._stopped(self._link, stopped)
            self._log(f"{self._link}: {stopped.topic}-{stopped.partition}: {stopped.kind}: {stopped.sentence}")

    def _holders(
        self, asked: list[NamedPartition]
    ) -> tuple[dict[NamedPartition, Holder], set[NamedPartition], set[NamedPartition]]:
        """Who holds which back, of which partitions that is known, and which the source has no more."""
        stable, silent = self._source.offsets_of_each(asked, OffsetKind.LAST_STABLE)
        gone = {named for named, error in silent.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
        ends, _ = self._source.offsets_of_each(stable, OffsetKind.HIGH_WATERMARK)
        held = [named for named in ends if stable[named] < ends[named]]
        producers = self._source.describe_producers(held)
        found = {named: holder_of(stable[named], ends[named], producers[named]) for named in held}
        return {named: holder for named, holder in found.items() if holder is not None}, set(ends), gone


def state_expiry_ms(target: KafkaCluster) -> int:
    """As each broker has it now; the shortest counts."""
    found = STATE_EXPIRY_MS_DEFAULT
    for node in target.metadata([], refresh=True).brokers:
        try:
            setting = target.admin.broker_settings(node).get(SETTING)
        except KafkaError as error:
            if error.code not in (Code.CLUSTER_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED):
                raise
            return min(found, STATE_EXPIRY_MS_UNKNOWN)
        if setting and setting.value:
            found = min(found, int(setting.value))
    return found


class KnownStarts(Protocol):
    """What pumps told."""

    def starts(self, link: str) -> Mapping[NamedPartition, int]:
        """Where the source's logs begin."""

    def cut_to(self, link: str) -> Mapping[NamedPartition, int]:
        """Where twins were cut to begin."""


class BeginningWatch:
    """One link's; for one thread."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        pumps: KnownStarts,
        log: Callable[[str], None],
    ) -> None:
        self._link, self._source, self._target = link, source, target
        self._store, self._pumps, self._log = store, pumps, log
        # By which twin it was: of a topic that was made again nothing of this is true any more.
        self._highest: dict[tuple[NamedPartition, str], int] = {}

    def look(self) -> None:
        """One look at all twins that are exact; a mapped one may begin anywhere."""
        link = self._link.name
        mapped = self._store.extents.reached(link)
        open_rows = self._store.ledger.rows(link, open_only=True)
        # Where a topic is another one by now, its own row says so, and the twin's start means nothing.
        other = {row.incident.topic for row in open_rows if known(row.incident.kind).after is After.TOPIC}
        twins_rows = [row for row in self._store.twins.of(link) if row.topic not in other]
        rows = [row for row in twins_rows if (row.topic, row.partition) not in mapped]
        anchors = {NamedPartition(row.topic, row.partition): row.anchor_offset for row in rows}
        called = {NamedPartition(self._link.twin_of(one.topic), one.partition): one for one in anchors}
        twins = {called[twin]: at for twin, at in _starts(self._target, called).items()}
        told = self._pumps.starts(link)
        ours = [row for row in open_rows if row.incident.kind is KIND]
        opened = {NamedPartition(row.incident.topic, row.incident.partition): row for row in ours}
        known_lacks = {named: Lack(row.incident.from_offset, row.incident.to_offset) for named, row in opened.items()}
        sources = _starts(self._source, suspects(twins, told, known_lacks))
        ids = {NamedPartition(row.topic, row.partition): row.target_topic_id for row in rows}
        before = {named: self._highest.get((named, twin_id), 0) for named, twin_id in ids.items()}
        for seen in (anchors, told, self._pumps.cut_to(link), sources):
            before |= {named: max(at, before[named]) for named, at in seen.items() if named in before}
        self._highest = {(named, ids[named]): at for named, at in before.items()}
        self._tell(lacking(twins, sources, before), opened, sources)

    def _tell(
        self,
        lacks: dict[NamedPartition, Lack],
        opened: dict[NamedPartition, LedgerRow],
        asked: dict[NamedPartition, int],
    ) -> None:
        for named, row in opened.items():
            lack, end = lacks.get(named), row.incident.to_offset
            if named in asked and (lack is None or lack.end != end):
                self._close(named, row, "more is missing" if lack else "the twin has all that its source has")
        for named, lack in lacks.items():
            before = opened.get(named)
            if before is None or before.incident.to_offset != lack.end:
                self._open(named, lack)

    def _open(self, named: NamedPartition, lack: Lack) -> None:
        place = (self._link.name, named.topic, named.partition)
        incident = Incident(*place, KIND, lack.begin, lack.end, known(KIND).policy, lack.sentence, KIND.side)
        self._store.ledger.add(incident, now_ms=wall_ms())
        self._log(f"{self._link.name}: {named}: {KIND}: {lack.sentence}")

    def _close(self, named: NamedPartition, row: LedgerRow, came_to: str) -> None:
        self._store.ledger.close(row.id, now_ms=wall_ms(), came_to=came_to)
        self._log(f"{self._link.name}: {named}: {KIND}: {came_to}")


def _starts(cluster: KafkaCluster, parts: Collection[NamedPartition]) -> dict[NamedPartition, int]:
    """Where these logs begin; of those that cannot be read now, nothing."""
    try:
        return log_ends(cluster, parts, OffsetKind.EARLIEST).of if parts else {}
    except KafkaError:
        return {}


class SlowLooks:
    """`active`: whether the link is ours to speak of. `state_expiry_ms` may be read by any thread, and set by whoever
    has just asked."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        pumps: KnownStarts,
        *,
        active: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        self._link, self._active = link, active
        self._trouble = Trouble(link.name, "twins' beginnings", log, with_causes(log))
        self._ends = Ends(link, settings, patience_s=PATIENCE_S, call_s=PATIENCE_S, shared=QUICK)
        self._beginnings = BeginningWatch(link, self._ends.source, self._ends.target, store, pumps, log)
        self.state_expiry_ms = STATE_EXPIRY_MS_DEFAULT
        ends = (link.source, link.target)
        self._task = tasks.every(f"slow looks {link.name}", self._turn, asks=ends, first_s=EVERY_S)

    def close(self) -> None:
        self._task.close()
        self._ends.close()

    def _turn(self) -> float:
        if not self._active():
            return EVERY_S
        try:
            self._beginnings.look()
            self.state_expiry_ms = state_expiry_ms(self._ends.target)
            self._trouble.well(f"{self._link.name}: twins' beginnings are looked at again")
        except Exception as error:
            self._trouble.say(f"{self._link.name}: twins' beginnings are not looked at", error)
        return EVERY_S
