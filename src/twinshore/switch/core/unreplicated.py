"""Unreplicated records of an old home or a spoilt twin: how to find, save, and replay them.

Rescued records are lines of JSON, in a topic and in files. The first line is the origin, the last one the record count,
without which a copy is incomplete. Bytes are in base 64. In the topic, all lines of one attempt share a key. Each
record carries the outcome of its transaction; markers are not saved.

Two logs are compared right below an offset, where transactions and switches leave markers. Markers, gaps and aborted
records hold nothing that could be lost, so the comparison goes down to the last real record of either log: an old home
that lost its end and then grew again holds another record there.

To find records that the home lacks, twin and home are read side by side. The home has a record if it holds the same one
at the same offset. A record of the link may also be some offsets earlier at home, after foreign records on the twin.

Replayed records are identified by cluster, topic id, partition and offset of origin. A batch is noted before it is
sent, and again once acknowledged, so its broker recognises a resend after a lost response. A batch on a home that died
before replicating it no longer counts.

The reverse link stops a partition with unreplicated records. Partitions that the link has not checked yet are waited
for.

Foreign writes past a point, before its fence, may arrive faster than they are read. So they are scanned in ranges: each
ends where the log ended when the range began, and the switch state remembers the position.
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
    """The outcome of a record's transaction. OPEN: the transaction never ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RescueOrigin:
    """Offsets `first` up to `end` of a partition of `cluster`. `home`: the home of the topic since the switch."""

    switch: str
    cluster: str
    home: str
    topic: str
    topic_id: str
    partition: int
    first: int
    end: int

    def file_name(self) -> str:
        """Depends on the origin alone, so that records saved twice are one file."""
        return f"{self.switch[:8]}-{self.topic}-{self.partition}-{self.first}-{self.end}.jsonl"


@dataclass(frozen=True, slots=True)
class RecordCount:
    """`committed`: records visible to read_committed consumers."""

    records: int = 0
    committed: int = 0

    def with_one(self, ending: TransactionOutcome) -> RecordCount:
        return RecordCount(self.records + 1, self.committed + (ending is TransactionOutcome.COMMITTED))


@dataclass(frozen=True, slots=True)
class UnreplicatedRecord:
    record: Record
    ending: TransactionOutcome


@dataclass(slots=True)
class TransactionOutcomes:
    """Outcomes of transactions, by the markers after each record. Note markers in log order."""

    _ends: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, producer_id: int, offset: int, key: bytes | None) -> None:
        self._ends[producer_id].append((offset, is_commit_marker(key)))

    def of(self, producer_id: int, offset: int) -> TransactionOutcome:
        end = next((commit for at, commit in self._ends.get(producer_id, ()) if at > offset), None)
        if end is None:
            return TransactionOutcome.OPEN
        return TransactionOutcome.COMMITTED if end else TransactionOutcome.ABORTED


@dataclass(frozen=True, slots=True)
class RescueCopy:
    """A copy in the topic of rescued records. `at`: the first line has this offset or a later one."""

    at: int
    key: bytes


@dataclass(slots=True)
class RescueCopies:
    """Finds complete copies in a topic of rescued records. Pass the lines in order."""

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
    """Returns whether a line after the first is the record count."""
    return not line.startswith(RECORD_LINE)


def rescue_key(origin: RescueOrigin, attempt: str) -> bytes:
    return encode_json([origin.switch, origin.topic, origin.partition, attempt])


def is_commit_marker(key: bytes | None) -> bool:
    """Returns whether a control record commits. The key holds version and type, two bytes each."""
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
    """Raises WireError if the file is not one of rescued records."""
    try:
        raw = _read(line, name)
        if raw.pop(RESCUED_KEY) != RESCUED_WHAT or raw.pop("version") != RESCUED_VERSION:
            raise ValueError(line)
        return RescueOrigin(**raw)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"{name} is no file of a rescued tail") from error


def read_lines(lines: Iterable[str], name: str) -> Iterator[UnreplicatedRecord]:
    """Yields the records after the first line. Raises WireError if a line is invalid or the count is missing."""
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
    """Returns a rescue line without its version. WireError for a newer line, ValueError for a malformed one."""
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
    """UNKNOWN: only one of the logs holds a record there, or there is nothing to compare."""

    SAME = auto()
    DIFFERENT = auto()
    UNKNOWN = auto()


BatchBytes = tuple[Buffer, BatchHeader]
ReadFromOffset = Callable[[int], Iterable[BatchBytes] | None]


