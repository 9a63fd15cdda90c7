"""Kinds of incidents: what each does to its partition or topic, and the texts of the incident log, its page and alerts.
docs/incidents.md explains the kinds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Self


class IncidentSide(StrEnum):
    """The link's cluster concerned. NONE: neither, or unknown."""

    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"
    NONE = "none"


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


OUTCOMES = {
    IncidentEffect.STOPS_PARTITION: IncidentOutcome.NEEDS_RESUME,
    IncidentEffect.RETRIES: IncidentOutcome.RETRIES,
    IncidentEffect.TOPIC: IncidentOutcome.TOPIC,
    IncidentEffect.PASSES: IncidentOutcome.CONTINUES,
    IncidentEffect.NOT_TRUNCATED: IncidentOutcome.CONTINUES,
    IncidentEffect.TWIN: IncidentOutcome.TOPIC,
    IncidentEffect.INFORMS: IncidentOutcome.CONTINUES,
}


def _informs(words: str) -> IncidentPolicy:
    return IncidentPolicy(words, IncidentEffect.INFORMS)


_PARTITION_ADDED = _informs("give the twin as many, and replicate the new ones from their first offset")
_HANGING_TRANSACTION = _informs("wait below it, as every consumer that reads committed data does")
_DISK_NEAR_FULL = _informs(
    "report it below `disk_warn_percent`; below `disk_pause_percent` write nothing to that broker's twins"
)
_LOST_BEGINNING = _informs("go on at the end, and report what is missing at the beginning")
_DOUBTFUL_NOTE = _informs("do not believe it, and replicate the topics as before")
_GROUP_REFUSED = _informs("try again within `verify_s`, go on with all other groups and committed offsets")
_CLASHING_FILTERS = _informs(
    "go on with the filters of the settings; pauses and throttles hold, and no twin of the link is deleted"
)
_DOUBTFUL_HOME = _informs("do not believe it, and leave the topic's home unchanged")
_OLD_HOME_OPEN = _informs("try again every few seconds to write the topic's home there, and to keep writers out by ACL")
_OWN_TOPICS_OPEN = _informs("report who else may write there, and change no rule")
_ACKNOWLEDGED_ALONE = _informs("replicate on; the row closes once the twin has all that is acknowledged")
_WRITERS_HELD = _informs("turn the switch back once its process has been silent for some seconds")
_REPORTED = _informs("report it, and change nothing")


class IncidentKind(StrEnum):
    """What happened, what is done about that unless a row says something more specific, and on which side; without a
    side, only the finder knows it. See docs/incidents.md.
    """

    RETENTION_GAP = "retention gap", POLICY_GAP, IncidentSide.SOURCE
    STALE_DROPPED = "stale dropped", POLICY_DROP, IncidentSide.TARGET
    TRUNCATION = "truncation", POLICY_STOP, IncidentSide.SOURCE
    RECREATED_TOPIC = "recreated topic", POLICY_TOPIC, IncidentSide.SOURCE
    DELETED_TOPIC = "deleted topic", POLICY_KEEP_TWIN, IncidentSide.SOURCE
    DELETION_HELD = "deletion held", POLICY_KEEP_TWIN, IncidentSide.TARGET
    FOREIGN_WRITE = "foreign write", POLICY_STOP, IncidentSide.TARGET
    OVERSIZE_BATCH = "oversize batch", POLICY_RETRY, IncidentSide.TARGET
    PARTITION_ADDED = "partition added", _PARTITION_ADDED, IncidentSide.SOURCE
    PARTITION_REMOVED = "partition removed", POLICY_TOPIC, IncidentSide.TARGET
    RIGHTS_LOST = "rights lost", POLICY_RETRY
    SOURCE_AWAY = "source away", POLICY_WAIT, IncidentSide.SOURCE
    TARGET_AWAY = "target away", POLICY_WAIT, IncidentSide.TARGET
    LOST_BY_TARGET = "lost by target", POLICY_HEAL, IncidentSide.TARGET
    CORRUPT_BATCH = "corrupt batch", POLICY_STOP, IncidentSide.SOURCE
    OLD_FORMAT = "old format", POLICY_STOP, IncidentSide.SOURCE
    TOO_LARGE_UNPACKED = "too large unpacked", POLICY_STOP, IncidentSide.SOURCE
    HANGING_TRANSACTION = "hanging transaction", _HANGING_TRANSACTION, IncidentSide.SOURCE
    POSITION_DISAGREEMENT = "position disagreement", POLICY_STOP, IncidentSide.TARGET
    DISK_NEAR_FULL = "disk near full", _DISK_NEAR_FULL, IncidentSide.TARGET
    REFUSED = "refused", POLICY_STOP
    CONTENT_DIFFERS = "content differs", _REPORTED, IncidentSide.BOTH
    DELETIONS_OWED = "deletions owed", _REPORTED, IncidentSide.TARGET
    LOST_BEGINNING = "lost beginning", _LOST_BEGINNING, IncidentSide.TARGET
    DOUBTFUL_NOTE = "doubtful note", _DOUBTFUL_NOTE, IncidentSide.SOURCE
    GROUP_REFUSED = "group refused", _GROUP_REFUSED, IncidentSide.BOTH
    CLASHING_FILTERS = "clashing filters", _CLASHING_FILTERS
    HOME_UNDECIDED = "home undecided", POLICY_TOPIC, IncidentSide.BOTH
    DOUBTFUL_HOME = "doubtful home", _DOUBTFUL_HOME, IncidentSide.BOTH
    TAIL_RESCUED = "tail rescued", POLICY_RESCUE, IncidentSide.TARGET
    OLD_HOME_OPEN = "old home open", _OLD_HOME_OPEN, IncidentSide.TARGET
    OWN_TOPICS_OPEN = "own topics open", _OWN_TOPICS_OPEN, IncidentSide.BOTH
    ACKNOWLEDGED_ALONE = "acknowledged alone", _ACKNOWLEDGED_ALONE, IncidentSide.TARGET
    WRITERS_HELD = "writers held", _WRITERS_HELD, IncidentSide.SOURCE
    NEWER_LINE = "newer line", POLICY_TOPIC, IncidentSide.BOTH

    policy: IncidentPolicy
    side: IncidentSide

    def __new__(cls, words: str, policy: IncidentPolicy = POLICY_STOP, side: IncidentSide = IncidentSide.NONE) -> Self:
        found = str.__new__(cls, words)
        found._value_, found.policy, found.side = words, policy, side
        return found

    @property
    def after(self) -> IncidentOutcome:
        return OUTCOMES[self.policy.effect]


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
    return POLICY_RETRY if kind.after is IncidentOutcome.RETRIES else POLICY_STOP


def stops_replication(kind: IncidentKind, policy: IncidentPolicy) -> bool:
    """Whether a partition or topic is stopped unintentionally: a topic deleted on the source has nothing left to
    replicate.
    """
    return policy.stops or (policy.effect is IncidentEffect.TOPIC and kind is not IncidentKind.DELETED_TOPIC)


def is_transient(kind: IncidentKind, policy: IncidentPolicy | None) -> bool:
    """Whether the incident stops nothing and is over once the twin has reached its last offset."""
    return kind in TRANSIENT_KINDS and not (policy and policy.stops)
