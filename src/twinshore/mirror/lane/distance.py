"""How far away a source is, as its answers tell, and how much one fetch should bring from there.

Where the round trip sets the pace, not the reading, a larger fetch is faster. Where the source is near, it only grows
out of the processor's caches. A busy near broker answers late too, but now and then it answers at once: so it is the
shortest of several waits that counts.
"""

from __future__ import annotations

from collections import deque

FAR_S = 0.01
FETCH_BYTES_WIDEST = 128 << 20
WAITS = 6


class Distance:
    """Of one connection. `fetch_bytes` is what its next fetch may bring."""

    def __init__(self, fetch_bytes_least: int) -> None:
        self.fetch_bytes = self._least = fetch_bytes_least
        self._waits_s: deque[float] = deque(maxlen=WAITS)

    def answered(self, size: int, waited_s: float, took_s: float) -> bool:
        """A fetch brought `size` bytes in `took_s`, `waited_s` of it spent waiting for the first one. Whether the
        source is so far away that partitions which filled what they may bring should bring more."""
        if size < self._least // 8:  # It waited for records, perhaps.
            return False
        self._waits_s.append(waited_s)
        if len(self._waits_s) < WAITS:
            return False
        far = min(self._waits_s) >= max(FAR_S, took_s / 10)
        if not far:
            self.fetch_bytes = max(self._least, self.fetch_bytes // 2)
        elif 4 * size >= 3 * self.fetch_bytes:
            self.fetch_bytes = min(2 * self.fetch_bytes, FETCH_BYTES_WIDEST)
        return far
