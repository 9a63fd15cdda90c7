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
from twinshore.replication.task.core.config import (
    NO_EPOCH_OFFSET,
    EpochOffset,
    Handoff,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    latest_epoch_offset,
    position_after,
)
from twinshore.replication.task.core.handoff import UNKNOWN_POSITION
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    Finish,
    LearntQuota,
    LeaseGranted,
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
)
from twinshore.replication.task.core.throttle import STILL_KEY

TaskKey = tuple[str, int]
# A write lease ends later here than for the attempt, which counts from before its request.
LEASE_SLACK_S = 0.25


class TaskSession(NamedTuple):
    """One accepted attempt (`tide`) of a task (`lane`). `visit` tells sessions with the same attempt number apart."""

    link: str
    lane: int
    tide: int
    visit: int

    @property
    def key(self) -> TaskKey:
        return self.link, self.lane


@dataclass(frozen=True, slots=True)
class TaskReport:
    link: str
    lane: int
    carried: tuple[PartitionProgress, ...]
    incidents: tuple[PartitionIncident, ...]
    speed: dict[str, float]


class SendToTask(NamedTuple):
    seat: TaskSession
    word: CoordinatorMessage


class RecordReport(NamedTuple):
    account: TaskReport


class DisconnectTask(NamedTuple):
    """Close the attempt's connection; the attempt may not notice."""

    seat: TaskSession


CoordinatorCommand = SendToTask | RecordReport | DisconnectTask


class LostRequestDeadlines:
    """Until when lost produce requests of one link may be appended. A killed attempt cannot tell its successor."""

    def __init__(self) -> None:
        self._until_s: dict[TopicPartition, float] = {}

    @property
    def until_s(self) -> float:
        """The latest deadline of all partitions; 0: no request was lost."""
        return max(self._until_s.values(), default=0.0)

    def hear(self, handovers: Iterable[Handoff], now_s: float) -> None:
        """Takes the handoffs of released partitions."""
        for entry in handovers:
            named = TopicPartition(entry.topic, entry.partition)
            if entry.calm:
                self._until_s.pop(named, None)
            else:
                self._until_s[named] = max(self._until_s.get(named, 0.0), now_s + entry.strays_s)

    def told(self, handovers: Iterable[Handoff], wanted: Iterable[TopicPartition], now_s: float) -> tuple[Handoff, ...]:
        """Returns the handoffs, with a wait for each of the `wanted` partitions that has a running deadline but no
        handoff.
        """
        self._until_s = {named: until_s for named, until_s in self._until_s.items() if until_s > now_s}
        given = tuple(handovers)
        known = {TopicPartition(entry.topic, entry.partition) for entry in given}
        lost = [named for named in wanted if named in self._until_s and named not in known]
        return given + tuple(_waits(named, self._until_s[named] - now_s) for named in lost)


def _waits(named: TopicPartition, for_s: float) -> Handoff:
    """A handoff with a wait alone: the twin's end offset and the lost records are unknown."""
    place = (named.topic, named.partition, UNKNOWN_POSITION)
    return Handoff(*place, leader_epoch=-1, armed_until_ms=0, calm=False, strays_s=for_s, strays_moved=True)


