"""What an operator may change on a running link: filters, throttles, priorities, pauses. Values and their matching."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twinshore.fleet.declaring import setting

PRIORITY_DEFAULT = 10
PRIORITY_MAX = 100


@dataclass(frozen=True, slots=True)
class Control:
    """What holds until the store says otherwise, which is changed while the mirror runs. Besides: `topic_throttles`,
    bytes per second, and `priorities`, 1 to 100, both tables from expression to number; the first that matches counts.
    """

    throttle_bytes_s: int = setting(0, "most bytes per second that the link carries; 0: no bound", low=0, high=2**50)
    paused: bool = setting(False, "the link carries nothing for now")
    paused_topics: tuple[str, ...] = setting((), "topics not to carry for now: expressions that match the whole name")
    groups: tuple[str, ...] = setting((".*",), "consumer groups that follow: expressions that match the whole name")
    exclude_groups: tuple[str, ...] = setting((), "consumer groups to leave out, stronger than groups")
    topic_throttles: tuple[tuple[str, int], ...] = ()
    priorities: tuple[tuple[str, int], ...] = ()

    def pauses(self, topic: str) -> bool:
        """Whether the topic is paused, alone or with its link."""
        return self.paused or any(re.fullmatch(pattern, topic) for pattern in self.paused_topics)

    def admits_group(self, group: str) -> bool:
        """Whether the consumer group belongs to the link. Exclusions win."""
        if any(re.fullmatch(pattern, group) for pattern in self.exclude_groups):
            return False
        return any(re.fullmatch(pattern, group) for pattern in self.groups)

    def throttle_of(self, topic: str) -> int:
        """Bytes per second for this topic alone; 0: none."""
        return first_match(self.topic_throttles, topic, 0)

    def priority_of(self, topic: str) -> int:
        """The topic's weight where not everything can be carried at once."""
        return first_match(self.priorities, topic, PRIORITY_DEFAULT)


def first_match(pairs: tuple[tuple[str, int], ...], topic: str, default: int) -> int:
    """The number beside the first pattern that matches the whole name."""
    return next((number for pattern, number in pairs if re.fullmatch(pattern, topic)), default)


UNCONTROLLED = Control()
