"""How progress adds up: what follows, what repeats, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinshore.config.errors import StoreError
from twinshore.state.core.values import BATCHES_KEPT, ProgressRecord, ReplicatedPosition, SourceProducer

PRODUCERS_PER_PARTITION_MAX = 1000  # Per partition: the ones that wrote last.
PRODUCERS_SLACK = 100  # Producers are deleted once so many more have come, not with each progress record.
PRODUCER_AGE_MS = 86_400_000  # A broker forgets an idle producer after a day by default.


@dataclass(frozen=True, slots=True)
class StoredPosition:
    id: int
    position: ReplicatedPosition
    producers: int


@dataclass(frozen=True, slots=True)
class RefusedProgress:
    """Progress that does not follow its partition's `position_offset` (None: none yet)."""

    receipt: ProgressRecord
    position_offset: int | None
    reason: str


class ProgressRefusedError(StoreError):
    """Progress that does not follow the known positions; its call recorded nothing."""

    def __init__(self, refused: tuple[RefusedProgress, ...]) -> None:
        shown = "; ".join(
            f"{one.receipt.link} {one.receipt.topic}-{one.receipt.partition}"
            f" [{one.receipt.from_offset}, {one.receipt.to_offset}) {one.reason}"
            for one in refused[:5]
        )
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        super().__init__(f"receipts refused: {shown}{more}", hint="read the positions again and go on from them")
        self.refused = refused

    def __reduce__(self) -> tuple[object, tuple[tuple[RefusedProgress, ...]]]:
        return ProgressRefusedError, (self.refused,)


def refusal_reason(position: ReplicatedPosition, receipt: ProgressRecord) -> str | None:
    """Returns why progress cannot follow this position; None when it follows or repeats."""
    if not 0 <= receipt.from_offset <= receipt.to_offset:
        return "is not a range"
    if receipt.from_offset > position.to_offset:
        return f"leaves a gap from {position.to_offset}"
    if receipt.from_offset < position.start_offset:
        return f"begins before {position.start_offset}, where this twin's receipts begin"
    return None


def new_part(position: ReplicatedPosition, receipt: ProgressRecord) -> ProgressRecord:
    """Returns the new part of the progress. Its counts are estimated in proportion to offsets."""
    new = receipt.to_offset - position.to_offset
    whole = receipt.to_offset - receipt.from_offset
    if not 0 < new < whole:
        return receipt
    producers = (
        replace(one, batches=tuple(batch for batch in one.batches if batch.base_offset >= position.to_offset))
        for one in receipt.source_producers
    )
    return replace(
        receipt,
        from_offset=position.to_offset,
        records=_part(receipt.records, new, whole),
        bytes=_part(receipt.bytes, new, whole),
        batches=_part(receipt.batches, new, whole),
        source_producers=tuple(one for one in producers if one.batches),
    )


def _part(count: int, new: int, whole: int) -> int:
    return -(-count * new // whole)


def advance_position(position: ReplicatedPosition, receipt: ProgressRecord) -> ReplicatedPosition:
    """Returns the position after progress from `new_part`. A position never moves back."""
    if receipt.from_offset < position.to_offset or receipt.to_offset < position.to_offset:
        return position
    # An epoch belongs to its own offset: an older one with a newer offset would look like a truncation.
    moved = receipt.to_offset > position.to_offset or receipt.source_epoch >= 0
    return replace(
        position,
        to_offset=receipt.to_offset,
        records=position.records + receipt.records,
        bytes=position.bytes + receipt.bytes,
        batches=position.batches + receipt.batches,
        source_end=receipt.source_end,
        lag_records=receipt.lag_records,
        last_ms=receipt.last_ms,
        source_epoch=receipt.source_epoch if moved else position.source_epoch,
    )


def last_offset(producer: SourceProducer) -> int:
    return producer.batches[-1].last_offset


def merge_batches(known: SourceProducer | None, fresh: SourceProducer) -> SourceProducer:
    """Adds the fresh batches. A new epoch replaces all earlier ones, as on a broker."""
    batches = fresh.batches
    if known is not None and known.epoch == fresh.epoch:
        end = last_offset(known)
        batches = known.batches + tuple(batch for batch in batches if batch.base_offset > end)
    return SourceProducer(fresh.producer_id, fresh.epoch, batches[-BATCHES_KEPT:])
