"""Groups whose readers write to topics of the link: to which, and which of their places may be known. Pure.

A reader writes what it made of records, and then commits its place behind them. So what it had made was written by the
time its place was read; and once all that its topics held after that has crossed, so has what it made.

An offset of one side in terms of the other: as it is on exact twins, through extents on mapped ones. Pure.

What becomes of one group's place on one partition: the rules, as a function over values. Pure.
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
    """Places of a group as they were read, and each log that it writes to which has not crossed yet up to where it
    ended after that; `asked_s`: when those ends were asked for."""

    said: GroupOffsets
    ends: Mapping[TopicPartitionTuple, int]
    asked_s: float


def output_patterns(rules: OutputRules, group: str) -> tuple[str, ...]:
    """The expressions for topics that the group's readers write to; none: its places wait for nothing."""
    found = [topics for pattern, topics in rules if re.fullmatch(pattern, group)]
    return tuple(topic.replace(GROUP_PLACEHOLDER, re.escape(group)) for topics in found for topic in topics)


def output_topics(rules: OutputRules, group: str, topics: Iterable[str]) -> frozenset[str]:
    """Those of the topics that the group's readers write to."""
    patterns = [re.compile(one) for one in output_patterns(rules, group)]
    return frozenset(topic for topic in topics if any(one.fullmatch(topic) for one in patterns))


def drop_replicated(moment: OffsetSnapshot, crossed: Mapping[TopicPartitionTuple, int]) -> OffsetSnapshot:
    """What has still to cross. `crossed`: how far each log stands on the target, as offsets of the source."""
    return moment._replace(ends={where: end for where, end in moment.ends.items() if crossed.get(where, -1) < end})


def lower_ends(
    moment: OffsetSnapshot, ends: Mapping[TopicPartitionTuple, int], there: Container[TopicPartitionTuple], now_s: float
) -> OffsetSnapshot:
    """The same moment by ends that were asked for anew. Records that the source has lost cannot cross any more, so
    an end may come down; it never rises, as nothing that came since is waited for. A log that is not `there` drops
    out."""
    return OffsetSnapshot(moment.said, {w: min(end, ends[w]) for w, end in moment.ends.items() if w in there}, now_s)


def releasable_offsets(released: GroupOffsets, now: GroupOffsets) -> dict[TopicPartitionTuple, CommittedOffset]:
    """The group's places that may be shown to the target: those of the moment whose outputs have crossed, or the
    group's present ones where these are lower. A place that the group has no more is left out."""
    return {
        where: now.places[where] if now.places[where].offset < place.offset else place
        for where, place in released.places.items()
        if where in now.places
    }


FindRuns = Callable[[int, bool], tuple[OffsetRun | None, OffsetRun | None]]


class TranslatedOffset(NamedTuple):
    """Where a reader of the one side reads on at the other. Not `reached`: what it reads next there has not crossed
    yet, and `offset` is the furthest that is known to be right."""

    offset: int
    reached: bool = True


class OffsetTranslation(Protocol):
    """None where no right answer is known: before the first record that this link carried."""

    def forward(self, offset: int) -> TranslatedOffset | None:
        """An offset of the source, on the target."""

    def back(self, offset: int) -> TranslatedOffset | None:
        """An offset of the target, on the source."""


class ExactTranslation:
    """Exact twins: the offsets are the same."""

    def forward(self, offset: int) -> TranslatedOffset | None:
        return TranslatedOffset(offset)

    def back(self, offset: int) -> TranslatedOffset | None:
        return TranslatedOffset(offset)


EXACT_TRANSLATION = ExactTranslation()


@dataclass(frozen=True, slots=True)
class ReplicatedTranslation:
    """Exact twins, as far as the link carried them: `carried(where, offset)` says how far, and looks again where that
    is below the offset; below `inherited` both were the same before it. What lies beyond on the target is nobody's
    copy: other records have these offsets on the source, now or soon, and whoever read on there has not read those."""

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


class ReversedTranslation:
    """The same, seen from the other side."""

    def __init__(self, inner: OffsetTranslation) -> None:
        self.forward, self.back = inner.back, inner.forward


