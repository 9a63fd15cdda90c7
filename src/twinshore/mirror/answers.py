"""What an error in an answer means for a partition: look again, or stop with an incident. Codes get their meaning in
`kafka.errors`; here they get their consequence."""

from __future__ import annotations

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.errors import Code, describe
from twinshore.mirror.cutting import Halt, Parcel
from twinshore.mirror.observe import Stop, Verdict, Wait, parted_sentence
from twinshore.mirror.orders import WAIT_POLICY, Stoppage
from twinshore.wire.fetch import FetchedPartition
from twinshore.wire.produce import ProducedPartition

RIGHTS = frozenset({Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED, 53})
RECREATED = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})
# The sequence check refused us: someone else is, or was, at work on this twin. A look tells.
SEQUENCE = frozenset(
    {
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.DUPLICATE_SEQUENCE_NUMBER,
        Code.INVALID_PRODUCER_EPOCH,
        Code.UNKNOWN_PRODUCER_ID,
        Code.PRODUCER_FENCED,
    }
)
SIZES = frozenset({Code.MESSAGE_TOO_LARGE, 18})
# What a leader says of a log that it cannot read itself; now and then it says so of something that passes.
UNREADABLE = frozenset({Code.CORRUPT_MESSAGE, -1})
UNREADABLE_MAX = 10
HEAL_POLICY = "carry it once more from the source"
LOOKS_MAX = 40
PARTITION_BYTES_LIMIT = 1 << 30
RETRY_S_MAX = 2.0


def source_error(part: FetchedPartition, position: int, failures: int = 0) -> Halt | None:
    """A halt, or None: refresh the leaders and look again. `failures`: so many times already, with nothing between."""
    if part.diverging_epoch:
        _, end = part.diverging_epoch
        if end >= position:
            return None  # The source knows the epoch no more: a look compares records.
        return Halt("truncation", end, position, parted_sentence(end))
    kind = describe(part.error)
    if part.error in RIGHTS:
        return Halt("rights lost", position, position, f"the source refuses to be read: {kind.sentence}. {kind.hint}")
    if part.error in UNREADABLE and failures >= UNREADABLE_MAX:
        sentence = f"the source's leader cannot read its log at offset {position}: {kind.sentence} ({kind.name})"
        return Halt("corrupt batch", position, position + 1, sentence)
    return None


def target_error(part: ProducedPartition, parcel: Parcel, failures: int) -> Halt | None:
    """A halt, or None: look at the twin, then go on from where it ends."""
    kind = describe(part.error)
    where = f"offsets {parcel.base} to {parcel.end - 1}"
    if part.error in RIGHTS:
        return Halt("rights lost", parcel.base, parcel.end, f"the twin refuses {where}: {kind.sentence}. {kind.hint}")
    if part.error in SIZES:
        sentence = f"the batch of {parcel.size} bytes at {where} exceeds the twin's limit"
        return Halt("oversize batch", parcel.base, parcel.end, f"{sentence}; {kind.hint}")
    if part.error in SEQUENCE and failures >= LOOKS_MAX:
        sentence = f"the twin keeps refusing {where} as out of sequence, though it looks right"
        return Halt("position disagreement", parcel.base, parcel.end, sentence)
    if part.error in RECREATED or part.error in SEQUENCE or kind.retriable or kind.unknown_outcome:
        return None
    return Halt("refused", parcel.base, parcel.end, f"the twin refuses {where}: {kind.name}, {kind.sentence}")


def unseen(error: KafkaError | None, told_to: int) -> Verdict:
    """What follows from a look that could not be had."""
    if error is not None and error.code in RIGHTS:
        return Stop("rights lost", told_to, told_to, f"the twin cannot be compared with its source: {error}")
    return Wait(str(error) if error else "no answer, or its line broke")


def in_vain(named: NamedPartition, told_to: int, sentence: str) -> Stoppage:
    """Nothing crosses since nobody knows where the twin ends; it goes on by itself once that is known."""
    told = f"where the twin ends cannot be told: {sentence}"
    return Stoppage(named.topic, named.partition, "target away", told_to, told_to, told, WAIT_POLICY)


def gone(named: NamedPartition, acked: int, side: str, *, recreated: bool) -> Halt:
    """A side has no such topic any more, or another one of its name."""
    what = "is another one of the same name now" if recreated else "is there no more"
    return Halt("recreated topic", acked, acked, f"topic {named.topic} on the {side} {what}")


def misplaced(parcel: Parcel, base: int) -> Halt:
    """Our batch lies elsewhere on the twin. The broker held our own batches in order, so others wrote in between."""
    if base > parcel.base:
        sentence = f"someone else wrote offsets {parcel.base} to {base - 1} of the twin; the source's landed behind"
        return Halt("foreign write", parcel.base, base, sentence)
    sentence = f"offset {parcel.base} of the source was answered as {base} by the twin, which had ended later before"
    return Halt("position disagreement", base, parcel.end, sentence)


def lost_by_target(named: NamedPartition, position: int, told_to: int, source_start: int = 0) -> list[Stoppage]:
    """What to tell where the twin ends before what it had acknowledged; it crosses once more."""
    if position >= told_to:
        return []
    sentence = f"the target lost offsets {position} to {told_to - 1}, which it had acknowledged; they are carried again"
    if source_start > position:
        sentence += f" from {min(source_start, told_to)} on: the source has no more what came before"
    return [Stoppage(named.topic, named.partition, "lost by target", position, told_to, sentence, HEAL_POLICY)]


def stoppage(named: NamedPartition, halt: Halt) -> Stoppage:
    return Stoppage(named.topic, named.partition, halt.kind, halt.offset, halt.end, halt.sentence)


def wait_s(failures: int) -> float:
    """How long before the next look, after so many in a row."""
    return min(RETRY_S_MAX, 0.02 * (1 << min(failures, 7)))


def bytes_needed(records: memoryview, limit: int) -> int:
    """The partition limit that lets a batch larger than the present limit arrive whole."""
    if len(records) >= 12:
        return min(PARTITION_BYTES_LIMIT, max(limit, int.from_bytes(records[8:12], "big") + 12))
    return min(PARTITION_BYTES_LIMIT, limit * 2)
