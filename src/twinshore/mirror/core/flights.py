"""What a connection to a leader on the target has on its way, and what an answer to it says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twinshore.mirror.lane.lane import Lane
from twinshore.mirror.lane.marking import Marked
from twinshore.mirror.lane.resting import Rest
from twinshore.mirror.lane.runs import Marks
from twinshore.mirror.lane.track import Sent
from twinshore.wire.log_ends import LogEnd
from twinshore.wire.produce import ProducedPartition

UNANSWERED = -1  # as brokers call an error without a name


class EndsOf(NamedTuple):
    """Names the connection to a leader that only asks where logs end."""

    node: int


class Flight(NamedTuple):
    """A produce request; or markers with the question behind them; or, `asking`, the question before them, and where
    other twins end."""

    sent: list[Sent]
    sent_s: float
    marks: list[Marks]
    asking: bool = False
    rests: Sequence[Rest] = ()
    size: int = 0


class Answered(NamedTuple):
    """A request of a target line with its answer: `marked` for markers, `produced` for all else. Of markers that were
    only asked for, `flight` keeps those that may not go."""

    flight: Flight
    produced: list[ProducedPartition]
    marked: list[Marked]

    def tell(self, lane: Lane, now_s: float) -> None:
        if self.flight.rests:
            lane.rested(self.flight.rests, self.marked, now_s)
        if self.flight.marks:
            lane.marked(self.flight.marks, [] if self.flight.asking else self.marked, now_s)
        elif self.flight.sent:
            lane.produced(self.flight.sent, self.produced, now_s)


def joined(codes: dict[tuple[str, int], int], end: LogEnd, unsaid: int = UNANSWERED) -> Marked:
    """What a partition's markers were answered; without a word about them the look at the twin must tell."""
    error = codes.get((end.topic, end.partition), unsaid)
    return Marked(end.topic, end.partition, error or end.error, -1 if end.error else end.end)
