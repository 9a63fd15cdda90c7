"""A rescued tail: what an old home took and never sent, as lines of JSON, in a topic and in files. Pure.

The first line says where the records lay, the last one how many they are: a copy without it is not whole. Bytes are in
base 64. All lines of one attempt to save a tail have one key in the topic. What ends transactions is no record: it is
told as the ending of the records that it ended.

Whether two logs hold the same right below an offset. Pure.

A switch leaves a marker right below its point, and so does each transaction that ends there. Markers, holes and records
of aborted transactions hold nothing that could be lost, so that the look goes on below them, to the last record that
either log holds: an old home that lost its end before it grew again holds another one there.

Which records of a twin its home does not hold. Pure.

Both logs are walked side by side. A record of the twin is its home's if the home holds the same one at the same offset.
What the link wrote may also lie some offsets behind its place, where somebody else's records came before it.

Rescued records as they are written again: in which batches, and what a topic's home has of them. Pure.

A record is known by where it lay: cluster, topic id, partition and offset, in whichever file it is. A batch is told
before it is sent and once it is answered. So a batch whose answer was lost is known to its broker when it comes again,
and what was written at a home that died before it crossed counts no more.

What an old home that has returned holds and never sent, partition by partition, or a twin that is spoilt. Pure.

The link back tells it: where it found such records it stopped its partition, and elsewhere it goes on. A partition that
it has not looked at yet is waited for.

What others wrote behind the point at which a partition changes homes, before it had its fence. Pure.

It may be any amount, and whoever writes may be faster than the one who reads. So it is read in stretches: each ends
where the log ended when the stretch began, and the switch's record remembers how far it was read.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, StrEnum, auto
from hashlib import blake2b
from typing import Any, NamedTuple

from twinshore.config.errors import WireError
from twinshore.config.frozen import (
    LINE_VERSION,
    LINE_VERSION_KEY,
    RESCUED_HEADER,
    RESCUED_KEY,
    RESCUED_VERSION,
    RESCUED_WHAT,
)
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.config.sentences import count_phrase, join_names
from twinshore.kafka.protocol.primitives import Buffer, encode_json
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, Record, iter_records
from twinshore.routing.core.home_records import NewerLine, versioned
from twinshore.state.core.progress_rules import PRODUCER_AGE_MS
from twinshore.switch.core.steps import ForeignWrites, SwitchKind, TopicMove
from twinshore.switch.core.steps import SwitchState as Switch

VERSIONED = {LINE_VERSION_KEY: LINE_VERSION}
RECORD_LINE = b'{"offset":'
MARKER_KEY_BYTES = 4
COMMIT_MARKER_TYPE = 1


class TransactionOutcome(StrEnum):
    """What became of a record. OPEN: its transaction never ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RescueOrigin:
    """Where a tail lay: offsets `first` up to `end` of a partition of `cluster`. `home`: where its topic is at home
    instead, since the switch."""

    switch: str
    cluster: str
    home: str
    topic: str
    topic_id: str
    partition: int
    first: int
    end: int

    def file_name(self) -> str:
        """The same for the same tail, so that a tail saved twice is one file."""
        return f"{self.switch[:8]}-{self.topic}-{self.partition}-{self.first}-{self.end}.jsonl"


@dataclass(frozen=True, slots=True)
class RecordCount:
    """How many records a tail holds, and how many of them consumers see that read what was committed."""

    records: int = 0
    committed: int = 0

    def with_one(self, ending: TransactionOutcome) -> RecordCount:
        return RecordCount(self.records + 1, self.committed + (ending is TransactionOutcome.COMMITTED))


@dataclass(frozen=True, slots=True)
class UnreplicatedRecord:
    """A record of a tail."""

    record: Record
    ending: TransactionOutcome


@dataclass(slots=True)
class TransactionOutcomes:
    """What became of each record, by the markers that lie behind it. They are told in the order of the log."""

    _ends: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, producer_id: int, offset: int, key: bytes | None) -> None:
        """A control record of this producer."""
        self._ends[producer_id].append((offset, is_commit_marker(key)))

    def of(self, producer_id: int, offset: int) -> TransactionOutcome:
        """Of a record that was written in a transaction."""
        end = next((commit for at, commit in self._ends.get(producer_id, ()) if at > offset), None)
        if end is None:
            return TransactionOutcome.OPEN
        return TransactionOutcome.COMMITTED if end else TransactionOutcome.ABORTED


