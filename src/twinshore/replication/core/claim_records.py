"""Records in a target's `twinshore.twins` about one link: the store and producer that write, and the twins' anchors.

The topic is compacted. Strangers may write there, so other records are ignored. Keys are JSON lists, which no topic
name can be.

A **claim** says that a store writes the link. The first claim in the log wins. The holder never writes it again, for
compaction would move it behind others. A takeover writes a new claim and deletes the old one in one batch.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby

from twinshore.config import frozen
from twinshore.config.frozen import CLAIM_LINE, LINK_LINE, TWIN_LINE
from twinshore.kafka.protocol.primitives import KEY_BYTES_MAX, encode_json, parse_json_or_none, to_printable
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN
from twinshore.routing.core.home_records import NewerLine, line_value, read_line
from twinshore.state.core.values import TwinRow

CLEANUP_POLICY = "cleanup.policy"
TWINS_TOPIC_SETTINGS = {CLEANUP_POLICY: "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "86400000"}
CLAIMS_MAX = 100
SOURCES_MAX = 100  # of one link
TWIN_RECORDS_MAX = 200_000  # twins of a link: records of strangers must not fill the memory
PARTITIONS_PER_RECORD = 500
PARTITIONS_MAX = 1 << 20
OFFSET_MAX = 1 << 62
EPOCH_MAX = 1 << 15
YEAR_9999_MS = 253_370_764_800_000
STORE_ID_PATTERN = re.compile("[0-9a-f]{32}")
TOPIC_ID_PATTERN = re.compile("[0-9a-f]{32}")
TOPIC_NAME_PATTERN = re.compile("[a-zA-Z0-9._-]{1,249}")
ANY = ""  # the id of a twin that nobody can read here

ClaimKeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class StoreClaim:
    """A store writes the link; `host` and `since_ms`: where and when first."""

    store: str
    host: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class LinkWriter:
    """The link's producer; `process` wrote this record, in `generation` of the store's lease."""

    store: str
    producer_id: int
    producer_epoch: int
    target_cluster_id: str
    process: str
    generation: int = 0


@dataclass(frozen=True, slots=True, order=True)
class AnchorRun:
    """Consecutive partitions with like anchors: sequence `sequence` at offset `offset`. `inherited` and `epoch`: as in
    the store's row; 0 unless a switch made the twin.
    """

    first: int
    count: int
    offset: int
    sequence: int
    inherited: int = 0
    epoch: int = 0

    def numbers(self) -> list[int]:
        plain = [self.first, self.count, self.offset, self.sequence]
        return [*plain, self.inherited, self.epoch] if self.inherited or self.epoch else plain


@dataclass(frozen=True, slots=True)
class TwinAnchors:
    """Some partitions of a twin. Only the store has a mapped one's offset map."""

    source_topic_id: str
    target_topic_id: str
    mapped: bool
    runs: tuple[AnchorRun, ...]

    def text(self) -> bytes:
        runs = [run.numbers() for run in self.runs]
        ids = {"source": self.source_topic_id, "target": self.target_topic_id}
        return line_value({**ids, "mapped": self.mapped, "runs": runs})


