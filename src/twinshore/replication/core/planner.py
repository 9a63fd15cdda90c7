"""What should be mirrored, onto which twins, on which lanes. Pure: both clusters' topics in, a plan out.

A topic that cannot be carried exactly is refused by name with the reason and the remedy; nothing of it is touched.

Which lanes have a Spark task of their own, and which share a raft. Pure: what each carries in, where it belongs out.

While there are no more lanes than tasks, each has its own. Beyond that small lanes share rafts, and the busiest keep
a task of their own.

`Quarantine` are lanes that may share a task with others no more, since such tasks die or freeze in their turns. A task
that ends unasked says not why. So after the first one each raft says before each turn whose it is, and whose turn was
the last word of the next one that dies or freezes is put apart. It comes back once its pumps have carried it for some
time, each time a longer one.
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
# What a twin needs for itself, whatever the source says: bytes as they are, any time stamp, nothing lost by age.
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
    """What the store remembers of a topic's twin."""

    source_topic_id: str
    target_topic_id: str
    mapped: bool = False


def twin_settings(link: Link, source: SourceTopic, replication: int) -> tuple[tuple[str, str], ...]:
    """Settings of the twin while it is one: the source's that matter, the link's, and the twin's own above all."""
    theirs = dict(source.settings)
    wanted = synced_settings(theirs, link, replication)
    wanted.update(TWIN_SETTINGS)
    if link.queue.fresh and not is_heartbeats_topic(source.name):
        # A mapped twin's log begins where its own settings say: nobody cuts it.
        for name in RETENTION_SETTINGS:
            wanted.pop(name)
            wanted.update({name: theirs[name]} if name in theirs else {})
    if source.compacted:
        wanted["cleanup.policy"] = COMPACTED_POLICY
    largest = int(theirs.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    wanted["max.message.bytes"] = str(max(largest, MESSAGE_BYTES_DEFAULT))
    return tuple(sorted(wanted.items()))


def _lacks(name: str, wanted: str, now: str | None) -> bool:
    """Whether a twin lacks the setting. Its limit is only ever raised: it may hold larger batches by now."""
    return int(now or 0) < int(wanted) if name == "max.message.bytes" else now != wanted


def plan_topic(
    link: Link,
    source: SourceTopic,
    target: TargetTopic | None,
    known: KnownTwin | None,
    *,
    target_brokers: int,
) -> list[PlanStep]:
    """The steps for one topic; a single Refuse when it must not be touched."""
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
    # A topic cannot be made smaller again: somebody else's grows only once it has been adopted.
    ours = bool(known) or not mapped
    if target.partitions < source.partitions and ours:
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
    """Whether the twin has offsets of its own: it was adopted so, or it holds data and the link may adopt it."""
    if known:
        return known.mapped
    holds = target is not None and any(end > 0 for _, end in target.spans)
    if target is not None and not holds and link.queue.fresh and not is_heartbeats_topic(target.name):
        return True  # What is dropped takes no offset there.
    return holds and link.mode is OffsetMode.MAPPED


def _unfresh(link: Link, source: SourceTopic, known: KnownTwin | None) -> Refuse | None:
    """Why a fresh queue, which drops what is old, may not carry the topic."""
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
        sentence = f"topic {name} was deleted and made again on the source: its offsets begin anew"
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
    if not known and any(start > theirs for (start, _), theirs in zip(target.spans, source.starts, strict=False)):
        sentence = f"topic {target.name} on the target begins at later offsets than the source's"
        return Refuse(
            name, IncidentKind.POSITION_DISAGREEMENT, sentence, "delete it on the target so that its twin can be made"
        )
    return None


def _anew(known: KnownTwin) -> str:
    """How an operator lets the topic begin again."""
    if known.mapped:
        return "stop the mirror, `twinshore mirror forget` it, start the mirror"
    return "let it begin again with `twinshore mirror begin-again` while the mirror runs"


def default_task_count(cores: int) -> int:
    """How many lanes a link has by itself: one full lane costs less than two half-empty ones."""
    return max(1, min(TASKS_PER_LINK_MAX, cores // 2))


def assign_partitions(
    partitions: Iterable[TopicPartition],
    lanes: int,
    *,
    now: Mapping[TopicPartition, int] | None = None,
    rate: Mapping[TopicPartition, float] | None = None,
    fixed: bool = False,
) -> dict[TopicPartition, int]:
    """A lane for each partition: those that have one keep it, the heaviest others go first to the lightest lane.
    `fixed`: by name alone, so that each link of a broadcast has it on the same lane."""
    if fixed:
        return {named: (crc32(named.topic.encode()) + named.partition) % lanes for named in partitions}
    now, rate = now or {}, rate or {}
    found: dict[TopicPartition, int] = {}
    # A partition nobody has measured yet weighs a little, so that many quiet ones still spread evenly.
    weight = {named: rate.get(named, 0.0) + 1.0 for named in partitions}
    load = [0.0] * lanes
    for named in weight:
        lane = now.get(named, -1)
        if 0 <= lane < lanes:
            found[named] = lane
            load[lane] += weight[named]
    for named in sorted((n for n in weight if n not in found), key=lambda n: (-weight[n], n)):
        lane = min(range(lanes), key=load.__getitem__)
        found[named] = lane
        load[lane] += weight[named]
    return found


def plan_moves(
    placed: Mapping[TopicPartition, int], rate: Mapping[TopicPartition, float], lanes: int, *, unfair: float = 1.5
) -> list[tuple[TopicPartition, int]]:
    """Which partitions should change lanes so that none carries much more than its share; empty when it is fair."""
    load = [0.0] * lanes
    for named, lane in placed.items():
        load[lane] += rate.get(named, 0.0)
    share = sum(load) / lanes if lanes else 0.0
    found: list[tuple[TopicPartition, int]] = []
    heavy = max(range(lanes), key=load.__getitem__)
    if share <= 0 or load[heavy] < unfair * share:
        return found
    for named in sorted((n for n, lane in placed.items() if lane == heavy), key=lambda n: rate.get(n, 0.0)):
        light = min(range(lanes), key=load.__getitem__)
        weight = rate.get(named, 0.0)
        if weight <= 0 or load[light] + weight >= load[heavy]:
            continue
        found.append((named, light))
        load[heavy] -= weight
        load[light] += weight
        if load[heavy] <= share * 1.1:
            break
    return found


TaskKey = tuple[str, int]
# So long after such an end rafts say whose turn it is: each turn costs raft and driver some microseconds more.
SUSPICION_S = 3600.0
# So long a lane has to be carried without a break before it shares a task again; twice as long the next time.
QUARANTINE_S = 600.0
QUARANTINE_DOUBLINGS_MAX = 8
STANDBYS_MAX = 2
SPARK_TASKS_EXTRA = 4
SPARK_TASKS_MIN = 2  # one carries, and its heir stands by
# Rafts of lanes that belong together have numbers from here on.
BROADCAST_GROUP_FIRST = 1000
BROADCAST_GROUPS_MAX = 64
# A lane that carries so many bytes a second is busy; one that is alone stays so until it carries a quarter of it.
BUSY_BYTES_S = 2e6
CALM_RATIO = 0.25
# A lane weighs this much for being there, whatever it carries: quiet ones spread evenly.
TASK_BASE_BYTES_S = 1e5

TaskT = TypeVar("TaskT")


@dataclass(slots=True)
class QuarantinedTask:
    """`times`: how often it was put apart. `since_s`: since when nothing has spoken against it."""

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
        """Whether a task that begins now is to say whose turn it is."""
        return now_s < self._doubt_until_s

    def ended(self, turn: TaskKey | None, now_s: float) -> bool:
        """A task of a raft has died or frozen. `turn`: the lane whose turn it was, as far as it has said so. Whether
        that lane is put apart now."""
        self._doubt_until_s = now_s + SUSPICION_S
        if turn is None or turn in self.apart:
            return False
        before = self._suspects.get(turn)
        self._suspects[turn] = QuarantinedTask(before.times + 1 if before else 1, now_s)
        self._settle()
        return True

    def turn(self, unmanned: frozenset[TaskKey], now_s: float) -> frozenset[TaskKey]:
        """Lanes that may share a task again. `unmanned`: those that nobody carries now."""
        for lane in self.apart & unmanned:
            self._suspects[lane].since_s = now_s
        free = frozenset(lane for lane in self.apart if now_s >= self._innocent_at_s(lane))
        for lane in free:
            self._suspects[lane].apart = False
        if free:
            self._settle()
        return free

    def _innocent_at_s(self, lane: TaskKey) -> float:
        one = self._suspects[lane]
        return one.since_s + QUARANTINE_S * 2.0 ** min(one.times - 1, QUARANTINE_DOUBLINGS_MAX)

    def _settle(self) -> None:
        self.apart = frozenset(lane for lane, one in self._suspects.items() if one.apart)


def spark_task_count(cores: int, lanes: int, setting: int) -> int:
    """How many Spark tasks carry lanes at once, heirs counted: as set, or by the cores and by the lanes of a link."""
    return max(setting, SPARK_TASKS_MIN) if setting else max(cores, lanes) + SPARK_TASKS_EXTRA


def assign_task_groups(
    rates: Mapping[TaskT, float],
    now: Mapping[TaskT, int | None],
    tasks: int,
    apart: Set[TaskT] = frozenset(),
) -> dict[TaskT, int | None]:
    """For each lane the number of its raft; None: a separate task. `rates`: bytes a second, of all lanes; `now`:
    where those belong that are carried already; `apart`: those that may share with no other. Whoever has a raft stays
    on it."""
    standing = max(1, tasks - STANDBYS_MAX)
    if len(rates) <= standing:
        return dict.fromkeys(rates)
    rafts = (standing + 1) // 2
    room, apart = standing - rafts, apart & rates.keys()
    alone = _alone({lane: rate for lane, rate in rates.items() if lane not in apart}, now, max(0, room - len(apart)))
    # Those apart may take the place of an heir. Where they are too many, they share a raft among themselves.
    own = None if len(apart) <= max(1, room) else rafts
    found: dict[TaskT, int | None] = dict.fromkeys(alone) | dict.fromkeys(apart, own)
    load = [0.0] * rafts
    for lane in rates.keys() - found.keys():
        raft = now.get(lane)
        if raft is not None and raft < rafts:
            found[lane] = raft
            load[raft] += rates[lane] + TASK_BASE_BYTES_S
    for lane in sorted((one for one in rates if one not in found), key=lambda one: -rates[one]):
        raft = min(range(rafts), key=load.__getitem__)
        found[lane] = raft
        load[raft] += rates[lane] + TASK_BASE_BYTES_S
    return found


def _alone(rates: Mapping[TaskT, float], now: Mapping[TaskT, int | None], most: int) -> set[TaskT]:
    """The busiest, so many at most. Who is alone already gives way only to one that carries a good deal more."""

    def weight(lane: TaskT) -> float:
        return rates[lane] / CALM_RATIO if now.get(lane, 0) is None else rates[lane]

    busy = [lane for lane in rates if weight(lane) >= BUSY_BYTES_S]
    return set(sorted(busy, key=weight, reverse=True)[:most])
