"""Rescued records: lists copies on clusters and files, and writes their records to a topic exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError, WireError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.model import Link, Plan, TopicPartition
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.ownership import pair_name
from twinshore.runtime.lease_keeper import exclusive
from twinshore.state.core.values import AuditRow, LinkStateRow
from twinshore.state.opening import open_if_exists
from twinshore.state.store import Store
from twinshore.switch.core.steps import SwitchState
from twinshore.switch.core.unreplicated import (
    END_UNKNOWN,
    RecordCount,
    ReplayedBatch,
    RescueCopy,
    RescueOrigin,
    TransactionOutcome,
    UnreplicatedRecord,
    batch_subject_prefix,
    offset_runs_of,
    records_to_replay,
    replayed_offsets,
    split_into_batches,
)
from twinshore.switch.fencing import append_batch
from twinshore.switch.handover import offsets_from_json
from twinshore.switch.operations.show import list_switches
from twinshore.switch.rescue_steps import SUFFIX, RescuedTopic, export, read_origin, read_rescued_file

REPLAYED_KIND = "reinjected"
SHOWN_BYTES_MAX = 200
PATIENCE_S = 30.0
REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ReplayedRecords:
    """The records of a file that were replayed to a topic. `whole`: all of this kind were."""

    topic: str
    committed: bool
    records: int
    whole: bool

    def sentence(self) -> str:
        some = count_phrase(self.records, f"{'committed' if self.committed else 'uncommitted'} record")
        return f"{some} written again to {self.topic}" + ("" if self.whole else ", the rest not yet")


@dataclass(frozen=True, slots=True)
class RescuedFile:
    path: Path
    origin: RescueOrigin
    count: RecordCount
    again: tuple[ReplayedRecords, ...] | None = None
    read_by: tuple[str, ...] | None = None

    def sentence(self) -> str:
        again = "".join(f"; {some.sentence()}" for some in self.again or ())
        return f"{self.path}: {_tail_in_words(self.origin, self.count)}{again}"

    def as_values(self) -> dict[str, object]:
        again = None if self.again is None else [asdict(some) for some in self.again]
        values = {"file": str(self.path), **asdict(self.origin), **asdict(self.count)}
        return {**values, "written_again": again, "read_by": self.read_by}


@dataclass(frozen=True, slots=True)
class KeptRescue:
    origin: RescueOrigin
    copy: RescueCopy
    count: RecordCount

    def sentence(self) -> str:
        return f"{RESCUED_TOPIC} on {self.origin.home}: {_tail_in_words(self.origin, self.count)}"

    def as_values(self) -> dict[str, object]:
        return {"file": None, **asdict(self.origin), **asdict(self.count), "written_again": None, "read_by": None}


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Write the records of each file to `topic`, or to the topic of origin, on its home. `uncommitted`: also records of
    aborted or open transactions.
    """

    files: Sequence[Path]
    topic: str = ""
    uncommitted: bool = False


@dataclass(frozen=True, slots=True)
class WriteStep:
    """One pass over a file: the committed records, or the others. `digest`: of the file's content."""

    path: Path
    digest: str
    topic: str
    committed: bool
    origin: RescueOrigin
    cluster: str
    records: int
    written: int

    def sentence(self, *, done: bool) -> str:
        what = "committed" if self.committed else "uncommitted"
        some = count_phrase(self.records - self.written, f"{what} record")
        word = "written" if done else "would be written"
        before = f"; {self.written} were written before" if self.written else ""
        return f"{some} {word} to {self.topic}-{self.origin.partition} on {self.cluster}{before}"


def list_rescued_files(folder: Path) -> tuple[list[RescuedFile], list[str]]:
    """Returns valid files by name, and why others are invalid or incomplete."""
    found, odd = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            found.append(inspect_rescued_file(path))
        except (ConfigError, WireError) as error:
            odd.append(error.message)
    return found, odd


def list_kept_rescues(settings: Settings) -> tuple[list[KeptRescue], list[str]]:
    found, odd = list[KeptRescue](), []
    for cluster in settings.clusters.values():
        try:
            with closing(KafkaCluster(cluster, patience_s=REQUEST_TIMEOUT_S)) as kafka_cluster:
                found += [KeptRescue(origin, *one) for origin, one in RescuedTopic(kafka_cluster).copies().items()]
        except KafkaError as error:
            odd.append(error.message)
    return sorted(found, key=lambda rescue: rescue.origin.file_name()), odd


def export_missing(settings: Settings, folder: Path, tails: Iterable[KeptRescue]) -> Iterator[Path]:
    """Writes a file for each copy that has none. Raises ConfigError if a file cannot be written."""
    for rescue in tails:
        path = folder / rescue.origin.file_name()
        if not path.exists():
            with closing(KafkaCluster(settings.cluster(rescue.origin.home), patience_s=PATIENCE_S)) as home:
                export(RescuedTopic(home).read(rescue.copy), path)
            yield path


