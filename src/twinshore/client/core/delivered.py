"""How far a member of a group has handed out each partition, and what that is worth where a topic moves to. Pure.

A topic and its twin hold the same records at the same offsets up to the point at which the topic changes homes. Behind
that point, after a switch by force, other records lie at the new home: a place that was reached at the old one says
nothing of them. How a consumer commits, as it is set, is among its habits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twinshore.routing.core.home_records import HomeRecord


@dataclass(frozen=True, slots=True)
class ConsumerMode:
    """Of a consumer as it is set: whether it commits by itself, whether a commit without offsets takes what it has
    handed out, and whether partitions are dealt to it bit by bit."""

    commits: bool
    stores: bool
    is_incremental: bool


def consumer_mode(settings: Mapping[str, Any]) -> ConsumerMode:
    """As librdkafka reads them: its words for no are these, small or large."""
    strategy = str(settings.get("partition.assignment.strategy", ""))

    def says(key: str) -> bool:
        return str(settings.get(key, True)).lower() not in ("false", "f", "0")

    return ConsumerMode(
        commits=says("enable.auto.commit"),
        stores=says("enable.auto.offset.store"),
        is_incremental="cooperative" in strategy or settings.get("group.protocol") == "consumer",
    )


def translate_offsets(places: Mapping[int, int], was: int, now: int, line: HomeRecord | None) -> dict[int, int]:
    """These places, by partition, kept under the term `was`, as the home of term `now` counts; `line` is the newest
    that is known of the topic. Those of which nobody knows are left out."""
    if was == now:
        return dict(places)
    points = common_ends(was, now, line)
    return {number: min(place, points[number]) for number, place in places.items() if number < len(points)}


def common_ends(was: int, now: int, line: HomeRecord | None) -> tuple[int, ...]:
    """Up to where the homes of two terms hold the same records, by partition, as the newest line tells it."""
    return tuple(line.points) if line is not None and (line.term, was + 1) == (now, now) else ()


TopicPartitionTuple = tuple[str, int]


class DeliveredOffsets:
    """`next`: behind the last record of each partition, where its topic is read now. `paused`: what the application
    wants no record of for now, on whichever cluster."""

    def __init__(self) -> None:
        self.next: dict[TopicPartitionTuple, int] = {}
        self._behind: dict[str, dict[int, int]] = {}  # the same of topics that were left
        self._carry: dict[
            TopicPartitionTuple, int
        ] = {}  # the same at the new home, until partitions are dealt out there
        self._owed: dict[
            TopicPartitionTuple, int
        ] = {}  # what was committed of a topic between two homes, or while it left one
        # Of topics that changed homes: up to where a record that was read before is the one that lies here.
        self._alike: dict[str, dict[int, int]] = {}
        self._sought: dict[
            TopicPartitionTuple, int
        ] = {}  # where an application wants to read on, once partitions are dealt out
        self._exact: dict[
            TopicPartitionTuple, int
        ] = {}  # sought since they were: the group's place says nothing of these
        self._committed: dict[TopicPartitionTuple, int] = {}  # what was committed last
        self.paused: set[TopicPartitionTuple] = set()

    # -- places

    def leave(self, topic: str) -> None:
        """With nothing read since the move before, that move's place is carried on."""
        waiting = [where for where in self._carry if where[0] == topic]
        self._behind[topic] = {where[1]: self._carry.pop(where) for where in waiting}

    def left(self, places: Iterable[TopicPartitionTuple]) -> None:
        """Partitions of topics that leave, with the member."""
        for where in places:
            exact, at = self._exact.get(where), self.forget(where)
            if exact is not None:
                self._sought[where] = exact if at is None else at
            elif at is not None:
                self._behind[where[0]][where[1]] = at

    def forget(self, where: TopicPartitionTuple) -> int | None:
        """Another member may read on: how far this one came says nothing any more, but that it was read here."""
        at = self.next.pop(where, None)
        self._exact.pop(where, None)
        self._committed.pop(where, None)
        if at is not None and (alike := self._alike.get(where[0])) is not None:
            alike[where[1]] = max(at, alike.get(where[1], at))
        return at

    def arrive(self, topic: str, was: int, now: int, line: HomeRecord | None) -> list[TopicPartitionTuple]:
        """At the home of the term `now`, which `line` tells of. Returns where an application wanted to read on at a
        place of which nobody knows what is there now."""
        behind = self._behind.pop(topic, None)
        if behind is not None and was != now:
            self._alike[topic] = dict(enumerate(common_ends(was, now, line)))
        self._carry |= {(topic, number): at for number, at in translate_offsets(behind or {}, was, now, line).items()}
        owed = self._owed_of(topic)
        self._owed |= {(topic, number): at for number, at in translate_offsets(owed, was, now, line).items()}
        told = _pop(self._committed, topic)
        self._committed |= {(topic, number): at for number, at in translate_offsets(told, was, now, line).items()}
        return self._seek_on(topic, lambda places: translate_offsets(places, was, now, line))

    def arrive_anywhere(self, topic: str) -> list[TopicPartitionTuple]:
        """Nobody says that the two clusters hold the same: the group's place there counts."""
        self._owed_of(topic)
        _pop(self._committed, topic)
        if self._behind.pop(topic, None) is not None:
            self._alike[topic] = {}
        return self._seek_on(topic, lambda _: {})

    def _seek_on(self, topic: str, worth: Callable[[dict[int, int]], dict[int, int]]) -> list[TopicPartitionTuple]:
        """The beginning and the end are that everywhere."""
        sought = _pop(self._sought, topic)
        kept = worth({number: at for number, at in sought.items() if at >= 0})
        kept |= {number: at for number, at in sought.items() if at < 0}
        self._sought |= {(topic, number): at for number, at in kept.items()}
        return [(topic, number) for number in sought if number not in kept]

    def take_carried_offsets(
        self, dealt: Collection[str], asked: Iterable[TopicPartitionTuple]
    ) -> dict[TopicPartitionTuple, int]:
        """Of partitions for which it is asked, once the topics are dealt out: how far each was handed out before the
        move. It is said once."""
        found = {where: self._carry[where] for where in asked if where in self._carry}
        self._carry = {where: at for where, at in self._carry.items() if where[0] not in dealt}
        return found

    def seek(self, where: TopicPartitionTuple, offset: int) -> None:
        """It is read on there from now on."""
        self._exact[where] = offset
        self.next.pop(where, None)
        if offset >= 0:
            self.next[where] = offset

    def seek_later(self, where: TopicPartitionTuple, offset: int) -> None:
        """As soon as it is dealt out: at another home that place is worth what others are."""
        self._sought[where] = offset

    def take_sought(self, dealt: Iterable[TopicPartitionTuple]) -> dict[TopicPartitionTuple, int]:
        """Of these. It is said once."""
        return {where: self._sought.pop(where) for where in dealt if where in self._sought}

    def drop_sought(self, topics: Collection[str]) -> list[TopicPartitionTuple]:
        """What is left of these."""
        return [(topic, number) for topic in topics for number in _pop(self._sought, topic)]

    def position(self, where: TopicPartitionTuple) -> int | None:
        """Also between two homes, and before partitions are dealt out."""
        behind = self._behind.get(where[0], {}).get(where[1])
        return self._sought.get(where, self.next.get(where, self._carry.get(where, behind)))

    # -- commits

    def note_committed(self, places: Iterable[tuple[TopicPartitionTuple, int]]) -> None:
        self._committed |= dict(places)

    def committed_offset(self, where: TopicPartitionTuple) -> int | None:
        """What was committed last of it, or is to be where its topic arrives."""
        return self._owed.get(where, self._committed.get(where))

    def known(self, where: TopicPartitionTuple, offset: int) -> int | None:
        """Up to where a place may be committed where the topic is read now: what was read at its old home beyond the
        point at which they part is not there. None where nobody knows of any record that is."""
        alike = self._alike.get(where[0])
        if alike is None or offset <= max(alike.get(where[1], 0), self.next.get(where, 0)):
            return offset
        return alike.get(where[1])

    def defer_commit(self, where: TopicPartitionTuple, offset: int) -> None:
        """To be committed once the topic has arrived."""
        self._owed[where] = offset

    def defer_commits_of_left_topics(self) -> None:
        self._owed |= {(topic, number): at for topic, places in self._behind.items() for number, at in places.items()}

    def take_deferred_commits(self, topics: Collection[str]) -> dict[TopicPartitionTuple, int]:
        """What is to be committed of these topics. It is said once."""
        found = {where: at for where, at in self._owed.items() if where[0] in topics}
        for where in found:
            del self._owed[where]
        return found

    def _owed_of(self, topic: str) -> dict[int, int]:
        return {number: at for (_, number), at in self.take_deferred_commits([topic]).items()}

    def clear(self) -> None:
        """What an application wants of topics that it subscribes to no more."""
        self._sought.clear()
        self.paused.clear()


def _pop(places: dict[TopicPartitionTuple, int], topic: str) -> dict[int, int]:
    """Those of the topic, by partition."""
    return {where[1]: places.pop(where) for where in [one for one in places if one[0] == topic]}
