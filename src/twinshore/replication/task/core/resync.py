"""Which gaps go into the next marker request, and which log ends must be queried.

With an idle source, no request would reveal a foreign write to its twin, or an end that the target lost. So log ends of
idle twins are queried now and then, all of one leader in one request. The end is also queried before a batch that the
broker could not recognize as misplaced.

**Empty transactions** write markers as well. A transaction that holds a partition and no record appends one marker when
it ends. If its owner dies, the transaction coordinator ends it, after a timeout or when the id is next acquired, with
the same marker. So a marker is due once a transaction is open, and the task writes nothing else to that partition until
then. Several questions in a row are a generator, which may be dropped at any question.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import append_hint
from twinshore.kafka.protocol.error_codes import UNKNOWN_ERROR, Code, error_kind
from twinshore.replication.task.core.batches import OffsetGap, PartitionStopped
from twinshore.replication.task.core.error_actions import (
    AUTHORIZATION_CODES,
    INSPECTIONS_MAX,
    ErrorAction,
    error_action,
)
from twinshore.replication.task.core.markers import MarkerOutcome, MarkerRun
from twinshore.replication.task.core.messages import PartitionIncident
from twinshore.replication.task.core.partition import PartitionReplicator, Phase

MARKERS_MAX = 4000  # In one request: some tens of milliseconds of a broker's time.
_CLUSTER = "ClusterAction or Alter on the cluster"
_GRANTS: dict[int, str] = {
    Code.cluster_authorization_failed: f"Grant {_CLUSTER}",
    Code.transactional_id_authorization_failed: (
        f'Grant Describe and Write on transactional ids that begin with "twinshore.", or {_CLUSTER}'
    ),
}
FENCED_CODES = frozenset({Code.transaction_coordinator_fenced, Code.invalid_producer_epoch})


class PendingMarkers(NamedTuple):
    replicator: PartitionReplicator
    gap: OffsetGap

    @property
    def led(self) -> int:
        """The source's leader epoch, unchanged while nothing else of the partition is in flight."""
        return self.replicator.source.led

    @property
    def run(self) -> MarkerRun:
        partition = self.replicator.config.twin_named
        return MarkerRun(
            partition.topic,
            partition.partition,
            self.gap.end - self.gap.base,
            self.replicator.fence,
            self.replicator.led[1],
        )


def next_marker_runs(
    ready: dict[PartitionReplicator, None], now_s: float, each: int = MARKERS_MAX
) -> list[PendingMarkers]:
    """Takes the next marker request to a leader, at most `each` for one partition. Those partitions send nothing else
    until the response.
    """
    runs: list[PendingMarkers] = []
    room = MARKERS_MAX
    for replicator in list(ready):
        if not room:
            break
        gap = replicator.waiting[0][0] if replicator.waiting and replicator.phase is Phase.RUNNING else None
        if isinstance(gap, OffsetGap) and replicator.may_mark():
            del ready[replicator]
            run = replicator.send_gap(min(room, each), now_s)
            room -= run.end - run.base
            runs.append(PendingMarkers(replicator, run))
    return runs


def split_by_log_end(
    marks: Iterable[PendingMarkers], ends: Iterable[MarkerOutcome]
) -> tuple[list[PendingMarkers], list[PendingMarkers]]:
    """Splits queried runs into those that may go, with the twin's end and leader unchanged, and those that need an
    inspection.
    """
    outcomes = results_by_partition(ends)
    go: list[PendingMarkers] = []
    rest: list[PendingMarkers] = []
    for mark in marks:
        answer = outcomes.get(mark.replicator.config.twin_named)
        stands = answer is not None and answer.error == 0 and answer.end == mark.gap.base
        (go if stands else rest).append(mark)
    return go, rest


def split_by_phase(due: Iterable[PendingMarkers]) -> tuple[list[PendingMarkers], list[PendingMarkers]]:
    """Splits runs by whether their partitions are running."""
    running: list[PendingMarkers] = []
    others: list[PendingMarkers] = []
    for mark in due:
        (running if mark.replicator.phase is Phase.RUNNING else others).append(mark)
    return running, others


def results_by_partition(answers: Iterable[MarkerOutcome]) -> dict[TopicPartition, MarkerOutcome]:
    return {TopicPartition(answer.topic, answer.partition): answer for answer in answers}


def markers_landed(answer: MarkerOutcome | None, gap: OffsetGap) -> bool:
    """Whether the log ends exactly after the markers."""
    return answer is not None and answer.error == 0 and answer.end == gap.end


