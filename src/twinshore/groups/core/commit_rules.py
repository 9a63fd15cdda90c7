"""Decides what to commit for one group on one partition, translates offsets, and holds offsets back until a group's
output is replicated.

A consumer writes the output of its input records before it commits their offset. So the ends of the output logs are
read after the offset; once replicated up to these ends, the output of all records before that offset is replicated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from twinshore.config.frozen import COMMIT_MARK
from twinshore.config.model import Link, OffsetRun
from twinshore.config.sections.links import GROUP_PLACEHOLDER
from twinshore.kafka.protocol.offsets import CommittedOffset, GroupOffsets, TopicPartitionTuple
from twinshore.state.core.values import TwinRow

OutputRules = tuple[tuple[str, tuple[str, ...]], ...]


class OffsetSnapshot(NamedTuple):
    """A group's offsets at one time (`said`). `ends`: output partitions not yet replicated up to these ends, which were
    read later, at `asked_s`.
    """

    said: GroupOffsets
    ends: Mapping[TopicPartitionTuple, int]
    asked_s: float


def output_patterns(rules: OutputRules, group: str) -> tuple[str, ...]:
    """Returns patterns for the topics that the group writes; without any, offsets wait for nothing."""
    found = [topics for pattern, topics in rules if re.fullmatch(pattern, group)]
    return tuple(topic.replace(GROUP_PLACEHOLDER, re.escape(group)) for topics in found for topic in topics)


def output_topics(rules: OutputRules, group: str, topics: Iterable[str]) -> frozenset[str]:
    patterns = [re.compile(one) for one in output_patterns(rules, group)]
    return frozenset(topic for topic in topics if any(one.fullmatch(topic) for one in patterns))


def drop_replicated(moment: OffsetSnapshot, crossed: Mapping[TopicPartitionTuple, int]) -> OffsetSnapshot:
    """`crossed`: how far each partition is replicated, as source offsets."""
    return moment._replace(ends={where: end for where, end in moment.ends.items() if crossed.get(where, -1) < end})


def lower_ends(
    moment: OffsetSnapshot, ends: Mapping[TopicPartitionTuple, int], there: Container[TopicPartitionTuple], now_s: float
) -> OffsetSnapshot:
    """Records that the source has lost are never replicated, so an end may fall; later records are not waited for, so
    no end rises. Partitions not in `there` are dropped.
    """
    return OffsetSnapshot(moment.said, {w: min(end, ends[w]) for w, end in moment.ends.items() if w in there}, now_s)


def releasable_offsets(released: GroupOffsets, now: GroupOffsets) -> dict[TopicPartitionTuple, CommittedOffset]:
    """Returns the released offsets, or the group's current ones if lower. Offsets that the group has no longer are left
    out.
    """
    return {
        where: now.places[where] if now.places[where].offset < place.offset else place
        for where, place in released.places.items()
        if where in now.places
    }


FindRuns = Callable[[int, bool], tuple[OffsetRun | None, OffsetRun | None]]


class TranslatedOffset(NamedTuple):
    """Where a consumer of one side continues on the other. Not `reached`: the next record is unreplicated, and `offset`
    is the furthest known to be right.
    """

    offset: int
    reached: bool = True


class OffsetTranslation(Protocol):
    """Methods return None before the first record that this link replicated."""

    def forward(self, offset: int) -> TranslatedOffset | None:
        """Translates a source offset to the target."""

    def back(self, offset: int) -> TranslatedOffset | None:
        """Translates a target offset to the source."""


@dataclass(frozen=True, slots=True)
class ReplicatedTranslation:
    """Exact twins, up to the link's progress. `carried(where, offset)` returns that progress, and reads it again if
    below the offset. Below `inherited` both logs were the same before this link.

    Target records past the progress are no copies: the source has, or will have, other records at these offsets.
    """

    where: tuple[str, int]
    carried: Callable[[tuple[str, int], int], int]
    inherited: int = 0

    def forward(self, offset: int) -> TranslatedOffset | None:
        return TranslatedOffset(offset)

    def back(self, offset: int) -> TranslatedOffset | None:
        if offset <= self.inherited:
            return TranslatedOffset(offset)
        known = max(self.inherited, self.carried(self.where, offset))
        if offset <= known:
            return TranslatedOffset(offset)
        return TranslatedOffset(known, reached=False) if known > 0 else None


# All of the twin counts as replicated.
EXACT_TRANSLATION = ReplicatedTranslation(("", -1), carried=lambda _, offset: offset)


class ReversedTranslation:
    """A translation from the other side."""

    def __init__(self, inner: OffsetTranslation) -> None:
        self.forward, self.back = inner.back, inner.forward


class RunTranslation:
    """Mapped twins. `around(offset, on_target)` returns the offset run at or before the offset, and the next one.

    An offset within a run maps to the same record. Between two runs, a consumer has read all of the first and nothing
    of the second, so it continues at the start of the second, regardless of lag. After the last run, `crossed` (how far
    the source is replicated) decides: offsets without records, such as transaction markers, are in no run.
    """

    def __init__(self, around: FindRuns, crossed: Callable[[], int] = lambda: 0) -> None:
        self._around, self._crossed = around, crossed

    def forward(self, offset: int) -> TranslatedOffset | None:
        # Read first, so that it is never newer than the offset runs: a record could arrive in between.
        crossed = self._crossed()
        before, behind = self._around(offset, False)
        if before is None:
            return None
        begin = behind.target if behind is not None else None
        spot = _through(offset - before.source, before.target, before.length, begin)
        return spot._replace(reached=True) if offset <= crossed else spot

    def back(self, offset: int) -> TranslatedOffset | None:
        before, behind = self._around(offset, True)
        if before is None:
            return None
        begin = behind.source if behind is not None else None
        return _through(offset - before.target, before.source, before.length, begin)


def _through(into: int, goal: int, length: int, following: int | None) -> TranslatedOffset:
    """`into`: distance from the start of the run. `goal`, `following`: start of this run and the next on the other
    side.
    """
    if into < length:
        return TranslatedOffset(goal + into)
    if following is not None:
        return TranslatedOffset(following)
    return TranslatedOffset(goal + length, reached=into == length)


@dataclass(frozen=True, slots=True)
class SyncScope:
    """`parts`: each partition of the reading side, with its name on the writing side and the translation."""

    parts: Mapping[TopicPartitionTuple, tuple[TopicPartitionTuple, OffsetTranslation]]
    names: tuple[tuple[str, str, str, str], ...] = ()

    def reversed(self) -> SyncScope:
        parts = {twin: (where, ReversedTranslation(translation)) for where, (twin, translation) in self.parts.items()}
        return SyncScope(parts, self.names)


EMPTY_SCOPE = SyncScope({})


def added_topics(before: SyncScope, now: SyncScope) -> frozenset[str]:
    """Returns topics, by both names, whose twin is new or belongs to another topic than before."""
    return frozenset(name for row in set(now.names) - set(before.names) for name in row[:2])


def build_scope(
    link: Link,
    rows: Iterable[TwinRow],
    mapped: Mapping[TopicPartitionTuple, OffsetTranslation],
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    carried: Callable[[TopicPartitionTuple, int], int],
) -> SyncScope:
    """Returns the scope of twins whose topic ids are unchanged: an offset in a recreated topic says nothing about the
    old one. `carried`: as in `ReplicatedTranslation`.
    """
    parts: dict[TopicPartitionTuple, tuple[TopicPartitionTuple, OffsetTranslation]] = {}
    names: set[tuple[str, str, str, str]] = set()
    for row in rows:
        twin = link.twin_of(row.topic)
        if source_ids.get(row.topic) == row.source_topic_id and target_ids.get(twin) == row.target_topic_id:
            where = (row.topic, row.partition)
            translation = mapped.get(where) or ReplicatedTranslation(where, carried, row.inherited_end)
            parts[where] = (twin, row.partition), translation
            names.add((row.topic, twin, row.source_topic_id, row.target_topic_id))
    return SyncScope(parts, tuple(sorted(names)))


# A single check might see a late commit; after two, the group was reset on purpose.
RESET_CONFIRMATIONS = 2


class GroupSyncStatus(StrEnum):
    """Worst first: a group has the first of its offsets' statuses."""

    REFUSED = "refused"
    AWAY = "away"  # no coordinator answers for it there
    UNKNOWN = "unknown"  # before the first record that the link replicated
    AHEAD = "ahead"  # ahead of the source; left alone
    OWN = "on its own"  # not ahead, and not set by this link; left alone
    SETTING_BACK = "setting back"  # lower than it was, seen once
    SET_BACK = "set back"
    BEHIND = "behind"  # at the end of the twin, which ends before the group's offset
    WAITS = "waits"  # until its output is replicated
    MOVES = "moves"
    SAME = "same"
    LIVE = "has members"  # left alone