class RunTranslation:
    """Mapped twins. `around(offset, on_target)` gives the extent that begins at the offset or before it, and the next.

    A reader inside an extent reads the very record there. One between two extents has read all of the first and nothing
    of the second, so it reads on where the second begins: exact at any lag. Behind the last one `crossed` decides, how
    far the source has crossed: offsets without records, a transaction's end, are in no extent.
    """

    def __init__(self, around: FindRuns, crossed: Callable[[], int] = lambda: 0) -> None:
        self._around, self._crossed = around, crossed

    def forward(self, offset: int) -> TranslatedOffset | None:
        # First, so that it is never newer than the extents: between them a record could have come.
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
    """`into`: how far behind the begin of the stretch; `goal`, `following`: where it and the next one begin there."""
    if into < length:
        return TranslatedOffset(goal + into)
    if following is not None:
        return TranslatedOffset(following)
    return TranslatedOffset(goal + length, reached=into == length)


@dataclass(frozen=True, slots=True)
class SyncScope:
    """`parts`: each partition of the reading side, its name on the writing side, and how to come there."""

    parts: Mapping[TopicPartitionTuple, tuple[TopicPartitionTuple, OffsetTranslation]]
    names: tuple[tuple[str, str, str, str], ...] = ()

    def reversed(self) -> SyncScope:
        """The same from the other side."""
        parts = {twin: (where, ReversedTranslation(translation)) for where, (twin, translation) in self.parts.items()}
        return SyncScope(parts, self.names)


EMPTY_SCOPE = SyncScope({})


def added_topics(before: SyncScope, now: SyncScope) -> frozenset[str]:
    """Topics, by their names on both sides, that have a twin now and had none before, or another topic's."""
    return frozenset(name for row in set(now.names) - set(before.names) for name in row[:2])


def build_scope(
    link: Link,
    rows: Iterable[TwinRow],
    mapped: Mapping[TopicPartitionTuple, OffsetTranslation],
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    carried: Callable[[TopicPartitionTuple, int], int],
) -> SyncScope:
    """Of the twins that are remembered, those whose topics are still the same ones, by their ids: a place in a topic
    that was made again says nothing about the old one. `carried`: as `ReplicatedTranslation` asks it."""
    parts: dict[TopicPartitionTuple, tuple[TopicPartitionTuple, OffsetTranslation]] = {}
    names: set[tuple[str, str, str, str]] = set()
    for row in rows:
        twin = link.twin_of(row.topic)
        if source_ids.get(row.topic) == row.source_topic_id and target_ids.get(twin) == row.target_topic_id:
            where = (row.topic, row.partition)
            parts[where] = (
                (twin, row.partition),
                mapped.get(where) or ReplicatedTranslation(where, carried, row.inherited),
            )
            names.add((row.topic, twin, row.source_topic_id, row.target_topic_id))
    return SyncScope(parts, tuple(sorted(names)))


# One look might see a consumer that commits late; after two of them the source's group has been set back on purpose.
RESET_CONFIRMATIONS = 2


class GroupSyncStatus(StrEnum):
    """How a group stands on the target beside the source."""

    SAME = "same"
    MOVES = "moves"
    WAITS = "waits"  # until what its readers wrote has crossed
    BEHIND = "behind"  # as far as the twin reaches, which is not as far as the group has read
    SET_BACK = "set back"
    SETTING_BACK = "setting back"  # lower than it was, seen once
    AHEAD = "ahead"  # further on than the source's; left alone
    OWN = "on its own"  # not further on, and set by somebody who is not this link; left alone
    LIVE = "has members"  # left alone
    UNKNOWN = "unknown"  # before the first record that the link carried
    REFUSED = "refused"
    AWAY = "away"  # nobody answers for it there


class PartitionMemory(NamedTuple):
    """What earlier looks saw: the furthest place on the source, how often it was lower since, and the offset at which
    the target's place was ours or the same as ours; -1: never. `own`: somebody else has set it since. `marked`: it
    carried the mark there. `tried`: what was sent there, and no answer is known."""

    high: int = -1
    lower_looks: int = 0
    agreed: int = -1
    own: bool = False
    marked: bool = False
    tried: CommittedOffset | None = None


