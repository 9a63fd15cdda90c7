"""What an operator may change on a running link: filters, throttles, priorities, pauses. Values and their matching."""

from __future__ import annotations

import re
from dataclasses import dataclass

PRIORITY_DEFAULT = 10
PRIORITY_MAX = 100


@dataclass(frozen=True, slots=True)
class Control:
    """Patterns are regular expressions that match a topic's whole name. A throttle of 0 is none; a topic's throttle and
    priority are those of the first pattern that matches it."""

    groups: tuple[str, ...] = (".*",)
    exclude_groups: tuple[str, ...] = ()
    paused: bool = False
    paused_topics: tuple[str, ...] = ()
    throttle_bytes_s: int = 0
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