class PartitionMemory(NamedTuple):
    """What earlier rounds saw. `high`: the furthest source offset. `lower_looks`: how often it was lower since.
    `agreed`: the target offset that was the link's or equal to it; -1: none. `own`: another client has set the offset
    since. `marked`: had the mark. `tried`: a commit without a known response.
    """

    high: int = -1
    lower_looks: int = 0
    agreed: int = -1
    own: bool = False
    marked: bool = False
    tried: CommittedOffset | None = None


NO_MEMORY = PartitionMemory()


class CommitDecision(NamedTuple):
    """`to`: what to commit; None: nothing. `memory`: valid once committed. `whole`: nothing to do until something
    changes.
    """

    state: GroupSyncStatus
    to: CommittedOffset | None
    memory: PartitionMemory
    whole: bool


class CommitRules(NamedTuple):
    """`resets`: a group reset on the source is reset on the target. `returns`: target offsets are also synced to the
    source, so an offset equal on both sides is no group's own. `marks`: offsets can carry a mark. `notes`: consumers
    commit metadata, and may fail at a mark; so none is written, and the link's offsets are known from memory alone.
    `makes`: commit even if the group has no offset at all on the written side.
    """

    resets: bool = True
    returns: bool = False
    marks: bool = True
    notes: bool = False
    makes: bool = True


