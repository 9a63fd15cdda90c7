"""What is asked of a proof and what it found, as frozen values that travel as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from twinshore.config.model import Cluster, TopicPartition
from twinshore.replication.task.core.config import json_adapter

PREVIEW_BYTES_MAX = 200


class CompareMode(StrEnum):
    """How both sides are laid beside each other.

    `exact`: record by record at the same offsets. `extents`: at the offsets that a mapped twin's extents say.
    `compacted`: offsets present on both sides are the same, and so is the latest value of each key. `content`: the same
    records in the same order, whatever their offsets.
    """

    EXACT = "exact"
    EXTENTS = "extents"
    COMPACTED = "compacted"
    CONTENT = "content"


class DifferenceKind(StrEnum):
    CHANGED_VALUE = "changed value"
    CHANGED_KEY = "changed key"
    CHANGED_TIMESTAMP = "changed timestamp"
    CHANGED_HEADERS = "changed headers"
    MISSING = "missing record"
    FOREIGN = "foreign record"
    SWAPPED = "swapped pair"
    CORRUPT = "corrupt batch"


@dataclass(frozen=True, slots=True)
class RecordPreview:
    """A record for people: where it lies and what is in it, cut off where it is long."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ProofDifference:
    """The first place where the sides part. `offset` is the source's; where only the target has a record, the place at
    which the source would have had it. A side that has none there is None."""

    kind: DifferenceKind
    offset: int
    sentence: str
    source: RecordPreview | None
    target: RecordPreview | None


class MissingTombstone(NamedTuple):
    """A key that the source has deleted: the twin shows its value at this offset still."""

    offset: int
    key: str


@dataclass(frozen=True, slots=True)
class CompareRange:
    """One errand: a stretch of one partition to compare, from `start` up to, not including, `end`, both the source's.

    `cluster_ids` and `topic_ids` are the source's and the target's, as they were looked at; empty: any. `target_start`
    counts where offsets do not (`content`); -1: find where the target begins. `extents` are (source, target, length)
    of all that lies there. `dropped` are offsets [begin, end) that a fresh queue did not send, in order: nothing of the
    twin answers to them. `bytes_s` of 0: no bound. `rated`: make the digest. `keys`: look
    for deleted keys that live on, in both logs whole, and for nothing else.
    """

    source: Cluster
    target: Cluster
    named: TopicPartition
    twin: str
    way: CompareMode
    start: int
    end: int
    target_start: int = -1
    target_end: int = -1
    extents: tuple[tuple[int, int, int], ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    bytes_s: float = 0.0
    digest: bool = True
    number: int = 0
    keys: bool = False
    cluster_ids: tuple[str, str] = ("", "")
    topic_ids: tuple[str, str] = ("", "")

    @property
    def twin_named(self) -> TopicPartition:
        return TopicPartition(self.twin, self.named.partition)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> CompareRange:
        return json_adapter(CompareRange).validate_json(text)


@dataclass(frozen=True, slots=True)
class CompareResult:
    """What became of a stretch: both sides are the same from `start` up to, not including, `to`.

    `start` is later than asked where the source itself had no more. `trouble` says why it could not go on; a
    `difference` is why it would not. `owed` keys of a compacted topic are those that the source has deleted and whose
    tombstone can never cross. `cpu_s` is this process's own.
    """

    number: int
    start: int
    to: int
    target_to: int = -1
    records: int = 0
    bytes: int = 0
    equal_batches: int = 0
    digest: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    difference: ProofDifference | None = None
    trouble: str = ""
    hint: str = ""
    owed: int = 0
    owed_from: int = -1
    owed_to: int = -1
    owed_keys: tuple[MissingTombstone, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> CompareResult:
        return json_adapter(CompareResult).validate_json(text)
