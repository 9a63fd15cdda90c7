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
    """The effect of an error code on a partition. A code without an entry, as of newer brokers, means RETRY: waiting in
    vain harms less than stopping.
    """

    RETRY = "is asked again, for as long as it takes"
    AUTHORIZATION = "rests until a right is given"
    TOO_LARGE = "rests until the limit is raised"
    SEQUENCE = "the twin is looked at: who else is, or was, at work there"
    REFRESH_METADATA = "metadata tells whether the topic is another one"
    CORRUPT = "is asked again a few times, then stops"
    STOP = "stops"


ERROR_ACTIONS: Mapping[int, tuple[ErrorAction, str]] = {
    -1: (ErrorAction.RETRY, "an exception without a name: an object store that is away, a full disk, a bug"),
    1: (ErrorAction.RETRY, "the log began or ended anew: the look tells where"),
    2: (ErrorAction.CORRUPT, "bytes that a disk or a line spoilt; a line's damage passes"),
    3: (ErrorAction.RETRY, "not there yet, or moved: metadata tells what was deleted"),
    5: (ErrorAction.RETRY, "an election"),
    6: (ErrorAction.RETRY, "a move"),
    7: (ErrorAction.RETRY, "slow replicas"),
    8: (ErrorAction.RETRY, "a broker that starts or stops"),
    9: (ErrorAction.RETRY, "a replica that is not ready"),
    10: (ErrorAction.TOO_LARGE, "max.message.bytes"),
    11: (ErrorAction.RETRY, "a controller's change"),
    13: (ErrorAction.RETRY, "a line between brokers"),
    14: (ErrorAction.RETRY, "a coordinator that starts"),
    15: (ErrorAction.RETRY, "a coordinator that starts"),
    16: (ErrorAction.RETRY, "a coordinator that moved"),
    17: (ErrorAction.STOP, "the topic's name is not allowed"),
    18: (ErrorAction.TOO_LARGE, "segment.bytes"),
    19: (ErrorAction.RETRY, "replicas that come back"),
    20: (ErrorAction.RETRY, "replicas that come back; the look tells whether it was written"),
    21: (ErrorAction.STOP, "our request is wrong"),
    29: (ErrorAction.AUTHORIZATION, "on the topic"),
    31: (ErrorAction.AUTHORIZATION, "on the cluster"),
    32: (ErrorAction.STOP, "a record's time lies outside what the topic allows"),
    41: (ErrorAction.RETRY, "a controller's change"),
    42: (ErrorAction.STOP, "our request is wrong"),
    43: (ErrorAction.STOP, "the topic's log has an old format"),
    44: (ErrorAction.STOP, "the cluster's own policy"),
    45: (ErrorAction.SEQUENCE, "not the next one"),
    46: (ErrorAction.SEQUENCE, "written before"),
    47: (ErrorAction.SEQUENCE, "a newer epoch wrote"),
    48: (ErrorAction.STOP, "a transaction's state, and we write none"),
    49: (ErrorAction.STOP, "the producer id is somebody else's"),
    51: (ErrorAction.RETRY, "a transaction that is being completed"),
    53: (ErrorAction.AUTHORIZATION, "on the transactional id"),
    56: (ErrorAction.RETRY, "a disk that failed: another replica leads soon"),
    57: (ErrorAction.RETRY, "a disk that failed: another replica leads soon"),
    59: (ErrorAction.SEQUENCE, "the broker forgot us"),
    60: (ErrorAction.RETRY, "a move"),
    72: (ErrorAction.RETRY, "a broker that starts"),
    74: (ErrorAction.RETRY, "our metadata is old"),
    75: (ErrorAction.RETRY, "the broker's metadata is old"),
    76: (ErrorAction.STOP, "the topic or broker does not take this compression"),
    77: (ErrorAction.RETRY, "a broker that registers anew"),
    78: (ErrorAction.RETRY, "a new leader, for a moment"),
    80: (ErrorAction.RETRY, "an election"),
    83: (ErrorAction.RETRY, "an election"),
    87: (
        ErrorAction.STOP,
        "a record or batch that the topic does not take, such as one without a key in a compacted topic",
    ),
    89: (ErrorAction.RETRY, "a quota"),
    90: (ErrorAction.SEQUENCE, "a newer producer took over"),
    97: (ErrorAction.RETRY, "brokers of several versions, for the time of an upgrade"),
    100: (ErrorAction.REFRESH_METADATA, "deleted, or not known to this broker yet"),
    103: (ErrorAction.REFRESH_METADATA, "made again, or not known to this broker yet"),
    108: (ErrorAction.RETRY, "an election"),
    109: (ErrorAction.RETRY, "the log's beginning moved to the object store"),
    120: (ErrorAction.RETRY, "a transaction's partition that is not verified yet"),
}
AUTHORIZATION_CODES = frozenset(
    code for code, (means, _) in ERROR_ACTIONS.items() if means is ErrorAction.AUTHORIZATION
)
UNREADABLE_ERRORS_MAX = 10
INSPECTIONS_MAX = 40
RETRY_S_MAX = 2.0


