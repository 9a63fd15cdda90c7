"""The section `control` of a link: what holds until the store says otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping

from twinshore.fleet.control import PRIORITY_MAX, Control
from twinshore.fleet.settings_edge import Complaints, read_section
from twinshore.fleet.settings_table import ControlSection

RATE_MAX = 1 << 50


def read_control(raw: object, place: str, complaints: Complaints) -> Control:
    """The link's control in the settings; complaints are added, and the defaults returned, where it is wrong."""
    rest = dict(raw) if isinstance(raw, Mapping) else raw
    pairs: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, highest in (("topic_throttles", RATE_MAX), ("priorities", PRIORITY_MAX)):
        table = rest.pop(name, {}) if isinstance(rest, dict) else {}
        pairs[name] = _numbers(table, name, highest, place, complaints)
    section = read_section(ControlSection, rest, place, complaints)
    if section is None:
        return Control()
    for name in ("groups", "exclude_groups", "paused_topics"):
        for pattern in getattr(section, name):
            _check(pattern, name, place, complaints)
    return Control(
        groups=section.groups,
        exclude_groups=section.exclude_groups,
        paused=section.paused,
        paused_topics=section.paused_topics,
        throttle_bytes_s=section.throttle_bytes_s,
        topic_throttles=pairs["topic_throttles"],
        priorities=pairs["priorities"],
    )


def why_not_pattern(pattern: str) -> str:
    """What is wrong with a regular expression; empty when nothing is."""
    try:
        re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        return f"{pattern!r} is not a regular expression: {error.msg}{where}"
    return ""


def _check(pattern: str, name: str, place: str, complaints: Complaints) -> None:
    reason = why_not_pattern(pattern)
    if reason:
        complaints.add(place, f"{name}: {reason}")


def _numbers(table: object, name: str, highest: int, place: str, complaints: Complaints) -> tuple[tuple[str, int], ...]:
    """Pairs of pattern and number, as written: the first that matches counts."""
    if not isinstance(table, Mapping):
        complaints.add(place, f'{name}: must be a table like {{ "orders.*" = 1000 }}, not {table!r}')
        return ()
    found = []
    for pattern, number in table.items():
        _check(pattern, name, place, complaints)
        if isinstance(number, bool) or not isinstance(number, int):
            complaints.add(place, f"{name}: {pattern!r}: must be a whole number, not {number!r}; quote names with dots")
        elif not 1 <= number <= highest:
            complaints.add(place, f"{name}: {pattern!r}: is {number}, must be 1 to {highest:,}")
        else:
            found.append((pattern, number))
    return tuple(found)
