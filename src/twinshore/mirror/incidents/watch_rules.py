"""When a side counts as away and as back, what is said of one that is silent, and what disks with little room ask for.
Pure: looks and clocks in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from twinshore.kafka.broker_answers import Disk

SETTLED_S = 2.0  # so long it must be well before it counts as back: by then lags are known again
ROOM_AGAIN_PERCENT = 0.2  # above the bound, so that a broker at it does not stop and go


class Turn(Enum):
    NOTHING = "nothing"
    OPEN = "open a row"
    CLOSE = "close it"


@dataclass(slots=True)
class Absence:
    """One side, or one reason not to get on with it. `open`: there is a row; whoever writes and closes it says so."""

    after_s: float
    open: bool = False
    since_s: float = -1.0
    well_s: float = -1.0

    def look(self, trouble: bool, now_s: float, begun_s: float = -1.0) -> Turn:
        """What a look means that found trouble, or none. Where it took long, nothing has answered since `begun_s`."""
        if trouble:
            over, self.well_s = self.well_s >= 0 and not self.open, -1.0
            if self.since_s < 0 or over:
                self.since_s = begun_s if begun_s >= 0 else now_s
            if not self.open and now_s - self.since_s >= self.after_s:
                return Turn.OPEN
            return Turn.NOTHING
        if not self.open:
            self.since_s = -1.0
            return Turn.NOTHING
        if self.well_s < 0:
            self.well_s = now_s
        if now_s - self.well_s < SETTLED_S:
            return Turn.NOTHING
        return Turn.CLOSE

    def lasted_s(self) -> float:
        """How long it was away; 0 where it began before anybody here looked."""
        return max(0.0, self.well_s - self.since_s) if self.since_s >= 0 else 0.0


def silence(side: str, cluster: str) -> str:
    """That the cluster, which is the link's `side`, does not answer."""
    return f"the {side} {cluster} does not answer"


def silent_sentence(side: str, cluster: str, cause: str) -> str:
    """The same for the ledger, with why it does not."""
    return f"{silence(side, cluster)}: {cause}"


def cause_of(sentence: str, side: str, cluster: str) -> str:
    """Why it does not answer; empty where the sentence is another one, such as of partitions that nobody leads."""
    said = silent_sentence(side, cluster, "")
    return sentence.removeprefix(said) if sentence.startswith(said) else ""


class Room(Enum):
    ENOUGH = "enough"
    LITTLE = "little"
    NONE = "none"


def rooms(
    disks: Iterable[Disk], before: Mapping[int, Room], *, warn_percent: float, pause_percent: float
) -> dict[int, Room]:
    """How each broker stands by its fullest disk, and by how it stood before."""
    free: dict[int, float] = {}
    for disk in disks:
        free[disk.node_id] = min(disk.free_percent, free.get(disk.node_id, 100.0))
    found = {}
    for node, percent in free.items():
        was = before.get(node, Room.ENOUGH)
        pause = pause_percent + (ROOM_AGAIN_PERCENT if was is Room.NONE and pause_percent else 0.0)
        warn = warn_percent + (ROOM_AGAIN_PERCENT if was is not Room.ENOUGH and warn_percent else 0.0)
        found[node] = Room.NONE if percent < pause else Room.LITTLE if percent < warn else Room.ENOUGH
    return found


def disks_in_words(target: str, disks: Iterable[Disk], now: Mapping[int, Room]) -> str:
    """The sentence for the ledger; empty where there is room enough."""
    said = []
    for disk in sorted(disks):
        room = now.get(disk.node_id, Room.ENOUGH)
        if room is Room.ENOUGH:
            continue
        rests = "; nothing is written to its twins" if room is Room.NONE else ""
        free = f"{disk.usable_bytes / 1e9:.1f} GB ({disk.free_percent:.1f} %) free in {disk.log_dir}"
        said.append(f"broker {disk.node_id} of {target} has {free}{rests}")
    return "; ".join(said)
