"""Steps that check a returned old home, rescue its unreplicated records, and recreate its topics. Every step may be
repeated.

The transaction coordinators of a returned cluster first load their logs (`describe_loading_coordinator`). Until then, a
broker lists none of the transactions that are about to be ended, mostly without an error; only a request for a specific
id reveals the load. Coordinators end transactions left open by the outage on their own, denied or not.

A topic is recreated under its own name: records that only this log holds are saved before the deletion, and group
offsets are restored after the refill.

`RescuedTopic` is topic `twinshore.rescued` on the home cluster: how to write, read, and export rescued records.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError, WireError
from twinshore.config.frozen import COMMIT_MARK, RESCUED_TOPIC
from twinshore.config.incident_policy import POLICY_RESCUE, IncidentKind
from twinshore.config.model import Link, TopicPartition
from twinshore.config.private_files import make_private_folder, private_opener, sync_folder
from twinshore.config.sentences import count_phrase, is_or_are, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import NO_LEADER, NO_TOPIC_ID, read_metadata
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    check_crc,
    iter_records,
    split_batches,
)
from twinshore.kafka.protocol.transactions import (
    TRANSACTIONS_KEY,
    TransactionState,
    encode_describe_transactions,
    parse_describe_transactions,
)
from twinshore.kafka.state_topic import StateTopic
from twinshore.replication.sync.core.lifecycle import RECREATE_APPROVAL, Approval, parse_compacted
from twinshore.replication.sync.deletion_guard import DeletionGuard
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.state.core.values import AuditRow, Incident, LinkStateRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store
from twinshore.switch.core.steps import StepDone, StepOutcome, StepPending, SwitchKind, SwitchState, TopicMove
from twinshore.switch.core.unreplicated import (
    EXACT_UNREPLICATED_KINDS,
    UNREPLICATED_KINDS,
    BatchBytes,
    HomeComparison,
    LogMatch,
    OldHomePartition,
    PartitionKey,
    RecordCount,
    RescueCopies,
    RescueCopy,
    RescueOrigin,
    TransactionOutcome,
    TransactionOutcomes,
    TwinRecord,
    UnreplicatedRange,
    UnreplicatedRecord,
    clamp_offsets,
    compare_logs_below,
    count_line,
    divergence_offset,
    has_diverged,
    has_unchecked_records,
    header_line,
    is_count_line,
    ranges_from_json,
    ranges_to_json,
    read_header,
    read_lines,
    record_line,
    records_missing_at_home,
    rescue_key,
)
from twinshore.switch.drain import MirrorWatch
from twinshore.switch.fencing import append_batch
from twinshore.switch.handover import (
    SavedOffset,
    find_topics_with_own_offsets,
    let_offsets_follow_home,
    offsets_from_json,
    offsets_to_json,
    read_group_offsets,
    restore_group_offsets,
)
from twinshore.switch.write_access import UNREACHABLE_MS_MAX

# A line is a third larger than its record.
LINE_BYTES_MAX = 64 << 20
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(LINE_BYTES_MAX),
}
BATCH_BYTES = 256 * 1024


class RescuedTopic:
    """Methods raise KafkaError if a write fails, or if the topic cannot be read to the end."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster, self._notes = cluster, StateTopic(cluster, RESCUED_TOPIC)

    def save(self, origin: RescueOrigin, records: Iterable[UnreplicatedRecord]) -> tuple[RescueCopy, RecordCount]:
        """Saves a new copy of the records; on return all in-sync replicas have the copy. Nothing is overwritten."""
        self._make()
        copy, count = RescueCopy(self._notes.end(), rescue_key(origin, secrets.token_hex(4))), RecordCount()
        writer = self._cluster.init_producer_id()
        some: list[Record] = []
        size = written = 0
        for line, record in _lines(origin, records):
            count = count.with_one(record.ending) if record else count
            some.append(Record(len(some), wall_ms(), copy.key, line))
            size += len(line)
            if size >= BATCH_BYTES:
                written = self._append(writer, written, some)
                some, size = [], 0
        some.append(Record(len(some), wall_ms(), copy.key, count_line(count).encode()))
        self._append(writer, written, some)
        return copy, count

    def read(self, copy: RescueCopy) -> Iterator[str]:
        begun = False
        for notes, _ in self._notes.pages(copy.at):
            for note in notes:
                if note.key != copy.key or note.value is None:
                    continue
                yield note.value.decode()
                if begun and is_count_line(note.value):
                    return
                begun = True

    def count(self, copy: RescueCopy) -> RecordCount:
        """Counts the records of the copy. Raises WireError if the copy is incomplete."""
        lines, count = self.read(copy), RecordCount()
        next(lines, "")
        for record in read_lines(lines, RESCUED_TOPIC):
            count = count.with_one(record.ending)
        return count

    def copies(self) -> dict[RescueOrigin, tuple[RescueCopy, RecordCount]]:
        """Returns the complete copies by origin; the newest of several."""
        found = RescueCopies()
        if self._notes.exists():
            for notes, _ in self._notes.pages(0):
                for note in notes:
                    found.take(note.offset, note.key, note.value)
        return found.whole

    def _make(self) -> None:
        """Creates the topic, or restores the settings: else the records would expire."""
        if not self._notes.exists():
            self._notes.make(TOPIC_SETTINGS, lasting=True)
            return
        stands = self._cluster.admin.topic_settings([RESCUED_TOPIC]).get(RESCUED_TOPIC, {})
        wrong = {
            name: value for name, value in TOPIC_SETTINGS.items() if name not in stands or stands[name].value != value
        }
        if wrong:
            self._cluster.admin.alter_topic_settings(RESCUED_TOPIC, wrong, topic_id=self._notes.seen()[0])

    def _append(self, writer: tuple[int, int], written: int, records: list[Record]) -> int:
        append_batch(self._cluster, TopicPartition(RESCUED_TOPIC, 0), writer, written, records)
        return written + len(records)