def add_replayed_records(found: Sequence[RescuedFile], settings: Settings) -> tuple[list[RescuedFile], list[str]]:
    """Adds what was replayed, and which groups had read the records, by the store; also returns a sentence if the store
    does not answer.
    """
    if not found:
        return [], []
    try:
        store = open_if_exists(settings)
        if store is None:
            return [replace(file, again=()) for file in found], []
        with store:
            return [_with_uses(file, store) for file in found], []
    except StoreError as error:
        return list(found), [f"what was written again is not known: {error.message}"]


def _with_uses(file: RescuedFile, store: Store) -> RescuedFile:
    return replace(file, again=tuple(_again(file, store)), read_by=tuple(_read_by(file.origin, store)))


def _again(file: RescuedFile, store: Store) -> Iterator[ReplayedRecords]:
    known = _known(store, file.origin)
    for topic in sorted({batch.topic for batch in known}):
        done = _done(known, topic)
        for committed in (True, False):
            records = sum(record.record.offset in done for record in _of_kind(file.path, committed))
            if records:
                yield ReplayedRecords(topic, committed, records, records == _whole(file, committed))


def inspect_rescued_file(path: Path) -> RescuedFile:
    """Reads the whole file. Raises WireError if the file is truncated."""
    origin, count = read_origin(path), RecordCount()
    for record in read_rescued_file(path):
        count = count.with_one(record.ending)
    return RescuedFile(path, origin, count)


def read_first_records(path: Path, limit: int) -> Iterator[UnreplicatedRecord]:
    return islice(read_rescued_file(path), limit)


def describe_record(one: UnreplicatedRecord) -> str:
    """Describes a record for people; bytes that are not text are shown as Python bytes."""
    record = one.record
    at = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    value = None if record.value is None else record.value[:SHOWN_BYTES_MAX]
    return f"  {record.offset}  {at}  {one.ending}  {_text(record.key)}: {_text(value)}"


def plan(request: ReplayRequest, settings: Settings, store: Store) -> Plan[WriteStep]:
    """Raises ConfigError if a file is invalid; `refused` if a topic cannot take the records."""
    found = [_plan(path, request, settings, store) for path in request.files]
    return Plan(
        tuple(step for plan in found for step in plan.steps),
        tuple(line for plan in found for line in plan.shown),
        tuple(line for plan in found for line in plan.remarks),
        next((plan.refusal for plan in found if plan.refusal), None),
    )


def _plan(path: Path, request: ReplayRequest, settings: Settings, store: Store) -> Plan[WriteStep]:
    file, digest = inspect_rescued_file(path), _digest(path)
    topic = request.topic or file.origin.topic
    home, _ = _home(file.origin, topic, store)
    shown = (file.sentence(),)
    if why := _doubt(file.origin, topic, home, store):
        return Plan(shown=shown, refusal=why)
    with closing(KafkaCluster(settings.cluster(home), patience_s=PATIENCE_S)) as cluster:
        there, partition = cluster.metadata([topic], refresh=True).topics.get(topic), file.origin.partition
        if there is None or there.error:
            return Plan(shown=shown, refusal=RefusedError("switch.no-such-topic", clusters=home, topic=topic, near=""))
        if partition >= len(there.partitions):
            refusal = RefusedError("switch.no-such-partition", cluster=home, topic=topic, partition=partition)
            return Plan(shown=shown, refusal=refusal)
    steps, done, before = [], [], _done(_known(store, file.origin), topic)
    for committed in (True, False) if request.uncommitted else (True,):
        whole = _whole(file, committed)
        written = sum(record.record.offset in before for record in _of_kind(path, committed))
        if written < whole:
            steps.append(WriteStep(path, digest, topic, committed, file.origin, home, whole, written))
        elif whole:
            done.append(f"the {'committed' if committed else 'uncommitted'} records were written before")
    kept_out = file.count.records - file.count.committed
    if kept_out and not request.uncommitted:
        done.append(f"{count_phrase(kept_out, 'record')} that no transaction committed is left out")
    if steps and (names := _read_by(file.origin, store)):
        by = join_names(names)
        done.append(f"some of them had been read on {file.origin.cluster} already, by group {by}")
    return Plan(tuple(steps), shown, tuple(done))


def replay_records(plan: Plan[WriteStep], settings: Settings, store: Store, *, by: str) -> Iterator[WriteStep]:
    """Runs each pass; the store notes every batch before and after its append."""
    for step in plan.steps:
        thing = f"reinjection {step.origin.topic_id[:16]}-{step.origin.partition}"
        with (
            exclusive(thing, store, by) as lease,
            closing(KafkaCluster(settings.cluster(step.cluster), patience_s=PATIENCE_S)) as cluster,
        ):
            _must_stand(step, store)
            _write(step, cluster, store, by, lease.left_s)
        yield step


def _must_stand(step: WriteStep, store: Store) -> None:
    """Checks the plan again: the operator may have confirmed an hour later."""
    if (home := _home(step.origin, step.topic, store)[0]) != step.cluster:
        raise RefusedError("switch.replay-home-moved", topic=step.topic, home=home)
    if _digest(step.path) != step.digest:
        raise RefusedError("switch.replay-file-changed", file=str(step.path))
    if doubt := _doubt(step.origin, step.topic, home, store):
        raise doubt


