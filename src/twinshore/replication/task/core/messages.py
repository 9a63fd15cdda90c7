"""What tasks and task groups are told and what they report: values, messages, and lines of JSON.

A task's messages are commands of its core. They are encoded and decoded only here; driver and task have one version. A
**task group** is a set of small tasks of several links, side by side in one Spark task.

Leader epochs tell which history of the source a twin follows. A source that lost its end and grew again has other
records at the same offsets, in a later epoch. The source can tell how far the history of an epoch goes.

A mapped twin's sequences count the link's records, so the broker compares and swaps as on an exact twin. What a dead
task did not report is found again: the twin has the batches with their sequences, and the source the record of each.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from twinshore.config.incident_policy import POLICY_DROP, IncidentKind, IncidentPolicy, IncidentSide
from twinshore.config.model import (
    Cluster,
    OffsetRun,
    QueueRules,
    SourceOffset,
    TargetOffset,
    TopicPartition,
    append_runs,
    source_end,
    target_end,
)
from twinshore.config.sections.mirror import MirrorSettings
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN, next_sequence
from twinshore.kafka.protocol.rewrite import MERGED_PLAIN_BYTES_MAX
from twinshore.replication.task.core.throttle import QuotaSnapshot

UNKNOWN_EPOCH = -1


class EpochOffset(NamedTuple):
    """All below `end` is of one history, whose last record has leader epoch `epoch`, or UNKNOWN_EPOCH."""

    epoch: int
    end: int


NO_EPOCH_OFFSET = EpochOffset(UNKNOWN_EPOCH, 0)


def latest_epoch_offset(known: EpochOffset, told: EpochOffset) -> EpochOffset:
    """The later of two reports."""
    older = told.end < known.end or (told.end == known.end and told.epoch == UNKNOWN_EPOCH)
    return known if older else told


class EpochEnd(NamedTuple):
    """The source's answer for an epoch: the largest up to it that wrote here, and its end; -1 if unknown."""

    epoch: int
    end: int


def divergence_offset(stand: EpochOffset, said: EpochEnd) -> int:
    """Returns from where the source's history differs, or -1. An earlier epoch that ends above `stand` proves nothing:
    if cleaners removed all records of an epoch, newer replicas do not know that epoch.
    """
    known = stand.epoch >= 0 and said.end >= 0
    return said.end if known and said.end < stand.end else -1


def choose_fetch_epoch(stand: EpochOffset, said: EpochEnd) -> int:
    """The epoch for a fetch from `stand` on, if the source knows one; it would refuse others."""
    return said.epoch if stand.epoch >= 0 and said.end >= stand.end else UNKNOWN_EPOCH


def compare_histories(told: EpochOffset, here: EpochOffset, said: Mapping[int, EpochEnd]) -> tuple[int, int]:
    """Returns the epoch for a fetch from `here.end`, the twin's end, and from where the source's history differs, or
    -1. `told`: what was replicated. `here.epoch`: of the source's record right below. `said`: the source's answers.
    """
    carried = EpochOffset(told.epoch, min(told.end, here.end))
    answers = [(stand, said.get(stand.epoch, EpochEnd(UNKNOWN_EPOCH, UNKNOWN_EPOCH))) for stand in (carried, here)]
    parted = min((at for stand, answer in answers if (at := divergence_offset(stand, answer)) >= 0), default=-1)
    known = told.end == here.end and UNKNOWN_EPOCH not in (told.epoch, here.epoch)
    if parted < 0 and known and told.epoch != here.epoch:
        parted = here.end - 1
    if here.epoch == UNKNOWN_EPOCH and told.end == here.end:
        return choose_fetch_epoch(*answers[0]), parted
    return choose_fetch_epoch(*answers[1]), parted