DEFAULT_RULES = CommitRules()


def decide_commit(
    place: CommittedOffset,
    spot: TranslatedOffset,
    end: int,
    there: CommittedOffset | None,
    memory: PartitionMemory = NO_MEMORY,
    rules: CommitRules = DEFAULT_RULES,
) -> CommitDecision:
    """`place`: offset on the source; `spot`: its translation; `end`: high watermark of the target; `there`: offset on
    the target. Never goes past the end: consumers would follow their reset policy.
    """
    goal = min(spot.offset, end)
    whole = spot.reached and goal == spot.offset
    memory = _answered(memory, there)
    lower = place.offset < memory.high or _is_below_mark(spot, there, memory)
    looks = memory.lower_looks + 1 if lower else 0
    wanted = CommittedOffset(goal, _note(place, rules, whole=whole))
    moved = PartitionMemory(place.offset, 0, goal, marked=wanted.metadata == COMMIT_MARK)
    met = whole and there is not None and there.offset == goal
    if there is not None and rules.marks and _is_anothers(there, memory, rules, met=met):
        state = GroupSyncStatus.SAME if met else GroupSyncStatus.OWN if goal >= there.offset else GroupSyncStatus.AHEAD
        left = memory._replace(high=max(memory.high, place.offset), own=True, tried=None)
        return CommitDecision(state, None, left, whole=True)
    if there is None or goal > there.offset:
        return CommitDecision(GroupSyncStatus.MOVES if whole else GroupSyncStatus.BEHIND, wanted, moved, whole)
    if goal == there.offset:
        to = wanted if whole and _may_note(there, wanted, memory, rules) else None
        seen = moved if to is not None else moved._replace(marked=there.metadata == COMMIT_MARK)
        return CommitDecision(GroupSyncStatus.SAME if whole else GroupSyncStatus.BEHIND, to, seen, whole)
    if rules.resets and lower and (memory.agreed == there.offset or there.metadata == COMMIT_MARK):
        if looks >= RESET_CONFIRMATIONS:
            return CommitDecision(GroupSyncStatus.SET_BACK, wanted, moved, whole)
        return CommitDecision(GroupSyncStatus.SETTING_BACK, None, memory._replace(lower_looks=looks), whole=False)
    return CommitDecision(GroupSyncStatus.AHEAD, None, memory._replace(high=max(memory.high, place.offset)), whole=True)


