"""The section `control` of a link: what holds until the store says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.control import PRIORITY_MAX, Control
from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, read_section
from twinshore.fleet.settings.section import Section, Written
from twinshore.fleet.settings.shapes import check_pattern, read_numbers

RATE_MAX = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSection:
    """What holds until the store says otherwise, which is changed while the mirror runs. Besides: `topic_throttles`,
    bytes per second, and `priorities`, 1 to 100, both tables from expression to number; the first that matches counts.
    """

    throttle_bytes_s: int = setting(0, "most bytes per second that the link carries; 0: no bound", low=0, high=2**50)
    paused: bool = setting(False, "the link carries nothing for now")
    paused_topics: tuple[str, ...] = setting((), "topics not to carry for now: expressions that match the whole name")
    groups: tuple[str, ...] = setting((".*",), "consumer groups that follow: expressions that match the whole name")
    exclude_groups: tuple[str, ...] = setting((), "consumer groups to leave out, stronger than groups")


def read_control(written: Written, complaints: Complaints) -> Control:
    """The link's control in the settings; complaints are added, and the defaults returned, where it is wrong."""
    place = written.place
    rest, tables = written.parted("topic_throttles", "priorities")
    throttles = read_numbers(tables["topic_throttles"], "topic_throttles", 1, RATE_MAX, place, complaints)
    priorities = read_numbers(tables["priorities"], "priorities", 1, PRIORITY_MAX, place, complaints)
    section = read_section(ControlSection, rest, place, complaints)
    if section is None:
        return Control()
    for name in ("groups", "exclude_groups", "paused_topics"):
        for pattern in getattr(section, name):
            check_pattern(pattern, name, place, complaints)
    return Control(
        groups=section.groups,
        exclude_groups=section.exclude_groups,
        paused=section.paused,
        paused_topics=section.paused_topics,
        throttle_bytes_s=section.throttle_bytes_s,
        topic_throttles=throttles,
        priorities=priorities,
    )


SECTION = Section("control", 31, (('[links."SOURCE->TARGET".control]', ControlSection),), read_control, inside="links")
