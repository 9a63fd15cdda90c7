"""How a link that this process carries stands: a word for it, and its sentence. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from twinshore.fleet import NamedPartition
from twinshore.fleet.listing import counted

FLOWING, WAITING, PAUSED, STANDBY, STOPPED = "flowing", "waiting", "paused", "standby", "stopped"


@dataclass(frozen=True, slots=True)
class Carrying:
    """What a link carries now. `placed`: partitions on lanes; of these, `unmanned` are on lanes that no pump carries
    now, and `away` are carried and have a leader that is. `resting`: partitions that incidents stopped. `refused`:
    topics."""

    placed: int
    lanes: int
    unmanned: int = 0
    away: int = 0
    resting: int = 0
    refused: int = 0
    aligning: str = ""

    @property
    def stands(self) -> bool:
        """Whether nothing at all crosses, though there is something that should."""
        wanted = self.placed + self.resting + self.refused
        return wanted > 0 and self.placed <= self.unmanned + self.away


def carrying(
    placed: Set[NamedPartition],
    unmanned: Set[NamedPartition],
    away: Set[NamedPartition],
    *,
    lanes: int,
    resting: int,
    refused: int,
    aligning: str,
) -> Carrying:
    """In numbers, each partition once: what was told of one that is on no lane by now says nothing of the link."""
    alone = unmanned & placed
    without = (away & placed) - alone
    return Carrying(len(placed), lanes, len(alone), len(without), resting, refused, aligning)


def link_state(now: Carrying, *, paused: bool) -> tuple[str, str]:
    """The word and its sentence."""
    if paused:
        return (
            PAUSED,
            f"{counted(now.placed, 'partition')} still on their lanes" if now.placed else "nothing is carried",
        )
    parts = [f"{counted(now.placed, 'partition')} on {counted(now.lanes, 'lane')}"]
    if now.refused:
        parts[0] += f", {counted(now.refused, 'topic')} refused"
    if now.resting:
        parts.append(f"{counted(now.resting, 'partition')} stopped by incidents")
    if now.away:
        parts.append(f"{counted(now.away, 'partition')} whose leader is away")
    if now.unmanned:
        parts.append(f"{counted(now.unmanned, 'partition')} without a pump, until one has started")
    if now.aligning:
        parts.append(now.aligning)
    return WAITING if now.stands else FLOWING, "; ".join(parts)
