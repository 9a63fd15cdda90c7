"""The driver of a link: lease, desk and tides of `mirror`, with the shipped relay and lease rules inside.

The store is one object that outlives drivers. A driver that dies takes with it what it had not written yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.simulation.clusters import Clusters
from tests.simulation.pump_model import PumpModel
from tests.simulation.store_model import StoreModel
from tests.simulation.twin_log import Violation
from twinshore.fleet import NamedPartition
from twinshore.mirror.driver.relay import Relay, Say
from twinshore.mirror.lane.history import NOWHERE, Stand, told_on
from twinshore.mirror.lane.orders import Carried, Handover, Stoppage, TrackOrder
from twinshore.store.lease_watch import HeldLease, LeaseWatch
from twinshore.store.values import LeaseRow

LEASE_S = 3.0
GRACE_S = 3.0
WRITE_S = 0.4
TICK_S = 0.05


@dataclass(slots=True)
class Post:
    relay: Relay
    tracks: dict[NamedPartition, TrackOrder] = field(default_factory=dict)
    told: dict[NamedPartition, Stand] = field(default_factory=dict)
    pumps: dict[int, PumpModel] = field(default_factory=dict)
    moving: dict[NamedPartition, int] = field(default_factory=dict)
    leaving: set[NamedPartition] = field(default_factory=set)
    bytes_s: float = 0.0

    def let_go(self) -> None:
        """Nobody writes for the lane: what was to leave it has left, and nothing is on its way to another lane."""
        self.moving.clear()
        for named in self.leaving:
            self.relay.forget(named)
            self.tracks.pop(named, None)
            self.told.pop(named, None)
        self.leaving.clear()

    since_s: float = 0.0
    launched_s: float = -100.0
    next_tide: int = 0


class DriverModel:
    """`orders` gives the partitions of the link as the store and the clusters have them when a term begins."""

    def __init__(
        self,
        clusters: Clusters,
        store: StoreModel,
        *,
        name: str,
        lanes: int,
        tide_s: float,
        orders: Callable[[], list[TrackOrder]],
        started: Callable[[PumpModel], None],
    ) -> None:
        self.clusters, self.schedule, self.store, self.name = clusters, clusters.schedule, store, name
        self.lanes, self.tide_s, self._orders, self._started = lanes, tide_s, orders, started
        self.posts: dict[int, Post] = {}
        self.held: HeldLease | None = None
        # Partitions of paused topics, and those that shall come back once they have left their lanes.
        self.resting: set[NamedPartition] = set()
        self._returning: set[NamedPartition] = set()
        self._granted_until_s = 0.0
        self._watch = LeaseWatch(LEASE_S, GRACE_S)
        self.dead = self.paused = False
        self._unwritten: list[tuple[NamedPartition, Carried]] = []
        self._unledgered: list[tuple[NamedPartition, Stoppage]] = []
        self._backlog: list[Callable[[], None]] = []
        self._beat()
        self._tick()
        self._write()

    # -- the lease

    def left_s(self) -> float:
        return max(0.0, self.held.valid_until_s - self.schedule.now_s) if self.held else 0.0

    def _beat(self) -> None:
        if self.dead:
            return
        self.schedule.after(LEASE_S * 0.1 * self.schedule.chance.uniform(0.5, 1.5), self._beat)
        if self.paused or self.schedule.odds(self.clusters.store_fails):
            return
        now_s, row = self.schedule.now_s, self.store.lease
        if self.held:
            if self.held.beat_due(now_s):
                if row is not None and row.generation == self.held.row.generation:
                    self.store.lease = row = replace(row, beat=row.beat + 1)
                    self.held = self.held.beaten(row, now_s)
                else:
                    self._end_term()
            elif self.left_s() <= 0:
                self._end_term()
        elif self._watch.observe(row, now_s):
            generation = row.generation + 1 if row else 1
            self.store.lease = LeaseRow("link", self.name, generation, 0, int(LEASE_S * 1000))
            self.held = HeldLease(self.store.lease, now_s, LEASE_S)
            self._begin_term()

    def _begin_term(self) -> None:
        self.schedule.say(f"{self.name} has the lease")
        until_s = self._granted_until_s
        self.posts = {lane: Post(Relay(LEASE_S, granted_until_s=until_s)) for lane in range(self.lanes)}
        self._returning.clear()
        for order in self._orders():
            if order.named not in self.resting:
                self._place(self.schedule.chance.randrange(self.lanes), order)

    def _place(self, lane: int, order: TrackOrder) -> None:
        post = self.posts[lane]
        post.tracks[order.named] = order
        post.told[order.named] = Stand(order.receipt_epoch, order.receipt_to)
        for pump in post.pumps.values():
            pump.told(lambda p=pump: p.assign([order]))  # type: ignore[misc]

    def _end_term(self) -> None:
        self.schedule.say(f"{self.name} has lost the lease")
        self.held = None
        self._hang_up()

    def _hang_up(self) -> None:
        for post in self.posts.values():
            self._granted_until_s = max(self._granted_until_s, post.relay.granted_until_s)
            for pump in list(post.pumps.values()):
                self._lose(pump)
        self.posts = {}

    def _lose(self, pump: PumpModel) -> None:
        """A pump hears that the desk is gone, sooner or later."""
        self.schedule.after(self.schedule.lag(0.01), lambda: pump.hear(lambda: pump.end("the driver is gone")))

    def die(self, *, heard: bool) -> None:
        """Killed; its pumps hear of it, or, where a whole machine went, they do not."""
        self.schedule.say(f"{self.name} dies, {len(self._unwritten)} receipts unwritten")
        self.dead = True
        if heard:
            self._hang_up()

    def pause(self, for_s: float) -> None:
        self.schedule.say(f"{self.name} is paused for {for_s:.1f} s")
        self.paused = True
        self.schedule.after(for_s, self._resume)

    def _resume(self) -> None:
        """What pumps said meanwhile lies in its sockets and is read now."""
        self.paused = False
        waiting, self._backlog = self._backlog, []
        for act in waiting:
            self.hear(act)

    def hear(self, act: Callable[[], None]) -> None:
        """A pump's message has come."""
        if self.paused:
            self._backlog.append(act)
        elif not self.dead:
            act()

    # -- tides

    def _tick(self) -> None:
        if self.dead:
            return
        self.schedule.after(TICK_S * self.schedule.chance.uniform(0.5, 1.5), self._tick)
        if self.paused or not self.held:
            return
        now_s = self.schedule.now_s
        for lane, post in self.posts.items():
            if post.relay.heir is not None:
                self._say(post, post.relay.tick(now_s, self.left_s()))
            self._withdraw(post)
            self._launch_if_due(lane, post, now_s)
        self._supply()

    def rest(self, named: NamedPartition) -> None:
        """An operator pauses it."""
        self.resting.add(named)
        self._returning.discard(named)

    def give_back(self, named: NamedPartition) -> None:
        """The pause is over."""
        self.resting.discard(named)
        self._returning.add(named)

    def _supply(self) -> None:
        """What has left its lane and may flow again goes to any lane."""
        if not self._returning:
            return
        placed = {named: post for post in self.posts.values() for named in post.tracks}
        orders = {order.named: order for order in self._orders()}
        for named in sorted(self._returning, key=str):
            if named not in placed:
                self._returning.discard(named)
                if named in orders:
                    self._place(self.schedule.chance.randrange(self.lanes), orders[named])
            elif named not in placed[named].leaving:
                self._returning.discard(named)

    def _withdraw(self, post: Post) -> None:
        """Partitions that rest are taken from their lane: asked again until no pump writes them."""
        away = (named for named in post.tracks if named in self.resting or self.store.rests(named))
        for named in [*away, *post.leaving]:
            post.moving.pop(named, None)
            post.leaving.add(named)
            for pump in post.pumps.values():
                pump.told(lambda p=pump, n=named: p.release(n))  # type: ignore[misc]
        if post.leaving and post.relay.free(self.schedule.now_s):
            post.let_go()

    def _launch_if_due(self, lane: int, post: Post, now_s: float) -> None:
        if post.relay.heir is not None or now_s - post.launched_s < 2.0:
            return
        if post.relay.holder is None or now_s - post.since_s >= self.tide_s:
            post.launched_s = now_s
            tide, post.next_tide = post.next_tide, post.next_tide + 1
            self.schedule.after(self.schedule.chance.uniform(0.05, 0.4), lambda: self._launch(lane, tide))

    def _launch(self, lane: int, tide: int) -> None:
        post = self.posts.get(lane)
        if self.dead or post is None:
            return
        generation = self.held.row.generation if self.held else 0
        name = f"{self.name} lane {lane} tide {tide}"
        pump = PumpModel(self.clusters, self, lane, tide, name=name, generation=generation)
        post.pumps[tide] = pump
        self.schedule.say(f"{pump.name} starts")
        self._started(pump)
        orders = list(post.tracks.values())
        pump.told(lambda: pump.assign(orders))
        if post.bytes_s:
            pump.told(lambda: pump.bound(post.bytes_s))

    # -- the desk

    def _post(self, pump: PumpModel) -> Post | None:
        """The post this pump speaks for; None when it does so no more."""
        post = self.posts.get(pump.lane_number)
        if post is None or post.pumps.get(pump.tide) is not pump:
            return None
        return post

    def ready(self, pump: PumpModel) -> None:
        post = self._post(pump)
        if post:
            self._say(post, post.relay.arrived(pump.tide, self.schedule.now_s, self.left_s()))

    def beat(self, pump: PumpModel, asked_s: float, carried: list[Carried], incidents: list[Stoppage]) -> None:
        post = self._post(pump)
        if post:
            if pump.tide == post.relay.holder:
                self._account(post, carried, incidents)
            self._say(post, post.relay.beat(pump.tide, self.schedule.now_s, self.left_s()), asked_s)

    def released(
        self, pump: PumpModel, named: NamedPartition, handover: Handover | None, carried: Carried | None
    ) -> None:
        post = self._post(pump)
        if post is None or pump.tide != post.relay.holder:
            return
        self._account(post, [carried] if carried else [], [])
        post.leaving.discard(named)
        other = self.posts.get(post.moving.pop(named, -1))
        order = post.tracks.pop(named, None)
        told = post.told.pop(named, NOWHERE)
        if other is None or order is None:
            return
        moved = other.tracks[named] = replace(order, receipt_to=told.end, receipt_epoch=told.epoch)
        other.told[named] = told
        for heir in other.pumps.values():
            heir.told(lambda p=heir: p.assign([moved]))  # type: ignore[misc]
        holder = other.pumps.get(other.relay.holder) if other.relay.holder is not None else None
        if holder:
            holder.told(lambda: holder.take([handover] if handover else []))

    def done(
        self, pump: PumpModel, carried: list[Carried], incidents: list[Stoppage], handovers: tuple[Handover, ...]
    ) -> None:
        post = self._post(pump)
        if post is None:
            return
        if pump.tide == post.relay.holder:
            self._account(post, carried, incidents)
        says = post.relay.done(pump.tide, handovers, self.schedule.now_s, self.left_s())
        if post.relay.free(self.schedule.now_s):
            post.let_go()
        self._say(post, says)

    def departed(self, pump: PumpModel) -> None:
        post = self._post(pump)
        if post:
            del post.pumps[pump.tide]
            if pump.tide == post.relay.holder:
                post.moving.clear()
            self._say(post, post.relay.lost(pump.tide, self.schedule.now_s, self.left_s()))

    def move(self) -> None:
        """Some partition shall change lanes."""
        choices = [(lane, named) for lane, post in self.posts.items() for named in post.tracks]
        if not choices or self.lanes < 2 or self.paused:
            return
        lane, named = self.schedule.chance.choice(choices)
        post = self.posts[lane]
        holder = post.pumps.get(post.relay.holder) if post.relay.holder is not None else None
        if holder is None or post.relay.finishing or named in post.moving or named in post.leaving:
            return
        post.moving[named] = (lane + 1) % self.lanes
        self.schedule.say(f"{self.name} moves {named} from lane {lane}")
        holder.told(lambda: holder.release(named))

    def throttle(self, bytes_s: float) -> None:
        """Every lane fetches so much in a second from now on; 0: as much as it can."""
        for post in self.posts.values():
            post.bytes_s = bytes_s
            for pump in post.pumps.values():
                pump.told(lambda p=pump: p.bound(bytes_s))  # type: ignore[misc]

    def _account(self, post: Post, carried: list[Carried], incidents: list[Stoppage]) -> None:
        for entry in carried:
            named = NamedPartition(entry.topic, entry.partition)
            self._honest(named, entry)
            post.told[named] = told_on(post.told.get(named, NOWHERE), Stand(entry.epoch, entry.to_offset))
            self._unwritten.append((named, entry))
        for stopped in incidents:
            named = NamedPartition(stopped.topic, stopped.partition)
            self.schedule.say(f"{self.name}: {named} stopped: {stopped.kind}: {stopped.sentence}")
            self._unledgered.append((named, stopped))

    def _honest(self, named: NamedPartition, entry: Carried) -> None:
        """A receipt claims only what could be read on the twin once, and was the source's. What befell it since, while
        the word was on its way, the ledger tells."""
        pair = self.clusters.pairs[named]
        # Markers go by name: those that reached a topic that was made anew are on it, and are told of.
        bound = max(pair.twin.confirmed, pair.twin.high if "recreated topic" in pair.excuses else 0)
        if entry.from_offset > entry.to_offset or entry.to_offset > max(bound, entry.from_offset):
            raise Violation(
                f"{named}: a receipt claims [{entry.from_offset}, {entry.to_offset}), the twin holds {bound}"
            )

    def _write(self) -> None:
        """The recorder: a few times a second, when the store is there."""
        if self.dead:
            return
        self.schedule.after(WRITE_S * self.schedule.chance.uniform(0.5, 1.5), self._write)
        if not self.paused and not self.schedule.odds(self.clusters.store_fails):
            for named, entry in self._unwritten:
                self.store.record(entry, named)
            self._unwritten.clear()
            for named, stopped in self._unledgered:
                self.store.ledger.setdefault(named, []).append(stopped)
            self._unledgered.clear()

    def _say(self, post: Post, says: list[Say], asked_s: float = 0.0) -> None:
        for say in says:
            pump = post.pumps.get(say.tide)
            if say.what == "go":
                post.let_go()
                post.since_s = self.schedule.now_s
            if pump is None:
                continue
            if say.what == "go":
                told = dict(post.told)
                pump.told(lambda p=pump, s=say, t=told: p.go(s, t))  # type: ignore[misc]
            elif say.what == "grant":
                pump.told(lambda p=pump, s=say: p.grant.longer(asked_s, s.grant_s))  # type: ignore[misc]
            elif say.what == "finish":
                pump.told(pump.finish)
            else:
                pump.told(lambda p=pump: p.end("told to stop"))  # type: ignore[misc]
