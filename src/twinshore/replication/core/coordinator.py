"""The desk without its sockets: every pump of every lane has a seat here, is granted time, and is told what to carry.

Events come in as method calls, with the time, and with how long the link is still ours (`allowed_s`), as arguments.
What is to be done for them waits in `wanted`, in order. Pure.

A `TaskAssignment` is one lane: what is on it, and how far that is accounted for. Its `TaskOwnership` decides who may
write: one holder, perhaps an heir stands by, never two. The holder writes only while its grant lasts, measured on its
own clock. When it says where it stands, the heir goes on from there at once; when it is lost, the heir waits the grant
out and looks for itself. The holder counts a grant from before it asked, the desk from after it answered: so the
holder's ends first. No grant lasts beyond the link's lease.
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
from twinshore.replication.task.core.connections import (
    LearntQuota,
    Released,
    TaskFinished,
    TaskProgress,
    TaskReady,
    ThrottleUsage,
)
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    Finish,
    LeaseGranted,
    Release,
    StartWriting,
    Stop,
    TakeOver,
    TaskMessage,
    TaskRateLimits,
)
from twinshore.replication.task.core.roster import UNKNOWN_POSITION
from twinshore.replication.task.core.throttle import STILL_KEY

TaskKey = tuple[str, int]
# A grant measured here ends later than the same grant measured by the pump, which counts from before it asked.
LEASE_SLACK_S = 0.25


class TaskSession(NamedTuple):
    """A pump that the desk has let in: one tide of a lane. `visit` is the desk's own number for it: a later term of the
    link opens the same lane and numbers its tides anew."""

    link: str
    lane: int
    tide: int
    visit: int

    @property
    def key(self) -> TaskKey:
        return self.link, self.lane


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one message of a pump brought: for the store and for the live table."""

    link: str
    lane: int
    carried: tuple[PartitionProgress, ...]
    incidents: tuple[PartitionIncident, ...]
    speed: dict[str, float]


class SendToTask(NamedTuple):
    """Say this to the pump."""

    seat: TaskSession
    word: CoordinatorMessage


class RecordReport(NamedTuple):
    """Give this to whoever writes it down."""

    account: TaskReport


class DisconnectTask(NamedTuple):
    """Hang up on the pump, which may not hear of it."""

    seat: TaskSession


CoordinatorCommand = SendToTask | RecordReport | DisconnectTask


class LostRequestDeadlines:
    """One link's. A pump that is killed says nothing, so its successor hears here what the one before it had lost."""

    def __init__(self) -> None:
        self._until_s: dict[TopicPartition, float] = {}

    @property
    def until_s(self) -> float:
        """Of all partitions; 0 where nothing was lost."""
        return max(self._until_s.values(), default=0.0)

    def hear(self, handovers: Iterable[Handoff], now_s: float) -> None:
        """A pump lets these partitions go."""
        for entry in handovers:
            named = TopicPartition(entry.topic, entry.partition)
            if entry.calm:
                self._until_s.pop(named, None)
            else:
                self._until_s[named] = max(self._until_s.get(named, 0.0), now_s + entry.strays_s)

    def told(self, handovers: Iterable[Handoff], wanted: Iterable[TopicPartition], now_s: float) -> tuple[Handoff, ...]:
        """What the next pump of the `wanted` partitions must hear: the handovers, and how long it must wait where none
        says that."""
        self._until_s = {named: until_s for named, until_s in self._until_s.items() if until_s > now_s}
        given = tuple(handovers)
        known = {TopicPartition(entry.topic, entry.partition) for entry in given}
        lost = [named for named in wanted if named in self._until_s and named not in known]
        return given + tuple(_waits(named, self._until_s[named] - now_s) for named in lost)


def _waits(named: TopicPartition, for_s: float) -> Handoff:
    """Nobody says where the twin ends, nor of which records the lost requests are."""
    place = (named.topic, named.partition, UNKNOWN_POSITION)
    return Handoff(*place, leader_epoch=-1, armed_until_ms=0, calm=False, strays_s=for_s, strays_moved=True)


@dataclass(frozen=True, slots=True)
class OwnershipMessage:
    """A message to one pump. `finish`: stop and say where you stand; `go`: begin; `grant`: go on for so long."""

    tide: int
    what: str
    grant_s: float = 0.0
    handovers: tuple[Handoff, ...] = ()


