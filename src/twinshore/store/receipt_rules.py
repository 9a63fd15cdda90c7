"""How receipts add up: what follows on, what is rolled into one, what is forgotten, what is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twinshore.fleet import StoreError
from twinshore.store.values import BATCHES_KEPT, Position, Receipt, SourceProducer

ROLL_MS = 60_000  # A receipt is extended while it is younger than this.
CLOSED_ROWS_MAX = 96  # Per partition; past it the older ones are merged two by two.
CLOSED_ROWS_FRESH = 32
PRODUCERS_MAX = 1000  # Per partition: the ones that wrote last.
PRODUCERS_SLACK = 100  # So that forgetting happens now and then, not at each receipt.
PRODUCER_AGE_MS = 86_400_000  # A broker forgets an idle producer after a day by default.


@dataclass(frozen=True, slots=True)
class Progress:
    """A partition's position with its youngest receipt, which may still grow, and the count of what hangs on it."""

    id: int
    position: Position
    open: Receipt | None
    closed_rows: int
    producers: int


@dataclass(frozen=True, slots=True)
class Advance:
    """What a receipt did: the progress after it, a receipt that grew no more, and whether it brought anything new."""

    progress: Progress
    closed: Receipt | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class RefusedReceipt:
    """A receipt that does not follow on, and where its partition stands (None: nowhere yet)."""

    receipt: Receipt
    position_offset: int | None
    reason: str


class ReceiptsRefusedError(StoreError):
    """Receipts that do not follow on what is known; nothing of their call was recorded. `refused` names each."""

    def __init__(self, refused: tuple[RefusedReceipt, ...]) -> None:
        shown = "; ".join(
            f"{one.receipt.link} {one.receipt.topic}-{one.receipt.partition}"
            f" [{one.receipt.from_offset}, {one.receipt.to_offset}) {one.reason}"
            for one in refused[:5]
        )
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        super().__init__(f"receipts refused: {shown}{more}", hint="read the positions again and go on from them")
        self.refused = refused

    def __reduce__(self) -> tuple[object, tuple[tuple[RefusedReceipt, ...]]]:  # type: ignore[override]
        return ReceiptsRefusedError, (self.refused,)


def refusal(position: Position, receipt: Receipt) -> str | None:
    """Why this receipt cannot follow on this position; None when it can, or repeats what is known."""
    if not 0 <= receipt.from_offset <= receipt.to_offset:
        return "is not a range"
    if receipt.from_offset > position.to_offset:
        return f"leaves a gap from {position.to_offset}"
    if receipt.from_offset < position.start_offset:
        return f"begins before {position.start_offset}, where this twin's receipts begin"
    return None


def beyond(position: Position, receipt: Receipt) -> Receipt:
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


def advance(progress: Progress, receipt: Receipt) -> Advance:
    """The progress after a receipt that `refusal` has nothing against and of which `beyond` left what is new. A
    position never moves back."""
    position = progress.position
    if receipt.from_offset < position.to_offset or receipt.to_offset < position.to_offset:
        return Advance(progress, None, fresh=False)
    # An epoch goes with its own offset alone: an older one with a newer offset would tell of a truncation that is none.
    moved = receipt.to_offset > position.to_offset or receipt.source_epoch >= 0
    seen = replace(
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
    if receipt.from_offset == receipt.to_offset:
        return Advance(replace(progress, position=seen), None, fresh=False)
    bare = replace(receipt, source_producers=(), extents=(), source_epoch=-1)
    opened = progress.open
    if opened is None:
        return Advance(replace(progress, position=seen, open=bare), None, fresh=True)
    if abs(receipt.last_ms - opened.first_ms) <= ROLL_MS:
        return Advance(replace(progress, position=seen, open=joined(opened, bare)), None, fresh=True)
    after = replace(progress, position=seen, open=bare, closed_rows=progress.closed_rows + 1)
    return Advance(after, opened, fresh=True)


def joined(earlier: Receipt, later: Receipt) -> Receipt:
    """Two receipts, one right behind the other, as one."""
    return replace(
        later,
        from_offset=earlier.from_offset,
        records=earlier.records + later.records,
        bytes=earlier.bytes + later.bytes,
        batches=earlier.batches + later.batches,
        first_ms=earlier.first_ms,
    )


def thinned(rows: Sequence[Receipt]) -> list[Receipt]:
    """Receipts in order, the older ones merged two by two; done again and again, a row's span doubles with its age."""
    border = max(0, len(rows) - CLOSED_ROWS_FRESH)
    old = list(rows[:border])
    pairs = [joined(old[index], old[index + 1]) for index in range(0, len(old) - 1, 2)]
    rest = old[-1:] if len(old) % 2 else []
    return [*pairs, *rest, *rows[border:]]


def last_offset(producer: SourceProducer) -> int:
    """The offset of the last record this producer wrote, as far as known."""
    return producer.batches[-1].last_offset


def later_batches(known: SourceProducer | None, fresh: SourceProducer) -> SourceProducer:
    """What is to be remembered of a producer after more of its batches. A new epoch begins anew, as on a broker."""
    batches = fresh.batches
    if known is not None and known.epoch == fresh.epoch:
        end = last_offset(known)
        batches = known.batches + tuple(batch for batch in batches if batch.base_offset > end)
    return SourceProducer(fresh.producer_id, fresh.epoch, batches[-BATCHES_KEPT:])
