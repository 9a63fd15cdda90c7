"""How long brokers take for what producers send: for counts, and for fuses that trip by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.counting import waited
from twinshore.proxy.core.fuses import Fusebox
from twinshore.proxy.core.moves import Pass
from twinshore.store import Flow, FuseKind

Done = Callable[[memoryview | None], None]


def timed(done: Done, box: Fusebox, move: Pass, client: str | None) -> Done:
    """The same, and the counts and the box hear how long it took."""

    def told(took_ms: float) -> None:
        waited(move.flows, took_ms)
        if box.times:
            box.waited(FuseKind.PRODUCE, move.topics, client or "", took_ms)

    return _clocked(done, told) if move.topics else done


def counted(done: Done, flows: Sequence[Flow]) -> Done:
    """The same, and the counts hear how long it took."""
    return _clocked(done, partial(waited, flows)) if flows else done


def _clocked(done: Done, told: Callable[[float], None]) -> Done:
    """From now until it is called; `told` hears it first, in milliseconds."""
    began_s = steady_s()

    def heard(found: memoryview | None) -> None:
        told((steady_s() - began_s) * 1000)
        done(found)

    return heard
