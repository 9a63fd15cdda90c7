"""Orders and results of a proof, as frozen values with a JSON form."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from twinshore.config.model import Cluster, TopicPartition
from twinshore.replication.task.core.messages import json_adapter

PREVIEW_BYTES_MAX = 200


class CompareMode(StrEnum):
    """How to compare. `exact`: record by record at the same offsets. `offset_runs`: at the offsets of a mapped
    twin's runs. `compacted`: records at common offsets are the same, and so is each key's latest value. `content`:
    the same records in order, at any offsets.
    """

    EXACT = "exact"
    OFFSET_MAP = "offset-map"
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
    """A record for people, long contents cut off."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ProofDifference:
    """The first difference. `offset`: the source's; where only the target has a record, the offset that this would have
    on the source. A side without a record there is None.
    """

    kind: DifferenceKind
    offset: int
    sentence: str
    source: RecordPreview | None
    target: RecordPreview | None


class MissingTombstone(NamedTuple):
    """A key deleted on the source, whose value the twin still shows at this offset."""

    offset: int
    key: str


@dataclass(frozen=True, slots=True)
class CompareRange:
    """A range of one partition to compare: source offsets [`start`, `end`).

    `cluster_ids`, `topic_ids`: source's and target's, as scanned; empty: any. `target_start`: where the target starts
    if offsets do not count (`content`); -1: find out. `offset_runs`: all runs there, as (source, target, length).
    `dropped`: ordered ranges that a fresh queue did not send. `bytes_s`: 0: no limit. `digest`: compute one. `keys`:
    check only for missing tombstones, in both whole logs.
    """

    source: Cluster
    target: Cluster
    partition: TopicPartition
    twin: str
    mode: CompareMode
    start: int
    end: int
    target_start: int = -1
    target_end: int = -1
    offset_runs: tuple[tuple[int, int, int], ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    bytes_s: float = 0.0
    digest: bool = True
    number: int = 0
    keys: bool = False
    cluster_ids: tuple[str, str] = ("", "")
    topic_ids: tuple[str, str] = ("", "")

    @property
    def twin_named(self) -> TopicPartition:
        return TopicPartition(self.twin, self.partition.partition)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> CompareRange:
        return json_adapter(CompareRange).validate_json(text)


@dataclass(frozen=True, slots=True)
class CompareResult:
    """The result for a range: both sides are the same in [`start`, `to`).

    `start` is later than asked if the source's log is. A `trouble` or `difference` ended the comparison early. `owed`:
    keys of a compacted topic whose tombstone can no longer be replicated. `cpu_s`: of this process.
    """

    number: int
    start: int
    to: int
    target_to: int = -1
    records: int = 0
    bytes: int = 0
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
