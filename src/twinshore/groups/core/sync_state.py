"""What one sync direction remembers of its groups between rounds, and which offsets to check now.

A round over two thousand groups checks only what changed. A response that is the identical object of the last round is
skipped; so are offsets equal on both sides, until something happens to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from twinshore.config.sentences import join_names
from twinshore.groups.core.commit_rules import (
    EMPTY_SCOPE,
    NO_MEMORY,
    CommitDecision,
    CommitRules,
    GroupSyncStatus,
    PartitionMemory,
    SyncScope,
    added_topics,
    has_metadata,
)
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple

# Shorter refusals occur while coordinators move.
REPORT_REFUSAL_AFTER_S = 30.0
NAMES_SHOWN_MAX = 3
FIRST_RENEWAL_WITHIN_S = 3600.0
STATUSES_AT_GOAL = (GroupSyncStatus.SAME, GroupSyncStatus.MOVES, GroupSyncStatus.SET_BACK)
# The number of deleted groups whose last offsets are remembered.
DELETED_GROUPS_KEPT_MAX = 20_000


@dataclass(slots=True)
class PlannedCommit:
    """`where`: partition on the reading side. `behind`: how far the target still lags after the commit."""

    where: TopicPartitionTuple
    decision: CommitDecision
    place: CommittedOffset
    behind: int


@dataclass(slots=True)
class SyncRoundResult:
    """Result and cost of one round, in one direction or all. `asked`: requests by name, on both clusters. `told`:
    sentences for operators.
    """

    groups: int = 0
    changed: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    told: dict[str, str] = field(default_factory=dict)

    def add(self, direction: SyncRoundResult, prefix: str = "") -> None:
        self.groups += direction.groups
        self.changed += direction.changed
        self.commits += direction.commits
        self.moved.update({f"{prefix}{state}": count for state, count in direction.moved.items()})
        self.told.update(direction.told)


def describe_refusals(refused: Mapping[str, tuple[float, str]], now_s: float) -> str:
    """`refused`: since when, and why, by group. Empty unless one has lasted for long."""
    told = [
        f"group {name}: {words}"
        for name, (since_s, words) in sorted(refused.items())
        if now_s - since_s >= REPORT_REFUSAL_AFTER_S
    ]
    if not told:
        return ""
    many = "1 group does" if len(told) == 1 else f"{len(told)} groups do"
    return f"{many} not follow, or not with all places: {join_names(told, NAMES_SHOWN_MAX, '; ')}"


def describe_code(code: int) -> str:
    known = error_kind(code)
    return f"{known.sentence}; {known.hint}" if known.hint else known.sentence


V = TypeVar("V")


@dataclass(slots=True)
class GroupState:
    """`open`: offsets to check. `standing`: offsets that differ: status, by how much, since when. `refused`: offsets
    that a cluster refuses: since when, and why. `check`: compare everything with the target, regardless of memory.
    """

    said: GroupOffsets
    open: set[TopicPartitionTuple] = field(default_factory=set)
    memory: dict[TopicPartitionTuple, PartitionMemory] = field(default_factory=dict)
    standing: dict[TopicPartitionTuple, tuple[GroupSyncStatus, int, float]] = field(default_factory=dict)
    refused: dict[TopicPartitionTuple, tuple[float, str]] = field(default_factory=dict)
    live: bool = False
    check: bool = True
    check_at_s: float = 0.0
    renew_at_s: float = 0.0
    renews: bool = False


class SyncState:
    """`renew_s`: interval to recommit an idle group, so that the target does not expire it. `noted`: groups whose
    consumers commit metadata.
    """

    def __init__(self, verify_s: float, renew_s: float) -> None:
        self.verify_s, self.renew_s = verify_s, renew_s
        self.groups: dict[str, GroupState] = {}
        self.scope = EMPTY_SCOPE
        self.noted: set[str] = set()
        self._expected: dict[str, dict[TopicPartitionTuple, int]] = {}
        self._departed: dict[str, dict[TopicPartitionTuple, PartitionMemory]] = {}

    def rescope(self, scope: SyncScope) -> None:
        """Call when twins have changed: everything is checked again. Memory of a vanished topic is dropped. So are
        offsets read before a topic appeared: others may have moved the group since.
        """
        if scope.names == self.scope.names and scope.parts.keys() == self.scope.parts.keys():
            self.scope = scope
            return
        new, gone = added_topics(self.scope, scope), added_topics(scope, self.scope)
        self.scope = scope
        self._expected = {name: _without(gone, some) for name, some in self._expected.items()}
        self._departed = {name: _without(gone, some) for name, some in self._departed.items()}
        for group in self.groups.values():
            group.open.clear()
            group.standing.clear()
            group.refused.clear()
            if any(topic in new for topic, _ in group.said.places):
                group.said = group.said._replace(places=_without(new, group.said.places))
            group.memory = {where: one for where, one in group.memory.items() if where in scope.parts}
            self.reopen(group)

    def heard(self, found: Mapping[str, GroupOffsets], now_s: float) -> None:
        parts = self.scope.parts
        for name, said in found.items():
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = GroupState(said)
                # A group that returns below the offset where the link left it was reset.
                left = self._departed.pop(name, {})
                group.memory = {where: one for where, one in left.items() if where in parts}
                group.check_at_s = now_s + _part(name, self.verify_s)
                # Brokers do not tell when an offset was committed, so after a start all are renewed soon.
                group.renew_at_s = now_s + _part(name, min(self.renew_s, FIRST_RENEWAL_WITHIN_S))
                self.reopen(group)
            elif group.said is not said:
                before = group.said.places
                group.said = said
                group.open |= {w for w, place in said.places.items() if w in parts and before.get(w) != place}
                gone = before.keys() - said.places.keys()
                group.open -= gone
                for where in gone:
                    group.standing.pop(where, None)
                    group.refused.pop(where, None)
            else:
                continue
            self.note_metadata(name, said.places.values())

    def note_metadata(self, name: str, places: Iterable[CommittedOffset]) -> None:
        """If consumers commit metadata, the group gets no more marks, and loses existing ones."""
        if name not in self.noted and any(has_metadata(place) for place in places):
            self.noted.add(name)
            self.reopen(self.groups[name])

    def rules_for(self, name: str, rules: CommitRules) -> CommitRules:
        return rules._replace(notes=name in self.noted)

    def forget(self, names: Iterable[str]) -> None:
        """Drops groups that are gone or excluded. Where the link left them is remembered, for when they return."""
        for name in names:
            group = self.groups.pop(name, None)
            if group is not None and group.memory:
                self._departed[name] = group.memory
            self._expected.pop(name, None)
        for name in list(self._departed)[: max(0, len(self._departed) - DELETED_GROUPS_KEPT_MAX)]:
            del self._departed[name]

    def expect(self, name: str, where: TopicPartitionTuple, offset: int) -> None:
        """Notes that the other direction committed this offset here: no consumer has read that far."""
        self._expected.setdefault(name, {})[where] = offset
        group = self.groups.get(name)
        if group is not None and where in group.memory:
            group.memory[where] = group.memory[where]._replace(high=offset)

    def absent(self, names: Iterable[str]) -> None:
        """The writing side does not know these groups: what the target was believed to have is dropped."""
        for name in names:
            group = self.groups[name]
            if group.memory and any(one.agreed >= 0 for one in group.memory.values()):
                group.memory = {where: one._replace(agreed=-1) for where, one in group.memory.items()}
                self.reopen(group)

    def left(self, group: GroupState) -> None:
        """Members on the writing side have left. They may have recommitted the offset that they found."""
        group.memory = {where: one._replace(marked=False) for where, one in group.memory.items()}
        self.reopen(group)

    def sends(self, group: GroupState, where: TopicPartitionTuple, place: CommittedOffset | None) -> None:
        """Notes a commit before it is sent: without a response it may have arrived. None: not sent."""
        group.memory[where] = self.memory_of(group, where)._replace(tried=place)

    def due(self, now_s: float) -> Iterator[tuple[str, GroupState]]:
        for name, group in self.groups.items():
            if now_s >= group.check_at_s:
                group.check_at_s = now_s + self.verify_s
                self.reopen(group)
            if now_s >= group.renew_at_s:
                group.renews = True
                self.reopen(group)
            if group.open and not group.live:
                yield name, group

    def renewed(self, group: GroupState, now_s: float) -> None:
        group.renews, group.renew_at_s = False, now_s + self.renew_s

    def settle(
        self, group: GroupState, where: TopicPartitionTuple, decision: CommitDecision, behind: int, now_s: float
    ) -> None:
        group.memory[where] = decision.memory
        group.refused.pop(where, None)
        if decision.whole and decision.state in STATUSES_AT_GOAL:
            group.standing.pop(where, None)
        else:
            self.stands(group, where, decision.state, behind, now_s)
        if decision.whole:
            group.open.discard(where)

    @staticmethod
    def stands(
        group: GroupState, where: TopicPartitionTuple, state: GroupSyncStatus, behind: int, now_s: float
    ) -> None:
        since_s = group.standing[where][2] if where in group.standing else now_s
        group.standing[where] = (state, behind, since_s)

    def refuses(self, group: GroupState, where: TopicPartitionTuple, sentence: str, behind: int, now_s: float) -> None:
        """A cluster refuses the offset, or does not report it."""
        self.stands(group, where, GroupSyncStatus.REFUSED, behind, now_s)
        group.refused[where] = (group.refused.get(where, (now_s, ""))[0], sentence)

    def silent(self, group: GroupState, places: Iterable[TopicPartitionTuple], now_s: float) -> None:
        """The writing side does not report these offsets, so memory may be outdated."""
        for where in places:
            self.stands(group, where, GroupSyncStatus.AWAY, 0, now_s)
        group.check = True

    def unanswered(self, entries: Iterable[GroupState], now_s: float) -> None:
        """After a round: open offsets without an answer count as silent."""
        for group in entries:
            left = group.open - group.standing.keys()
            if left and not group.live:
                self.silent(group, left, now_s)

    def memory_of(self, group: GroupState, where: TopicPartitionTuple) -> PartitionMemory:
        known = group.memory.get(where)
        if known is not None:
            return known
        return NO_MEMORY._replace(high=self._expected.get(group.said.group, {}).get(where, NO_MEMORY.high))

    def reopen(self, group: GroupState) -> None:
        group.check = True
        group.open |= group.said.places.keys() & self.scope.parts.keys()


def _without(topics: Container[str], some: Mapping[TopicPartitionTuple, V]) -> dict[TopicPartitionTuple, V]:
    return {where: one for where, one in some.items() if where[0] not in topics}


def _part(name: str, period_s: float) -> float:
    """Returns a share of the period by group name, so that groups do not all come due at once."""
    return period_s * (crc32(name.encode()) % 1024) / 1024
