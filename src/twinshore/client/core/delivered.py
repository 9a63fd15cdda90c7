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


def translate_offsets(places: Mapping[int, int], was: int, now: int, record: HomeRecord | None) -> dict[int, int]:
    """Translate offsets by partition from the home of term `was` to that of `now`. `record`: the topic's newest home
    record. Unknown partitions are omitted.
    """
    if was == now:
        return dict(places)
    points = common_ends(was, now, record)
    return {number: min(place, points[number]) for number, place in places.items() if number < len(points)}


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
        waiting = [where for where in self._carry if where[0] == topic]
        self._behind[topic] = {where[1]: self._carry.pop(where) for where in waiting}

    def left(self, places: Iterable[TopicPartitionTuple]) -> None:
        """Save the offsets of partitions whose topics leave."""
        for where in places:
            exact, at = self._exact.get(where), self.forget(where)
            if exact is not None:
                self._sought[where] = exact if at is None else at
            elif at is not None:
                self._behind[where[0]][where[1]] = at

    def forget(self, where: TopicPartitionTuple) -> int | None:
        """Drop a partition that another member may read now. Kept is only how far records were read here."""
        at = self.next.pop(where, None)
        self._exact.pop(where, None)
        self._committed.pop(where, None)
        if at is not None and (alike := self._alike.get(where[0])) is not None:
            alike[where[1]] = max(at, alike.get(where[1], at))
        return at

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
        kept = worth({number: at for number, at in sought.items() if at >= 0})
        kept |= {number: at for number, at in sought.items() if at < 0}
        self._sought |= {(topic, number): at for number, at in kept.items()}
        return [(topic, number) for number in sought if number not in kept]

    def take_carried_offsets(
        self, dealt: Collection[str], asked: Iterable[TopicPartitionTuple]
    ) -> dict[TopicPartitionTuple, int]:
        """Take offsets of `asked` partitions delivered before the move. Those of other partitions of `dealt` topics are
        dropped.
        """
        found = {where: self._carry[where] for where in asked if where in self._carry}
        self._carry = {where: at for where, at in self._carry.items() if where[0] not in dealt}
        return found

    def seek(self, where: TopicPartitionTuple, offset: int) -> None:
        """Read the assigned partition from this offset."""
        self._exact[where] = offset
        self.next.pop(where, None)
        if offset >= 0:
            self.next[where] = offset

    def seek_later(self, where: TopicPartitionTuple, offset: int) -> None:
        """Read from this offset once assigned, translated at a move."""
        self._sought[where] = offset

    def take_sought(self, dealt: Iterable[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        """Take sought offsets of these partitions."""
        return {where: self._sought.pop(where) for where in dealt if where in self._sought}

    def drop_sought(self, topics: Collection[str]) -> list[TopicPartitionTuple]:
        """Drop sought offsets. Returns their partitions."""
        return [(topic, number) for topic in topics for number in _pop(self._sought, topic)]

    def position(self, where: TopicPartitionTuple) -> int | None:
        """Returns the position, also between two homes and before partitions are assigned."""
        behind = self._behind.get(where[0], {}).get(where[1])
        return self._sought.get(where, self.next.get(where, self._carry.get(where, behind)))

    # -- commits

    def note_committed(self, places: Iterable[tuple[TopicPartitionTuple, int]]) -> None:
        self._committed |= dict(places)

    def committed_offset(self, where: TopicPartitionTuple) -> int | None:
        """Returns the offset committed last, or deferred until the topic arrives."""
        return self._owed.get(where, self._committed.get(where))

    def known(self, where: TopicPartitionTuple, offset: int) -> int | None:
        """Returns up to which offset a commit is valid on the current cluster: records read at the old home beyond the
        common end do not exist here. None where nothing is known to be common.
        """
        alike = self._alike.get(where[0])
        if alike is None or offset <= max(alike.get(where[1], 0), self.next.get(where, 0)):
            return offset
        return alike.get(where[1])

    def defer_commit(self, where: TopicPartitionTuple, offset: int) -> None:
        """Commit this offset once the topic has arrived."""
        self._owed[where] = offset

    def defer_commits_of_left_topics(self) -> None:
        self._owed |= {(topic, number): at for topic, places in self._behind.items() for number, at in places.items()}

    def take_deferred_commits(self, topics: Collection[str]) -> dict[TopicPartitionTuple, int]:
        """Take deferred commits of these topics."""
        found = {where: at for where, at in self._owed.items() if where[0] in topics}
        for where in found:
            del self._owed[where]
        return found

    def clear(self) -> None:
        """Forget seeks and pauses."""
        self._sought.clear()
        self.paused.clear()


def _pop(places: dict[TopicPartitionTuple, int], topic: str) -> dict[int, int]:
    """Take the topic's offsets, by partition."""
    return {where[1]: places.pop(where) for where in [one for one in places if one[0] == topic]}
