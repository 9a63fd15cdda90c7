"""Producers whose topics have moved: under which id they write where the topic is now, and what of it may go on. Pure.

A producer keeps its id and counts on, whichever cluster a topic is on. Of topics that never moved nothing is looked at.
What had crossed before its home died is not written again, and told as written, where it is.

The new home has never heard of a producer, so it takes whatever comes first. Its old home knows what was there last:
by that a batch that comes a second time is told apart, and one that comes too early, as a client may send it while it
hears of the move for those before. Once the new home has taken a batch of the producer it checks for itself.

Where the old home is gone, the mirror knows what of the producer had crossed. A twin is a beginning of its source, so
all that the producer had written before that had crossed as well. What lies behind may be lost, so none comes too
early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from twinshore.fleet.errors import WireError
from twinshore.kafka.errors import Code
from twinshore.proxy.core.flows import Again
from twinshore.proxy.core.leads import Wrote, stamp_of, stamped
from twinshore.proxy.core.messages import filled, part_of, read_said, request_kind, written
from twinshore.proxy.core.moves import Parts, Said
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import DESCRIBE_PRODUCERS
from twinshore.wire.batch import HEADER_BYTES, PREFIX_BYTES, SEQUENCE_SPAN, BatchHeader, next_batch, with_producer_id
from twinshore.wire.primitives import I32, Buffer
from twinshore.wire.serving import produce

_COUNT_AT = HEADER_BYTES - I32.size
# As idempotent producers may send, and brokers remember, of one partition.
IN_FLIGHT_MAX = 5
# So many producers of one client are told apart; it may name as many as it likes.
WRITERS_MAX = 1000


class Sequel(Enum):
    """NEXT: it follows, or nothing is known. TWICE: it is there already. EARLY: something is missing before it, unless
    the new home has it. STALE: its producer has been shut out."""

    NEXT = auto()
    TWICE = auto()
    EARLY = auto()
    STALE = auto()


class Batch(NamedTuple):
    """The one batch that a producer may send to a partition."""

    header: BatchHeader
    data: memoryview


def batch_in(records: memoryview | bytes | None) -> Batch | None:
    """None where it is none that could be read: that is for the broker to refuse."""
    view = memoryview(records or b"")
    try:
        found = next_batch(view, 0, 0)
    except WireError:
        return None
    if found is None or len(found[0]) != len(view) or found[1].length != len(view) - PREFIX_BYTES:
        return None
    return Batch(found[1], view)


def count_in(records: memoryview | bytes | None) -> int:
    """How many records its batch says that it has: the producer's word."""
    if records is None or len(records) < HEADER_BYTES:
        return 0
    return max(0, int(I32.unpack_from(records, _COUNT_AT)[0]))


def sequel(header: BatchHeader, wrote: Wrote) -> Sequel:
    """How the batch stands to what its producer wrote last elsewhere."""
    if header.producer_epoch != wrote.epoch:
        return Sequel.NEXT if header.producer_epoch > wrote.epoch else Sequel.STALE
    ahead = distance(header.base_sequence, wrote.last)
    if ahead == 1:
        return Sequel.NEXT
    if ahead > 1:
        return Sequel.NEXT if wrote.lost else Sequel.EARLY
    return Sequel.TWICE if distance(header.base_sequence + header.count - 1, wrote.last) <= 0 else Sequel.EARLY


def offset_in(header: BatchHeader, wrote: Wrote) -> int | None:
    """Where the batch is, that came a second time; None where that is not known."""
    numbers = header.base_sequence, (header.base_sequence + header.count - 1) % SEQUENCE_SPAN
    for one in wrote.batches:
        if numbers == (one.base_sequence, one.last_sequence):
            return one.base_offset
    return None


def distance(sequence: int, last: int) -> int:
    """By how much it lies behind the last one; sequences begin anew at their end."""
    found = (sequence - last) % SEQUENCE_SPAN
    return found if found < SEQUENCE_SPAN // 2 else found - SEQUENCE_SPAN


def under(batch: Batch, producer_id: int) -> Buffer:
    """The batch as this producer's."""
    return b"".join((with_producer_id(batch.header, producer_id), batch.data[HEADER_BYTES:]))


_REFUSED: Mapping[Sequel, Code] = {
    Sequel.TWICE: Code.DUPLICATE_SEQUENCE_NUMBER,  # which clients take for written
    Sequel.EARLY: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Sequel.STALE: Code.INVALID_PRODUCER_EPOCH,
}


class Writer(NamedTuple):
    """A producer in a partition, by the id under which it writes there now."""

    topic: str
    partition: int
    producer_id: int


class Judged(NamedTuple):
    """`asked`: what may go on, as it is to be sent; `changed`: whether it is other than it came. `refused`: what may
    not, and why; `there`: what need not, as it is at this offset already. `early`: what may only where the new home
    knows its producer already. `begins`: producers that the new home knows once it has taken this."""

    asked: produce.ProduceRequest
    changed: bool = False
    refused: Mapping[tuple[str, int], Code] = {}
    there: Mapping[tuple[str, int], int] = {}
    early: Sequence[Writer] = ()
    begins: Sequence[Writer] = ()


