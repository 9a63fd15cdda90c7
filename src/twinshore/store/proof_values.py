"""What the store keeps of proofs: what was compared, how and when. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProofState(StrEnum):
    IDENTICAL = "identical"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class ProofRow:
    """Both sides of a partition hold the same records from `from_offset` up to, not including, `to_offset`, as of
    `proven_ms`; `source_end` was the source's end then.

    `way` says how they were compared; `target_offset` is where the target goes on where offsets do not count, else -1.
    `digest` is that of the records, empty where none was made. Where they differ, `sentence` holds how, as JSON.
    `ledger_id` is the newest row of the ledger that was there before any of it was read, `size` how many bytes of both
    sides were read for it, 0: unknown. Each part of it was read at `oldest_ms` or later, 0: unknown.

    While it is read again: the pass began at `again_ms` and ends at `again_end`; all below `again_offset` is read, -1:
    no pass is on. `again_target` is where the target goes on there, where offsets do not count. `revision` counts how
    often the store's row was changed.
    """

    link: str
    topic: str
    partition: int
    way: str
    state: ProofState
    from_offset: int
    to_offset: int
    target_offset: int
    source_end: int
    records: int
    digest: str
    sentence: str
    source_topic_id: str
    target_topic_id: str
    proven_ms: int
    ledger_id: int = 0
    size: int = 0
    oldest_ms: int = 0
    again_offset: int = -1
    again_target: int = -1
    again_end: int = -1
    again_ms: int = 0
    revision: int = 0

    @property
    def read_ms(self) -> int:
        """Since when each part has been read at least once. 0: unknown, as where nothing is proven of what the source
        holds."""
        if self.to_offset <= self.from_offset:
            return 0 if self.source_end > self.from_offset else self.proven_ms
        return self.oldest_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLookRow:
    """When the keys of a compacted twin were last compared with the source's, and how old what crossed since may be.

    At `mark_ms` the source ended at `mark_end`. All that crossed since the twin was last at a mark was written after
    `since_ms`, 0: nobody knows. `retention_ms` is the shortest delete.retention.ms seen in that time. `missed`: some
    tombstone may have been cleaned away before it crossed, and nobody has looked since. `looked_ms` is 0 before the
    first look, `looked_end` the twin's end at the last one. `owed` keys were found then, from `from_offset` up to, not
    including, `to_offset`.
    """

    link: str
    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    mark_end: int
    mark_ms: int
    since_ms: int
    retention_ms: int
    missed: int
    looked_ms: int
    looked_end: int
    owed: int
    from_offset: int
    to_offset: int
