"""What was read of both clusters: values that the windows, the recovery point and the alarms are judged by. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# Parts of a link that are read beside its topics; no topic can be called so.
GROUPS, BEATS = "/groups", "/heartbeats"
PARTS = (GROUPS, BEATS)
# Stands in the name of a group whose id is too long, before the digest.
CUT = " ... sha256 "


GROUP_LENGTH = 255
_HEAD = 200


def group_named(group: str) -> str:
    """What a group is called here: its id, unless that is longer than a store keeps, or none can; then its beginning
    and a digest of all of it."""
    if len(group) <= GROUP_LENGTH and "\0" not in group:
        return group
    return f"{group[:_HEAD]}".replace("\0", "\ufffd") + CUT + hashlib.sha256(group.encode()).hexdigest()[:32]


class WatchedPlace(NamedTuple):
    """What is watched: a partition of a link, by its source's name; with a group, where that group stands in it."""

    link: str
    topic: str
    partition: int
    group: str = ""

    def __str__(self) -> str:
        group = f" for {self.group}" if self.group else ""
        return f"{self.link} {self.topic}-{self.partition}{group}"


class Axis(StrEnum):
    """How the target's offsets can be laid on the source's."""

    EXACT = "exact"  # A twin: they are the same.
    MAPPED = "mapped"  # Twinshore knows what lies where.
    FOREIGN = "foreign"  # Somebody else's copy: only differences tell.


class Reading(NamedTuple):
    """A place at one tick. `source_id` and `target_id` are topic ids. A commit is None where the group has none.

    `carried` is the target's end on the source's axis, for a mapped twin; -1 where nobody knows it.
    """

    place: WatchedPlace
    at_ms: int
    source_end: int
    target_end: int
    source_id: str = ""
    target_id: str = ""
    source_commit: int | None = None
    target_commit: int | None = None
    axis: Axis = Axis.FOREIGN
    carried: int = -1
    paused: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """How a place stands. Where the axis is foreign, lag and recovery point are the least they can be."""

    place: WatchedPlace
    at_ms: int
    source_end: int
    target_end: int
    lag_records: int
    recovery_point_ms: int
    axis: Axis
    state: str = "watched"