@dataclass(frozen=True, slots=True)
class RescueCopy:
    """A tail in the topic of rescued records: its first line lies at offset `at` or behind."""

    at: int
    key: bytes


@dataclass(slots=True)
class RescueCopies:
    """Which tails a topic of rescued records holds whole, as its lines are read in order."""

    whole: dict[RescueOrigin, tuple[RescueCopy, RecordCount]] = field(default_factory=dict)
    _open: dict[bytes, tuple[RescueOrigin, RescueCopy, int]] = field(default_factory=dict)

    def take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        if key not in self._open:
            with suppress(WireError, UnicodeDecodeError):
                self._open[key] = read_header(value.decode(), "a line"), RescueCopy(offset, key), 0
            return
        origin, copy, records = self._open[key]
        if not is_count_line(value):
            self._open[key] = origin, copy, records + 1
            return
        del self._open[key]
        with suppress(ValueError, TypeError, WireError):
            count = RecordCount(**_read(value.decode(), "a line"))
            if count.records == records:
                self.whole[origin] = copy, count


def is_count_line(line: bytes) -> bool:
    """Whether a line behind the first is the one that says how many records there are."""
    return not line.startswith(RECORD_LINE)


def rescue_key(origin: RescueOrigin, attempt: str) -> bytes:
    """The key of all lines of one attempt to save this tail."""
    return encode_json([origin.switch, origin.topic, origin.partition, attempt])


def is_commit_marker(key: bytes | None) -> bool:
    """Whether a control record commits: its key holds a version and a type, two bytes each."""
    return key is not None and len(key) >= MARKER_KEY_BYTES and int.from_bytes(key[2:4], "big") == COMMIT_MARKER_TYPE


def header_line(origin: RescueOrigin) -> str:
    return json.dumps({**VERSIONED, RESCUED_KEY: RESCUED_WHAT, "version": RESCUED_VERSION, **asdict(origin)})


def record_line(saved: UnreplicatedRecord) -> str:
    one = saved.record
    return json.dumps(
        {
            "offset": one.offset,
            "timestamp": one.timestamp,
            "key": _text(one.key),
            "value": _text(one.value),
            "headers": [[_text(name), _text(value)] for name, value in one.headers],
            "fate": saved.ending,
            **VERSIONED,  # behind the offset, by which such a line is known
        },
        separators=(",", ":"),
    )


def count_line(count: RecordCount) -> str:
    return json.dumps({**VERSIONED, **asdict(count)})


def read_header(line: str, name: str) -> RescueOrigin:
    """WireError where the file is none of a rescued tail."""
    try:
        raw = _read(line, name)
        if raw.pop(RESCUED_KEY) != RESCUED_WHAT or raw.pop("version") != RESCUED_VERSION:
            raise ValueError(line)
        return RescueOrigin(**raw)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"{name} is no file of a rescued tail") from error


def read_lines(lines: Iterable[str], name: str) -> Iterator[UnreplicatedRecord]:
    """The records behind the first line, in order. WireError where a line is none, or the last one is not there."""
    count = RecordCount()
    for line in lines:
        try:
            raw = _read(line, name)
            if "offset" not in raw:
                if RecordCount(**raw) != count:
                    raise WireError(f"{name} is damaged: it says {raw['records']} records and holds {count.records}")
                return
            saved = _saved(raw)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError(f"{name} is damaged behind record {count.records}") from error
        count = count.with_one(saved.ending)
        yield saved
    raise WireError(f"{name} is not whole: it ends behind record {count.records}")


def _read(line: str, name: str) -> dict[str, Any]:
    """A line of a tail without its version. WireError where that is a newer one, ValueError where it is no line."""
    raw = json.loads(line)
    found = versioned(raw) if isinstance(raw, dict) else None
    if isinstance(found, NewerLine):
        raise WireError(
            f"{name} was written by a newer version (v {found.version}), which this one cannot read",
            hint="read it with that version",
        )
    if found is None:
        raise ValueError(line)
    found.pop(LINE_VERSION_KEY, None)
    return found


