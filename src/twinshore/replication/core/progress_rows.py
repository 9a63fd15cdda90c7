"""Converts task reports into rows of the store: progress, and incidents that wait to be written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from twinshore.config.incident_policy import IncidentKind, stop_policy
from twinshore.replication.task.core.messages import PartitionIncident, PartitionProgress
from twinshore.state.core.progress_rules import RefusedProgress
from twinshore.state.core.values import BATCHES_KEPT, Incident, ProgressRecord, SourceBatch, SourceProducer

INCIDENT_ROWS_PER_WRITE = 500
WRITE_SHRINK_FACTOR = 8  # a part with a refused row is retried in parts smaller by this factor

IncidentKey = tuple[object, ...]


def incident_key(link: str, incident: PartitionIncident) -> tuple[object, ...]:
    """Returns a key that is the same for repeated reports."""
    place = link, incident.topic, incident.partition, incident.kind, incident.from_offset
    if incident.kind not in (IncidentKind.STALE_DROPPED, IncidentKind.RETENTION_GAP):
        return place
    # As in the incident log: a report may cover a part only, and what one attempt skipped may stop the next.
    effect = (incident.policy or stop_policy(incident.kind, incident.partition)).effect
    return *place, incident.to_offset, effect


def to_incident(link: str, incident: PartitionIncident) -> Incident:
    policy = incident.policy or stop_policy(incident.kind, incident.partition)
    side = incident.side or incident.kind.side
    offsets = incident.from_offset, incident.to_offset
    return Incident(link, incident.topic, incident.partition, incident.kind, *offsets, policy, incident.sentence, side)


def salvage_refused_progress(refused: RefusedProgress) -> tuple[ProgressRecord, ...]:
    """Returns what stays of refused progress: the offset map of a mapped twin holds, whichever mirror reports."""
    record, at = refused.progress, refused.position_offset
    if at is None or not record.offset_runs or record.from_offset == record.to_offset:
        return ()
    bare = replace(record, from_offset=at, to_offset=at, records=0, bytes=0, batches=0, source_producers=())
    return (bare,)


def to_progress_row(link: str, progress: PartitionProgress) -> ProgressRecord:
    batches: dict[tuple[int, int], list[SourceBatch]] = {}
    for producer_id, epoch, base_sequence, last_sequence, base_offset, timestamp in progress.producers:
        batchs = batches.setdefault((producer_id, epoch), [])
        batchs.append(SourceBatch(base_sequence, last_sequence, base_offset, timestamp))
    producers = tuple(SourceProducer(*key, tuple(batchs[-BATCHES_KEPT:])) for key, batchs in batches.items())
    return ProgressRecord(
        link=link,
        topic=progress.topic,
        partition=progress.partition,
        from_offset=progress.from_offset,
        to_offset=progress.to_offset,
        records=progress.records,
        bytes=progress.bytes,
        batches=progress.batches,
        source_end=progress.source_end,
        first_ms=progress.first_ms,
        last_ms=progress.last_ms,
        lag_records=max(0, progress.source_end - progress.to_offset),
        source_producers=producers,
        offset_runs=progress.offset_runs,
        source_epoch=progress.epoch,
    )


class PendingIncidents:
    """Incidents that wait for the store, written many at a time: an outage leaves thousands. A part with a refused row
    goes behind the others and is split further, in the end to single rows, so that one row holds up no other.
    """

    def __init__(self) -> None:
        self._rows: dict[IncidentKey, tuple[str, PartitionIncident]] = {}
        self._most: dict[IncidentKey, int] = {}  # rows at once, for those of a part with a refused row
        self._failed: set[IncidentKey] = set()  # in this turn
        self._taken = False  # whether any part was written in this turn
        self._before: dict[IncidentKey, int] = {}  # rows at once before a failure that may be the store's

    def put(self, link: str, incident: PartitionIncident) -> None:
        """An incident reported again while waiting stays one."""
        self._rows[incident_key(link, incident)] = link, incident

    def __iter__(self) -> Iterator[tuple[str, PartitionIncident]]:
        return iter(self._rows.values())

    def forget(self, link: str, topic: str) -> None:
        for place, (of, incident) in list(self._rows.items()):
            if (of, incident.topic) == (link, topic):
                self._gone(place)

    def turn(self) -> Iterator[list[IncidentKey]]:
        """Yields parts; call `written` or `failed` after each."""
        self._taken, self._failed = False, set()
        left = sorted(self._rows, key=lambda place: -self._at_once(place))
        while left:
            first = [self._at_once(place) for place in left[: self._at_once(left[0])]]
            part = left[: next((at for at, most in enumerate(first) if most != first[0]), len(first))]
            left = left[len(part) :]
            yield part

    def rows(self, places: Sequence[IncidentKey]) -> list[tuple[str, PartitionIncident]]:
        return [self._rows[place] for place in places]

    def written(self, places: Collection[IncidentKey]) -> None:
        """The part is stored. Refusals of earlier turns in which nothing was stored do not count: the store may have
        been away.
        """
        for place in places:
            self._gone(place)
        if not self._taken:
            self._most.update({place: most for place, most in self._before.items() if place not in self._failed})
            self._before.clear()
        self._taken = True

    def failed(self, places: Collection[IncidentKey]) -> None:
        """One row was refused, or the store is away. The part goes behind the others."""
        self._rows.update({place: self._rows.pop(place) for place in places})
        self._failed.update(places)
        for place in places:
            if not self._taken:
                self._before.setdefault(place, self._at_once(place))
            self._most[place] = max(1, len(places) // WRITE_SHRINK_FACTOR)

    def _at_once(self, place: IncidentKey) -> int:
        return self._most.get(place, INCIDENT_ROWS_PER_WRITE)

    def _gone(self, place: IncidentKey) -> None:
        del self._rows[place]
        self._most.pop(place, None)
        self._before.pop(place, None)
