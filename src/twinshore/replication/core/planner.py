"""Plans topics and twins, and assigns partitions to tasks and tasks to groups.

A topic that cannot be replicated exactly is refused with reason and remedy, and stays untouched.

While there are enough Spark tasks, each task runs alone. Beyond that, small tasks share groups, and the busiest keep a
Spark task of their own.

`Quarantine`: tasks that must run alone, because Spark tasks died or froze in their turns. A Spark task that dies does
not say why. So after the first death groups report each turn, and a task whose turn it was when a group died or froze
is put in quarantine, for longer each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, OffsetMode, TopicPartition, is_heartbeats_topic
from twinshore.kafka.protocol.record_batch import MESSAGE_BYTES_DEFAULT
from twinshore.replication.core.model import CarryTopic, Create, Grow, PlanStep, Refuse, Settle
from twinshore.replication.sync.core.decisions import synced_settings

MAX_LONG = "9223372036854775807"
TASKS_PER_LINK_MAX = 8
# What every twin needs: bytes as they are, any time stamp, nothing lost by age.
TWIN_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": MAX_LONG,
    "message.timestamp.after.max.ms": MAX_LONG,
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
RETENTION_SETTINGS = ("retention.ms", "retention.bytes")
# A compacted source's twin is compacted too; "delete" lets its log start follow, since retention is off.
COMPACTED_POLICY = "compact,delete"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """`starts`: the log start of each partition."""

    name: str
    topic_id: str
    replication: int
    starts: tuple[int, ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> int:
        return len(self.starts)

    @property
    def compacted(self) -> bool:
        return "compact" in dict(self.settings).get("cleanup.policy", "delete")


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """`spans`: log start and log end of each partition."""

    name: str
    topic_id: str
    spans: tuple[tuple[int, int], ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> int:
        return len(self.spans)


@dataclass(frozen=True, slots=True)
class KnownTwin:
    source_topic_id: str
    target_topic_id: str
    mapped: bool = False


def twin_settings(link: Link, source: SourceTopic, replication: int) -> tuple[tuple[str, str], ...]:
    """Returns the twin's settings: the source's that matter, the link's, and those that every twin needs, which win."""
    source_settings = dict(source.settings)
    wanted = synced_settings(source_settings, link, replication)
    wanted.update(TWIN_SETTINGS)
    if link.queue.fresh and not is_heartbeats_topic(source.name):
        # A mapped twin's log start follows its own retention: it is never cut.
        for name in RETENTION_SETTINGS:
            wanted.pop(name)
            wanted.update({name: source_settings[name]} if name in source_settings else {})
    if source.compacted:
        wanted["cleanup.policy"] = COMPACTED_POLICY
    largest = int(source_settings.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    wanted["max.message.bytes"] = str(max(largest, MESSAGE_BYTES_DEFAULT))
    return tuple(sorted(wanted.items()))


def _lacks(name: str, wanted: str, now: str | None) -> bool:
    """Whether the twin lacks the setting. `max.message.bytes` only grows: the twin may have larger batches by now."""
    return int(now or 0) < int(wanted) if name == "max.message.bytes" else now != wanted


def plan_topic(
    link: Link, source: SourceTopic, target: TargetTopic | None, known: KnownTwin | None, *, target_brokers: int
) -> list[PlanStep]:
    """Returns the steps for one topic; a single Refuse when the topic must not be touched."""
    mapped = is_mapped(link, target, known)
    refusal = _unfresh(link, source, known) or _refusal(source, target, known, mapped=mapped)
    if refusal:
        return [refusal]
    replication = min(link.replication_factor or source.replication, target_brokers)
    settings = twin_settings(link, source, replication)
    twin = "" if link.twin_of(source.name) == source.name else link.twin_of(source.name)
    if target is None:
        return [Create(source.name, source.partitions, replication, settings, twin)]
    steps: list[PlanStep] = []
    # A topic cannot shrink again: a foreign one grows only once it has been adopted.
    may_grow = bool(known) or not mapped
    if target.partitions < source.partitions and may_grow:
        steps.append(Grow(source.name, source.partitions, target.topic_id, twin))
    have = dict(target.settings)
    lacking = tuple((name, value) for name, value in settings if _lacks(name, value, have.get(name)))
    if lacking and not mapped:
        steps.append(Settle(source.name, lacking, target.topic_id, twin))
    partitions = min(source.partitions, target.partitions)
    if mapped:
        return [*steps, CarryTopic(source.name, partitions, source.topic_id, target.topic_id, twin, mapped=True)]
    starts = source.starts if any(source.starts) and not known else ()
    steps.append(CarryTopic(source.name, partitions, source.topic_id, target.topic_id, twin, starts))
    return steps


def is_mapped(link: Link, target: TargetTopic | None, known: KnownTwin | None) -> bool:
    """Whether the twin has other offsets: adopted so, or with data that the link may adopt."""
    if known:
        return known.mapped
    holds = target is not None and any(end > 0 for _, end in target.spans)
    if target is not None and not holds and link.queue.fresh and not is_heartbeats_topic(target.name):
        return True  # Dropped records take no offset there.
    return holds and link.mode is OffsetMode.MAPPED


def _unfresh(link: Link, source: SourceTopic, known: KnownTwin | None) -> Refuse | None:
    """Why a fresh queue, which drops old records, may not replicate the topic."""
    if not link.queue.fresh or is_heartbeats_topic(source.name):
        return None
    if source.compacted:
        sentence = (
            f"topic {source.name} is compacted: its old records are the newest of their keys, and a fresh queue drops "
            "what is old"
        )
        hint = 'exclude the topic, or give the link\'s queue policy = "keep"'
        return Refuse(source.name, IncidentKind.REFUSED, sentence, hint)
    if known and not known.mapped:
        sentence = (
            f"the twin of topic {source.name} is exact, and stays so: what a fresh queue drops would be missing there"
        )
        hint = (
            'give the link\'s queue policy = "keep"; or stop the mirror, type `twinshore mirror forget '
            f"{source.name}`, delete the twin on {link.target}, and start the mirror: the new twin is mapped"
        )
        return Refuse(source.name, IncidentKind.REFUSED, sentence, hint)
    return None


def _refusal(
    source: SourceTopic, target: TargetTopic | None, known: KnownTwin | None, *, mapped: bool
) -> Refuse | None:
    name = source.name
    if known and known.source_topic_id != source.topic_id:
        sentence = f"topic {name} was deleted and created again on the source: its offsets begin again"
        return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, f"{_anew(known)}, or exclude the topic")
    if target is None:
        if known:
            sentence = f"the twin of topic {name} has been deleted on the target"
            return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, _anew(known))
        return None
    if known and known.target_topic_id != target.topic_id:
        sentence = f"the twin of topic {name} was deleted and made again by someone else"
        there = "" if known.mapped else "delete it on the target, then "
        return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, f"{there}{_anew(known)}")
    if mapped:
        return None
    if not known and any(end > start for start, end in target.spans):
        sentence = f"topic {target.name} on the target holds data that this link did not write"
        hint = (
            "where the store was lost, or an older one restored: `twinshore link recover`; else delete it on"
            ' the target, exclude the topic, or let the link carry it on with mode = "mapped"'
        )
        return Refuse(name, IncidentKind.FOREIGN_WRITE, sentence, hint)
    counts = f"{target.partitions} partitions on the target, {source.partitions} on the source"
    if target.partitions > source.partitions:
        sentence = f"topic {target.name} has {counts}"
        again = f" and {_anew(known)}" if known else ""
        return Refuse(
            name, IncidentKind.PARTITION_REMOVED, sentence, f"delete the target's topic{again}, or exclude it"
        )
    if not known and target.partitions < source.partitions:
        sentence = f"topic {target.name} has {counts}"
        hint = f"give it {source.partitions} partitions, or delete it on the target so that its twin can be made"
        return Refuse(name, IncidentKind.PARTITION_REMOVED, sentence, hint)
    starts = zip((start for start, _ in target.spans), source.starts, strict=False)
    if not known and any(start > source_start for start, source_start in starts):
        sentence = f"topic {target.name} on the target begins at later offsets than the source's"
        return Refuse(
            name, IncidentKind.POSITION_DISAGREEMENT, sentence, "delete it on the target so that its twin can be made"
        )
    return None