NO_MEMORY = PartitionMemory()


class CommitDecision(NamedTuple):
    """`to` is what to commit; None: nothing. `memory` holds once that is done. `whole`: no need to look again until
    something changes."""

    state: GroupSyncStatus
    to: CommittedOffset | None
    memory: PartitionMemory
    whole: bool


class CommitRules(NamedTuple):
    """`resets`: a group that is set back on the source is set back on the target. `trusts`: a place that is found
    without a mark may be of when the link left none. `returns`: what is read at the target comes to the source,
    so that a place that both sides share is nobody's own. `marks`: places can carry a mark. `notes`: the group's
    consumers leave notes, and may fail at a mark; so none is left, and the link's places are known by memory. `makes`:
    a group that has no place at all on the side that is written gets one there."""

    resets: bool = True
    trusts: bool = False
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
    """`place` is the source's, `spot` the same on the target, `end` the target's high watermark, `there` what the group
    has there. No place lies beyond the end: a consumer would be thrown to an end of the log by its reset policy."""
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
    """What the target's place says of a commit whose answer was lost: where it stands there, the commit arrived."""
    sent = memory.tried
    if sent is None or there is None or (there.offset, there.metadata or "") != (sent.offset, sent.metadata or ""):
        return memory
    return memory._replace(agreed=sent.offset, marked=sent.metadata == COMMIT_MARK, tried=None)


def _may_note(there: CommittedOffset, wanted: CommittedOffset, memory: PartitionMemory, rules: CommitRules) -> bool:
    """Whether the note beside a place is to become another. Over a place that its reader came to by itself nothing is
    written at once: it may be about to commit the next one."""
    if (wanted.metadata or "") == (there.metadata or ""):
        return False
    rested = rules.returns and memory.agreed == there.offset and not memory.own
    return there.metadata == COMMIT_MARK or has_metadata(there) or _is_first(memory) or rested or not rules.marks


def _note(place: CommittedOffset, rules: CommitRules, *, whole: bool) -> str:
    """What is written beside a place: its consumer's note, which is about that place alone, or else the mark."""
    note = place.metadata if whole and has_metadata(place) else ""
    return note or (COMMIT_MARK if rules.marks and not rules.notes else "")


def has_metadata(place: CommittedOffset) -> bool:
    """Whether a consumer left a text there. Some clients send a byte 0 for none."""
    return bool((place.metadata or "").rstrip("\0")) and place.metadata != COMMIT_MARK


def _is_anothers(there: CommittedOffset, memory: PartitionMemory, rules: CommitRules, *, met: bool) -> bool:
    """Whether the target's place is not the link's: it lacks the mark, and is not as the link left it. Once so, it
    stays so. Where a consumer's note is in the mark's place, one that was never seen before may be the link's; and one
    that was never seen before and is where it should be (`met`) is taken for the link's too."""
    if there.metadata == COMMIT_MARK or (met and rules.returns):
        return False
    if memory.own:
        return True
    if there.offset == memory.agreed:
        return memory.marked
    first_is_ours = met or rules.trusts or rules.notes or has_metadata(there)
    return not (_is_first(memory) and first_is_ours)


def _is_below_mark(spot: TranslatedOffset, there: CommittedOffset | None, memory: PartitionMemory) -> bool:
    """Whether the target's place is the link's own and lies further on than the source's, though nothing is
    remembered. Then the group was set back on the source meanwhile, or was deleted and began again. The mark says
    that nobody has read on from that place."""
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
    """The other way: `place` is what a group has on the target. The source's place only ever goes forward, and only
    after the target's has been seen to move: one that was found as it is may be older than what the source has, or than
    the group's deletion there."""
    found = place.offset <= memory.high or memory.high < 0
    decision = decide_commit(place, spot, end, there, memory, rules._replace(resets=False, marks=False))
    to = decision.to
    onwards = to is not None and (there is None or to.offset > there.offset)
    if onwards and (found or (there is None and not rules.makes)):
        return CommitDecision(GroupSyncStatus.AHEAD, None, PartitionMemory(place.offset, 0, memory.agreed), whole=True)
    return decision
