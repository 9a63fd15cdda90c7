"""Under a throttle: which topics have had more than their weight, and wait until the others have caught up. Pure.

What is fetched comes in whole batches, so that no size of a single fetch gives a topic four times its neighbour's
bytes; what each has had so far, by weight, does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# One that has taken nothing for so long, though it could, holds up nobody.
ACTIVE_S = 3.0


@dataclass(slots=True)
class Share:
    """Bytes by weight since all began together, and when the last came."""

    had: float
    weight: int
    at_s: float


@dataclass(slots=True)
class FairShares:
    """`ahead`: topics that are not to be fetched now."""

    ahead: set[str] = field(default_factory=set)
    _shares: dict[str, Share] = field(default_factory=dict)

    def clear(self) -> None:
        """Nobody has had anything."""
        self._shares.clear()
        self.ahead.clear()

    def spend(self, topic: str, size: int, weight: int, now_s: float, *, behind: bool) -> None:
        """So much of a topic was fetched; one that has no more to come contends with nobody."""
        if not behind:
            self._shares.pop(topic, None)
            return
        share = self._shares.get(topic)
        if share is None or share.weight != weight or now_s - share.at_s > ACTIVE_S:
            # No credit for the time when it needed nothing, or could not take it.
            share = self._shares[topic] = Share(self._least(now_s), weight, now_s)
        share.had += size / weight
        share.at_s = now_s

    def rank(self, now_s: float, slack: float) -> set[str]:
        """Topics that may be fetched now and might not before, or the other way round. `slack`: bytes that all of them
        together may be ahead."""
        active = {topic: share for topic, share in self._shares.items() if now_s - share.at_s <= ACTIVE_S}
        least = min((share.had for share in active.values()), default=0.0)
        bound = slack / max(1, sum(share.weight for share in active.values()))
        before, self.ahead = self.ahead, {topic for topic, share in active.items() if share.had - least > bound}
        return before ^ self.ahead

    def _least(self, now_s: float) -> float:
        return min((share.had for share in self._shares.values() if now_s - share.at_s <= ACTIVE_S), default=0.0)
