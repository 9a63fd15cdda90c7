"""How old figures may be that are shown as today's, what is said of those that are older, and what Zabbix asks:
discovery of links and topics, and one number for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from twinshore.fleet.settings.sections.delay import DelaySection
from twinshore.store.values import AlarmRow, DelayPlace

# The store gets figures once a period; a busy machine may be late with that.
PERIODS_MAX = 3
FRESH_S_MIN = 10.0


def fresh_s(section: DelaySection) -> float:
    """Figures that were not renewed for longer say nothing of now, whether or not the link counts as blind by then."""
    return max(FRESH_S_MIN, PERIODS_MAX * section.period_s, PERIODS_MAX * section.sample_s)


def aged(places: Iterable[DelayPlace], now_ms: int, bound_s: float) -> list[str]:
    """A sentence for each link of which some figures are too old. Groups are read more seldom, and do not count."""
    found = []
    for link, ours in _by_link(places).items():
        old = [place for place in ours if now_ms - place.at_ms > bound_s * 1000]
        if old:
            age_s = (now_ms - min(place.at_ms for place in old)) / 1000
            which = f"{len(old)} of {len(ours)} places" if len(old) < len(ours) else f"all {len(ours)} places"
            lag, behind_ms = sum(one.lag_records for one in old), max(one.recovery_point_ms for one in old)
            found.append(
                f"{link}: the figures of {which} are old, the oldest {age_s:.0f} s (last known: lag {lag:,}, recovery"
                f" point {behind_ms / 1000:.1f} s): what has crossed since is not known"
            )
    return found


def bare(links: Iterable[str], places: Iterable[DelayPlace]) -> list[str]:
    """A sentence for each of these links of which there are no figures at all."""
    seen = _by_link(places)
    return [
        f"{link}: no place is watched: nothing was read yet, or no topic of the link is on both sides"
        for link in links
        if link not in seen
    ]


def paused(places: Iterable[DelayPlace], topic: str = "") -> list[str]:
    """What an operator has paused of these places, by link: all of it, or so many. `topic`: they are of this one."""
    whole = f"{topic} of " if topic else ""
    found = []
    for link, ours in _by_link(places).items():
        count = sum(place.state == "paused" for place in ours)
        if count:
            found.append(f"{whole}{link} is paused" if count == len(ours) else f"{count} places of {link} are paused")
    return found


def _by_link(places: Iterable[DelayPlace]) -> dict[str, Sequence[DelayPlace]]:
    found: dict[str, list[DelayPlace]] = {}
    for place in places:
        if not place.group:
            found.setdefault(place.link, []).append(place)
    return dict(found)


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
