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
    return sum(topic in ("", alarm.topic) for alarm in alarms)


ITEMS = ("lag", "recovery-point", "alarms")
