"""The loop of a raft: the pumps of several small lanes side by side, in one Spark task.

Each pump is what it is alone: its own line to the desk, its own grant, its own connections. The raft only gives it its
turns. What ends one pump ends no other.
"""

from __future__ import annotations

import contextlib
import selectors
import threading
from dataclasses import replace
from typing import Any

from twinshore.fleet.once import in_words
from twinshore.mirror.core.desk_words import (
    Afloat,
    Carry,
    Ended,
    Leave,
    OfRaft,
    RaftOrder,
    Turn,
    heard_by_raft,
    narrowed,
    said,
)
from twinshore.mirror.lane.reading import Readings
from twinshore.mirror.pump.lines import DeskLost, DriverLine
from twinshore.mirror.pump.loop import Pump
from twinshore.service.clock import steady_s

AFLOAT_S = 1.0
# A pump to which nothing comes is looked at so often: its deadlines and beats are seldom nearer.
QUIET_S = 0.1
READ = selectors.EVENT_READ


class Raft:
    """One tide of it. `run` returns once the driver has told it to leave, or is gone, and no pump is left."""

    def __init__(self, order: RaftOrder) -> None:
        who = {"token": order.desk_token, "raft": order.raft, "tide": order.tide}
        self._line = DriverLine(order.desk_host, order.desk_port, **who)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._line, READ)
        # Whether the driver hears whose turn it is, and whose it knows of.
        self._tells, self._told = order.tells, 0
        # What pumps of one broadcast's lanes read together.
        self._readings = Readings()
        # By pump its berth.
        self._pumps: dict[Pump, int] = {}
        self._leaving = False
        self._lost = False
        self._afloat_at_s = 0.0

    def run(self) -> str:
        """Gives turns to whoever has something to do."""
        try:
            while self._pumps or not self._leaving:
                self._turn()
        finally:
            for pump in list(self._pumps):
                pump.close()
            self._line.close()
            self._selector.close()
        return "finished"

    def _turn(self) -> None:
        now_s = steady_s()
        wait_s = min((pump.due_s(QUIET_S) for pump in self._pumps), default=now_s + QUIET_S) - now_s
        came = {key.fileobj for key, _ in self._selector.select(max(0.0, min(wait_s, QUIET_S)))}
        self._talk(self._line in came)
        for pump in list(self._pumps):
            if pump in came or pump.due_s(QUIET_S) <= steady_s():
                self._tell_turn(self._pumps[pump])
                self._turn_of(pump)
        self._tell_turn(0)

    def _turn_of(self, pump: Pump) -> None:
        try:
            pump.turn(0.0)
            ended, died = pump.core.ended, False
        except DeskLost as error:
            ended, died = error.message, False
        except Exception as error:
            # This pump's alone: the others on the raft are other links'.
            ended, died = in_words(error), True
        if ended:
            self._selector.unregister(pump)
            with contextlib.suppress(OSError):
                pump.hang_up()
            _let_go_aside(pump)
            self._say(Ended(self._pumps.pop(pump), ended, died))

    # -- the driver

    def _talk(self, spoken: bool) -> None:
        if self._lost:
            return
        if steady_s() >= self._afloat_at_s:
            self._afloat_at_s = steady_s() + AFLOAT_S
            self._say(Afloat())
        try:
            for message in self._line.heard() if spoken else ():
                self._hear(message)
        except DeskLost:
            self._let_go()

    def _hear(self, message: dict[str, Any]) -> None:
        try:
            word = heard_by_raft(message)
        except Exception as error:
            if "berth" not in message:
                raise
            # As where the driver's package is another one than this worker's: the pumps that are here go on.
            self._say(Ended(message["berth"], f"its order is unreadable: {in_words(error)}", died=True))
            return
        match word:
            case Carry():
                self._begin(word)
            case Leave():
                self._leaving = True

    def _begin(self, word: Carry) -> None:
        self._tell_turn(word.berth)
        try:
            high_bytes = word.order.queue.high_bytes if word.order.broadcast else 0
            order = replace(word.order, limits=narrowed(word.order.limits, high_bytes))
            pump = Pump(order, self._readings.of(order))
        except Exception as error:
            self._say(Ended(word.berth, in_words(error), died=not isinstance(error, DeskLost)))
            return
        self._pumps[pump] = word.berth
        self._selector.register(pump, READ)

    def _tell_turn(self, berth: int) -> None:
        """Before it: where this task dies or freezes in it, nobody could say so any more."""
        if self._tells and berth != self._told:
            self._told = berth
            self._say(Turn(berth))

    def _say(self, word: OfRaft) -> None:
        if not self._lost:
            try:
                self._line.tell(said(word))
            except DeskLost:
                self._let_go()

    def _let_go(self) -> None:
        """Nobody can be told anything any more: no pump begins, and each that is here knows by its own line and grant
        how long it may go on."""
        self._leaving = self._lost = True
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._line)


def _let_go_aside(pump: Pump) -> None:
    """The others' turns do not wait until its errands are over, unless this process may have no thread more."""
    try:
        threading.Thread(target=pump.let_go, name="let go", daemon=True).start()
    except RuntimeError:
        with contextlib.suppress(OSError):
            pump.let_go()
