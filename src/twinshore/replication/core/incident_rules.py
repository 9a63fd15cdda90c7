"""Rules for incidents: when a side is away or back, low disk space, missing offsets, hanging and transient incidents.

A twin that begins later than its source lost records by retention or deletion on the target; these cannot be replicated
again. A transaction's age counts from when a twin was first seen to wait: time stamps are the producer's own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from twinshore.config.incident_policy import IncidentKind, is_transient
from twinshore.config.model import TopicPartition
from twinshore.kafka.brokers import LogDir
from twinshore.kafka.leader_queries import ProducerState
from twinshore.replication.task.core.messages import PartitionIncident

HANGING_KIND = IncidentKind.HANGING_TRANSACTION
BACK_AFTER_S = 2.0  # a side must answer for so long before it counts as back: by then lags are known again
DISK_HYSTERESIS_PERCENT = 0.2  # above the limit, so that a broker at the limit does not alternate


class OldestTransaction(NamedTuple):
    """The oldest open transaction of a partition; `end`: the source's log end."""

    producer_id: int
    first_offset: int
    end: int


class HangingTransaction(NamedTuple):
    partition: TopicPartition
    holder: OldestTransaction
    age_s: float

    @property
    def place(self) -> tuple[str, int, int]:
        """Identifies the transaction, also in the incident log."""
        return self.partition.topic, self.partition.partition, self.holder.first_offset

    def stoppage(self) -> PartitionIncident:
        topic, partition, first = self.place
        sentence = (
            f"producer id {self.holder.producer_id} holds a transaction open that began at offset {first}, for"
            f" {self.age_s:.0f} s or longer: the twin waits there, {self.holder.end - first} offsets behind. End it at"
            f" its application, or with kafka-transactions.sh abort --topic {topic} --partition {partition}"
            f" --start-offset {first} on the source"
        )
        policy = HANGING_KIND.policy
        return PartitionIncident(topic, partition, HANGING_KIND, first, self.holder.end, sentence, policy)


def find_oldest_transaction(stable: int, end: int, producers: Iterable[ProducerState]) -> OldestTransaction | None:
    """Returns the transaction that holds `stable`, the last stable offset, below the log end, if any."""
    opened = [producer for producer in producers if producer.current_txn_start >= 0]
    if stable >= end or not opened:
        return None
    first = min(opened, key=lambda producer: producer.current_txn_start)
    return OldestTransaction(first.producer_id, first.current_txn_start, end)


class TransactionTimer:
    """Since when each transaction has held up a twin."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: dict[tuple[TopicPartition, int, int], float] = {}

    def seen(self, holders: Mapping[TopicPartition, OldestTransaction], now_s: float) -> list[HangingTransaction]:
        """Returns those that hold up a twin for too long. `holders`: all there are now."""
        before, self._since_s = self._since_s, {}
        hanging = []
        for partition, holder in holders.items():
            key = (partition, holder.producer_id, holder.first_offset)
            since_s = self._since_s[key] = before.get(key, now_s)
            if now_s - since_s >= self._after_s:
                hanging.append(HangingTransaction(partition, holder, now_s - since_s))
        return hanging


class MissingOffsets(NamedTuple):
    """Offsets [begin, end) that the source has and the twin lacks."""

    begin: int
    end: int

    @property
    def sentence(self) -> str:
        return (
            f"the twin begins at {self.end}, its source at {self.begin}: records {self.begin} to {self.end - 1} are"
            " missing on the twin; they were deleted there, or retention is set on it"
        )


def select_suspect_twins(
    twins: Mapping[TopicPartition, int],
    reported: Mapping[TopicPartition, int],
    known: Mapping[TopicPartition, MissingOffsets],
) -> list[TopicPartition]:
    """Returns twins whose source's log start must be read: the reported one may be too low."""
    return [partition for partition, start in twins.items() if start > reported.get(partition, 0) or partition in known]


def find_missing_offsets(
    twins: Mapping[TopicPartition, int], sources: Mapping[TopicPartition, int], cut: Mapping[TopicPartition, int]
) -> dict[TopicPartition, MissingOffsets]:
    """Returns what twins that begin at `twins` lack. `sources` must be read after these. `cut`: a former log start of
    the source: a new leader may begin lower for a while, and the mirror itself cut the twin there.
    """
    return {
        partition: MissingOffsets(sources[partition], start)
        for partition, start in twins.items()
        if partition in sources and start > max(sources[partition], cut.get(partition, 0))
    }


class IncidentAction(Enum):
    NOTHING = "nothing"
    OPEN = "open a row"
    CLOSE = "close it"


@dataclass(slots=True)
class OutageTracker:
    """Tracks one reason why nothing is replicated. The caller sets `open`: there is a row."""

    after_s: float
    open: bool = False
    since_s: float = -1.0
    well_s: float = -1.0

    def look(self, trouble: bool, now_s: float, begun_s: float = -1.0) -> IncidentAction:
        """Takes a check's result. `begun_s`: when a long check began; nothing has answered since."""
        if trouble:
            over, self.well_s = self.well_s >= 0 and not self.open, -1.0
            if self.since_s < 0 or over:
                self.since_s = begun_s if begun_s >= 0 else now_s
            lasts = now_s - self.since_s >= self.after_s
            return IncidentAction.OPEN if lasts and not self.open else IncidentAction.NOTHING
        if not self.open:
            self.since_s = -1.0
            return IncidentAction.NOTHING
        if self.well_s < 0:
            self.well_s = now_s
        return IncidentAction.CLOSE if now_s - self.well_s >= BACK_AFTER_S else IncidentAction.NOTHING

    def lasted_s(self) -> float:
        """Returns the outage's seconds; 0: it began before the first check."""
        return max(0.0, self.well_s - self.since_s) if self.since_s >= 0 else 0.0