def compare_logs_below(
    at: int, one_start: int, other_start: int, one: ReadFromOffset, other: ReadFromOffset
) -> LogMatch:
    """Compares the last record below `at` of two logs that start at `one_start` and `other_start`. `one` and `other`
    read all batches from an offset up to `at`, or return None if that is impossible.
    """
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
    """Returns records by offset, each with whether its transaction was aborted."""
    endings, found = TransactionOutcomes(), []
    for view, header in page:
        for record in iter_records(view, header):
            if not first <= record.offset < at:
                continue
            if header.attributes & CONTROL_FLAG:
                endings.note(header.producer_id, record.offset, record.key)
            else:
                found.append((record, header))
    held = {}
    for record, header in found:
        transactional = bool(header.attributes & TRANSACTIONAL_FLAG)
        aborted = endings.of(header.producer_id, record.offset) is TransactionOutcome.ABORTED
        held[record.offset] = (record, transactional and aborted)
    return held


def _compared(one: dict[int, tuple[Record, bool]], other: dict[int, tuple[Record, bool]]) -> LogMatch | None:
    """Returns None if neither log holds a record that could be lost."""
    for offset in sorted(one.keys() | other.keys(), reverse=True):
        held = [log[offset] for log in (one, other) if offset in log]
        if len(held) == 2:
            return LogMatch.SAME if held[0][0] == held[1][0] else LogMatch.DIFFERENT
        if not held[0][1]:
            return LogMatch.UNKNOWN
    return None


HOME_RECORDS_REMEMBERED_MAX = 100_000  # records of the home to remember, for twin records at later offsets
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class TwinRecord:
    saved: UnreplicatedRecord
    producer_id: int


@dataclass(frozen=True, slots=True)
class HomeComparison:
    """`start`: log start of the home. `ours`: producer ids of the link. `known_to`: the twin is a copy up to this
    offset. `compacted`: the home may have compacted records away.
    """

    start: int
    ours: Container[int]
    known_to: int
    compacted: bool = False


@dataclass(slots=True)
class _Passed:
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
    twin: Iterable[TwinRecord], home: Iterable[Record], comparison: HomeComparison
) -> Iterator[UnreplicatedRecord]:
    """Yields the twin's records that the home lacks, in order. Pass both in offset order, without markers."""
    passed, rest = _Passed(), iter(home)
    one = next(rest, None)
    for written in twin:
        record, ours = written.saved.record, written.producer_id in comparison.ours
        while one is not None and one.offset < record.offset:
            passed.note(one)
            one = next(rest, None)
        there = one is not None and one.offset == record.offset
        if one is not None and there and _same(one, record):
            continue
        if record.offset < comparison.start and (ours or record.offset < comparison.known_to):
            continue  # its home has deleted it by now
        if ours and (passed.holds(record) or (comparison.compacted and not there)):
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
    """Rescued records that were written to `topic` at home on `cluster` in `term`.

    `runs`: first and last offset of each run in the log of origin. `end`: offset after the last one in the new log;
    `END_UNKNOWN` until acknowledged. Producer ids are valid on `cluster` only. `told_ms`: before the first attempt.
    """

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
        """Returns whether a resend cannot settle if the batch was written: another cluster got the batch, or brokers
        forget its producer after so long.
        """
        return self.end == END_UNKNOWN and (self.cluster != home or now_ms - self.told_ms >= PRODUCER_AGE_MS)

    def is_lost(self, partition: int, switches: Iterable[Switch]) -> bool:
        """Returns whether a forced switch has since left the batch behind on its cluster."""
        return any(
            state.kind is SwitchKind.FORCED
            and state.committed
            and state.old == self.cluster
            and any(
                moved.topic == self.topic and moved.term >= self.term and self.end > point
                for moved in state.topics
                for point in moved.points[partition : partition + 1]
            )
            for state in switches
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ReplayedBatch:
        """Raises WireError if the text is invalid."""
        try:
            raw = json.loads(text)
            return ReplayedBatch(**{**raw, "runs": tuple((int(first), int(last)) for first, last in raw["runs"])})
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what was written again of a rescued file cannot be read") from error


def batch_subject_prefix(origin: RescueOrigin) -> str:
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
    """Returns the records with offsets from 0, and an added header that names the origin of each."""
    place, records = f"{origin.cluster} {origin.topic}-{origin.partition}", []
    for at, record in enumerate(saved.record for saved in some):
        header = (RESCUED_HEADER, f"{place} {record.offset}".encode())
        records.append(record._replace(offset=at, headers=(*record.headers, header)))
    return records


# For these the incident has the first diverging offset; for others it has any one.
EXACT_UNREPLICATED_KINDS = frozenset({IncidentKind.FOREIGN_WRITE})
UNREPLICATED_KINDS = frozenset(
    {IncidentKind.FOREIGN_WRITE, IncidentKind.TRUNCATION, IncidentKind.POSITION_DISAGREEMENT}
)


PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OldHomePartition:
    """A partition of the old home. `point`: the old home was the home below this offset. `carried`: progress of the
    reverse link (-1: none). `stopped`, `stopped_at`: the incident that stopped the partition, and its offset.
    `strays_at`: first foreign offset past `carried` that the link has not met yet; -1 for none. `one_past`: both homes
    are the same right below the divergence. `differs`: records below `carried` differ though no incident stopped the
    partition.
    """

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

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class UnreplicatedRange:
    """Offsets `first` up to `end` that are unreplicated, or may be.

    `beside`: save only what the home lacks. `gone`: number of offsets before `first` that were deleted unread.
    `saved_at`, `saved_as`: offset and key in the topic of rescued records. `file`: path of the export.
    """

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

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        if self.end <= self.first:
            return f"{self.name} offset {self.first} on, of which nothing is left,"
        span = f"offset {self.first}" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.name} {span}"