@dataclass(slots=True)
class TaskOwnership:
    """One lane's state. Every method returns what is to be said."""

    grant_s: float
    holder: int | None = None
    heir: int | None = None
    granted_until_s: float = 0.0
    # Until then a broker that throttles the holder may take what it was sent before, whether or not the holder lives.
    # It knows better only when it stops in good order.
    lands_until_s: float = 0.0
    finishing: bool = False
    handovers: tuple[Handoff, ...] = field(default=())

    def arrived(self, tide: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """A pump stands by, connected and ready."""
        self.heir = tide
        return self.tick(now_s, allowed_s)

    def beat(self, tide: int, now_s: float, allowed_s: float, still_s: float = 0.0) -> list[OwnershipMessage]:
        """The holder asks to go on. `allowed_s`: for how long the link itself is still ours; `still_s`: for how long a
        broker does not listen to the holder."""
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
        """The holder has stopped for good and says where it stands, and for how long what it sent may still land."""
        if tide != self.holder:
            return []
        self.holder, self.handovers, self.finishing = None, handovers, False
        self.granted_until_s, self.lands_until_s = 0.0, now_s + unread_s
        return self.tick(now_s, allowed_s)

    def lost(self, tide: int, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """A pump is gone without a word: its last grant is waited out."""
        if tide == self.heir:
            self.heir = None
        if tide == self.holder:
            self.holder, self.handovers, self.finishing = None, (), False
        return self.tick(now_s, allowed_s)

    def tick(self, now_s: float, allowed_s: float) -> list[OwnershipMessage]:
        """What time alone brings about."""
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
        """Whether nobody writes for the lane: the last holder has said that it stopped, or its grant has run out. That
        its connection is gone proves nothing: it may have broken on one side only."""
        self._lapse(now_s)
        return self.holder is None and now_s >= max(self.granted_until_s, self.lands_until_s)

    def manned(self, now_s: float) -> bool:
        """Whether a pump is there that may write; one that is frozen keeps its place, and asks for nothing."""
        return self.holder is not None and now_s < self.granted_until_s

    def waits_s(self, now_s: float) -> float:
        """For how long nobody may begin only because of what may still land; 0 while a grant runs."""
        if self.holder is not None or now_s < self.granted_until_s:
            return 0.0
        return max(0.0, self.lands_until_s - now_s)

    def _lapse(self, now_s: float) -> None:
        if self.holder is not None and now_s >= self.granted_until_s:
            # Frozen, or its machine is gone and no connection says so: it may write no more.
            self.holder, self.handovers, self.finishing = None, (), False

    def forget(self, named: TopicPartition) -> None:
        """The partition leaves the lane: where it stood is not true any more when it comes back."""
        self.handovers = tuple(one for one in self.handovers if TopicPartition(one.topic, one.partition) != named)

    def due_s(self) -> float | None:
        """When `tick` has something to do at the latest."""
        if self.heir is None:
            return None
        return self.granted_until_s if self.holder is not None else max(self.granted_until_s, self.lands_until_s)


@dataclass(slots=True)
class TaskAssignment:
    """`token`: by it the desk knows the tides of this term. `told`: how far each partition is accounted for. `moving`:
    partitions that were asked for, for another lane; `leaving`: those that leave the link's lanes; `untouched`: new
    twins that no holder has had."""

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
    # How much the lane may carry, what it has carried, and what it last said it used of what it may.
    bounds: TaskRateLimits | None = None
    bytes: int = 0
    used: dict[str, list[float]] = field(default_factory=dict)
    # What the last pump learnt of quotas, from its last word until the next one goes, and when that word came.
    paces: tuple[LearntQuota, ...] = ()
    paces_at_s: float = 0.0

    def place(self, order: PartitionConfig) -> None:
        self.tracks[order.named] = order
        self.told[order.named] = EpochOffset(order.receipt_epoch, order.receipt_to)
        if order.untouched and self.relay.holder is None:
            self.untouched.add(order.named)

    def account(self, carried: Iterable[PartitionProgress]) -> None:
        """The holder has carried this."""
        for entry in carried:
            self.bytes += entry.bytes
            named = TopicPartition(entry.topic, entry.partition)
            self.told[named] = latest_epoch_offset(
                self.told.get(named, NO_EPOCH_OFFSET), EpochOffset(entry.epoch, entry.to_offset)
            )
            if entry.extents and named in self.tracks:
                self.tracks[named] = replace(self.tracks[named], reached=position_after(entry.extents[-1]))

    def begin(self, handovers: tuple[Handoff, ...], now_s: float) -> StartWriting:
        """The next holder goes; nobody wrote for the lane until this word."""
        self.let_go()
        self.holder_since_s = now_s
        # An heir was told how far mapped twins are written when it came; the holder went on since.
        reached = {named: order.reached for named, order in self.tracks.items() if order.reached}
        # Nobody may have stood by, or what was sent may have landed late.
        ago_s = now_s - self.paces_at_s
        paces = tuple(pace._replace(learnt=pace.learnt.aged(ago_s)) for pace in self.paces)
        self.paces = ()
        untouched, self.untouched = tuple(self.untouched), set()
        handovers = self.landing.told(handovers, self.tracks, now_s)
        return StartWriting(handovers, dict(self.told), reached, paces, untouched)

    def release(self, named: TopicPartition) -> tuple[int | None, PartitionConfig | None]:
        """The holder has let go of it. The lane that it is for, if any, and as what it goes on there."""
        self.leaving.discard(named)
        self.untouched.discard(named)
        lane = self.moving.pop(named, None)
        order, stand = self.tracks.pop(named, None), self.told.pop(named, NO_EPOCH_OFFSET)
        if order is None:
            return lane, None
        return lane, replace(order, receipt_to=stand.end, receipt_epoch=stand.epoch, untouched=False)

    def let_go(self) -> None:
        """Nobody writes for the lane: what was to leave it has left, and nothing is on its way to another lane."""
        self.moving.clear()
        for named in self.leaving:
            self.relay.forget(named)
            self.tracks.pop(named, None)
            self.told.pop(named, None)
        self.untouched -= self.leaving
        self.leaving.clear()


class Coordinator:
    """Of all links of one process."""

    def __init__(self) -> None:
        self._posts: dict[TaskKey, TaskAssignment] = {}
        # By link: until when a pump of lanes that are closed may still write, and what it sent may still land.
        self._past: dict[str, tuple[float, float]] = {}
        self._landings: dict[str, LostRequestDeadlines] = {}
        self._given: set[tuple[str, str, int]] = set()  # new twins that were ever on a lane
        self._visits = 0
        self._wanted: list[CoordinatorCommand] = []

    def wanted(self) -> list[CoordinatorCommand]:
        """What is to be done since the last call, in this order."""
        wanted, self._wanted = self._wanted, []
        return wanted

    # -- what the driver asks and tells

    def open_task(self, key: TaskKey, grant_s: float, token: str) -> None:
        """Tides that know the token may carry it from now on; one that is open stays as it is."""
        if key not in self._posts:
            granted_s, lands_s = self._past.get(key[0], (0.0, 0.0))
            relay = TaskOwnership(grant_s, granted_until_s=granted_s, lands_until_s=lands_s)
            self._posts[key] = TaskAssignment(relay, token, self._landings.setdefault(key[0], LostRequestDeadlines()))

    def token_of(self, key: TaskKey) -> str:
        """What a tide has to know that carries the lane as it was opened last; empty where it is closed."""
        return post.token if (post := self._posts.get(key)) else ""

    def assign(self, key: TaskKey, orders: Iterable[PartitionConfig], now_s: float) -> None:
        """More partitions for a lane, at once where a pump runs; those that are on a lane of the link stay there."""
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
        """Which lane of the link each partition belongs to now."""
        return {named: lane for lane, post in self._of(link) for named in post.tracks}

    def move(self, link: str, named: TopicPartition, lane: int) -> bool:
        """Asks the lane that carries a partition to let go of it for another; False when nobody is there to ask."""
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
        """Takes a topic, or one partition, -1: all, from the link's lanes; asked again until True, when no pump writes
        it: its pump has said so, or was lost and has no grant any more."""

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
        """From now on the lane's pumps keep these throttles and weights."""
        if post := self._posts.get(key):
            post.bounds = bounds
            self._tell_all(post, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """By lane and topic, "" for the whole link: bytes fetched lately, and whether more would have been."""
        return {lane: post.used for lane, post in self._of(link)}

    def holding(self, key: TaskKey, now_s: float) -> tuple[int | None, float, bool]:
        """The tide that pumps the lane, for how long it has, and whether an heir stands by. One whose grant has run out
        pumps no more, whether or not it has said so."""
        post = self._posts[key]
        holder = post.relay.holder if post.relay.manned(now_s) else None
        return holder, now_s - post.holder_since_s, post.relay.heir is not None

    def seated(self, key: TaskKey) -> frozenset[int]:
        """The tides of the lane that are here."""
        return frozenset(post.pumps) if (post := self._posts.get(key)) else frozenset()

    def carried_bytes(self) -> dict[TaskKey, int]:
        """How much each lane has carried since it was opened."""
        return {key: post.bytes for key, post in self._posts.items()}

    def unmanned(self, link: str, now_s: float) -> frozenset[TopicPartition]:
        """The partitions that are on lanes that no pump carries now."""
        return frozenset(named for _, post in self._of(link) if not post.relay.manned(now_s) for named in post.tracks)

    def waits_s(self, key: TaskKey, now_s: float) -> float:
        """For how long no pump may begin on the lane because what the last one sent may still land."""
        return self._posts[key].relay.waits_s(now_s)

    def finish_all(self, link: str) -> None:
        """Asks every pump of a link to stop in good order; none begins any more."""
        for _, post in self._of(link):
            post.closing, post.relay.heir = True, None
            for tide in post.pumps:
                self._tell(post, tide, Finish() if tide == post.relay.holder else Stop())

    def lands_s(self, link: str, now_s: float) -> float:
        """For how long what the link's pumps have sent may still land, whatever becomes of them and of this process."""
        ours = [max(post.relay.lands_until_s, post.landing.until_s) for _, post in self._of(link)]
        return max(0.0, max([*ours, self._past.get(link, (0.0, 0.0))[1]]) - now_s)

    def has_no_writers(self, link: str, now_s: float) -> bool:
        """Whether no pump of the link is there, and lost ones have no grant any more."""
        return all(not post.pumps and post.relay.free(now_s) for _, post in self._of(link))

    def idle(self, link: str, now_s: float) -> bool:
        """Whether nobody writes in the link's name, and nothing that was sent in it can still land."""
        return (
            self.has_no_writers(link, now_s)
            and not self.lands_s(link, now_s)
            and self.closed_tasks_settled(link, now_s)
        )

    def closed_tasks_settled(self, link: str, now_s: float) -> bool:
        """Whether nothing more comes of closed lanes: no grant runs, and what was sent has landed."""
        return now_s >= max(self._past.get(link, (0.0, 0.0)))

    def close_link(self, link: str) -> None:
        """Forgets a link's lanes; a pump that still speaks for them is hung up on, and may not hear of it."""
        for lane, post in list(self._of(link)):
            del self._posts[link, lane]
            granted_s, lands_s = self._past.get(link, (0.0, 0.0))
            lands_s = max(lands_s, post.relay.lands_until_s, post.landing.until_s)
            self._past[link] = max(granted_s, post.relay.granted_until_s), lands_s
            self._wanted += [DisconnectTask(seat) for seat in post.pumps.values()]

    # -- what time brings

    def awaited(self) -> frozenset[str]:
        """The links of which some heir stands by: they want a `tick` now and then."""
        return frozenset(link for (link, _), post in self._posts.items() if post.relay.heir is not None)

    def tick(self, now_s: float, allowed_s: Mapping[str, float]) -> None:
        """`allowed_s` of each link that is awaited."""
        for (link, _), post in self._posts.items():
            if post.relay.heir is not None:
                self._say(post, post.relay.tick(now_s, allowed_s[link]), now_s)

    # -- pumps

    def arrive(self, key: TaskKey, tide: int, token: str) -> TaskSession | None:
        """A pump is at the door. Its seat; None where it is not let in."""
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
        """Its connection is gone."""
        if post := self._seated(seat):
            del post.pumps[seat.tide]
            # An heir that goes takes nothing with it: what the holder was asked to let go of is still on its way.
            if seat.tide == post.relay.holder:
                post.moving.clear()
            self._say(post, post.relay.lost(seat.tide, now_s, allowed_s), now_s)

    def hear(self, seat: TaskSession, word: TaskMessage, now_s: float, allowed_s: float) -> None:
        """A pump has said this."""
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
        """What a pump of an earlier term said before it was disconnected is not its namesake's word."""
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
        """The lane has let go: from now on the partition is the other lane's, which starts where this one stood."""
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

    # -- what pumps are told

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
