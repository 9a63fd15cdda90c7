"""The word that a link's rounds leave in the store: what they say of each group, for when the source is lost."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from twinshore.groups.book import Entry
from twinshore.groups.place import State
from twinshore.groups.rounds import Round, standing
from twinshore.mirror.metrics.words import GROUPS_KIND
from twinshore.service.clock import wall_ms
from twinshore.store import Store
from twinshore.wire.group_places import GroupPlaces, Where

# Which groups the last round compared, written only when these are others than before.
COMPARED_KIND = "groups compared"
NAMED_MAX = 500
PLACES_MAX = 100
WORD_FRESH_MS = 15_000
NOBODY: Mapping[str, tuple[float, int]] = MappingProxyType({})
# Of a group that has waited since the rounds began nothing else is known.
UNKNOWN = Entry(GroupPlaces("", 0, {}, {}, b""))
NEVER_SAID = "never compared"
NOT_NAMED = "not named"


def word_of(
    entries: Mapping[str, Entry],
    done: Round,
    *,
    now_s: float,
    now_ms: int,
    waiting: Mapping[str, tuple[float, int]] = NOBODY,
) -> dict[str, Any]:
    """The last round in figures, and each group that differs: how, by how many records, since when, and which of its
    places are somebody's own, and which are refused. `waiting`: groups of which the rounds know earlier places only, or
    none; since when, and how many records later their places are."""
    differ: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    behind = 0
    for name in (*entries, *(waiting.keys() - entries.keys())):
        entry = entries.get(name, UNKNOWN)
        state, records, since_s = standing(entry)
        if name in waiting and state is not State.LIVE:
            waits_s, later = waiting[name]
            records += later
            if state is State.SAME:
                state, since_s = State.WAITS, waits_s
        counts[state] = counts.get(state, 0) + 1
        behind += records
        if state is not State.SAME and len(differ) < NAMED_MAX:
            since_ms = now_ms - int((now_s - since_s) * 1000) if since_s >= 0 else None
            own, refused = (
                [list(where) for where, (how, _, _) in entry.standing.items() if how is kind][:PLACES_MAX]
                for kind in (State.OWN, State.REFUSED)
            )
            differ[name] = [state, records, since_ms, own, refused]
    return {
        "at_ms": now_ms,
        "groups": done.groups,
        "took_ms": round(done.took_s * 1000, 1),
        "requests": dict(done.asked),
        "states": counts,
        "behind": behind,
        "differ": differ,
        "waits": sorted(waiting)[:NAMED_MAX],
    }


def compared_among(entries: Mapping[str, Entry]) -> frozenset[str]:
    """The groups whose places on both sides are known; a coordinator that does not answer leaves others out."""
    return frozenset(name for name, entry in entries.items() if entry.live or not entry.check)


def word_in(store: Store, link: str, *, fresh: bool = True) -> dict[str, Any]:
    """What the mirror last said of the link's groups; empty when `fresh` is wanted and it is old."""
    for row in store.memories.of(link, GROUPS_KIND):
        word = json.loads(row.value)
        if not fresh or wall_ms() - word["at_ms"] < WORD_FRESH_MS:
            return dict(word)
    return {}


def own_in(word: Mapping[str, Any], group: str) -> frozenset[Where]:
    """The group's places that the mirror leaves to whoever set them on the target, by its last round."""
    return _places_in(word, group, 3)


def refused_in(word: Mapping[str, Any], group: str) -> frozenset[Where]:
    """The group's places that the target refused in the mirror's last round."""
    return _places_in(word, group, 4)


def waits_in(word: Mapping[str, Any], group: str) -> bool:
    """Whether the mirror's last round held the group's places back, until what its readers wrote has crossed."""
    return group in word.get("waits", ())


def _places_in(word: Mapping[str, Any], group: str, at: int) -> frozenset[Where]:
    told = word.get("differ", {}).get(group, [])
    return frozenset((topic, partition) for topic, partition in (told[at] if len(told) > at else ()))


def last_said(word: Mapping[str, Any], compared: Collection[str], group: str) -> tuple[str, int]:
    """How the group stood when it was last compared, and by how many records it was behind. Only of a group that was
    compared and would have been named had it differed may it be said that it stood the same."""
    differ = word.get("differ", {})
    if group in differ:
        state, behind, *_ = differ[group]
        return str(state), int(behind)
    if not word or group not in compared:
        return NEVER_SAID, 0
    return (State.SAME.value if len(differ) < NAMED_MAX else NOT_NAMED), 0
