"""Who leads a partition, on both sides. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """Who leads the partition on both sides; node -1 while nobody does. `recreated`: the side whose topic of this name
    is another one now; `absent`: the side that has none."""

    source: int = -1
    source_epoch: int = -1
    target: int = -1
    recreated: str = ""
    absent: str = ""
    target_epoch: int = -1

    @property
    def twin_led(self) -> tuple[int, int]:
        """Who leads the twin, and in which epoch: another pair may have another log."""
        return self.target, self.target_epoch


NOBODY = Route()