@dataclass(slots=True)
class LinkClaimState:
    """The records of one link (its name and its source's cluster id), as the log is read. Newer records stay untouched.
    `newer_writer`: the version of the writer's record, 0 if readable; `newer_twins`: twins with newer records. Every
    version can read whose the link is, since the claim's key says so.
    """

    link: str
    source_id: str
    claims: dict[str, StoreClaim] = field(default_factory=dict)
    writer: LinkWriter | None = None
    twins: dict[tuple[str, int], TwinAnchors] = field(default_factory=dict)
    newer_writer: int = 0
    newer_twins: dict[tuple[str, int], int] = field(default_factory=dict)

    def holder(self) -> StoreClaim | None:
        """Returns the claim that wins."""
        return next(iter(self.claims.values()), None)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Takes a record; ignores those of other links."""
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [frozen.CLAIM_LINE, self.link, self.source_id, str(store)]:
                claim = _claim(store, value)
                if claim is None:
                    self.claims.pop(store, None)
                elif claim.store == store and len(self.claims) < CLAIMS_MAX:
                    self.claims.setdefault(store, claim)
            case [frozen.LINK_LINE, self.link, self.source_id]:
                writer = _writer(value)
                self.writer = None if isinstance(writer, NewerLine) else writer
                self.newer_writer = writer.version if isinstance(writer, NewerLine) else 0
            case [frozen.TWIN_LINE, self.link, self.source_id, str(topic), int(part)] if (
                part >= 0 and TOPIC_NAME_PATTERN.fullmatch(topic)
            ):
                self._take_twin((topic, part), value)

    def _take_twin(self, place: tuple[str, int], value: bytes | None) -> None:
        is_known = self.twins.pop(place, None) is not None or self.newer_twins.pop(place, None) is not None
        note = _twin(value)
        if note is not None and (is_known or len(self.twins) + len(self.newer_twins) < TWIN_RECORDS_MAX):
            if isinstance(note, NewerLine):
                self.newer_twins[place] = note.version
            else:
                self.twins[place] = note

    def of_topic(self, topic: str) -> list[TwinAnchors]:
        return [anchors for (name, _), anchors in sorted(self.twins.items()) if name == topic]

    def claim_line(self, claim: StoreClaim) -> ClaimKeyValue:
        return self._key(CLAIM_LINE, claim.store), line_value(asdict(claim))

    def release_line(self, store: str) -> ClaimKeyValue:
        return self._key(CLAIM_LINE, store), None

    def writer_line(self, writer: LinkWriter) -> ClaimKeyValue:
        return self._key(LINK_LINE), line_value(asdict(writer))

    def twin_lines(self, rows: Iterable[TwinRow], mapped: Iterable[str]) -> list[ClaimKeyValue]:
        """Returns the records that these twins lack. `rows`: all partitions of each twin."""
        behind = set(mapped)
        wanted: dict[tuple[str, int], TwinAnchors] = {}
        ordered = sorted(rows, key=lambda row: (row.topic, row.partition))
        for topic, topic_rows in groupby(ordered, lambda row: row.topic):
            for part, part_rows in groupby(topic_rows, lambda row: row.partition // PARTITIONS_PER_RECORD):
                rows_of_part = list(part_rows)
                ids = rows_of_part[0].source_topic_id, rows_of_part[0].target_topic_id
                wanted[topic, part] = TwinAnchors(*ids, topic in behind, _runs(rows_of_part))
        lacking = [
            place for place in wanted if self.twins.get(place) != wanted[place] and place not in self.newer_twins
        ]
        return [(self._key(TWIN_LINE, *place), wanted[place].text()) for place in lacking]

    def lines_against(self, topics: Container[str]) -> list[ClaimKeyValue]:
        """Takes back what is told of the twins of these topics."""
        return [(self._key(TWIN_LINE, *place), None) for place in self.twins if place[0] in topics]

    def _key(self, kind: str, *more: str | int) -> bytes:
        return encode_json([kind, self.link, self.source_id, *more])


@dataclass(slots=True)
class LinkClaimStates:
    """The records of one link, for a reader without the source's cluster id."""

    link: str
    by_source: dict[str, LinkClaimState] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match parse_json_or_none(key, KEY_BYTES_MAX):
            case [str(_), self.link, str(source_id), *_] if (
                source_id in self.by_source or len(self.by_source) < SOURCES_MAX
            ):
                self.by_source.setdefault(source_id, LinkClaimState(self.link, source_id)).take(key, value)

    def written(self, target_id: str) -> list[LinkClaimState]:
        """Returns those with a writer for this target."""
        states = (state for _, state in sorted(self.by_source.items()))
        return [state for state in states if state.writer and state.writer.target_cluster_id == target_id]


