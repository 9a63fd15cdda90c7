"""A pump around the shipped lane: `mirror/pump.py` with virtual sockets, clocks and threads, function by function, so
that what the pump asks of the lane, and in which order, is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.bounds import LIMITS, check_bounds
from tests.simulation.clusters import Clusters
from tests.simulation.connections import FETCH_WAIT_S, PRODUCE_TIMEOUT_S, Request, SourceWire, TargetWire
from tests.simulation.errands import Errands
from tests.simulation.schedule import Channel
from twinshore.fleet import NamedPartition
from twinshore.mirror.driver.relay import Say
from twinshore.mirror.lane.dials import Dials
from twinshore.mirror.lane.fetch_book import Line
from twinshore.mirror.lane.gaps import cuts
from twinshore.mirror.lane.history import Stand
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.marking import Marked
from twinshore.mirror.lane.observe import Observation
from twinshore.mirror.lane.orders import Handover, TrackOrder, fence_of
from twinshore.mirror.lane.route import Route
from twinshore.mirror.lane.runs import running
from twinshore.mirror.lane.track import Track
from twinshore.wire.fetch import FetchAnswer
from twinshore.wire.produce import ProducedPartition

if TYPE_CHECKING:
    from tests.simulation.driver_model import DriverModel

CONGESTED_S = 0.5
ROUTES_S = 30.0
ABSENT_S = 0.5
FINISH_S_MAX = 5.0
REPORT_S = 0.5
ANSWER_SLACK_S = 10.0
TICK_S = (0.02, 0.15)
PUMP_ID = 99


class PumpModel:
    """`tell(message)` is the desk's ear; `wall_skew_ms` is how wrong this machine's wall clock is."""

    def __init__(
        self, clusters: Clusters, driver: DriverModel, lane_number: int, tide: int, *, name: str, generation: int = 1
    ) -> None:
        self.clusters, self.schedule, self.driver = clusters, clusters.schedule, driver
        self.lane_number, self.tide, self.name = lane_number, tide, name
        self.lane = Lane(PUMP_ID, 0, fence_of(generation, tide), state_expiry_ms=clusters.expiry_ms, limits=LIMITS)
        self.sources: dict[Line, SourceWire] = {}
        self.targets: dict[int, TargetWire] = {}
        self.closed: list[TargetWire] = []
        self.to_desk, self.from_desk = Channel(self.schedule, 0.002), Channel(self.schedule, 0.002)
        self.granted_until_s = 0.0
        self.lawless = False  # writes without any grant: only belt 2 holds it
        self.wall_skew_ms, self.why = 0, ""
        self.backlog: list[Callable[[], None]] = []
        self.paused = self.going = self.ended = False
        self._dials = Dials()
        self._congested: set[int] = set()
        self._ready_said = self._asking_routes = False
        self._routes_at_s = self._beat_at_s = self._finish_by_s = 0.0
        self._errands = Errands(clusters, PUMP_ID, self)
        self._tick()

    # -- its own clocks and its own loop

    def now_ms(self) -> int:
        return self.schedule.now_ms + self.wall_skew_ms

    def holds(self) -> bool:
        return self.lawless or self.schedule.now_s < self.granted_until_s

    def _tick(self) -> None:
        if not self.ended:
            self.schedule.after(self.schedule.chance.uniform(*TICK_S), self._tick)
            if not self.paused:
                self.turn()

    def hear(self, act: Callable[[], None]) -> None:
        """Something came for the pump; it is handled at once, unless the process is paused."""
        if self.ended:
            return
        if self.paused:
            self.backlog.append(act)
            return
        act()
        self.turn()

    def pause(self, for_s: float) -> None:
        """Beyond its grant a paused pump is as good as gone."""
        self.paused = True
        self.schedule.say(f"{self.name} is paused for {for_s:.1f} s")
        if not self.lawless and self.schedule.now_s + for_s > self.granted_until_s:
            self._hurry_strays(self.granted_until_s)
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
        now_s = self.schedule.now_s
        if not self.ended:
            self._timers(now_s)
        if self.going and not self.ended:
            self._flow()
        if not self.ended:
            check_bounds(self)

    # -- what time brings

    def _timers(self, now_s: float) -> None:
        lane = self.lane
        if lane.tracks and (lane.stale_routes or now_s >= self._routes_at_s) and not self._asking_routes:
            lane.stale_routes, self._asking_routes = False, True
            self._routes_at_s = now_s + ROUTES_S
            self._errands.ask_routes({t.named: (t.source_key[0], t.target_id) for t in lane.tracks.values()})
        self._keep_lines(now_s)
        lane.fetches.refill(now_s)
        if not self.going:
            return
        if not self.holds() and self.granted_until_s > 0:
            self.end("the grant ran out")
            return
        for named in [] if lane.finishing else lane.to_look_at(now_s, self.targets):
            self._errands.look(named, lane.tracks[named].stand)
        for named, at in cuts(lane.tracks.values()).items():
            self._errands.cut(named, at)
        self._deadlines(now_s)
        if now_s >= self._beat_at_s:
            self._beat_at_s = now_s + REPORT_S
            self._beat()
        for named, handover, carried in lane.released(now_s):
            self._tell(lambda n=named, h=handover, c=carried: self.driver.released(self, n, h, c))  # type: ignore[misc]
        if lane.finishing and (lane.settled() or now_s >= self._finish_by_s):
            self._done()

    def _keep_lines(self, now_s: float) -> None:
        sources, targets = self.lane.lines()
        for line in sorted(sources - self.sources.keys()):
            self._dial("source", line[0], line, now_s)
        for node in sorted(targets - self.targets.keys()):
            self._dial("target", node, node, now_s)
        for line in sorted(self.sources.keys() - sources):
            self.drop_source(line)
        for node in [n for n in sorted(self.targets.keys() - targets) if not self.targets[n].in_flight]:
            self.drop_target(node)
        if not self._ready_said and self.lane.tracks and not self._asking_routes and not self.lane.stale_routes:
            missing = (sources - self.sources.keys()) or (targets - self.targets.keys())
            if self._dials.all_tried() or not missing:
                self._ready_said = True
                self._tell(lambda: self.driver.ready(self))

    def _dial(self, side: str, node: int, key: object, now_s: float) -> None:
        if self._dials.due(side, key, now_s):
            self.schedule.after(self.schedule.lag(0.004), lambda: self._dial_back(side, node, key))

    def _dial_back(self, side: str, node: int, key: object) -> None:
        there = self.clusters.up(side, node)
        self.hear(lambda: self._dialled(side, node, key, there=there))

    def _dialled(self, side: str, node: int, key: object, *, there: bool) -> None:
        if not there:
            self._dials.failed(side, key, self.schedule.now_s)
            self.lane.silence.met(side, key, "no connection", self.schedule.now_s)
            self.lane.stale_routes = True
            return
        self._dials.made(side, key)
        if isinstance(key, tuple):
            self.sources[key] = SourceWire(self.clusters, key, LIMITS.buffers_per_line, self._on_fetched)
        else:
            self.lane.silence.over(side, key)
            self.targets[node] = TargetWire(self.clusters, node, self._on_answered, self.lane.producer)

    def _deadlines(self, now_s: float) -> None:
        for line, source in list(self.sources.items()):
            if source.current is not None and now_s > source.deadline_s:
                self.drop_source(line, "no answer")
        for node, target in list(self.targets.items()):
            if not target.in_flight:
                continue
            first = target.in_flight[0]
            if now_s > first.sent_s + PRODUCE_TIMEOUT_S + ANSWER_SLACK_S:
                self.drop_target(node)
            elif node not in self._congested and now_s - max(target.answered_s, first.sent_s) > CONGESTED_S:
                self._congested.add(node)
                target.detach()
                self.lane.congested(node)

    def _beat(self) -> None:
        lane = self.lane
        lane.incidents += lane.silence.told(lane.tracks.values(), lane.fetches, self.schedule.now_s)
        carried, incidents = lane.accounts(), list(lane.incidents)
        lane.incidents.clear()
        asked_s = self.schedule.now_s
        self._tell(lambda: self.driver.beat(self, asked_s, carried, incidents))

    def _done(self) -> None:
        for node in [node for node, target in self.targets.items() if target.in_flight]:
            self.drop_target(node)
        for track in self.lane.tracks.values():
            track.set_back()
        carried, incidents, handovers = self.lane.accounts(), list(self.lane.incidents), tuple(self.lane.handovers())
        self._tell(lambda: self.driver.done(self, carried, incidents, handovers))
        self.end("finished")

    # -- what flows

    def _flow(self) -> None:
        lane = self.lane
        lane.go_on(self.schedule.now_s, self.now_ms())
        for line, source in list(self.sources.items()):
            if source.free():
                ask = lane.fetch_order(line)
                if ask:
                    source.ask(ask)
        if not self.holds():
            return
        for node, target in list(self.targets.items()):
            while self._free(target) and (sent := lane.produce_order(node, self.schedule.now_s, self.now_ms())):
                if self.schedule.listening:
                    what = ", ".join(f"{one.track.named} [{one.parcel.base}, {one.parcel.end})" for one in sent)
                    self.schedule.say(f"{self.name} sends to {node}: {what}")
                target.send(sent)
            while self._free(target) and self._mark(node, target):
                pass
            if self._free(target) and not lane.finishing:
                target.rest(lane, self.now_ms())

    def _mark(self, node: int, target: TargetWire) -> bool:
        due, late = running(target.due)
        target.due = []
        self.lane.marked(late, [], self.schedule.now_s)
        asking, marks = not due, due or self.lane.marker_order(node, self.schedule.now_s)
        if marks:
            if self.schedule.listening:
                what = ", ".join(f"{one.track.named} [{one.blank.base}, {one.blank.end})" for one in marks)
                self.schedule.say(f"{self.name} {'asks before it ' if asking else ''}marks at {node}: {what}")
            target.mark(marks, asking=asking)
        return bool(marks)

    @staticmethod
    def _free(target: TargetWire) -> bool:
        return len(target.in_flight) < LIMITS.inflight_max and not target.writing

    def _on_fetched(self, wire: SourceWire, answer: FetchAnswer, hold: Hold) -> None:
        def act() -> None:
            if self.sources.get(wire.line) is wire:
                self.lane.fetched(wire.line, answer, hold, self.schedule.now_s, self.now_ms())

        self.hear(act)

    def _on_answered(
        self, wire: TargetWire, request: Request, parts: list[ProducedPartition], marked: list[Marked]
    ) -> None:
        def act() -> None:
            if self.targets.get(wire.node) is not wire:
                return
            assert wire.in_flight.popleft() is request, "the model answers in order"
            wire.answered_s = self.schedule.now_s
            if request.rests:
                self.lane.rested(request.rests, marked, self.schedule.now_s)
            elif request.asking:
                self.lane.marked(wire.answered_before(request.marks, marked), [], self.schedule.now_s)
            elif request.marks:
                self.lane.marked(request.marks, marked, self.schedule.now_s)
            else:
                self.lane.produced(request.sent, parts, self.schedule.now_s)
            if wire.node in self._congested:
                self._congested.discard(wire.node)
                self.lane.fetches.hold(wire.node, held=False)

        self.hear(act)

    # -- what its errands bring

    def routes(self, routes: dict[NamedPartition, Route], *, failed: bool) -> None:
        self._asking_routes = False
        for named, route in routes.items():
            self.lane.routed(named, route)
        self.lane.silence.asked("target" if failed else "", "no answer", self.schedule.now_s)
        self.lane.stale_routes |= failed
        if any(route.absent for route in routes.values()):
            self._routes_at_s = self.schedule.now_s + ABSENT_S

    def looked(self, named: NamedPartition, seen: Observation | None) -> None:
        self.schedule.say(f"{self.name} looked at {named}: {seen}")
        self.lane.observed(named, seen, self.schedule.now_s, self.now_ms())
        if seen is None:
            self.lane.stale_routes = True

    # -- what the desk says

    def told(self, act: Callable[[], None]) -> None:
        self.from_desk.send(lambda: self.hear(act))

    def assign(self, orders: list[TrackOrder]) -> None:
        self.lane.assign(orders)

    def go(self, say: Say, told: dict[NamedPartition, Stand]) -> None:
        self.granted_until_s = 0.0
        self.lane.keep_only(told.keys())
        for named, track in self.lane.tracks.items():
            track.stand = told[named]
        self.lane.take_over(say.handovers)
        self.going = True
        self.schedule.say(f"{self.name} goes, with {len(say.handovers)} handovers, told {told}")
        self._beat_at_s = self.schedule.now_s + REPORT_S
        self._beat()

    def grant(self, asked_s: float, grant_s: float) -> None:
        self.granted_until_s = max(self.granted_until_s, asked_s + grant_s)

    def release(self, named: NamedPartition) -> None:
        if self.going:
            self.lane.release(named)
        else:
            self.lane.keep_only(self.lane.tracks.keys() - {named})

    def bound(self, bytes_s: float) -> None:
        self.lane.fetches.bound(bytes_s, {}, {})

    def take(self, handovers: list[Handover]) -> None:
        self.lane.take_over(handovers)

    def finish(self) -> None:
        self.schedule.say(f"{self.name} is told to finish")
        self.lane.finish()
        self._finish_by_s = self.schedule.now_s + FINISH_S_MAX
        if self.going and self.lane.settled():
            self._done()

    def _tell(self, act: Callable[[], None]) -> None:
        self.to_desk.send(lambda: self.driver.hear(act))

    # -- letting go

    def drop_source(self, line: Line, why: str = "") -> None:
        if why:
            self.lane.silence.met("source", line, why, self.schedule.now_s)
        self.sources.pop(line).close()
        self.lane.source_lost(line)

    def drop_target(self, node: int) -> None:
        wire = self.targets.pop(node)
        self._congested.discard(node)
        self.lane.marked(wire.take_unwritten(), [], self.schedule.now_s)
        unanswered = wire.close(alive=self.clusters.up("target", node))
        self.closed.append(wire)
        if self.schedule.listening:
            self.schedule.say(f"{self.name} drops its line to {node}, {len(unanswered)} unanswered")
        self.lane.lost(node, unanswered, self.schedule.now_s)

    def end(self, why: str, *, unheard: bool = False) -> None:
        """The process ends, in whatever way: sockets close, the desk hears of it, or does not."""
        if self.ended:
            return
        self.ended, self.why = True, why
        self.schedule.say(f"{self.name} ends: {why}")
        gone_at_s = max(self.schedule.now_s, self.granted_until_s if why == "killed" else self.schedule.now_s)
        for source in self.sources.values():
            source.close()
        for node, wire in self.targets.items():
            wire.close(gone_at_s=gone_at_s, alive=self.clusters.up("target", node))
        self._hurry_strays(gone_at_s)
        if not unheard:
            self._tell(lambda: self.driver.departed(self))

    def _hurry_strays(self, gone_at_s: float) -> None:
        for wire in self.closed:
            wire.hurry_strays(gone_at_s)

    # -- for the invariants

    def tracks(self) -> list[Track]:
        return list(self.lane.tracks.values())


assert LIMITS.fetch_wait_ms_max / 1000 == FETCH_WAIT_S
