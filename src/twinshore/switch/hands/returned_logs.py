"""The logs of an old home that has returned, by what its brokers and the link back say; and topics made anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code
from twinshore.kafka.metadata import NO_TOPIC_ID, ask_metadata
from twinshore.mirror.follow.last_resort import Word
from twinshore.mirror.follow.lifecycle import CONFIRMED
from twinshore.mirror.lane.marking import marker_id
from twinshore.store import AuditRow, Remembered, Store
from twinshore.switch.record import Moved
from twinshore.switch.returned import EXACT, PARTED, Stood, Where, unseen
from twinshore.wire.batch import CONTROL
from twinshore.wire.records import iter_records

SAID_AGAIN_MS = 60_000  # long before such a word holds no more
ABSENT = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})


def stood(old: KafkaCluster, new: KafkaCluster, store: Store, back: str, topics: Iterable[Moved]) -> tuple[Stood, ...]:
    """Each partition as it is now. What the link says is asked first: it only ever goes on."""
    some = list(topics)
    carried = {(at.topic, at.partition): at.to_offset for at in store.receipts.positions(back)}
    rows = [row.incident for row in store.ledger.rows(back, open_only=True) if row.incident.kind in PARTED]
    # Of several the one that knows least comes last: what it does not know is saved, too.
    rows.sort(key=lambda one: one.kind not in EXACT)
    stopped = {(one.topic, one.partition): one for one in rows}
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
                )
            )
    ours = producers(store, back)
    found = [_seen_at_point(old, one, ours) if ours and unseen(one) else one for one in found]
    told = [one.stopped in EXACT and one.point > one.start for one in found]
    return tuple(
        replace(one, one_past=_one_past(old, new, one)) if ask else one for one, ask in zip(found, told, strict=True)
    )


def _one_past(old: KafkaCluster, new: KafkaCluster, one: Stood) -> bool:
    """Whether both hold the same record right below the point: an old home that lost its end before it grew again does
    not. Where a marker or a hole lies there it cannot be told so, and counts as no; where the new home has deleted it,
    there is nothing to compare any more."""
    named = NamedPartition(one.topic, one.partition)
    if new.list_offsets([named], OffsetKind.EARLIEST)[named] >= one.point:
        return True
    held = []
    for cluster in (old, new):
        batch = cluster.read_batch(named, one.point - 1)
        if batch is None or batch[1].attributes & CONTROL:
            return False
        held.append([record for record in iter_records(*batch) if record.offset == one.point - 1])
    return bool(held[0]) and held[0] == held[1]


def _seen_at_point(old: KafkaCluster, one: Stood, ours: frozenset[int]) -> Stood:
    """What the link back wrote behind the point a moment ago, and has no receipt of yet, is no other's."""
    header = old.read_tail_batch(NamedPartition(one.topic, one.partition), one.point)
    if header is None or header.base_offset < one.point or header.producer_id not in ours:
        return one
    return replace(one, carried=header.last_offset + 1)


def producers(store: Store, link: str) -> frozenset[int]:
    """As whom a link writes."""
    identity = store.links.identity(link)
    return frozenset({identity.producer_id, marker_id(identity.producer_id)} if identity else ())


def ends_of(cluster: KafkaCluster, parts: Iterable[Where]) -> dict[Where, int]:
    """Where these logs end for whoever reads them."""
    named = [NamedPartition(*where) for where in parts]
    found = cluster.list_offsets(named, OffsetKind.HIGH_WATERMARK) if named else {}
    return {(one.topic, one.partition): end for one, end in found.items()}


def ids_shown(cluster: KafkaCluster, topic: str) -> dict[int, str]:
    """The topic's id, in hex, as each broker knows it now; empty where it knows no such topic."""

    def ask(line: Connection, timeout_s: float) -> str:
        seen = ask_metadata(line, [topic], timeout_s=timeout_s).topics.get(topic)
        there = seen is not None and seen.error not in ABSENT and seen.topic_id != NO_TOPIC_ID
        return seen.topic_id.hex() if there and seen is not None else ""

    return {node: cluster.at(node, "topic id", ask) for node in cluster.metadata([], refresh=True).brokers}


def agree_to_anew(store: Store, back: str, one: Moved, by: str, now_ms: int) -> None:
    """The mirror's leave to make the twin anew once it is gone."""
    word = Word(now_ms, one.new_id).to_json()
    told = AuditRow(now_ms, back, "topic", one.topic, "", "begins again", f"agreed by {by}", by, one.topic)
    known = {row.subject: row for row in store.memories.of(back, CONFIRMED)}.get(one.topic)
    first = known is None or known.value != word
    if known is not None and not first and 0 <= now_ms - known.since_ms < SAID_AGAIN_MS:
        return
    row = Remembered(back, CONFIRMED, one.topic, word, "agreed", now_ms)
    store.memories.remember([row], [told] if first else [])


def delete(old: KafkaCluster, one: Moved) -> None:
    """The topic with just this id; done twice, the second time nothing."""
    try:
        old.admin.delete_topic(one.topic, topic_id=bytes.fromhex(one.old_id))
    except KafkaError as error:
        if error.code not in ABSENT:
            raise
