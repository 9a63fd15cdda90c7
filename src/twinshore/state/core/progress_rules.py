"""How receipts add up: what follows on, what repeats, what is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinshore.config.errors import StoreError
from twinshore.state.core.values import BATCHES_KEPT, ProgressRecord, ReplicatedPosition, SourceProducer

PRODUCERS_PER_PARTITION_MAX = 1000  # Per partition: the ones that wrote last.
PRODUCERS_SLACK = 100  # Once so many more have come, some are forgotten: not at each receipt.
PRODUCER_AGE_MS = 86_400_000  # A broker forgets an idle producer after a day by default.


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A partition's position and how many producers hang on it."""

    id: int
    position: ReplicatedPosition
    producers: int


@dataclass(frozen=True, slots=True)
class RefusedProgress:
    """A receipt that does not follow on, and where its partition stands (None: nowhere yet)."""

    receipt: ProgressRecord
    position_offset: int | None
    reason: str


class ProgressRefusedError(StoreError):
    """Receipts that do not follow on what is known; nothing of their call was recorded. `refused` names each."""

    def __init__(self, refused: tuple[RefusedProgress, ...]) -> None:
        shown = "; ".join(
            f"{one.receipt.link} {one.receipt.topic}-{one.receipt.partition}"
            f" [{one.receipt.from_offset}, {one.receipt.to_offset}) {one.reason}"
            for one in refused[:5]
        )
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        super().__init__(f"receipts refused: {shown}{more}", hint="read the positions again and go on from them")
        self.refused = refused

    def __reduce__(self) -> tuple[object, tuple[tuple[RefusedProgress, ...]]]:  # type: ignore[override]
        return ProgressRefusedError, (self.refused,)


def refusal_reason(position: ReplicatedPosition, receipt: ProgressRecord) -> str | None:
    """Why this receipt cannot follow on this position; None when it can, or repeats what is known."""
    if not 0 <= receipt.from_offset <= receipt.to_offset:
        return "is not a range"
    if receipt.from_offset > position.to_offset:
        return f"leaves a gap from {position.to_offset}"
    if receipt.from_offset < position.start_offset:
        return f"begins before {position.start_offset}, where this twin's receipts begin"
    return None


def new_part(position: ReplicatedPosition, receipt: ProgressRecord) -> ProgressRecord:
    """The part of a receipt that is new. Its counts are in proportion to its offsets, nobody knows them better."""
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
    """The position after a receipt that `refusal_reason` has nothing against and of which `new_part` left what is new.
    A position never moves back."""
    if receipt.from_offset < position.to_offset or receipt.to_offset < position.to_offset:
        return position
    # An epoch goes with its own offset alone: an older one with a newer offset would tell of a truncation that is none.
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
    """The offset of the last record this producer wrote, as far as known."""
    return producer.batches[-1].last_offset


def merge_batches(known: SourceProducer | None, fresh: SourceProducer) -> SourceProducer:
    """What is to be remembered of a producer after more of its batches. A new epoch begins anew, as on a broker."""
    batches = fresh.batches
    if known is not None and known.epoch == fresh.epoch:
        end = last_offset(known)
        batches = known.batches + tuple(batch for batch in batches if batch.base_offset > end)
    return SourceProducer(fresh.producer_id, fresh.epoch, batches[-BATCHES_KEPT:])
