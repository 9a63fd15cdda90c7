"""The loop that carries one lane: sockets, clocks, errands and the desk, as the pure core of the pump wants them.

What comes is told to the core, what it commands is carried out at once. When its grant runs out the connections are
closed, half a request included, which a broker never executes.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from twinshore.fleet import TwinshoreError
from twinshore.kafka.connection import Connection
from twinshore.mirror.core import commands
from twinshore.mirror.core.commands import Command
from twinshore.mirror.core.pump_core import TIMERS_S, Grant, PumpCore
from twinshore.mirror.core.source_flow import SourceFlow
from twinshore.mirror.core.target_flow import TargetFlow
from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.orders import TideOrder
from twinshore.mirror.lane.reading import Reading
from twinshore.mirror.pump.lines import DeskLine, DeskLost, SourceLine, TargetLine, unregister
from twinshore.mirror.pump.scout import Dialled, Looked, Report, Routes, Scout
from twinshore.mirror.pump.units import Closed
from twinshore.service.clock import steady_s, wall_ms
from twinshore.wire.fetch import FETCH_KEY
from twinshore.wire.produce import PRODUCE_KEY

EXPIRY_S = 5.0
READ, BOTH = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE
Handler = Callable[[int], None]


class Pump:
    """One lane's worker for the length of a tide. `run` returns the sentence that says why it ended."""

    def __init__(self, order: TideOrder, reading: Reading | None = None) -> None:
        """`reading`: with whose other pumps this one reads together, all in one thread; one of its own where it is of a
        broadcast and carried apart."""
        self.order = order
        who = (order.producer_id, order.producer_epoch, order.fence)
        self.lane = Lane(
            *who,
            state_expiry_ms=order.state_expiry_ms,
            limits=order.limits,
            never_cut=order.never_cut,
            reading=reading or Reading.of(order),
            queue=order.queue,
        )
        self._desk = DeskLine(order)
        grant = Grant()
        self._scout = Scout(order, lambda: grant.holds(steady_s()))
        by_units = self._scout.units is not None
        self.core = PumpCore(self.lane, grant, steady_s(), report_s=order.report_s, by_units=by_units)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._desk, READ, self._on_desk)
        self._selector.register(self._scout.wake_socket, READ, self._on_scout)
        self._sources: dict[SourceFlow, SourceLine] = {}
        self._targets: dict[TargetFlow, TargetLine] = {}
        self._hands: dict[type, Callable[[Any], None]] = {
            commands.Send: self._send,
            commands.Fetch: self._fetch,
            commands.Wake: lambda wake: self._targets[wake.flow].wake_at(wake.due_bytes),
            commands.Receive: self._look_for_answers,
            commands.Detach: lambda detach: self._targets[detach.flow].outbox.detach(),
            commands.HangUp: self._hang_up,
            commands.Learn: lambda learn: self._scout.learn(learn.tracks),
            commands.Dial: lambda dial: self._scout.dial(*dial),
            commands.AskRoutes: lambda _: self._scout.ask_routes(self.lane.tracks.values()),
            commands.Look: lambda look: self._scout.look(look.partitions, self.lane.tracks),
            commands.Cut: lambda cut: self._scout.cut(cut.before, self.lane.tracks),
            commands.MarkByUnits: self._mark_by_units,
            commands.SayReady: self._desk.say,
            commands.Beat: self._desk.say,
            commands.Used: self._desk.say,
            commands.Released: self._desk.say,
            commands.Done: self._desk.say,
        }

    def run(self) -> str:
        """Pumps until told to finish, or until the grant is gone."""
        core = self.core
        try:
            while not core.ended:
                self.turn(TIMERS_S)
        except DeskLost as error:
            core.ended = error.message
        finally:
            self.close()
        return core.ended

    def fileno(self) -> int:
        """Readable while `turn` has something to hear."""
        return self._selector.fileno()

    def due_s(self, quiet_s: float) -> float:
        """When it wants a turn though nothing comes: at its next timers, `quiet_s` later where it only goes on."""
        if self._pending():
            return 0.0
        at_s = self.core.timers_at_s
        return at_s + quiet_s if self.core.going and not self.lane.finishing else at_s

    def turn(self, wait_s: float) -> None:
        """What has come, or comes within this time, and what follows from it."""
        came = self._selector.select(wait_s if not self._pending() else 0.0)
        begun_s = steady_s()
        for key, mask in came:
            handler: Handler = key.data
            handler(mask)
        for line in [
            line for line in self._sources.values() if line.flow.receiving and line.outbox.transport.pending()
        ]:
            self._on_source(line, READ)
        core, now_s = self.core, steady_s()
        if now_s >= core.timers_at_s:
            self._do(core.timers(now_s))
        if core.going and not core.ended:
            self.lane.go_on(now_s, wall_ms())
            self._do(core.flow(steady_s(), wall_ms()))
            self.lane.took(steady_s() - begun_s)

    def _pending(self) -> bool:
        if self.core.going and (self.lane.uncut or self.lane.called):
            return True  # While it stands by nothing of that is taken up.
        return any(line.outbox.transport.pending() for line in self._sources.values())

    def _do(self, wanted: Iterable[Command]) -> None:
        hands = self._hands
        for command in wanted:
            hands[type(command)](command)

    # -- connections

    def _send(self, send: commands.Send) -> None:
        line = self._targets[send.flow]
        try:
            if not line.send(send.flight):
                self._selector.modify(line, BOTH, partial(self._on_target, line))
        except TwinshoreError:
            self._do(self.core.lost(send.flow, steady_s()))

    def _fetch(self, fetch: commands.Fetch) -> None:
        line = self._sources[fetch.flow]
        try:
            if not line.ask(fetch):
                self._selector.modify(line, BOTH, partial(self._on_source, line))
        except TwinshoreError as error:
            self._do(self.core.lost(fetch.flow, steady_s(), error.message))

    def _look_for_answers(self, receive: commands.Receive) -> None:
        if isinstance(receive.flow, SourceFlow):
            self._on_source(self._sources[receive.flow], READ)
        else:
            self._on_target(self._targets[receive.flow], READ)

    def _on_source(self, line: SourceLine, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and line.outbox.push():
                self._selector.modify(line, READ, partial(self._on_source, line))
            if mask & READ:
                now_s = steady_s()
                if found := line.receive(now_s):
                    self.core.fetched(line.flow, *found, now_s, wall_ms())
        except TwinshoreError as error:
            self._do(self.core.lost(line.flow, steady_s(), error.message))

    def _on_target(self, line: TargetLine, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE and self.core.grant.holds(steady_s()) and line.push():
                self._selector.modify(line, READ, partial(self._on_target, line))
            if mask & READ:
                now_s = steady_s()
                for answer in line.receive(now_s):
                    self.core.answered(line.flow, answer, now_s)
        except TwinshoreError:
            self._do(self.core.lost(line.flow, steady_s()))

    def _hang_up(self, hang_up: commands.HangUp) -> None:
        flow = hang_up.flow
        line = self._sources.pop(flow, None) if isinstance(flow, SourceFlow) else self._targets.pop(flow, None)
        if line:
            unregister(self._selector, line)
            line.close()

    # -- who speaks to us

    def _on_desk(self, _mask: int) -> None:
        for word in self._desk.words():
            self._do(self.core.hear(word, steady_s()))

    def _on_scout(self, _mask: int) -> None:
        for report in self._scout.take():
            self._reported(report)

    def _reported(self, report: Report) -> None:
        core, now_s = self.core, steady_s()
        match report:
            case Dialled(side, key, connection, error):
                if connection:
                    self._dialled(side, key, connection, now_s)
                else:
                    core.failed(side, key, error, now_s)
            case Routes(routes, error, silent):
                core.routed(routes, silent, error, now_s)
            case Closed(marks, answers):
                core.closed(marks, answers, now_s)
            case Looked(seen):
                core.looked(seen, now_s, wall_ms())

    def _dialled(self, side: str, key: object, connection: Connection, now_s: float) -> None:
        expires_s = now_s + connection.expires_at - time.monotonic() - EXPIRY_S
        flow: SourceFlow | TargetFlow | None = None
        line: SourceLine | TargetLine
        try:
            version = connection.spoken(FETCH_KEY if side == "source" else PRODUCE_KEY)
            flow = self.core.dialled(side, key, now_s, version=version, expires_s=expires_s)
            match flow:
                case None:
                    connection.close()
                    return
                case SourceFlow():
                    line = self._sources[flow] = SourceLine(flow, connection)
                    handler: Handler = partial(self._on_source, line)
                case TargetFlow():
                    line = self._targets[flow] = TargetLine(flow, connection, self.lane.producer)
                    handler = partial(self._on_target, line)
        except TwinshoreError as error:
            connection.close()
            if flow:
                self._do(self.core.lost(flow, now_s))
            self.core.failed(side, key, error.message, now_s)
        else:
            self._selector.register(line, READ, handler)

    def _mark_by_units(self, wanted: commands.MarkByUnits) -> None:
        if self._scout.units:
            self._scout.units.take(wanted.marks)

    def close(self) -> None:
        self.hang_up()
        self.let_go()

    def hang_up(self) -> None:
        """Its lines, at once, half a request included."""
        self.lane.leave()
        for source in self._sources.values():
            source.close()
        for target in self._targets.values():
            target.close()
        self._desk.close()
        self._selector.close()

    def let_go(self) -> None:
        """What its errands hold; one of them may be in the middle of a call."""
        self._scout.close()