def _saved(raw: dict[str, Any]) -> UnreplicatedRecord:
    headers = tuple((_bytes(header) or b"", _bytes(value)) for header, value in raw["headers"])
    record = Record(int(raw["offset"]), int(raw["timestamp"]), _bytes(raw["key"]), _bytes(raw["value"]), headers)
    return UnreplicatedRecord(record, TransactionOutcome(raw["fate"]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


LOOKBACK_OFFSETS = (1, 4, 64, 1_024, 16_384)  # so many offsets are looked at, more where these hold no record


class LogMatch(Enum):
    """UNKNOWN: one of the logs alone holds a record there, or there is nothing to be compared."""

    SAME = auto()
    DIFFERENT = auto()
    UNKNOWN = auto()


BatchBytes = tuple[Buffer, BatchHeader]
ReadFromOffset = Callable[[int], Iterable[BatchBytes] | None]


def compare_logs_below(
    at: int, one_start: int, other_start: int, one: ReadFromOffset, other: ReadFromOffset
) -> LogMatch:
    """By the last record below `at` of two logs, which begin at these offsets. `one` and `other` read all that lies
    from an offset up to `at`, None where it is too much or cannot be read."""
    begin = max(one_start, other_start)
    for span in LOOKBACK_OFFSETS:
        first = max(begin, at - span)
        if first >= at:
            break
        pages = one(first), other(first)
        if pages[0] is None or pages[1] is None:
            break
        found = _compared(_held(pages[0], first, at), _held(pages[1], first, at))
        if found is not None:
            return found
        if first == one_start:
            return LogMatch.SAME  # `one` holds nothing at all that could be another's
        if first == begin:
            break
    return LogMatch.UNKNOWN


def _held(page: Iterable[BatchBytes], first: int, at: int) -> dict[int, tuple[Record, bool]]:
    """The records from `first` up to `at` by their offsets, each with whether its transaction was aborted."""
    endings, found = TransactionOutcomes(), []
    for view, header in page:
        for record in iter_records(view, header):
            if not first <= record.offset < at:
                continue
            if header.attributes & CONTROL_FLAG:
                endings.note(header.producer_id, record.offset, record.key)
            else:
                found.append((record, header))
    return {
        record.offset: (record, bool(header.attributes & TRANSACTIONAL_FLAG) and _aborted(endings, header, record))
        for record, header in found
    }


def _aborted(endings: TransactionOutcomes, header: BatchHeader, record: Record) -> bool:
    return endings.of(header.producer_id, record.offset) is TransactionOutcome.ABORTED


def _compared(one: dict[int, tuple[Record, bool]], other: dict[int, tuple[Record, bool]]) -> LogMatch | None:
    """None where neither holds a record that could be lost."""
    for offset in sorted(one.keys() | other.keys(), reverse=True):
        held = [log[offset] for log in (one, other) if offset in log]
        if len(held) == 2:
            return LogMatch.SAME if held[0][0] == held[1][0] else LogMatch.DIFFERENT
        if not held[0][1]:
            return LogMatch.UNKNOWN
    return None


HOME_RECORDS_REMEMBERED_MAX = 100_000  # so many records of the home are remembered for what lies behind its place
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class TwinRecord:
    """A record of the twin, and the producer id that wrote it."""

    saved: UnreplicatedRecord
    producer_id: int


@dataclass(frozen=True, slots=True)
class HomeComparison:
    """What is known of both. `start`: where the home's log begins. `ours`: as whom the link writes. `known_to`: how far
    the twin is known to be a copy. `compacted`: the home may lack what it has cleaned."""

    start: int
    ours: Container[int]
    known_to: int
    compacted: bool = False


@dataclass(slots=True)
class _Passed:
    """The records of the home that were passed last, by what they hold."""

    digests: deque[bytes] = field(default_factory=deque)
    counts: Counter[bytes] = field(default_factory=Counter)

    def note(self, record: Record) -> None:
        digest = _digest(record)
        self.digests.append(digest)
        self.counts[digest] += 1
        if len(self.digests) > HOME_RECORDS_REMEMBERED_MAX:
            gone = self.digests.popleft()
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone]

    def holds(self, record: Record) -> bool:
        return _digest(record) in self.counts


def records_missing_at_home(
    twin: Iterable[TwinRecord], home: Iterable[Record], seen: HomeComparison
) -> Iterator[UnreplicatedRecord]:
    """The twin's records that the home lacks, in order. Both come in the order of their offsets, without markers."""
    passed, rest = _Passed(), iter(home)
    one = next(rest, None)
    for written in twin:
        record, ours = written.saved.record, written.producer_id in seen.ours
        while one is not None and one.offset < record.offset:
            passed.note(one)
            one = next(rest, None)
        there = one is not None and one.offset == record.offset
        if one is not None and there and _same(one, record):
            continue
        if record.offset < seen.start and (ours or record.offset < seen.known_to):
            continue  # its home has deleted it by now
        if ours and (passed.holds(record) or (seen.compacted and not there)):
            continue
        yield written.saved


def _same(one: Record, other: Record) -> bool:
    return one[1:] == other[1:]


def _digest(record: Record) -> bytes:
    return blake2b(repr(record[1:]).encode(), digest_size=DIGEST_BYTES).digest()


BATCH_RECORDS = 500
BATCH_BYTES = 256 * 1024
END_UNKNOWN = 1 << 62


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """Records that were written to `topic`, where it was at home in `term`. `runs`: the first and the last offset of
    each run of them in the log where they lay; `end`: behind the last one where they lie now, `END_UNKNOWN` until that
    is answered. A producer's id means something on the `cluster` alone that has given it. `told_ms`: before it was sent
    first."""

    topic: str
    cluster: str
    term: int
    producer_id: int
    producer_epoch: int
    sequence: int
    runs: tuple[tuple[int, int], ...]
    end: int = END_UNKNOWN
    told_ms: int = 0

    def subject(self, origin: RescueOrigin) -> str:
        return f"{batch_subject_prefix(origin)}{self.topic} {self.runs[0][0]}"

    def is_doubtful(self, home: str, now_ms: int) -> bool:
        """Whether the home cannot be asked for it by sending it again: it was sent to another cluster, or so long ago
        that brokers forget who sent it."""
        return self.end == END_UNKNOWN and (self.cluster != home or now_ms - self.told_ms >= PRODUCER_AGE_MS)

    def is_lost(self, partition: int, switches: Iterable[Switch]) -> bool:
        """Whether a switch by force left it behind on its cluster since."""
        return any(
            one.kind is SwitchKind.FORCED
            and one.committed
            and one.old == self.cluster
            and any(
                moved.topic == self.topic and moved.term >= self.term and self.end > point
                for moved in one.topics
                for point in moved.points[partition : partition + 1]
            )
            for one in switches
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ReplayedBatch:
        """WireError where it is none."""
        try:
            raw = json.loads(text)
            return ReplayedBatch(**{**raw, "runs": tuple((int(first), int(last)) for first, last in raw["runs"])})
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what was written again of a rescued file cannot be read") from error


def batch_subject_prefix(origin: RescueOrigin) -> str:
    """What the subjects of all its batches begin with."""
    return f"{origin.topic_id} {origin.partition} "


def offset_runs_of(some: Iterable[UnreplicatedRecord]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for one in some:
        at = one.record.offset
        first = found.pop()[0] if found and found[-1][1] == at - 1 else at
        found.append((first, at))
    return tuple(found)


def replayed_offsets(some: Iterable[ReplayedBatch]) -> set[int]:
    return {at for batch in some for first, last in batch.runs for at in range(first, last + 1)}


def split_into_batches(saved: Iterable[UnreplicatedRecord]) -> Iterator[list[UnreplicatedRecord]]:
    some: list[UnreplicatedRecord] = []
    size = 0
    for one in saved:
        record = one.record
        weight = len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) + len(value or b"") for name, value in record.headers)
        if some and (len(some) == BATCH_RECORDS or size + weight > BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += weight
    if some:
        yield some


def records_to_replay(some: Sequence[UnreplicatedRecord], origin: RescueOrigin) -> list[Record]:
    """Offsets from 0. Key, value, headers and time stamps are kept; one header more says where each record lay."""
    lay = f"{origin.cluster} {origin.topic}-{origin.partition}"
    return [
        one.record._replace(
            offset=at, headers=(*one.record.headers, (RESCUED_HEADER, f"{lay} {one.record.offset}".encode()))
        )
        for at, one in enumerate(some)
    ]


# Of these the ledger names the first offset that is not the home's; of the others it names one that is not.
EXACT_DIVERGENCE_KINDS = frozenset({IncidentKind.FOREIGN_WRITE})
DIVERGENCE_KINDS = frozenset({IncidentKind.FOREIGN_WRITE, IncidentKind.TRUNCATION, IncidentKind.POSITION_DISAGREEMENT})

NAMED_MAX = 5

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OldHomePartition:
    """A partition of the old home: `start` and `end` of its log, the `point` below which it was at home there, how far
    the link back has `carried` it (-1: not at all), and which incident `stopped` it, at which offset. `strays_at`: the
    first offset behind what was carried that the link did not write, where it has not met that yet; -1 for none.
    `one_past`: whether both homes hold the same right below where they part. `differs`: it holds other records than its
    home below what was carried, though nothing has stopped for it: a proof says so, or one look at its end."""

    topic: str
    partition: int
    start: int
    end: int
    point: int
    carried: int = -1
    stopped: IncidentKind | None = None
    stopped_at: int = -1
    strays_at: int = -1
    one_past: bool = True
    differs: bool = False


@dataclass(frozen=True, slots=True)
class UnreplicatedRange:
    """Offsets `first` up to `end` never crossed, or nobody knows which of them did. `beside`: what the topic's home
    holds as well is not saved. `gone`: so many before `first` were deleted there before anybody saw them. `saved_at`
    and `saved_as`: from which offset of the topic of rescued records the others lie, and under which key; `file`: where
    they were exported to."""

    topic: str
    partition: int
    first: int
    end: int
    records: int = 0
    committed: int = 0
    file: str = ""
    beside: bool = False
    gone: int = 0
    saved_at: int = -1
    saved_as: str = ""

    @property
    def where(self) -> PartitionKey:
        return self.topic, self.partition

    def __str__(self) -> str:
        if self.end <= self.first:
            return f"{self.topic}-{self.partition} offset {self.first} on, of which nothing is left,"
        span = f"offset {self.first}" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.topic}-{self.partition} {span}"


def find_unreplicated_ranges(stood: Iterable[OldHomePartition]) -> tuple[UnreplicatedRange, ...]:
    """What would be lost with the old home's topics: of each partition that was stopped, that strangers wrote to, or
    that nobody looked at yet, what lies behind the point. Where all of it is gone by now, it is told nevertheless: the
    twin was not filled there."""
    return tuple(
        UnreplicatedRange(
            one.topic, one.partition, divergence_offset(one), one.end, beside=not _told(one), gone=_gone(one)
        )
        for one in stood
        if has_diverged(one) or (has_unchecked_records(one) and one.end > divergence_offset(one))
    )


def find_doubtful_ranges(stood: Iterable[OldHomePartition]) -> tuple[UnreplicatedRange, ...]:
    """What must be compared with the home before a spoilt twin is deleted, once the mirror has let go of it. Up to
    where the link's receipts go a twin is its home's, unless the ledger says that both part somewhere: then nobody
    knows where, and all that the twin holds is compared."""
    found = [
        UnreplicatedRange(
            one.topic, one.partition, one.start if one.differs else divergence_offset(one), one.end, beside=True
        )
        for one in stood
    ]
    return tuple(one for one in found if one.end > one.first)


def find_unfilled_partitions(topics: Iterable[TopicMove], ends: Mapping[PartitionKey, int]) -> Iterator[str]:
    """The partitions of twins made anew that are not filled yet up to their points."""
    for one in topics:
        for number, point in enumerate(one.points):
            if ends[one.topic, number] < point:
                yield f"{one.topic}-{number}"


def describe_unfilled(topics: Iterable[TopicMove], ends: Mapping[PartitionKey, int]) -> str:
    """What twins made anew wait for; empty once they are filled up to their points."""
    lacking = list(find_unfilled_partitions(topics, ends))
    return f"still to be filled: {join_names(lacking, NAMED_MAX)}" if lacking else ""


def has_diverged(one: OldHomePartition) -> bool:
    """Whether the partition has another history than its home."""
    return one.stopped in DIVERGENCE_KINDS or one.strays_at >= 0


def has_unchecked_records(one: OldHomePartition) -> bool:
    """Whether the partition has records of which nobody knows yet whose they are."""
    return not has_diverged(one) and one.end > max(one.point, one.carried)


def find_differing_partitions(stood: Iterable[OldHomePartition], topics: Iterable[str]) -> tuple[str, ...]:
    """Partitions of these topics that hold other records below what was carried: nobody has saved these."""
    ours = set(topics)
    return tuple(f"{one.topic}-{one.partition}" for one in stood if one.differs and one.topic in ours)


def explain_differing_partitions(others: Iterable[str], old: str, new: str) -> str:
    """Why a fail-back is left alone, and what does it instead."""
    some = join_names(list(others), NAMED_MAX)
    return (
        f"{some} of {old} holds other records than {new} below what was carried: `twinshore mirror rebuild` saves "
        "these, too, and fills the topic anew"
    )


def find_changed_ranges(
    found: Iterable[UnreplicatedRange], now: Iterable[UnreplicatedRange]
) -> tuple[UnreplicatedRange, ...]:
    """The tails that were not there when `found` was saved, or end elsewhere now."""
    known = {(one.topic, one.partition): one.end for one in found}
    return tuple(one for one in now if known.get((one.topic, one.partition)) != one.end)


def describe_deleted_offsets(found: Iterable[UnreplicatedRange]) -> str:
    """What is left to be said of tails that nobody can save; empty where there is none."""
    gone = sum(one.gone for one in found)
    return f"; {count_phrase(gone, 'offset')} of it were deleted there before anybody saw them" if gone else ""


def topics_of_ranges(found: Iterable[UnreplicatedRange]) -> tuple[str, ...]:
    return tuple(sorted({one.topic for one in found}))


def clamp_offsets(places: Mapping[PartitionKey, int], starts: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Where groups go on in what the twins hold: behind a tail that is no more, nothing is theirs to have read."""
    return {where: min(place, starts.get(where, place)) for where, place in places.items()}


def ranges_to_json(found: Iterable[UnreplicatedRange]) -> str:
    return json.dumps([asdict(one) for one in found], separators=(",", ":"))


def ranges_from_json(text: str) -> tuple[UnreplicatedRange, ...]:
    """WireError where it is none."""
    try:
        return tuple(UnreplicatedRange(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("what never crossed cannot be read from the switch's record") from error


def _told(one: OldHomePartition) -> bool:
    """Whether it is known where both homes part. An old home that lost its end, and took other records beyond it, parts
    below what was carried."""
    return one.one_past and (one.stopped in EXACT_DIVERGENCE_KINDS or one.stopped not in DIVERGENCE_KINDS)


def divergence_offset(one: OldHomePartition) -> int:
    """Where the two homes part. Where nobody knows, all that the log holds is looked at."""
    return max(one.start, _known_at(one)) if _told(one) else one.start


def _known_at(one: OldHomePartition) -> int:
    known = max(one.point, one.carried)
    if one.stopped in EXACT_DIVERGENCE_KINDS:
        return min(one.stopped_at, known)
    return max(known, one.strays_at)


def _gone(one: OldHomePartition) -> int:
    return max(0, one.start - _known_at(one)) if _told(one) else 0


class PastPointContent(StrEnum):
    """What lies from the point on: the fence, perhaps behind records of others; these alone, up to the end of the
    stretch; what the link wrote; or what has to be read still."""

    FENCED = "fenced"
    FOREIGN_WRITES = "strays"
    LINK_WRITES = "the link's"
    UNREAD = "unread"


class PastPointScan(NamedTuple):
    """`what` lies from the `point` on, as far as `stray` says that it was read."""

    what: PastPointContent
    stray: ForeignWrites
    point: int


def next_scan_range(
    known: ForeignWrites | None, named: TopicPartition, point: int, start: int, end: int
) -> ForeignWrites:
    """What is to be read next, in a log from `start` to `end`: the rest of the stretch that is known, or what has come
    behind it. What was deleted of the log meanwhile nobody can read; of one that was cut all is read again."""
    if known is None or not point <= known.read <= end:
        known = ForeignWrites(named.topic, named.partition, point, point)
    until = known.until if known.read < known.until else end
    return replace(known, read=max(known.read, start), until=min(until, end))


def scan_past_point(
    stray: ForeignWrites,
    point: int,
    theirs: Collection[int],
    is_fence: Callable[[BatchHeader], bool],
    batches: Callable[[int], Iterable[BatchHeader]],
    may_go_on: Callable[[], bool],
    *,
    follows: bool = False,
) -> PastPointScan:
    """What lies in the stretch, and how far it is read by now. `theirs`: the link's producer ids. `batches`: some from
    this offset on; none where they cannot be read yet. `may_go_on` is asked behind each of these reads. `follows`: the
    point moves behind what the link wrote, wherever that lies, and is never lost to it."""
    at = stray.read
    while at < stray.until:
        found = [header for header in batches(at) if header.last_offset >= at]
        for header in found:
            if is_fence(header):
                return PastPointScan(PastPointContent.FENCED, replace(stray, read=max(at, header.base_offset)), point)
            if header.producer_id in theirs or header.base_offset < point:
                if not follows:
                    return PastPointScan(PastPointContent.LINK_WRITES, replace(stray, read=at), point)
                point = header.last_offset + 1
            at = header.last_offset + 1
        if not found or (at < stray.until and not may_go_on()):
            return PastPointScan(PastPointContent.UNREAD, replace(stray, read=at), point)
    return PastPointScan(PastPointContent.FOREIGN_WRITES, replace(stray, read=at), point)