def judge_refused_markers(answer: MarkerOutcome | None, gap: OffsetGap, refusals: int) -> PartitionStopped | None:
    """Returns a halt, or None: an inspection decides."""
    if answer is None:
        return None
    where = f"offsets {gap.base} to {gap.end - 1}"
    if answer.end > gap.end:
        sentence = f"after markers for {where} the twin ends at {answer.end}: someone else writes there"
        return PartitionStopped(IncidentKind.POSITION_DISAGREEMENT, gap.base, answer.end, sentence)
    kind = error_kind(answer.error)
    if answer.error in AUTHORIZATION_CODES:
        refusal = f"the target refuses markers for {where}: {kind.sentence}"
        sentence = append_hint(refusal, _GRANTS.get(answer.error, kind.hint))
        return PartitionStopped(IncidentKind.RIGHTS_LOST, gap.base, gap.end, sentence, IncidentSide.TARGET)
    if answer.error in FENCED_CODES and refusals >= INSPECTIONS_MAX:
        sentence = f"the twin keeps refusing markers for {where} as fenced: another task of this link is at work"
        return PartitionStopped(IncidentKind.POSITION_DISAGREEMENT, gap.base, gap.end, sentence)
    if answer.error in FENCED_CODES or error_action(answer.error) is not ErrorAction.STOP:
        return None
    sentence = f"the twin refuses markers for {where}: {kind.name}, {kind.sentence}"
    return PartitionStopped(IncidentKind.REFUSED, gap.base, gap.end, sentence, IncidentSide.TARGET)


IDLE_CHECK_INTERVAL_S = 3.0
END_UNKNOWN = -1


class EndOffsetCheck(NamedTuple):
    """A twin without requests in flight, and its end at the query."""

    replicator: PartitionReplicator
    end: int

    @property
    def run(self) -> MarkerRun:
        partition = self.replicator.config.twin_named
        return MarkerRun(partition.topic, partition.partition, 0, 0, self.replicator.led[1])


def find_idle_twins(replicators: Iterable[PartitionReplicator], node: int) -> list[EndOffsetCheck]:
    """The idle exact twins led by `node`. Mapped twins may hold other producers' records."""
    return [
        EndOffsetCheck(replicator, replicator.acked)
        for replicator in replicators
        if replicator.leaders.target == node and _rests(replicator)
    ]


def find_unsure_twins(ready: Iterable[PartitionReplicator], now_s: float, now_ms: int) -> list[EndOffsetCheck]:
    """The twins whose ends must be seen before the next batch, each once until the response."""
    unsure = []
    for replicator in ready:
        if _stands(replicator) and _waits(replicator, now_s, now_ms):
            replicator.known_end.asking = True
            unsure.append(EndOffsetCheck(replicator, _end(replicator)))
    return unsure


def recheck_log_ends(
    twins: Iterable[EndOffsetCheck], answers: Iterable[MarkerOutcome], now_s: float
) -> tuple[bool, list[PartitionIncident]]:
    """Inspects twins whose end changed without a request. Returns whether leaders must be looked up, and incidents."""
    outcomes = results_by_partition(answers)
    untold, incidents = False, list[PartitionIncident]()
    for replicator, end in twins:
        replicator.known_end.asking = False
        answer = outcomes.get(replicator.config.twin_named)
        known = answer.end if answer is not None and not answer.error else END_UNKNOWN
        untold |= known == END_UNKNOWN
        if _end(replicator) != end or not _stands(replicator):
            continue
        if known == end:
            # As of now, not of the target's answer: over a slow connection nothing would ever be sent otherwise.
            replicator.known_end.seen_s = now_s
        elif replicator.waiting:
            error = answer and answer.error
            incidents += replicator.report_not_taken(error, replicator.waiting[0][0], now_s, "its end, before ")
        elif known != END_UNKNOWN:
            replicator.again(now_s)
    return untold, incidents


def _rests(replicator: PartitionReplicator) -> bool:
    whole = replicator.fetched == replicator.acked >= replicator.write_from
    return whole and not replicator.waiting and _stands(replicator)


def _waits(replicator: PartitionReplicator, now_s: float, now_ms: int) -> bool:
    batch = bool(replicator.waiting) and not isinstance(replicator.waiting[0][0], OffsetGap)
    return batch and not replicator.known_end.asking and replicator.unsure(now_s, now_ms)


def _end(replicator: PartitionReplicator) -> int:
    """Where the twin must end while nothing is in flight. A batch partly on the twin begins at `acked`."""
    return replicator.waiting[0][0].base if replicator.waiting else replicator.acked


def _stands(replicator: PartitionReplicator) -> bool:
    idle = not (replicator.in_flight or replicator.leaving or replicator.mapped)
    return idle and replicator.phase is Phase.RUNNING


# The id was taken over, or forgotten: acquire it again and inspect.
ID_TAKEN_CODES = frozenset(
    {Code.invalid_producer_epoch, Code.producer_fenced, Code.invalid_txn_state, Code.invalid_producer_id_mapping}
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
