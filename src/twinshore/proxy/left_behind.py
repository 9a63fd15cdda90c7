"""Groups that would lose places as they move: in topics that both clusters have, and that no link takes along."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from twinshore.fleet import RefusedError
from twinshore.fleet.sentences import listed
from twinshore.groups.goals import GroupSeen
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.groups import Groups
from twinshore.links.filters import INTERNAL

NAMED_MAX = 5


def left_behind(old: KafkaCluster, new: KafkaCluster, seen: Mapping[str, GroupSeen]) -> dict[str, list[str]]:
    """Topics by group. `seen`: what links would take along. At the new home places are looked for in the groups there,
    where that cluster has a topic of the name, whatever it holds. RefusedError where a broker does not tell."""
    both = (old.metadata().topics.keys() & new.metadata().topics.keys()) - INTERNAL
    found: dict[str, list[str]] = {}
    with closing(Groups(old)) as groups:
        there = groups.listed()
        wanted: dict[int, dict[str, None]] = {}
        for one in there.groups.values():
            if one.reads_by_offsets:
                wanted.setdefault(one.coordinator, {})[one.group] = None
        places, away = groups.places(wanted, {})
    if why := [*there.away.values(), *away.values()]:
        raise RefusedError(f"where groups stand on {old.name} is not known: {why[0].message}")
    for name, group in places.items():
        taken = seen.get(name, GroupSeen())
        known = {goal.left_topic for goal in taken.goals}  # a group that has just begun may have more places by now
        lacking = {
            topic
            for topic, number in group.places
            if topic in both and topic not in known and f"{topic}-{number}" not in taken.lost
        }
        if lacking:
            found[name] = sorted(lacking)
    return dict(sorted(found.items()))


def refused_for(left: Mapping[str, list[str]], old: str, to: str) -> RefusedError | None:
    """Why groups do not move while some would lose places; None where none would."""
    if not left:
        return None
    named = [f"{group} in {listed(topics, NAMED_MAX)}" for group, topics in left.items()]
    return RefusedError(
        f"both clusters have topics of which no link takes places along: those of {listed(named, NAMED_MAX, '; ')}",
        hint='let a link with naming = "same" carry these topics and groups; or take away what nobody needs of these'
        f" places on {old}, or of these topics on {to}",
    )