class MovedWriters:
    """Those of one client. It remembers which of them the new home knows. `again` counts for all clients."""

    def __init__(self, again: Again | None = None) -> None:
        self._begun: set[Writer] = set()
        self._again = again or Again()
        self._unsure: dict[Writer, int] = {}

    def judge(self, asked: produce.ProduceRequest, seen: Seen, here: frozenset[str]) -> Judged:
        """`here`: the topics that are at home where this was sent."""
        kept: list[produce.Batches] = []
        refused: dict[tuple[str, int], Code] = {}
        there: dict[tuple[str, int], int] = {}
        early: list[Writer] = []
        begins: list[Writer] = []
        changed = False
        for one in asked.batches:
            topic = str(one.topic)
            if topic not in here:
                refused[topic, one.partition] = Code.NOT_LEADER_OR_FOLLOWER
                continue
            batch = batch_in(one.records) if topic in seen.leads else None
            if batch is None or batch.header.producer_id < 0:
                kept.append(one)
                continue
            writer = Writer(topic, one.partition, stamped(batch.header.producer_id, stamp_of(seen.leads[topic].term)))
            known = seen.wrote.get((topic, one.partition), {}).get(batch.header.producer_id)
            how = self._how(batch, writer, known, seen)
            self._count(batch, how, writer, seen)
            if how is Sequel.TWICE and known is not None and (offset := offset_in(batch.header, known)) is not None:
                there[topic, one.partition] = offset
                continue
            if how in _REFUSED and how is not Sequel.EARLY:
                refused[topic, one.partition] = _REFUSED[how]
                continue
            if how is Sequel.EARLY:
                early.append(writer)
            begins.append(writer)
            if writer.producer_id != batch.header.producer_id:
                one, changed = one._replace(records=bytes(under(batch, writer.producer_id))), True
            kept.append(one)
        return Judged(asked._replace(batches=kept), changed, refused, there, early, begins)

    def _count(self, batch: Batch, how: Sequel, writer: Writer, seen: Seen) -> None:
        """A batch that is sent once more because its connection ended counts once more. A producer had no more batches
        on their way than these first ones."""
        if how is Sequel.TWICE and seen.leads[writer.topic].torn is not None:
            self._again.known += batch.header.count
        elif how is Sequel.NEXT and (most := seen.unsure.get((writer.topic, writer.partition))):
            before = self._unsure.get(writer, 0)
            if before or len(self._unsure) < WRITERS_MAX:
                self._unsure[writer] = before + 1
            if before < IN_FLIGHT_MAX:
                term = seen.leads[writer.topic].term
                self._again.is_unsure(writer.topic, writer.partition, term, batch.header.count, most)

    def _how(self, batch: Batch, writer: Writer, known: Wrote | None, seen: Seen) -> Sequel:
        if writer in self._begun:
            return Sequel.NEXT
        how = sequel(batch.header, known) if known is not None else Sequel.NEXT
        home = seen.clusters.get(seen.leads[writer.topic].cluster or "")
        can_tell = home is not None and DESCRIBE_PRODUCERS in home.offers
        return Sequel.NEXT if how is Sequel.EARLY and not can_tell else how

    def question(self, judged: Judged) -> Parts:
        """Which producers the new home knows."""
        kind = request_kind(DESCRIBE_PRODUCERS, 0)
        part = part_of(kind, "topics")
        numbers: dict[str, list[int]] = {}
        for one in judged.early:
            numbers.setdefault(one.topic, []).append(one.partition)
        topics = tuple(filled(part, name=topic, partition_indexes=tuple(some)) for topic, some in numbers.items())
        return written(filled(kind, topics=topics))

    def told(self, judged: Judged, said: Said) -> Judged:
        """What may go on once that is answered. Of whom nothing could be heard, its client asks again: to say that it
        is out of order would end a producer for good because a broker is away."""
        known: set[Writer] = set()
        heard: set[tuple[str, int]] = set()
        topics: Sequence[Any] = () if said is None else read_said(DESCRIBE_PRODUCERS, 0, said).topics
        for topic in topics:
            for part in topic.partitions:
                if not part.error_code:
                    heard.add((str(topic.name), part.partition_index))
                known |= {
                    Writer(str(topic.name), part.partition_index, one.producer_id) for one in part.active_producers
                }
        self._begun |= known & set(judged.early)
        out = {(one.topic, one.partition) for one in judged.early if one not in known}
        kept = [one for one in judged.asked.batches if (str(one.topic), one.partition) not in out]
        why = {one: _REFUSED[Sequel.EARLY] if one in heard else Code.NOT_LEADER_OR_FOLLOWER for one in out}
        refused = {**judged.refused, **why}
        begins = [one for one in judged.begins if (one.topic, one.partition) not in out]
        asked = judged.asked._replace(batches=kept)
        return judged._replace(asked=asked, refused=refused, early=(), begins=begins)

    def heard(self, begins: Sequence[Writer], answer: produce.ProduceAnswer) -> None:
        """What the new home has taken."""
        if not begins:
            return
        taken = {(str(one.topic), one.partition) for one in answer.appended if not one.error}
        self._begun.update(one for one in begins if (one.topic, one.partition) in taken)
