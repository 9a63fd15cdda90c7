"""What pumps tell, in the store's words. Pure."""

from __future__ import annotations

from dataclasses import replace

from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.incidents.kinds import halt_policy
from twinshore.mirror.lane.orders import Carried, Stoppage
from twinshore.store.receipt_rules import RefusedReceipt
from twinshore.store.values import BATCHES_KEPT, Incident, Receipt, SourceBatch, SourceProducer


def place_of(link: str, stopped: Stoppage) -> tuple[object, ...]:
    """What makes an incident one and the same, however often it is told."""
    place = link, stopped.topic, stopped.partition, stopped.kind, stopped.from_offset
    if stopped.kind not in (IncidentKind.STALE_DROPPED, IncidentKind.RETENTION_GAP):
        return place
    # As the ledger has it: what was told of may be a part, and what was passed may halt the next pump.
    effect = (stopped.policy or halt_policy(stopped.kind, stopped.partition)).effect
    return *place, stopped.to_offset, effect


def incident_of(link: str, stopped: Stoppage) -> Incident:
    """What stopped or troubles a partition, as the ledger has it."""
    policy = stopped.policy or halt_policy(stopped.kind, stopped.partition)
    side = stopped.side or stopped.kind.side
    offsets = stopped.from_offset, stopped.to_offset
    return Incident(link, stopped.topic, stopped.partition, stopped.kind, *offsets, policy, stopped.sentence, side)


def kept_of(refused: RefusedReceipt) -> tuple[Receipt, ...]:
    """What stays of a refused receipt: where a mapped twin's records lie is true whoever tells it."""
    one, at = refused.receipt, refused.position_offset
    if at is None or not one.extents or one.from_offset == one.to_offset:
        return ()
    bare = replace(one, from_offset=at, to_offset=at, records=0, bytes=0, batches=0, source_producers=())
    return (bare,)


def receipt_of(link: str, entry: Carried) -> Receipt:
    """A pump's account in the store's words."""
    batches: dict[tuple[int, int], list[SourceBatch]] = {}
    for producer_id, epoch, base_sequence, last_sequence, base_offset, timestamp in entry.producers:
        seen = batches.setdefault((producer_id, epoch), [])
        seen.append(SourceBatch(base_sequence, last_sequence, base_offset, timestamp))
    producers = tuple(SourceProducer(*key, tuple(seen[-BATCHES_KEPT:])) for key, seen in batches.items())
    return Receipt(
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
