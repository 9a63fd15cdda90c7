"""Markers by empty transactions: what one transactional id does next.

A transaction that holds a partition and no record appends one marker when it ends. If its owner dies, the transaction
coordinator ends it, after a timeout or when the id is next acquired, with the same marker. So a marker is due once a
transaction is open, and the task writes nothing else to that partition until then.

Several questions in a row are a generator. It yields each and is sent the answer, or a KafkaError is thrown in. A
generator may be dropped at any question.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR, Code
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.resync import PendingMarkers

# The id was taken over, or forgotten: acquire it again and inspect.
ID_TAKEN_CODES = frozenset(
    {Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_ID_MAPPING}
)


class AcquireTransactionalId(NamedTuple):
    """Acquire the id. Afterwards no transaction of the id is open."""


class RetryAcquire(NamedTuple):
    """Wait, then look up the id's coordinator again, unless nothing may be written any more."""


class BeginTransaction(NamedTuple):
    """Open a transaction on these. The answer gives the errors of refused partitions; empty if open."""

    partitions: list[TopicPartition]


class AbortTransaction(NamedTuple):
    """Abort the transaction, and wait until its markers are written."""


class AskEndOffsets(NamedTuple):
    """Ask for the log end offsets of these partitions."""

    partitions: list[TopicPartition]


TransactionQuestion = AcquireTransactionalId | RetryAcquire | BeginTransaction | AbortTransaction | AskEndOffsets


@dataclass(slots=True)
class MarkerRunProgress:
    """One partition's markers: `done` of `times` are written."""

    marks: PendingMarkers
    base: int
    times: int
    done: int = 0

    @property
    def named(self) -> TopicPartition:
        return self.marks.replicator.config.twin_named

    def judged(self, end: int) -> MarkerOutcome | None:
        """Returns the outcome if the log ends at `end`. None if more markers are to come."""
        if end == self.base + self.done and self.done < self.times:
            return None
        return self.answer(0, end)

    def answer(self, error: int, end: int = -1) -> MarkerOutcome:
        return MarkerOutcome(self.named.topic, self.named.partition, error, end)


FinishedMarkerRuns = list[tuple[MarkerRunProgress, MarkerOutcome]]


class EmptyTransactionCore:
    """The state of one transactional id. `held`: this task has acquired the id."""

    def __init__(self) -> None:
        self.held = False
        # The last round was cut short; its transaction may be open.
        self._unsure = False

    def hold(self) -> Generator[TransactionQuestion, Any, None]:
        """Acquires the id. Afterwards only `round` opens transactions."""
        if not self.held:
            yield AcquireTransactionalId()
            self.held = True

    def round(self, runs: list[MarkerRunProgress]) -> Generator[TransactionQuestion, Any, FinishedMarkerRuns]:
        """Runs one transaction over all partitions, and returns the finished ones. No transaction is open afterwards,
        unless the id was refused: then the coordinator aborts that after a timeout.
        """
        try:
            if not self._unsure:
                self._unsure = True
                over = yield from self._round(runs)
                self._unsure = False
                return over
            code = yield from self._recover(UNKNOWN_ERROR)
        except KafkaError as error:
            known = not error.retriable and error.code not in ID_TAKEN_CODES
            code = yield from self._recover(error.code or UNKNOWN_ERROR if known else UNKNOWN_ERROR)
        self._unsure = False
        return [(run, run.answer(code)) for run in runs]

    def _round(self, runs: list[MarkerRunProgress]) -> Generator[TransactionQuestion, Any, FinishedMarkerRuns]:
        yield from self.hold()
        if new := [run for run in runs if not run.done]:
            ends = yield AskEndOffsets([run.named for run in new])
            # Since the twin's inspection, the leader lost records, or another producer wrote.
            if elsewhere := [run for run in new if ends[run.named] != run.base]:
                return [(run, run.answer(UNKNOWN_ERROR)) for run in elsewhere]
        names = [run.named for run in runs]
        if refused := (yield BeginTransaction(names)):
            return [(run, run.answer(refused[run.named])) for run in runs if run.named in refused]
        yield AbortTransaction()
        ends = yield AskEndOffsets(names)
        over = []
        for run in runs:
            run.done += 1
            if answer := run.judged(ends[run.named]):
                over.append((run, answer))
        return over

    def _recover(self, code: int) -> Generator[TransactionQuestion, Any, int]:
        """Acquires the id again, to end a transaction of unknown outcome. Returns the error for its runs."""
        self.held = False
        while True:
            try:
                yield from self.hold()
            except KafkaError as again:
                if not again.retriable:
                    return again.code or UNKNOWN_ERROR
                yield RetryAcquire()
            else:
                return code
