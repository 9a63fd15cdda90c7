"""Which alarm is the cause of which others: while a cause stands, what follows from it is a part of it. Pure.

A dead cluster makes a link blind, its heartbeats late and each of its topics late: that is one thing to tell. What is
told is the root of such a chain, and its parts are listed in it; a part that outlives its cause is told by itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple


class AlarmKind(StrEnum):
    END_OFFSET = "end offset delay"  # The published algorithm's first alarm,
    GROUP = "group delay"  # and its second.
    RECOVERY_POINT = "recovery point"
    HEARTBEAT = "heartbeat"
    BLIND = "blind"
    STOPPED = "stopped"
    CLUSTER = "cluster away"
    STORE = "store away"
    MONITOR = "monitor silent"
    MIRROR = "mirror silent"
    UNPROVEN = "unproven"


class AlarmKey(NamedTuple):
    """What an alarm is about: one for all partitions of a topic. Topic and group are empty where none is meant. `link`
    is a cluster where one is away, and whoever is silent or cannot be reached."""

    link: str
    kind: AlarmKind
    topic: str = ""
    group: str = ""


LATE = frozenset({AlarmKind.HEARTBEAT, AlarmKind.RECOVERY_POINT, AlarmKind.END_OFFSET, AlarmKind.GROUP})
# The store is nobody's link: one for all who share it.
STORE = AlarmKey("the store", AlarmKind.STORE)
# Causes before what follows from them.
_ORDER = (AlarmKind.STORE, AlarmKind.CLUSTER, AlarmKind.MIRROR, AlarmKind.BLIND, AlarmKind.STOPPED)


def cluster_key(cluster: str) -> AlarmKey:
    """The alarm for a cluster that does not answer: one for all links of it."""
    return AlarmKey(cluster, AlarmKind.CLUSTER)


def causes(key: AlarmKey) -> Iterator[AlarmKey]:
    """All that this may follow from, the furthest first."""
    kind = key.kind
    if kind in LATE or kind is AlarmKind.MIRROR:
        yield STORE
    if kind in LATE or kind in (AlarmKind.BLIND, AlarmKind.STOPPED):
        source, arrow, target = key.link.partition("->")
        if arrow:
            yield cluster_key(source)
            yield cluster_key(target)
    if kind in LATE:
        yield AlarmKey(key.link, AlarmKind.MIRROR)
    if kind in LATE or (kind is AlarmKind.BLIND and (key.topic or key.group)):
        yield AlarmKey(key.link, AlarmKind.BLIND)
    if kind in LATE and key.topic:
        yield AlarmKey(key.link, AlarmKind.BLIND, key.topic)
        yield AlarmKey(key.link, AlarmKind.STOPPED, key.topic)


def root(key: AlarmKey, there: Container[AlarmKey], *, beyond: bool = False) -> AlarmKey:
    """What it follows from in the end, of all that is `there`: itself where it follows from nothing. `beyond`: it is
    wrong of more than the partitions that are stopped, so that their stop does not explain it."""
    while (cause := next((one for one in causes(key) if one in there and explains(one, beyond)), None)) is not None:
        key = cause
    return key


def explains(cause: AlarmKey, beyond: bool) -> bool:
    """Whether it explains what may follow from it, where that is wrong of more than what is stopped."""
    return not (beyond and cause.kind is AlarmKind.STOPPED)


def parts(key: AlarmKey, among: Iterable[AlarmKey]) -> list[AlarmKey]:
    """Those that may follow from this, at whatever remove."""
    return sorted(one for one in among if one != key and key in _ancestors(one))


def _ancestors(key: AlarmKey) -> set[AlarmKey]:
    found: set[AlarmKey] = set()
    for cause in causes(key):
        found |= {cause} | _ancestors(cause)
    return found


def rank(key: AlarmKey) -> int:
    """Causes come before what follows from them."""
    if key.kind is AlarmKind.BLIND and (key.topic or key.group):
        return len(_ORDER)
    return _ORDER.index(key.kind) if key.kind in _ORDER else len(_ORDER) + 1
