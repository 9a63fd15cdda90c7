"""A member of the group on one cluster: librdkafka's consumer, what it is set to, and how it is closed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from twinshore.client.commits import commit
from twinshore.client.farewell import Farewell
from twinshore.client.habits import habits
from twinshore.client.handed_out import Where


class Member:
    """Made with the settings of its cluster, and closed by its `farewell` alone."""

    def __init__(self, settings: Mapping[str, Any], name: str, cluster: str, warn: Callable[[str], None]) -> None:
        self.consumer = Consumer(dict(settings))
        self.habits = habits(settings)
        self.farewell = Farewell(self.consumer, name, cluster, warn)
        self._stilled: set[Where] = set()  # paused as their topics were left, while others stay

    def deals(self, topic: str) -> bool:
        """Whether any partition of it is assigned here."""
        return any(one.topic == topic for one in self.consumer.assignment())

    def commit(self, offsets: Sequence[TopicPartition] | None, asynchronous: bool) -> None:
        if self.farewell.is_closing:  # so this is called by a callback
            self.farewell.commit(offsets)
        else:
            commit(self.consumer, offsets, asynchronous)

    def still(self, stays: Collection[str]) -> None:
        """Of topics that do not stay no more is read, though it may be a while until partitions are dealt anew:
        librdkafka counts what it has given us as read, and commits it, whether it is handed out or not."""
        gone = [one for one in self.consumer.assignment() if one.topic not in stays]
        self.consumer.pause(gone)
        self._stilled |= {(one.topic, one.partition) for one in gone}

    def stir(self, dealt: Iterable[TopicPartition]) -> None:
        """What is dealt again is read again: librdkafka keeps it paused."""
        stilled = [one for one in dealt if (one.topic, one.partition) in self._stilled]
        if stilled:
            self._stilled -= {(one.topic, one.partition) for one in stilled}
            self.consumer.resume(stilled)