def find_unreplicated_ranges(stood: Iterable[OldHomePartition]) -> tuple[UnreplicatedRange, ...]:
    """Returns what would be lost with the old home's topics: the offsets past the divergence of each diverged or
    unchecked partition. Includes deleted ranges, since the twin was not filled there.
    """
    return tuple(
        UnreplicatedRange(tp.topic, tp.partition, divergence_offset(tp), tp.end, beside=not _told(tp), gone=_gone(tp))
        for tp in stood
        if has_diverged(tp) or (has_unchecked_records(tp) and tp.end > divergence_offset(tp))
    )


def find_doubtful_ranges(stood: Iterable[OldHomePartition]) -> tuple[UnreplicatedRange, ...]:
    """Returns what to compare with the home before a spoilt twin is deleted, once the mirror has stopped: all past the
    divergence or the link's progress, or the whole log if the offset of a difference is unknown.
    """
    firsts = [(tp, tp.start if tp.differs else divergence_offset(tp)) for tp in stood]
    return tuple(
        UnreplicatedRange(tp.topic, tp.partition, first, tp.end, beside=True) for tp, first in firsts if tp.end > first
    )


def describe_unfilled(topics: Iterable[TopicMove], ends: Mapping[PartitionKey, int]) -> str:
    """Returns what recreated twins wait for; empty once they reach their points."""
    points = [(move.topic, number, point) for move in topics for number, point in enumerate(move.points)]
    lacking = [f"{topic}-{number}" for topic, number, point in points if ends[topic, number] < point]
    return f"still to be filled: {join_names(lacking)}" if lacking else ""


def describe_unchecked(partitions: Iterable[OldHomePartition], link: str) -> str:
    """Returns what `link` has not checked yet; empty if nothing."""
    unchecked = [partition.name for partition in partitions if has_unchecked_records(partition)]
    return f"the mirror of {link} has not checked {join_names(unchecked)} yet" if unchecked else ""


def has_diverged(tp: OldHomePartition) -> bool:
    return tp.stopped in UNREPLICATED_KINDS or tp.strays_at >= 0


def has_unchecked_records(tp: OldHomePartition) -> bool:
    return not has_diverged(tp) and tp.end > max(tp.point, tp.carried)


def describe_differing(partitions: Iterable[OldHomePartition], topics: Collection[str], old: str, new: str) -> str:
    """Returns where records of these topics below `carried`, which no step has saved, differ; empty if nowhere."""
    names = [partition.name for partition in partitions if partition.differs and partition.topic in topics]
    why = f"{join_names(names)} of {old} holds other records than {new} below what was replicated"
    return f"{why}: `twinshore mirror rebuild` saves these, too, and refills the topic" if names else ""


def find_changed_ranges(
    found: Iterable[UnreplicatedRange], now: Iterable[UnreplicatedRange]
) -> tuple[UnreplicatedRange, ...]:
    known = {offset_range.where: offset_range.end for offset_range in found}
    return tuple(offset_range for offset_range in now if known.get(offset_range.where) != offset_range.end)


