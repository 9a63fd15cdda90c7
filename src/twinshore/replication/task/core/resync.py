"""Which gaps go into the next marker request, and which log ends must be queried.

With an idle source, no request would reveal a foreign write to its twin, or an end that the target lost. So log ends of
idle twins are queried now and then, all of one leader in one request. The end is also queried before a batch that the
broker could not recognize as misplaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import append_hint
from twinshore.kafka.protocol.error_codes import Code, error_kind
from twinshore.replication.task.core.batches import OffsetGap, PartitionStopped
from twinshore.replication.task.core.config import PartitionIncident
from twinshore.replication.task.core.error_actions import (
    AUTHORIZATION_CODES,
    INSPECTIONS_MAX,
    ErrorAction,
    error_action,
)
from twinshore.replication.task.core.markers import MarkerOutcome, MarkerRun
from twinshore.replication.task.core.partition import PartitionReplicator, Phase

MARKERS_MAX = 4000  # In one request: some tens of milliseconds of a broker's time.
_CLUSTER = "ClusterAction or Alter on the cluster"
_GRANTS: dict[int, str] = {
    Code.CLUSTER_AUTHORIZATION_FAILED: f"Grant {_CLUSTER}",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f'Grant Describe and Write on transactional ids that begin with "twinshore.", or {_CLUSTER}'
    ),
}
FENCED_CODES = frozenset({Code.TRANSACTION_COORDINATOR_FENCED, Code.INVALID_PRODUCER_EPOCH})


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
