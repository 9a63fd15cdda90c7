"""One lane at the desk: who may pump it, what is on it, and how far that is accounted for. Pure; the desk moves the
bytes.

One holder may write, perhaps an heir stands by, never two.
The holder writes only while its grant lasts, measured on its own clock. When it says where it stands, the heir goes on
from there at once; when it is lost, the heir waits the grant out and looks for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.commands import Pace
from twinshore.mirror.core.desk_words import Bounds, Go
from twinshore.mirror.desk.commands import Seat
from twinshore.mirror.lane.history import NOWHERE, Stand, told_on
from twinshore.mirror.lane.orders import Carried, Handover, TrackOrder
from twinshore.mirror.lane.reach import reach_of
from twinshore.mirror.lane.roster import UNPLACED

# A grant measured here ends later than the same grant measured by the pump, which counts from before it asked.
SLACK_S = 0.25


class Landing:
    """One link's. A pump that is killed says nothing, so its successor hears here what the one before it had lost."""

    def __init__(self) -> None:
        self._until_s: dict[NamedPartition, float] = {}

    @property
    def until_s(self) -> float:
        """Of all partitions; 0 where nothing was lost."""
        return max(self._until_s.values(), default=0.0)

    def hear(self, handovers: Iterable[Handover], now_s: float) -> None:
        """A pump lets these partitions go."""
        for entry in handovers:
            named = NamedPartition(entry.topic, entry.partition)
            if entry.calm:
                self._until_s.pop(named, None)
            else:
                self._until_s[named] = max(self._until_s.get(named, 0.0), now_s + entry.strays_s)

    def told(
        self, handovers: Iterable[Handover], wanted: Iterable[NamedPartition], now_s: float
    ) -> tuple[Handover, ...]:
        """What the next pump of the `wanted` partitions must hear: the handovers, and how long it must wait where none
        says that."""
        self._until_s = {named: until_s for named, until_s in self._until_s.items() if until_s > now_s}
        given = tuple(handovers)
        known = {NamedPartition(entry.topic, entry.partition) for entry in given}
        lost = [named for named in wanted if named in self._until_s and named not in known]
        return given + tuple(_waits(named, self._until_s[named] - now_s) for named in lost)


def _waits(named: NamedPartition, for_s: float) -> Handover:
    """Nobody says where the twin ends, nor of which records the lost requests are."""
    place = (named.topic, named.partition, UNPLACED)
    return Handover(*place, leader_epoch=-1, armed_until_ms=0, calm=False, strays_s=for_s, strays_moved=True)


@dataclass(frozen=True, slots=True)
class Say:
    """A message to one pump. `finish`: stop and say where you stand; `go`: begin; `grant`: go on for so long."""

    tide: int
    what: str
    grant_s: float = 0.0
    handovers: tuple[Handover, ...] = ()


