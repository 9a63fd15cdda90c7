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

    progress: ProgressRecord
    position_offset: int | None
    reason: str


class ProgressRefusedError(StoreError):
    """Progress that does not follow the known positions; its call recorded nothing."""

    def __init__(self, refused: tuple[RefusedProgress, ...]) -> None:
        shown = "; ".join(
            f"{refused_progress.progress.link} {refused_progress.progress.topic}-{refused_progress.progress.partition}"
            f" [{refused_progress.progress.from_offset}, {refused_progress.progress.to_offset})"
            f" {refused_progress.reason}"
            for refused_progress in refused[:5]
        )
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        super().__init__("state.progress-refused", ranges=f"{shown}{more}")
        self.refused = refused


def refusal_reason(position: ReplicatedPosition, progress: ProgressRecord) -> str | None:
    """Returns why progress cannot follow this position; None when it follows or repeats."""
    if not 0 <= progress.from_offset <= progress.to_offset:
        return "is not a range"
    if progress.from_offset > position.to_offset:
        return f"leaves a gap from {position.to_offset}"
    if progress.from_offset < position.start_offset:
        return f"begins before {position.start_offset}, where this twin's progress begins"
    return None


def new_part(position: ReplicatedPosition, progress: ProgressRecord) -> ProgressRecord:
    """Returns the new part of the progress. Its counts are estimated in proportion to offsets."""
    new = progress.to_offset - position.to_offset
    whole = progress.to_offset - progress.from_offset
    if not 0 < new < whole:
        return progress
    producers = (
        replace(producer, batches=tuple(batch for batch in producer.batches if batch.base_offset >= position.to_offset))
        for producer in progress.source_producers
    )
    return replace(
        progress,
        from_offset=position.to_offset,
        records=_part(progress.records, new, whole),
        bytes=_part(progress.bytes, new, whole),
        batches=_part(progress.batches, new, whole),
        source_producers=tuple(producer for producer in producers if producer.batches),
    )


def _part(count: int, new: int, whole: int) -> int:
    return -(-count * new // whole)


def advance_position(position: ReplicatedPosition, progress: ProgressRecord) -> ReplicatedPosition:
    """Returns the position after progress from `new_part`. A position never moves back."""
    if progress.from_offset < position.to_offset or progress.to_offset < position.to_offset:
        return position
    # An epoch belongs to its own offset: an older one with a newer offset would look like a truncation.
    moved = progress.to_offset > position.to_offset or progress.source_epoch >= 0
    return replace(
        position,
        to_offset=progress.to_offset,
        records=position.records + progress.records,
        bytes=position.bytes + progress.bytes,
        batches=position.batches + progress.batches,
        source_end=progress.source_end,
        lag_records=progress.lag_records,
        last_ms=progress.last_ms,
        source_epoch=progress.source_epoch if moved else position.source_epoch,
    )


def last_offset(producer: SourceProducer) -> int:
    return producer.batches[-1].last_offset


def merge_batches(producer: SourceProducer | None, fresh: SourceProducer) -> SourceProducer:
    """Adds the fresh batches. A new epoch replaces all earlier ones, as on a broker."""
    batches = fresh.batches
    if producer is not None and producer.epoch == fresh.epoch:
        end = last_offset(producer)
        batches = producer.batches + tuple(batch for batch in batches if batch.base_offset > end)
    return SourceProducer(fresh.producer_id, fresh.epoch, batches[-BATCHES_KEPT:])
