"""What a partition has to send, in order, and where its bytes lie. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from twinshore.mirror.lane.certainty import FAR_MS
from twinshore.mirror.lane.cutting import Parcel
from twinshore.mirror.lane.fates import Blank
from twinshore.mirror.lane.joining import Hold


class Waiting(deque[tuple[Parcel | Blank, Hold | None]]):
    """What was fetched and is not sent yet, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.choked = 0, False
        # No batch that waits has an older time stamp.
        self.oldest_ms = FAR_MS

    def put(self, piece: Parcel | Blank, hold: Hold | None) -> None:
        """Goes next after all that waits. `hold` is where its bytes lie, if they are not its own: counted here, once
        for each queue, and counted off by whoever drops it or has sent it."""
        self.append((piece, hold))
        if hold:
            hold.uses += 1
        self.bytes += piece.size
        if not isinstance(piece, Blank) and piece.max_timestamp < self.oldest_ms:
            self.oldest_ms = piece.max_timestamp

    def drop(self) -> None:
        """None of it is wanted any more."""
        for _, hold in self:
            if hold:
                hold.uses -= 1
        self.clear()
        self.bytes, self.oldest_ms = 0, FAR_MS

    def leave(self, holds: Container[Hold]) -> None:
        """What lies in these buffers gets bytes of its own."""
        for number, (piece, hold) in enumerate(self):
            if hold and hold in holds and not isinstance(piece, Blank):
                self[number] = (piece._replace(body=bytes(piece.body), room=None), None)
                hold.uses -= 1

    def kept_ms(self, now_ms: int, kept_ms: int) -> int:
        """Until when a broker that keeps our sequence for so long knows whichever of these it got last."""
        if self.oldest_ms + kept_ms < now_ms:  # That one may have gone since.
            behind = [piece.max_timestamp for piece, _ in self if not isinstance(piece, Blank)]
            self.oldest_ms = min(behind, default=FAR_MS)
        return self.oldest_ms + kept_ms
