"""What pumps tell, in the store's words: receipts, and rows that wait for the ledger. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from twinshore.config.incident_policy import IncidentKind
from twinshore.replication.core.incident_kinds import stop_policy
from twinshore.replication.task.core.config import PartitionIncident, PartitionProgress
from twinshore.state.core.progress_rules import RefusedProgress
from twinshore.state.core.values import BATCHES_KEPT, Incident, ProgressRecord, SourceBatch, SourceProducer

INCIDENT_ROWS_PER_WRITE = 500
WRITE_SHRINK_FACTOR = 8  # times fewer at once, of those among which one was refused

IncidentKey = tuple[object, ...]


def incident_key(link: str, stopped: PartitionIncident) -> tuple[object, ...]:
    """What makes an incident one and the same, however often it is told."""
    place = link, stopped.topic, stopped.partition, stopped.kind, stopped.from_offset
    if stopped.kind not in (IncidentKind.STALE_DROPPED, IncidentKind.RETENTION_GAP):
        return place
    # As the ledger has it: what was told of may be a part, and what was passed may halt the next pump.
    effect = (stopped.policy or stop_policy(stopped.kind, stopped.partition)).effect
    return *place, stopped.to_offset, effect


def to_incident(link: str, stopped: PartitionIncident) -> Incident:
    """What stopped or troubles a partition, as the ledger has it."""
    policy = stopped.policy or stop_policy(stopped.kind, stopped.partition)
    side = stopped.side or stopped.kind.side
    offsets = stopped.from_offset, stopped.to_offset
    return Incident(link, stopped.topic, stopped.partition, stopped.kind, *offsets, policy, stopped.sentence, side)


def salvage_refused_progress(refused: RefusedProgress) -> tuple[ProgressRecord, ...]:
    """What stays of a refused receipt: where a mapped twin's records lie is true whoever tells it."""
    one, at = refused.receipt, refused.position_offset
    if at is None or not one.extents or one.from_offset == one.to_offset:
        return ()
    bare = replace(one, from_offset=at, to_offset=at, records=0, bytes=0, batches=0, source_producers=())
    return (bare,)


def to_progress_row(link: str, entry: PartitionProgress) -> ProgressRecord:
    """A pump's account in the store's words."""
    batches: dict[tuple[int, int], list[SourceBatch]] = {}
    for producer_id, epoch, base_sequence, last_sequence, base_offset, timestamp in entry.producers:
        seen = batches.setdefault((producer_id, epoch), [])
        seen.append(SourceBatch(base_sequence, last_sequence, base_offset, timestamp))
    producers = tuple(SourceProducer(*key, tuple(seen[-BATCHES_KEPT:])) for key, seen in batches.items())
    return ProgressRecord(
        link=link,
        topic=entry.topic,
        partition=entry.partition,
        from_offset=entry.from_offset,
        to_offset=entry.to_offset,
        records=entry.records,
        bytes=entry.bytes,
        batches=entry.batches,
        source_end=entry.source_end,
        first_ms=entry.first_ms,
        last_ms=entry.last_ms,
        lag_records=max(0, entry.source_end - entry.to_offset),
        source_producers=producers,
        extents=entry.extents,
        source_epoch=entry.epoch,
    )


class PendingIncidents:
    """Many at once, as an overload brings some each tenth of a second and an outage leaves thousands. Those among which
    one is refused come behind the others, ever fewer at once, in the end alone, so that it keeps no other from the
    store. That a store is away says nothing of any of them."""

    def __init__(self) -> None:
        self._rows: dict[IncidentKey, tuple[str, PartitionIncident]] = {}
        self._most: dict[IncidentKey, int] = {}  # of those among which one was refused
        self._failed: set[IncidentKey] = set()  # in this turn
        self._taken = False  # whether any was, in this turn
        self._before: dict[IncidentKey, int] = {}  # how many at once before they failed with the store perhaps away

    def put(self, link: str, stopped: PartitionIncident) -> None:
        """Told again while the first telling waits for the store, it is one incident all the same."""
        self._rows[incident_key(link, stopped)] = link, stopped

    def __iter__(self) -> Iterator[tuple[str, PartitionIncident]]:
        return iter(self._rows.values())

    def forget(self, link: str, topic: str) -> None:
        """The topic begins anew."""
        for place, (of, stopped) in list(self._rows.items()):
            if (of, stopped.topic) == (link, topic):
                self._gone(place)

    def turn(self) -> Iterator[list[IncidentKey]]:
        """What waits now, part by part; after each it is to be said what became of it."""
        self._taken, self._failed = False, set()
        left = sorted(self._rows, key=lambda place: -self._at_once(place))
        while left:
            first = [self._at_once(place) for place in left[: self._at_once(left[0])]]
            part = left[: next((at for at, most in enumerate(first) if most != first[0]), len(first))]
            left = left[len(part) :]
            yield part

    def rows(self, places: Sequence[IncidentKey]) -> list[tuple[str, PartitionIncident]]:
        """What stands at these."""
        return [self._rows[place] for place in places]

    def written(self, places: Collection[IncidentKey]) -> None:
        """They are in the store. If it was away until now, what it refused then it refused for that."""
        for place in places:
            self._gone(place)
        if not self._taken:
            self._most.update({place: most for place, most in self._before.items() if place not in self._failed})
            self._before.clear()
        self._taken = True

    def failed(self, places: Collection[IncidentKey]) -> None:
        """One of these is not taken, or none is now. They go behind the others."""
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
