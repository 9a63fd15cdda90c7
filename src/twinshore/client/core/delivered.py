"""How far a group member has delivered each partition, and what that means after a move.

A topic and its twin hold the same records at the same offsets up to the point where the home changed. After a forced
switch other records follow, so an offset beyond that point means nothing at the new home.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from twinshore.routing.core.home_records import HomeRecord


@dataclass(frozen=True, slots=True)
class ConsumerMode:
    """`commits`: auto-commit. `stores`: a commit without offsets takes what was delivered. `is_incremental`: partitions
    are assigned incrementally.
    """

    commits: bool
    stores: bool
    is_incremental: bool


def consumer_mode(settings: Mapping[str, Any]) -> ConsumerMode:
    """Read the settings as librdkafka does."""
    strategy = str(settings.get("partition.assignment.strategy", ""))

    def says(key: str) -> bool:
        return str(settings.get(key, True)).lower() not in ("false", "f", "0")

    return ConsumerMode(
        commits=says("enable.auto.commit"),
        stores=says("enable.auto.offset.store"),
        is_incremental="cooperative" in strategy or settings.get("group.protocol") == "consumer",
    )


def translate_offsets(offsets: Mapping[int, int], was: int, now: int, record: HomeRecord | None) -> dict[int, int]:
    """Translate offsets by partition from the home of term `was` to that of `now`. `record`: the topic's newest home
    record. Unknown partitions are omitted.
    """
    if was == now:
        return dict(offsets)
    points = common_ends(was, now, record)
    return {number: min(offset, points[number]) for number, offset in offsets.items() if number < len(points)}


def common_ends(was: int, now: int, record: HomeRecord | None) -> tuple[int, ...]:
    """Returns by partition up to which offset both homes hold the same records; empty where unknown."""
    return tuple(record.points) if record is not None and (record.term, was + 1) == (now, now) else ()


TopicPartitionTuple = tuple[str, int]


class DeliveredOffsets:
    """One member's delivered, sought and deferred offsets. `next`: offset after the last delivered record, on the
    topic's current cluster. `paused`: partitions paused by the application, on any cluster.
    """

    def __init__(self) -> None:
        self.next: dict[TopicPartitionTuple, int] = {}
        self._behind: dict[str, dict[int, int]] = {}  # `next` of topics that were left
        self._carry: dict[TopicPartitionTuple, int] = {}  # `next` at the new home, until partitions are assigned there
        self._owed: dict[TopicPartitionTuple, int] = {}  # commits of a topic between two homes, or while leaving one
        # Of moved topics: up to which offset records read before are the same here.
        self._alike: dict[str, dict[int, int]] = {}
        self._sought: dict[TopicPartitionTuple, int] = {}  # offsets to seek once partitions are assigned
        self._exact: dict[TopicPartitionTuple, int] = {}  # sought after assignment: the committed offset does not count
        self._committed: dict[TopicPartitionTuple, int] = {}  # the last commits
        self.paused: set[TopicPartitionTuple] = set()

    # -- offsets

    def leave(self, topic: str) -> None:
        """Start leaving a topic. Without records since the previous move, the carried offsets stay valid."""
        waiting = [key for key in self._carry if key[0] == topic]
        self._behind[topic] = {key[1]: self._carry.pop(key) for key in waiting}

    def left(self, partitions: Iterable[TopicPartitionTuple]) -> None:
        """Save the offsets of partitions whose topics leave."""
        for key in partitions:
            exact, offset = self._exact.get(key), self.forget(key)
            if exact is not None:
                self._sought[key] = exact if offset is None else offset
            elif offset is not None:
                self._behind[key[0]][key[1]] = offset

    def forget(self, key: TopicPartitionTuple) -> int | None:
        """Drop a partition that another member may read now. Kept is only how far records were read here."""
        offset = self.next.pop(key, None)
        self._exact.pop(key, None)
        self._committed.pop(key, None)
        if offset is not None and (alike := self._alike.get(key[0])) is not None:
            alike[key[1]] = max(offset, alike.get(key[1], offset))
        return offset

    def arrive(self, topic: str, was: int, now: int, record: HomeRecord | None) -> list[TopicPartitionTuple]:
        """Translate the topic's offsets to the home of term `now`, described by `record`. Returns partitions whose
        sought offset is unknown there.
        """
        behind = self._behind.pop(topic, None)
        if behind is not None and was != now:
            self._alike[topic] = dict(enumerate(common_ends(was, now, record)))
        translate = partial(translate_offsets, was=was, now=now, record=record)
        taken = behind or {}, _pop(self._owed, topic), _pop(self._committed, topic)
        for offsets, left in zip((self._carry, self._owed, self._committed), taken, strict=True):
            offsets.update({(topic, number): offset for number, offset in translate(left).items()})
        return self._seek_on(topic, translate)

    def arrive_anywhere(self, topic: str) -> list[TopicPartitionTuple]:
        """Arrive on a cluster that may hold other records: the committed offset there counts."""
        _pop(self._owed, topic)
        _pop(self._committed, topic)
        if self._behind.pop(topic, None) is not None:
            self._alike[topic] = {}
        return self._seek_on(topic, lambda _: {})

    def _seek_on(self, topic: str, worth: Callable[[dict[int, int]], dict[int, int]]) -> list[TopicPartitionTuple]:
        """Translate sought offsets. Beginning and end are valid on each cluster."""
        sought = _pop(self._sought, topic)
        kept = worth({number: offset for number, offset in sought.items() if offset >= 0})
        kept |= {number: offset for number, offset in sought.items() if offset < 0}
        self._sought |= {(topic, number): offset for number, offset in kept.items()}
        return [(topic, number) for number in sought if number not in kept]

    def take_carried_offsets(
        self, dealt: Collection[str], asked: Iterable[TopicPartitionTuple]
    ) -> dict[TopicPartitionTuple, int]:
        """Take offsets of `asked` partitions delivered before the move. Those of other partitions of `dealt` topics are
        dropped.
        """
        found = {key: self._carry[key] for key in asked if key in self._carry}
        self._carry = {key: offset for key, offset in self._carry.items() if key[0] not in dealt}
        return found

    def seek(self, key: TopicPartitionTuple, offset: int) -> None:
        """Read the assigned partition from this offset."""
        self._exact[key] = offset
        self.next.pop(key, None)
        if offset >= 0:
            self.next[key] = offset

    def seek_later(self, key: TopicPartitionTuple, offset: int) -> None:
        """Read from this offset once assigned, translated at a move."""
        self._sought[key] = offset

    def take_sought(self, dealt: Iterable[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        """Take sought offsets of these partitions."""
        return {key: self._sought.pop(key) for key in dealt if key in self._sought}

    def drop_sought(self, topics: Collection[str]) -> list[TopicPartitionTuple]:
        """Drop sought offsets. Returns their partitions."""
        return [(topic, number) for topic in topics for number in _pop(self._sought, topic)]

    def position(self, key: TopicPartitionTuple) -> int | None:
        """Returns the position, also between two homes and before partitions are assigned."""
        behind = self._behind.get(key[0], {}).get(key[1])
        return self._sought.get(key, self.next.get(key, self._carry.get(key, behind)))

    # -- commits

    def note_committed(self, offsets: Iterable[tuple[TopicPartitionTuple, int]]) -> None:
        self._committed |= dict(offsets)

    def committed_offset(self, key: TopicPartitionTuple) -> int | None:
        """Returns the offset committed last, or deferred until the topic arrives."""
        return self._owed.get(key, self._committed.get(key))

    def known(self, key: TopicPartitionTuple, offset: int) -> int | None:
        """Returns up to which offset a commit is valid on the current cluster: records read at the old home beyond the
        common end do not exist here. None where nothing is known to be common.
        """
        alike = self._alike.get(key[0])
        if alike is None or offset <= max(alike.get(key[1], 0), self.next.get(key, 0)):
            return offset
        return alike.get(key[1])

    def defer_commit(self, key: TopicPartitionTuple, offset: int) -> None:
        """Commit this offset once the topic has arrived."""
        self._owed[key] = offset

    def defer_commits_of_left_topics(self) -> None:
        self._owed |= {
            (topic, number): offset for topic, offsets in self._behind.items() for number, offset in offsets.items()
        }

    def take_deferred_commits(self, topics: Collection[str]) -> dict[TopicPartitionTuple, int]:
        """Take deferred commits of these topics."""
        found = {key: offset for key, offset in self._owed.items() if key[0] in topics}
        for key in found:
            del self._owed[key]
        return found

    def clear(self) -> None:
        """Forget seeks and pauses."""
        self._sought.clear()
        self.paused.clear()


def _pop(offsets: dict[TopicPartitionTuple, int], topic: str) -> dict[int, int]:
    """Take the topic's offsets, by partition."""
    return {key[1]: offsets.pop(key) for key in [one for one in offsets if one[0] == topic]}
