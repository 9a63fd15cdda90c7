"""The table of incidents: what each kind does to its partition or topic. docs/incidents.md explains the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from twinshore.config.incident_policy import (
    POLICY_DROP,
    POLICY_GAP,
    POLICY_HEAL,
    POLICY_KEEP_TWIN,
    POLICY_RESCUE,
    POLICY_RETRY,
    POLICY_STOP,
    POLICY_TOPIC,
    POLICY_WAIT,
    IncidentEffect,
    IncidentKind,
    IncidentPolicy,
)


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
