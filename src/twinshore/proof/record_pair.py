"""Shows one record of both sides of a link beside each other. Each look is in the audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Link, SourceOffset, TopicPartition
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import read_dated_contents
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import DatedContent
from twinshore.proof.core.record_rows import as_text
from twinshore.replication.core.mapping import translate_to_target
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store

AUDIT_KIND = "records shown"


@dataclass(frozen=True, slots=True)
class RecordPairRequest:
    """The record at a source offset. `values`: show keys, values and headers, not only their sizes and digests."""

    topic: str
    partition: int
    offset: int
    links: Sequence[str] = ()
    values: bool = False


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One side's record. `is_there`: whether a consumer finds a record at that offset."""

    cluster: str
    topic: str
    partition: int
    offset: int | None
    is_there: bool
    timestamp_ms: int | None = None
    size: int = 0
    digest: str = ""
    key: str | None = None
    value: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()

    def lines(self, *, values: bool) -> Iterator[str]:
        place = f"{self.cluster}: {self.topic}-{self.partition}"
        if self.offset is None:
            yield f"{place}: the source's offset has no counterpart"
            return
        if not self.is_there:
            yield f"{place} at {self.offset}: no record"
            return
        yield f"{place} at {self.offset}: time {self.timestamp_ms}, {self.size:,} bytes, SHA-256 {self.digest}"
        if values:
            yield f"  key {self.key!r}"
            yield f"  value {self.value!r}"
            yield from (f"  header {name!r} {content!r}" for name, content in self.headers)


@dataclass(frozen=True, slots=True)
class RecordPair:
    link: str
    source: ShownRecord
    target: ShownRecord
    is_same: bool

    def lines(self, *, values: bool) -> Iterator[str]:
        yield f"{self.link}: the two sides {'have the same record' if self.is_same else 'differ'}"
        yield from self.source.lines(values=values)
        yield from self.target.lines(values=values)

    def as_values(self) -> dict[str, Any]:
        return asdict(self)


def show_record_pairs(request: RecordPairRequest, settings: Settings, store: Store, *, by: str) -> list[RecordPair]:
    """Reads the record of each link that has a twin of the topic. Raises ConfigError if none has."""
    found = []
    for link in settings.chosen(request.links):
        if any(row.topic == request.topic for row in store.twins.of(link.name)):
            found.append(_pair(request, link, settings, store))
            store.audit.add([_told(request, link.name, by)])
    if not found:
        raise ConfigError("proof.no-twin", topic=request.topic)
    return found


def _told(request: RecordPairRequest, link: str, by: str) -> AuditRow:
    subject = f"{request.topic}-{request.partition} at {request.offset}"
    shown = "with values" if request.values else "without values"
    return AuditRow(wall_ms(), link, AUDIT_KIND, subject, "", shown, "done", by, request.topic)


def _pair(request: RecordPairRequest, link: Link, settings: Settings, store: Store) -> RecordPair:
    at: int | None = request.offset
    key = (link.name, request.topic, request.partition)
    if store.offset_runs.of(*key, limit=1):
        there = translate_to_target(SourceOffset(request.offset), *store.offset_runs.around(*key, request.offset))
        at = there.offset if there is not None and there.exact else None
    named = TopicPartition(link.twin_of(request.topic), request.partition)
    with LinkClients(link, settings) as clients:
        ours = _read(clients.source, TopicPartition(request.topic, request.partition), request.offset)
        theirs = _read(clients.target, named, at) if at is not None else None
    source = _shown(link.source, TopicPartition(request.topic, request.partition), request.offset, ours, request)
    target = _shown(link.target, named, at, theirs, request)
    return RecordPair(link.name, source, target, ours is not None and theirs is not None and theirs.copied_from(ours))


def _read(cluster: KafkaCluster, partition: TopicPartition, offset: int) -> DatedContent | None:
    found = read_dated_contents(cluster, partition, offset, offset + 1, committed=False, theirs=True)
    try:
        return next((content for at, content in found if at == offset), None)
    except KafkaError as error:
        if error.code != Code.OFFSET_OUT_OF_RANGE:
            raise
        return None


def _shown(
    cluster: str, partition: TopicPartition, offset: int | None, found: DatedContent | None, request: RecordPairRequest
) -> ShownRecord:
    if found is None:
        return ShownRecord(cluster, partition.topic, partition.partition, offset, is_there=False)
    content = found.content
    parts = [content.key or b"", content.value or b"", *(name + (value or b"") for name, value in content.headers)]
    shown = ShownRecord(
        cluster,
        partition.topic,
        partition.partition,
        offset,
        is_there=True,
        timestamp_ms=found.timestamp_ms,
        size=sum(map(len, parts)),
        digest=sha256(b"\0".join(parts)).hexdigest()[:16],
    )
    if not request.values:
        return shown
    headers = tuple((as_text(name) or "", as_text(value)) for name, value in content.headers)
    values = {"key": as_text(content.key), "value": as_text(content.value), "headers": headers}
    return ShownRecord(**{**asdict(shown), **values})