class WrittenPosition(NamedTuple):
    """The next record has `sequence`, at `source` or above, and will land at `target` or above.

    `warm`: reported by the task just before, so nothing older can have landed above. `last_source`, `last_target`: of
    the last landed record, or -1.
    """

    source: int
    target: int
    sequence: int
    warm: bool = False
    last_source: int = -1
    last_target: int = -1

    def passed(self, told_to: int) -> WrittenPosition:
        """The position if all below `told_to` was reported: the offsets after the last record are invisible."""
        return self._replace(source=max(self.source, told_to))

    def ahead(self, sequence: int) -> int:
        """How many records `sequence` is ahead; negative if before."""
        distance = (sequence - self.sequence) % SEQUENCE_SPAN
        return distance if distance < SEQUENCE_SPAN // 2 else distance - SEQUENCE_SPAN


class LandedBatch(NamedTuple):
    target: int
    records: int
    sequence: int


class UnclearLanding(NamedTuple):
    """What landed cannot be determined."""

    sentence: str


def position_after(offset_run: OffsetRun) -> WrittenPosition:
    source, target = source_end(offset_run), target_end(offset_run)
    position = WrittenPosition(source, target, next_sequence(offset_run.sequence, offset_run.length))
    return position._replace(last_source=source - 1, last_target=target - 1) if offset_run.length else position


def find_landed_beyond(reach: WrittenPosition, landed: Iterable[LandedBatch]) -> list[LandedBatch] | UnclearLanding:
    """The batches that landed above `reach`, without a gap in sequences. If a compacted twin misses as many offsets as
    sequences, all of them were the link's.
    """
    fresh: list[LandedBatch] = []
    at, end = 0, reach.target
    for batch in landed:
        ahead = reach.ahead(batch.sequence)
        if ahead + batch.records <= at:
            continue
        if ahead < at:
            known = at - ahead
            sequence = next_sequence(reach.sequence, at)
            batch, ahead = LandedBatch(batch.target + known, batch.records - known, sequence), at
        missing = ahead - at
        if missing and missing != batch.target - end:
            where = f"before offset {batch.target} of the twin"
            return UnclearLanding(f"{missing} of the link's records are missing {where}; their offsets are unknown")
        if missing:
            fresh.append(LandedBatch(end, missing, next_sequence(reach.sequence, at)))
        fresh.append(batch)
        at, end = ahead + batch.records, batch.target + batch.records
    return fresh


def map_landed_batches(
    reach: WrittenPosition, fresh: Iterable[LandedBatch], runs: Iterable[tuple[int, int]]
) -> list[OffsetRun] | UnclearLanding:
    """The offset runs of `fresh`. `runs`: visible source offsets [first, end) from `reach` on, in order."""
    visible = _pieces(reach, runs)
    offset_runs: list[OffsetRun] = []
    first = end = 0
    for target, count, sequence in fresh:
        while count:
            if first == end:
                first, end = next(visible, (0, 0))
                if first == end:
                    return UnclearLanding(f"the twin has more of the link's records than the source, from {target} on")
            size = min(count, end - first)
            offset_runs.append(OffsetRun(SourceOffset(first), TargetOffset(target), size, sequence))
            first, target, count = first + size, target + size, count - size
            sequence = next_sequence(sequence, size)
    return append_runs(None, offset_runs)


