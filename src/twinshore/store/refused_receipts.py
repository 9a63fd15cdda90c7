"""Receipts that the store would not take, as values."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet import StoreError
from twinshore.store.values import Receipt


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
