"""Which promise a topic keeps: CP, AP or neither. Pure.

CP keeps records consistent: what was acknowledged is not lost, and where that cannot be promised writers are refused.
Its settings are acks=all, min.insync.replicas of N/2 + 1 of N replicas, no unclean election. AP stays available with
one replica left: acks=1, min.insync.replicas=1, no unclean election. Acks are the producer's, and no broker tells them,
so a topic is CP or AP for producers with these acks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinshore.advisor.seen import Seen, Topic

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


class Kind(StrEnum):
    CP = "CP"
    AP = "AP"
    NEITHER = "neither"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Profile:
    """`differs`: what would have to be otherwise for the nearest of both; empty where it is one of them."""

    topic: str
    kind: Kind
    copies: int
    min_isr: int | None
    unclean: bool | None
    differs: tuple[str, ...] = ()


def majority(copies: int) -> int:
    """N/2 + 1: any two such sets of replicas share one."""
    return copies // 2 + 1


def profile_of(topic: Topic, *, capped: bool = False) -> Profile:
    """Its kind, and what differs. `capped`: as `Seen.capped`."""
    minimum, unclean = topic.number(MIN_ISR), topic.says(UNCLEAN)
    copies = topic.copies
    if minimum is None or unclean is None:
        return Profile(topic.name, Kind.UNKNOWN, copies, minimum, None, ("its settings could not be seen",))
    elects = unclean == "true"
    above, needed = minimum > max(copies, 1), min(minimum, max(copies, 1))
    differs = []
    if copies < 2:
        asks = f"; {MIN_ISR} asks for {minimum}, Kafka takes {needed}" if above and capped else ""
        differs.append(f"one replica: whatever the acks, its broker's loss is the records' loss{asks}")
    if elects:
        differs.append(f"{UNCLEAN} is true: both CP and AP want false")
    if 1 < minimum < majority(copies):
        differs.append(f"{MIN_ISR} is {minimum}: CP wants {majority(copies)} of {copies}, AP wants 1")
    if above and not capped:
        differs.append(f"{MIN_ISR} is {minimum} of {copies} replicas: nothing with acks=all can be written")
    if differs:
        return Profile(topic.name, Kind.NEITHER, copies, minimum, elects, tuple(differs))
    kind = Kind.CP if minimum >= majority(copies) else Kind.AP
    return Profile(topic.name, kind, copies, minimum, elects)


def profiles_of(seen: Seen) -> tuple[Profile, ...]:
    """Of every topic of applications."""
    return tuple(profile_of(topic, capped=seen.capped) for topic in seen.own_topics() if topic.partitions)