def iter_anchors(notes: Iterable[TwinAnchors]) -> Iterator[tuple[int, AnchorRun]]:
    """Yields each partition's anchor, as a run of one."""
    for anchors in notes:
        for run in anchors.runs:
            for partition in range(run.first, run.first + run.count):
                yield partition, replace(run, first=partition, count=1)


def parse_twin_ids(key: bytes, value: bytes | None) -> tuple[str, str] | None:
    """Parses a record that says which link writes a twin: the source's cluster id and the twin's topic id, `ANY` for a
    newer record.
    """
    match parse_json_or_none(key, KEY_BYTES_MAX):
        case [frozen.TWIN_LINE, str(_), str(source_id), str(_), int(_)]:
            note = _twin(value)
            if note is None:
                return None
            return source_id, ANY if isinstance(note, NewerLine) else note.target_topic_id
        case _:
            return None


def _runs(rows: Iterable[TwinRow]) -> tuple[AnchorRun, ...]:
    """Joins neighbours with like anchors."""
    runs: list[AnchorRun] = []
    for row in rows:
        here = AnchorRun(row.partition, 1, row.base_offset, row.base_sequence, row.inherited_end, row.epoch)
        if runs and here == replace(runs[-1], first=runs[-1].first + runs[-1].count, count=1):
            runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
        else:
            runs.append(here)
    return tuple(runs)


def _claim(store: str, value: bytes | None) -> StoreClaim | None:
    match read_line(value):
        case NewerLine(version) if STORE_ID_PATTERN.fullmatch(store):
            return StoreClaim(store, f"a newer version (v {version})", 0)
        case {"store": str(store), "host": str(host), "since_ms": int(since_ms)} if STORE_ID_PATTERN.fullmatch(store):
            return StoreClaim(store, to_printable(host), since_ms) if 0 <= since_ms < YEAR_9999_MS else None
        case _:
            return None


def _writer(value: bytes | None) -> LinkWriter | NewerLine | None:
    match record := read_line(value):
        case NewerLine():
            return record
        case {
            "store": str(store),
            "producer_id": int(producer),
            "producer_epoch": int(epoch),
            "target_cluster_id": str(target),
            "process": str(process),
            "generation": int(generation),
        } if STORE_ID_PATTERN.fullmatch(store):
            if not (0 <= producer < OFFSET_MAX and 0 <= epoch < EPOCH_MAX and 0 <= generation < OFFSET_MAX):
                return None
            return LinkWriter(store, producer, epoch, to_printable(target), to_printable(process), generation)
        case _:
            return None


def _twin(value: bytes | None) -> TwinAnchors | NewerLine | None:
    match record := read_line(value):
        case NewerLine():
            return record
        case {"source": str(source), "target": str(target), "mapped": bool(mapped), "runs": list(raw)}:
            runs = [run for run in map(_run, raw) if run is not None]
            known = TOPIC_ID_PATTERN.fullmatch(source) and TOPIC_ID_PATTERN.fullmatch(target) and len(runs) == len(raw)
            if not known or sum(run.count for run in runs) > PARTITIONS_PER_RECORD:
                return None
            return TwinAnchors(source, target, mapped, tuple(runs))
        case _:
            return None


def _run(raw: object) -> AnchorRun | None:
    match raw:
        case [int(first), int(count), int(offset), int(sequence)]:
            run = AnchorRun(first, count, offset, sequence)
        case [int(first), int(count), int(offset), int(sequence), int(inherited), int(epoch)]:
            run = AnchorRun(first, count, offset, sequence, inherited, epoch)
        case _:
            return None
    valid = 0 <= run.first < PARTITIONS_MAX and 0 < run.count <= PARTITIONS_PER_RECORD and 0 <= run.offset < OFFSET_MAX
    valid = valid and 0 <= run.sequence < SEQUENCE_SPAN and 0 <= run.inherited < OFFSET_MAX
    return run if valid and 0 <= run.epoch < EPOCH_MAX else None
