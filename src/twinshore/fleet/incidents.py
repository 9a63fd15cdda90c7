"""Kinds of incidents: what may happen to a link, in the words of the ledger, its page and its alerts."""

from __future__ import annotations

from enum import StrEnum


class IncidentKind(StrEnum):
    """What happened. The page of incidents says of each what it means and what to do."""

    RETENTION_GAP = "retention gap"
    TRUNCATION = "truncation"
    RECREATED_TOPIC = "recreated topic"
    DELETED_TOPIC = "deleted topic"
    DELETION_HELD = "deletion held"
    FOREIGN_WRITE = "foreign write"
    OVERSIZE_BATCH = "oversize batch"
    PARTITION_ADDED = "partition added"
    PARTITION_REMOVED = "partition removed"
    RIGHTS_LOST = "rights lost"
    SOURCE_AWAY = "source away"
    TARGET_AWAY = "target away"
    LOST_BY_TARGET = "lost by target"
    CORRUPT_BATCH = "corrupt batch"
    OLD_FORMAT = "old format"
    TOO_LARGE_UNPACKED = "too large unpacked"
    HANGING_TRANSACTION = "hanging transaction"
    POSITION_DISAGREEMENT = "position disagreement"
    DISK_NEAR_FULL = "disk near full"
    REFUSED = "refused"
    CONTENT_DIFFERS = "content differs"
    DELETIONS_OWED = "deletions owed"
    LOST_BEGINNING = "lost beginning"
    DOUBTFUL_NOTE = "doubtful note"
    GROUP_REFUSED = "group refused"
    CLASHING_FILTERS = "clashing filters"
