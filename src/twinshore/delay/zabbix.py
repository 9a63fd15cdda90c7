"""What Zabbix asks: discovery of links and topics, and one number for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from twinshore.store.values import AlarmRow, DelayPlace


def discovery(places: Iterable[DelayPlace]) -> str:
    """Low-level discovery: every link and topic that is watched. An agent passes no ">" on, so that keys name links
    as `east..west`."""
    found = sorted({(place.link, place.topic) for place in places})
    named = [(link, link.replace("->", ".."), topic) for link, topic in found]
    return json.dumps({"data": [{"{#LINK}": link, "{#KEY}": key, "{#TOPIC}": topic} for link, key, topic in named]})


def figure(item: str, places: Sequence[DelayPlace], alarms: Sequence[AlarmRow], topic: str) -> float | int:
    """`lag`, `recovery-point` or `alarms` of the places and alarms given; of one topic where it is named."""
    ours = [place for place in places if not place.group and topic in ("", place.topic)]
    if item == "lag":
        return sum(place.lag_records for place in ours)
    if item == "recovery-point":
        return max((place.recovery_point_ms for place in ours), default=0) / 1000
    # An alarm of a whole link, a cluster or a process is one of each topic.
    return sum(not topic or alarm.topic in ("", topic) for alarm in alarms)


def unknown(
    item: str, places: Sequence[DelayPlace], topic: str, now_ms: int, bound_s: float, unseen: Sequence[str] = ()
) -> str:
    """Why there is no figure that may be shown as today's: nothing was read, or not lately; empty where there is.
    `unseen`: what nobody looks at now, so that nobody would raise an alarm."""
    ours = [place for place in places if not place.group and topic in ("", place.topic)]
    if item == "alarms" and (unseen or ours or not topic):
        return "; ".join(unseen)
    if not ours:
        return f"nobody has read {topic or 'anything'} yet"
    oldest = min(ours, key=lambda place: place.at_ms)
    age_s = (now_ms - oldest.at_ms) / 1000
    if age_s <= bound_s:
        return ""
    last = f"lag {oldest.lag_records}, recovery point {oldest.recovery_point_ms / 1000:.1f} s"
    return f"{oldest.topic}-{oldest.partition} of {oldest.link} was read last {age_s:.0f} s ago ({last})"


ITEMS = ("lag", "recovery-point", "alarms")