def _doubt(origin: RescueOrigin, topic: str, home: str, store: Store) -> RefusedError | None:
    """Returns why nothing can be written: part of this log may have been written already."""
    known = [batch for batch in _known(store, origin) if batch.topic == topic]
    doubtful = [batch for batch in known if batch.is_doubtful(home, wall_ms())]
    if not doubtful:
        return None
    offsets, was = replayed_offsets(doubtful), doubtful[0].cluster
    return RefusedError("switch.replay-in-doubt", topic=topic, first=min(offsets), last=max(offsets), cluster=was)


def _write(step: WriteStep, cluster: KafkaCluster, store: Store, by: str, left_s: Callable[[], float]) -> None:
    partition, origin, path = TopicPartition(step.topic, step.origin.partition), step.origin, step.path

    def write(batch: ReplayedBatch, some: Sequence[UnreplicatedRecord]) -> None:
        if left_s() <= 0:
            raise RefusedError("switch.file-in-use", file=path.name)
        _remember(store, origin, batch)
        who = batch.producer_id, batch.producer_epoch
        end = append_batch(cluster, partition, who, batch.sequence, records_to_replay(some, origin))
        _remember(store, origin, replace(batch, end=end))

    for batch in _known(store, origin):
        if (batch.topic, batch.end) == (step.topic, END_UNKNOWN):
            wanted = replayed_offsets([batch])
            some = [record for record in read_rescued_file(path) if record.record.offset in wanted]
            if len(some) != len(wanted):
                raise RefusedError("switch.replay-of-another-file", first=min(wanted), last=max(wanted))
            write(batch, some)
    term, done, sequence = _home(origin, step.topic, store)[1], _done(_known(store, origin), step.topic), 0
    who = cluster.init_producer_id()
    rest = (record for record in _of_kind(path, step.committed) if record.record.offset not in done)
    for some in split_into_batches(rest):
        batch = ReplayedBatch(step.topic, step.cluster, term, *who, sequence, offset_runs_of(some), told_ms=wall_ms())
        write(batch, some)
        sequence += len(some)
    told, link = f"{step.records} records of {path.name}", f"{origin.cluster}->{origin.home}"
    row = AuditRow(wall_ms(), link, "reinject", str(partition), "", step.cluster, told, by, partition.topic)
    store.link_states.remember([], [row])


def _remember(store: Store, origin: RescueOrigin, batch: ReplayedBatch) -> None:
    row = LinkStateRow(origin.cluster, REPLAYED_KIND, batch.subject(origin), batch.to_json(), "", wall_ms())
    store.link_states.remember([row])


def _known(store: Store, origin: RescueOrigin) -> list[ReplayedBatch]:
    """Returns batches from this log that were written, or about to be, and that no switch has left behind."""
    rows, prefix = store.link_states.of(origin.cluster, REPLAYED_KIND), batch_subject_prefix(origin)
    known = [ReplayedBatch.from_json(row.value) for row in rows if row.subject.startswith(prefix)]
    switches = [view.state for view in list_switches(store)] if known else []
    return [batch for batch in known if not batch.is_lost(origin.partition, switches)]


def _done(known: Iterable[ReplayedBatch], topic: str) -> set[int]:
    return replayed_offsets(batch for batch in known if batch.topic == topic and batch.end != END_UNKNOWN)


def _of_kind(path: Path, committed: bool) -> Iterator[UnreplicatedRecord]:
    records = read_rescued_file(path)
    return (record for record in records if (record.ending is TransactionOutcome.COMMITTED) is committed)


def _whole(file: RescuedFile, committed: bool) -> int:
    return file.count.committed if committed else file.count.records - file.count.committed


def _read_by(origin: RescueOrigin, store: Store) -> list[str]:
    """Returns the groups whose offsets were past the first of these records at the rescue."""
    row = store.switches.of(origin.switch)
    if row is None:
        return []
    try:
        places = offsets_from_json(SwitchState.from_json(row.switch_state).places)
    except WireError:
        return []
    where = (origin.topic, origin.partition)
    return sorted(name for name, some in places.items() if where in some and some[where].offset > origin.first)


def _tail_in_words(origin: RescueOrigin, count: RecordCount) -> str:
    span = f"{origin.topic}-{origin.partition} of {origin.cluster}, offsets {origin.first} to {origin.end - 1}"
    return f"{span}: {count_phrase(count.records, 'record')}, {count.committed} of them committed"


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return repr(data)


def _home(origin: RescueOrigin, topic: str, store: Store) -> tuple[str, int]:
    """Returns home and term of the topic, by the store; else where the rescued topic has moved."""
    row = store.homes.of(pair_name(Link(origin.cluster, origin.home))).get(topic)
    return (row.home, row.term) if row is not None and row.home else (origin.home, 0)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
