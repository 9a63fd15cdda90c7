"""Steps that check a returned old home, rescue its unreplicated records, and recreate its topics. Every step may be
repeated.

The transaction coordinators of a returned cluster first load their logs (`describe_loading_coordinator`). Until then, a
broker lists none of the transactions that are about to be ended, mostly without an error; only a request for a specific
id reveals the load. Coordinators end transactions left open by the outage on their own, denied or not.

A topic is recreated under its own name: records that only this log holds are saved before the deletion, and group
offsets are restored after the refill.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from twinshore.config.errors import ConfigError, KafkaError, WireError
from twinshore.config.frozen import COMMIT_MARK, RESCUED_TOPIC
from twinshore.config.incident_policy import POLICY_RESCUE, IncidentKind
from twinshore.config.model import Link, TopicPartition
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
from twinshore.replication.sync.core.lifecycle import BEGIN_AGAIN_APPROVAL, Approval, parse_compacted
from twinshore.replication.sync.topic_deletion import DeletionGuard
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.state.core.values import AuditRow, Incident, LinkStateRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store
from twinshore.switch.core.steps import StepDone, StepOutcome, StepPending, SwitchKind, SwitchState, TopicMove
from twinshore.switch.core.unreplicated import (
    DIVERGENCE_KINDS,
    EXACT_DIVERGENCE_KINDS,
    BatchBytes,
    HomeComparison,
    LogMatch,
    OldHomePartition,
    PartitionKey,
    RecordCount,
    RescueCopy,
    RescueOrigin,
    TransactionOutcome,
    TransactionOutcomes,
    TwinRecord,
    UnreplicatedRange,
    UnreplicatedRecord,
    clamp_offsets,
    compare_logs_below,
    divergence_offset,
    has_diverged,
    has_unchecked_records,
    ranges_from_json,
    ranges_to_json,
    read_header,
    read_lines,
    records_missing_at_home,
)
from twinshore.switch.drain import MirrorWatch
from twinshore.switch.handover import (
    SavedOffset,
    find_topics_with_own_offsets,
    let_offsets_follow_home,
    offsets_from_json,
    offsets_to_json,
    read_group_offsets,
    restore_group_offsets,
)
from twinshore.switch.rescued_topic import RescuedTopic, export
from twinshore.switch.write_access import UNREACHABLE_MS_MAX

WALK_PAGE_BYTES = 1 << 20
WALK_BYTES_MAX = 16 << 20  # of a partition, each time it is looked at
MARKER_BYTES = 96  # a page for so many markers holds few records: most of what lies there is not read in vain
TRANSACTION_TOPIC = "__transaction_state"
TRANSACTIONAL_ID_NOT_FOUND = 105
LOADING_CODES = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE})
PROBES_MAX = 100_000


def inspect_old_home(
    old: KafkaCluster, new: KafkaCluster, store: Store, back: str, topics: Iterable[TopicMove], *, every: bool = False
) -> tuple[OldHomePartition, ...]:
    """The link's progress is read first, since it only grows. `every`: also compare partitions that are not stopped;
    otherwise only those in topics that would be deleted.
    """
    some = list(topics)
    carried = {(at.topic, at.partition): at.to_offset for at in store.progress.positions(back)}
    rows = [row.incident for row in store.incidents.rows(back, open_only=True)]
    # Of several incidents the least exact comes last, so that more is saved.
    rows.sort(key=lambda one: one.kind not in EXACT_DIVERGENCE_KINDS)
    stopped = {(one.topic, one.partition): one for one in rows if one.kind in DIVERGENCE_KINDS}
    differing = {(one.topic, one.partition) for one in rows if one.kind is IncidentKind.CONTENT_DIFFERS}
    parts = [TopicPartition(one.topic, number) for one in some for number in range(one.partitions)]
    starts, ends = (old.list_offsets(parts, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    found = []
    for one in some:
        for number, point in enumerate(one.points):
            named, where = TopicPartition(one.topic, number), (one.topic, number)
            why = stopped.get(where)
            found.append(
                OldHomePartition(
                    *where,
                    starts[named],
                    ends[named],
                    point,
                    carried.get(where, -1),
                    why.kind if why else None,
                    why.from_offset if why else -1,
                    differs=where in differing,
                )
            )
    ours = link_producer_ids(store, back)
    found = [_walked(old, one, ours) if ours and has_unchecked_records(one) else one for one in found]
    return tuple(_compared(old, new, found, ours, every=every))


def _walked(old: KafkaCluster, one: OldHomePartition, ours: frozenset[int]) -> OldHomePartition:
    """Scans past the progress. Batches of the link without a progress row yet are not foreign. A batch of another
    producer past `carried` is foreign, even if the link has not met it; but right at the point the link must report
    first.
    """
    begin = max(one.point, one.carried, one.start)
    upto, stray = scan_own_batches(old, TopicPartition(one.topic, one.partition), begin, one.end, ours)
    if stray and max(one.carried, upto) > one.point:
        return replace(one, carried=max(one.carried, upto), strays_at=upto)
    return replace(one, carried=upto) if upto > begin else one


def scan_own_batches(
    cluster: KafkaCluster, named: TopicPartition, begin: int, end: int, ours: Container[int]
) -> tuple[int, bool]:
    """Returns how far from `begin` the log is the link's own, and whether a foreign batch follows. Reads a long log in
    part: call again to read on.
    """
    at, read = begin, 0
    while at < end and read < WALK_BYTES_MAX:
        fetched = cluster.read_from(named, at, bytes_max=WALK_PAGE_BYTES, committed=False)
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
    old: KafkaCluster, new: KafkaCluster, found: list[OldHomePartition], ours: frozenset[int], *, every: bool
) -> Iterator[OldHomePartition]:
    """Compares what is right below the divergence, or right below `carried`. Partitions that are not stopped are
    compared only if their topics would be deleted, or with `every`.
    """
    topics = {one.topic for one in found if every or has_diverged(one)}
    for one in found:
        at = divergence_offset(one) if has_diverged(one) else min(max(one.point, one.carried), one.end)
        if one.topic not in topics or at <= one.start:
            yield one
        elif has_diverged(one):
            yield replace(one, one_past=_same_below(old, new, one, at, ours, unsure=False))
        else:
            yield replace(one, differs=one.differs or not _same_below(old, new, one, at, ours, unsure=True))


def _same_below(
    old: KafkaCluster, new: KafkaCluster, one: OldHomePartition, at: int, ours: frozenset[int], *, unsure: bool
) -> bool:
    """Returns whether the last record below `at` is the link's own, or the same on both clusters. `unsure`: the result
    if unknown: only one log holds a record there, the new home has deleted it, or it is too far back.
    """
    named = TopicPartition(one.topic, one.partition)
    if at > one.point:
        last = old.read_tail_batch(named, at - 1)
        if last is not None and last.producer_id in ours:
            return True
    start = new.list_offsets([named], OffsetKind.EARLIEST)[named]
    reads = [partial(_between, cluster, named, at) for cluster in (old, new)]
    found = compare_logs_below(at, one.start, start, *reads)
    return unsure if found is LogMatch.UNKNOWN else found is LogMatch.SAME


def _between(cluster: KafkaCluster, named: TopicPartition, at: int, first: int) -> list[BatchBytes] | None:
    """Returns None if the batches from `first` up to `at` are too many or unreadable."""
    found: list[BatchBytes] = []
    upto, read, page_bytes = first, 0, min(WALK_PAGE_BYTES, (at - first) * MARKER_BYTES)
    while upto < at:
        fetched = cluster.read_from(named, upto, bytes_max=page_bytes, committed=False)
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
    named = [TopicPartition(*where) for where in parts]
    found = cluster.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    return {(one.topic, one.partition): end for one, end in found.items()}


def describe_loading_coordinator(cluster: KafkaCluster) -> str:
    """Describes a coordinator that has not loaded its partition of the transaction log yet; empty once all have."""
    seen = cluster.metadata([TRANSACTION_TOPIC], refresh=True).topics.get(TRANSACTION_TOPIC)
    if seen is None or seen.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return ""  # no transaction was ever begun there
    if seen.error:
        raise kafka_error(
            seen.error, f"{cluster.name}: {TRANSACTION_TOPIC}", right=f"Describe on topic {TRANSACTION_TOPIC}"
        )
    for one in seen.partitions:
        if one.leader == NO_LEADER:
            return f"part {one.partition} of the log of transactions has no coordinator on {cluster.name} yet"
        if not _has_read(cluster, one.leader, transactional_id_in(one.partition, len(seen.partitions))):
            return f"broker {one.leader} of {cluster.name} still reads its log of transactions"
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
    def ask(line: Connection, timeout_s: float) -> list[TransactionState]:
        version, body = line.handwritten_version(TRANSACTIONS_KEY), encode_describe_transactions([probe])
        return line.ask(
            TRANSACTIONS_KEY, version, body, lambda view: parse_describe_transactions(view, 0), timeout_s=timeout_s
        )

    (told,) = cluster.at(node, "transactions", ask)
    if told.error in LOADING_CODES:
        return False
    if told.error not in (0, TRANSACTIONAL_ID_NOT_FOUND):
        right = "Describe on all transactional ids"
        raise kafka_error(told.error, f"{cluster.name}: transactional id {probe}", right=right)
    return True


PAGE_BYTES = 1 << 20
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class HomeToCompare:
    cluster: KafkaCluster
    beside: HomeComparison


def home_to_compare(
    link: str, tail: UnreplicatedRange, home: KafkaCluster, store: Store, known_to: int
) -> HomeToCompare:
    """Returns the home to read beside the range. `link` writes the twin."""
    named = TopicPartition(tail.topic, tail.partition)
    start = home.list_offsets([named], OffsetKind.EARLIEST)[named]
    compacted = tail.topic in parse_compacted(store.link_states.of(link))
    return HomeToCompare(home, HomeComparison(start, link_producer_ids(store, link), known_to, compacted))


def read_unreplicated_records(
    cluster: KafkaCluster, origin: RescueOrigin, home: HomeToCompare | None = None
) -> Iterator[UnreplicatedRecord]:
    """Yields the records of the range with transaction outcomes; with `home`, only those that the home lacks. Reads the
    range twice, since a transaction's end follows its records. Raises KafkaError if the range cannot be read to the
    end.
    """
    if home is None:
        return (one.saved for one in _written(cluster, origin))
    theirs = _held(home.cluster, replace(origin, first=max(origin.first, home.beside.start)))
    return records_missing_at_home(_written(cluster, origin), theirs, home.beside)


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
    named = TopicPartition(origin.topic, origin.partition)
    end = cluster.list_offsets([named], OffsetKind.HIGH_WATERMARK)[named]
    for view, header in _batches(cluster, replace(origin, end=min(end, origin.end))):
        if not header.attributes & CONTROL_FLAG:
            yield from iter_records(view, header)


def count_unreplicated_records(
    cluster: KafkaCluster, origin: RescueOrigin, home: HomeToCompare | None = None
) -> RecordCount:
    count = RecordCount()
    for one in read_unreplicated_records(cluster, origin, home):
        count = count.with_one(one.ending)
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
    named, position = TopicPartition(origin.topic, origin.partition), origin.first
    while position < origin.end:
        fetched = cluster.read_from(named, position, bytes_max=PAGE_BYTES, committed=False)
        found = split_batches(fetched.records)
        if not found:
            # Records that are deleted next must not be missed for one empty response.
            raise KafkaError(f"{cluster.name}: {named} cannot be read from offset {position} on", retriable=True)
        for view, header in found:
            check_crc(view, header)
            if header.base_offset >= origin.end:
                return
            yield view, header
        position = max(position, found[-1][1].last_offset + 1)


NAMED_MAX = 5
# A coordinator may drop an offset so long after the topic was recreated, though committed for the new one.
OFFSETS_STABLE_MS = 3_000
AGREEMENT_RENEWAL_MS = 60_000  # long before an approval expires
TOPIC_ABSENT_CODES = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})

HomeOf = Callable[[SwitchState, UnreplicatedRange], HomeToCompare]


def origin_of(record: SwitchState, tail: UnreplicatedRange) -> RescueOrigin:
    old_id = next(one.old_id for one in record.topics if one.topic == tail.topic)
    return RescueOrigin(record.id, record.old, record.new, tail.topic, old_id, tail.partition, tail.first, tail.end)


def save_unreplicated(
    record: SwitchState, topics: Collection[str], old: KafkaCluster, new: KafkaCluster, store: Store, home_of: HomeOf
) -> StepDone:
    """Saves all ranges to the new home's topic of rescued records and to the incident log, before anything is deleted;
    and the group offsets in `topics`.
    """
    done, exported, lacks = [], 0, ""
    for tail in ranges_from_json(record.tails):
        saved = _saved(record, tail, old, RescuedTopic(new), home_of)
        if saved.saved_as:
            try:
                path = Path(record.folder) / origin_of(record, saved).file_name()
                export(RescuedTopic(new).read(copy_of(saved)), path)
                saved, exported = replace(saved, file=str(path)), exported + 1
            except ConfigError as error:
                lacks = f"; {error.message}: `twinshore switch rescue export` writes them"
        if saved.saved_as or saved.end <= tail.first:
            _account(record, saved, store)
        done.append(saved)
    places = read_group_offsets(old, topics)[0] if topics else {}
    record = replace(record, tails=ranges_to_json(done), places=offsets_to_json(places))
    if not any(one.saved_as for one in done):
        return StepDone(record, "nothing is to be rescued")
    records = count_phrase(sum(one.records for one in done), "record")
    files = f" and {count_phrase(exported, 'file')} in {record.folder}" if exported else ""
    return StepDone(record, f"{records} saved to {RESCUED_TOPIC} on {new.name}{files}{lacks}")


def copy_of(tail: UnreplicatedRange) -> RescueCopy:
    return RescueCopy(tail.saved_at, tail.saved_as.encode())


def _saved(
    record: SwitchState, tail: UnreplicatedRange, old: KafkaCluster, rescued: RescuedTopic, home_of: HomeOf
) -> UnreplicatedRange:
    """Returns the range once saved. With `beside`, only records that the home lacks are saved, if any."""
    if tail.end <= tail.first:
        return tail
    origin = origin_of(record, tail)
    found = read_unreplicated_records(old, origin, home_of(record, tail) if tail.beside else None)
    if tail.beside:
        first = next(found, None)
        if first is None:
            return replace(tail, first=tail.end)
        tail, found = replace(tail, first=first.record.offset), chain((first,), found)
    copy, count = rescued.save(origin_of(record, tail), found)
    saved = replace(tail, records=count.records, committed=count.committed)
    return replace(saved, saved_at=copy.at, saved_as=copy.key.decode())


def find_unsaved_ranges(
    record: SwitchState, fresh: Iterable[UnreplicatedRange], topic: str, new: KafkaCluster
) -> tuple[UnreplicatedRange, ...]:
    """Returns what to save before the topic may be deleted: parts of `fresh` outside the saved ranges, and saved ranges
    without a complete copy.
    """
    known = [one for one in ranges_from_json(record.tails) if one.topic == topic]
    upto = {one.where: one.end for one in sorted(known, key=lambda one: one.end)}
    since = {one.where: one.first for one in sorted(known, key=lambda one: -one.first)}
    found = [one for one in known if one.end > one.first and not _is_whole(one, new)]
    for one in fresh:
        if one.where not in upto:
            found.append(one)
            continue
        if one.end > upto[one.where]:
            found.append(replace(one, first=upto[one.where], gone=0))
        if not one.beside and one.first < since[one.where]:
            found.append(replace(one, end=since[one.where]))
    return tuple(found)


def _is_whole(tail: UnreplicatedRange, new: KafkaCluster) -> bool:
    try:
        return bool(tail.saved_as) and RescuedTopic(new).count(copy_of(tail)) == RecordCount(
            tail.records, tail.committed
        )
    except WireError:
        return False


def save_more_ranges(
    record: SwitchState,
    more: Sequence[UnreplicatedRange],
    old: KafkaCluster,
    new: KafkaCluster,
    store: Store,
    home_of: HomeOf,
) -> StepPending:
    """Saves more ranges, and returns pending: the topic is checked once more afterwards."""
    saved = save_unreplicated(replace(record, tails=ranges_to_json(more)), (), old, new, store, home_of)
    spans = {(one.where, one.first) for one in more}
    kept = [one for one in ranges_from_json(record.tails) if (one.where, one.first) not in spans]
    tails = ranges_to_json([*kept, *ranges_from_json(saved.record.tails)])
    return StepPending(
        f"{join_names([str(one) for one in more], NAMED_MAX)}: {saved.sentence}", replace(record, tails=tails)
    )


def _account(record: SwitchState, tail: UnreplicatedRange, store: Store) -> None:
    """Adds one row to the incident log and one to the audit. Idempotent."""
    saved = f"saved in {RESCUED_TOPIC} on {record.new}" if tail.saved_as else "nothing is left to be saved"
    sentence = f"{tail} of {record.old} never crossed: {count_phrase(tail.records, 'record')}, {saved}"
    if tail.gone:
        sentence += f"; {count_phrase(tail.gone, 'offset')} before were deleted there before anybody saw them"
    place = (record.back, tail.topic, tail.partition, IncidentKind.TAIL_RESCUED, tail.first, tail.end)
    rows = [row for row in store.incidents.rows(record.back) if row.incident.sentence == sentence]
    if rows:
        return
    now_ms = wall_ms()
    audit = (now_ms, record.back, "rescue", f"{tail.topic}-{tail.partition}", str(tail.first), str(tail.end))
    store.audit.add([AuditRow(*audit, saved, record.by, tail.topic)])
    row = store.incidents.add(Incident(*place, POLICY_RESCUE, sentence, IncidentKind.TAIL_RESCUED.side), now_ms=now_ms)
    store.incidents.close(row.id, now_ms=now_ms)


def recreate_topics(
    record: SwitchState,
    topics: Iterable[TopicMove],
    old: KafkaCluster,
    store: Store,
    mirror: MirrorWatch,
    guard: DeletionGuard,
    not_yet: Callable[[SwitchState, TopicMove], StepPending | None],
) -> StepOutcome:
    """Deletes the topics. Done once the mirror has recreated them; without topics the sentence is empty. `not_yet`
    checks a topic right before its deletion, and returns why the topic must stay for now.
    """
    waits, names = [], []
    for one in topics:
        names.append(one.topic)
        shown = set(read_topic_ids(old, one.topic).values())
        rows = [row for row in store.twins.of(record.back) if row.topic == one.topic]
        if {row.target_topic_id for row in rows} == shown and shown not in ({one.old_id}, {""}):
            continue
        waits.append(one.topic)
        if one.old_id in shown:
            if refused := guard.refusal([one.topic]):
                return StepPending(refused.message)
            if pending := not_yet(record, one):
                return pending
        if not rows or rows[0].target_topic_id == one.old_id:
            _agree(store, record.back, one, record.by, wall_ms())
        if one.old_id in shown:
            _delete(record, one, old, store, guard)
    if waits:
        return mirror.waiting(f"the mirror of {record.back} makes {join_names(waits, NAMED_MAX)} anew")
    return StepDone(
        record, f"{join_names(names, NAMED_MAX)} {is_or_are(names)} made anew on {record.old}" if names else ""
    )


def read_topic_ids(cluster: KafkaCluster, topic: str) -> dict[int, str]:
    """Returns the topic's hex id by broker; empty where a broker does not know the topic."""

    def ask(line: Connection, timeout_s: float) -> str:
        seen = read_metadata(line, [topic], timeout_s=timeout_s).topics.get(topic)
        there = seen is not None and seen.error not in TOPIC_ABSENT_CODES and seen.topic_id != NO_TOPIC_ID
        return seen.topic_id.hex() if there and seen is not None else ""

    return {node: cluster.at(node, "topic id", ask) for node in cluster.metadata([], refresh=True).brokers}