def describe_outage(side: str, cluster: str) -> str:
    return f"the {side} {cluster} does not answer"


def describe_outage_with_cause(side: str, cluster: str, cause: str) -> str:
    return f"{describe_outage(side, cluster)}: {cause}"


def parse_outage_cause(sentence: str, side: str, cluster: str) -> str:
    """Returns the cause; empty: another sentence."""
    prefix = describe_outage_with_cause(side, cluster, "")
    return sentence.removeprefix(prefix) if sentence.startswith(prefix) else ""


class DiskSpace(Enum):
    ENOUGH = "enough"
    LOW = "little"
    EXHAUSTED = "none"


def judge_disk_space(
    disks: Iterable[LogDir], before: Mapping[int, DiskSpace], *, warn_percent: float, pause_percent: float
) -> dict[int, DiskSpace]:
    """Judges each broker by its fullest disk, with hysteresis."""
    free: dict[int, float] = {}
    for disk in disks:
        free[disk.node_id] = min(disk.free_percent, free.get(disk.node_id, 100.0))
    spaces = {}
    for node, percent in free.items():
        was = before.get(node, DiskSpace.ENOUGH)
        pause = pause_percent + (DISK_HYSTERESIS_PERCENT if was is DiskSpace.EXHAUSTED and pause_percent else 0.0)
        warn = warn_percent + (DISK_HYSTERESIS_PERCENT if was is not DiskSpace.ENOUGH and warn_percent else 0.0)
        spaces[node] = DiskSpace.EXHAUSTED if percent < pause else DiskSpace.LOW if percent < warn else DiskSpace.ENOUGH
    return spaces


def describe_disks(target: str, disks: Iterable[LogDir], now: Mapping[int, DiskSpace]) -> str:
    """Describes disks with low space; empty: enough space."""
    sentences = []
    for disk in sorted(disks):
        room = now.get(disk.node_id, DiskSpace.ENOUGH)
        rests = "; nothing is written to its twins" if room is DiskSpace.EXHAUSTED else ""
        free = f"{disk.usable_bytes / 1e9:.1f} GB ({disk.free_percent:.1f} %) free in {disk.log_dir}"
        if room is not DiskSpace.ENOUGH:
            sentences.append(f"broker {disk.node_id} of {target} has {free}{rests}")
    return "; ".join(sentences)


SIDE_BY_AWAY_KIND = {IncidentKind.SOURCE_AWAY: "source", IncidentKind.TARGET_AWAY: "target"}


@dataclass(frozen=True, slots=True)
class _Open:
    """An open kind: over at offset `until`; progress has reached `reached` since."""

    until: int
    reached: int = -1


class TransientIncidents:
    """Incidents that stop nothing, and are over once progress has reached an offset."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, TopicPartition], dict[IncidentKind, _Open]] = {}

    def opened(self, link: str, partition: TopicPartition, kind: IncidentKind, until: int) -> None:
        kinds = self._open.setdefault((link, partition), {})
        before = kinds.get(kind, _Open(until))
        # An incident that ends below earlier progress is of a twin that has fallen back: over once reported again.
        reached = before.reached if before.reached < until else -1
        kinds[kind] = _Open(max(until, before.until), reached)

    def kinds(self, link: str, partition: TopicPartition) -> Mapping[IncidentKind, int]:
        """Returns open kinds, each with an offset: rows that end there or below are over, since an overload opens row
        after row. -1 for a side that is away, with a single row.
        """
        here = self._open.get((link, partition), {}).copy()  # another thread may open one now
        return {kind: -1 if kind in SIDE_BY_AWAY_KIND else incident.reached for kind, incident in here.items()}

    def away(self, link: str) -> frozenset[TopicPartition]:
        """Returns partitions that wait for an absent leader."""
        here = [(partition, kinds) for (name, partition), kinds in list(self._open.items()) if name == link]
        return frozenset(partition for partition, kinds in here if not SIDE_BY_AWAY_KIND.keys().isdisjoint(kinds))

    def forget(self, link: str, topic: str | None = None) -> None:
        """The topic gets a new twin. `topic` None: incidents of the link must be reported again, for another process
        may have closed them.
        """
        gone = [key for key in self._open if key[0] == link and topic in (None, key[1].topic)]
        for key in gone:
            del self._open[key]

    def reached(self, link: str, partition: TopicPartition, to_offset: int) -> None:
        if kinds := self._open.get((link, partition)):
            left = {kind: incident for kind, incident in kinds.items() if incident.until > to_offset}
            self._open[link, partition] = {kind: replace(row, reached=to_offset) for kind, row in left.items()}

    def hear(self, link: str, incident: PartitionIncident, away: Container[str]) -> bool:
        """Whether the incident needs a row; tasks repeat what lasts, and each check repeats a loss. `away`: sides that
        are away as a whole, with a row of their own.
        """
        partition, side = incident.named, SIDE_BY_AWAY_KIND.get(incident.kind, "")
        if not is_transient(incident.kind, incident.policy):
            return True
        if side in away:
            return False
        before = self._open.get((link, partition), {}).get(incident.kind)
        known_to = before.until if before else -1
        self.opened(link, partition, incident.kind, incident.to_offset)
        if incident.kind == IncidentKind.LOST_BY_TARGET:
            return known_to < incident.to_offset
        return not (side and known_to >= 0)
