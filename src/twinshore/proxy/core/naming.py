"""On which cluster a topic is made that clients ask for: by rules of names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class NewTopics:
    """`by_name`: patterns with `*`, and a cluster for each; the first that fits the whole name counts, else `usual`,
    which is empty where none is named."""

    usual: str = ""
    by_name: tuple[tuple[str, str], ...] = ()

    def cluster_of(self, topic: str) -> str:
        """Where it is made."""
        return next((cluster for pattern, cluster in self.by_name if fnmatchcase(topic, pattern)), self.usual)
