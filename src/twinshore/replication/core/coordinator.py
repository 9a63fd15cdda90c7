"""Decides which attempt of each task may write, and what each attempt is told.

Events are method calls; the time and how long the link's lease still holds (`allowed_s`) are arguments. `wanted` has
the commands to execute, in order.

A `TaskAssignment` is one task with the progress of each partition. `TaskOwnership` decides who may write: one holder,
with at most one standby. The holder writes only while the write lease lasts on the holder's clock. When a holder
finishes, the standby continues at once from the reported offsets. When a holder is lost, the standby waits until the
write lease has ended, and inspects the target. The holder counts the lease from before the request, the coordinator
from after the response, so the holder's ends first. No write lease outlasts the link's lease.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from twinshore.config.model import TopicPartition
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    Assign,
    CoordinatorMessage,
    EpochOffset,
    Finish,
    Handoff,
    LearntQuota,
    LeaseGranted,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    Release,
    Released,
    StartWriting,
    Stop,
    TakeOver,
    TaskFinished,
    TaskMessage,
    TaskProgress,
    TaskRateLimits,
    TaskReady,
    ThrottleUsage,
    latest_epoch_offset,
    position_after,
)
from twinshore.replication.task.core.partition import UNKNOWN_POSITION
from twinshore.replication.task.core.throttle import STILL_KEY

TaskKey = tuple[str, int]
# A write lease ends later here than for the attempt, which counts from before its request.
LEASE_SLACK_S = 0.25


class TaskSession(NamedTuple):
    """One accepted attempt (`run`) of a task (`task`). `visit` tells sessions with the same attempt number apart."""

    link: str
    task: int
    run: int
    visit: int

    @property
    def key(self) -> TaskKey:
        return self.link, self.task


@dataclass(frozen=True, slots=True)
class TaskReport:
    link: str
    task: int
    carried: tuple[PartitionProgress, ...]
    incidents: tuple[PartitionIncident, ...]
    speed: dict[str, float]


class SendToTask(NamedTuple):
    session: TaskSession
    word: CoordinatorMessage


class RecordReport(NamedTuple):
    report: TaskReport


class DisconnectTask(NamedTuple):
    """Close the attempt's connection; the attempt may not notice."""

    session: TaskSession


CoordinatorCommand = SendToTask | RecordReport | DisconnectTask


class LostRequestDeadlines:
    """Until when lost produce requests of one link may be appended. A killed attempt cannot tell its successor."""

    def __init__(self) -> None:
        self._until_s: dict[TopicPartition, float] = {}

    @property
    def until_s(self) -> float:
        """The latest deadline of all partitions; 0: no request was lost."""
        return max(self._until_s.values(), default=0.0)

    def hear(self, handoffs: Iterable[Handoff], now_s: float) -> None:
        """Takes the handoffs of released partitions."""
        for handoff in handoffs:
            until_s = max(self._until_s.pop(handoff.named, 0.0), now_s + handoff.strays_s)
            if not handoff.calm:
                self._until_s[handoff.named] = until_s

    def told(
        self, handovers: Iterable[Handoff], partitions: Iterable[TopicPartition], now_s: float
    ) -> tuple[Handoff, ...]:
        """Returns the handoffs, with a wait for each of the `partitions` partitions that has a running deadline but no
        handoff.
        """
        self._until_s = {partition: until_s for partition, until_s in self._until_s.items() if until_s > now_s}
        handoffs = tuple(handovers)
        known = {handoff.named for handoff in handoffs}
        lost = [partition for partition in partitions if partition in self._until_s and partition not in known]
        return handoffs + tuple(_waits(partition, self._until_s[partition] - now_s) for partition in lost)


def _waits(partition: TopicPartition, for_s: float) -> Handoff:
    """A handoff with a wait alone: the twin's end offset and the lost records are unknown."""
    place = (partition.topic, partition.partition, UNKNOWN_POSITION)
    return Handoff(*place, leader_epoch=-1, armed_until_ms=0, calm=False, strays_s=for_s, strays_moved=True)


