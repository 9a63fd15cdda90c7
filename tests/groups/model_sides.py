"""Two clusters' groups as brokers keep them, in memory: who has members, who has what place, where logs end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition
from twinshore.kafka.consumer_groups import GroupCoordinators, GroupListing, GroupListings, always_allowed
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.error_codes import kafka_error
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple

UNKNOWN_MEMBER = 25
NODE = 1
GROUP_REFUSED = 30


class Taken(NamedTuple):
    """A commit from outside. `read_on`: its own consumers have read here to a place of their own; `beyond`: the log's
    end."""

    group: str
    before: int
    after: int
    read_on: bool
    beyond: bool


class ModelSide:
    """Knows itself again by the bytes of its answers, as the real one does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: Counter[str] = Counter()
        self.groups: dict[str, dict[TopicPartitionTuple, CommittedOffset]] = {}
        self.members: set[str] = set()
        self.ends: dict[TopicPartitionTuple, int] = {}
        self.away = False
        self.joins_before_commit: set[str] = set()
        self.refuses: dict[TopicPartitionTuple, int] = {}  # the codes of places that it will not have
        self.read_on: set[str] = set()
        self.hidden: set[str] = set()
        self.forbidden: set[str] = set()  # no user of ours may ask for these groups, which are not listed
        self.lost: set[str] = set()  # their coordinator does not answer, and so nobody lists them
        self.dead_is_named = False  # whether metadata still have that coordinator
        self.leaderless: set[TopicPartition] = set()
        self.taken: list[Taken] = []
        self.put: dict[tuple[str, TopicPartitionTuple], int] = {}  # what was last committed from outside
        self.meanwhile: Callable[[int], None] | None = None  # called after the places of so many groups were read

    def consume(self, group: str, where: TopicPartitionTuple, offset: int) -> None:
        """One of its members reads on, as far as the log goes."""
        known = self.groups.setdefault(group, {}).get(where)
        has = known.offset if known else 0
        to = max(has, min(offset, self.ends[where]))
        self.groups[group][where] = CommittedOffset(to)
        if CommittedOffset(to) != known:
            self.read_on.add(group)

    def forget(self, group: str) -> None:
        """Its places are too old."""
        self.groups.pop(group, None)
        self.read_on.discard(group)

    def listed(self) -> GroupListings:
        if self.away:
            return GroupListings({}, {NODE: self._gone()})
        groups = {
            name: GroupListing(name, "Stable" if name in self.members else "Empty", "classic", "consumer", NODE)
            for name, places in self.groups.items()
            if (places or name in self.members) and name not in self.hidden | self.lost
        }
        return GroupListings(groups, {NODE + 1: self._gone()} if self.lost and self.dead_is_named else {})

    def places(
        self,
        wanted: Mapping[int, Mapping[str, Iterable[TopicPartitionTuple] | None]],
        known: Mapping[str, GroupOffsets],
    ) -> tuple[dict[str, GroupOffsets], dict[int, KafkaError]]:
        found: dict[str, GroupOffsets] = {}
        if self.away:
            return found, {NODE: self._gone()}
        for groups in wanted.values():
            for name, only in groups.items():
                if name in self.lost:
                    continue
                has = self.groups.get(name, {})
                some = dict(has) if only is None else {where: has[where] for where in only if where in has}
                said = GroupOffsets(name, 0, some, {}, repr(sorted(some.items())).encode())
                before = known.get(name)
                found[name] = before if before is not None and before.raw == said.raw else said
            if self.meanwhile is not None:
                self.meanwhile(len(groups))
        return found, {}

    def located(self, groups: Sequence[str]) -> GroupCoordinators:
        if self.away:
            return GroupCoordinators({}, {})
        refused = {
            name: kafka_error(GROUP_REFUSED, f"{self.name}: coordinator of group {name}", right=f"Describe on {name}")
            for name in groups
            if name in self.forbidden
        }
        return GroupCoordinators(
            {name: NODE for name in groups if name not in refused and name not in self.lost}, refused
        )

    def commit(
        self,
        places: Mapping[int, Mapping[str, Mapping[TopicPartitionTuple, CommittedOffset]]],
        still: Callable[[], bool] = always_allowed,
    ) -> dict[str, dict[TopicPartitionTuple, int]]:
        answers: dict[str, dict[TopicPartitionTuple, int]] = {}
        for groups in places.values():
            for name, ours in groups.items():
                if not still():
                    return answers
                self.asked["OffsetCommit"] += 1
                if name in self.members | self.joins_before_commit:
                    answers[name] = dict.fromkeys(ours, UNKNOWN_MEMBER)
                    continue
                has = self.groups.setdefault(name, {})
                taken = {where: place for where, place in ours.items() if where not in self.refuses}
                for where, place in taken.items():
                    before = has[where].offset if where in has else -1
                    beyond = place.offset > self.ends.get(where, 0)
                    read_on = name in self.read_on and before != self.put.get((name, where))
                    self.taken.append(Taken(name, before, place.offset, read_on, beyond))
                    self.put[name, where] = place.offset
                has.update(taken)
                answers[name] = {where: self.refuses.get(where, 0) for where in ours}
        return answers

    def offsets_of_each(
        self, parts: Iterable[TopicPartition], which: OffsetKind
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        assert which is OffsetKind.HIGH_WATERMARK
        parts = list(parts)
        led = [one for one in parts if one not in self.leaderless]
        mute = [one for one in parts if one in self.leaderless]
        failed = {one: KafkaError(f"{self.name}: {one} has no leader", retriable=True) for one in mute}
        return {one: self.ends.get((one.topic, one.partition), 0) for one in led}, failed

    def _gone(self) -> KafkaError:
        return KafkaError(f"{self.name} is away", retriable=True)