@dataclass(slots=True)
class Relay:
    """One lane's state. Every method returns what is to be said."""

    grant_s: float
    holder: int | None = None
    heir: int | None = None
    granted_until_s: float = 0.0
    # Until then a broker that throttles the holder may take what it was sent before, whether or not the holder lives.
    # It knows better only when it stops in good order.
    lands_until_s: float = 0.0
    finishing: bool = False
    handovers: tuple[Handover, ...] = field(default=())

    def arrived(self, tide: int, now_s: float, allowed_s: float) -> list[Say]:
        """A pump stands by, connected and ready."""
        self.heir = tide
        return self.tick(now_s, allowed_s)

    def beat(self, tide: int, now_s: float, allowed_s: float, still_s: float = 0.0) -> list[Say]:
        """The holder asks to go on. `allowed_s`: for how long the link itself is still ours; `still_s`: for how long a
        broker does not listen to the holder."""
        if tide != self.holder:
            return [Say(tide, "stop")]
        grant_s = min(self.grant_s, allowed_s)
        if grant_s <= 0:
            return [Say(tide, "stop")]
        self.granted_until_s = max(self.granted_until_s, now_s + grant_s + SLACK_S)
        self.lands_until_s = max(self.lands_until_s, now_s + still_s)
        return [Say(tide, "grant", grant_s)]

    def done(
        self, tide: int, handovers: tuple[Handover, ...], now_s: float, allowed_s: float, unread_s: float = 0.0
    ) -> list[Say]:
        """The holder has stopped for good and says where it stands, and for how long what it sent may still land."""
        if tide != self.holder:
            return []
        self.holder, self.handovers, self.finishing = None, handovers, False
        self.granted_until_s, self.lands_until_s = 0.0, now_s + unread_s
        return self.tick(now_s, allowed_s)

    def lost(self, tide: int, now_s: float, allowed_s: float) -> list[Say]:
        """A pump is gone without a word: its last grant is waited out."""
        if tide == self.heir:
            self.heir = None
        if tide == self.holder:
            self.holder, self.handovers, self.finishing = None, (), False
        return self.tick(now_s, allowed_s)

    def tick(self, now_s: float, allowed_s: float) -> list[Say]:
        """What time alone brings about."""
        if self.heir is None:
            return []
        self._lapse(now_s)
        if self.holder is not None:
            if self.finishing:
                return []
            self.finishing = True
            return [Say(self.holder, "finish")]
        grant_s = min(self.grant_s, allowed_s)
        if now_s < max(self.granted_until_s, self.lands_until_s) or grant_s <= 0:
            return []
        self.holder, self.heir = self.heir, None
        self.granted_until_s = now_s + grant_s + SLACK_S
        handovers, self.handovers = self.handovers, ()
        return [Say(self.holder, "go", grant_s, handovers)]

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

    def forget(self, named: NamedPartition) -> None:
        """The partition leaves the lane: where it stood is not true any more when it comes back."""
        self.handovers = tuple(one for one in self.handovers if NamedPartition(one.topic, one.partition) != named)

    def due_s(self) -> float | None:
        """When `tick` has something to do at the latest."""
        if self.heir is None:
            return None
        return self.granted_until_s if self.holder is not None else max(self.granted_until_s, self.lands_until_s)


@dataclass(slots=True)
class Post:
    """`token`: by it the desk knows the tides of this term. `told`: how far each partition is accounted for. `moving`:
    partitions that were asked for, for another lane; `leaving`: those that leave the link's lanes; `untouched`: new
    twins that no holder has had."""

    relay: Relay
    token: str
    landing: Landing = field(default_factory=Landing)
    tracks: dict[NamedPartition, TrackOrder] = field(default_factory=dict)
    told: dict[NamedPartition, Stand] = field(default_factory=dict)
    untouched: set[NamedPartition] = field(default_factory=set)
    pumps: dict[int, Seat] = field(default_factory=dict)
    moving: dict[NamedPartition, int] = field(default_factory=dict)
    leaving: set[NamedPartition] = field(default_factory=set)
    closing: bool = False
    holder_since_s: float = 0.0
    # How much the lane may carry, what it has carried, and what it last said it used of what it may.
    bounds: Bounds | None = None
    bytes: int = 0
    used: dict[str, list[float]] = field(default_factory=dict)
    # What the last pump learnt of quotas, from its last word until the next one goes, and when that word came.
    paces: tuple[Pace, ...] = ()
    paces_at_s: float = 0.0

    def place(self, order: TrackOrder) -> None:
        self.tracks[order.named] = order
        self.told[order.named] = Stand(order.receipt_epoch, order.receipt_to)
        if order.untouched and self.relay.holder is None:
            self.untouched.add(order.named)

    def account(self, carried: Iterable[Carried]) -> None:
        """The holder has carried this."""
        for entry in carried:
            self.bytes += entry.bytes
            named = NamedPartition(entry.topic, entry.partition)
            self.told[named] = told_on(self.told.get(named, NOWHERE), Stand(entry.epoch, entry.to_offset))
            if entry.extents and named in self.tracks:
                self.tracks[named] = replace(self.tracks[named], reached=reach_of(entry.extents[-1]))

    def begin(self, handovers: tuple[Handover, ...], now_s: float) -> Go:
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
        return Go(handovers, dict(self.told), reached, paces, untouched)

    def release(self, named: NamedPartition) -> tuple[int | None, TrackOrder | None]:
        """The holder has let go of it. The lane that it is for, if any, and as what it goes on there."""
        self.leaving.discard(named)
        self.untouched.discard(named)
        lane = self.moving.pop(named, None)
        order, stand = self.tracks.pop(named, None), self.told.pop(named, NOWHERE)
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
