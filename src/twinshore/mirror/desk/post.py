"""One lane at the desk: who may pump it, what is on it, and how far that is accounted for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.commands import Pace
from twinshore.mirror.core.desk_words import Bounds, Go
from twinshore.mirror.desk.commands import Seat
from twinshore.mirror.desk.landing import Landing
from twinshore.mirror.desk.relay import Relay
from twinshore.mirror.lane.history import NOWHERE, Stand, told_on
from twinshore.mirror.lane.orders import Carried, Handover, TrackOrder
from twinshore.mirror.lane.reach import reach_of


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
