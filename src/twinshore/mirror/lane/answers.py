"""What an error in an answer means for a partition: look again, or stop with an incident. Codes get their meaning in
`kafka.errors`; here they get their consequence."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.fleet.incidents import POLICY_HEAL, IncidentKind, IncidentSide
from twinshore.fleet.sentences import followed
from twinshore.kafka.errors import describe
from twinshore.mirror.lane.cutting import Halt, Parcel
from twinshore.mirror.lane.observe import Stop, Verdict, Wait, parted_sentence
from twinshore.mirror.lane.orders import Stoppage
from twinshore.wire.fetch import FetchedPartition
from twinshore.wire.produce import ProducedPartition


class Means(Enum):
    """What a code in an answer about one partition means for it. What the table leaves out `PASSES`: brokers newer than
    this version have more codes, and to wait for what never passes harms less than to stop for what does."""

    PASSES = "is asked again, for as long as it takes"
    RIGHT = "rests until a right is given"
    SIZE = "rests until the limit is raised"
    SEQUENCE = "the twin is looked at: who else is, or was, at work there"
    ANEW = "metadata tells whether the topic is another one"
    DAMAGE = "is asked again a few times, then stops"
    NEVER = "stops"


MEANINGS: Mapping[int, tuple[Means, str]] = {
    -1: (Means.PASSES, "an exception without a name: an object store that is away, a full disk, a bug"),
    1: (Means.PASSES, "the log began or ended anew: the look tells where"),
    2: (Means.DAMAGE, "bytes that a disk or a line spoilt; a line's damage passes"),
    3: (Means.PASSES, "not there yet, or moved: metadata tells what was deleted"),
    5: (Means.PASSES, "an election"),
    6: (Means.PASSES, "a move"),
    7: (Means.PASSES, "slow replicas"),
    8: (Means.PASSES, "a broker that starts or stops"),
    9: (Means.PASSES, "a replica that is not ready"),
    10: (Means.SIZE, "max.message.bytes"),
    11: (Means.PASSES, "a controller's change"),
    13: (Means.PASSES, "a line between brokers"),
    14: (Means.PASSES, "a coordinator that starts"),
    15: (Means.PASSES, "a coordinator that starts"),
    16: (Means.PASSES, "a coordinator that moved"),
    17: (Means.NEVER, "the topic's name is not allowed"),
    18: (Means.SIZE, "segment.bytes"),
    19: (Means.PASSES, "replicas that come back"),
    20: (Means.PASSES, "replicas that come back; the look tells whether it was written"),
    21: (Means.NEVER, "our request is wrong"),
    29: (Means.RIGHT, "on the topic"),
    31: (Means.RIGHT, "on the cluster"),
    32: (Means.NEVER, "a record's time lies outside what the topic allows"),
    41: (Means.PASSES, "a controller's change"),
    42: (Means.NEVER, "our request is wrong"),
    43: (Means.NEVER, "the topic's log has an old format"),
    44: (Means.NEVER, "the cluster's own policy"),
    45: (Means.SEQUENCE, "not the next one"),
    46: (Means.SEQUENCE, "written before"),
    47: (Means.SEQUENCE, "a newer epoch wrote"),
    48: (Means.NEVER, "a transaction's state, and we write none"),
    49: (Means.NEVER, "the producer id is somebody else's"),
    51: (Means.PASSES, "a transaction that is being completed"),
    53: (Means.RIGHT, "on the transactional id"),
    56: (Means.PASSES, "a disk that failed: another replica leads soon"),
    57: (Means.PASSES, "a disk that failed: another replica leads soon"),
    59: (Means.SEQUENCE, "the broker forgot us"),
    60: (Means.PASSES, "a move"),
    72: (Means.PASSES, "a broker that starts"),
    74: (Means.PASSES, "our metadata is old"),
    75: (Means.PASSES, "the broker's metadata is old"),
    76: (Means.NEVER, "the topic or broker does not take this compression"),
    77: (Means.PASSES, "a broker that registers anew"),
    78: (Means.PASSES, "a new leader, for a moment"),
    80: (Means.PASSES, "an election"),
    83: (Means.PASSES, "an election"),
    87: (Means.NEVER, "a record or batch that the topic does not take, such as one without a key in a compacted topic"),
    89: (Means.PASSES, "a quota"),
    90: (Means.SEQUENCE, "a newer producer took over"),
    97: (Means.PASSES, "brokers of several versions, for the time of an upgrade"),
    100: (Means.ANEW, "deleted, or not known to this broker yet"),
    103: (Means.ANEW, "made again, or not known to this broker yet"),
    108: (Means.PASSES, "an election"),
    109: (Means.PASSES, "the log's beginning moved to the object store"),
    120: (Means.PASSES, "a transaction's partition that is not verified yet"),
}
RIGHTS = frozenset(code for code, (means, _) in MEANINGS.items() if means is Means.RIGHT)
UNREADABLE_MAX = 10
LOOKS_MAX = 40
PARTITION_BYTES_LIMIT = 1 << 30
RETRY_S_MAX = 2.0


def source_error(part: FetchedPartition, position: int, failures: int = 0) -> Halt | None:
    """A halt, or None: refresh the leaders and look again. `failures`: so many times already, with nothing between."""
    if part.diverging_epoch:
        _, end = part.diverging_epoch
        if end >= position:
            return None  # The source knows the epoch no more: a look compares records.
        return Halt(IncidentKind.TRUNCATION, end, position, parted_sentence(end))
    kind, means = describe(part.error), meaning(part.error)
    if means is Means.RIGHT:
        return Halt(
            IncidentKind.RIGHTS_LOST,
            position,
            position,
            followed(f"the source refuses to be read: {kind.sentence}", kind.hint),
            IncidentSide.SOURCE,
        )
    if means is Means.DAMAGE and failures >= UNREADABLE_MAX:
        sentence = f"the source's leader said {failures + 1} times in a row that it cannot read its log at offset"
        return Halt(
            IncidentKind.CORRUPT_BATCH, position, position + 1, f"{sentence} {position}: {kind.sentence} ({kind.name})"
        )
    if means in (Means.NEVER, Means.SIZE):
        sentence = f"the source refuses to be read at offset {position}: {kind.name}, {kind.sentence}"
        return Halt(IncidentKind.REFUSED, position, position, sentence, IncidentSide.SOURCE)
    return None


def target_error(part: ProducedPartition, parcel: Parcel, refusals: int) -> Halt | None:
    """A halt, or None: look at the twin, then go on from where it ends. `refusals`: so many before, with nothing taken
    in between; a look that could not be had is none."""
    kind, means = describe(part.error), meaning(part.error)
    where = f"offsets {parcel.base} to {parcel.end - 1}"
    if means is Means.RIGHT:
        return Halt(
            IncidentKind.RIGHTS_LOST,
            parcel.base,
            parcel.end,
            followed(f"the twin refuses {where}: {kind.sentence}", kind.hint),
            IncidentSide.TARGET,
        )
    if means is Means.SIZE:
        sentence = f"the batch of {parcel.size} bytes at {where} exceeds the twin's limit"
        return Halt(IncidentKind.OVERSIZE_BATCH, parcel.base, parcel.end, f"{sentence}; {kind.hint}")
    if means is Means.SEQUENCE and refusals >= LOOKS_MAX:
        sentence = f"the twin keeps refusing {where} as out of sequence, though it looks right"
        return Halt(IncidentKind.POSITION_DISAGREEMENT, parcel.base, parcel.end, sentence)
    again = f" {refusals + 1} times in a row" if means is Means.DAMAGE else ""
    if means is Means.NEVER or (again and refusals >= UNREADABLE_MAX):
        said = f": {part.message}" if part.message else ""
        sentence = f"the twin refuses {where}{again}: {kind.name}, {kind.sentence}{said}"
        return Halt(IncidentKind.REFUSED, parcel.base, parcel.end, sentence, IncidentSide.TARGET)
    return None


def meaning(code: int) -> Means:
    """What a code means for the partition that it is about."""
    return MEANINGS.get(code, (Means.PASSES, ""))[0]


def unseen(error: KafkaError | None, told_to: int) -> Verdict:
    """What follows from a look that could not be had."""
    if error is not None and error.code in RIGHTS:
        return Stop(IncidentKind.RIGHTS_LOST, told_to, told_to, f"the twin cannot be compared with its source: {error}")
    return Wait(str(error) if error else "no answer, or its line broke")


def gone(named: NamedPartition, acked: int, side: str, *, recreated: bool) -> Halt:
    """A side has no such topic any more, or another one of its name."""
    what = "is another one of the same name now" if recreated else "is there no more"
    return Halt(
        IncidentKind.RECREATED_TOPIC, acked, acked, f"topic {named.topic} on the {side} {what}", IncidentSide(side)
    )


def misplaced(parcel: Parcel, base: int) -> Halt:
    """Our batch lies elsewhere on the twin. The broker held our own batches in order, so others wrote in between."""
    if base > parcel.base:
        sentence = f"someone else wrote offsets {parcel.base} to {base - 1} of the twin; the source's landed behind"
        return Halt(IncidentKind.FOREIGN_WRITE, parcel.base, base, sentence)
    sentence = f"offset {parcel.base} of the source was answered as {base} by the twin, which had ended later before"
    return Halt(IncidentKind.POSITION_DISAGREEMENT, base, parcel.end, sentence)


def lost_by_target(named: NamedPartition, position: int, told_to: int, source_start: int = 0) -> list[Stoppage]:
    """What to tell where the twin ends before what it had acknowledged; it crosses once more."""
    if position >= told_to:
        return []
    sentence = f"the target lost offsets {position} to {told_to - 1}, which it had acknowledged; they are carried again"
    if source_start > position:
        sentence += f" from {min(source_start, told_to)} on: the source has no more what came before"
    return [
        Stoppage(named.topic, named.partition, IncidentKind.LOST_BY_TARGET, position, told_to, sentence, POLICY_HEAL)
    ]


def stoppage(named: NamedPartition, halt: Halt) -> Stoppage:
    return Stoppage(named.topic, named.partition, halt.kind, halt.offset, halt.end, halt.sentence, None, halt.side)


def wait_s(failures: int) -> float:
    """How long before the next look, after so many in a row."""
    return min(RETRY_S_MAX, 0.02 * (1 << min(failures, 7)))


def bytes_needed(records: memoryview, limit: int) -> int:
    """The partition limit that lets a batch larger than the present limit arrive whole."""
    if len(records) >= 12:
        return min(PARTITION_BYTES_LIMIT, max(limit, int.from_bytes(records[8:12], "big") + 12))
    return min(PARTITION_BYTES_LIMIT, limit * 2)