def _agree(store: Store, back: str, one: TopicMove, by: str, now_ms: int) -> None:
    word = Approval(now_ms, one.new_id).to_json()
    told = AuditRow(now_ms, back, "topic", one.topic, "", "begins again", f"agreed by {by}", by, one.topic)
    known = {row.subject: row for row in store.link_states.of(back, BEGIN_AGAIN_APPROVAL)}.get(one.topic)
    first = known is None or known.value != word
    if known is not None and not first and 0 <= now_ms - known.since_ms < AGREEMENT_RENEWAL_MS:
        return
    row = LinkStateRow(back, BEGIN_AGAIN_APPROVAL, one.topic, word, "agreed", now_ms)
    store.link_states.remember([row], [told] if first else [])


def _delete(record: SwitchState, one: TopicMove, old: KafkaCluster, store: Store, guard: DeletionGuard) -> None:
    """Idempotent. The audit row comes first, so that the deletion is recorded
    even if the response is lost or this process dies.
    """
    before, after = f"id {one.old_id}", f"deleted on {record.old}, to be filled anew from {record.new}"
    told_before = store.audit.page(AuditFilter((record.back,), "twin", topic=one.topic))
    if before not in {row.before for row in told_before}:
        told = AuditRow(wall_ms(), record.back, "twin", one.topic, before, after, "asked", record.by, one.topic)
        store.audit.add([told])
    guard.delete(old, one.topic, one.old_id)


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

    def __call__(self, record: SwitchState) -> StepOutcome:
        wanted = self._wanted(record)
        stands = ""
        if wanted:
            lacking = restore_group_offsets(self._old, wanted)
            now_ms = self._now_ms()
            if lacking or not self._lacked_ms:
                self._lacked_ms = now_ms
            # A clock that went back counts as past the time.
            if 0 <= now_ms - self._lacked_ms < OFFSETS_STABLE_MS:
                names = lacking or sorted(wanted)
                return StepPending(f"{join_names(names, NAMED_MAX)} {is_or_are(names)} put back on {record.old}")
            stands = f"{count_phrase(len(wanted), 'group')} stands on {record.old} where it stood"
        followed = let_groups_follow_home(record, self._link, self._settings, self._store, self._now_ms())
        return replace(followed, sentence="; ".join(filter(None, (stands, followed.sentence))))

    def _wanted(self, record: SwitchState) -> dict[str, dict[TopicPartitionTuple, SavedOffset]]:
        starts: dict[TopicPartitionTuple, int] = {}
        for one in ranges_from_json(record.tails):
            starts[one.where] = min(one.first - one.gone, starts.get(one.where, one.first))
        # Offsets left here by a forced switch count as the link's from now on: they follow.
        theirs = find_topics_with_own_offsets(self._link, self._store, record.names())
        found = {}
        for group, places in offsets_from_json(record.places).items():
            at = clamp_offsets({where: one.offset for where, one in places.items()}, starts)
            found[group] = {
                where: SavedOffset(one, CommittedOffset(at[where], COMMIT_MARK if where[0] in theirs else one.metadata))
                for where, one in places.items()
            }
        return found


def let_groups_follow_home(record: SwitchState, link: Link, settings: Settings, store: Store, now_ms: int) -> StepDone:
    """Makes offsets that groups left on twins at a forced switch follow the home. On a mapped twin, offsets below
    unreplicated records stay: the group may still read these. While a cluster does not answer, raises KafkaError for
    some seconds, then leaves the rest to the next fail-back.
    """
    unread = ranges_from_json(record.tails) if record.kind is SwitchKind.MAPPED_FAILBACK else ()
    ends = {(one.topic, one.partition): one.end for one in unread if one.first < one.end}
    try:
        return StepDone(record, let_offsets_follow_home(link, settings, store, record.names(), record.by, ends))
    except KafkaError as error:
        if error.retriable and not record.tried_for(UNREACHABLE_MS_MAX, now_ms):
            raise
        why = f"whether groups follow {link.source} again is not known ({error.message})"
        return StepDone(replace(record, unfollowed=True), f"{why}: see `twinshore groups`, and fail back again")