def _pieces(reach: WrittenPosition, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in runs:
        if end > reach.source:
            yield max(first, reach.source), end


KEEP_ALL = QueueRules()
T = TypeVar("T")
_FORMS: dict[type[Any], TypeAdapter[Any]] = {}
UNDELIVERED_S_MAX = 4.0  # and at most a part of an attempt, or tasks with short attempts would never be sure


def is_too_old(stamp_ms: int, since_ms: int) -> bool:
    """Whether records are too old. Without a time stamp they count as new."""
    return 0 <= stamp_ms < since_ms


def dropped_incident(partition: TopicPartition, begin: int, end: int, why: str) -> PartitionIncident:
    sentence = f"{end - begin} offsets were dropped, {why}" if end - begin > 1 else f"1 offset was dropped, {why}"
    place = partition.topic, partition.partition, IncidentKind.STALE_DROPPED, begin, end
    return PartitionIncident(*place, sentence, POLICY_DROP, why=why)


def subtract_landed(rows: Iterable[PartitionIncident], landed: Iterable[tuple[int, int]]) -> list[PartitionIncident]:
    """Removes offsets that an inspection found on the twin after all."""
    left = list(rows)
    for begin, end in landed:
        incidents: list[PartitionIncident] = []
        for row in left:
            kept = ((row.from_offset, min(row.to_offset, begin)), (max(row.from_offset, end), row.to_offset))
            incidents += [dropped_incident(row.named, *part, row.why) for part in kept if part[0] < part[1]]
        left = incidents
    return left


def append_incident(incidents: list[PartitionIncident], incident: PartitionIncident) -> None:
    """Adds an incident, or extends the last one."""
    last = incidents[-1] if incidents else None
    place = (incident.topic, incident.partition, incident.kind, incident.from_offset, incident.why)
    if last and (last.topic, last.partition, last.kind, last.to_offset, last.why) == place:
        incidents.pop()
        incident = dropped_incident(incident.named, last.from_offset, incident.to_offset, incident.why)
    incidents.append(incident)


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """One partition to replicate. `receipt_to`: where progress ends; -1: progress begins at the twin's end.
    `receipt_epoch`: the source's leader epoch below, or -1.
    """

    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    receipt_to: int = 0
    base_offset: int = 0
    base_sequence: int = 0
    twin: str = ""
    # Only for a mapped twin: how far it is written and reported.
    reached: WrittenPosition | None = None
    receipt_epoch: int = -1
    # Below `inherited` the twin's log is the topic's own. `epoch`: how much later the link's epoch is on this twin.
    inherited: int = 0
    epoch: int = 0
    # After a position up to here a drop-oldest queue may have dropped records unreported; -1: after none.
    thinned_to: int = -1
    # The twin was made for this order: no task was allowed to write it before.
    untouched: bool = False

    @property
    def named(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def may_lack(self, reach: WrittenPosition) -> bool:
        """Whether records may be missing after `reach`."""
        return reach.source <= self.thinned_to

    @property
    def twin_named(self) -> TopicPartition:
        """The target's partition; `twin` is empty for the source's name."""
        return TopicPartition(self.twin or self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of one task; every buffer and queue has one. Defaults as by `limits_from_settings`."""

    fetch_bytes_max: int = 8 << 20
    partition_bytes_max: int = 1 << 20
    fetch_wait_ms_max: int = 500
    inflight_max: int = 8
    request_bytes_max: int = 4 << 20
    merge_below_bytes: int = 4096
    merged_bytes_max: int = 512 << 10
    merged_plain_bytes_max: int = MERGED_PLAIN_BYTES_MAX
    # Work parsed at a time, as `BatchParser` counts it: some tenths of a second, far less than a lease.
    work_max: int = 100_000
    join_below_bytes: int = 128 << 10
    joined_bytes_max: int = 64 << 20
    produce_timeout_s: float = 30.0
    # Markers are written for at most so many missing offsets on a twin with records.
    gap_offsets_max: int = 20_000_000
    # A request that the target's kernel has not acknowledged within this time is never delivered.
    undelivered_s: float = 4.0
    buffers_per_line: int = 2
    far_streams: int = 2  # connections to each leader of a far source
    # The limits of one fetch from there, and of one partition in it.
    fetch_bytes_widest: int = 128 << 20
    partition_bytes_widest: int = 32 << 20


def limits_from_settings(settings: MirrorSettings) -> TaskLimits:
    return TaskLimits(
        fetch_bytes_max=settings.fetch_mb << 20,
        partition_bytes_max=settings.partition_fetch_kb << 10,
        fetch_wait_ms_max=settings.fetch_wait_ms,
        inflight_max=settings.inflight_max,
        merge_below_bytes=settings.merge_below_bytes,
        merged_bytes_max=settings.merge_target_kb << 10,
        join_below_bytes=settings.join_below_kb << 10,
        produce_timeout_s=settings.produce_timeout_s,
        gap_offsets_max=settings.gap_offsets_max,
        undelivered_s=min(UNDELIVERED_S_MAX, settings.task_run_s / 4),
    )


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """All that a task needs to start. Positions come with StartWriting."""

    link: str
    task: int
    run: int
    source: Cluster
    target: Cluster
    producer_id: int
    producer_epoch: int
    state_expiry_ms: int
    coordinator_host: str
    coordinator_port: int
    coordinator_token: str = field(repr=False)
    limits: TaskLimits = TaskLimits()
    report_s: float = 0.5
    fence: int = 0
    # The prefix of the link's transactional ids; empty if markers are written directly.
    units: str = ""
    # The required cluster ids; another cluster at these addresses is not written to.
    source_id: str = ""
    target_id: str = ""
    # No record of a twin is ever cut off.
    never_cut: bool = False
    # The link's broadcast, whose tasks of this number share fetches; what is held for slow ones.
    broadcast: str = ""
    queue: QueueRules = KEEP_ALL

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def json_adapter(kind: type[T]) -> TypeAdapter[T]:
    """A cached adapter. Raises ValueError for other values."""
    if kind not in _FORMS:
        _FORMS[kind] = TypeAdapter(kind)
    return _FORMS[kind]


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where a task released a partition, so that the next needs no inspection.

    `position`: -1 if the twin's end is unknown; then only zombie requests are described. `calm`: no lost request can
    still land. Else one may for `strays_s` seconds (-1: unknown), read in `stray_epoch` or later; `strays_moved`:
    sequences may be of other offsets, or markers. `next_sequence`: -1 if markers never took an offset.

    Valid while the twin is led by `target` in `target_epoch`; -1 if unknown. `leader_epoch`: the source's below
    `position`; if -1, valid only while the source is led in `source_led`.
    """

    topic: str
    partition: int
    position: int
    leader_epoch: int
    armed_until_ms: int
    calm: bool = True
    next_sequence: int = -1
    target: int = -1
    target_epoch: int = -1
    source_led: int = -1
    stray_epoch: int = -1
    strays_s: float = -1.0
    strays_moved: bool = False

    @property
    def named(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    records: int
    bytes: int
    batches: int
    source_end: int
    source_start: int
    first_ms: int
    last_ms: int
    # One entry per source batch: producer id, epoch, base sequence, last sequence, base offset, timestamp.
    producers: tuple[tuple[int, int, int, int, int, int], ...] = ()
    # Offset runs of a mapped twin.
    offset_runs: tuple[OffsetRun, ...] = ()
    # The source's leader epoch of the last record below `to_offset`, exact or -1.
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionIncident:
    """Why a partition stopped or, with `policy`, what was done instead. `side`: None for the kind's usual one. `why`:
    the reason of a drop.
    """

    topic: str
    partition: int
    kind: IncidentKind
    from_offset: int
    to_offset: int
    sentence: str
    policy: IncidentPolicy | None = None
    side: IncidentSide | None = None
    why: str = ""

    @property
    def named(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def coordinator_epoch(generation: int, run: int) -> int:
    """The coordinator epoch of an attempt's markers. Later attempts mostly have higher ones; an inspection corrects the
    rest.
    """
    return (generation << 12 | run & 0xFFF) & 0x3FFFFFFF


# Tasks in a group take turns: one turn may fetch and parse only a part of what a single task may.
FETCH_BYTES_MAX = 4 << 20
PARTITION_BYTES_MAX = 1 << 20
JOINED_BYTES_MAX = 8 << 20
WORK_MAX = 10_000
# A broadcast holds at least so many fetches.
FETCHES_HELD = 8
MessageT = TypeVar("MessageT")


class Assign(NamedTuple):
    configs: tuple[PartitionConfig, ...]


class StartWriting(NamedTuple):
    """Start to write. `told`: how far progress is recorded. `reached`: how far mapped twins are written. `paces`:
    quotas as the previous task learnt them. `untouched`: new twins that no task was allowed to write.
    """

    handoffs: tuple[Handoff, ...]
    told: Mapping[TopicPartition, EpochOffset]
    reached: Mapping[TopicPartition, WrittenPosition]
    paces: tuple[LearntQuota, ...] = ()
    untouched: tuple[TopicPartition, ...] = ()


class LeaseGranted(NamedTuple):
    """Extends the write lease by `grant_s` from `asked_s` on, the time of the request on the task's clock."""

    asked_s: float
    grant_s: float


class Release(NamedTuple):
    """Stops this partition and hands it over."""

    partition: TopicPartition


class TaskRateLimits(NamedTuple):
    """The task's share of each throttle in bytes a second (0: unlimited), and topic weights."""

    link: float
    topics: Mapping[str, float]
    weights: Mapping[str, int]


class TakeOver(NamedTuple):
    """Positions of partitions that another task has released."""

    handoffs: tuple[Handoff, ...]


class Finish(NamedTuple):
    """Stop in good order, and report positions."""


class Stop(NamedTuple):
    """Stop at once."""


class TaskReady(NamedTuple):
    """Every connection is open, or was tried."""


class TaskProgress(NamedTuple):
    """Progress and incidents since the last one, and a request to renew the lease from `asked_s` on. The coordinator
    returns `asked_s`, as several may be in flight.
    """

    carried: list[PartitionProgress]
    incidents: list[PartitionIncident]
    speed: dict[str, float]
    asked_s: float


class ThrottleUsage(NamedTuple):
    used: dict[str, list[float]]


class Released(NamedTuple):
    """A partition is idle and no longer this task's."""

    partition: TopicPartition
    handover: Handoff | None
    carried: PartitionProgress | None


class LearntQuota(NamedTuple):
    """What quotas let through on one connection. `stream`: -1 on the target."""

    side: str
    node: int
    stream: int
    learnt: QuotaSnapshot


class TaskFinished(NamedTuple):
    """The last message. `unread_s`: how long a broker may still accept earlier requests. `paces`: for the next task."""

    carried: list[PartitionProgress]
    incidents: list[PartitionIncident]
    handoffs: list[Handoff]
    speed: dict[str, float]
    unread_s: float
    paces: list[LearntQuota]


CoordinatorMessage = Assign | StartWriting | LeaseGranted | Release | TaskRateLimits | TakeOver | Finish | Stop
TaskMessage = TaskReady | TaskProgress | ThrottleUsage | Released | TaskFinished
COORDINATOR_MESSAGES: tuple[type[CoordinatorMessage], ...]
COORDINATOR_MESSAGES = (Assign, StartWriting, LeaseGranted, Release, TaskRateLimits, TakeOver, Finish, Stop)
TASK_MESSAGES: tuple[type[TaskMessage], ...] = (TaskReady, TaskProgress, ThrottleUsage, Released, TaskFinished)
JsonMessage = dict[str, Any]


def encode_line(message: JsonMessage) -> bytes:
    """Encodes a message as one line of JSON."""
    return (json.dumps(message, separators=(",", ":"), default=_fields_of) + "\n").encode()


def _fields_of(value: Any) -> JsonMessage:
    return {name: getattr(value, name) for name in value.__slots__}


def encode_message(message: CoordinatorMessage | TaskMessage | TaskGroupCommand | TaskGroupMessage) -> JsonMessage:
    fields = message._asdict() if isinstance(message, tuple) else dataclasses.asdict(message)
    if isinstance(message, StartWriting):  # keys in JSON are text
        fields |= {"told": list(message.told.items()), "reached": list(message.reached.items())}
    return {"what": type(message).__name__.lower(), **fields}


def decode_for_task(message: JsonMessage) -> CoordinatorMessage:
    if message["what"] == "startwriting":
        told, reached = ({TopicPartition(**key): row for key, row in message[name]} for name in ("told", "reached"))
        message = message | {"told": told, "reached": reached}
    return _decoded(message, COORDINATOR_MESSAGES, "a task")


def decode_for_coordinator(message: JsonMessage) -> TaskMessage:
    """Decodes a task's message. Raises KeyError, TypeError or ValueError for anything else."""
    return _decoded(message, TASK_MESSAGES, "the coordinator")


def _decoded(message: JsonMessage, kinds: tuple[type[MessageT], ...], receiver: str) -> MessageT:
    what = message["what"]
    kind = next((kind for kind in kinds if kind.__name__.lower() == what), None)
    if kind is None:
        raise ValueError(f"{receiver} does not know the word {what!r}")
    return json_adapter(kind).validate_python({name: value for name, value in message.items() if name != "what"})


@dataclass(frozen=True, slots=True)
class TaskGroupConfig:
    """All that a task group needs to start; tasks are assigned later. `tells`: report each turn before it begins."""

    task_group: int
    run: int
    coordinator_host: str
    coordinator_port: int
    coordinator_token: str = field(repr=False)
    tells: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True)
class StartTask:
    """To the task group: start this task. `slot`: the slot number, never used again."""

    slot: int
    config: TaskConfig


@dataclass(frozen=True, slots=True)
class StopTaskGroup:
    """To the task group: accept no more tasks, and end after the running ones."""


@dataclass(frozen=True, slots=True)
class TaskGroupAlive:
    """From the task group, every second: the loop is running."""


@dataclass(frozen=True, slots=True)
class SlotTurn:
    """From the task group: this slot's turn begins; 0: no task's. Only if `TaskGroupConfig.tells`."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """From the task group: this slot's task has ended, and why."""

    slot: int
    sentence: str
    died: bool = False


TaskGroupMessage = TaskGroupAlive | SlotTurn | SlotEnded
TaskGroupCommand = StartTask | StopTaskGroup
TASK_GROUP_MESSAGES: tuple[type[TaskGroupMessage], ...] = (TaskGroupAlive, SlotTurn, SlotEnded)
TASK_GROUP_COMMANDS: tuple[type[TaskGroupCommand], ...] = (StartTask, StopTaskGroup)


def parse_task_config(text: str) -> TaskConfig | TaskGroupConfig:
    kind: type[TaskConfig | TaskGroupConfig] = TaskGroupConfig if "task_group" in json.loads(text) else TaskConfig
    return json_adapter(kind).validate_json(text)


def decode_for_task_group(message: JsonMessage) -> TaskGroupCommand:
    """Decodes a driver message. Raises ValueError for anything else."""
    return _decoded(message, TASK_GROUP_COMMANDS, "a task group")


def decode_from_task_group(message: JsonMessage) -> TaskGroupMessage:
    """Decodes a task group's message. Raises ValueError for anything else."""
    return _decoded(message, TASK_GROUP_MESSAGES, "a driver")


def narrow_limits(limits: TaskLimits, high_bytes: int = 0) -> TaskLimits:
    """Narrows a task's limits for a group, so that no turn delays another's lease renewal. `high_bytes`: what a
    broadcast may hold for slow tasks; one fetch may bring a part.
    """
    fetch_bytes = min(limits.fetch_bytes_max, FETCH_BYTES_MAX)
    partition_bytes = min(limits.partition_bytes_max, PARTITION_BYTES_MAX)
    widest, partition_widest = limits.fetch_bytes_widest, limits.partition_bytes_widest
    if high_bytes:
        # All members get the data of one fetch before the next one replaces it.
        fetch_bytes, partition_bytes = min(fetch_bytes, high_bytes // 2), min(partition_bytes, high_bytes // 4)
        widest = max(fetch_bytes, high_bytes // FETCHES_HELD)
        partition_widest = max(partition_bytes, high_bytes // FETCHES_HELD // 4)
    return dataclasses.replace(
        limits,
        fetch_bytes_max=fetch_bytes,
        partition_bytes_max=partition_bytes,
        fetch_bytes_widest=widest,
        partition_bytes_widest=partition_widest,
        joined_bytes_max=min(limits.joined_bytes_max, JOINED_BYTES_MAX),
        work_max=min(limits.work_max, WORK_MAX),
        far_streams=1,
    )
