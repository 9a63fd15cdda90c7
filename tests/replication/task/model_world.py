"""A task between two modelled clusters, driven by a seeded scheduler that orders everything a network may reorder."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.replication.task.model_brokers import SourceBroker, SourceLog, TargetLog
from tests.replication.task.model_messages import Fetch, Look, Request, ends_of
from tests.simulation.fetch_sessions import Key
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.task.core.batches import PooledBuffer
from twinshore.replication.task.core.messages import PartitionConfig, PartitionProgress, TaskLimits
from twinshore.replication.task.core.partition import PartitionLeaders, Phase
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import TargetState
from twinshore.replication.task.core.shared_read import FetchStream

WEEK_MS = 7 * 86_400_000
EPOCH_MS = 1_800_000_000_000
EXPIRY_MS = 120_000
LANDS_LATE_S = 25.0  # Below the pump's own patience with a lost request.
CRASH_LANDS_S = 0.9  # A dead pump's lease is waited out first; then this much may still be on its way.
CONGESTED_S = 0.5
NODES = (1, 2)
LIMITS = TaskLimits(
    partition_bytes_max=300,
    inflight_max=4,
    request_bytes_max=1500,
    merge_below_bytes=150,
    merged_bytes_max=400,
    undelivered_s=0.9,
)
TASK_ID = 99


@dataclass(slots=True)
class World:
    """`kind`: fresh, old or mixed time stamps. `calm`: nothing goes wrong any more."""

    seed: int
    kind: str = "fresh"
    partitions: int = 3
    chance: random.Random = field(init=False)
    task: TaskPartitions = field(init=False)
    now_s: float = 1000.0
    calm: bool = False
    sources: dict[Key, SourceLog] = field(default_factory=dict)
    targets: dict[TopicPartition, TargetLog] = field(default_factory=dict)
    brokers: dict[int, SourceBroker] = field(default_factory=dict)
    fetches: dict[FetchStream, Fetch] = field(default_factory=dict)
    requests: dict[int, deque[Request]] = field(default_factory=dict)
    limbo: list[tuple[float, int, deque[Request]]] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    routes: dict[TopicPartition, PartitionLeaders] | None = None
    congested: set[int] = field(default_factory=set)
    told: dict[TopicPartition, list[PartitionProgress]] = field(default_factory=dict)
    down: dict[tuple[str, int], float] = field(default_factory=dict)
    waiting_bytes_max: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.kind} {self.seed}")
        for number in range(self.partitions):
            topic_id, named = bytes([7] * 16), TopicPartition("t", number)
            log = SourceLog(topic_id, number, self.chance.choice(NODES))
            self.sources[topic_id, number] = log
            self.targets[named] = TargetLog(log, "t", self.chance.choice(NODES), EXPIRY_MS)
            self.told[named] = []
        self.brokers = {node: SourceBroker(node, self.sources, self.chance) for node in NODES}
        self.requests = {node: deque() for node in NODES}
        self.task = self.new_task()

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now_s * 1000)

    def new_task(self) -> TaskPartitions:
        task = TaskPartitions(TASK_ID, 0, state_expiry_ms=EXPIRY_MS, limits=LIMITS)
        task.assign(
            PartitionConfig(
                "t", number, bytes([7] * 16).hex(), bytes([8] * 16).hex(), self.told_to(TopicPartition("t", number))
            )
            for number in range(self.partitions)
        )
        return task

    def told_to(self, named: TopicPartition) -> int:
        """Where the receipts end, as the coordinator remembers it."""
        return self.told[named][-1].to_offset if self.told[named] else 0

    # -- the clusters' own life

    def write(self) -> None:
        log = self.chance.choice(list(self.sources.values()))
        old = self.kind == "old" or (self.kind == "mixed" and self.chance.random() < 0.5)
        timestamp = self.now_ms - (WEEK_MS if old else 0)
        size = 120 if self.chance.random() < 0.3 else 2
        log.write(self.chance.randint(1, 3), timestamp, self.chance.choice((7, 8)), size)

    def settle_highs(self) -> None:
        """Followers catch up, here or there."""
        for log in self.sources.values():
            if self.calm or self.chance.random() < 0.6:
                log.high = log.end
        for twin in self.targets.values():
            if self.calm or self.chance.random() < 0.4:
                twin.high = twin.end

    def sweep(self) -> None:
        for twin in self.targets.values():
            twin.sweep(self.now_ms)

    def move_leader(self) -> None:
        if self.chance.random() < 0.5:
            log = self.chance.choice(list(self.sources.values()))
            log.leader, log.epoch = self.chance.choice(NODES), log.epoch + 1
            return
        twin = self.chance.choice(list(self.targets.values()))
        twin.lead_elsewhere(self.chance.choice(NODES), self.now_ms, complete=self.chance.random() < 0.5)

    def fail_node(self) -> None:
        side, node = self.chance.choice(("source", "target")), self.chance.choice(NODES)
        self.down[side, node] = self.now_s + self.chance.uniform(0.1, 3.0)
        if side == "source":
            self.lose_source(node)
            self.brokers[node].forget_sessions()
        else:
            self.lose_target(node)

    def up(self, side: str, node: int) -> bool:
        return self.down.get((side, node), 0.0) <= self.now_s

    # -- the pump's loop, as `pump` does it

    def fetch(self) -> None:
        for line in sorted(self.task.lines()[0]):
            if line not in self.fetches and self.up("source", line[0]):
                order = self.task.fetch_order(line)
                if order:
                    self.fetches[line] = Fetch(order)

    def answer_fetch(self) -> None:
        """The broker reads now; the answer arrives later."""
        if not self.fetches:
            return
        line = self.chance.choice(sorted(self.fetches))
        fetch = self.fetches[line]
        if fetch.answer is None:
            fetch.answer = self.brokers[line[0]].fetch(fetch.order)
            return
        del self.fetches[line]
        self.task.fetched(line, fetch.answer, PooledBuffer(bytearray()), self.now_s, self.now_ms)
        if self.seed % 3 == 0:  # a far source, as its first answer tells
            self.task.scheduler.widen(FetchResponseById(0, 0, 0, []))

    def send(self) -> None:
        for node in sorted(self.task.lines()[1]):
            line = self.requests[node]
            if len(line) >= LIMITS.inflight_max or not self.up("target", node):
                continue
            marks = self.task.next_markers(node, self.now_s)
            assert not marks, f"the twin got markers where the source holds records: {marks[0].gap}"
            sent = self.task.produce_order(node, self.now_s, self.now_ms)
            if sent:
                bodies = [(one.replicator.named, one.head + bytes(one.batch.body)) for one in sent]
                line.append(Request(node, sent, bodies, self.now_s))
            elif rests := self.task.next_end_checks(node, self.now_s, self.now_ms, idle=False):
                line.append(Request(node, [], [], self.now_s, rests=rests))
        waiting = sum(batch.size for track in self.task.replicators.values() for batch, _ in track.waiting)
        self.waiting_bytes_max = max(self.waiting_bytes_max, waiting)

    def process(self) -> None:
        """A target broker takes the next request of a connection; it handles one at a time."""
        ready = [line for line in self.requests.values() if line and line[0].answers is None]
        if ready:
            self._process(self.chance.choice(ready)[0])

    def _process(self, request: Request) -> None:
        request.answers = {track.named: self.targets[track.named].end_for(request.node) for track, _ in request.rests}
        request.done_s = self.now_s
        for named, body in request.bodies:
            twin = self.targets[named]
            error = 0 if twin.leader == request.node else 6
            if not error and not self.calm and self.chance.random() < 0.08:
                error = self.chance.choice((19, 20, 7, 56, 3))
            if error in (0, 7, 20):
                found = twin.append(body)
                request.answers[named] = found if not error or found[0] else (error, -1, 0)
            else:
                request.answers[named] = (error, -1, 0)

    def answer_produce(self) -> None:
        ready = [line for line in self.requests.values() if line and line[0].answers is not None]
        if not ready:
            return
        line = self.chance.choice(ready)
        request = line[0]
        if request.rests:
            self.task.on_end_checked(request.rests, ends_of(request), self.now_s)
        elif not self._told_produced(request):
            return
        line.popleft()
        if request.node in self.congested:
            self.congested.discard(request.node)
            self.task.scheduler.hold(request.node, held=False)

    def _told_produced(self, request: Request) -> bool:
        """False where it is not confirmed yet, and not too late either."""
        parts = []
        for named, (error, base, confirmed_at) in (request.answers or {}).items():
            twin = self.targets[named]
            code = error
            if not error and twin.leader != request.node:
                code = 6
            elif not error and twin.high < confirmed_at:
                if self.now_s < request.done_s + 3.0:
                    return False
                code = 7
            entry = (bytes([8] * 16), named.partition, code, base if not code else -1, -1, 0, None, None)
            parts.append(ProducedPartition(*entry))
        self.task.produced(request.sent, parts, self.now_s)
        return True

    def time_out(self) -> None:
        """What the pump's timers do: congestion, requests that are never answered."""
        for node, line in self.requests.items():
            if line and self.now_s - line[0].sent_s > CONGESTED_S and node not in self.congested:
                self.congested.add(node)
                self.task.congested(node)

    def refresh_routes(self) -> None:
        if self.routes is None:
            if self.task.stale_routes:
                self.task.stale_routes = False
                self.routes = {named: self.route_of(named) for named in self.targets}
            return
        routes, self.routes = self.routes, None
        for named, route in routes.items():
            self.task.routed(named, route)

    def route_of(self, named: TopicPartition) -> PartitionLeaders:
        twin = self.targets[named]
        return PartitionLeaders(twin.source.leader, twin.source.epoch, twin.leader)

    def look(self) -> None:
        if not self.task.finishing:
            self.looks += [Look(named) for named in self.task.take_due_inspections(self.now_s, range(99))]
        if not self.looks:
            return
        look = self.looks.pop(self.chance.randrange(len(self.looks)))
        twin = self.targets[look.named]
        if not self.up("target", twin.leader) or (not self.calm and self.chance.random() < 0.05):
            self.task.stale_routes = True
            self.task.on_inspected(look.named, None, self.now_s)
        elif look.ends is None:
            look.ends = (0, twin.high, twin.end)
            self.looks.append(look)
        else:
            start, high, end = look.ends
            tail = twin.tail() if high == end and end > start else None
            source = twin.source
            seen = TargetState(start, high, end, tail, twin.remembered(TASK_ID), source.start, source.end)
            self.task.on_inspected(look.named, seen, self.now_s)

    def account(self) -> None:
        """The pump's accounts, as the coordinator takes them: each begins where the last one ended."""
        for carried in self.task.accounts(0.0):
            named = TopicPartition(carried.topic, carried.partition)
            assert carried.from_offset == self.told_to(named), f"{carried} does not follow {self.told_to(named)}"
            assert carried.to_offset >= carried.from_offset
            assert carried.to_offset <= self.targets[named].high, f"{carried} tells what the twin does not hold"
            self.told[named].append(carried)

    # -- connections and tasks that end

    def lose_source(self, node: int) -> None:
        for line in [line for line in self.fetches if line[0] == node]:
            del self.fetches[line]
            self.task.source_lost(line)

    def lose_target(self, node: int) -> None:
        """Processed requests lose their answer; the others land later, in order, as many as the network still has."""
        line = self.requests[node]
        self.requests[node] = deque()
        self._into_limbo(node, line, LANDS_LATE_S)
        congested = node in self.congested
        self.congested.discard(node)
        self.task.lost(node, [request.sent for request in line], self.now_s)
        if congested:
            self.task.scheduler.hold(node, held=False)

    def _into_limbo(self, node: int, line: deque[Request], within_s: float) -> None:
        unread = [request for request in line if request.answers is None]
        landing = deque(unread[: self.chance.randint(0, len(unread))])
        if landing:
            self.limbo.append((self.now_s + self.chance.uniform(0.0, within_s), node, landing))

    def land(self) -> None:
        for entry in [entry for entry in self.limbo if entry[0] <= self.now_s]:
            self.limbo.remove(entry)
            for request in entry[2]:
                for named, body in request.bodies:
                    if self.targets[named].leader == request.node:
                        self.targets[named].append(body)

    def crash(self) -> None:
        """The task dies; the next one begins when its lease has been waited out."""
        for node, line in self.requests.items():
            self._into_limbo(node, line, CRASH_LANDS_S)
        self._begin_anew()

    def hand_over(self) -> None:
        """An orderly end: what is on its way is waited for, then the next task starts where this one stood."""
        self.task.finish()
        for _ in range(10_000):
            if self.task.settled():
                break
            self.now_s += 0.01
            self.land()
            self.settle_highs()
            self.process()
            self.answer_produce()
        assert self.task.settled()
        for track in self.task.replicators.values():
            track.set_back()
        self.account()
        handovers = self.task.handovers(0.0)
        self._begin_anew()
        self.task.take_over(handovers, 0.0)

    def _begin_anew(self) -> None:
        # What an earlier lost connection still holds was waited for by that task alone: now the next one's looks tell.
        self.limbo = [(min(at_s, self.now_s + CRASH_LANDS_S), node, line) for at_s, node, line in self.limbo]
        self.fetches.clear()
        self.requests = {node: deque() for node in NODES}
        self.looks.clear()
        self.routes = None
        self.congested.clear()
        self.task = self.new_task()

    # -- a run

    def step(self, actions: list[Callable[[], None]], weights: list[float]) -> None:
        self.now_s += self.chance.expovariate(40.0)
        self.land()
        (action,) = self.chance.choices(actions, weights)
        action()

    def run(self, steps: int) -> None:
        """Chaos for so many steps, then calm until everything has arrived; raises when it never does."""
        work: list[tuple[Callable[[], None], float]] = [
            *((act, 4.0) for act in (self.fetch, self.send, self.process, self.answer_produce)),
            (self.answer_fetch, 6.0),
            *((act, 2.0) for act in (self.refresh_routes, self.look, self.settle_highs, self.time_out)),
            (self.account, 1.0),
        ]
        trouble: list[tuple[Callable[[], None], float]] = [
            (self.write, 3.0),
            (self.sweep, 1.5),
            (self.move_leader, 0.25),
            (self.fail_node, 0.25),
            (lambda: self.lose_source(self.chance.choice(NODES)), 0.2),
            (lambda: self.lose_target(self.chance.choice(NODES)), 0.2),
            (self.crash, 0.08),
            (self.hand_over, 0.08),
        ]
        actions, weights = map(list, zip(*work, *trouble, strict=True))
        for _ in range(steps):
            self.step(actions, weights)
        self.calm = True
        actions, weights = map(list, zip(*work, (self.sweep, 0.5), strict=True))
        for _ in range(40 * steps):
            if self.arrived():
                return
            self.step(actions, weights)
        raise AssertionError(f"never arrived: {self.standing()}")

    def arrived(self) -> bool:
        return all(
            twin.end == twin.high == twin.source.end == twin.source.high == self.told_to(named)
            for named, twin in self.targets.items()
        )

    def standing(self) -> str:
        """Where each partition stands, for people."""
        lines = []
        for named, twin in self.targets.items():
            track = self.task.replicators[named]
            where = f"twin {twin.end}/{twin.high} of {twin.source.end}, told {self.told_to(named)}"
            lines.append(f"{named}: {track.phase} {where}, {track.in_flight} in flight, {len(track.waiting)} waiting")
        return "; ".join([*lines, *(f"{one.kind}: {one.sentence}" for one in self.task.incidents)])

    def stopped(self) -> list[str]:
        return [str(named) for named, track in self.task.replicators.items() if track.phase is Phase.STOPPED]