@dataclass(frozen=True, slots=True)
class OwnershipMessage:
    """A message to one attempt. `what`: "finish": stop and report offsets; "go": begin to write; "grant": the write
    lease is renewed for `grant_s`; "stop": end at once.
    """

    run: int
    what: str
    grant_s: float = 0.0
    handoffs: tuple[Handoff, ...] = ()


@dataclass(slots=True)
class TaskOwnership:
    """Who may write for one task. Event methods return the messages to send."""

    grant_s: float
    holder: int | None = None
    heir: int | None = None
    granted_until_s: float = 0.0
    # Until then a broker that throttles the holder may append earlier requests, whether or not the holder lives.
    # The holder knows better only when it stops in good order.
    lands_until_s: float = 0.0
    finishing: bool = False
    handoffs: tuple[Handoff, ...] = field(default=())

    def arrived(self, run: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """The attempt becomes the standby."""
        self.heir = run
        return self.tick(now_s, allowed_s)

    def beat(self, run: int, now_s: float, allowed_s: float, still_s: float = 0.0) -> list[OwnershipMessage]:
        """The holder asks for more time. `allowed_s`: how long the link's lease still holds; `still_s`: how long a
        throttling broker does not read from the holder.
        """
        grant_s = min(self.grant_s, allowed_s)
        if run != self.holder or grant_s <= 0:
            return [OwnershipMessage(run, "stop")]
        self.granted_until_s = max(self.granted_until_s, now_s + grant_s + LEASE_SLACK_S)
        self.lands_until_s = max(self.lands_until_s, now_s + still_s)
        return [OwnershipMessage(run, "grant", grant_s)]

    def done(
        self, run: int, handoffs: tuple[Handoff, ...], now_s: float, allowed_s: float, unread_s: float = 0.0
    ) -> list[OwnershipMessage]:
        """The holder has stopped. `unread_s`: how long earlier requests may still be appended."""
        if run != self.holder:
            return []
        self.holder, self.handoffs, self.finishing = None, handoffs, False
        self.granted_until_s, self.lands_until_s = 0.0, now_s + unread_s
        return self.tick(now_s, allowed_s)

    def lost(self, run: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """The connection broke without a last message: the write lease has to run out."""
        if run == self.heir:
            self.heir = None
        if run == self.holder:
            self.holder, self.handoffs, self.finishing = None, (), False
        return self.tick(now_s, allowed_s)

    def tick(self, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """Applies what time alone changes."""
        if self.heir is None:
            return []
        self._lapse(now_s)
        if self.holder is not None:
            if self.finishing:
                return []
            self.finishing = True
            return [OwnershipMessage(self.holder, "finish")]
        grant_s = min(self.grant_s, allowed_s)
        if now_s < max(self.granted_until_s, self.lands_until_s) or grant_s <= 0:
            return []
        self.holder, self.heir = self.heir, None
        self.granted_until_s = now_s + grant_s + LEASE_SLACK_S
        handoffs, self.handoffs = self.handoffs, ()
        return [OwnershipMessage(self.holder, "go", grant_s, handoffs)]

    def free(self, now_s: float) -> bool:
        """Whether the task has no writer: the last holder reported that it stopped, or the write lease has ended. A
        lost connection proves nothing: perhaps one side alone has lost it.
        """
        self._lapse(now_s)
        return self.holder is None and now_s >= max(self.granted_until_s, self.lands_until_s)

    def manned(self, now_s: float) -> bool:
        """Whether a holder may write now; a frozen one does not renew the write lease."""
        return self.holder is not None and now_s < self.granted_until_s

    def waits_s(self, now_s: float) -> float:
        """Seconds to wait only because earlier requests may still be appended; 0 while a write lease runs."""
        if self.holder is not None or now_s < self.granted_until_s:
            return 0.0
        return max(0.0, self.lands_until_s - now_s)

    def _lapse(self, now_s: float) -> None:
        if self.holder is not None and now_s >= self.granted_until_s:
            # Frozen, or its machine is gone while the connection looks open: it may write no more.
            self.holder, self.handoffs, self.finishing = None, (), False

    def forget(self, partition: TopicPartition) -> None:
        """The partition leaves the task: the handoff would be wrong after a return."""
        self.handoffs = tuple(handoff for handoff in self.handoffs if handoff.named != partition)

    def due_s(self) -> float | None:
        """When `tick` must be called at the latest; None: never."""
        if self.heir is None:
            return None
        return self.granted_until_s if self.holder is not None else max(self.granted_until_s, self.lands_until_s)


@dataclass(slots=True)
class TaskAssignment:
    """One open task. `token`: admits attempts of this lease epoch. `told`: each partition's recorded progress.
    `moving`: partitions asked to be released, with the task that gets them. `leaving`: those that leave the link's
    tasks. `untouched`: new twins that no holder has had.
    """

    ownership: TaskOwnership
    token: str
    landing: LostRequestDeadlines = field(default_factory=LostRequestDeadlines)
    configs: dict[TopicPartition, PartitionConfig] = field(default_factory=dict)
    told: dict[TopicPartition, EpochOffset] = field(default_factory=dict)
    untouched: set[TopicPartition] = field(default_factory=set)
    sessions: dict[int, TaskSession] = field(default_factory=dict)
    moving: dict[TopicPartition, int] = field(default_factory=dict)
    leaving: set[TopicPartition] = field(default_factory=set)
    closing: bool = False
    holder_since_s: float = 0.0
    # The task's rate limits, the bytes it has replicated, and its last reported use of the limits.
    bounds: TaskRateLimits | None = None
    bytes: int = 0
    used: dict[str, list[float]] = field(default_factory=dict)
    # What the last holder learnt of quotas, until the next one begins, and when that was reported.
    paces: tuple[LearntQuota, ...] = ()
    paces_at_s: float = 0.0

    def place(self, config: PartitionConfig) -> None:
        self.configs[config.named] = config
        self.told[config.named] = EpochOffset(config.receipt_epoch, config.receipt_to)
        if config.untouched and self.ownership.holder is None:
            self.untouched.add(config.named)

    def account(self, carried: Iterable[PartitionProgress]) -> None:
        for progress in carried:
            self.bytes += progress.bytes
            partition = TopicPartition(progress.topic, progress.partition)
            known, now = self.told.get(partition, NO_EPOCH_OFFSET), EpochOffset(progress.epoch, progress.to_offset)
            self.told[partition] = latest_epoch_offset(known, now)
            if progress.offset_runs and partition in self.configs:
                reached = position_after(progress.offset_runs[-1])
                self.configs[partition] = replace(self.configs[partition], reached=reached)

    def begin(self, handoffs: tuple[Handoff, ...], now_s: float) -> StartWriting:
        """Returns the message for the next holder. Call only while the task has no writer."""
        self.let_go()
        self.holder_since_s = now_s
        # A standby was told how far mapped twins are written when it arrived; the holder has written more since.
        reached = {partition: config.reached for partition, config in self.configs.items() if config.reached}
        # The next holder may begin much later.
        ago_s = now_s - self.paces_at_s
        paces = tuple(pace._replace(learnt=pace.learnt.aged(ago_s)) for pace in self.paces)
        self.paces = ()
        untouched, self.untouched = tuple(self.untouched), set()
        handoffs = self.landing.told(handoffs, self.configs, now_s)
        return StartWriting(handoffs, dict(self.told), reached, paces, untouched)

    def release(self, partition: TopicPartition) -> tuple[int | None, PartitionConfig | None]:
        """Removes the partition. Returns the task that takes over, if any, and the config to continue with."""
        self.leaving.discard(partition)
        self.untouched.discard(partition)
        task = self.moving.pop(partition, None)
        config, stand = self.configs.pop(partition, None), self.told.pop(partition, NO_EPOCH_OFFSET)
        if config is None:
            return task, None
        return task, replace(config, receipt_to=stand.end, receipt_epoch=stand.epoch, untouched=False)

    def let_go(self) -> None:
        """Drops `leaving` partitions and cancels moves. Call only while the task has no writer."""
        self.moving.clear()
        for partition in self.leaving:
            self.ownership.forget(partition)
            self.configs.pop(partition, None)
            self.told.pop(partition, None)
        self.untouched -= self.leaving
        self.leaving.clear()


class Coordinator:
    def __init__(self) -> None:
        self._assignments: dict[TaskKey, TaskAssignment] = {}
        # By link: until when attempts of closed tasks may still write, and their requests may still be appended.
        self._past: dict[str, tuple[float, float]] = {}
        self._landings: dict[str, LostRequestDeadlines] = {}
        self._given: set[tuple[str, str, int]] = set()  # new twins that were ever on a task
        self._visits = 0
        self._wanted: list[CoordinatorCommand] = []

    def wanted(self) -> list[CoordinatorCommand]:
        """Takes the commands, in order."""
        wanted, self._wanted = self._wanted, []
        return wanted

    # -- called by the controller

    def open_task(self, key: TaskKey, grant_s: float, token: str) -> None:
        """Admits attempts that know the token. An open task stays as it is."""
        if key not in self._assignments:
            granted_s, lands_s = self._past.get(key[0], (0.0, 0.0))
            ownership = TaskOwnership(grant_s, granted_until_s=granted_s, lands_until_s=lands_s)
            landing = self._landings.setdefault(key[0], LostRequestDeadlines())
            self._assignments[key] = TaskAssignment(ownership, token, landing)

    def token_of(self, key: TaskKey) -> str:
        """Returns the open task's token; empty: closed."""
        return assignment.token if (assignment := self._assignments.get(key)) else ""

    def assign(self, key: TaskKey, configs: Iterable[PartitionConfig], now_s: float) -> None:
        """Adds partitions to a task and its attempts. Those that a task of the link already has stay there."""
        assignment, placed = self._assignments[key], self.placed(key[0])
        fresh = tuple(self._given_once(key[0], config) for config in configs if config.named not in placed)
        for config in fresh:
            assignment.place(config)
        if fresh:
            self._tell_all(assignment, Assign(fresh))
            waits = assignment.landing.told((), [config.named for config in fresh], now_s)
            if waits and assignment.ownership.holder is not None:
                self._tell(assignment, assignment.ownership.holder, TakeOver(waits))

    def _given_once(self, link: str, config: PartitionConfig) -> PartitionConfig:
        if not config.untouched:
            return config
        twin = link, config.target_topic_id, config.partition
        config = replace(config, untouched=twin not in self._given)
        self._given.add(twin)
        return config

    def placed(self, link: str) -> dict[TopicPartition, int]:
        return {partition: task for task, assignment in self._of(link) for partition in assignment.configs}

    def move(self, link: str, partition: TopicPartition, task: int) -> bool:
        """Asks the partition's holder for a release to task `task`; False: no holder can be asked now."""
        for number, assignment in self._of(link):
            if number != task and partition in assignment.configs:
                holder = assignment.ownership.holder
                if holder is None or assignment.ownership.finishing:
                    return False
                if partition in assignment.moving or partition in assignment.leaving:
                    return False
                assignment.moving[partition] = task
                self._tell(assignment, holder, Release(partition))
                return True
        return False

    def withdraw(self, link: str, topic: str, partition: int, now_s: float) -> bool:
        """Takes a topic, or one partition (-1: all), from the link's tasks. Call until True: then no attempt writes
        there, since each has confirmed, or was lost and has no write lease any more.
        """

        def leaves(tp: TopicPartition) -> bool:
            return tp.topic == topic and partition in (-1, tp.partition)

        for _, assignment in self._of(link):
            partitions = [tp for tp in assignment.configs if leaves(tp)]
            for tp in partitions:
                assignment.moving.pop(tp, None)
                assignment.leaving.add(tp)
                self._tell_all(assignment, Release(tp))
            if partitions and assignment.ownership.free(now_s):
                assignment.let_go()
        return not any(leaves(tp) for tp in self.placed(link))

    def bound(self, key: TaskKey, bounds: TaskRateLimits) -> None:
        if assignment := self._assignments.get(key):
            assignment.bounds = bounds
            self._tell_all(assignment, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """Returns bytes fetched lately, and whether a throttle held more back, by task and topic ("": all)."""
        return {task: assignment.used for task, assignment in self._of(link)}

    def holding(self, key: TaskKey, now_s: float) -> tuple[int | None, float, bool]:
        """Returns the holder (None also after the write lease), the seconds since a holder last began, and whether a
        standby is ready.
        """
        assignment = self._assignments[key]
        holder = assignment.ownership.holder if assignment.ownership.manned(now_s) else None
        return holder, now_s - assignment.holder_since_s, assignment.ownership.heir is not None

    def carried_bytes(self) -> dict[TaskKey, int]:
        """Returns the bytes that each task has replicated since it was opened."""
        return {key: assignment.bytes for key, assignment in self._assignments.items()}

    def unmanned(self, link: str, now_s: float) -> frozenset[TopicPartition]:
        """Returns partitions that no attempt may write now."""
        free = [assignment for _, assignment in self._of(link) if not assignment.ownership.manned(now_s)]
        return frozenset(partition for assignment in free for partition in assignment.configs)

    def waits_s(self, key: TaskKey, now_s: float) -> float:
        """Seconds for which no attempt may begin because earlier requests may still be appended."""
        return self._assignments[key].ownership.waits_s(now_s)

    def finish_all(self, link: str) -> None:
        """Asks every attempt to finish in good order; no other begins."""
        for _, assignment in self._of(link):
            assignment.closing, assignment.ownership.heir = True, None
            for run in assignment.sessions:
                self._tell(assignment, run, Finish() if run == assignment.ownership.holder else Stop())

    def lands_s(self, link: str, now_s: float) -> float:
        """Seconds for which the link's requests may still be appended, even if this process ends."""
        until_s = self._past.get(link, (0.0, 0.0))[1]
        for _, assignment in self._of(link):
            until_s = max(until_s, assignment.ownership.lands_until_s, assignment.landing.until_s)
        return max(0.0, until_s - now_s)

    def has_no_writers(self, link: str, now_s: float) -> bool:
        """Whether no attempt is connected, and no lost one has a write lease."""
        return all(not assignment.sessions and assignment.ownership.free(now_s) for _, assignment in self._of(link))

    def idle(self, link: str, now_s: float) -> bool:
        """Whether the link has no writer, and no request can still be appended."""
        settled = self.has_no_writers(link, now_s) and not self.lands_s(link, now_s)
        return settled and self.closed_tasks_settled(link, now_s)

    def closed_tasks_settled(self, link: str, now_s: float) -> bool:
        """Whether no write lease of a closed task runs, and no request of one can still be appended."""
        return now_s >= max(self._past.get(link, (0.0, 0.0)))

    def close_link(self, link: str) -> None:
        """Forgets the link's tasks, and disconnects the attempts."""
        for task, assignment in list(self._of(link)):
            del self._assignments[link, task]
            granted_s, lands_s = self._past.get(link, (0.0, 0.0))
            lands_s = max(lands_s, assignment.ownership.lands_until_s, assignment.landing.until_s)
            self._past[link] = max(granted_s, assignment.ownership.granted_until_s), lands_s
            self._wanted += [DisconnectTask(session) for session in assignment.sessions.values()]

    # -- time

    def awaited(self) -> frozenset[str]:
        """Returns the links with a standby: they need `tick`."""
        awaited = [key for key, assignment in self._assignments.items() if assignment.ownership.heir is not None]
        return frozenset(link for link, _ in awaited)

    def tick(self, now_s: float, allowed_s: Mapping[str, float]) -> None:
        """Applies what time alone changes. `allowed_s` has each link of `awaited`."""
        for (link, _), assignment in self._assignments.items():
            if assignment.ownership.heir is not None:
                self._say(assignment, assignment.ownership.tick(now_s, allowed_s[link]), now_s)

    # -- attempts

    def arrive(self, key: TaskKey, run: int, token: str) -> TaskSession | None:
        """Opens an attempt's session; None: refused."""
        assignment = self._assignments.get(key)
        if assignment is None or not hmac.compare_digest(token.encode(), assignment.token.encode()):
            return None
        if assignment.closing or run in assignment.sessions:
            return None
        self._visits += 1
        session = assignment.sessions[run] = TaskSession(*key, run, self._visits)
        self._tell(assignment, run, Assign(tuple(assignment.configs.values())))
        if assignment.bounds:
            self._tell(assignment, run, assignment.bounds)
        return session

    def depart(self, session: TaskSession, now_s: float, allowed_s: float) -> None:
        if assignment := self._session_of(session):
            del assignment.sessions[session.run]
            # Only the holder's end cancels moves: a standby's end does not concern them.
            if session.run == assignment.ownership.holder:
                assignment.moving.clear()
            self._say(assignment, assignment.ownership.lost(session.run, now_s, allowed_s), now_s)

    def hear(self, session: TaskSession, message: TaskMessage, now_s: float, allowed_s: float) -> None:
        assignment = self._session_of(session)
        if assignment is None:
            return
        run, holds = session.run, session.run == assignment.ownership.holder
        replies: list[OwnershipMessage] = []
        match message:
            case TaskReady():
                replies = [] if assignment.closing else assignment.ownership.arrived(run, now_s, allowed_s)
            case TaskProgress():
                if holds:
                    self._account(session, assignment, message.carried, message.incidents, message.speed)
                replies = assignment.ownership.beat(run, now_s, allowed_s, float(message.speed.get(STILL_KEY, 0.0)))
            case ThrottleUsage() if holds:
                assignment.used = message.used
            case Released() if holds:
                self._account(session, assignment, [message.carried] if message.carried else [])
                self._released(session.link, assignment, message, now_s)
            case TaskFinished():
                if holds:
                    assignment.landing.hear(message.handoffs, now_s)
                    self._account(session, assignment, message.carried, message.incidents, message.speed)
                    assignment.paces, assignment.paces_at_s = tuple(message.paces), now_s
                replies = assignment.ownership.done(run, tuple(message.handoffs), now_s, allowed_s, message.unread_s)
                if assignment.ownership.free(now_s):
                    assignment.let_go()
        self._say(assignment, replies, now_s, message.asked_s if isinstance(message, TaskProgress) else 0.0)

    def _session_of(self, session: TaskSession) -> TaskAssignment | None:
        """Returns the session's task; None for an attempt of an earlier lease epoch: late messages must not count."""
        assignment = self._assignments.get(session.key)
        return assignment if assignment and assignment.sessions.get(session.run) == session else None

    def _account(
        self,
        session: TaskSession,
        assignment: TaskAssignment,
        carried: Iterable[PartitionProgress],
        incidents: Iterable[PartitionIncident] = (),
        speed: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        report = TaskReport(*session.key, tuple(carried), tuple(incidents), dict(speed))
        assignment.account(report.carried)
        self._wanted.append(RecordReport(report))

    def _released(self, link: str, assignment: TaskAssignment, released: Released, now_s: float) -> None:
        """Moves a released partition to the task that asked, which continues from the handoff."""
        handovers = (released.handover,) if released.handover else ()
        assignment.landing.hear(handovers, now_s)
        task, config = assignment.release(released.partition)
        other = None if task is None else self._assignments.get((link, task))
        if other is None or config is None:
            return
        other.place(config)
        self._tell_all(other, Assign((config,)))
        if other.ownership.holder is not None:
            handoffs = other.landing.told(handovers, [released.partition], now_s)
            self._tell(other, other.ownership.holder, TakeOver(handoffs))

    # -- messages to attempts

    def _say(
        self, assignment: TaskAssignment, messages: Iterable[OwnershipMessage], now_s: float, asked_s: float = 0.0
    ) -> None:
        for message in messages:
            match message.what:
                case "go":
                    self._tell(assignment, message.run, assignment.begin(message.handoffs, now_s))
                case "grant":
                    self._tell(assignment, message.run, LeaseGranted(asked_s, message.grant_s))
                case what:
                    self._tell(assignment, message.run, Finish() if what == "finish" else Stop())

    def _tell(self, assignment: TaskAssignment, run: int, message: CoordinatorMessage) -> None:
        if session := assignment.sessions.get(run):
            self._wanted.append(SendToTask(session, message))

    def _tell_all(self, assignment: TaskAssignment, message: CoordinatorMessage) -> None:
        self._wanted += [SendToTask(session, message) for session in assignment.sessions.values()]

    def _of(self, link: str) -> Iterator[tuple[int, TaskAssignment]]:
        return ((task, assignment) for (name, task), assignment in self._assignments.items() if name == link)
