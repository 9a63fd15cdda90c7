"""What operators ask of a link's sides: do they hold the same records, up to where, and where do they differ.

Also one record of both sides beside each other. Each such look is in the audit.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError, TwinshoreError
from twinshore.config.model import Link, SourceOffset, TopicPartition
from twinshore.config.schema import did_you_mean, parse_member
from twinshore.config.sections.proof import ProofSettings, budget_error
from twinshore.config.sentences import join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.log_reader import read_dated_contents
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import DatedContent
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.planning import ProofOptions, describe_reread_pass, measure_reread_pass
from twinshore.proof.core.record_rows import as_text
from twinshore.proof.core.report import as_values, describe_report, exit_code
from twinshore.proof.jobs import RunBundle
from twinshore.proof.rounds import ProofReport, ProofRounds
from twinshore.proof.service import Rereader, proof_options, proof_options_beside_reread, run_proof_rounds
from twinshore.replication.core.mapping import translate_to_target
from twinshore.runtime.endpoints import LinkClients, pin_cluster_ids
from twinshore.state.core.values import AuditRow
from twinshore.state.store import Store

TOPIC_CHECK_TIMEOUT_S = 5.0
CLUSTERS_NAMED_MAX = 3
DID_YOU_MEAN = "did you mean"


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """What a caller asks for. `again`: from the start of the logs. `sample`: only this fraction of offsets, drawn by
    `seed`; 0: all, and a random seed. `way`: the mode; empty: each topic's own. `throttle_mb_s` below 0, `every_s`
    (between `continuous` rounds) 0: as in settings. `behind_max`: the most offsets that the source may have beyond the
    common part, for exit code 0; below 0: any.
    """

    links: Sequence[str] = ()
    topics: Sequence[str] = ()
    again: bool = False
    sample: float = 0.0
    seed: int = 0
    way: str = ""
    throttle_mb_s: float = -1.0
    digest: bool = True
    continuous: bool = False
    every_s: float = 0.0
    behind_max: int = -1


@dataclass(frozen=True, slots=True)
class PreparedProof:
    """A checked request. `seed` draws the same sample again."""

    request: ProofRequest
    links: tuple[Link, ...]
    mode: CompareMode | None
    options: ProofOptions
    every_s: float
    seed: int


def prepare(request: ProofRequest, settings: Settings) -> PreparedProof:
    """Raises ConfigError for an invalid request."""
    mode = parse_member(CompareMode, "mode", request.way) if request.way else None
    options = resolve_proof_options(request, settings.proof)
    links = settings.chosen(request.links)
    if request.sample and request.behind_max >= 0:
        raise ConfigError("proof.sample-with-behind-max")
    if not links:
        raise ConfigError("config.no-links")
    return PreparedProof(request, tuple(links), mode, options, request.every_s or settings.proof.every_s, options.seed)


def check_topics(prepared: PreparedProof, settings: Settings, store: Store) -> None:
    """Raises ConfigError for a topic that no link's source has and no link began with, before Spark starts.

    Passes a continuous proof, whose topics may be created later, and silent sources, which the proof reports.
    """
    request = prepared.request
    if not request.topics or request.continuous:
        return
    known: set[str] = set()
    try:
        for link in prepared.links:
            with LinkClients(link, settings, patience_s=TOPIC_CHECK_TIMEOUT_S, call_s=TOPIC_CHECK_TIMEOUT_S) as clients:
                pin_cluster_ids(link, store, clients.source, clients.target)
                known |= {name for name, topic in clients.source.metadata().topics.items() if not topic.error}
            known |= {row.topic for row in store.twins.of(link.name)}
    except TwinshoreError:
        return
    if lacking := [topic for topic in request.topics if topic not in known]:
        near = did_you_mean(lacking[0], sorted(known))
        places = join_names(sorted({link.source for link in prepared.links}), CLUSTERS_NAMED_MAX)
        # A list of all topics would be too long.
        meant = near if DID_YOU_MEAN in near else ""
        raise ConfigError("kafka.unknown-topic", topic=lacking[0], clusters=places, near=meant)


def prove(
    prepared: PreparedProof,
    settings: Settings,
    store: Store,
    run: RunBundle,
    *,
    tell: Callable[[ProofReport], None],
    stopped: Callable[[], bool],
) -> int:
    """Runs one round, or rounds until `stopped`, which is polled. `tell` gets each report, also of a stopped single
    round. Returns the last round's exit code.
    """
    request, options, tasks = prepared.request, prepared.options, settings.proof.tasks
    proving = ProofRounds(settings, store, run, options=options, tasks=tasks, mode=prepared.mode, stopped=stopped)

    def one_round(*, again: bool = False) -> ProofReport:
        report = proving.round(prepared.links, request.topics, again=again)
        return replace(report, behind_max=request.behind_max)

    if not request.continuous:
        report = one_round(again=request.again)
        tell(report)
        return exit_code(report)
    rereader = Rereader(settings, store, run, options, looks=proving.seen, keep=proving.keep)
    with contextlib.closing(rereader):
        between = (lambda: None) if options.sample else rereader.turn
        return run_proof_rounds(one_round, tell, prepared.every_s, stopped, between)


def values_of(report: ProofReport, prepared: PreparedProof, settings: Settings) -> dict[str, Any]:
    """Returns for JSON the report, the duration of a pass, and a sample's seed."""
    found = measure_reread_pass([one.row for one in report.partitions], settings.proof.reread_mb_s * 1e6)
    values = as_values(report) | {"pass": found._asdict() if found else None}
    return values | ({"seed": prepared.seed} if prepared.request.sample else {})


def sentences_of(
    report: ProofReport, prepared: PreparedProof, settings: Settings, *, everything: bool, now_ms: int
) -> Iterator[str]:
    """Yields the report for people. `everything`: identical partitions too, as for a sample."""
    rows, sample = [one.row for one in report.partitions], bool(prepared.request.sample)
    yield from describe_report(report, everything=everything or sample)
    section, going = settings.proof, (prepared.request.continuous and not sample) or settings.proof.beside_mirror
    yield from describe_reread_pass(rows, section.reread_mb_s * 1e6, section.read_again_h, now_ms, going=going)
    if sample:
        yield f"the same sample again: --seed {prepared.seed}"


def resolve_proof_options(request: ProofRequest, section: ProofSettings) -> ProofOptions:
    """Returns options of settings and request. With concurrent re-reads, both together stay within the throttle."""
    if request.throttle_mb_s >= 0:
        section = replace(section, throttle_mb_s=request.throttle_mb_s)
    beside = request.continuous and not request.sample
    if beside and (refused := budget_error(section)):
        raise ConfigError("proof.throttle-too-low", cause=refused)
    options = (proof_options_beside_reread if beside else proof_options)(section)
    seed = request.seed or random.SystemRandom().randrange(1, 1_000_000)
    return replace(options, sample=request.sample, seed=seed, digest=options.digest and request.digest)


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
        if error.code != Code.offset_out_of_range:
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
    return replace(shown, key=as_text(content.key), value=as_text(content.value), headers=headers)
