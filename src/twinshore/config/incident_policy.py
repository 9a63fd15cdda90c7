"""Kinds of incidents and their policies, with the texts of the incident log, its page and alerts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class IncidentSide(StrEnum):
    """The link's cluster concerned. NONE: neither, or unknown."""

    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"
    NONE = "none"


class IncidentKind(StrEnum):
    """What happened, with the default side; without one, only the finder knows the side. See docs/incidents.md."""

    RETENTION_GAP = "retention gap", IncidentSide.SOURCE
    STALE_DROPPED = "stale dropped", IncidentSide.TARGET
    TRUNCATION = "truncation", IncidentSide.SOURCE
    RECREATED_TOPIC = "recreated topic", IncidentSide.SOURCE
    DELETED_TOPIC = "deleted topic", IncidentSide.SOURCE
    DELETION_HELD = "deletion held", IncidentSide.TARGET
    FOREIGN_WRITE = "foreign write", IncidentSide.TARGET
    OVERSIZE_BATCH = "oversize batch", IncidentSide.TARGET
    PARTITION_ADDED = "partition added", IncidentSide.SOURCE
    PARTITION_REMOVED = "partition removed", IncidentSide.TARGET
    RIGHTS_LOST = "rights lost"
    SOURCE_AWAY = "source away", IncidentSide.SOURCE
    TARGET_AWAY = "target away", IncidentSide.TARGET
    LOST_BY_TARGET = "lost by target", IncidentSide.TARGET
    CORRUPT_BATCH = "corrupt batch", IncidentSide.SOURCE
    OLD_FORMAT = "old format", IncidentSide.SOURCE
    TOO_LARGE_UNPACKED = "too large unpacked", IncidentSide.SOURCE
    HANGING_TRANSACTION = "hanging transaction", IncidentSide.SOURCE
    POSITION_DISAGREEMENT = "position disagreement", IncidentSide.TARGET
    DISK_NEAR_FULL = "disk near full", IncidentSide.TARGET
    REFUSED = "refused"
    CONTENT_DIFFERS = "content differs", IncidentSide.BOTH
    DELETIONS_OWED = "deletions owed", IncidentSide.TARGET
    LOST_BEGINNING = "lost beginning", IncidentSide.TARGET
    DOUBTFUL_NOTE = "doubtful note", IncidentSide.SOURCE
    GROUP_REFUSED = "group refused", IncidentSide.BOTH
    CLASHING_FILTERS = "clashing filters"
    HOME_UNDECIDED = "home undecided", IncidentSide.BOTH
    DOUBTFUL_HOME = "doubtful home", IncidentSide.BOTH
    TAIL_RESCUED = "tail rescued", IncidentSide.TARGET
    OLD_HOME_OPEN = "old home open", IncidentSide.TARGET
    OWN_TOPICS_OPEN = "own topics open", IncidentSide.BOTH
    ACKNOWLEDGED_ALONE = "acknowledged alone", IncidentSide.TARGET
    WRITERS_HELD = "writers held", IncidentSide.SOURCE
    NEWER_LINE = "newer line", IncidentSide.BOTH

    side: IncidentSide

    def __new__(cls, words: str, side: IncidentSide = IncidentSide.NONE) -> Self:
        found = str.__new__(cls, words)
        found._value_, found.side = words, side
        return found


class IncidentEffect(StrEnum):
    """What an open incident does to its subject. Code checks this, never the words."""

    STOPS_PARTITION = "stops"  # the partition is stopped until an operator closes the incident
    RETRIES = "retries"  # the partition is stopped, and retried automatically
    TOPIC = "topic"  # the whole topic is stopped
    PASSES = "passes"  # replication goes on; the incident is over once the twin has reached its end
    NOT_TRUNCATED = "uncut"  # replication goes on, but the twin's beginning is not truncated
    TWIN = "twin"  # reports what happens to a twin
    INFORMS = "tells"  # reports only


@dataclass(frozen=True, slots=True)
class IncidentPolicy:
    """The reaction to an incident: `words` for people, which may change with any version, `effect` for code."""

    words: str
    effect: IncidentEffect

    @property
    def stops(self) -> bool:
        """Whether the partition is kept out of its task."""
        return self.effect in (IncidentEffect.STOPS_PARTITION, IncidentEffect.RETRIES)

    @property
    def log_level(self) -> int:
        """ERROR if nothing goes on there until an operator acts, else WARNING, as in `logging`."""
        needs_operator = self.effect in (IncidentEffect.STOPS_PARTITION, IncidentEffect.TOPIC)
        return logging.ERROR if needs_operator else logging.WARNING


POLICY_STOP = IncidentPolicy("stop the partition, continue with its neighbours", IncidentEffect.STOPS_PARTITION)
POLICY_RETRY = IncidentPolicy(
    "stop the partition, retry every few seconds, continue with its neighbours", IncidentEffect.RETRIES
)
POLICY_TOPIC = IncidentPolicy("stop the topic", IncidentEffect.TOPIC)
POLICY_GAP = IncidentPolicy(
    "continue behind the gap, whose offsets no consumer sees on the twin either", IncidentEffect.PASSES
)
POLICY_DROP = IncidentPolicy("drop them, and continue with fresh records", IncidentEffect.PASSES)
POLICY_HEAL = IncidentPolicy("replicate it again from the source", IncidentEffect.PASSES)
POLICY_WAIT = IncidentPolicy("wait, and continue where replication stopped", IncidentEffect.PASSES)
POLICY_NOT_TRUNCATED = IncidentPolicy("replicate on, try to truncate the twin every 30 s", IncidentEffect.NOT_TRUNCATED)
POLICY_KEEP_TWIN = IncidentPolicy("keep the twin", IncidentEffect.TWIN)
POLICY_RESCUE = IncidentPolicy("save them on the new home", IncidentEffect.INFORMS)
