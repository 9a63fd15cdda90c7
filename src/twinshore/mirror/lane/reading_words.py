"""What a pump of a broadcast tells of its reading, beside its speed; and what a link's pumps told, together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Bytes that wait for the target, partitions that have joined, bytes that own fetches brought since the last word.
QUEUED, JOINED, READ = "queued_bytes", "joined", "read_bytes"


def summed(said: Iterable[Mapping[str, float]], read_total: float) -> dict[str, float]:
    """Of one link: what its lanes said last. `read_total`: what its fetches brought in all. Empty where it is of no
    broadcast."""
    ours = [speed for speed in said if JOINED in speed]
    sums = {name: sum(speed[name] for speed in ours) for name in (QUEUED, JOINED)}
    return sums | {READ: read_total} if ours else {}
