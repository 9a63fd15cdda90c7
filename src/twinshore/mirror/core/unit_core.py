"""What one transactional id does next, where markers go by closed units. Pure.

A transaction that holds a partition and no record appends one marker to it at its end. Whoever opened it may die: the
coordinator closes it, after a time or when the next holder asks for the id, and appends the same marker. So a marker is
due next from the moment a unit is open, and nothing else of ours is written to that partition meanwhile.

What takes several questions is a generator: it yields what to ask, and is sent the answer, or has a KafkaError thrown
in where none could be had. It may be dropped at any question.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.errors import UNANSWERED, Code
from twinshore.mirror.lane.marking import Marked
from twinshore.mirror.lane.runs import Marks

# The id was taken from us, or forgotten: we take it again and look.
TAKEN = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_TXN_STATE,
        Code.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Take(NamedTuple):
    """Take the id: no unit of it is open any more once that is answered."""


class TakeLater(NamedTuple):
    """Wait a little, and ask anew who coordinates the id, unless nothing may be written any more."""


class Open(NamedTuple):
    """Open a unit on these. The answer says why it is not open, by partition; nothing where it is."""

    partitions: list[NamedPartition]


class Close(NamedTuple):
    """Close the unit, and wait until its markers are in."""


class AskEnds(NamedTuple):
    """Where the logs of these end."""

    partitions: list[NamedPartition]


Question = Take | TakeLater | Open | Close | AskEnds


@dataclass(slots=True)
class Run:
    """One partition's markers, `done` of `times` written."""

    marks: Marks
    base: int
    times: int
    done: int = 0

    @property
    def named(self) -> NamedPartition:
        return self.marks.track.order.twin_named

    def judged(self, end: int) -> Marked | None:
        """What is known when the log ends there after `done` markers; None: there are more to come."""
        if end == self.base + self.done and self.done < self.times:
            return None
        return self.answer(0, end)

    def answer(self, error: int, end: int = -1) -> Marked:
        return Marked(self.named.topic, self.named.partition, error, end)


Over = list[tuple[Run, Marked]]


class UnitCore:
    """Of one transactional id. `held`: this pump has it."""

    def __init__(self) -> None:
        self.held = False
        # The last round was cut short, and perhaps its unit is open.
        self._unsure = False

    def hold(self) -> Generator[Question, Any, None]:
        """Once it is held no unit of it is open but those of rounds."""
        if not self.held:
            yield Take()
            self.held = True

    def round(self, runs: list[Run]) -> Generator[Question, Any, Over]:
        """One unit over all of them; returns those that are over. No unit is open when it returns, but where the id is
        refused us: its coordinator closes that one after a time."""
        try:
            if not self._unsure:
                self._unsure = True
                over = yield from self._round(runs)
                self._unsure = False
                return over
            code = yield from self._recover(UNANSWERED)
        except KafkaError as error:
            known = not error.retriable and error.code not in TAKEN
            code = yield from self._recover(error.code or UNANSWERED if known else UNANSWERED)
        self._unsure = False
        return [(run, run.answer(code)) for run in runs]

    def _round(self, runs: list[Run]) -> Generator[Question, Any, Over]:
        yield from self.hold()
        if new := [run for run in runs if not run.done]:
            ends = yield AskEnds([run.named for run in new])
            # Since its twin was looked at, the leader lost what it had, or somebody wrote to it.
            if elsewhere := [run for run in new if ends[run.named] != run.base]:
                return [(run, run.answer(UNANSWERED)) for run in elsewhere]
        names = [run.named for run in runs]
        if refused := (yield Open(names)):
            return [(run, run.answer(refused[run.named])) for run in runs if run.named in refused]
        yield Close()
        ends = yield AskEnds(names)
        over = []
        for run in runs:
            run.done += 1
            if answer := run.judged(ends[run.named]):
                over.append((run, answer))
        return over

    def _recover(self, code: int) -> Generator[Question, Any, int]:
        """What became of a unit is not known: taking the id anew closes it. Returns what its runs are answered, which
        is `code` unless the id is refused us."""
        self.held = False
        while True:
            try:
                yield from self.hold()
            except KafkaError as again:
                if not again.retriable:
                    return again.code or UNANSWERED
                yield TakeLater()
            else:
                return code