def export(lines: Iterable[str], path: Path) -> None:
    """Writes the lines of a copy to a file, durable on return. Idempotent. Raises ConfigError if the file cannot be
    written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        make_private_folder(path.parent)
        with open(part, "w", encoding="utf-8", opener=private_opener) as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ConfigError("switch.file-not-written", file=str(path), cause=error.strerror) from error


def _lines(
    origin: RescueOrigin, records: Iterable[UnreplicatedRecord]
) -> Iterator[tuple[bytes, UnreplicatedRecord | None]]:
    yield header_line(origin).encode(), None
    for record in records:
        yield record_line(record).encode(), record


WALK_PAGE_BYTES = 1 << 20
WALK_BYTES_MAX = 16 << 20  # of a partition, each time it is looked at
MARKER_BYTES = 96  # a page for so many markers holds few records: most of what lies there is not read in vain
TRANSACTION_TOPIC = "__transaction_state"
TRANSACTIONAL_ID_NOT_FOUND = 105
LOADING_CODES = frozenset({Code.not_coordinator, Code.coordinator_load_in_progress, Code.coordinator_not_available})
PROBES_MAX = 100_000


def inspect_old_home(
    old: KafkaCluster, new: KafkaCluster, store: Store, back: str, topics: Iterable[TopicMove], *, every: bool = False
) -> tuple[OldHomePartition, ...]:
    """The link's progress is read first, since it only grows. `every`: also compare partitions that are not stopped;
    otherwise only those in topics that would be deleted.
    """
    moves = list(topics)
    carried = {(row.topic, row.partition): row.to_offset for row in store.progress.positions(back)}
    incidents = [row.incident for row in store.incidents.rows(back, open_only=True)]
    # Of several incidents the least exact comes last, so that more is saved.
    incidents.sort(key=lambda one: one.kind not in EXACT_UNREPLICATED_KINDS)
    stopped = {(one.topic, one.partition): one for one in incidents if one.kind in UNREPLICATED_KINDS}
    differing = {(one.topic, one.partition) for one in incidents if one.kind is IncidentKind.CONTENT_DIFFERS}
    partitions = [TopicPartition(move.topic, number) for move in moves for number in range(move.partitions)]
    starts, ends = (old.list_offsets(partitions, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    own, found = link_producer_ids(store, back), []
    for move in moves:
        for number, point in enumerate(move.points):
            tp, where = TopicPartition(move.topic, number), (move.topic, number)
            incident = stopped.get(where)
            place = (*where, starts[tp], ends[tp], point, carried.get(where, -1))
            partition = OldHomePartition(*place, differs=where in differing)
            if incident:
                partition = replace(partition, stopped=incident.kind, stopped_at=incident.from_offset)
            found.append(_walked(old, partition, own) if own and has_unchecked_records(partition) else partition)
    return tuple(_compared(old, new, found, own, every=every))


def _walked(old: KafkaCluster, partition: OldHomePartition, own: frozenset[int]) -> OldHomePartition:
    """Scans past the progress. Batches of the link without a progress row yet are not foreign. A batch of another
    producer past `carried` is foreign, even if the link has not met it; but right at the point the link must report
    first.
    """
    begin = max(partition.point, partition.carried, partition.start)
    tp = TopicPartition(partition.topic, partition.partition)
    upto, foreign = scan_own_batches(old, tp, begin, partition.end, own)
    if foreign and max(partition.carried, upto) > partition.point:
        return replace(partition, carried=max(partition.carried, upto), strays_at=upto)
    return replace(partition, carried=upto) if upto > begin else partition


def scan_own_batches(
    cluster: KafkaCluster, partition: TopicPartition, begin: int, end: int, ours: Container[int]
) -> tuple[int, bool]:
    """Returns how far from `begin` the log is the link's own, and whether a foreign batch follows. Reads a long log in
    part: call again to read on.
    """
    at, read = begin, 0
    while at < end and read < WALK_BYTES_MAX:
        fetched = cluster.read_from(partition, at, bytes_max=WALK_PAGE_BYTES, committed=False)
        batches = [header for _, header in split_batches(fetched.records) if header.last_offset >= at]
        if not batches:
            break
        for header in batches:
            if header.producer_id not in ours:
                return max(at, header.base_offset), True
            at = header.last_offset + 1
        read += len(fetched.records)
    return at, False


def _compared(
    old: KafkaCluster, new: KafkaCluster, found: list[OldHomePartition], own: frozenset[int], *, every: bool
) -> Iterator[OldHomePartition]:
    """Compares what is right below the divergence, or right below `carried`. Partitions that are not stopped are
    compared only if their topics would be deleted, or with `every`.
    """
    topics = {partition.topic for partition in found if every or has_diverged(partition)}
    for partition in found:
        diverged = has_diverged(partition)
        at = min(max(partition.point, partition.carried), partition.end)
        at = divergence_offset(partition) if diverged else at
        if partition.topic in topics and at > partition.start:
            same = _same_below(old, new, partition, at, own, unsure=not diverged)
            differs = partition.differs or not same
            partition = replace(partition, one_past=same) if diverged else replace(partition, differs=differs)
        yield partition


def _same_below(
    old: KafkaCluster, new: KafkaCluster, partition: OldHomePartition, at: int, ours: frozenset[int], *, unsure: bool
) -> bool:
    """Returns whether the last record below `at` is the link's own, or the same on both clusters. `unsure`: the result
    if unknown: only one log holds a record there, the new home has deleted it, or it is too far back.
    """
    tp = TopicPartition(partition.topic, partition.partition)
    if at > partition.point:
        last = old.read_tail_batch(tp, at - 1)
        if last is not None and last.producer_id in ours:
            return True
    start = new.list_offsets([tp], OffsetKind.EARLIEST)[tp]
    reads = [partial(_between, cluster, tp, at) for cluster in (old, new)]
    found = compare_logs_below(at, partition.start, start, *reads)
    return unsure if found is LogMatch.UNKNOWN else found is LogMatch.SAME


def _between(cluster: KafkaCluster, partition: TopicPartition, at: int, first: int) -> list[BatchBytes] | None:
    """Returns None if the batches from `first` up to `at` are too many or unreadable."""
    found: list[BatchBytes] = []
    upto, read, page_bytes = first, 0, min(WALK_PAGE_BYTES, (at - first) * MARKER_BYTES)
    while upto < at:
        fetched = cluster.read_from(partition, upto, bytes_max=page_bytes, committed=False)
        batches = [batch for batch in split_batches(fetched.records) if batch[1].last_offset >= upto]
        if not batches or read >= WALK_BYTES_MAX:
            return None
        found += batches
        upto, read = batches[-1][1].last_offset + 1, read + len(fetched.records)
    return found


def link_producer_ids(store: Store, link: str) -> frozenset[int]:
    identity = store.links.identity(link)
    return frozenset({identity.producer_id, marker_producer_id(identity.producer_id)} if identity else ())


def read_high_watermarks(cluster: KafkaCluster, parts: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    partitions = [TopicPartition(*where) for where in parts]
    found = cluster.list_offsets(partitions, OffsetKind.HIGH_WATERMARK) if partitions else {}
    return {(partition.topic, partition.partition): end for partition, end in found.items()}


def describe_loading_coordinator(cluster: KafkaCluster) -> str:
    """Describes a coordinator that has not loaded its partition of the transaction log yet; empty once all have."""
    name = TRANSACTION_TOPIC
    topic = cluster.metadata([name], refresh=True).topics.get(name)
    if topic is None or topic.error == Code.unknown_topic_or_partition:
        return ""  # no transaction was ever begun there
    if topic.error:
        raise kafka_error(topic.error, f"{cluster.name}: {name}", right=f"Describe on topic {name}")
    for partition in topic.partitions:
        if partition.leader == NO_LEADER:
            return f"partition {partition.partition} of {name} has no leader on {cluster.name} yet"
        if not _has_read(cluster, partition.leader, transactional_id_in(partition.partition, len(topic.partitions))):
            return f"broker {partition.leader} of {cluster.name} still loads its part of {name}"
    return ""


def transaction_partition(name: str, parts: int) -> int:
    """The absolute Java `hashCode` of the transactional id, modulo `parts`."""
    found = 0
    for letter in name:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return (0 if found == 1 << 31 else min(found, (1 << 32) - found)) % parts


def transactional_id_in(part: int, parts: int) -> str:
    return next(name for number in range(PROBES_MAX) if transaction_partition(name := f"probe-{number}", parts) == part)


def _has_read(cluster: KafkaCluster, node: int, probe: str) -> bool:
    def ask(connection: Connection, timeout_s: float) -> list[TransactionState]:
        version, body = connection.handwritten_version(TRANSACTIONS_KEY), encode_describe_transactions([probe])
        return connection.ask(
            TRANSACTIONS_KEY, version, body, lambda view: parse_describe_transactions(view, 0), timeout_s=timeout_s
        )

    (transaction,) = cluster.at(node, "transactions", ask)
    if transaction.error not in (0, TRANSACTIONAL_ID_NOT_FOUND, *LOADING_CODES):
        right = "Describe on all transactional ids"
        raise kafka_error(transaction.error, f"{cluster.name}: transactional id {probe}", right=right)
    return transaction.error not in LOADING_CODES


PAGE_BYTES = 1 << 20
SUFFIX = ".jsonl"


def read_unreplicated_records(
    state: SwitchState, offset_range: UnreplicatedRange, old: KafkaCluster, new: KafkaCluster, store: Store
) -> Iterator[UnreplicatedRecord]:
    """Yields the records of the range on `old` with transaction outcomes; with `beside`, only those that `new` lacks.
    Reads the range twice, since a transaction's end follows its records. Raises KafkaError if the range cannot be read
    to the end.
    """
    origin = origin_of(state, offset_range)
    if not offset_range.beside:
        return (record.saved for record in _written(old, origin))
    partition = TopicPartition(*offset_range.where)
    start = new.list_offsets([partition], OffsetKind.EARLIEST)[partition]
    known_to = offset_range.first if state.kind is SwitchKind.REBUILD else 0
    compacted = offset_range.topic in parse_compacted(store.link_states.of(state.back))
    comparison = HomeComparison(start, link_producer_ids(store, state.back), known_to, compacted)
    held = _held(new, replace(origin, first=max(origin.first, start)))
    return records_missing_at_home(_written(old, origin), held, comparison)


def _written(cluster: KafkaCluster, origin: RescueOrigin) -> Iterator[TwinRecord]:
    endings = TransactionOutcomes()
    for view, header in _batches(cluster, origin):
        if header.attributes & CONTROL_FLAG:
            for one in iter_records(view, header):
                endings.note(header.producer_id, one.offset, one.key)
    for view, header in _batches(cluster, origin):
        if header.attributes & CONTROL_FLAG:
            continue
        bound = header.attributes & TRANSACTIONAL_FLAG
        for one in iter_records(view, header):
            if origin.first <= one.offset < origin.end:
                ending = endings.of(header.producer_id, one.offset) if bound else TransactionOutcome.COMMITTED
                yield TwinRecord(UnreplicatedRecord(one, ending), header.producer_id)


def _held(cluster: KafkaCluster, origin: RescueOrigin) -> Iterator[Record]:
    partition = TopicPartition(origin.topic, origin.partition)
    end = cluster.list_offsets([partition], OffsetKind.HIGH_WATERMARK)[partition]
    for view, header in _batches(cluster, replace(origin, end=min(end, origin.end))):
        if not header.attributes & CONTROL_FLAG:
            yield from iter_records(view, header)


def count_unreplicated_records(
    state: SwitchState, offset_range: UnreplicatedRange, old: KafkaCluster, new: KafkaCluster, store: Store
) -> RecordCount:
    count = RecordCount()
    for record in read_unreplicated_records(state, offset_range, old, new, store):
        count = count.with_one(record.ending)
    return count


def read_origin(path: Path) -> RescueOrigin:
    """Raises ConfigError if the file cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return read_header(file.readline(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("switch.file-unreadable", file=str(path), cause=str(error)) from error


def read_rescued_file(path: Path) -> Iterator[UnreplicatedRecord]:
    """Raises ConfigError if the file cannot be read, WireError if it is incomplete."""
    try:
        with path.open(encoding="utf-8") as file:
            file.readline()
            yield from read_lines(file, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("switch.file-unreadable", file=str(path), cause=str(error)) from error


def _batches(cluster: KafkaCluster, origin: RescueOrigin) -> Iterator[tuple[memoryview, BatchHeader]]:
    partition, position = TopicPartition(origin.topic, origin.partition), origin.first
    while position < origin.end:
        fetched = cluster.read_from(partition, position, bytes_max=PAGE_BYTES, committed=False)
        found = split_batches(fetched.records)
        if not found:
            # Records that are deleted next must not be missed for one empty response.
            raise KafkaError(f"{cluster.name}: {partition} cannot be read from offset {position} on", retriable=True)
        for view, header in found:
            check_crc(view, header)
            if header.base_offset >= origin.end:
                return
            yield view, header
        position = max(position, found[-1][1].last_offset + 1)


# A coordinator may drop an offset so long after the topic was recreated, though committed for the new one.
OFFSETS_STABLE_MS = 3_000
AGREEMENT_RENEWAL_MS = 60_000  # long before an approval expires
TOPIC_ABSENT_CODES = frozenset({Code.unknown_topic_or_partition, Code.unknown_topic_id})


def origin_of(state: SwitchState, offset_range: UnreplicatedRange) -> RescueOrigin:
    old_id = next(move.old_id for move in state.topics if move.topic == offset_range.topic)
    place = (offset_range.topic, old_id, offset_range.partition, offset_range.first, offset_range.end)
    return RescueOrigin(state.id, state.old, state.new, *place)


def save_unreplicated(
    state: SwitchState, topics: Collection[str], old: KafkaCluster, new: KafkaCluster, store: Store
) -> StepDone:
    """Saves all ranges to the new home's topic of rescued records and to the incident log, before anything is deleted;
    and the group offsets in `topics`.
    """
    done, exported, lacks = [], 0, ""
    for offset_range in ranges_from_json(state.tails):
        saved = _saved(state, offset_range, old, new, store)
        if saved.saved_as:
            try:
                path = Path(state.folder) / origin_of(state, saved).file_name()
                export(RescuedTopic(new).read(copy_of(saved)), path)
                saved, exported = replace(saved, file=str(path)), exported + 1
            except ConfigError as error:
                lacks = f"; {error.message}: `twinshore switch rescue export` writes them"
        if saved.saved_as or saved.end <= offset_range.first:
            _account(state, saved, store)
        done.append(saved)
    places = read_group_offsets(old, topics)[0] if topics else {}
    state = replace(state, tails=ranges_to_json(done), places=offsets_to_json(places))
    if not any(one.saved_as for one in done):
        return StepDone(state, "nothing is to be rescued")
    records = count_phrase(sum(one.records for one in done), "record")
    files = f" and {count_phrase(exported, 'file')} in {state.folder}" if exported else ""
    return StepDone(state, f"{records} saved to {RESCUED_TOPIC} on {new.name}{files}{lacks}")


def copy_of(offset_range: UnreplicatedRange) -> RescueCopy:
    return RescueCopy(offset_range.saved_at, offset_range.saved_as.encode())


def _saved(
    state: SwitchState, offset_range: UnreplicatedRange, old: KafkaCluster, new: KafkaCluster, store: Store
) -> UnreplicatedRange:
    """Returns the range once saved. With `beside`, only records that the home lacks are saved, if any."""
    if offset_range.end <= offset_range.first:
        return offset_range
    found = read_unreplicated_records(state, offset_range, old, new, store)
    if offset_range.beside:
        first = next(found, None)
        if first is None:
            return replace(offset_range, first=offset_range.end)
        offset_range, found = replace(offset_range, first=first.record.offset), chain((first,), found)
    copy, count = RescuedTopic(new).save(origin_of(state, offset_range), found)
    saved = replace(offset_range, saved_at=copy.at, saved_as=copy.key.decode())
    return replace(saved, records=count.records, committed=count.committed)


def find_unsaved_ranges(
    state: SwitchState, fresh: Iterable[UnreplicatedRange], topic: str, new: KafkaCluster
) -> tuple[UnreplicatedRange, ...]:
    """Returns what to save before the topic may be deleted: parts of `fresh` outside the saved ranges, and saved ranges
    without a complete copy.
    """
    saved = [offset_range for offset_range in ranges_from_json(state.tails) if offset_range.topic == topic]
    found = [
        offset_range
        for offset_range in saved
        if offset_range.end > offset_range.first and not _is_whole(offset_range, new)
    ]
    for offset_range in fresh:
        known = [one for one in saved if one.where == offset_range.where]
        if not known:
            found.append(offset_range)
            continue
        first, end = min(one.first for one in known), max(one.end for one in known)
        if offset_range.end > end:
            found.append(replace(offset_range, first=end, gone=0))
        if not offset_range.beside and offset_range.first < first:
            found.append(replace(offset_range, end=first))
    return tuple(found)


def _is_whole(offset_range: UnreplicatedRange, new: KafkaCluster) -> bool:
    count = RecordCount(offset_range.records, offset_range.committed)
    try:
        return bool(offset_range.saved_as) and RescuedTopic(new).count(copy_of(offset_range)) == count
    except WireError:
        return False


def save_more_ranges(
    state: SwitchState, more: Sequence[UnreplicatedRange], old: KafkaCluster, new: KafkaCluster, store: Store
) -> StepPending:
    """Saves more ranges, and returns pending: the topic is checked once more afterwards."""
    done = save_unreplicated(replace(state, tails=ranges_to_json(more)), (), old, new, store)
    again = {(offset_range.where, offset_range.first) for offset_range in more}
    ranges = [
        *(one for one in ranges_from_json(state.tails) if (one.where, one.first) not in again),
        *ranges_from_json(done.state.tails),
    ]
    sentence = f"{join_names(list(map(str, more)))}: {done.sentence}"
    return StepPending(sentence, replace(state, tails=ranges_to_json(ranges)))


def _account(state: SwitchState, offset_range: UnreplicatedRange, store: Store) -> None:
    """Adds one row to the incident log and one to the audit. Idempotent."""
    saved = f"saved in {RESCUED_TOPIC} on {state.new}" if offset_range.saved_as else "nothing is left to be saved"
    records = count_phrase(offset_range.records, "record")
    sentence = f"{offset_range} of {state.old} was not replicated: {records}, {saved}"
    if offset_range.gone:
        sentence += f"; {count_phrase(offset_range.gone, 'offset')} before were deleted there unread"
    if any(row.incident.sentence == sentence for row in store.incidents.rows(state.back)):
        return
    now_ms, kind = wall_ms(), IncidentKind.TAIL_RESCUED
    first, end, topic = offset_range.first, offset_range.end, offset_range.topic
    audit = (now_ms, state.back, "rescue", offset_range.name, str(first), str(end), saved, state.by, topic)
    store.audit.add([AuditRow(*audit)])
    incident = Incident(state.back, *offset_range.where, kind, first, end, POLICY_RESCUE, sentence, kind.side)
    row = store.incidents.add(incident, now_ms=now_ms)
    store.incidents.close(row.id, now_ms=now_ms)


def recreate_topics(
    state: SwitchState,
    topics: Sequence[TopicMove],
    old: KafkaCluster,
    store: Store,
    mirror: MirrorWatch,
    guard: DeletionGuard,
    not_yet: Callable[[SwitchState, TopicMove], StepPending | None],
) -> StepOutcome:
    """Deletes the topics. Done once the mirror has recreated them; without topics the sentence is empty. `not_yet`
    checks a topic right before its deletion, and returns why the topic must stay for now.
    """
    waits, names = [], [move.topic for move in topics]
    for move in topics:
        shown = set(read_topic_ids(old, move.topic).values())
        rows = [row for row in store.twins.of(state.back) if row.topic == move.topic]
        if {row.target_topic_id for row in rows} == shown and shown not in ({move.old_id}, {""}):
            continue
        waits.append(move.topic)
        if move.old_id in shown:
            if refused := guard.refusal([move.topic]):
                return StepPending(refused.message)
            if pending := not_yet(state, move):
                return pending
        if not rows or rows[0].target_topic_id == move.old_id:
            _agree(store, state.back, move, state.by, wall_ms())
        if move.old_id in shown:
            _delete(state, move, old, store, guard)
    if waits:
        return mirror.waiting(f"the mirror of {state.back} recreates {join_names(waits)}")
    return StepDone(state, f"{join_names(names)} {is_or_are(names)} recreated on {state.old}" if names else "")


def read_topic_ids(cluster: KafkaCluster, topic: str) -> dict[int, str]:
    """Returns the topic's hex id by broker; empty where a broker does not know the topic."""

    def ask(connection: Connection, timeout_s: float) -> str:
        found = read_metadata(connection, [topic], timeout_s=timeout_s).topics.get(topic)
        if found is None or found.error in TOPIC_ABSENT_CODES or found.topic_id == NO_TOPIC_ID:
            return ""
        return found.topic_id.hex()

    return {node: cluster.at(node, "topic id", ask) for node in cluster.metadata([], refresh=True).brokers}


def _agree(store: Store, back: str, move: TopicMove, by: str, now_ms: int) -> None:
    word = Approval(now_ms, move.new_id).to_json()
    audit_row = AuditRow(now_ms, back, "topic", move.topic, "", "begins again", f"agreed by {by}", by, move.topic)
    known = {row.subject: row for row in store.link_states.of(back, RECREATE_APPROVAL)}.get(move.topic)
    renewed = known is not None and known.value == word
    if known is not None and renewed and 0 <= now_ms - known.since_ms < AGREEMENT_RENEWAL_MS:
        return
    row = LinkStateRow(back, RECREATE_APPROVAL, move.topic, word, "agreed", now_ms)
    store.link_states.remember([row], [] if renewed else [audit_row])


def _delete(state: SwitchState, move: TopicMove, old: KafkaCluster, store: Store, guard: DeletionGuard) -> None:
    """Idempotent. The audit row comes first, so that the deletion is recorded
    even if the response is lost or this process dies.
    """
    before, after = f"id {move.old_id}", f"deleted on {state.old}, to be refilled from {state.new}"
    if before not in {row.before for row in store.audit.page(AuditFilter((state.back,), "twin", topic=move.topic))}:
        audit = (wall_ms(), state.back, "twin", move.topic, before, after, "asked", state.by, move.topic)
        store.audit.add([AuditRow(*audit)])
    guard.delete(old, move.topic, move.old_id)


class RestoreGroupOffsets:
    """Restores group offsets, never inside deleted records. From then on offsets follow the home, along the link that
    fills the twins. `now_ms`: by the clock of `SwitchState`.

    A restored offset counts only after a while: a coordinator may still drop it with the old topic, and a sync round
    that had found no offset may still write the home's.
    """

    def __init__(
        self, old: KafkaCluster, link: Link, settings: Settings, store: Store, now_ms: Callable[[], int]
    ) -> None:
        self._old, self._link, self._settings, self._store, self._now_ms = old, link, settings, store, now_ms
        self._lacked_ms = 0

    def __call__(self, state: SwitchState) -> StepOutcome:
        wanted = self._wanted(state)
        stands = ""
        if wanted:
            lacking = restore_group_offsets(self._old, wanted)
            now_ms = self._now_ms()
            if lacking or not self._lacked_ms:
                self._lacked_ms = now_ms
            # A clock that went back counts as past the time.
            if 0 <= now_ms - self._lacked_ms < OFFSETS_STABLE_MS:
                return StepPending(
                    f"the offsets of {join_names(lacking or sorted(wanted))} are restored on {state.old}"
                )
            stands = f"the offsets of {count_phrase(len(wanted), 'group')} are restored on {state.old}"
        followed = let_groups_follow_home(state, self._link, self._settings, self._store, self._now_ms())
        return replace(followed, sentence="; ".join(filter(None, (stands, followed.sentence))))

    def _wanted(self, state: SwitchState) -> dict[str, dict[TopicPartitionTuple, SavedOffset]]:
        starts: dict[TopicPartitionTuple, int] = {}
        for offset_range in ranges_from_json(state.tails):
            start = offset_range.first - offset_range.gone
            starts[offset_range.where] = min(start, starts.get(offset_range.where, start))
        # Offsets left here by a forced switch count as the link's from now on: they follow.
        marked = find_topics_with_own_offsets(self._link, self._store, state.names())
        found = {}
        for group, offsets in offsets_from_json(state.places).items():
            at = clamp_offsets({where: one.offset for where, one in offsets.items()}, starts)
            found[group] = {
                where: SavedOffset(one, CommittedOffset(at[where], COMMIT_MARK if where[0] in marked else one.metadata))
                for where, one in offsets.items()
            }
        return found


def let_groups_follow_home(state: SwitchState, link: Link, settings: Settings, store: Store, now_ms: int) -> StepDone:
    """Makes offsets that groups left on twins at a forced switch follow the home. On a mapped twin, offsets below
    unreplicated records stay: the group may still read these. While a cluster does not answer, raises KafkaError for
    some seconds, then leaves the rest to the next fail-back.
    """
    unread = ranges_from_json(state.tails) if state.kind is SwitchKind.MAPPED_FAILBACK else ()
    ends = {offset_range.where: offset_range.end for offset_range in unread if offset_range.first < offset_range.end}
    try:
        return StepDone(state, let_offsets_follow_home(link, settings, store, state.names(), state.by, ends))
    except KafkaError as error:
        if error.retriable and not state.tried_for(UNREACHABLE_MS_MAX, now_ms):
            raise
        why = f"whether groups follow {link.source} again is not known ({error.message})"
        return StepDone(replace(state, unfollowed=True), f"{why}: see `twinshore groups`, and fail back again")
