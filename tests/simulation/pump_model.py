"""A task around the shipped core: where `mirror/pump` has sockets, clocks and threads, virtual ones carry out what the
core commands, in its order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.simulation.bounds import LIMITS, check_bounds
from tests.simulation.clusters import Clusters
from tests.simulation.connections import SourceWire, TargetWire
from tests.simulation.errands import Errands
from tests.simulation.schedule import Channel
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.fetch import FetchResponseById
from twinshore.kafka.protocol.produce import PRODUCE_VERSION_BY_ID
from twinshore.replication.core.coordinator import TaskSession
from twinshore.replication.task.core import connections
from twinshore.replication.task.core.connections import CompletedRequest, SourceFetcher, TargetProducer, TaskCommand
from twinshore.replication.task.core.messages import (
    Assign,
    CoordinatorMessage,
    Finish,
    PartitionConfig,
    Released,
    StartWriting,
    TaskFinished,
    TaskMessage,
    TaskProgress,
    TaskReady,
    ThrottleUsage,
    coordinator_epoch,
)
from twinshore.replication.task.core.partition import PartitionLeaders
from twinshore.replication.task.core.partitions import TaskPartitions
from twinshore.replication.task.core.position import TargetState
from twinshore.replication.task.core.shared_read import FetchStream
from twinshore.replication.task.core.task_core import TaskCore, WriteLease

if TYPE_CHECKING:
    from tests.simulation.driver_model import DriverModel

REPORT_S = 0.5
TICK_S = (0.02, 0.15)
TASK_ID = 99


class PumpModel:
    """`driver` has the coordinator that it speaks to, where it has the `session`, if any; `wall_skew_ms` is how
    wrong this machine's wall clock is."""

    def __init__(
        self,
        clusters: Clusters,
        driver: DriverModel,
        session: TaskSession | None,
        run: int,
        *,
        name: str,
        generation: int = 1,
    ) -> None:
        self.clusters, self.schedule, self.driver = clusters, clusters.schedule, driver
        self.session, self.name = session, name
        self.task = TaskPartitions(
            TASK_ID, 0, coordinator_epoch(generation, run), state_expiry_ms=clusters.expiry_ms, limits=LIMITS
        )
        self.grant = WriteLease()
        self.core = TaskCore(self.task, self.grant, self.schedule.now_s, report_s=REPORT_S)
        self.sources: dict[FetchStream, SourceWire] = {}
        self.targets: dict[int, TargetWire] = {}
        self.closed: list[TargetWire] = []
        self.to_coordinator, self.from_coordinator = Channel(self.schedule, 0.002), Channel(self.schedule, 0.002)
        self.lawless = False  # writes without any grant: only belt 2 holds it
        self.wall_skew_ms, self.why = 0, ""
        self.backlog: list[Callable[[], None]] = []
        self.paused = self.ended = False
        self._errands = Errands(clusters, TASK_ID, self)
        self._hands: dict[type, Callable[[Any], None]] = {
            connections.SendRequest: self._send,
            connections.SendFetch: lambda fetch: self.sources[fetch.flow.key].ask(fetch),
            connections.SetWakeThreshold: lambda wake: self.targets[wake.producer.node].wake_at(wake.due_bytes),
            connections.PollSocket: self._receive,
            connections.DetachBuffers: lambda _: None,
            connections.CloseConnection: self._hang_up,
            connections.LearnTwinNames: lambda _: None,
            connections.OpenConnection: self._dial,
            connections.LookUpLeaders: self._ask_routes,
            connections.InspectTwins: self._look,
            connections.DeleteTwinRecords: self._cut,
            TaskReady: self._tell,
            TaskProgress: self._tell,
            ThrottleUsage: lambda _: None,
            Released: self._tell,
            TaskFinished: self._tell,
        }
        self._tick()

    @property
    def going(self) -> bool:
        return self.core.going

    def now_ms(self) -> int:
        return self.schedule.now_ms + self.wall_skew_ms

    def holds(self) -> bool:
        return self.grant.holds(self.schedule.now_s)

    def break_the_law(self, orders: list[PartitionConfig]) -> None:
        """It goes, with these, and asks nobody."""
        self.lawless, self.core.going = True, True
        self.grant.extend(0.0, math.inf)
        self._do(self.core.hear(Assign(tuple(orders)), 0.0))

    # -- its own loop

    def _tick(self) -> None:
        if not self.ended:
            self.schedule.after(self.schedule.chance.uniform(*TICK_S), self._tick)
            if not self.paused:
                self.turn()

    def hear(self, act: Callable[[], None]) -> None:
        """Something came for the task; it is handled at once, unless the process is paused."""
        if self.ended:
            return
        if self.paused:
            self.backlog.append(act)
            return
        act()
        self.turn()

    def pause(self, for_s: float) -> None:
        """Beyond its grant a paused task is as good as gone."""
        self.paused = True
        self.schedule.say(f"{self.name} is paused for {for_s:.1f} s")
        if self.schedule.now_s + for_s > self.grant.until_s:
            self._hurry_strays(self.grant.until_s)
        self.schedule.after(for_s, self.resume)

    def resume(self) -> None:
        """All that came meanwhile is read before the timers look at the clock, as a loop over sockets does."""
        if self.paused and not self.ended:
            self.paused = False
            self.schedule.say(f"{self.name} goes on")
            waiting, self.backlog = self.backlog, []
            for act in waiting:
                if not self.ended:
                    act()
            self.turn()

    def turn(self) -> None:
        core, now_s = self.core, self.schedule.now_s
        if not self.ended and now_s >= core.timers_at_s:
            self._do(core.timers(now_s))
        if core.going and not self.ended and not core.ended:
            self.task.go_on(now_s, self.now_ms())
            self._do(core.flow(now_s, self.now_ms()))
        if core.ended:
            self.end(core.ended)
        if not self.ended:
            check_bounds(self)

    def _do(self, wanted: Iterable[TaskCommand]) -> None:
        for command in wanted:
            self._hands[type(command)](command)

    # -- connections

    def _dial(self, dial: connections.OpenConnection) -> None:
        self.schedule.after(self.schedule.lag(0.004), lambda: self._dial_back(dial))

    def _dial_back(self, dial: connections.OpenConnection) -> None:
        there = self.clusters.up(dial.side, dial.node)
        self.hear(lambda: self._dialled(dial, there=there))

    def _dialled(self, dial: connections.OpenConnection, *, there: bool) -> None:
        core, now_s = self.core, self.schedule.now_s
        if not there:
            core.failed(dial.side, dial.key, "no connection", now_s)
            return
        flow = core.dialled(dial.side, dial.key, now_s, version=PRODUCE_VERSION_BY_ID)
        if isinstance(flow, SourceFetcher):
            self.sources[flow.key] = SourceWire(self.clusters, flow, self._on_fetched)
        elif flow:
            self.targets[flow.node] = TargetWire(self.clusters, flow, self._on_target, self.task.producer)

    def _send(self, send: connections.SendRequest) -> None:
        flow, flight = send
        if self.schedule.listening:
            what = [f"{one.replicator.named} [{one.batch.base}, {one.batch.end})" for one in flight.sent]
            what += [f"{one.replicator.named} marks [{one.gap.base}, {one.gap.end})" for one in flight.marks]
            what += [f"{one.replicator.named} rests at {one.end}" for one in flight.rests]
            self.schedule.say(f"{self.name} {'asks' if flight.asking else 'sends to'} {flow.node}: {', '.join(what)}")
        self.targets[flow.node].send(flight)

    def _receive(self, receive: connections.PollSocket) -> None:
        if isinstance(receive.flow, TargetProducer):
            self.targets[receive.flow.node].read()

    def _on_fetched(self, wire: SourceWire, answer: FetchResponseById) -> None:
        def act() -> None:
            if self.sources.get(wire.line) is wire:
                now_s, size = self.schedule.now_s, sum(len(part.records) for part in answer.partitions)
                wire.flow.heard(now_s)
                self.core.fetched(wire.flow, answer, size, now_s, self.now_ms())

        self.hear(act)

    def _on_target(self, wire: TargetWire, what: Callable[[], CompletedRequest | None]) -> None:
        def act() -> None:
            if self.targets.get(wire.node) is wire and (answered := what()):
                self.core.answered(wire.flow, answered, self.schedule.now_s)

        self.hear(act)

    def _hang_up(self, hang_up: connections.CloseConnection) -> None:
        flow = hang_up.flow
        if isinstance(flow, SourceFetcher):
            self.sources.pop(flow.key).close()
            return
        wire = self.targets.pop(flow.node)
        wire.close(alive=self.clusters.up("target", flow.node))
        self.closed.append(wire)
        self.schedule.say(f"{self.name} drops its line to {flow.node}")

    def broken(self, wire: SourceWire | TargetWire) -> None:
        """Its connection is gone."""
        self._do(self.core.lost(wire.flow, self.schedule.now_s))

    # -- errands

    def _ask_routes(self, _: connections.LookUpLeaders) -> None:
        self._errands.ask_routes({t.named: (t.source_key[0], t.target_id) for t in self.task.replicators.values()})

    def routes(self, routes: dict[TopicPartition, PartitionLeaders], *, failed: bool) -> None:
        self.core.routed(routes, "target" if failed else "", "no answer", self.schedule.now_s)

    def _look(self, look: connections.InspectTwins) -> None:
        for named in look.partitions:
            self._errands.look(named, self.task.replicators[named].progress_log.stand)

    def looked(self, named: TopicPartition, seen: TargetState | None) -> None:
        self.schedule.say(f"{self.name} looked at {named}: {seen}")
        self.core.looked({named: seen}, self.schedule.now_s, self.now_ms())

    def _cut(self, cut: connections.DeleteTwinRecords) -> None:
        for named, at in cut.before.items():
            self._errands.cut(named, at)

    # -- the coordinator

    def told(self, word: CoordinatorMessage) -> None:
        """The coordinator says so; it takes a moment to arrive."""
        self.from_coordinator.send(lambda: self.hear(lambda: self._on_coordinator(word)))

    def _on_coordinator(self, word: CoordinatorMessage) -> None:
        match word:
            case StartWriting(handovers, told):
                self.schedule.say(f"{self.name} goes, with {len(handovers)} handovers, told {told}")
            case Finish():
                self.schedule.say(f"{self.name} is told to finish")
        self._do(self.core.hear(word, self.schedule.now_s))

    def _tell(self, word: TaskMessage) -> None:
        self.to_coordinator.send(lambda: self.driver.hear(self, word))

    # -- its end

    def end(self, why: str, *, unheard: bool = False) -> None:
        """The process ends, in whatever way: sockets close, the coordinator hears of it, or does not."""
        if self.ended:
            return
        self.ended, self.why = True, why
        self.schedule.say(f"{self.name} ends: {why}")
        held = why == "killed" and not self.lawless
        gone_at_s = max(self.schedule.now_s, self.grant.until_s if held else self.schedule.now_s)
        for source in self.sources.values():
            source.close()
        for node, wire in self.targets.items():
            wire.close(gone_at_s=gone_at_s, alive=self.clusters.up("target", node))
        self._hurry_strays(gone_at_s)
        if not unheard:
            self.to_coordinator.send(lambda: self.driver.departs(self))

    def _hurry_strays(self, gone_at_s: float) -> None:
        for wire in self.closed:
            wire.hurry_strays(gone_at_s)
