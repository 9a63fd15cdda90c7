"""The loop that carries one lane: sockets, clocks and the desk around the pure `lane`.

Every send asks the grant first; when it runs out the connections are closed at once, half a request included, which a
broker never executes.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from twinshore.fleet import KafkaError, NamedPartition, TwinshoreError
from twinshore.mirror.lane.dials import Dials
from twinshore.mirror.lane.fetch_book import FetchOrder, Line
from twinshore.mirror.lane.flights import EndsOf, node_of
from twinshore.mirror.lane.gaps import cuts
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.orders import Handover, TideOrder, TrackOrder, stands_from
from twinshore.mirror.lane.quota import told
from twinshore.mirror.pump.desk_line import DeskLine, DeskLost, speed
from twinshore.mirror.pump.outbox import unregister
from twinshore.mirror.pump.scout import Dialled, Looked, Report, Routes, Scout
from twinshore.mirror.pump.source_line import SourceLine
from twinshore.mirror.pump.target_line import TargetLine, lend
from twinshore.mirror.pump.units import Closed
from twinshore.service.clock import steady_s

TIMERS_S = 0.02
CONGESTED_S = 0.5
ROUTES_S = 30.0
ABSENT_S = 0.5
FINISH_S_MAX = 5.0
USED_S = 0.5
STANDBY_S_MAX = 600.0
Handler = Callable[[int], None]


class Pump:
    """One lane's worker for the length of a tide. `run` returns the sentence that says why it ended."""

    def __init__(self, order: TideOrder) -> None:
        self.order = order
        who = (order.producer_id, order.producer_epoch, order.fence)
        expiry_ms, never_cut = order.state_expiry_ms, order.never_cut
        self.lane = Lane(*who, state_expiry_ms=expiry_ms, limits=order.limits, never_cut=never_cut)
        self._desk = DeskLine(order)
        self._scout = Scout(order, self._desk.holds)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._desk, selectors.EVENT_READ, self._on_desk)
        self._selector.register(self._scout.wake_socket, selectors.EVENT_READ, self._on_scout)
        self._sources: dict[Line, SourceLine] = {}
        self._targets: dict[int, TargetLine] = {}
        self._dials = Dials()
        self._congested: set[int] = set()
        self._going = self._ready_said = self._asking_routes = False
        self._timers_at_s = self._beat_at_s = self._finish_by_s = self._used_at_s = self._routes_at_s = 0.0
        self._ended, self._lands_until_s = "", 0.0
        self._produce_s: deque[float] = deque(maxlen=2048)

    def run(self) -> str:
        """Pumps until told to finish, or until the grant is gone."""
        standby_until_s = steady_s() + STANDBY_S_MAX
        try:
            while not self._ended:
                self._turn()
                if not self._going and steady_s() > standby_until_s:
                    self._ended = "stood by for too long"
        except DeskLost as error:
            self._ended = error.message
        finally:
            self._close()
        return self._ended

    def _turn(self) -> None:
        for key, mask in self._selector.select(TIMERS_S if not self._pending() else 0.0):
            handler: Handler = key.data
            handler(mask)
        for line in [line for line in self._sources.values() if line.asking and line.outbox.transport.pending()]:
            self._on_source(line)
        now_s = steady_s()
        if now_s >= self._timers_at_s:
            self._timers_at_s = now_s + TIMERS_S
            self._timers(now_s)
        if self._going and not self._ended:
            self._flow(now_s)

    def _pending(self) -> bool:
        return bool(self.lane.uncut) or any(line.outbox.transport.pending() for line in self._sources.values())

    # -- what time brings

    def _timers(self, now_s: float) -> None:
        lane = self.lane
        if lane.tracks and (lane.stale_routes or now_s >= self._routes_at_s) and not self._asking_routes:
            lane.stale_routes, self._asking_routes = False, True
            self._routes_at_s = now_s + ROUTES_S
            self._scout.ask_routes(lane.tracks.values())
        self._keep_lines(now_s)
        lane.fetches.refill(now_s)
        if self._going:
            if self._desk.granted_until_s > 0 and not self._desk.holds():
                self._ended = "the grant ran out"
                return
            wanted = [] if lane.finishing else lane.to_look_at(now_s, self._targets)
            if wanted:
                self._scout.look(wanted, lane.tracks)
            self._scout.cut(cuts(lane.tracks.values()), lane.tracks)
            self._deadlines(now_s)
            if now_s >= self._beat_at_s:
                self._beat_at_s = now_s + self.order.report_s
                self._beat()
            if now_s >= self._used_at_s:
                self._used_at_s = now_s + USED_S
                if (used := lane.fetches.buckets.report(now_s)) is not None:
                    self._desk.say("used", used=used)
            for named, handover, carried in lane.released(now_s):
                self._desk.released(named, handover, carried)
            if lane.finishing and (lane.settled() or now_s >= self._finish_by_s):
                self._done()

    def _keep_lines(self, now_s: float) -> None:
        sources, targets = self.lane.lines()
        for line_key in sources - self._sources.keys():
            self._dial("source", line_key[0], line_key, now_s)
        for node in targets - self._targets.keys():
            self._dial("target", node, node, now_s)
        for node in [n for n, one in self._targets.items() if one.lacks_asker]:
            self._dial("target", node, EndsOf(node), now_s)
        for line_key in self._sources.keys() - sources:
            self._drop_source(self._sources[line_key])
        for node in [n for n in self._targets.keys() - targets if not self._targets[n].in_flight]:
            self._drop_target(self._targets[node])
        if not self._ready_said and self.lane.tracks and not self._asking_routes and not self.lane.stale_routes:
            missing = (sources - self._sources.keys()) or (targets - self._targets.keys())
            if not missing or self._dials.all_tried():
                self._ready_said = True
                self._desk.say("ready")

    def _dial(self, side: str, node: int, key: object, now_s: float) -> None:
        if self._dials.due(side, key, now_s):
            self._scout.dial(side, node, key)

    def _deadlines(self, now_s: float) -> None:
        for dozing in [one for one in self._targets.values() if one.dozing]:
            self._target_event(dozing, selectors.EVENT_READ)
        for source in list(self._sources.values()):
            if source.asking and now_s > source.deadline_s:
                self._on_source(source)
            silent = source.asking and now_s > source.deadline_s
            if (silent or source.outbox.expired()) and self._sources.get(source.key) is source:
                self._drop_source(source, "a fetch was not answered in time")
        for target in list(self._targets.values()):
            asker = target.asker
            if asker and (asker.late(now_s) or (asker.outbox.expired() and not asker.in_flight)):
                self._drop_target(asker)
            if target.late(now_s) or (target.outbox.expired() and not target.in_flight):
                self._drop_target(target)
            elif target.node not in self._congested and target.silent_s(now_s) > CONGESTED_S:
                self._congested.add(target.node)
                target.detach()
                self.lane.congested(target.node)

    def _beat(self) -> None:
        lane, now_s = self.lane, steady_s()
        still = {node for node, line in self._targets.items() if line.quota.held}
        lane.incidents += lane.silence.told(lane.tracks.values(), lane.fetches, now_s, still)
        self._desk.account(lane, self._speed())

    def _speed(self) -> dict[str, float]:
        times = sorted(self._produce_s)
        self._produce_s.clear()
        held = told(self._targets.values(), self._sources.values(), steady_s(), self._lands_until_s)
        return speed((track.phase.value for track in self.lane.tracks.values()), times) | held

    def _done(self) -> None:
        if self._ended:
            return
        for target in [one for one in self._targets.values() if one.owed]:
            self._drop_target(target)
        for track in self.lane.tracks.values():
            track.set_back()
        self._desk.done(self.lane, self._speed(), max(0.0, self._lands_until_s - steady_s()))
        self._ended = "finished"

    # -- what flows

    def _flow(self, now_s: float) -> None:
        """What is here goes first: asking for more costs its time, and frees nothing."""
        self.lane.go_on(now_s, int(time.time() * 1000))
        if self._desk.holds():
            self._serve(now_s)
        for key, source in list(self._sources.items()):
            if source.free(now_s) and (ask := self.lane.fetch_order(key)):
                self._guarded_source(source, partial(self._ask, source, ask, now_s))

    def _serve(self, now_s: float) -> None:
        lane, now_ms = self.lane, int(time.time() * 1000)
        for target in list(self._targets.values()):
            try:
                target.serve(lane, now_s, now_ms)
            except TwinshoreError:
                self._drop_target(target)
                continue
            for line in (target, target.asker):
                if line and line.writing:
                    self._selector.modify(line, selectors.EVENT_READ | selectors.EVENT_WRITE, self._handler(line))

    def _ask(self, source: SourceLine, ask: FetchOrder, now_s: float) -> None:
        if not source.ask(ask, now_s, wait_ms=min(self.order.limits.fetch_wait_ms_max, ask.wait_ms_max)):
            self._selector.modify(source, selectors.EVENT_READ | selectors.EVENT_WRITE, self._handler(source))

    def _guarded_source(self, source: SourceLine, act: Callable[[], None]) -> None:
        try:
            act()
        except TwinshoreError as error:
            self._drop_source(source, error.message)

    def _handler(self, line: SourceLine | TargetLine) -> Handler:
        def on_event(mask: int) -> None:
            if isinstance(line, SourceLine):
                self._guarded_source(line, lambda: self._source_event(line, mask))
            else:
                self._target_event(line, mask)

        return on_event

    def _source_event(self, line: SourceLine, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and line.outbox.push():
            self._selector.modify(line, selectors.EVENT_READ, self._handler(line))
        if mask & selectors.EVENT_READ:
            self._receive(line)

    def _on_source(self, line: SourceLine) -> None:
        self._guarded_source(line, partial(self._receive, line))

    def _receive(self, line: SourceLine) -> None:
        now_s = steady_s()
        found = line.receive(now_s)
        if found:
            answer, hold = found
            self.lane.fetched(line.key, answer, hold, now_s, int(time.time() * 1000))
            if line.far(now_s):
                self.lane.fetches.widen(answer)

    def _target_event(self, line: TargetLine, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and self._desk.holds():
                line.push()
                if not line.writing:
                    self._selector.modify(line, selectors.EVENT_READ, self._handler(line))
            if mask & selectors.EVENT_READ:
                self._answers(line)
        except TwinshoreError:
            self._drop_target(line)

    def _answers(self, line: TargetLine) -> None:
        now_s = steady_s()
        for answer in line.receive(now_s):
            line.answered_s = now_s
            if not answer.flight.asking:
                self._produce_s.append(now_s - answer.flight.sent_s)
            answer.tell(self.lane, now_s)
            if line.node in self._congested and line is self._targets.get(line.node):
                self._congested.discard(line.node)
                self.lane.fetches.hold(line.node, held=False)

    # -- who speaks to us

    def _on_desk(self, _mask: int) -> None:
        for message in self._desk.heard():
            match message["what"]:
                case "assign":
                    orders = [TrackOrder(**raw) for raw in message["tracks"]]
                    self._scout.learn(orders)
                    self.lane.assign(orders)
                case "go":
                    self._go(message)
                case "release":
                    named = NamedPartition(message["topic"], message["partition"])
                    if self._going:
                        self.lane.release(named)
                    else:
                        # An heir has begun nothing: it forgets at once, or would take what comes later for the same.
                        self.lane.keep_only(self.lane.tracks.keys() - {named})
                case "bounds":
                    self.lane.fetches.bound(message["link"], message["topics"], message["weights"])
                case "take":
                    self.lane.take_over(Handover(*raw) for raw in message["handovers"])
                case "finish":
                    self.lane.finish()
                    self._finish_by_s = steady_s() + FINISH_S_MAX
                case "stop":
                    self._ended = "told to stop"
        if self._going and self.lane.finishing and self.lane.settled() and not self._ended:
            self._done()

    def _go(self, message: dict[str, Any]) -> None:
        told = stands_from(message["told"])
        self.lane.keep_only(told.keys())
        for named, track in self.lane.tracks.items():
            track.stand = told[named]
        self.lane.take_over((Handover(*raw) for raw in message["handovers"]), message["reached"])
        self._going = True
        self._beat_at_s = steady_s() + self.order.report_s
        self._beat()

    def _on_scout(self, _mask: int) -> None:
        for report in self._scout.take():
            self._reported(report)

    def _reported(self, report: Report) -> None:
        now_s = steady_s()
        match report:
            case Dialled():
                self._dialled(report, now_s)
            case Routes(routes):
                self._asking_routes = False
                for named, route in routes.items():
                    self.lane.routed(named, route)
                self.lane.silence.asked(report.silent, report.error, now_s)
                self.lane.stale_routes |= bool(report.silent)
                if any(route.absent for route in routes.values()):
                    self._routes_at_s = now_s + ABSENT_S
            case Closed():
                report.tell(self.lane, now_s)
            case Looked(seen):
                for named, found in seen.items():
                    self.lane.observed(named, found, now_s, int(time.time() * 1000))
                if any(found is None for found in seen.values()):
                    self.lane.stale_routes = True

    def _dialled(self, report: Dialled, now_s: float) -> None:
        place = (report.side, report.key)
        line: SourceLine | TargetLine
        try:
            if report.connection is None:
                raise KafkaError(report.error)
            if report.side == "source":
                line = SourceLine(report.key, report.connection, self.order.limits)  # type: ignore[arg-type]
                self._sources[line.key] = line
            else:
                line = TargetLine(node_of(report.key), report.connection, self.order.limits, self._scout.units)
                if isinstance(report.key, EndsOf):
                    lend(line, self._targets.get(line.node))
                else:
                    self._targets[line.node] = line
                    self.lane.silence.over(*place)
        except TwinshoreError as error:
            if report.connection:
                report.connection.close()
            self._dials.failed(*place, now_s)
            self.lane.silence.met(*place, error.message, now_s)
            self.lane.stale_routes = True
            return
        self._dials.made(*place)
        self._selector.register(line, selectors.EVENT_READ, self._handler(line))

    # -- letting go

    def _drop_source(self, line: SourceLine, why: str = "") -> None:
        """`why`: it gave no answer, or broke."""
        if why:
            self.lane.silence.met("source", line.key, why, steady_s())
        unregister(self._selector, line)
        line.close()
        self._sources.pop(line.key, None)
        self.lane.source_lost(line.key)

    def _drop_target(self, line: TargetLine) -> None:
        """With its asker; or that one alone."""
        leading = self._targets.get(line.node)
        asker = leading.asker if leading else None
        if leading and asker and line in (leading, asker):
            unregister(self._selector, asker)
            leading.part(self.lane, steady_s())
        if line is asker:
            return
        unregister(self._selector, line)
        self._targets.pop(line.node, None)
        self._congested.discard(line.node)
        self.lane.marked(line.take_unwritten(), [], steady_s())
        now_s = steady_s()
        lands_until_s, unanswered = line.quota.lands_until_s(now_s), line.close()
        self._lands_until_s = max(self._lands_until_s, lands_until_s if unanswered else 0.0)
        self.lane.lost(line.node, unanswered, now_s, lands_until_s)

    def _close(self) -> None:
        for source in list(self._sources.values()):
            source.close()
        for target in list(self._targets.values()):
            target.part(self.lane, steady_s())
            target.close()
        self._scout.close()
        self._desk.close()
        self._selector.close()