@dataclass(frozen=True, slots=True)
class OwnershipMessage:
    """A message to one attempt. `what`: "finish": stop and report offsets; "go": begin to write; "grant": the write
    lease is renewed for `grant_s`; "stop": end at once.
    """

    tide: int
    what: str
    grant_s: float = 0.0
    handovers: tuple[Handoff, ...] = ()


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
    handovers: tuple[Handoff, ...] = field(default=())

    def arrived(self, tide: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """The attempt becomes the standby."""
        self.heir = tide
        return self.tick(now_s, allowed_s)

    def beat(self, tide: int, now_s: float, allowed_s: float, still_s: float = 0.0) -> list[OwnershipMessage]:
        """The holder asks for more time. `allowed_s`: how long the link's lease still holds; `still_s`: how long a
        throttling broker does not read from the holder.
        """
        if tide != self.holder:
            return [OwnershipMessage(tide, "stop")]
        grant_s = min(self.grant_s, allowed_s)
        if grant_s <= 0:
            return [OwnershipMessage(tide, "stop")]
        self.granted_until_s = max(self.granted_until_s, now_s + grant_s + LEASE_SLACK_S)
        self.lands_until_s = max(self.lands_until_s, now_s + still_s)
        return [OwnershipMessage(tide, "grant", grant_s)]

    def done(
        self, tide: int, handovers: tuple[Handoff, ...], now_s: float, allowed_s: float, unread_s: float = 0.0
    ) -> list[OwnershipMessage]:
        """The holder has stopped. `unread_s`: how long earlier requests may still be appended."""
        if tide != self.holder:
            return []
        self.holder, self.handovers, self.finishing = None, handovers, False
        self.granted_until_s, self.lands_until_s = 0.0, now_s + unread_s
        return self.tick(now_s, allowed_s)

    def lost(self, tide: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """The connection broke without a last message: the write lease has to run out."""
        if tide == self.heir:
            self.heir = None
        if tide == self.holder:
            self.holder, self.handovers, self.finishing = None, (), False
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
        handovers, self.handovers = self.handovers, ()
        return [OwnershipMessage(self.holder, "go", grant_s, handovers)]

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
            self.holder, self.handovers, self.finishing = None, (), False

    def forget(self, named: TopicPartition) -> None:
        """The partition leaves the task: the handoff would be wrong after a return."""
        self.handovers = tuple(one for one in self.handovers if TopicPartition(one.topic, one.partition) != named)

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

    relay: TaskOwnership
    token: str
    landing: LostRequestDeadlines = field(default_factory=LostRequestDeadlines)
    tracks: dict[TopicPartition, PartitionConfig] = field(default_factory=dict)
    told: dict[TopicPartition, EpochOffset] = field(default_factory=dict)
    untouched: set[TopicPartition] = field(default_factory=set)
    pumps: dict[int, TaskSession] = field(default_factory=dict)
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

    def place(self, order: PartitionConfig) -> None:
        self.tracks[order.named] = order
        self.told[order.named] = EpochOffset(order.receipt_epoch, order.receipt_to)
        if order.untouched and self.relay.holder is None:
            self.untouched.add(order.named)

    def account(self, carried: Iterable[PartitionProgress]) -> None:
        for entry in carried:
            self.bytes += entry.bytes
            named = TopicPartition(entry.topic, entry.partition)
            self.told[named] = latest_epoch_offset(
                self.told.get(named, NO_EPOCH_OFFSET), EpochOffset(entry.epoch, entry.to_offset)
            )
            if entry.extents and named in self.tracks:
                self.tracks[named] = replace(self.tracks[named], reached=position_after(entry.extents[-1]))

    def begin(self, handovers: tuple[Handoff, ...], now_s: float) -> StartWriting:
        """Returns the message for the next holder. Call only while the task has no writer."""
        self.let_go()
        self.holder_since_s = now_s
        # A standby was told how far mapped twins are written when it arrived; the holder has written more since.
        reached = {named: order.reached for named, order in self.tracks.items() if order.reached}
        # The next holder may begin much later.
        ago_s = now_s - self.paces_at_s
        paces = tuple(pace._replace(learnt=pace.learnt.aged(ago_s)) for pace in self.paces)
        self.paces = ()
        untouched, self.untouched = tuple(self.untouched), set()
        handovers = self.landing.told(handovers, self.tracks, now_s)
        return StartWriting(handovers, dict(self.told), reached, paces, untouched)

    def release(self, named: TopicPartition) -> tuple[int | None, PartitionConfig | None]:
        """Removes the partition. Returns the task that takes over, if any, and the config to continue with."""
        self.leaving.discard(named)
        self.untouched.discard(named)
        lane = self.moving.pop(named, None)
        order, stand = self.tracks.pop(named, None), self.told.pop(named, NO_EPOCH_OFFSET)
        if order is None:
            return lane, None
        return lane, replace(order, receipt_to=stand.end, receipt_epoch=stand.epoch, untouched=False)

    def let_go(self) -> None:
        """Drops `leaving` partitions and cancels moves. Call only while the task has no writer."""
        self.moving.clear()
        for named in self.leaving:
            self.relay.forget(named)
            self.tracks.pop(named, None)
            self.told.pop(named, None)
        self.untouched -= self.leaving
        self.leaving.clear()


class Coordinator:
    def __init__(self) -> None:
        self._posts: dict[TaskKey, TaskAssignment] = {}
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
        if key not in self._posts:
            granted_s, lands_s = self._past.get(key[0], (0.0, 0.0))
            relay = TaskOwnership(grant_s, granted_until_s=granted_s, lands_until_s=lands_s)
            self._posts[key] = TaskAssignment(relay, token, self._landings.setdefault(key[0], LostRequestDeadlines()))

    def token_of(self, key: TaskKey) -> str:
        """Returns the open task's token; empty: closed."""
        return post.token if (post := self._posts.get(key)) else ""

    def assign(self, key: TaskKey, orders: Iterable[PartitionConfig], now_s: float) -> None:
        """Adds partitions to a task and its attempts. Those that a task of the link already has stay there."""
        post, placed = self._posts[key], self.placed(key[0])
        fresh = tuple(self._given_once(key[0], order) for order in orders if order.named not in placed)
        for order in fresh:
            post.place(order)
        if fresh:
            self._tell_all(post, Assign(fresh))
            waits = post.landing.told((), [order.named for order in fresh], now_s)
            if waits and post.relay.holder is not None:
                self._tell(post, post.relay.holder, TakeOver(waits))

    def _given_once(self, link: str, order: PartitionConfig) -> PartitionConfig:
        if not order.untouched:
            return order
        twin = link, order.target_topic_id, order.partition
        order = replace(order, untouched=twin not in self._given)
        self._given.add(twin)
        return order

    def placed(self, link: str) -> dict[TopicPartition, int]:
        return {named: lane for lane, post in self._of(link) for named in post.tracks}

    def move(self, link: str, named: TopicPartition, lane: int) -> bool:
        """Asks the partition's holder for a release to task `lane`; False: no holder can be asked now."""
        for number, post in self._of(link):
            if number != lane and named in post.tracks:
                holder = post.relay.holder
                if holder is None or post.relay.finishing or named in post.moving or named in post.leaving:
                    return False
                post.moving[named] = lane
                self._tell(post, holder, Release(named))
                return True
        return False

    def withdraw(self, link: str, topic: str, partition: int, now_s: float) -> bool:
        """Takes a topic, or one partition (-1: all), from the link's tasks. Call until True: then no attempt writes
        there, since each has confirmed, or was lost and has no write lease any more.
        """

        def leaves(named: TopicPartition) -> bool:
            return named.topic == topic and partition in (-1, named.partition)

        for _, post in self._of(link):
            ours = [named for named in post.tracks if leaves(named)]
            for named in ours:
                post.moving.pop(named, None)
                post.leaving.add(named)
                self._tell_all(post, Release(named))
            if ours and post.relay.free(now_s):
                post.let_go()
        return not any(leaves(named) for named in self.placed(link))

    def bound(self, key: TaskKey, bounds: TaskRateLimits) -> None:
        if post := self._posts.get(key):
            post.bounds = bounds
            self._tell_all(post, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """Returns bytes fetched lately, and whether a throttle held more back, by task and topic ("": all)."""
        return {lane: post.used for lane, post in self._of(link)}

    def holding(self, key: TaskKey, now_s: float) -> tuple[int | None, float, bool]:
        """Returns the holder (None also after the write lease), the seconds since a holder last began, and whether a
        standby is ready.
        """
        post = self._posts[key]
        holder = post.relay.holder if post.relay.manned(now_s) else None
        return holder, now_s - post.holder_since_s, post.relay.heir is not None

    def seated(self, key: TaskKey) -> frozenset[int]:
        return frozenset(post.pumps) if (post := self._posts.get(key)) else frozenset()

    def carried_bytes(self) -> dict[TaskKey, int]:
        """Returns the bytes that each task has replicated since it was opened."""
        return {key: post.bytes for key, post in self._posts.items()}

    def unmanned(self, link: str, now_s: float) -> frozenset[TopicPartition]:
        """Returns partitions that no attempt may write now."""
        return frozenset(named for _, post in self._of(link) if not post.relay.manned(now_s) for named in post.tracks)

    def waits_s(self, key: TaskKey, now_s: float) -> float:
        """Seconds for which no attempt may begin because earlier requests may still be appended."""
        return self._posts[key].relay.waits_s(now_s)

    def finish_all(self, link: str) -> None:
        """Asks every attempt to finish in good order; no other begins."""
        for _, post in self._of(link):
            post.closing, post.relay.heir = True, None
            for tide in post.pumps:
                self._tell(post, tide, Finish() if tide == post.relay.holder else Stop())

    def lands_s(self, link: str, now_s: float) -> float:
        """Seconds for which the link's requests may still be appended, even if this process ends."""
        ours = [max(post.relay.lands_until_s, post.landing.until_s) for _, post in self._of(link)]
        return max(0.0, max([*ours, self._past.get(link, (0.0, 0.0))[1]]) - now_s)

    def has_no_writers(self, link: str, now_s: float) -> bool:
        """Whether no attempt is connected, and no lost one has a write lease."""
        return all(not post.pumps and post.relay.free(now_s) for _, post in self._of(link))

    def idle(self, link: str, now_s: float) -> bool:
        """Whether the link has no writer, and no request can still be appended."""
        return (
            self.has_no_writers(link, now_s)
            and not self.lands_s(link, now_s)
            and self.closed_tasks_settled(link, now_s)
        )

    def closed_tasks_settled(self, link: str, now_s: float) -> bool:
        """Whether no write lease of a closed task runs, and no request of one can still be appended."""
        return now_s >= max(self._past.get(link, (0.0, 0.0)))

    def close_link(self, link: str) -> None:
        """Forgets the link's tasks, and disconnects the attempts."""
        for lane, post in list(self._of(link)):
            del self._posts[link, lane]
            granted_s, lands_s = self._past.get(link, (0.0, 0.0))
            lands_s = max(lands_s, post.relay.lands_until_s, post.landing.until_s)
            self._past[link] = max(granted_s, post.relay.granted_until_s), lands_s
            self._wanted += [DisconnectTask(seat) for seat in post.pumps.values()]

    # -- time

    def awaited(self) -> frozenset[str]:
        """Returns the links with a standby: they need `tick`."""
        return frozenset(link for (link, _), post in self._posts.items() if post.relay.heir is not None)

    def tick(self, now_s: float, allowed_s: Mapping[str, float]) -> None:
        """Applies what time alone changes. `allowed_s` has each link of `awaited`."""
        for (link, _), post in self._posts.items():
            if post.relay.heir is not None:
                self._say(post, post.relay.tick(now_s, allowed_s[link]), now_s)

    # -- attempts

    def arrive(self, key: TaskKey, tide: int, token: str) -> TaskSession | None:
        """Opens an attempt's session; None: refused."""
        post = self._posts.get(key)
        if post is None or not hmac.compare_digest(token.encode(), post.token.encode()):
            return None
        if post.closing or tide in post.pumps:
            return None
        self._visits += 1
        seat = post.pumps[tide] = TaskSession(*key, tide, self._visits)
        self._tell(post, tide, Assign(tuple(post.tracks.values())))
        if post.bounds:
            self._tell(post, tide, post.bounds)
        return seat

    def depart(self, seat: TaskSession, now_s: float, allowed_s: float) -> None:
        if post := self._seated(seat):
            del post.pumps[seat.tide]
            # Only the holder's end cancels moves: a standby's end does not concern them.
            if seat.tide == post.relay.holder:
                post.moving.clear()
            self._say(post, post.relay.lost(seat.tide, now_s, allowed_s), now_s)

    def hear(self, seat: TaskSession, word: TaskMessage, now_s: float, allowed_s: float) -> None:
        post = self._seated(seat)
        if post is None:
            return
        tide, holds = seat.tide, seat.tide == post.relay.holder
        says: list[OwnershipMessage] = []
        match word:
            case TaskReady():
                says = [] if post.closing else post.relay.arrived(tide, now_s, allowed_s)
            case TaskProgress():
                if holds:
                    self._account(seat, post, word.carried, word.incidents, word.speed)
                says = post.relay.beat(tide, now_s, allowed_s, float(word.speed.get(STILL_KEY, 0.0)))
            case ThrottleUsage() if holds:
                post.used = word.used
            case Released() if holds:
                self._account(seat, post, [word.carried] if word.carried else [])
                self._released(seat.link, post, word, now_s)
            case TaskFinished():
                if holds:
                    post.landing.hear(word.handovers, now_s)
                    self._account(seat, post, word.carried, word.incidents, word.speed)
                    post.paces, post.paces_at_s = tuple(word.paces), now_s
                says = post.relay.done(tide, tuple(word.handovers), now_s, allowed_s, word.unread_s)
                if post.relay.free(now_s):
                    post.let_go()
        self._say(post, says, now_s, word.asked_s if isinstance(word, TaskProgress) else 0.0)

    def _seated(self, seat: TaskSession) -> TaskAssignment | None:
        """Returns the session's task; None for an attempt of an earlier lease epoch: late messages must not count."""
        post = self._posts.get(seat.key)
        return post if post and post.pumps.get(seat.tide) == seat else None

    def _account(
        self,
        seat: TaskSession,
        post: TaskAssignment,
        carried: Iterable[PartitionProgress],
        incidents: Iterable[PartitionIncident] = (),
        speed: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        account = TaskReport(*seat.key, tuple(carried), tuple(incidents), dict(speed))
        post.account(account.carried)
        self._wanted.append(RecordReport(account))

    def _released(self, link: str, post: TaskAssignment, word: Released, now_s: float) -> None:
        """Moves a released partition to the task that asked, which continues from the handoff."""
        handovers = (word.handover,) if word.handover else ()
        post.landing.hear(handovers, now_s)
        lane, order = post.release(word.named)
        other = None if lane is None else self._posts.get((link, lane))
        if other is None or order is None:
            return
        other.place(order)
        self._tell_all(other, Assign((order,)))
        if other.relay.holder is not None:
            self._tell(other, other.relay.holder, TakeOver(other.landing.told(handovers, [word.named], now_s)))

    # -- messages to attempts

    def _say(self, post: TaskAssignment, says: Iterable[OwnershipMessage], now_s: float, asked_s: float = 0.0) -> None:
        for say in says:
            match say.what:
                case "go":
                    self._tell(post, say.tide, post.begin(say.handovers, now_s))
                case "grant":
                    self._tell(post, say.tide, LeaseGranted(asked_s, say.grant_s))
                case "finish":
                    self._tell(post, say.tide, Finish())
                case _:
                    self._tell(post, say.tide, Stop())

    def _tell(self, post: TaskAssignment, tide: int, word: CoordinatorMessage) -> None:
        if seat := post.pumps.get(tide):
            self._wanted.append(SendToTask(seat, word))

    def _tell_all(self, post: TaskAssignment, word: CoordinatorMessage) -> None:
        self._wanted += [SendToTask(seat, word) for seat in post.pumps.values()]

    def _of(self, link: str) -> Iterator[tuple[int, TaskAssignment]]:
        return ((lane, post) for (name, lane), post in self._posts.items() if name == link)