def _answered(memory: PartitionMemory, there: CommittedOffset | None) -> PartitionMemory:
    """If the target has the offset of a commit without a response, the commit arrived."""
    sent = memory.tried
    if sent is None or there is None or (there.offset, there.metadata or "") != (sent.offset, sent.metadata or ""):
        return memory
    return memory._replace(agreed=sent.offset, marked=sent.metadata == COMMIT_MARK, tried=None)


def _may_note(there: CommittedOffset, wanted: CommittedOffset, memory: PartitionMemory, rules: CommitRules) -> bool:
    """Returns whether to replace only the metadata. A consumer's own offset is not overwritten at once: the consumer
    may be about to commit the next one.
    """
    if (wanted.metadata or "") == (there.metadata or ""):
        return False
    rested = rules.returns and memory.agreed == there.offset and not memory.own
    return there.metadata == COMMIT_MARK or has_metadata(there) or _is_first(memory) or rested or not rules.marks


def _note(place: CommittedOffset, rules: CommitRules, *, whole: bool) -> str:
    """Returns the consumer's metadata, which is valid for this offset alone, or else the mark."""
    note = place.metadata if whole and has_metadata(place) else ""
    return note or (COMMIT_MARK if rules.marks and not rules.notes else "")


def has_metadata(place: CommittedOffset) -> bool:
    """Returns whether a consumer left metadata. Some clients send a zero byte for none."""
    return bool((place.metadata or "").rstrip("\0")) and place.metadata != COMMIT_MARK


def _is_anothers(there: CommittedOffset, memory: PartitionMemory, rules: CommitRules, *, met: bool) -> bool:
    """Returns whether the target offset is not the link's: no mark, and not as the link left it. Once true, this stays
    true. An offset never seen before counts as the link's if it has consumer metadata instead of the mark, or if it is
    right (`met`).
    """
    if there.metadata == COMMIT_MARK or (met and rules.returns):
        return False
    if memory.own:
        return True
    if there.offset == memory.agreed:
        return memory.marked
    return not (_is_first(memory) and (met or rules.notes or has_metadata(there)))


def _is_below_mark(spot: TranslatedOffset, there: CommittedOffset | None, memory: PartitionMemory) -> bool:
    """Returns whether a marked target offset without memory is past the source's. The mark shows that no consumer read
    on from there, so the group was reset on the source, or deleted and begun again.
    """
    if there is None or there.metadata != COMMIT_MARK:
        return False
    return _is_first(memory) and spot.reached and spot.offset < there.offset


def _is_first(memory: PartitionMemory) -> bool:
    return memory.agreed < 0 and not memory.own


def decide_commit_back(
    place: CommittedOffset,
    spot: TranslatedOffset,
    end: int,
    there: CommittedOffset | None,
    memory: PartitionMemory = NO_MEMORY,
    rules: CommitRules = DEFAULT_RULES,
) -> CommitDecision:
    """The reverse direction: `place` is the target offset. The source offset only moves forward, and only after the
    target offset was seen to move: an offset merely found may be older than the source's, or than the group's deletion
    there.
    """
    found = place.offset <= memory.high or memory.high < 0
    decision = decide_commit(place, spot, end, there, memory, rules._replace(resets=False, marks=False))
    to = decision.to
    onwards = to is not None and (there is None or to.offset > there.offset)
    if onwards and (found or (there is None and not rules.makes)):
        return CommitDecision(GroupSyncStatus.AHEAD, None, PartitionMemory(place.offset, 0, memory.agreed), whole=True)
    return decision
