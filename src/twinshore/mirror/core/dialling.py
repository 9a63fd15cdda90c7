"""When a pump dials the connections that it needs, and dials again. Pure."""

from __future__ import annotations

REDIAL_S_MIN = 0.1
REDIAL_S_MAX = 2.0
UNDER_WAY_S = 30.0  # Behind that a dial is begun again. The first may still arrive: then the second is let go of.
DOUBLINGS_MAX = 5


class Dials:
    """When connections that are needed may be dialled, and dialled again. A place is a side and a node or line."""

    def __init__(self) -> None:
        # When it may be dialled next, and how often it was in vain.
        self._next: dict[tuple[str, object], tuple[float, int]] = {}

    def due(self, side: str, key: object, now_s: float) -> bool:
        """Whether to dial it now; then it counts as under way."""
        at_s, times = self._next.get((side, key), (0.0, 0))
        if now_s >= at_s:
            self._next[side, key] = (now_s + UNDER_WAY_S, times)
        return now_s >= at_s

    def failed(self, side: str, key: object, now_s: float) -> None:
        times = self._next.get((side, key), (0.0, 0))[1] + 1
        wait_s = min(REDIAL_S_MAX, REDIAL_S_MIN * 2 ** min(times, DOUBLINGS_MAX))
        self._next[side, key] = (now_s + wait_s, times)

    def made(self, side: str, key: object) -> None:
        self._next.pop((side, key), None)

    def all_tried(self) -> bool:
        """Whether each that is still missing was tried at least once."""
        return bool(self._next) and all(times > 0 for _, times in self._next.values())
