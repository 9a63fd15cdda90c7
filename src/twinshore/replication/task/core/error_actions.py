"""What an error code does to a partition. `kafka.protocol.error_codes` says what the codes mean."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind, IncidentSide
from twinshore.config.sentences import append_hint
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.replication.task.core.batches import OutgoingBatch, PartitionStopped
from twinshore.replication.task.core.position import InspectAgain, PositionVerdict, StopAt, describe_divergence


class ErrorAction(Enum):
    """The effect of an error code on a partition. A code without an entry in `ERROR_ACTIONS`, as of newer brokers,
    means RETRY: waiting in vain harms less than stopping.
    """

    RETRY = "is tried again, for as long as it takes"
    AUTHORIZATION = "rests until a right is given"
    TOO_LARGE = "rests until the limit is raised"
    SEQUENCE = "the twin is inspected: a late request, expired producer state, or another producer"
    CORRUPT = "is tried again a few times, then stops"
    STOP = "stops"


AUTHORIZATION_CODES = frozenset((29, 31, 53))  # on the topic, the cluster, the transactional id
ERROR_ACTIONS: Mapping[int, ErrorAction] = {
    2: ErrorAction.CORRUPT,  # bytes that a disk or a connection damaged; a connection's damage passes
    10: ErrorAction.TOO_LARGE,  # max.message.bytes
    17: ErrorAction.STOP,  # the topic's name is not allowed
    18: ErrorAction.TOO_LARGE,  # segment.bytes
    21: ErrorAction.STOP,  # our request is wrong
    **dict.fromkeys(AUTHORIZATION_CODES, ErrorAction.AUTHORIZATION),
    32: ErrorAction.STOP,  # a record's time lies outside what the topic allows
    42: ErrorAction.STOP,  # our request is wrong
    43: ErrorAction.STOP,  # the topic's log has an old format
    44: ErrorAction.STOP,  # the cluster's own policy
    45: ErrorAction.SEQUENCE,  # not the next one
    46: ErrorAction.SEQUENCE,  # written before
    47: ErrorAction.SEQUENCE,  # a newer epoch wrote
    48: ErrorAction.STOP,  # a transaction's state, and we write none
    49: ErrorAction.STOP,  # the producer id is another producer's
    59: ErrorAction.SEQUENCE,  # the broker forgot us
    76: ErrorAction.STOP,  # the topic or broker does not take this compression
    87: ErrorAction.STOP,  # such as a record without a key in a compacted topic
    90: ErrorAction.SEQUENCE,  # a newer producer took over
}
UNREADABLE_ERRORS_MAX = 10
INSPECTIONS_MAX = 40
RETRY_S_MAX = 2.0


def judge_source_error(part: FetchedPartitionById, position: int, failures: int = 0) -> PartitionStopped | None:
    """Returns why the partition stops, or None: refresh leaders and inspect again. `failures`: consecutive, before."""
    if part.diverging_epoch:
        _, end = part.diverging_epoch
        if end >= position:
            return None  # The source does not know the epoch any more: an inspection compares records.
        return PartitionStopped(IncidentKind.TRUNCATION, end, position, describe_divergence(end))
    kind, means = error_kind(part.error), error_action(part.error)
    if means is ErrorAction.AUTHORIZATION:
        sentence = append_hint(f"the source refuses to be read: {kind.sentence}", kind.hint)
        return PartitionStopped(IncidentKind.RIGHTS_LOST, position, position, sentence, IncidentSide.SOURCE)
    if means is ErrorAction.CORRUPT and failures >= UNREADABLE_ERRORS_MAX:
        times = f"the source's leader said {failures + 1} times in a row that it cannot read its log"
        sentence = f"{times} at offset {position}: {kind.sentence} ({kind.name})"
        return PartitionStopped(IncidentKind.CORRUPT_BATCH, position, position + 1, sentence)
    if means in (ErrorAction.STOP, ErrorAction.TOO_LARGE):
        sentence = f"the source refuses to be read at offset {position}: {kind.name}, {kind.sentence}"
        return PartitionStopped(IncidentKind.REFUSED, position, position, sentence, IncidentSide.SOURCE)
    return None


def judge_target_error(part: ProducedPartition, batch: OutgoingBatch, refusals: int) -> PartitionStopped | None:
    """Returns why the partition stops, or None: inspect the twin and go on. `refusals`: consecutive ones before,
    without failed inspections.
    """
    kind, means = error_kind(part.error), error_action(part.error)
    where = f"offsets {batch.base} to {batch.end - 1}"
    if means is ErrorAction.AUTHORIZATION:
        sentence = append_hint(f"the twin refuses {where}: {kind.sentence}", kind.hint)
        return PartitionStopped(IncidentKind.RIGHTS_LOST, batch.base, batch.end, sentence, IncidentSide.TARGET)
    if means is ErrorAction.TOO_LARGE:
        sentence = f"the batch of {batch.size} bytes at {where} exceeds the twin's limit"
        return PartitionStopped(IncidentKind.OVERSIZE_BATCH, batch.base, batch.end, f"{sentence}; {kind.hint}")
    if means is ErrorAction.SEQUENCE and refusals >= INSPECTIONS_MAX:
        sentence = f"the twin keeps refusing {where} as out of sequence, though it looks right"
        return PartitionStopped(IncidentKind.POSITION_DISAGREEMENT, batch.base, batch.end, sentence)
    again = f" {refusals + 1} times in a row" if means is ErrorAction.CORRUPT else ""
    if means is ErrorAction.STOP or (again and refusals >= UNREADABLE_ERRORS_MAX):
        detail = f": {part.reason}" if part.reason else ""
        sentence = f"the twin refuses {where}{again}: {kind.name}, {kind.sentence}{detail}"
        return PartitionStopped(IncidentKind.REFUSED, batch.base, batch.end, sentence, IncidentSide.TARGET)
    return None


def error_action(code: int) -> ErrorAction:
    return ERROR_ACTIONS.get(code, ErrorAction.RETRY)


def judge_failed_inspection(error: KafkaError | None, told_to: int) -> PositionVerdict:
    if error is not None and error.code in AUTHORIZATION_CODES:
        sentence = f"the twin cannot be compared with its source: {error}"
        return StopAt(IncidentKind.RIGHTS_LOST, told_to, told_to, sentence)
    return InspectAgain(str(error) if error else "no answer, or its connection broke")


def retry_pause_s(failures: int) -> float:
    return min(RETRY_S_MAX, 0.02 * (1 << min(failures, 7)))