def _anew(known: KnownTwin) -> str:
    """Returns how an operator makes a new twin begin."""
    if known.mapped:
        return "stop the mirror, `twinshore mirror forget` it, start the mirror"
    return "recreate it with `twinshore mirror recreate` while the mirror runs"


def default_task_count(cores: int) -> int:
    """Returns the number of tasks: one full task costs less than two half-empty ones."""
    return max(1, min(TASKS_PER_LINK_MAX, cores // 2))


def assign_partitions(
    partitions: Iterable[TopicPartition],
    tasks: int,
    *,
    now: Mapping[TopicPartition, int] | None = None,
    rate: Mapping[TopicPartition, float] | None = None,
    fixed: bool = False,
) -> dict[TopicPartition, int]:
    """Returns each partition's task. Assigned ones stay; the others go to the lightest task, heaviest first. `fixed`:
    by name alone, so that each link of a broadcast has a partition on the same task.
    """
    if fixed:
        return {partition: (crc32(partition.topic.encode()) + partition.partition) % tasks for partition in partitions}
    now, rate = now or {}, rate or {}
    assigned: dict[TopicPartition, int] = {}
    # An unmeasured partition weighs a little, so that many quiet ones still spread evenly.
    weight = {partition: rate.get(partition, 0.0) + 1.0 for partition in partitions}
    load = [0.0] * tasks
    for partition in weight:
        task = now.get(partition, -1)
        if 0 <= task < tasks:
            assigned[partition] = task
            load[task] += weight[partition]
    for partition in sorted((n for n in weight if n not in assigned), key=lambda n: (-weight[n], n)):
        task = min(range(tasks), key=load.__getitem__)
        assigned[partition] = task
        load[task] += weight[partition]
    return assigned


def plan_moves(
    placed: Mapping[TopicPartition, int], rate: Mapping[TopicPartition, float], tasks: int
) -> list[tuple[TopicPartition, int]]:
    """Returns moves after which no task has much more than a fair share."""
    load = [0.0] * tasks
    for partition, task in placed.items():
        load[task] += rate.get(partition, 0.0)
    share = sum(load) / tasks if tasks else 0.0
    moves: list[tuple[TopicPartition, int]] = []
    heavy = max(range(tasks), key=load.__getitem__)
    if share <= 0 or load[heavy] < 1.5 * share:
        return moves
    for partition in sorted((n for n, task in placed.items() if task == heavy), key=lambda n: rate.get(n, 0.0)):
        light = min(range(tasks), key=load.__getitem__)
        weight = rate.get(partition, 0.0)
        if weight <= 0 or load[light] + weight >= load[heavy]:
            continue
        moves.append((partition, light))
        load[heavy] -= weight
        load[light] += weight
        if load[heavy] <= share * 1.1:
            break
    return moves


TaskKey = tuple[str, int]
# So long after a death groups report turns: each turn costs the group and this process some microseconds more.
SUSPICION_S = 3600.0
# So long a task must run undisturbed before quarantine ends; twice as long the next time.
QUARANTINE_S = 600.0
QUARANTINE_DOUBLINGS_MAX = 8
STANDBYS_MAX = 2
SPARK_TASKS_EXTRA = 4
SPARK_TASKS_MIN = 2  # a holder and its standby
# Groups of broadcasts have numbers from here on.
BROADCAST_GROUP_FIRST = 1000
BROADCAST_GROUPS_MAX = 64
# A task with so many bytes a second is busy; one that runs alone stays so down to a quarter of that.
BUSY_BYTES_S = 2e6
CALM_RATIO = 0.25
# Every task weighs at least this much, so that quiet ones spread evenly.
TASK_BASE_BYTES_S = 1e5

TaskT = TypeVar("TaskT")


@dataclass(slots=True)
class QuarantinedTask:
    """`times`: number of quarantines. `since_s`: since when nothing has gone wrong."""

    times: int
    since_s: float
    apart: bool = True


class Quarantine:
    """`apart` may be read by any thread."""

    def __init__(self) -> None:
        self.apart: frozenset[TaskKey] = frozenset()
        self._suspects: dict[TaskKey, QuarantinedTask] = {}
        self._doubt_until_s = 0.0

    def tells(self, now_s: float) -> bool:
        """Whether an attempt that begins now must report turns."""
        return now_s < self._doubt_until_s

    def ended(self, turn: TaskKey | None, now_s: float) -> bool:
        """A group's attempt died or froze. `turn`: the task of the last reported turn, if any. Returns whether that
        task is in quarantine from now on.
        """
        self._doubt_until_s = now_s + SUSPICION_S
        if turn is None or turn in self.apart:
            return False
        before = self._suspects.get(turn)
        self._suspects[turn] = QuarantinedTask(before.times + 1 if before else 1, now_s)
        self._settle()
        return True

    def turn(self, unmanned: frozenset[TaskKey], now_s: float) -> frozenset[TaskKey]:
        """Returns the tasks whose quarantine ends. `unmanned`: tasks without a holder now."""
        for task in self.apart & unmanned:
            self._suspects[task].since_s = now_s
        free = frozenset(task for task in self.apart if now_s >= self._innocent_at_s(task))
        for task in free:
            self._suspects[task].apart = False
        if free:
            self._settle()
        return free

    def _innocent_at_s(self, task: TaskKey) -> float:
        suspect = self._suspects[task]
        return suspect.since_s + QUARANTINE_S * 2.0 ** min(suspect.times - 1, QUARANTINE_DOUBLINGS_MAX)

    def _settle(self) -> None:
        self.apart = frozenset(task for task, suspect in self._suspects.items() if suspect.apart)


def spark_task_count(cores: int, tasks: int, setting: int) -> int:
    """Returns how many Spark tasks run at once, with standbys."""
    return max(setting, SPARK_TASKS_MIN) if setting else max(cores, tasks) + SPARK_TASKS_EXTRA


def assign_task_groups(
    rates: Mapping[TaskT, float], now: Mapping[TaskT, int | None], tasks: int, apart: Set[TaskT] = frozenset()
) -> dict[TaskT, int | None]:
    """Returns each task's group; None: a Spark task of its own. `rates`: bytes a second of all tasks; `now`: present
    groups of running tasks; `apart`: tasks in quarantine. A task keeps the group unless busy enough to run alone.
    """
    standing = max(1, tasks - STANDBYS_MAX)
    if len(rates) <= standing:
        return dict.fromkeys(rates)
    task_groups = (standing + 1) // 2
    room, apart = standing - task_groups, apart & rates.keys()
    alone = _alone({task: rate for task, rate in rates.items() if task not in apart}, now, max(0, room - len(apart)))
    # Tasks in quarantine may take a standby's Spark task. If they are too many, they share a group among themselves.
    own = None if len(apart) <= max(1, room) else task_groups
    groups: dict[TaskT, int | None] = dict.fromkeys(alone) | dict.fromkeys(apart, own)
    load = [0.0] * task_groups
    for task in rates.keys() - groups.keys():
        task_group = now.get(task)
        if task_group is not None and task_group < task_groups:
            groups[task] = task_group
            load[task_group] += rates[task] + TASK_BASE_BYTES_S
    for task in sorted([task for task in rates if task not in groups], key=lambda task: -rates[task]):
        task_group = min(range(task_groups), key=load.__getitem__)
        groups[task] = task_group
        load[task_group] += rates[task] + TASK_BASE_BYTES_S
    return groups


def _alone(rates: Mapping[TaskT, float], now: Mapping[TaskT, int | None], most: int) -> set[TaskT]:
    """Returns the busiest tasks, `most` at most. One that runs alone gives way only to a much busier one."""

    def weight(task: TaskT) -> float:
        return rates[task] / CALM_RATIO if now.get(task, 0) is None else rates[task]

    busy = [task for task in rates if weight(task) >= BUSY_BYTES_S]
    return set(sorted(busy, key=weight, reverse=True)[:most])
