"""When the keys of a compacted twin are compared with the source's, and what the ledger is told of them. Pure.

A source keeps a tombstone for `delete.retention.ms` at least. So none is missed while all that crosses is younger than
that. How old it is follows from marks: at such a time the source ended there. No time stamp of a record is believed,
nor a mark of our own that lies in the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.incidents.kinds import known
from twinshore.proof.borders import PartitionLook
from twinshore.proof.values import OwedKey, Proven
from twinshore.store.proof_values import KeyLookRow
from twinshore.store.values import Incident, LedgerRow

KIND = IncidentKind.DELETIONS_OWED
DELETE_RETENTION_MS = 86_400_000  # As brokers have it by default.
# Deletions that are owed may be paid by a new value, which a look alone can tell.
OWED_AGAIN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Keys:
    """What is known of a partition's keys after a round. `stands_ms` is for how long at least the twin has lacked
    something that the source had; `looked`: they were compared in this round."""

    row: KeyLookRow
    stands_ms: int = 0
    looked: bool = False
    keys: tuple[OwedKey, ...] = ()
    trouble: tuple[str, str] = ("", "")

    @property
    def warns(self) -> bool:
        """Half of the time is over after which deletions may be missed."""
        return self.stands_ms > 0 and 2 * self.stands_ms >= self.row.retention_ms


def retention_of(value: str | None) -> int:
    """What a topic's setting delete.retention.ms says; None: nothing."""
    return int(value) if value and value.isdigit() else DELETE_RETENTION_MS


def marked(row: KeyLookRow | None, look: PartitionLook, retention_ms: int, seen_ms: int, now_ms: int) -> KeyLookRow:
    """The row after one more look at both ends, which was begun at `seen_ms`."""
    if row is None or (row.source_topic_id, row.target_topic_id) != (look.source_topic_id, look.target_topic_id):
        return KeyLookRow(
            link=look.link,
            topic=look.named.topic,
            partition=look.named.partition,
            source_topic_id=look.source_topic_id,
            target_topic_id=look.target_topic_id,
            mark_end=look.source_end,
            mark_ms=seen_ms,
            since_ms=seen_ms if look.target_end >= look.source_end else 0,
            retention_ms=retention_ms,
            missed=1,
            looked_ms=0,
            looked_end=0,
            owed=0,
            from_offset=-1,
            to_offset=-1,
        )
    shortest_ms = min(row.retention_ms, retention_ms)
    if max(row.mark_ms, row.since_ms, row.looked_ms) > now_ms:
        # The clock was ahead when these were written: how old anything is nobody knows.
        missed = int(look.target_end > row.looked_end)
        anew = replace(row, mark_end=look.source_end, mark_ms=seen_ms, since_ms=0, looked_ms=0)
        return replace(anew, retention_ms=shortest_ms, missed=missed)
    behind = look.target_end < row.mark_end
    since_ms = max(row.since_ms, row.looked_ms) if behind else row.since_ms
    missed = int(look.target_end > row.looked_end and bool(row.missed or now_ms - since_ms >= shortest_ms))
    if behind:
        return replace(row, retention_ms=shortest_ms, missed=missed)
    return replace(
        row,
        mark_end=look.source_end,
        mark_ms=seen_ms,
        since_ms=row.mark_ms,
        retention_ms=retention_ms,
        missed=missed,
    )


def due(row: KeyLookRow, look: PartitionLook, now_ms: int) -> bool:
    """Whether its keys are to be compared now."""
    owes = bool(row.owed) and now_ms - row.looked_ms >= OWED_AGAIN_MS
    return look.target_end > max(row.looked_end, look.target_start) and bool(row.missed or owes)


def looked(row: KeyLookRow, look: PartitionLook, found: Proven, now_ms: int) -> KeyLookRow:
    """The row after its keys were compared."""
    return replace(
        row,
        missed=0,
        looked_ms=now_ms,
        looked_end=look.target_end,
        owed=found.owed,
        from_offset=found.owed_from,
        to_offset=found.owed_to,
    )


def stands_ms(row: KeyLookRow, look: PartitionLook, now_ms: int) -> int:
    """For how long at least the twin has lacked something that the source had."""
    return now_ms - row.mark_ms if look.target_end < row.mark_end else 0


def owed_incident(row: KeyLookRow) -> Incident | None:
    """What the ledger is told. No key: the ledger is kept for ever, and what was deleted had a reason."""
    if not row.owed:
        return None
    keys = "a key that was" if row.owed == 1 else f"{row.owed} keys that were"
    sentence = (
        f"the twin still shows values of {keys} deleted on the source, at offsets {row.from_offset} to"
        f" {row.to_offset - 1}: the tombstones were cleaned away before they crossed"
    )
    place = (row.link, row.topic, row.partition)
    return Incident(*place, KIND, row.from_offset, row.to_offset, known(KIND).policy, sentence, KIND.side)


def overtaken(opened: Iterable[LedgerRow], rows: Mapping[tuple[str, str, int], KeyLookRow]) -> list[tuple[int, str]]:
    """Open rows that say what is no longer so after these looks, and what became of each."""
    found = []
    for one in opened:
        said = one.incident
        row = rows.get((said.link, said.topic, said.partition))
        if said.kind is not KIND or row is None or owed_incident(row) == said:
            continue
        found.append((one.id, f"a later look found {row.owed}" if row.owed else "no deletion is owed any more"))
    return found
