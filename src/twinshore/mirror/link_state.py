"""How a link that this process carries stands: a word for it, and its sentence. Pure."""

from __future__ import annotations

from twinshore.fleet.listing import counted

FLOWING, WAITING, PAUSED, STANDBY, STOPPED = "flowing", "waiting", "paused", "standby", "stopped"


def link_state(placed: int, unmanned: int, lanes: int, refused: int, aligning: str, *, paused: bool) -> tuple[str, str]:
    """`placed`: partitions on lanes; `unmanned`: those of them whose lane has no pump now."""
    if paused:
        return PAUSED, f"{counted(placed, 'partition')} still on their lanes" if placed else "nothing is carried"
    parts = [f"{counted(placed, 'partition')} on {counted(lanes, 'lane')}"]
    if refused:
        parts[0] += f", {counted(refused, 'topic')} refused"
    if unmanned:
        parts.append(f"{counted(unmanned, 'partition')} without a pump, until one has started")
    if aligning:
        parts.append(aligning)
    return WAITING if placed and unmanned == placed else FLOWING, "; ".join(parts)
