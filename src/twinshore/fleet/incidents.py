"""Kinds of incidents: what may happen to a link, in the words of the ledger, its page and its alerts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class IncidentKind(StrEnum):
    """What happened. The page of incidents says of each what it means and what to do."""

    RETENTION_GAP = "retention gap"
    STALE_DROPPED = "stale dropped"
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
    HOME_UNDECIDED = "home undecided"
    DOUBTFUL_HOME = "doubtful home"
    TAIL_RESCUED = "tail rescued"
    OLD_HOME_OPEN = "old home open"
    OWN_TOPICS_OPEN = "own topics open"
    WRITERS_HELD = "writers held"

    @property
    def side(self) -> IncidentSide:
        """Where such a thing happens, unless whoever found it knows better."""
        return _SIDES.get(self, IncidentSide.NONE)


class Effect(StrEnum):
    """What an open row of the ledger does to what it is about. Code asks for this, never for the words beside it."""

    STOPS = "stops"  # the partition rests until somebody closes the row
    RETRIES = "retries"  # the partition rests, and is tried again unasked
    TOPIC = "topic"  # the whole topic rests
    PASSES = "passes"  # all goes on; the row is over once the twin has all up to where it ends
    UNCUT = "uncut"  # all goes on, but for the cutting of the twin's beginning
    TWIN = "twin"  # it tells what becomes of a twin
    TELLS = "tells"  # it tells, and nothing more


class IncidentSide(StrEnum):
    """Which cluster of the link it happened on. NONE: on neither, or nobody can tell."""

    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done about an incident: for people in `words`, which may change with every version, for code `effect`."""

    words: str
    effect: Effect

    @property
    def stops(self) -> bool:
        """Whether its partition is kept off its lane."""
        return self.effect in (Effect.STOPS, Effect.RETRIES)


POLICY_STOP = Policy("stop the partition, go on with its neighbours", Effect.STOPS)
POLICY_RETRY = Policy("rest the partition, try again every few seconds, go on with its neighbours", Effect.RETRIES)
POLICY_TOPIC = Policy("stop the topic", Effect.TOPIC)
POLICY_GAP = Policy("go on behind the gap, whose offsets nobody sees on the twin either", Effect.PASSES)
POLICY_DROP = Policy("drop them, and go on with what is fresh", Effect.PASSES)
POLICY_HEAL = Policy("carry it once more from the source", Effect.PASSES)
POLICY_WAIT = Policy("wait, and go on where it was left", Effect.PASSES)
POLICY_UNCUT = Policy("carry it all the same, try to cut its twin every 30 s", Effect.UNCUT)
POLICY_KEEP_TWIN = Policy("keep the twin", Effect.TWIN)
POLICY_RESCUE = Policy("save them on the new home", Effect.TELLS)

_SOURCE, _TARGET, _BOTH = IncidentSide.SOURCE, IncidentSide.TARGET, IncidentSide.BOTH
# Of the others, such as a right that is lost, only who found it can tell.
_SIDES = {
    IncidentKind.RETENTION_GAP: _SOURCE,
    IncidentKind.STALE_DROPPED: _TARGET,
    IncidentKind.TRUNCATION: _SOURCE,
    IncidentKind.RECREATED_TOPIC: _SOURCE,
    IncidentKind.DELETED_TOPIC: _SOURCE,
    IncidentKind.DELETION_HELD: _TARGET,
    IncidentKind.FOREIGN_WRITE: _TARGET,
    IncidentKind.OVERSIZE_BATCH: _TARGET,
    IncidentKind.PARTITION_ADDED: _SOURCE,
    IncidentKind.PARTITION_REMOVED: _TARGET,
    IncidentKind.SOURCE_AWAY: _SOURCE,
    IncidentKind.TARGET_AWAY: _TARGET,
    IncidentKind.LOST_BY_TARGET: _TARGET,
    IncidentKind.CORRUPT_BATCH: _SOURCE,
    IncidentKind.OLD_FORMAT: _SOURCE,
    IncidentKind.TOO_LARGE_UNPACKED: _SOURCE,
    IncidentKind.HANGING_TRANSACTION: _SOURCE,
    IncidentKind.POSITION_DISAGREEMENT: _TARGET,
    IncidentKind.DISK_NEAR_FULL: _TARGET,
    IncidentKind.CONTENT_DIFFERS: _BOTH,
    IncidentKind.DELETIONS_OWED: _TARGET,
    IncidentKind.LOST_BEGINNING: _TARGET,
    IncidentKind.DOUBTFUL_NOTE: _SOURCE,
    IncidentKind.GROUP_REFUSED: _BOTH,
    IncidentKind.HOME_UNDECIDED: _BOTH,
    IncidentKind.DOUBTFUL_HOME: _BOTH,
    IncidentKind.TAIL_RESCUED: _TARGET,
    IncidentKind.OLD_HOME_OPEN: _TARGET,
    IncidentKind.OWN_TOPICS_OPEN: _BOTH,
    IncidentKind.WRITERS_HELD: _SOURCE,
}
