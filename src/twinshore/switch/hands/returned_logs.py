"""The logs of an old home that has returned, by what its brokers and the link back say.

Its transaction coordinators first read their own logs (`loading`): until then a broker lists nothing of what it will
end, mostly without an error; asked about an id it says so. What was open when the site died they end by themselves,
denied or not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import partial

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import IncidentKind
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.metadata import NO_LEADER
from twinshore.mirror.lane.marking import marker_id
from twinshore.store import Store
from twinshore.switch.alike import Alike, Batch, alike_below
from twinshore.switch.record import Moved
from twinshore.switch.returned import EXACT, PARTED, Stood, Where, parted, parts_at, unseen
from twinshore.wire.batch import split_batches
from twinshore.wire.transactions import TRANSACTIONS_KEY, Transaction, encode_transactions, parse_transactions

WALK_PAGE_BYTES = 1 << 20
WALK_BYTES_MAX = 16 << 20  # of a partition, each time it is looked at
MARKER_BYTES = 96  # a page for so many markers holds few records: most of what lies there is not read in vain
LOG = "__transaction_state"
UNKNOWN_ID = 105
LOADING = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE})
PROBES_MAX = 100_000


def stood(
    old: KafkaCluster, new: KafkaCluster, store: Store, back: str, topics: Iterable[Moved], *, every: bool = False
) -> tuple[Stood, ...]:
    """Each partition as it is now. What the link says is asked first: it only ever goes on. `every`: also those that go
    on are compared with their home, whose topics would else stay."""
    some = list(topics)
    carried = {(at.topic, at.partition): at.to_offset for at in store.receipts.positions(back)}
    rows = [row.incident for row in store.ledger.rows(back, open_only=True)]
    # Of several the one that knows least comes last: what it does not know is saved, too.
    rows.sort(key=lambda one: one.kind not in EXACT)
    stopped = {(one.topic, one.partition): one for one in rows if one.kind in PARTED}
    differing = {(one.topic, one.partition) for one in rows if one.kind is IncidentKind.CONTENT_DIFFERS}
    parts = [NamedPartition(one.topic, number) for one in some for number in range(one.partitions)]
    starts, ends = (old.list_offsets(parts, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    found = []
    for one in some:
        for number, point in enumerate(one.points):
            named, where = NamedPartition(one.topic, number), (one.topic, number)
            why = stopped.get(where)
            found.append(
                Stood(
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
    ours = producers(store, back)
    found = [_walked(old, one, ours) if ours and unseen(one) else one for one in found]
    return tuple(_compared(old, new, found, ours, every=every))


def _walked(old: KafkaCluster, one: Stood, ours: frozenset[int]) -> Stood:
    """What the link wrote and has no receipt of yet is no other's. Behind what it carried, whoever else wrote is a
    stranger, though the link has not met him: right at the point it has to say first what it finds."""
    begin = max(one.point, one.carried, one.start)
    upto, stray = ours_upto(old, NamedPartition(one.topic, one.partition), begin, one.end, ours)
    if stray and max(one.carried, upto) > one.point:
        return replace(one, carried=max(one.carried, upto), strays_at=upto)
    return replace(one, carried=upto) if upto > begin else one


def ours_upto(
    cluster: KafkaCluster, named: NamedPartition, begin: int, end: int, ours: Container[int]
) -> tuple[int, bool]:
    """How far from `begin` on the log is the link's own, and whether somebody else's batch lies there. Of a long log
    some is read only: who asks again later sees more."""
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
    old: KafkaCluster, new: KafkaCluster, found: list[Stood], ours: frozenset[int], *, every: bool
) -> Iterator[Stood]:
    """With what lies right below the place where both part, and right below what was carried. Of the partitions that go
    on those are looked at whose topics would be deleted for another one; `every`: all."""
    topics = {one.topic for one in found if every or parted(one)}
    for one in found:
        at = parts_at(one) if parted(one) else min(max(one.point, one.carried), one.end)
        if one.topic not in topics or at <= one.start:
            yield one
        elif parted(one):
            yield replace(one, one_past=_same_below(old, new, one, at, ours, unsure=False))
        else:
            yield replace(one, differs=one.differs or not _same_below(old, new, one, at, ours, unsure=True))


def _same_below(
    old: KafkaCluster, new: KafkaCluster, one: Stood, at: int, ours: frozenset[int], *, unsure: bool
) -> bool:
    """Whether what lies right below this offset is the link's own, or the same on both. `unsure`: what counts where
    nobody can tell: one of them alone holds a record there, the new home has deleted it, or it is too long ago."""
    named = NamedPartition(one.topic, one.partition)
    if at > one.point:
        last = old.read_tail_batch(named, at - 1)
        if last is not None and last.producer_id in ours:
            return True
    start = new.list_offsets([named], OffsetKind.EARLIEST)[named]
    reads = [partial(_between, cluster, named, at) for cluster in (old, new)]
    found = alike_below(at, one.start, start, *reads)
    return unsure if found is Alike.UNKNOWN else found is Alike.SAME


def _between(cluster: KafkaCluster, named: NamedPartition, at: int, first: int) -> list[Batch] | None:
    """What lies from `first` up to `at`; None where it is too much or cannot be read."""
    found: list[Batch] = []
    upto, read, page_bytes = first, 0, min(WALK_PAGE_BYTES, (at - first) * MARKER_BYTES)
    while upto < at:
        fetched = cluster.read_from(named, upto, bytes_max=page_bytes, committed=False)
        batches = [batch for batch in split_batches(fetched.records) if batch[1].last_offset >= upto]
        if not batches or read >= WALK_BYTES_MAX:
            return None
        found += batches
        upto, read = batches[-1][1].last_offset + 1, read + len(fetched.records)
    return found


def producers(store: Store, link: str) -> frozenset[int]:
    """As whom a link writes."""
    identity = store.links.identity(link)
    return frozenset({identity.producer_id, marker_id(identity.producer_id)} if identity else ())


def ends_of(cluster: KafkaCluster, parts: Iterable[Where]) -> dict[Where, int]:
    """Where these logs end for whoever reads them."""
    named = [NamedPartition(*where) for where in parts]
    found = cluster.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    return {(one.topic, one.partition): end for one, end in found.items()}


def loading(cluster: KafkaCluster) -> str:
    """Which coordinator has not read its part of the log of transactions yet, in words; empty once all have."""
    seen = cluster.metadata([LOG], refresh=True).topics.get(LOG)
    if seen is None or seen.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return ""  # no transaction was ever begun there
    if seen.error:
        raise kafka_error(seen.error, f"{cluster.name}: {LOG}", right=f"Describe on topic {LOG}")
    for one in seen.partitions:
        if one.leader == NO_LEADER:
            return f"part {one.partition} of the log of transactions has no coordinator on {cluster.name} yet"
        if not _has_read(cluster, one.leader, id_in(one.partition, len(seen.partitions))):
            return f"broker {one.leader} of {cluster.name} still reads its log of transactions"
    return ""


def part_of(name: str, parts: int) -> int:
    """In which part of the log of transactions an id is: by what Java makes of the text, without its sign."""
    found = 0
    for letter in name:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return (0 if found == 1 << 31 else min(found, (1 << 32) - found)) % parts


def id_in(part: int, parts: int) -> str:
    """An id that nobody uses, in this part."""
    return next(name for number in range(PROBES_MAX) if part_of(name := f"probe-{number}", parts) == part)


def _has_read(cluster: KafkaCluster, node: int, probe: str) -> bool:
    def ask(line: Connection, timeout_s: float) -> list[Transaction]:
        version, body = line.spoken(TRANSACTIONS_KEY), encode_transactions([probe])
        return line.ask(TRANSACTIONS_KEY, version, body, lambda view: parse_transactions(view, 0), timeout_s=timeout_s)

    (told,) = cluster.at(node, "transactions", ask)
    if told.error in LOADING:
        return False
    if told.error not in (0, UNKNOWN_ID):
        right = "Describe on all transactional ids"
        raise kafka_error(told.error, f"{cluster.name}: transactional id {probe}", right=right)
    return True
