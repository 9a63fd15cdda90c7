"""Kinds of incidents: what each does to its partition or topic, and the texts of the incident log, its page and alerts.
docs/incidents.md explains the kinds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Self


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


class IncidentOutcome(Enum):
    """What becomes of the partition or topic, or of all on a broker."""

    CONTINUES = "goes on"
    RETRIES = "rests, and is tried again every few seconds"
    NEEDS_RESUME = "rests until `twinshore mirror resume`"
    TOPIC = "the whole topic rests until both sides agree again"


class IncidentKindEntry(NamedTuple):
    """`policy`: what was done, unless a row says something more specific."""

    after: IncidentOutcome
    policy: IncidentPolicy


def _informs(words: str) -> IncidentKindEntry:
    return IncidentKindEntry(IncidentOutcome.CONTINUES, IncidentPolicy(words, IncidentEffect.INFORMS))


INCIDENT_KINDS: Mapping[IncidentKind, IncidentKindEntry] = {
    IncidentKind.RETENTION_GAP: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_GAP),
    IncidentKind.STALE_DROPPED: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_DROP),
    IncidentKind.TRUNCATION: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.RECREATED_TOPIC: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_TOPIC),
    IncidentKind.DELETED_TOPIC: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_KEEP_TWIN),
    IncidentKind.DELETION_HELD: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_KEEP_TWIN),
    IncidentKind.FOREIGN_WRITE: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.OVERSIZE_BATCH: IncidentKindEntry(IncidentOutcome.RETRIES, POLICY_RETRY),
    IncidentKind.PARTITION_ADDED: _informs("give the twin as many, and replicate the new ones from their first offset"),
    IncidentKind.PARTITION_REMOVED: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_TOPIC),
    IncidentKind.RIGHTS_LOST: IncidentKindEntry(IncidentOutcome.RETRIES, POLICY_RETRY),
    IncidentKind.SOURCE_AWAY: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_WAIT),
    IncidentKind.TARGET_AWAY: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_WAIT),
    IncidentKind.LOST_BY_TARGET: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_HEAL),
    IncidentKind.CORRUPT_BATCH: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.OLD_FORMAT: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.TOO_LARGE_UNPACKED: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.HANGING_TRANSACTION: _informs("wait below it, as every consumer that reads committed data does"),
    IncidentKind.POSITION_DISAGREEMENT: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.DISK_NEAR_FULL: _informs(
        "report it below `disk_warn_percent`; below `disk_pause_percent` write nothing to that broker's twins"
    ),
    IncidentKind.REFUSED: IncidentKindEntry(IncidentOutcome.NEEDS_RESUME, POLICY_STOP),
    IncidentKind.CONTENT_DIFFERS: _informs("report it, and change nothing"),
    IncidentKind.DELETIONS_OWED: _informs("report it, and change nothing"),
    IncidentKind.LOST_BEGINNING: _informs("go on at the end, and report what is missing at the beginning"),
    IncidentKind.DOUBTFUL_NOTE: _informs("do not believe it, and replicate the topics as before"),
    IncidentKind.DOUBTFUL_HOME: _informs("do not believe it, and leave the topic's home unchanged"),
    IncidentKind.GROUP_REFUSED: _informs(
        "try again within `verify_s`, go on with all other groups and committed offsets"
    ),
    IncidentKind.CLASHING_FILTERS: _informs(
        "go on with the filters of the settings; pauses and throttles hold, and no twin of the link is deleted"
    ),
    IncidentKind.HOME_UNDECIDED: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_TOPIC),
    IncidentKind.TAIL_RESCUED: IncidentKindEntry(IncidentOutcome.CONTINUES, POLICY_RESCUE),
    IncidentKind.OLD_HOME_OPEN: _informs(
        "try again every few seconds to write the topic's home there, and to keep writers out by ACL"
    ),
    IncidentKind.OWN_TOPICS_OPEN: _informs("report who else may write there, and change no rule"),
    IncidentKind.ACKNOWLEDGED_ALONE: _informs(
        "replicate on; the row closes once the twin has all that is acknowledged"
    ),
    IncidentKind.WRITERS_HELD: _informs("turn the switch back once its process has been silent for some seconds"),
    IncidentKind.NEWER_LINE: IncidentKindEntry(IncidentOutcome.TOPIC, POLICY_TOPIC),
}


# Incidents of a whole topic that are over once the topic is forgotten.
_OF_TWINS = (IncidentKind.DELETED_TOPIC, IncidentKind.DELETION_HELD)
KNOWN_TOPIC_KINDS = (*_OF_TWINS, IncidentKind.RECREATED_TOPIC, IncidentKind.FOREIGN_WRITE)
# Over once the twin has reached their last offset. A side is away for one partition or, by the watch, as a whole.
_AWAY = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)
TRANSIENT_KINDS = (*_AWAY, IncidentKind.LOST_BY_TARGET, IncidentKind.RETENTION_GAP, IncidentKind.STALE_DROPPED)


def stop_policy(kind: IncidentKind, partition: int) -> IncidentPolicy:
    """Returns the policy for a partition stopped by a task, or a topic by the controller (`partition` -1)."""
    if partition < 0:
        return POLICY_TOPIC
    return POLICY_RETRY if kind_entry(kind).after is IncidentOutcome.RETRIES else POLICY_STOP


def stops_replication(kind: IncidentKind, policy: IncidentPolicy) -> bool:
    """Whether a partition or topic is stopped unintentionally: a topic deleted on the source has nothing left to
    replicate.
    """
    return policy.stops or (policy.effect is IncidentEffect.TOPIC and kind is not IncidentKind.DELETED_TOPIC)


def is_transient(kind: IncidentKind, policy: IncidentPolicy | None) -> bool:
    """Whether the incident stops nothing and is over once the twin has reached its last offset."""
    return kind in TRANSIENT_KINDS and not (policy and policy.stops)


def kind_entry(kind: IncidentKind) -> IncidentKindEntry:
    return INCIDENT_KINDS[kind]
