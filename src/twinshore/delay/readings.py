"""What was read of both clusters: values that the windows, the recovery point and the alarms are judged by; and what
became of a topic that should be seen and is not: over for good, or out of sight. Pure.

A broker's list of all topics leaves out those that are gone and those that its asker may not describe, without a word.
Asked for a topic by name it tells the two apart, so that only what it says by name counts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from twinshore.fleet import Link, is_heartbeats
from twinshore.kafka.errors import Code, describe
from twinshore.links.filters import admits

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


class Sought(NamedTuple):
    """`over`: nobody expects it to be carried any more, so that nothing is late. `why` is a sentence's end. `deleted`:
    the source has it no more."""

    over: bool
    why: str
    deleted: bool = False


def sought(link: Link, name: str, source: int | None, target: int | None) -> Sought:
    """What is so of a topic of the source, by the error codes with which both clusters answer to its name; None where
    one said nothing."""
    if is_heartbeats(name):
        return Sought(True, "heartbeats are watched by themselves")
    if not admits(link, name):
        return Sought(True, f"the link does not carry {name} any more")
    if source == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return Sought(True, f"{name} was deleted on {link.source}", deleted=True)
    twin = link.twin_of(name)
    for cluster, topic, code in ((link.source, name, source), (link.target, twin, target)):
        if code is None:
            return Sought(False, f"{cluster} says nothing of {topic}")
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            return Sought(False, f"{cluster} refuses to describe {topic}: the monitor's user needs Describe on it")
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return Sought(
                False,
                f"{topic} is not on {cluster} any more, and {name} still is on {link.source}; leave it out with"
                " `twinshore link filter` if that is on purpose",
            )
        if code:
            return Sought(False, f"{cluster} says of {topic}: {describe(code).name}")
    return Sought(False, f"{link.target} has fewer partitions of {twin} than {link.source} has of {name}")