def describe_deleted_offsets(found: Iterable[UnreplicatedRange]) -> str:
    gone = sum(offset_range.gone for offset_range in found)
    return f"; {count_phrase(gone, 'offset')} of it were deleted there unread" if gone else ""


def topics_of_ranges(found: Iterable[UnreplicatedRange]) -> tuple[str, ...]:
    return tuple(sorted({offset_range.topic for offset_range in found}))


def clamp_offsets(places: Mapping[PartitionKey, int], starts: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Returns the group offsets limited to what the twins hold: a deleted range cannot have been read."""
    return {where: min(place, starts.get(where, place)) for where, place in places.items()}


def ranges_to_json(found: Iterable[UnreplicatedRange]) -> str:
    return json.dumps([asdict(offset_range) for offset_range in found], separators=(",", ":"))


def ranges_from_json(text: str) -> tuple[UnreplicatedRange, ...]:
    """Raises WireError if the text is invalid."""
    try:
        return tuple(UnreplicatedRange(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("the unreplicated ranges cannot be read from the switch's record") from error


def _told(tp: OldHomePartition) -> bool:
    """Returns whether the divergence offset is known. An old home that lost its end and then took other records
    diverges below `carried`.
    """
    return tp.one_past and (tp.stopped in EXACT_UNREPLICATED_KINDS or tp.stopped not in UNREPLICATED_KINDS)


def divergence_offset(tp: OldHomePartition) -> int:
    """Returns where the two homes diverge; the log start if that is unknown."""
    return max(tp.start, _known_at(tp)) if _told(tp) else tp.start


def _known_at(tp: OldHomePartition) -> int:
    known = max(tp.point, tp.carried)
    if tp.stopped in EXACT_UNREPLICATED_KINDS:
        return min(tp.stopped_at, known)
    return max(known, tp.strays_at)


def _gone(tp: OldHomePartition) -> int:
    return max(0, tp.start - _known_at(tp)) if _told(tp) else 0


class PastPointContent(StrEnum):
    """What the log holds from the point on.

    FENCED: the fence, perhaps after foreign records. FOREIGN_WRITES: foreign records only, up to the end of the range.
    LINK_WRITES: batches of the link. UNREAD: the range is not fully read yet.
    """

    FENCED = "fenced"
    FOREIGN_WRITES = "strays"
    LINK_WRITES = "the link's"
    UNREAD = "unread"


class PastPointScan(NamedTuple):
    """`what` the log holds from `point` on, as far as read (`writes`)."""

    what: PastPointContent
    writes: ForeignWrites
    point: int


def next_scan_range(known: ForeignWrites | None, tp: TopicPartition, point: int, start: int, end: int) -> ForeignWrites:
    """Returns the range to read next, in a log from `start` to `end`: the rest of `known`, or what follows. Deleted
    offsets are skipped; a truncated log is read from the point again.
    """
    if known is None or not point <= known.read <= end:
        known = ForeignWrites(tp.topic, tp.partition, point, point)
    until = known.until if known.read < known.until else end
    return replace(known, read=max(known.read, start), until=min(until, end))


def scan_past_point(
    writes: ForeignWrites,
    point: int,
    theirs: Collection[int],
    is_fence: Callable[[BatchHeader], bool],
    batches: Callable[[int], Iterable[BatchHeader]],
    may_go_on: Callable[[], bool],
    *,
    follows: bool = False,
) -> PastPointScan:
    """Scans the range, and returns what it holds so far.

    `theirs`: producer ids of the link. `batches`: reads some from an offset on; none if unreadable for now.
    `may_go_on`: asked after each such read. `follows`: move the point past all that the link wrote, so that the scan
    never ends with LINK_WRITES.
    """
    at = writes.read
    while at < writes.until:
        found = [header for header in batches(at) if header.last_offset >= at]
        for header in found:
            if is_fence(header):
                return PastPointScan(PastPointContent.FENCED, replace(writes, read=max(at, header.base_offset)), point)
            if header.producer_id in theirs or header.base_offset < point:
                if not follows:
                    return PastPointScan(PastPointContent.LINK_WRITES, replace(writes, read=at), point)
                point = header.last_offset + 1
            at = header.last_offset + 1
        if not found or (at < writes.until and not may_go_on()):
            return PastPointScan(PastPointContent.UNREAD, replace(writes, read=at), point)
    return PastPointScan(PastPointContent.FOREIGN_WRITES, replace(writes, read=at), point)