def judge_source_error(part: FetchedPartitionById, position: int, failures: int = 0) -> PartitionStopped | None:
    """Returns a halt, or None: refresh leaders and inspect again. `failures`: consecutive ones before."""
    if part.diverging_epoch:
        _, end = part.diverging_epoch
        if end >= position:
            return None  # The source does not know the epoch any more: an inspection compares records.
        return PartitionStopped(IncidentKind.TRUNCATION, end, position, describe_divergence(end))
    kind, means = error_kind(part.error), error_action(part.error)
    if means is ErrorAction.AUTHORIZATION:
        return PartitionStopped(
            IncidentKind.RIGHTS_LOST,
            position,
            position,
            append_hint(f"the source refuses to be read: {kind.sentence}", kind.hint),
            IncidentSide.SOURCE,
        )
    if means is ErrorAction.CORRUPT and failures >= UNREADABLE_ERRORS_MAX:
        sentence = f"the source's leader said {failures + 1} times in a row that it cannot read its log at offset"
        return PartitionStopped(
            IncidentKind.CORRUPT_BATCH, position, position + 1, f"{sentence} {position}: {kind.sentence} ({kind.name})"
        )
    if means in (ErrorAction.STOP, ErrorAction.TOO_LARGE):
        sentence = f"the source refuses to be read at offset {position}: {kind.name}, {kind.sentence}"
        return PartitionStopped(IncidentKind.REFUSED, position, position, sentence, IncidentSide.SOURCE)
    return None


def judge_target_error(part: ProducedPartition, batch: OutgoingBatch, refusals: int) -> PartitionStopped | None:
    """Returns a halt, or None: inspect the twin and go on. `refusals`: consecutive ones before, without failed
    inspections.
    """
    kind, means = error_kind(part.error), error_action(part.error)
    where = f"offsets {batch.base} to {batch.end - 1}"
    if means is ErrorAction.AUTHORIZATION:
        return PartitionStopped(
            IncidentKind.RIGHTS_LOST,
            batch.base,
            batch.end,
            append_hint(f"the twin refuses {where}: {kind.sentence}", kind.hint),
            IncidentSide.TARGET,
        )
    if means is ErrorAction.TOO_LARGE:
        sentence = f"the batch of {batch.size} bytes at {where} exceeds the twin's limit"
        return PartitionStopped(IncidentKind.OVERSIZE_BATCH, batch.base, batch.end, f"{sentence}; {kind.hint}")
    if means is ErrorAction.SEQUENCE and refusals >= INSPECTIONS_MAX:
        sentence = f"the twin keeps refusing {where} as out of sequence, though it looks right"
        return PartitionStopped(IncidentKind.POSITION_DISAGREEMENT, batch.base, batch.end, sentence)
    again = f" {refusals + 1} times in a row" if means is ErrorAction.CORRUPT else ""
    if means is ErrorAction.STOP or (again and refusals >= UNREADABLE_ERRORS_MAX):
        said = f": {part.reason}" if part.reason else ""
        sentence = f"the twin refuses {where}{again}: {kind.name}, {kind.sentence}{said}"
        return PartitionStopped(IncidentKind.REFUSED, batch.base, batch.end, sentence, IncidentSide.TARGET)
    return None


def error_action(code: int) -> ErrorAction:
    return ERROR_ACTIONS.get(code, (ErrorAction.RETRY, ""))[0]


def judge_failed_inspection(error: KafkaError | None, told_to: int) -> PositionVerdict:
    if error is not None and error.code in AUTHORIZATION_CODES:
        return StopAt(
            IncidentKind.RIGHTS_LOST, told_to, told_to, f"the twin cannot be compared with its source: {error}"
        )
    return InspectAgain(str(error) if error else "no answer, or its line broke")


def retry_pause_s(failures: int) -> float:
    return min(RETRY_S_MAX, 0.02 * (1 << min(failures, 7)))
